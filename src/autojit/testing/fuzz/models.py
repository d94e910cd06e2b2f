"""Modules and optimisers of programs, and how both change between calls. ``{k}`` a number, ``{s}`` a seed, ``{d}`` the dtype."""

from __future__ import annotations

from autojit.testing.fuzz.environment import Source

_ANY = (
    "net{u}.eval()", "net{u}.train()", "net{u}.requires_grad_(False)", "net{u}.requires_grad_(True)", "net{u}.zero_grad()",
    "net{u}.forward = lambda z: z * {k}", "handle{u} = net{u}.register_forward_hook(lambda m, i, o: o * {k})",
    "net{u}.load_state_dict({{name: v * 0.5 for name, v in net{u}.state_dict().items()}})", "net{u}.register_forward_pre_hook(lambda m, i: (i[0] + {k},))",
    "type(net{u}).marker = {k}", "[p.data.mul_({k}) for p in net{u}.parameters()]", "[p.grad.zero_() for p in net{u}.parameters() if p.grad is not None]",
    "net{u}.load_state_dict(saved{u})", "saved{u} = {{name: v.clone() for name, v in net{u}.state_dict().items()}}", "net{u}.to({d})",
)  # fmt: skip
_SAVED = "\nsaved{u} = {{name: v.clone() for name, v in net{u}.state_dict().items()}}"


def _net(made: str, *changes: str, before: str = "") -> Source:
    return Source(
        f"{before}net{{u}} = filled({made}, {{s}}, {{d}}){_SAVED}",
        ("net{u}({x})",),
        (*changes, *changes, *_ANY),
        ("net{u}",),
    )


MODULES = (  # functions of (..., 4) to (..., 4)
    _net("nn.Linear(4, 4)", "net{u}.weight.requires_grad_(False)", "net{u}.bias = None", "net{u}.weight = nn.Parameter(sample({s}, 4, 4, dtype={d}))", "net{u}.weight.data = sample({s}, 4, 4, dtype={d})", "net{u}.bias.grad = None", "aj.nn.init.ones_(net{u}.weight)"),
    _net("nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 4))", "net{u}[1] = nn.ReLU()", "net{u}[0].weight.data.mul_({k})", "net{u}[2].requires_grad_(False)", "net{u}.append(nn.Tanh())", "net{u}[0].register_forward_hook(lambda m, i, o: o + {k})", "net{u}[0].bias.requires_grad_(False)", "del net{u}[1]"),
    _net("nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.4))", "net{u}[1].p = 0.1", "net{u}[1].eval()", "net{u}[1].inplace = True"),
    _net("nn.BatchNorm1d(4)", "net{u}.momentum = 0.5", "net{u}.reset_running_stats()", "net{u}.running_mean.zero_()", "net{u}.track_running_stats = False", "net{u}.momentum = None"),
    _net("nn.LayerNorm(4)", "net{u}.eps = 0.1", "net{u}.weight.data[0] = {k}"),
    _net("nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])", "net{u}.append(nn.Linear(4, 4).to({d}))", "net{u}[0].weight.data.mul_({k})", before="")._replace(reads=("sum(part({x}) for part in net{u})", "net{u}[-1]({x})", "net{u}[len(net{u}) - 1](net{u}[0]({x}))")),
    _net("Net{u}()", "net{u}.cfg.scale = {k}", "net{u}.cfg = types.SimpleNamespace(scale={k})", "net{u}.items[0] = {k}", "net{u}.fn = aj.sin", "net{u}.mask = aj.ones(4).to({d})", "net{u}.mask.mul_({k})", "Net{u}.help = lambda self, z: z * {k}", "net{u}.gain = {k}", "net{u}.help = lambda z: z + {k}", "net{u}.w.data.add_({k})", "net{u}.part.bias.data.add_({k})", "Net{u}.forward = lambda self, z: self.part(z) * {k}",
        before="class Net{u}(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.cfg, self.items, self.fn, self.gain = types.SimpleNamespace(scale={k}), [1.0, 2.0], aj.tanh, 1.5\n        self.w, self.part = nn.Parameter(aj.ones(4)), nn.Linear(4, 4)\n        self.register_buffer('mask', aj.ones(4))\n    def help(self, z):\n        return self.fn(z) * self.cfg.scale * self.mask + self.items[0] * self.gain\n    def forward(self, z):\n        return self.help(self.part(z)) * self.w\n"),
    _net("Counter{u}()", "net{u}.calls = 0", "net{u}.total.zero_()", "net{u}.total = aj.zeros(4).to({d})", "net{u}.seen.clear()",
        before="class Counter{u}(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.calls, self.seen = 0, []\n        self.part = nn.Linear(4, 4)\n        self.register_buffer('total', aj.zeros(4))\n    def forward(self, z):\n        self.calls += 1\n        with aj.no_grad():\n            self.total += z.detach().sum(tuple(range(z.dim() - 1)))\n        return self.part(z) + self.total / self.calls\n"),
    _net("Child{u}()", "net{u}.gain = {k}", "Parent{u}.gain = {k}", "Parent{u}.forward = lambda self, z: z * {k}", "net{u}.fn = {{'a': aj.sin}}", "net{u}.fn['a'] = aj.cos",
        before="class Parent{u}(nn.Module):\n    gain = {k}\n    def forward(self, z):\n        return self.a(z) * self.gain\nclass Child{u}(Parent{u}):\n    def __init__(self):\n        super().__init__()\n        self.a, self.fn = nn.Linear(4, 4, bias=False), {{'a': aj.tanh}}\n    def forward(self, z):\n        return self.fn['a'](super().forward(z))\n"),
    _net("Outer{u}()", "net{u}.part.weight.data.mul_({k})", before="class Outer{u}(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.part = jit(nn.Linear(4, 4))\n    def forward(self, z):\n        return self.part(z).tanh()\n"),
    _net("nn.MultiheadAttention(4, 2, batch_first=True)", before="")._replace(reads=("net{u}({x}.reshape(1, -1, 4), {x}.reshape(1, -1, 4), {x}.reshape(1, -1, 4))[0].reshape({x}.shape)",), changes=("net{u}.eval()", "net{u}.in_proj_weight.data.mul_({k})", "net{u}.requires_grad_(False)")),
    _net("nn.Conv1d(1, 1, 3, padding=1)", "net{u}.padding, net{u}.dilation = (2,), (2,)", "net{u}.padding_mode = 'zeros'", "net{u}.stride = (2,)", before="")._replace(reads=("net{u}({x}.reshape(-1, 1, 4)).reshape({x}.shape)",)),
    _net("nn.GRU(4, 4, batch_first=True)", before="")._replace(reads=("net{u}({x}.reshape(1, -1, 4))[0].reshape({x}.shape)",), changes=("net{u}.weight_hh_l0.data.mul_({k})", "net{u}.requires_grad_(False)", "net{u}.eval()")),
)  # fmt: skip

