"""Whatever a step reads outside may change between calls: the step follows, as eager mode does.

Every program is text: it is run twice in namespaces of its own, once eagerly and once compiled, with the same changes
between the calls. After each change both are called twice (the second compiled call is native where it can be).
"""

# ruff: noqa: E501 (programs are text, a line each)

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Iterator
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest

import autojit as aj

IMPORTS = """
import abc, collections, contextlib, contextvars, copy, dataclasses, enum, functools, json, math, operator, os, random, sys
import threading, types, typing, weakref
import numpy as np
import autojit as aj
from autojit import nn
from autojit.utils.checkpoint import checkpoint
class Bag:
    def __init__(self, **held): self.__dict__.update(held)
"""


class Program(NamedTuple):
    """``setup`` defines ``f``, a function of one tensor; each of ``changes`` is made between calls."""

    setup: str
    changes: tuple[str, ...]
    shape: tuple[int, ...] = (3,)


def program(setup: str, *changes: str, shape: tuple[int, ...] = (3,)) -> Program:
    return Program(textwrap.dedent(setup), changes, shape)


MODULE = """
    class Base(nn.Module):
        def __init__(self):
            super().__init__()
            self.cfg, self.rates, self.fn, self.gain = Bag(scale=2.0), [1.0], aj.relu, 1.0
        def helper(self, x): return self.fn(x * self.cfg.scale * self.rates[0] + self.gain)
        def forward(self, x): return self.helper(x)
    class Model(Base):
        def forward(self, x): return super().forward(x) + 1
    part = Model()
"""
MODULE_CHANGES = (
    "part.cfg.scale = 5.0", "part.rates[0] = 3.0", "part.cfg = Bag(scale=7.0)", "part.fn = lambda x: -x", "part.gain = 4.0",
    "part.rates = [2.0]", "Base.helper = lambda self, x: x * self.gain", "Base.forward = lambda self, x: self.helper(x) * 3",
    "part.helper = lambda x: x - 1", "part.forward = lambda x: x * 9", "del part.forward",
    "Model.forward = lambda self, x: x + 2", "part.__dict__['forward'] = lambda x: x",
)  # fmt: skip
KEPT = "k = Bag(v=2.0); d = {'v': 2.0}\n"
KEPT_CHANGES = ("k.v = 5.0", "d['v'] = 3.0", "k = Bag(v=1.5)", "d = {'v': 0.5}")


def kept(text: str, shape: tuple[int, ...] = (3,)) -> Program:
    return Program(KEPT + textwrap.dedent(text), KEPT_CHANGES, shape)


def walked(make: str, *changes: str) -> Program:
    return program(f"c = {make}\nf = lambda x: x * sum(c) + len(c) + (1.0 if 9 in c else 0.0)", *changes)


