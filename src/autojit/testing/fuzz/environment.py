"""What a step reads besides its arguments, and how that changes between calls.

A ``Source`` is a piece of the environment: lines that make it, expressions that read it (numbers, or tensors of the
operand's shape), and statements that change it. ``{u}`` is a number that makes its names unique; ``{k}`` a small number.
"""

from __future__ import annotations

from typing import NamedTuple


class Source(NamedTuple):
    """One kind of Python state."""

    setup: str
    reads: tuple[str, ...]  # numbers
    changes: tuple[str, ...]
    watched: tuple[str, ...] = ()  # names whose content is compared after every call
    effects: tuple[str, ...] = ()  # statements of the step that change it; {x} is a number tensor
    names: tuple[str, ...] = ()  # assigned names, which may be globals instead of closure variables


SOURCES = (
    Source("k{u} = {k}", ("k{u}",), ("k{u} = {k}", "k{u} += 1"), ("k{u}",), ("k{u} = k{u} + 1", "k{u} = {k}"), ("k{u}",)),
    Source("k{u} = 3", ("k{u}", "k{u} % 2", "k{u} ** 2"), ("k{u} = 7", "k{u} += 1"), ("k{u}",), ("k{u} += 2", "k{u} = 3"), ("k{u}",)),
    Source("flag{u} = True", ("(2.0 if flag{u} else 0.5)", "float(not flag{u})"), ("flag{u} = not flag{u}", "flag{u} = False"), ("flag{u}",), ("flag{u} = True", "flag{u} = not flag{u}"), ("flag{u}",)),
    Source("mode{u} = 'a'", ("(2.0 if mode{u} == 'a' else 0.5)", "float(len(mode{u}))", "{{'a': 1.5, 'bb': 2.5}}[mode{u}]"), ("mode{u} = 'bb'", "mode{u} = 'a'"), ("mode{u}",), ("mode{u} = 'a'",), ("mode{u}",)),
    Source("none{u} = None", ("(1.5 if none{u} is None else none{u})",), ("none{u} = {k}", "none{u} = None"), names=("none{u}",)),
    Source(
        "cfg{u} = types.SimpleNamespace(scale={k}, deep=types.SimpleNamespace(v=1.5))",
        ("cfg{u}.scale", "getattr(cfg{u}, 'scale')", "vars(cfg{u})['scale']", "operator.attrgetter('scale')(cfg{u})", "cfg{u}.deep.v", "float(hasattr(cfg{u}, 'extra'))", "getattr(cfg{u}, 'sca' + 'le', 1.0)", "operator.attrgetter('deep.v')(cfg{u})", "float(len(vars(cfg{u})))"),
        ("cfg{u}.scale = {k}", "vars(cfg{u})['scale'] = {k}", "cfg{u}.deep.v = {k}", "cfg{u}.deep = types.SimpleNamespace(v={k})", "cfg{u}.extra = 1", "cfg{u} = types.SimpleNamespace(scale={k}, deep=cfg{u}.deep)"),
        ("cfg{u}",), ("cfg{u}.scale = cfg{u}.scale + 1", "cfg{u}.last = {x}", "cfg{u}.deep.v = {x}.item()", "cfg{u}.scale = {k}", "cfg{u}.made = types.SimpleNamespace(v={x}, w=[{x}.item()])", "cfg{u}.same = cfg{u}.deep", "cfg{u}.seen = {{1, 2}}", "cfg{u}.size = {x}.detach().reshape(1).shape"), ("cfg{u}",),
    ),
    Source(
        "items{u} = [1.0, {k}, 2.0]",
        ("items{u}[0]", "items{u}[-1]", "float(len(items{u}))", "sum(items{u})", "float(2.0 in items{u})", "[v * 2 for v in items{u}][1]", "max(items{u})", "sorted(items{u})[0]", "items{u}[:2][1]", "sum(map(float, items{u}))", "next(iter(items{u}))", "float(items{u} == [1.0, 2.0])", "sum(a * b for a, b in zip(items{u}, items{u}))"),
        ("items{u} = list(items{u})", "items{u}[0] = {k}", "items{u}.append({k})", "items{u}[-1] = {k}", "items{u}.reverse()", "items{u} = [{k}, {k}]", "items{u}.insert(0, {k})", "items{u}.sort()"),
        ("items{u}",), ("del items{u}[:-2]", "items{u}[-1] = {x}.item()", "items{u} += [{x}.item(), 1.0]", "items{u}.insert(0, {x}.item())", "del items{u}[0]", "items{u}[1:] = [{k}, 1.0, 2.0]", "heapq.heappush(items{u}, {x}.item())", "items{u}.append(len(items{u}))", "items{u}.append({x})", "items{u}.append({x}.item())", "items{u}[0] = {x}.item()", "items{u}.append(1.0)", "items{u}.pop() if len(items{u}) > 2 else None"), ("items{u}",),
    ),
    Source(
        "table{u} = {{'a': {k}, 'b': 2.0}}",
        ("table{u}['a']", "table{u}.get('c', 1.5)", "float('c' in table{u})", "sum(table{u}.values())", "float(len(table{u}))", "dict(table{u})['a']", "next(iter(table{u}.values()))", "operator.itemgetter('a')(table{u})", "sum(v for k, v in table{u}.items() if k != 'b')", "dict(**table{u}).get('a')", "float(list(table{u})[0] == 'a')"),
        ("table{u}['a'] = {k}", "table{u}['c'] = {k}", "table{u}.update(a={k})", "table{u} = {{'a': {k}}}", "table{u}.pop('b', None)", "table{u} |= {{'b': {k}}}"),
        ("table{u}",), ("table{u}['b'] = table{u}.pop('b', 1.0) + 1", "table{u}.pop('last', None)", "table{u}['size'] = len(table{u})", "del table{u}[next(iter(table{u}))]; table{u}['a'] = {k}", "table{u}['last'] = {x}", "table{u}['last'] = {x}.item()", "table{u}['n'] = table{u}.get('n', 0) + 1", "table{u}['a'] += 1", "table{u}.setdefault('first', {x}.item())", "table{u}['b'] = 2.0", "table{u}['made'] = collections.deque([{x}])"), ("table{u}",),
    ),
    Source("group{u} = {{1, 2}}", ("float(len(group{u}))", "float(3 in group{u})", "float(sum(group{u}))"), ("group{u}.add(3)", "group{u}.discard(1)", "group{u} = {{3}}"), ("group{u}",), ("group{u} |= {{5, 6}}", "group{u} -= {{2, 6}}", "group{u}.intersection_update((1, 2, 3, 5))", "group{u}.add(5)", "group{u}.add(1)", "group{u}.discard(2)"), ("group{u}",)),
    Source("queue{u} = collections.deque([1.0, {k}], maxlen=3)", ("queue{u}[0]", "queue{u}[-1]", "sum(queue{u})", "float(len(queue{u}))"), ("queue{u}.append({k})", "queue{u}.popleft() if len(queue{u}) > 1 else None", "queue{u}.rotate()"), ("queue{u}",), ("queue{u}.rotate(1)", "queue{u}[0] = {x}.item()", "queue{u}.appendleft({x}.item())", "del queue{u}[-1]; queue{u}.append({k})", "queue{u}.append({x}.item())",), ("queue{u}",)),
    Source("order{u} = collections.OrderedDict(a=1.0, b={k})", ("order{u}['b']", "list(order{u}.values())[0]"), ("order{u}['b'] = {k}", "order{u}.move_to_end('a')"), ("order{u}",), ("order{u}['b'] = order{u}.pop('b', 1.0) + 1", "order{u}['c'] = {x}.item(); order{u}.move_to_end('c', last=False)", "order{u}['b'] = 1.0", "order{u}.move_to_end('a')"), ("order{u}",)),
    Source("counts{u} = collections.defaultdict(float, a={k})", ("counts{u}['a']", "counts{u}['zz']"), ("counts{u}['a'] = {k}", "counts{u}['zz'] += 1"), ("counts{u}",), ("counts{u}['calls'] += 1",)),
    Source("chain{u} = collections.ChainMap({{}}, {{'a': {k}}})", ("chain{u}['a']",), ("chain{u}['a'] = {k}", "chain{u}.maps[1]['a'] = {k}"), ("chain{u}",)),
    Source("Pair{u} = collections.namedtuple('Pair{u}', 'a b')\npair{u} = Pair{u}(1.0, {k})", ("pair{u}.b", "pair{u}[0]", "sum(pair{u})"), ("pair{u} = pair{u}._replace(b={k})", "pair{u} = Pair{u}({k}, 1.0)"), ("pair{u}",), (), ("pair{u}",)),
    Source("array{u} = np.array([1.0, {k}, 2.0])", ("array{u}[0]", "float(array{u}[1])", "array{u}.sum()", "array{u}[array{u} > 1].sum()", "float(array{u}.max())", "aj.as_tensor(array{u}).sum()", "aj.tensor(array{u})[0]", "aj.from_numpy(array{u})[1]", "array{u}.tolist()[0]", "float(np.mean(array{u}))", "float(len(array{u}))", "float(array{u}.dot(array{u}))"), ("array{u}[0] = {k}", "array{u} *= 2", "array{u} = np.array([{k}, {k}])", "array{u}[1:] = {k}", "array{u} = array{u}.copy()"), ("array{u}",), ("array{u} *= 0.5", "array{u}[:] = {x}.item()", "np.clip(array{u}, 0, 3, out=array{u})", "array{u}[0] = {x}.item()", "array{u}[1] += 1"), ("array{u}",)),
    Source("bytes{u} = bytearray(b'ab')", ("float(bytes{u}[0])", "float(len(bytes{u}))"), ("bytes{u}[0] = 100", "bytes{u}.append(3)")),
    Source("values{u} = array.array('d', [1.0, {k}])", ("values{u}[1]", "sum(values{u})"), ("values{u}[1] = {k}", "values{u}.append(1.0)")),
    Source("def helper{u}(z=2.0, *, w={k}):\n    return z * w", ("helper{u}()", "helper{u}(1.5)"), ("helper{u}.__defaults__ = ({k},)", "helper{u}.__kwdefaults__ = {{'w': {k}}}", "helper{u} = lambda z=1.0: z + {k}"), (), (), ("helper{u}",)),
    Source("def tagged{u}():\n    return tagged{u}.value\ntagged{u}.value = {k}", ("tagged{u}()", "tagged{u}.value"), ("tagged{u}.value = {k}",)),
    Source("part{u} = functools.partial(operator.mul, {k})", ("part{u}(2.0)",), ("part{u} = functools.partial(operator.add, {k})",), (), (), ("part{u}",)),
    Source("inner{u} = [{k}]\ndef cached{u}():\n    return inner{u}[0]\ndef outer{u}():\n    return cached{u}() + 1", ("outer{u}()", "cached{u}()"), ("inner{u}[0] = {k}", "cached{u} = lambda: {k}", "outer{u} = lambda: {k}"), (), (), ("cached{u}", "outer{u}")),
    Source(
        "class Base{u}:\n    def m(self):\n        return self.v\nclass Derived{u}(Base{u}):\n    kind = {k}\n    def __init__(self):\n        self.v = 1.5\n    def m(self):\n        return super().m() + 1\n    @property\n    def p(self):\n        return self.v * 2\n    @classmethod\n    def c(cls):\n        return cls.kind\nobj{u} = Derived{u}()",
        ("obj{u}.m()", "obj{u}.p", "obj{u}.v", "obj{u}.c()", "obj{u}.kind", "Derived{u}.kind", "float(isinstance(obj{u}, Base{u}))"),
        ("obj{u}.v = {k}", "Derived{u}.kind = {k}", "obj{u}.m = lambda: {k}", "Base{u}.m = lambda self: self.v * {k}", "obj{u} = Derived{u}()", "Derived{u}.m = lambda self: {k}", "Derived{u}.p = property(lambda self: {k})", "obj{u}.kind = {k}", "vars(obj{u})['v'] = {k}"),
        ("obj{u}",), ("obj{u}.v = obj{u}.v + 1", "obj{u}.v = {x}", "obj{u}.seen = {x}.item()"), ("obj{u}",),
    ),
    Source(
        "class Bag{u}:\n    def __init__(self):\n        self.d = {{'a': {k}, 'b': 2.0}}\n    def __getitem__(self, key):\n        return self.d[key]\n    def __len__(self):\n        return len(self.d)\n    def __iter__(self):\n        return iter(self.d)\n    def __contains__(self, key):\n        return key in self.d\n    def __getattr__(self, name):\n        if name == 'extra':\n            return self.__dict__['d'].get('extra', 0.5)\n        raise AttributeError(name)\n    def __call__(self, z):\n        return z * self.d['a']\nbag{u} = Bag{u}()",
        ("bag{u}['a']", "float(len(bag{u}))", "sum(bag{u}[k] for k in bag{u})", "float('c' in bag{u})", "bag{u}.extra", "bag{u}(2.0)", "float(bool(bag{u}))"),
        ("bag{u}.d['a'] = {k}", "bag{u}.d['c'] = {k}", "bag{u}.d['extra'] = {k}", "bag{u}.d = {{'a': {k}}}", "bag{u} = Bag{u}()"), ("bag{u}.d",), ("bag{u}.d['a'] = {x}.item()",), ("bag{u}",),
    ),
    Source("@dataclasses.dataclass\nclass Options{u}:\n    rate: float = {k}\n    name: str = 'a'\noptions{u} = Options{u}()", ("options{u}.rate", "dataclasses.asdict(options{u})['rate']", "float(len(options{u}.name))", "float(options{u} == Options{u}())", "getattr(options{u}, dataclasses.fields(options{u})[0].name)"), ("options{u}.rate = {k}", "options{u} = dataclasses.replace(options{u}, rate={k})", "options{u}.name += 'x'"), ("options{u}",), ("options{u}.rate *= 2",), ("options{u}",)),
    Source("class Slots{u}:\n    __slots__ = ('v',)\nslots{u} = Slots{u}()\nslots{u}.v = {k}", ("slots{u}.v",), ("slots{u}.v = {k}",)),
    Source("class Lazy{u}:\n    base = {k}\n    @functools.cached_property\n    def v(self):\n        return self.base * 2\nlazy{u} = Lazy{u}()", ("lazy{u}.v",), ("lazy{u}.v = {k}", "lazy{u}.base = {k}", "lazy{u} = Lazy{u}()", "vars(lazy{u}).pop('v', None)"), (), (), ("lazy{u}",)),
    Source("class Checked{u}:\n    def __get__(self, obj, kind=None):\n        return store{u}['v']\nstore{u} = {{'v': {k}}}\nclass Holder{u}:\n    v = Checked{u}()\nholder{u} = Holder{u}()", ("holder{u}.v",), ("store{u}['v'] = {k}", "Holder{u}.v = {k}")),
    Source("os.environ['FUZZ{u}'] = '2.0'", ("float(os.environ['FUZZ{u}'])", "float(os.environ.get('FUZZ{u}', '1'))", "float(os.getenv('FUZZ{u}') == '2.0')"), ("os.environ['FUZZ{u}'] = '3.5'",)),
    Source("var{u} = contextvars.ContextVar('var{u}', default={k})", ("var{u}.get()",), ("var{u}.set({k})",)),
    Source("stream{u} = iter([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0] * 9)", ("next(stream{u})",), ("next(stream{u})",)),
    Source("def gen{u}():\n    v = 0.5\n    while True:\n        v += 1\n        yield v\nticks{u} = gen{u}()", ("next(ticks{u})",), ("next(ticks{u})",)),
    Source("count{u} = itertools.count()", ("float(next(count{u}))",), ("next(count{u})",)),
    Source("random.seed({k})", ("random.random()", "random.gauss(0, 1)", "random.uniform(1, 2)", "float(random.randint(1, 9))", "random.choice([1.0, 2.0, 3.0])"), ("random.seed(5)", "random.random()")),
    Source("np.random.seed(3)", ("np.random.rand()", "float(np.random.randn())", "np.random.uniform(1, 2)", "float(np.random.permutation(4)[0])", "np.random.beta(2, 3)"), ("np.random.seed(4)", "np.random.rand()")),
    Source("rng{u} = np.random.default_rng(7)", ("rng{u}.random()", "rng{u}.standard_normal()", "float(rng{u}.integers(5))", "rng{u}.normal(1, 2)"), ("rng{u} = np.random.default_rng(8)", "rng{u}.random()"), (), (), ("rng{u}",)),
    Source("gen{u} = aj.Generator().manual_seed(3)", ("aj.rand(1, generator=gen{u})[0]", "aj.rand(2).sum()"), ("gen{u}.manual_seed(5)", "aj.manual_seed(9)", "aj.rand(3)")),
    Source("pass", ("1.5",), (), (), ("print('value', {x}.item())", "print('called')", "print({x})", "print(f'loss {{float({x}):.3f}}')")),
    Source("out{u} = io.StringIO()", ("1.5",), (), ("out{u}.getvalue()",), ("print('called', file=out{u})", "out{u}.write('a')", "print({x}.item() > 0, file=out{u})")),
    Source("box{u} = []", ("float(len(str({{1: state.dim()}})))", "(2.0 if 'tensor' in repr(state) else 0.5)", "float(type(state.sum().item()) is float)"), (), ("box{u}",), ("box{u}.append(type({x}.item()).__name__)", "box{u}.append('grad' in repr({x}))", "box{u}.append(isinstance({x}.item(), float))")),
    Source("tag{u} = sample({s}, dtype={d})\ntag{u}.scale = {k}", ("tag{u}.scale", "float(hasattr(tag{u}, 'note'))", "getattr(tag{u}, 'note', 0.5)"), ("tag{u}.scale = {k}", "tag{u}.note = {k}", "tag{u}.note = tag{u}.scale"), ("tag{u}.scale", "vars(tag{u}).get('seen')"), ("tag{u}.seen = {x}.item()", "tag{u}.scale = {k}")),
    Source("made{u} = collections.defaultdict(list)", ("float(len(made{u}))", "float(len(made{u}['a']))"), ("made{u}['a'].append({k})", "made{u}.clear()"), ("made{u}",), ("made{u}['b'].append({x}.item())", "made{u}['c'].append(1)", "made{u}[{k}] = [{x}.item()]")),
    Source("log{u} = []", ("float(len(log{u}))", "1.0"), ("log{u}.clear()", "log{u} = []"), ("log{u}",), ("log{u}.append({x})", "log{u}.append({x}.item())", "log{u}.append('called')", "log{u}.append(types.SimpleNamespace(v={x}))", "log{u}.append({{1}})", "log{u}.append({x}.detach())", "log{u} += [{x}.item()]", "log{u}.extend([1, 2])"), ("log{u}",)),
    Source("state{u} = sample({s}, dtype={d})", ("state{u}", "state{u}.item()", "state{u} * 2"), ("state{u}.add_(1)", "state{u} = sample(77, dtype={d})", "state{u}.mul_(-1)", "state{u}.data.fill_({k})"), ("state{u}",), ("state{u}.add_({x}.detach())", "state{u} = state{u} + 1", "state{u}.copy_({x}.detach())"), ("state{u}",)),
    Source("vector{u} = sample({s}, 3, dtype={d})", ("vector{u}.sum()", "vector{u}[0]", "vector{u}.tolist()[1]", "sum(vector{u})", "float(vector{u}[1])"), ("vector{u}[0] = {k}", "vector{u}.zero_()", "vector{u} = sample(5, 4, dtype={d})", "vector{u}.resize_(2)"), ("vector{u}",), ("vector{u}[1:].add_({x}.detach())", "vector{u}[0] = {x}.detach()"), ("vector{u}",)),
    Source("tensors{u} = [sample({s}, dtype={d}), sample(6, dtype={d})]", ("tensors{u}[0]", "sum(tensors{u})", "tensors{u}[-1] * len(tensors{u})", "aj.stack(tensors{u}).max()"), ("tensors{u}[0] = sample(9, dtype={d})", "tensors{u}.append(sample(10, dtype={d}))", "tensors{u}[0].add_(1)", "tensors{u}.reverse()"), ("tensors{u}",), ("tensors{u}[0] = {x}.detach()", "tensors{u}[1].add_(1)"), ("tensors{u}",)),
    Source("act{u} = aj.tanh", ("act{u}(aj.tensor({k})).item()", "1.5 if act{u} is aj.tanh else 2.5"), ("act{u} = aj.sin", "act{u} = lambda z: z * {k}"), (), (), ("act{u}",)),
    Source("def factory{u}():\n    hidden = {k}\n    def get():\n        return hidden\n    def put(v):\n        nonlocal hidden\n        hidden = v\n    return get, put\nget{u}, put{u} = factory{u}()", ("get{u}()",), ("put{u}({k})",), (), ("put{u}(get{u}() + 1)",)),
    Source("aj.set_default_dtype(aj.float32)", ("float(aj.tensor(1.5).dtype == aj.float64)", "float(aj.get_default_dtype() == aj.float64)", "float(aj.ones(1).dtype == aj.float32)"), ("aj.set_default_dtype(aj.float64)", "aj.set_default_dtype(aj.float32)")),
    Source("aj.use_deterministic_algorithms(False)", ("float(aj.are_deterministic_algorithms_enabled())",), ("aj.use_deterministic_algorithms(True)",)),
    Source("class Scaled{u}(aj.autograd.Function):\n    factor = {k}\n    @staticmethod\n    def forward(ctx, z):\n        ctx.save_for_backward(z)\n        return z.sin() * Scaled{u}.factor\n    @staticmethod\n    def backward(ctx, g):\n        (z,) = ctx.saved_tensors\n        return g * z.cos() * Scaled{u}.factor", ("Scaled{u}.apply(weight).sum()", "Scaled{u}.apply(state).mean()"), ("Scaled{u}.factor = {k}",)),
    Source("index{u} = aj.tensor([0, 2, 1])", ("weight[index{u}].sum()", "state.index_select(0, index{u}).mean()", "state[index{u}[1]]", "state.gather(0, index{u}).sum()", "F.embedding(index{u}, weight).sum()", "state[index{u}.tolist()].sum()", "state[int(index{u}[0])]"), ("index{u}[0] = 3", "index{u} = aj.tensor([1, 1])", "index{u}[1] = -1", "index{u}[1] = 9", "index{u} = index{u}.to(aj.int32)"), ("index{u}",), ("index{u}.copy_(index{u}.flip(0))",), ("index{u}",)),
    Source("whole{u} = aj.tensor([7, -3, 2])", ("(whole{u} // 2).sum()", "(whole{u} % 3).sum().item()", "(whole{u} // whole{u}[2]).sum()", "whole{u}[0].item() // 2", "whole{u}.float().mean()", "(whole{u} * 1000).sum()", "(whole{u} % whole{u}[2]).sum()"), ("whole{u}[2] = 0", "whole{u} = whole{u}.to(aj.int8)", "whole{u}.mul_(-1)", "whole{u}[0] = 100"), ("whole{u}",), ("whole{u}.add_(1)",), ("whole{u}",)),
    Source("prob{u} = aj.tensor([0.25, 0.5], dtype={d})", ("F.binary_cross_entropy(prob{u}, aj.ones(2, dtype={d}))", "prob{u}.log().sum()", "aj.logit(prob{u}).sum()"), ("prob{u}[0] = 1.5", "prob{u}.fill_(0.75)", "prob{u}[1] = 1.0"), ("prob{u}",)),
    Source("deep{u} = {{'a': {{'b': [{k}, 1.0]}}, 'f': lambda: {k}}}", ("deep{u}['a']['b'][0]", "deep{u}['f']()", "float(len(deep{u}['a']['b']))", "sum(deep{u}['a']['b'])"), ("deep{u}['a']['b'][0] = {k}", "deep{u}['a'] = {{'b': [{k}]}}", "deep{u}['f'] = lambda: {k}", "deep{u}['a']['b'].append({k})"), (), ("deep{u}['a']['b'].append({x}.item())", "deep{u}['a']['c'] = {x}")),
    Source("mod{u} = types.ModuleType('mod')\nmod{u}.k, mod{u}.f = {k}, lambda: mod{u}.k", ("mod{u}.k", "mod{u}.f()"), ("mod{u}.k = {k}", "mod{u}.f = lambda: {k}")),
    Source("scale{u} = {k}\n@functools.lru_cache\ndef cached{u}(n):\n    return n * scale{u}", ("cached{u}(2)", "cached{u}.__wrapped__(2)"), ("cached{u}.cache_clear()", "scale{u} = {k}\ncached{u}.cache_clear()"), (), (), ("scale{u}",)),
    Source("class Meta{u}(type):\n    @property\n    def k(cls):\n        return cls.hidden\nclass Made{u}(metaclass=Meta{u}):\n    hidden = {k}\n    @staticmethod\n    def s():\n        return {k}", ("Made{u}.k", "Made{u}.s()"), ("Made{u}.hidden = {k}", "Made{u}.s = staticmethod(lambda: {k})")),
    Source("class Ctx{u}:\n    k = {k}\n    def __enter__(self):\n        return self.k\n    def __exit__(self, *error):\n        Ctx{u}.left = Ctx{u}.k\ndef within{u}():\n    with Ctx{u}() as k:\n        return k", ("within{u}()",), ("Ctx{u}.k = {k}",)),
    Source("class Num{u}(float):\n    pass\nnum{u} = Num{u}({k})", ("num{u}", "num{u} * 2"), ("num{u} = Num{u}({k})",), ("num{u}",), (), ("num{u}",)),
    Source("text{u} = ['lr=2.0', 'a']", ("float(text{u}[0].split('=')[1])", "float(text{u}[0][3:])", "float(len(''.join(text{u})))", "float(text{u}[0].startswith('lr'))"), ("text{u}[0] = 'lr=3.5'", "text{u}.append('b')")),
    Source("def pick{u}(z):\n    match z:\n        case {{'kind': 'a', 'v': v}}:\n            return v\n        case [v, *_]:\n            return v\n        case _:\n            return 1.0\nspec{u} = {{'kind': 'a', 'v': {k}}}", ("pick{u}(spec{u})",), ("spec{u}['v'] = {k}", "spec{u} = [{k}, 1.0]", "spec{u}['kind'] = 'b'"), (), (), ("spec{u}",)),
    Source("asked{u} = sample({s}, 3, dtype={d})", ("float(asked{u}.requires_grad)", "float(asked{u}.shape[0])", "float(asked{u}.dtype == aj.float64)", "float(asked{u}.ndim)", "float(asked{u}.stride(0))", "float(getattr(asked{u}, 'tag', 1.5))", "float(len(aj.zeros_like(asked{u})))"), ("asked{u}.requires_grad_()", "asked{u}.data = sample(5, 2, 2, dtype={d})", "asked{u}.tag = {k}", "asked{u} = sample(7, 4, dtype={d})", "asked{u}.data = asked{u}.data.float()"), (), (), ("asked{u}",)),
    Source("prior{u} = aj.distributions.Normal(aj.zeros(1, dtype={d}), aj.ones(1, dtype={d}))", ("prior{u}.log_prob(aj.ones(1, dtype={d})).sum()", "prior{u}.mean.sum()", "prior{u}.entropy().sum()"), ("prior{u}.loc = aj.full((1,), {k}, dtype={d})", "prior{u}.scale.mul_(2)", "prior{u} = aj.distributions.Laplace(aj.zeros(1, dtype={d}), aj.ones(1, dtype={d}))"), (), (), ("prior{u}",)),
)  # fmt: skip