OPTIMIZERS = (
    "aj.optim.SGD({p}, lr=0.1)", "aj.optim.SGD({p}, lr=0.1, momentum=0.9)", "aj.optim.SGD({p}, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1)",
    "aj.optim.Adam({p}, lr=0.05)", "aj.optim.AdamW({p}, lr=0.05)", "aj.optim.RMSprop({p}, lr=0.05)", "aj.optim.Adagrad({p}, lr=0.1)",
    "aj.optim.Adamax({p}, lr=0.05)", "aj.optim.NAdam({p}, lr=0.05)", "aj.optim.RAdam({p}, lr=0.05)", "aj.optim.Adadelta({p})", "aj.optim.ASGD({p}, lr=0.05)",
    "aj.optim.Rprop({p}, lr=0.05)", "aj.optim.Adam({p}, lr=0.05, amsgrad=True)", "aj.optim.RMSprop({p}, lr=0.05, momentum=0.5, centered=True)",
)  # fmt: skip

OPTIMIZER_CHANGES = (
    "opt.register_step_post_hook(lambda o, a, k: [p.data.mul_(0.9) for p in params] and None)", "opt.register_step_pre_hook(lambda o, a, k: print('step'))",
    "opt.load_state_dict(opt.state_dict())", "opt.load_state_dict(first_state)", "opt.state.clear()", "opt.state = collections.defaultdict(dict)", "opt.param_groups[0]['lr'] = 0.02",
    "opt.param_groups[0]['weight_decay'] = 0.1", "opt.zero_grad()", "opt.zero_grad(set_to_none=False)", "scheduler.step()", "opt.step()", "opt.state.pop(params[0], None)",
    "[s.update({{k: v.clone() * 0.5 for k, v in s.items() if isinstance(v, aj.Tensor) and v.dim()}}) for s in opt.state.values()]", "[v.mul_(0.5) for s in opt.state.values() for v in s.values() if isinstance(v, aj.Tensor) and v.dim()]",
    "opt.add_param_group({{'params': [extra], 'lr': 0.5}})", "first_state = copy.deepcopy(opt.state_dict())",
)  # fmt: skip

PARAMETER_CHANGES = (
    "kept_handle = params[0].register_hook(lambda g: g * 0.5) if params[0].requires_grad else None", "params[-1].tag = 2.0",
    "params[0].grad = None", "params[0].requires_grad_(False)", "params[0].requires_grad_(True)", "params[0].data.mul_(0.5)", "params[0].grad = aj.ones_like(params[0])",
    "params[0].grad.mul_(2) if params[0].grad is not None else None", "params[0].grad, params[-1].grad = (params[-1].grad, params[0].grad) if params[0].shape == params[-1].shape else (params[0].grad, params[-1].grad)",
    "held = params[0].grad", "[p.grad.zero_() for p in params if p.grad is not None]", "aj.nn.utils.clip_grad_norm_(params, 0.5)", "params[0].data = params[0].data.clone()", "kept = [p.grad for p in params]",
    "(params[0] * 2).sum().backward() if params[0].requires_grad else None", "params.reverse()",
)  # fmt: skip

HOOKS = (  # lines of the setup
    "params[0].register_hook(lambda g: g * {n}) if params[0].requires_grad else None", "params[0].register_hook(lambda g: (seen_grads.append(g.detach().sum().item()), g * 0.5)[1])",
    "params[-1].register_post_accumulate_grad_hook(lambda p: [p.grad.mul_({n}), None][1])", "params[0].register_hook(lambda g: g.clamp(-1, 1))",
)  # fmt: skip