PROGRAMS = {
    "helpers of modules": program(MODULE + "    f = part", *MODULE_CHANGES),
    "helpers of submodules": program(MODULE + "    f = nn.Sequential(nn.ReLU(), part)", *MODULE_CHANGES),
    "super": program(
        """
        class A:
            def __init__(self): self.v = 1.0
            def m(self, x): return x * self.v
        class B(A):
            def m(self, x): return super().m(x) + 1
        o = B()
        f = lambda x: o.m(x)
        """, "o.v = 5.0", "A.m = lambda self, x: x - self.v", "B.m = lambda self, x: x", "o.m = lambda x: x * 8",
    ),
    "decorated by a mode": kept("@aj.no_grad()\ndef f(x): return x * k.v + d['v']"),
    "modes of modules behind decorators": program(
        """
        m = nn.Sequential(nn.Dropout(0.5), nn.BatchNorm1d(3))
        m.eval()
        @aj.inference_mode()
        def f(x): return m(x)
        """, "m[1].running_mean.fill_(2.0)", "m[1].eps = 0.5", "m[0].p = 0.0; m.train()", "m.eval()", shape=(4, 3),
    ),
    "context managers": kept(
        """
        @contextlib.contextmanager
        def manager():
            yield k.v
        class Decorator(contextlib.ContextDecorator):
            def __enter__(self): return d['v']
            def __exit__(self, *a): return False
        @Decorator()
        def f(x):
            with manager() as v, Decorator() as w: return x * v + w
        """
    ),
    "functions in wrappers": kept(
        """
        def twice(g):
            @functools.wraps(g)
            def run(*a): return g(*a) * k.v
            return run
        @twice
        @functools.lru_cache(None)
        def h(): return 2.0
        f = functools.partial(twice(lambda y, x: x * d['v'] * h() + y), 1.0)
        """
    ),
    "vmap": kept("f = lambda x: aj.func.vmap(lambda r: r * k.v + d['v'])(x)"),
    "grad directly": kept("f = aj.func.grad(lambda x: (x**2 * k.v).sum() * d['v'])"),
    "jacrev of hessian": kept("f = lambda x: aj.func.jacrev(lambda y: y**3 * k.v)(x) + aj.func.hessian(lambda y: (y**3 * d['v']).sum())(x)"),
    "jvp": kept("f = lambda x: aj.func.jvp(lambda y: y**2 * k.v * d['v'], (x,), (x,))[1]"),
    "checkpoint": kept("g = lambda x: x * k.v + d['v']\nf = lambda x: checkpoint(g, x, use_reentrant=False)"),
    "custom functions": kept(
        """
        class Fn(aj.autograd.Function):
            @staticmethod
            def forward(ctx, x): return x * k.v
            @staticmethod
            def backward(ctx, g): return g * d['v']
        def f(x):
            x = x.detach().requires_grad_()
            y = Fn.apply(x)
            return y.detach() + aj.autograd.grad(y.sum(), x)[0]
        """
    ),
    "cond, scan and while_loop": kept(
        """
        def f(x):
            a = aj.cond(x.sum() > 0, lambda x: x * k.v, lambda x: x, (x,))
            b = aj.scan(lambda c, z: (c + z * d['v'], c), aj.zeros(()), x)[0]
            return a + b
        """
    ),
    "tensor hooks": kept(
        """
        w = aj.ones(3, requires_grad=True)
        w.register_hook(lambda g: g * k.v + d['v'])
        f = lambda x: aj.autograd.grad((w * x).sum(), w)[0]
        """
    ),
    "module hooks": kept(
        """
        m = nn.Identity()
        m.register_forward_hook(lambda m, a, y: y * k.v)
        m.register_forward_pre_hook(lambda m, a: (a[0] * d['v'],))
        f = m
        """
    ),
    "lists": walked("[1.0, 2.0]", "c.append(5.0)", "c[0] = 9", "c.pop()", "c.sort()", "c = [3.0]"),
    "deques": walked("collections.deque([1.0, 2.0])", "c.append(5.0)", "c[0] = 9", "c.rotate()"),
    "sets": walked("{1.0, 2.0}", "c.add(9)", "c.discard(1.0)"),
    "bytearrays": walked("bytearray(b'ab')", "c.append(9)", "c[0] = 3"),
    "long lists": walked("list(range(1000))", "c[900] = 3", "c[5] = 9"),
    "dictionaries": program(
        "c = dict(a=1.0, b=2.0)\nf = lambda x: sum(x * v for k, v in c.items() if k != 'c') + max(c.values()) + len(list(c))",
        "c['a'] = 5.0", "c['c'] = 1.0", "c.pop('b')", "c = {'z': 1.0}",
    ),
    "keys that are objects": program(
        """
        class E(enum.Enum):
            A = 1
            B = 2
        d, n = {E.A: 1.0, frozenset((1,)): 2.0}, {}
        f = lambda x: x * d.get(E.A, 9.0) + d.get(frozenset((1,)), 9.0) + d[E.A] + n.get(E.B, 3.0) + (1.0 if E.B in d else 2.0)
        """, "d[E.A] = 4.0", "d[frozenset((1,))] = 5.0", "n[E.B] = 6.0", "d[E.B] = 0.0", "n.clear()",
    ),
    "ordered dictionaries": program(
        "c = collections.OrderedDict(a=1.0, b=2.0)\nf = lambda x: x * c['a'] + list(c.values())[0]",
        "c.move_to_end('a')", "c.update(a=4.0)",
    ),
    "keys that are missing": program(
        """
        c = collections.defaultdict(lambda: 3.0, a=1.0)
        n = {}
        def f(x):
            try: y = n['q']
            except KeyError: y = 1.0
            return x * c['a'] + c.get('q', 0.0) + (1.0 if 'r' in n else 2.0) + y
        """, "c['a'] = 4.0", "c['q'] = 4.0", "n['r'] = 0", "n['q'] = 6.0", "n.clear()",
    ),
    "containers written in Python": program(
        "c = collections.UserDict(a=1.0); m = collections.ChainMap({'a': 1.0}, {'b': 2.0}); l = collections.UserList([1.0])\n"
        "f = lambda x: x * c['a'] + m['b'] + l[0] + len(l)",
        "c['a'] = 3.0", "m.maps[1]['b'] = 5.0", "l.append(3.0)", "m.maps[0]['b'] = 9.0",
    ),
    "own containers": program(
        """
        class C:
            def __init__(self): self.d = [1.0, 2.0]
            def __getitem__(self, k): return self.d[k]
            def __len__(self): return len(self.d)
            def __iter__(self): return iter(self.d)
            def __contains__(self, v): return v in self.d
            def __getattr__(self, n):
                if n.startswith('_'): raise AttributeError(n)
                return self.d[0] * 10
            def __call__(self, x): return x + self.d[-1]
        c = C()
        f = lambda x: c(x * c[0]) + len(c) + sum(c) + (1.0 if 9.0 in c else 0.0) + c.foo
        """, "c.d[0] = 3.0", "c.d.append(9.0)", "c.foo = 2.0", "C.__call__ = lambda self, x: x", "C.__len__ = lambda self: 50",
    ),
    "dataclasses": program(
        """
        @dataclasses.dataclass
        class C:
            a: float = 1.0
            b: list = dataclasses.field(default_factory=lambda: [1.0])
        c = C()
        f = lambda x: x * c.a + c.b[0] + (1.0 if c == C() else 0.0)
        """, "c.a = 3.0", "c.b[0] = 7.0", "c = C()",
    ),
    "nested containers": program(
        "c = [[1.0, 2.0], {'a': [3.0]}, (1, [2])]\nf = lambda x: x * c[0][1] + c[1]['a'][0] + sum(c[0]) + c[2][1][0]",
        "c[0][1] = 5.0", "c[1]['a'][0] = 9.0", "c[0].append(1.0)", "c[2][1][0] = 8",
    ),
    "cached properties": program(
        """
        class A:
            def __init__(self): self.v = 2.0
            @functools.cached_property
            def p(self): return self.v * 2
        a = A()
        f = lambda x: x * a.p
        """, "a.v = 5.0", "del a.p", "a.p = 11.0",
    ),
    "slots, properties, descriptors, metaclasses": program(
        """
        class D:
            v = 1.0
            def __get__(self, o, t): return self.v
        class Meta(type):
            @property
            def k(cls): return cls._k
        class A(metaclass=Meta):
            __slots__ = ('s', 'q')
            d, c, _k = D(), 1.0, 1.0
            @property
            def p(self): return self.q * self.c
        a = A(); a.s = a.q = 2.0
        f = lambda x: x * a.s + a.p + a.d + A.k
        """, "a.s = 5.0", "a.q = 5.0", "A.c = 3.0", "A.__dict__['d'].v = 4.0", "A._k = 4.0", "A.p = property(lambda self: 1.0)",
    ),
    "static and class methods": program(
        """
        class A:
            k = 1.0
            @staticmethod
            def s(x): return x * A.k
            @classmethod
            def c(cls, x): return x * cls.k
        f = lambda x: A.s(x) + A.c(x)
        """, "A.k = 4.0", "A.s = staticmethod(lambda x: x)", "A.c = classmethod(lambda cls, x: x)",
    ),
    "names as strings": program(
        "p = Bag(k=2.0)\n"
        "f = lambda x: x * getattr(p, 'k') + vars(p)['k'] + hasattr(p, 'z') + operator.attrgetter('k')(p) + getattr(p, 'y', 1.0)",
        "p.k = 3.0", "p.z = 3.0", "p.y = 2.0", "del p.z",
    ),
    "replaced code": program(
        """
        class C:
            def m(self, x): return x
        class E(C):
            def m(self, x): return x * 2
        c, mod = C(), types.ModuleType('mod')
        exec('def fn(x): return x * 2\\nk = 1.0', vars(mod))
        def other(x, r=3): return x * r * other.rate
        other.rate = 1.0
        f = lambda x: c.m(x) + mod.fn(x) * mod.k + other(x)
        """, "C.m = lambda s, x: x * 7", "c.m = lambda x: x * 9", "del c.m", "mod.fn = lambda x: x", "mod.k = 4.0",
        "other.__defaults__ = (5,)", "other.rate = 2.0", "other.__code__ = (lambda x, r=1: x * 100).__code__", "c.__class__ = E",
    ),
    "defaults": program(
        "def g(x, k=[1.0], *, q={'a': 1.0}): return x * k[0] + q['a']\nf = lambda x: g(x)",
        "g.__defaults__[0][0] = 4.0", "g.__kwdefaults__['q']['a'] = 5.0", "g.__kwdefaults__ = {'q': {'a': 9.0}}",
    ),
    "tables of functions": program(
        "R = {'a': lambda x: x * 2, 'b': lambda x: x * 3}; cfg = Bag(name='a')\nf = lambda x: R[cfg.name](x)",
        "cfg.name = 'b'", "R['b'] = R['a']", "R['a'] = lambda x: x",
    ),
    "functions in lists": program(
        "fs = [lambda x, k=k: x * k for k in (1.0, 2.0)]\nf = lambda x: sum(g(x) for g in fs)", "fs.append(lambda x: x * 9)"
    ),
    "chains": program(
        "r = q = Bag()\nfor _ in range(12):\n    q.n = Bag(); q = q.n\nq.v = 1.0\nf = lambda x: x * r" + ".n" * 12 + ".v", "q.v = 5.0"
    ),
    "many calls deep": program(
        "k = {'v': 1.0}\nf = lambda x: x * k['v']\nfor _ in range(12):\n    f = (lambda g: lambda x: g(x) + 1)(f)", "k['v'] = 4.0"
    ),
    "enumerations and text": program(
        """
        class E(enum.Enum):
            A = 1.0
            B = 2.0
        p = Bag(e=E.A, n=[1])
        f = lambda x: x * p.e.value * (2.0 if p.e is E.A else 1.0) + len(f'{p.n}')
        """, "p.e = E.B", "p.n.append(22)",
    ),
    "NumPy arrays": program(
        """
        a = np.arange(3.0).astype(np.float32); m = np.array([True, False, True]); i = np.array([0, 2])
        f = lambda x: x * float(a[0]) + a.sum() + aj.tensor(a) + aj.as_tensor(a) + x[m].sum() + (x * a).max() + x[i].sum() + a.shape[0]
        """, "a[0] = 5.0", "m[0] = False", "i[0] = 1", "a *= 2", "a = np.ones(3, np.float32)",
    ),
    "environment": program(
        "os.environ.pop('AUTOJIT_PROBE', None)\n"
        "f = lambda x: x * float(os.environ.get('AUTOJIT_PROBE', '2')) + float(os.getenv('AUTOJIT_PROBE', '3'))",
        "os.environ['AUTOJIT_PROBE'] = '5'", "del os.environ['AUTOJIT_PROBE']",
    ),
    "globals and builtins": program("G = 1.0\nf = lambda x: x * globals()['G'] + G + abs(-1)", "G = 3.0", "abs = lambda v: 7.0", "del abs"),
    "weak references and context variables": program(
        "p = Bag(v=1.0); r = weakref.ref(p); c = contextvars.ContextVar('c', default=1.0)\nf = lambda x: x * r().v + c.get()",
        "p.v = 4.0", "c.set(4.0)",
    ),
    "global switches": program("f = lambda x: aj.ones(2) * 0.1 + x.sum()", "aj.set_default_dtype(aj.float64)", "aj.set_default_dtype(aj.float32)"),
    "layers in lists": program(
        """
        m = nn.ModuleList([nn.Identity() for _ in range(2)])
        for part in m: part.gain = 2.0
        def f(x):
            for part in m: x = part(x) * part.gain
            return x
        """, "m[1].gain = 4.0", "m.append(m[0])", "m._modules['0'] = m[1]",
    ),
    "matched structures": program(
        """
        c = {'kind': 'scale', 'by': [2.0, 1.0]}
        def f(x):
            match c:
                case {'kind': 'scale', 'by': [a, *_]}: return x * a
                case {'kind': 'shift'}: return x + 1
        """, "c['by'][0] = 5.0", "c['kind'] = 'shift'",
    ),
    "unpacking": program(
        "c = [1.0, 2.0]; o = {'b': 3.0}\ndef g(x, a, q, b=1.0): return x * a + q * b\n"
        "def f(x):\n    first, *rest = c\n    return g(x, *c, **o) + first + sum([*c, *rest]) + {**o}['b']",
        "c[0] = 5.0", "o['b'] = 7.0", "c[:] = [4.0, 4.0]", "o = {'b': 0.5}",
    ),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _switches() -> Iterator[None]:
    yield
    aj.set_default_dtype(aj.float32)
    sys.modules.pop("a_users_program", None)
    os.environ.pop("AUTOJIT_PROBE", None)


def _module() -> ModuleType:
    """A module of a user's."""
    made = sys.modules["a_users_program"] = ModuleType("a_users_program")
    return made


def _shown(found: Any) -> Any:
    return (
        [_shown(part) for part in found] if isinstance(found, tuple) else (found.dtype, found.detach().numpy().copy())
    )


def results(program: Program, compile_with: Any) -> list[Any]:
    """What a program's function gives, twice after each change."""
    names = vars(_module())
    exec(IMPORTS + program.setup, names)
    run = compile_with(names["f"])
    found: list[Any] = []
    for change in ("", *program.changes):
        exec(change, names)
        x = aj.arange(1.0, 1.0 + np.prod(program.shape)).reshape(program.shape).to(aj.float32)
        found += [_shown(run(x)), _shown(run(x))]
    return found


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_read_is_followed(name: str) -> None:
    program = PROGRAMS[name]
    eager = results(program, lambda f: f)
    aj.set_default_dtype(aj.float32)
    compiled = results(program, aj.jit)
    for k, ((dtype, a), (other, b)) in enumerate(zip(eager, compiled, strict=True)):
        where = ("", *program.changes)[k // 2]
        assert dtype is other, where
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6, err_msg=where)


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_does_not_change_is_captured_once(name: str) -> None:
    names = vars(_module())
    exec(IMPORTS + PROGRAMS[name].setup, names)
    run = aj.jit(names["f"])
    for _ in range(4):
        run(aj.ones(PROGRAMS[name].shape))
    assert run.stats()["captures"] <= 2, run.explain()
