"""``generate(seed)``: a random program: an environment, a step over it, calls of the step and changes between them."""

from __future__ import annotations

import random
import re

from autojit.testing.fuzz.body import CONSTANTS, Body, Variable
from autojit.testing.fuzz.calls import SIZES, Parameter, argument
from autojit.testing.fuzz.environment import SOURCES, Source
from autojit.testing.fuzz.models import HOOKS, MODULES, OPTIMIZER_CHANGES, OPTIMIZERS, PARAMETER_CHANGES
from autojit.testing.fuzz.program import Block, Node, Program

DTYPES = ("aj.float64",) * 7 + ("aj.float32",) * 2 + ("aj.bfloat16", "aj.float16")
WRAPPERS = ("plain", "plain", "plain", "plain", "method", "module", "decorated", "nested", "lambda")
DECORATORS = (
    "aj.no_grad()", "aj.enable_grad()", "aj.inference_mode()", "noted", "aj.autocast('cpu', dtype=aj.bfloat16)", "contextlib.nullcontext()", "switched()",
)  # fmt: skip
CALLED_WITHIN = ("aj.no_grad()", "aj.inference_mode()", "aj.autocast('cpu', dtype=aj.bfloat16)", "aj.enable_grad()")
ARRAY_USES = (
    "x * aj.as_tensor(c).to(x.dtype)", "x + float(c[0])", "x * float(c.sum())", "x + float(c.std())", "x * float(c.repeat(2)[1])",
    "x + float(c.max(0))", "x * (2 if isinstance(c, np.ndarray) else 3)", "x + aj.as_tensor(c[::-1].copy()).to(x.dtype)", "x * c.size",
    "x + float(c.astype(np.int64).sum() / 2)", "x + aj.as_tensor((c * 2).cumsum()).to(x.dtype)", "x * float(np.float32(2) * c[0])",
    "x * float(c[c > 0].size)", "x + float(c.var(ddof=1))", "x + float(c.T @ c)", "x * c.itemsize", "x + sum(c.tolist())",
)  # fmt: skip
SCALAR_USES = (
    "x * float(c * 2)", "x * c.dtype.itemsize", "x * (2 if type(c) is np.float64 else 3)", "x * c", "x + float(c / 4)",
    "x * (2 if isinstance(c, float) else 3)", "x * float(np.sqrt(c + 1))", "x * (c > 1.5)", "x + float(x.sum().item() * c) * 0.01",
)  # fmt: skip
NEST_USES = (
    "x * c['v']", "x * len(c['l'])", "x + sum(c['l'])", "x * (c['l'].append(1.5) or len(c['l']))", "x * (c.update(last=x.sum().item()) or 2)",
    "x * c.setdefault('w', 1.5)", "x * sum(float(v) for k, v in c.items() if k == 'v')", "x * (2 if type(c['v']) is float else 3)",
)  # fmt: skip
STATE_CHANGES = (
    "state.add_(1)", "weight.data.mul_(0.5)", "weight.grad = None", "weight.requires_grad_(False)", "weight.requires_grad_(True)", "base.mul_(0.5)", "buffer += 1",
    "state = sample(75, 4, dtype={d})", "state[0] = 5", "weight = sample(76, 4, 4, dtype={d}).requires_grad_()",
)  # fmt: skip
BACKWARDS = ("loss.backward()",) * 4 + (
    "loss.backward(retain_graph=True); loss.backward()", "loss.backward(create_graph=True)", "weight.grad = aj.autograd.grad(loss, weight)[0]",
)  # fmt: skip
BEFORE_UPDATE = (
    "", "", "", "aj.nn.utils.clip_grad_norm_(params, 1.0)", "loss.detach_()", "scheduler.step()",
    "(weight * 2).sum().backward(); opt.zero_grad(); (weight ** 2).sum().backward()", "held = weight.grad; weight.grad = weight.detach() * 2",
)  # fmt: skip
SINGLE = (
    r"aj\.(rand|ones|zeros|tensor|autocast|float32|randn|stack)\b|\.float\("  # what gives float32 where that is named
)
HELPERS = {  # decorators that a program defines
    "noted": Block("def noted(f):", (Block("def call(*args):", ("return f(*args)",), ("@functools.wraps(f)",)), "return call")),
    "switched()": Block("def switched():", (Block("with aj.set_grad_enabled(True):", ("yield",)),), ("@contextlib.contextmanager",)),
}  # fmt: skip


def generate(seed: int) -> Program:
    """The program of a seed."""
    return _Writer(seed).program()


