"""More of what a step may read outside: the standard library, modules' containers, hooks, Python's own protocols."""

# ruff: noqa: E501 (programs are text, a line each)

from __future__ import annotations

import numpy as np
import pytest

import autojit as aj
from tests.jit.test_recorded_reads import Program, program, results

PROGRAMS: dict[str, Program] = {
    'singledispatch': program(
        """
        k = Bag(v=1.)
        @functools.singledispatch
        def g(x): return x * k.v
        @g.register
        def _(x: int): return x
        f = lambda x: g(x)
        """,
        'k.v = 3.', 'g.register(aj.Tensor, lambda x: x + 7)',
    ),
    'reduce': program(
        """
        c=[1.,2.]
        k=Bag(v=1.)
        f=lambda x: functools.reduce(lambda a,b: a*b*k.v, c, x)
        """,
        'c.append(3.)', 'k.v=2.',
    ),
    'itemgetter': program(
        """
        d={'a':1.}; o=Bag(m=lambda x: x*2)
        f=lambda x: x*operator.itemgetter('a')(d)+operator.methodcaller('m', x)(o)
        """,
        "d['a']=4.", 'o.m=lambda x: x*5',
    ),
    'mapkey': program(
        """
        o=Bag(k=2., fn=lambda v: v*3); l=[1.,2.]
        f=lambda x: sum(map(o.fn, l))*x + sorted(l, key=lambda v: -v*o.k)[0]
        """,
        'o.fn=lambda v: v', 'o.k=-1.', 'l.append(0.)',
    ),
    'copies': program(
        """
        o=Bag(k=2., l=[1.])
        def f(x):
            q=copy.copy(o); r=copy.deepcopy(o)
            return x*q.k+q.l[0]*r.l[0]
        """,
        'o.k=3.', 'o.l[0]=5.',
    ),
    'dataclass fns': program(
        """
        @dataclasses.dataclass(frozen=True)
        class C:
            a: float = 1.
            b: float = 2.
        c = C()
        def f(x):
            d = dataclasses.replace(c, a=5.)
            return x*d.b + dataclasses.asdict(c)['a'] + dataclasses.astuple(c)[1] + len(dataclasses.fields(c))
        """,
        'c = C(2., 3.)',
    ),
    'namedtuple': program(
        """
        class N(typing.NamedTuple):
            a: float
            b: list
        n = N(1., [2.])
        f = lambda x: x*n.a + n.b[0] + n[0]
        """,
        'n = n._replace(a=4.)', 'n.b[0] = 9.',
    ),
    'enum lookups': program(
        """
        class E(enum.Enum):
            A = 1
            B = 2
        s = Bag(n='A')
        f = lambda x: x*E[s.n].value + E(1).value + len(E)
        """,
        "s.n='B'",
    ),
    'exitstack': program(
        """
        k = Bag(v=1.)
        @contextlib.contextmanager
        def cm(n):
            k.depth = getattr(k, 'depth', 0) + 1
            try: yield k.v
            finally: k.depth -= 1
        def f(x):
            with contextlib.ExitStack() as s:
                v = s.enter_context(cm(1)); s.enter_context(contextlib.nullcontext())
                return x*v
        """,
        'k.v=4.',
    ),
    'generators': program(
        """
        k = Bag(v=1.); l=[1.,2.]
        def gen():
            for v in l: yield v*k.v
        def deleg(): yield from gen()
        f = lambda x: x*sum(deleg())
        """,
        'k.v=3.', 'l.append(3.)',
    ),
    'nonlocal': program(
        """
        def make():
            n = 0.
            def inc(v):
                nonlocal n
                n += v
                return n
            return inc
        inc = make()
        f = lambda x: x*inc(1.)
        """,
        'inc(10.)',
    ),
    'global assign': program(
        """
        G = 0.
        def f(x):
            global G
            G = G + 1.
            return x*G
        """,
        'G = 50.',
    ),
    'match class': program(
        """
        class Pt:
            __match_args__ = ('x', 'y')
            def __init__(s, x, y): s.x = x; s.y = y
        o = Pt(1., 2.)
        def f(x):
            match o:
                case Pt(a, y=2.): return x*a
                case Pt(a, b): return x*b
        """,
        'o.x=4.', 'o.y=7.',
    ),
    'getattribute': program(
        """
        class C:
            def __init__(s): s.t = {'k': 1.}
            def __getattribute__(s, n):
                if n == 'k': return object.__getattribute__(s, 't')['k']
                return object.__getattribute__(s, n)
            def __setattr__(s, n, v): object.__setattr__(s, n, v)
        c = C()
        f = lambda x: x*c.k
        """,
        "c.t['k']=4.", "c.t={'k': 7.}",
    ),
    'missing': program(
        """
        class D(dict):
            d = 2.
            def __missing__(s, k): return s.d
        c = D(a=1.)
        f = lambda x: x*c['a'] + c['zz']
        """,
        'D.d=5.', "c['zz']=1.", "c['a']=4.",
    ),
    'formats': program(
        """
        o=Bag(k=12)
        f=lambda x: x*len('{0.k}'.format(o)) + len('%s' % o.k) + len(f'{o.k:>{o.k}}')
        """,
        'o.k=3', 'o.k=12345',
    ),
    'json': program(
        """
        c={'a':[1,2],'b':{'c':1}}
        f=lambda x: x*len(json.dumps(c))
        """,
        "c['b']['c']=100000", "c['a'].append(3)",
    ),
    'setops': program(
        """
        a={1,2,3}; b=frozenset((2,3)); l=[1.]; t=(1,)
        f=lambda x: x*len(a & b)+len(a|{9})+sum(l+[2.])+len(l*2)+(1. if t==(1,) else 0.)+(1. if l==[1.] else 0.)
        """,
        'a.add(7)', 'a.discard(2)', 'l.append(3.)', 't=(2,)',
    ),
    'model attrs': program(
        """
        m = nn.Sequential(nn.Linear(3,3,bias=False), nn.ReLU(), nn.Linear(3,3,bias=False))
        for q in (m[0], m[2]): q.weight.data = aj.eye(3)
        f = lambda x: m[0](x)*len(m)*sum(1. for q in m.parameters() if q.requires_grad) + len(list(m.children())) + m[-1](x)
        """,
        'm[0].weight.requires_grad_(False)', 'm.append(nn.ReLU())', 'm[0]=nn.Identity()',
    ),
    'moduledict': program(
        """
        m=nn.ModuleDict({'a': nn.Identity(), 'b': nn.ReLU()}); s=Bag(k='a')
        f=lambda x: sum(q(x) for q in m.values())*(2. if 'c' in m else 1.)+m[s.k](-x)
        """,
        "s.k='b'", "m['c']=nn.ReLU()", "del m['a']",
    ),
    'paramlist': program(
        """
        m=nn.ParameterList([nn.Parameter(aj.ones(3)) for _ in range(2)])
        f=lambda x: sum(x*q for q in m).detach()
        """,
        'm.append(nn.Parameter(aj.ones(3)*5))', 'm[0]=nn.Parameter(aj.ones(3)*3)',
    ),
    'buffers': program(
        """
        m=nn.Module(); m.register_buffer('b', aj.ones(3)); m.k=1.
        f=lambda x: x*m.b*m.k*len(list(m.named_buffers()))
        """,
        'm.b=aj.ones(3)*4', "m.register_buffer('c', aj.ones(1))", 'm.k=3.', 'm.b.mul_(2)',
    ),
    'import inside': program(
        """
        mod=types.ModuleType('zz_mod'); mod.k=1.; import sys; sys.modules['zz_mod']=mod
        def f(x):
            import zz_mod
            from zz_mod import k
            return x*zz_mod.k*k
        """,
        'mod.k=4.', "m2=types.ModuleType('zz_mod'); m2.k=9.; sys.modules['zz_mod']=m2",
    ),
    'lambda attrs': program(
        """
        class A:
            act = staticmethod(aj.relu)
            def __init__(s): s.g = A.act
            def go(s, x): return s.act(x) + s.g(-x)
        a=A()
        f=lambda x: a.go(x)
        """,
        'A.act=staticmethod(aj.tanh)', 'a.act=aj.sigmoid', 'a.g=lambda x: x*9',
    ),
    'abc': program(
        """
        class B(abc.ABC):
            @abc.abstractmethod
            def m(s, x): ...
            @property
            @abc.abstractmethod
            def k(s): ...
        class C(B):
            _k = 2.
            def m(s, x): return x*s.k
            @property
            def k(s): return s._k
        c = C()
        f = lambda x: c.m(x) * (2. if isinstance(c, B) else 1.)
        """,
        'C._k=5.', 'c._k=7.',
    ),
    'lazily cached': program(
        """
        class C:
            _c = None
            def get(s):
                if s._c is None: s._c = 3.
                return s._c
        c = C()
        f = lambda x: x*c.get()
        """,
        'c._c=5.', 'c._c=None',
    ),
    'memo dict': program(
        """
        cache = {}
        def sq(n):
            if n not in cache: cache[n] = n*n
            return cache[n]
        f = lambda x: x*sq(3.)
        """,
        'cache[3.]=1.', 'cache.clear()',
    ),
    'lru': program(
        """
        k=Bag(v=2.)
        @functools.lru_cache
        def g(n): return n*k.v
        f=lambda x: x*g(2.)
        """,
        'k.v=5.', 'g.cache_clear()',
    ),
    'wrapped twice': program(
        """
        k = Bag(a=1., b=2.)
        def deco(s):
            def outer(fn):
                @functools.wraps(fn)
                def inner(*a, **kw): return fn(*a, **kw)*getattr(k, s)
                return inner
            return outer
        class M(nn.Module):
            @deco('a')
            @aj.no_grad()
            @deco('b')
            def forward(self, x): return x + self.off
            off = 0.
        m = M()
        f = m
        """,
        'k.a=3.', 'k.b=5.', 'M.off=1.', 'm.off=2.',
    ),
    'autocast dec': program(
        """
        k=Bag(v=1.)
        @aj.autocast('cpu', dtype=aj.bfloat16)
        def g(x): return x*k.v
        f=lambda x: g(x).float()
        """,
        'k.v=4.',
    ),
    'record_function': program(
        """
        k=Bag(v=1.)
        def f(x):
            with aj.profiler.record_function('z') if hasattr(aj,'profiler') else contextlib.nullcontext(): return x*k.v
        """,
        'k.v=4.',
    ),
    'functional_call': program(
        """
        m=nn.Linear(3,3,bias=False); m.weight.data=aj.eye(3); k=Bag(w=aj.eye(3)*2)
        f=lambda x: aj.func.functional_call(m, {'weight': k.w}, (x,)).detach()
        """,
        'k.w=aj.eye(3)*5',
    ),
    'vmap in module': program(
        """
        class M(nn.Module):
            def __init__(s): super().__init__(); s.c=Bag(k=2.); s.l=[1.]
            def one(s, r): return r*s.c.k+s.l[0]
            def forward(s, x): return aj.func.vmap(s.one)(x)
        f=M()
        """,
        'f.c.k=5.', 'f.l[0]=3.', shape=(2, 3),
    ),
    'saved hooks': program(
        """
        k = Bag(v=1.)
        def f(x):
            x = x.detach().requires_grad_()
            with aj.autograd.graph.saved_tensors_hooks(lambda t: t*k.v, lambda t: t):
                y = (x**2).sum()
            return aj.autograd.grad(y, x)[0]
        """,
        'k.v=3.',
    ),
    'full backward hook': program(
        """
        k = Bag(v=2.)
        m = nn.Linear(3,1,bias=False); m.weight.data = aj.ones(1,3)
        m.register_full_backward_hook(lambda m, gi, go: (gi[0]*k.v,))
        def f(x):
            x = x[None].detach().requires_grad_()
            return aj.autograd.grad(m(x).sum(), x)[0]
        """,
        'k.v=5.',
    ),
    'global module hook': program(
        """
        k = Bag(v=2.)
        h = nn.modules.module.register_module_forward_hook(lambda m, a, y: y*k.v)
        m = nn.Identity()
        f = m
        """,
        'k.v=5.', 'h.remove()',
    ),
    'step post hook': program(
        """
        k = Bag(v=1.)
        w = aj.zeros(3, requires_grad=True); o = aj.optim.SGD([w], lr=1.)
        def hook(opt, a, kw):
            with aj.no_grad(): w.mul_(k.v)
        o.register_step_post_hook(hook)
        def f(x):
            o.zero_grad(); (w*x).sum().backward(); o.step(); return w.detach().clone()
        """,
        'k.v=.5',
    ),
    'scheduler-like': program(
        """
        class S:
            def __init__(s): s.n=0; s.t=[1.,.5,.25]
            def rate(s): return s.t[min(s.n, len(s.t)-1)]
        s = S()
        f = lambda x: x*s.rate()
        """,
        's.n=1', 's.n=2', 's.n=9', 's.t.append(.1)',
    ),
    'ordered compare': program(
        """
        a=[1,2]; b=[1,3]
        f=lambda x: x*(1. if a<b else 2.)
        """,
        'a[1]=9',
    ),
    'bool of containers': program(
        """
        l=[]; d={}; s=set(); o=Bag(n=None)
        f=lambda x: x*(1. if l else 2.)*(3. if not d else 5.)*(7. if s or o.n else 11.)
        """,
        'l.append(1)', "d['a']=1", 's.add(1)', 'o.n=3',
    ),
    'del and hasattr': program(
        """
        o=Bag(a=1.)
        f=lambda x: x*(o.a if hasattr(o,'a') else 9.)
        """,
        'del o.a', 'o.a=4.',
    ),
    'slices': program(
        """
        l=[1.,2.,3.,4.]
        f=lambda x: x*sum(l[1:3])+l[-1]
        """,
        'l[1]=9.', 'l[0]=5.', 'l.append(7.)',
    ),
    'str keys by var': program(
        """
        o=Bag(n='a'); d={'a':1.,'b':2.}
        f=lambda x: x*d[o.n]
        """,
        "o.n='b'", "d['b']=7.",
    ),
    'tensor attr': program(
        """
        w=aj.ones(3); w.scale=2.
        f=lambda x: x*w*w.scale
        """,
        'w.scale=5.',
    ),
    'closure list comp': program(
        """
        ks=[1.,2.]
        def f(x):
            return sum([(lambda v: x*v*m)(k) for k in ks for m in ks])
        """,
        'ks[0]=4.',
    ),
    'np scalar': program(
        """
        s=np.float64(2.); a=np.array(3.)
        f=lambda x: x*float(s)+float(a)
        """,
        's=np.float64(5.)', 'a[...]=7.',
    ),
    'np functions': program(
        """
        a=np.arange(4.)
        f=lambda x: x*float(np.mean(a))+float(np.max(a[1:]))+float(a.reshape(2,2)[1,0])+len(a)
        """,
        'a[0]=8.', 'a[3]=50.',
    ),
    'random attr obj': program(
        """
        class R:
            @property
            def v(s): return s.__dict__['q']
            @v.setter
            def v(s, n): s.__dict__['q']=n*2
        r=R(); r.v=1.
        f=lambda x: x*r.v
        """,
        'r.v=4.',
    ),
    'callable instance': program(
        """
        class A:
            k=1.
            def __call__(s, x): return x*s.k
        a=A()
        f=a
        """,
        'A.k=3.', 'a.k=5.', 'A.__call__=lambda s,x: x-1',
    ),
    'iter over obj attr dict': program(
        """
        o=Bag(a=1.,b=2.)
        f=lambda x: x*sum(v for k,v in vars(o).items())+sum(o.__dict__.values())
        """,
        'o.c=5.', 'o.a=9.', 'del o.b',
    ),
    'string constants': program(
        """
        o=Bag(mode='sum')
        f=lambda x: getattr(x, o.mode)()
        """,
        "o.mode='mean'",
    ),
    'class replaced': program(
        """
        class A: k=1.
        class B: k=2.
        K=A
        f=lambda x: x*K.k*K().k
        """,
        'K=B', 'B.k=5.',
    ),
    'type attr annotations': program(
        """
        class A:
            def __init__(s): s.k=1.
        f=lambda x: x*A().k
        """,
        "A.__init__=lambda s: setattr(s,'k',4.)",
    ),
    'weakdict': program(
        """
        o=Bag(v=1.); w=weakref.WeakValueDictionary(a=o)
        f=lambda x: x*w['a'].v
        """,
        'o.v=5.',
    ),
    'threadlocal': program(
        """
        t=threading.local(); t.k=1.
        f=lambda x: x*t.k
        """,
        't.k=4.',
    ),
    'simple ns update': program(
        """
        n=types.SimpleNamespace(a=1.)
        f=lambda x: x*n.a
        """,
        'n.__dict__.update(a=3.)',
    ),
    'mappingproxy': program(
        """
        d={'a':1.}; m=types.MappingProxyType(d)
        f=lambda x: x*m['a']+len(m)
        """,
        "d['a']=4.", "d['b']=1.",
    ),
    'memoryview': program(
        """
        b=bytearray(b'abc'); m=memoryview(b)
        f=lambda x: x*m[0]
        """,
        'b[0]=5',
    ),
    'property on module': program(
        """
        class M(nn.Module):
            def __init__(s): super().__init__(); s._k=2.
            @property
            def k(s): return s._k*2
            def forward(s,x): return x*s.k
        f=M()
        """,
        'f._k=5.', 'M.k=property(lambda s: 1.)',
    ),
    'module list attr': program(
        """
        class M(nn.Module):
            def __init__(s): super().__init__(); s.ls=[nn.Identity(), nn.ReLU()]; s.skip={0}
            def forward(s,x):
                for i,l in enumerate(s.ls):
                    if i not in s.skip: x=l(-x)
                return x
        f=M()
        """,
        'f.skip.clear()', 'f.skip.add(1)', 'f.ls.pop()',
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_read_is_followed(name: str) -> None:
    program = PROGRAMS[name]
    eager = results(program, lambda f: f)
    compiled = results(program, aj.jit)
    for k, ((dtype, a), (other, b)) in enumerate(zip(eager, compiled, strict=True)):
        where = ("", *program.changes)[k // 2]
        assert dtype is other, where
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6, err_msg=where)