class _Writer:
    """Draws one program; the parts are gathered in the order of the script."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.dtype = self.rng.choice(DTYPES)
        self.setup: list[Node] = []
        self.watched: dict[str, str] = {}
        self.changes: list[str] = []
        self.globals: list[str] = []
        self.sources: list[tuple[Source, int]] = []
        self.effects: list[str] = []
        self.nets: list[tuple[Source, int]] = []
        self.count = 0
        self.is_training = self.rng.random() < 0.3

    def fill(self, text: str, u: int) -> str:
        """A template of the environment."""
        parts = {"k": self.rng.choice(CONSTANTS), "s": self.rng.randint(40, 60), "d": self.dtype, "u": u, "n": "1.5"}
        return text.format(**parts, x="{x}")

    # -- the environment

    def add_source(self, source: Source, keep: list[tuple[Source, int]]) -> None:
        """Write a source's setup; note what it offers."""
        u, self.count = self.count, self.count + 1
        self.setup.append(self.fill(source.setup, u))
        keep.append((source, u))
        names = [name.format(u=u) for name in source.names]
        if names and self.rng.random() < 0.4:
            self.globals += names
        for name in source.watched:
            text = name.format(u=u)
            self.watched[re.sub(r"\W", "_", text)] = text
        if source.effects and self.rng.random() < 0.35:
            for _ in range(self.rng.choice((1, 1, 2, 3))):
                self.effects.append(self.fill(self.rng.choice(source.effects), u))

    def add_environment(self) -> None:
        """Some sources, modules and training state."""
        for _ in range(self.rng.choice((1, 1, 2, 2, 3))):
            self.add_source(self.rng.choice(SOURCES), self.sources)
        if self.is_training or self.rng.random() < 0.25:
            self.add_source(self.rng.choice(MODULES), self.nets)
        self.setup += [
            f"base = sample(70, 16, 4, dtype={self.dtype})",
            "buffer = sample_array(71, 16, 4)" + ("" if self.dtype == "aj.float64" else ".astype(np.float32)"),
            f"weight = sample(72, 4, 4, dtype={self.dtype}).requires_grad_()",
            f"state = sample(73, 4, dtype={self.dtype})",
        ]
        self.watched |= {"base": "base", "buffer": "buffer", "weight": "weight", "state": "state"}
        if self.is_training:
            self.add_training()

    def add_training(self) -> None:
        """Parameters, an optimiser and its scheduler, hooks."""
        u = self.nets[0][1]
        self.setup += [
            f"params = [weight, *net{u}.parameters()]",
            f"extra = sample(74, 2, dtype={self.dtype}).requires_grad_()",
            "opt = " + self.rng.choice(OPTIMIZERS).format(p="params"),
            "first_state = copy.deepcopy(opt.state_dict())",
            "scheduler = aj.optim.lr_scheduler.ExponentialLR(opt, 0.9)",
        ]
        if self.rng.random() < 0.3:
            self.setup.append("seen_grads = []")
            self.watched["seen_grads"] = "seen_grads"
            self.setup.append(self.rng.choice(HOOKS).format(n=self.read_constant()))
        self.watched["opt"] = "opt"

    def read_constant(self) -> str:
        """A number of the environment, or one."""
        return self.read_number() if self.rng.random() < 0.6 else self.rng.choice(CONSTANTS)

    def read_number(self) -> str:
        """An expression that reads a source."""
        source, u = self.rng.choice(self.sources)
        return self.fill(self.rng.choice(source.reads), u)

    def change(self) -> str:
        """A statement that changes the environment."""
        options = [(source, u) for source, u in (*self.sources, *self.nets) if source.changes]
        pick = self.rng.random()
        if self.is_training and pick < 0.45:
            text = self.rng.choice(OPTIMIZER_CHANGES if self.rng.random() < 0.6 else PARAMETER_CHANGES)
            return text.format()
        if pick < 0.1 or not options:
            return self.rng.choice(STATE_CHANGES).format(d=self.dtype)
        source, u = self.rng.choice(options)
        return self.fill(self.rng.choice(source.changes), u)

    # -- the step

    def parameters(self) -> list[Parameter]:
        """The step's parameters."""
        kinds = ["tensor"]
        if self.rng.random() < 0.5:
            kinds.append("tensor")
        if self.rng.random() < 0.35:
            others = "number", "whole", "flag", "word", "array", "number", "array", "scalar", "nest"
            kinds.append(self.rng.choice(others))
        return [Parameter("xyz"[k] if kind == "tensor" else "c", kind) for k, kind in enumerate(kinds)]

    def step_body(self, parameters: list[Parameter]) -> list[Node]:
        """Statements from reading the arguments to ``return``."""
        scope = [Variable(p.name, ("n", 4)) for p in parameters if p.kind == "tensor"]
        scope = [Variable("state", (4,)), Variable("weight", (4, 4)), *scope]
        body = Body(self.rng, scope, self.read_number, self.dtype)
        for parameter in parameters:
            self.use(body, parameter)
        for net, u in self.nets:
            if self.rng.random() < 0.7 or self.is_training:
                body.made(self.fill(self.rng.choice(net.reads), u).format(x="x"), ("n", 4))
        body.write(self.rng.choice((1, 2, 3, 3, 4, 5, 6)))
        if self.rng.random() < 0.5:
            body.environment()
        for effect in self.effects:
            body.nodes.append(effect.replace("{x}", f"{body.pick(counted=True).name}.sum()"))
        if self.is_training:
            self.write_training(body)
        body.nodes.append(self.returned(body))
        return self.declared(body.nodes)

    def use(self, body: Body, parameter: Parameter) -> None:
        """Let an argument that is not a tensor matter."""
        text = {
            "number": "x * c", "whole": body.rng.choice(("x * c", "x + x.sum() ** 2 * c", "x[:1] * c + x", "x * (c % 2)", "x * len(range(c))", "x * (c << 1)")),
            "flag": "x * 2 if c else x", "word": "x * len(c)", "array": body.rng.choice(ARRAY_USES), "scalar": body.rng.choice(SCALAR_USES), "nest": body.rng.choice(NEST_USES),
        }.get(parameter.kind)  # fmt: skip
        if text is not None:
            body.made(text, ("n", 4))

    def write_training(self, body: Body) -> None:
        """A loss, its derivative and an update."""
        parts = " + ".join(f"({v.name}.tanh() ** 2).mean()" for v in body.scope[-3:] if not v.is_counted)
        loss = f"loss = {parts or '(weight ** 2).sum()'} + (weight ** 2).sum() * 0.1"
        backward = self.rng.choice(BACKWARDS)
        before = self.rng.choice(("opt.zero_grad()", "opt.zero_grad()", "opt.zero_grad(set_to_none=False)", ""))
        between = self.rng.choice(BEFORE_UPDATE)
        update = self.rng.choice(("opt.step()", "opt.step()", "opt.step()", ""))
        for line in filter(None, (before, loss, *backward.split("; "), *between.split("; "), update)):
            is_backward = line.startswith("loss") and ".backward(" in line
            body.nodes.append(Block("if loss.requires_grad:", (line,)) if is_backward else line)
        body.scope.append(Variable("loss.detach()", ()))

    def returned(self, body: Body) -> str:
        """The return statement."""
        late = [v.name for v in body.scope[-4:]]
        made = self.rng.sample(late, min(len(late), self.rng.choice((1, 1, 2, 3))))
        if self.is_training and self.rng.random() < 0.8:  # backward has freed the graph of what it was part of
            made = [name if name.endswith(")") else f"{name}.detach()" for name in made]
        made += [self.rng.choice(body.numbers)] if body.numbers and self.rng.random() < 0.3 else []
        if len(made) == 1:
            return f"return {made[0]}"
        forms = ("return {0}", "return {0}", "return [{0}]", "return {{'a': {1}, 'b': [{0}]}}")
        return self.rng.choice(forms).format(", ".join(made), made[0])

    def declared(self, nodes: list[Node]) -> list[Node]:
        """``nonlocal`` or ``global`` for names of the environment that the step assigns."""
        text = "\n".join(str(node) for node in nodes)
        names = [name.format(u=u) for source, u in self.sources for name in source.names]
        found = [name for name in names if re.search(rf"(?m)^{name} (?:[-+*|]?=) ", text)]
        heads = [f"{'global' if name in self.globals else 'nonlocal'} {name}" for name in dict.fromkeys(found)]
        return [*heads, *nodes]

    def wrapped(self, parameters: list[Parameter], body: list[Node]) -> list[Node]:
        """The step as a function, a method, a module, or behind a decorator."""
        names = ", ".join(p.name for p in parameters)
        kind = self.rng.choice(WRAPPERS)
        if kind == "method":
            return [
                Block("class Trainer:", (Block("def __init__(self):", ("self.gain = 1.5",)), Block(f"def step(self, {names}):", tuple(body), ("@jit",) if self.rng.random() < 0.5 else ()))),
                "trainer = Trainer()", "step = trainer.step if isinstance(vars(Trainer)['step'], aj.jit.JitFunction) else jit(trainer.step)",
            ]  # fmt: skip
        if kind == "module":
            return [
                Block("class Stepper(nn.Module):", (Block("def __init__(self):", ("super().__init__()", "self.gain = 1.5")), Block(f"def forward(self, {names}):", tuple(body)))),
                "step = jit(Stepper())",
            ]  # fmt: skip
        if kind == "decorated":
            return self.decorated(names, body)
        if kind == "nested":
            inner = Block(f"def inner({names}):", tuple(body), ("@jit",))
            return [inner, Block(f"def step({names}):", (f"return inner({names})",), ("@jit",))]
        if kind == "lambda":
            return [Block(f"def inner({names}):", tuple(body)), f"step = jit(lambda {names}: inner({names}))"]
        return [Block(f"def step({names}):", tuple(body), ("@jit",))]

    def decorated(self, names: str, body: list[Node]) -> list[Node]:
        """The step behind a decorator, above or below ``jit``."""
        chosen = self.rng.choice(DECORATORS)
        before = [HELPERS[chosen]] if chosen in HELPERS else []
        if chosen == "contextlib.nullcontext()":
            chosen = "aj.autograd.profiler.record_function('part')"
        return [*before, Block(f"def step({names}):", tuple(body), ("@jit", f"@{chosen}"))]

    # -- the calls

    def calls(self, parameters: list[Parameter]) -> list[Node]:
        """Calls with changes of the environment and of arguments between them."""
        nodes: list[Node] = []
        previous: dict[str, list[str]] = {}
        wants_grad = self.rng.random() < 0.4
        sizes = [self.rng.choice(SIZES) for _ in range(3)] if self.rng.random() < 0.6 else [3]
        has_mode = self.rng.random() < 0.15
        for k in range(self.rng.choice((3, 4, 4, 5, 6, 8))):
            n = self.rng.choice(sizes)
            given: list[str] = []
            for p in parameters:
                text = argument(self.rng, p, n, self.dtype, previous.get(f"{p.kind}{n}", []), wants_grad)
                if p.kind == "tensor" and not text.startswith(("x", "y")):
                    name = f"{p.name}{k}"
                    nodes.append(f"{name} = {text}")
                    previous.setdefault(f"{p.kind}{n}", []).append(name)
                    text = name
                given.append(text)
            if len(given) > 1 and parameters[1].kind == "tensor" and self.rng.random() < 0.1:
                given[1] = given[0]
            call = f"r{k} = see.call(step, {', '.join(given)})"
            mode = self.rng.choice(CALLED_WITHIN) if has_mode and self.rng.random() < 0.5 else ""
            nodes.append(Block(f"with {mode}:", (call,)) if mode else call)
            if wants_grad and not self.is_training and self.rng.random() < 0.6:
                inputs = ", ".join([*[g for g in given if g[0] in "xy"], "weight"])
                nodes.append(f"see.grads(r{k}, {inputs}, order={self.rng.choice((1, 2))})")
            for _ in range(self.rng.choice((0, 0, 1, 1, 1, 2))):
                nodes.append(self.change_of_argument(given, k) if self.rng.random() < 0.12 else self.change())
        return nodes

    def change_of_argument(self, given: list[str], k: int) -> str:
        """A change of what was passed or returned."""
        x = given[0]
        of_results = f"[t.data.add_(1) for t in (r{k} if isinstance(r{k}, (list, tuple)) else [r{k}]) if isinstance(t, aj.Tensor)]"
        return self.rng.choice((f"{x}.data.add_(1)", f"{x}.grad = None", f"{x}.data.mul_(0)", of_results, f"del {x}"))

    def program(self) -> Program:
        """All parts together."""
        self.add_environment()
        parameters = self.parameters()
        step = self.wrapped(parameters, self.step_body(parameters))
        calls = self.calls(parameters)
        watch = "see.watch(" + ", ".join(f"{name}=lambda: {text}" for name, text in self.watched.items()) + ")"
        body = (*self.setup, *step, watch, *calls)
        text = "\n".join(str(node) for node in body)
        dtype = self.dtype.removeprefix("aj.")
        if "autocast" in text or "bfloat16" in text:
            dtype = "bfloat16"
        elif dtype == "float64" and "float32" in text and re.search(SINGLE, text):
            dtype = "float32"
        return Program(self.seed, dtype, body, tuple(dict.fromkeys(self.globals)))
