"""Objects of libraries that a step asks: what they keep, and what is done to them between the calls and in the step.

A law over programs: ``made`` before, ``asked`` in the step, ``changed`` between calls (``k`` counts them).
"""

from __future__ import annotations

import calendar
import decimal
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.interpolate
import scipy.sparse
import scipy.stats

import autojit as aj

pytestmark = pytest.mark.filterwarnings("ignore:Setting the shape on a NumPy array:DeprecationWarning")

PROGRAMS = (
    # of NumPy and the like, which keep what they know in attributes
    ("o = np.vectorize(lambda v: v + 1)", "o(2)", "o.pyfunc = lambda v: k"),
    ("o = np.poly1d([1, 2])", "o(2)", "o.coeffs[0] = k"),
    ("o = np.poly1d([1, 2])", "o.deriv()(1) + len(o)", "o[1] = k"),
    ("o = np.ma.array([1.0, 2.0], mask=[0, 1])", "o.sum()", "o.mask = [k % 2, 0]"),
    ("o = np.ma.array([1.0, 2.0], mask=[0, 1])", "o.sum() + o.count()", "o.mask[1] = not o.mask[1]"),
    ("o = np.ma.array([1.0, 2.0], mask=[0, 1])", "np.ma.filled(o, 5)[0] + o.data[1]", "o[0] = np.ma.masked"),
    ("o = np.matrix([[1.0, 2.0]])", "o[0, 1] + o.sum()", "o[0, 1] = k"),
    ("class A(np.ndarray): pass\no = np.zeros(2).view(A); o.q = 1", "o.q + o.sum()", "o.q = k; o += 1"),
    ("class A(np.ndarray):\n  def total(self): return np.sum(self) * self.q\no = np.ones(2).view(A); o.q = 1",
     "o.total()", "o.q = k"),
    ("o = np.zeros(3, dtype=[('p', float)])", "o['p'][0]", "o['p'] = k"),
    ("o = np.random.RandomState(3)", "o.rand() + o.randint(5)", "o.seed(k)"),
    ("o = np.random.default_rng(3)", "o.random() + o.bit_generator.random_raw() % 5", "o.random()"),
    ("o = functools.partial(pow, 2)", "o(2)", "o.__setstate__((pow, (k,), {}, {}))"),
    ("o = argparse.Namespace(lr=1)", "o.lr", "o.lr = k"),
    ("o = argparse.ArgumentParser(); o.add_argument('--lr', type=int, default=1)", "o.parse_args([]).lr",
     "o.set_defaults(lr=k)"),
    ("o = calendar.Calendar()", "o.firstweekday + next(o.iterweekdays())", "o.firstweekday = k"),
    ("calendar.setfirstweekday(0)", "calendar.firstweekday() + calendar.monthcalendar(2020, 1)[0][0]",
     "calendar.setfirstweekday((k + 1) % 4)"),
    ("o = textwrap.TextWrapper(width=1)", "len(o.wrap('a b c'))", "o.width = k + 1"),
    ("o = string.Template('$a'); d = {'a': '1'}", "int(o.substitute(d))", "d['a'] = str(k)"),
    ("o = collections.ChainMap({'a': 1}, {'a': 5})", "o['a']", "o.maps[0].pop('a', 0); o.maps[1]['a'] += 1"),
    ("o = collections.UserDict(a=1)", "o['a'] + len(o)", "o[k] = 1; o['a'] *= 2"),
    ("o = collections.UserList([1])", "sum(o)", "o.append(k)"),
    ("d = {'a': 1}; o = types.MappingProxyType(d)", "o['a']", "d['a'] += 1"),
    ("o = decimal.getcontext(); o.prec = 5", "decimal.Decimal(1) / 3", "o.prec = k + 1"),
    ("o = threading.local(); o.v = 1", "o.v", "o.v += k"),
    ("o = configparser.ConfigParser(); o['a'] = {'b': '1'}", "o.getint('a', 'b')", "o['a']['b'] = str(k)"),
    ("o = scipy.sparse.csr_matrix(np.eye(2))", "(o @ np.ones(2))[0] + o[1, 1]", "o.data[0] += k"),
    ("o = scipy.sparse.lil_matrix(np.eye(2))", "o[0, 0]", "o[0, 0] += k"),
    ("o = scipy.interpolate.CubicSpline([0.0, 1.0, 2.0], [0.0, 1.0, 0.0])", "o(0.5)", "o.c[3] += 1"),
    ("o = scipy.stats.norm(1, 2)", "o.mean()", "o.kwds = {'loc': k}; o.args = ()"),
    ("o = np.zeros(2)", "2 if o.flags.writeable else 3", "o.flags.writeable = k % 2 == 0"),
    ("o = np.zeros(2); o.flags.writeable = False", "2 if o.flags.writeable else 3", "o = o.copy() if k == 1 else o"),
    ("o = np.array([[1], [2, 3]], dtype=object)", "len(o[1]) + np.sum(o)[0]", "o[1].append(1); o[0][0] += 1"),
    ("o = np.zeros((2, 3))", "o.shape[0]", "o.shape = (3, 2) if k % 2 == 0 else (2, 3)"),
    ("o = np.zeros((2, 3))", "o.strides[0] + o.itemsize", "o = np.asfortranarray(o) if k == 1 else o"),
    ("o = np.zeros((2, 3))", "2 if o.base is None else 3", "o = o[:] if k == 1 else o"),
    ("class A:\n  __slots__ = ('v',)\no = A(); o.v = [1]", "len(copy.deepcopy(o).v)", "o.v.append(k)"),
    ("class A:\n  __slots__ = ('v', 'w')\no = A(); o.v = [1]", "len(copy.deepcopy(o).v)", "o.v.append(k); o.w = o"),
    ("class A:\n  __slots__ = ('v', 'w')\no = A(); p = A(); o.w = p; p.w = o; p.v = [1]", "len(copy.deepcopy(o).w.v)",
     "p.v.append(k)"),
    ("o = decimal.Context(prec=2)", "o.divide(decimal.Decimal(1), decimal.Decimal(7))", "o.prec = k + 1"),
    # whose memory C knows only
    ("o = (ctypes.c_double * 3)(1, 2, 3)", "o[0] + sum(o)", "o[0] += 1"),
    ("class A(ctypes.Structure): _fields_ = [('f', ctypes.c_int)]\no = A(1)", "o.f", "o.f += 1"),
    ("o = ctypes.c_int(1)", "o.value", "o.value += 1"),
    ("o = mmap.mmap(-1, 8); o[0] = 1", "o[0]", "o[0] = k + 3"),
    ("o = multiprocessing.Value('i', 1, lock=False)", "o.value", "o.value += 1"),
    ("class A(io.StringIO): pass\no = A('abc')", "len(o.getvalue())", "o.seek(0, 2); o.write('d')"),
    ("class A(random.Random): pass\no = A(3)", "o.random() + o.randint(0, 5)", "o.seed(k)"),
    # that go on from call to call, or are asked what they have been given
    ("o = threading.Event()", "2 if o.is_set() else 3", "o.set() if k == 1 else None"),
    ("o = threading.Semaphore(10)", "(o.acquire(), o._value)[1]", ""),
    ("o = threading.Lock(); d = [0]", "2 if o.locked() else 3", "o.acquire() if k == 1 else None"),
    ("o = queue.Queue(); [o.put(i) for i in range(9)]", "o.get() + o.qsize()", "o.put(k)"),
    ("o = io.StringIO('1\\n2\\n3\\n4\\n5\\n6\\n')", "int(o.readline())", ""),
    ("o = io.BytesIO(b'abc')", "len(o.getvalue())", "o.seek(0, 2); o.write(b'd')"),
    ("o = itertools.count(3)", "next(o) + next(o)", "next(o)"),
    ("o, p = itertools.tee(range(50))", "next(o) + 2 * next(p)", "next(o)"),
    ("o = iter(range(30))", "sum(v for v, _ in zip(o, range(3)))", ""),
    ("o = iter(range(30))", "sum(next(o) for _ in range(2)) + [v for v in itertools.islice(o, 2)][1]", ""),
    # asked by way of what they have given
    ("o = sqlite3.connect(':memory:'); o.execute('create table t(a)'); o.execute('insert into t values(1)')",
     "o.execute('select sum(a) from t').fetchone()[0]", "o.execute('insert into t values(2)')"),
    ("rows = '1,2'", "int(next(csv.reader([rows]))[0])", "rows = f'{k},2'"),
    ("o = [random.Random(1), random.Random(2)]; random.seed(4)", "random.choice(o).random()", ""),
    ("random.seed(4)", "random.choice(random.sample(range(10), 3))", ""),
    # which the function remembers for others
    ("@functools.cache\ndef o(a): return [a]", "o(1)[0]", "o(1)[0] += 1"),
    ("@functools.lru_cache(None)\ndef o(a): return {'n': a}", "o(1).setdefault('n', 0)", "o(1).clear()"),
)  # fmt: skip
CHANGING = (
    ("o = io.StringIO()", "o.write('a'); n = len(o.getvalue())", "o.getvalue()"),
    ("o = queue.SimpleQueue()", "o.put(1); n = o.qsize()", "o.qsize()"),
    ("o = threading.Semaphore(10)", "o.acquire(); n = o._value", "o._value"),
    ("o = (ctypes.c_double * 3)(1, 2, 3)", "o[0] += 1; n = o[0]", "list(o)"),
    ("class A(ctypes.Structure): _fields_ = [('f', ctypes.c_int)]\no = A(1)", "o.f += 1; n = o.f", "o.f"),
    ("o = multiprocessing.Value('i', 1)", "with o.get_lock(): o.value += 1\n    n = o.value", "o.value"),
    ("o = itertools.groupby([1, 1, 2, 3, 3, 3, 4, 5])", "v, g = next(o); n = v * len(list(g))", "0"),
    ("class A: v = 0\no = A", "type.__setattr__(o, 'v', o.v + 1); n = o.v", "o.v"),
    ("class A: v = 0\no = A", "o.__class__.__setattr__(o, 'v', o.v + 1); n = o.v", "o.v"),
    ("o = np.ma.array([1.0, 2.0])", "o.mask = [o.count() > 1, 0]; n = o.sum()", "o.count()"),
    ("o = np.zeros((2, 3))", "n = o.shape[0]; o.shape = (3, 2) if n == 2 else (2, 3)", "o.shape"),
    ("o = np.arange(3.0)", "o.resize(o.size + 1, refcheck=False); n = o.size + o.sum()", "o"),
    ("o = collections.UserDict(a=1)", "o['a'] += 1; n = o['a']", "o.data"),
    ("@functools.cache\ndef o(a): return [0]", "l = o(1); l[0] += 1; n = l[0]", "o(1)"),
    ("@functools.cache\ndef o(a): return {}", "l = o(1); l['n'] = l.get('n', 0) + 1; n = l['n']", "o(1)"),
    ("@functools.cache\ndef o(a): return [0]", "o(1).append(1); n = len(o(1))", "o(1)"),
)
TOLD = (
    (
        "o = queue.SimpleQueue()",
        "o.put(1); o.put(len(x)); o.put(k); n = 1",
        "[o.get() for _ in range(o.qsize())]",
        True,
    ),
    ("o = io.StringIO()", "o.write('a'); o.write(f'{x[0].item()}'); n = 1", "o.getvalue()", True),
    ("o = io.StringIO()", "o.write('a'); o.seek(0); o.write('b'); n = 1", "o.getvalue()", True),
    ("o = io.StringIO()", "w = csv.writer(o); w.writerow([1]); w.writerow([2]); n = 1", "o.getvalue()", False),
    ("o = queue.Queue()", "o.put(1); o.put(2); n = o.qsize()", "list(o.queue)", False),
    ("o = queue.Queue()", "o.put(1); p = o.qsize; o.put(2); n = p()", "list(o.queue)", False),
    ("o = queue.Queue()", "o.put(1); o.put(2); n = len(o.queue)", "list(o.queue)", False),
    ("o = queue.Queue()", "n = o.qsize(); o.put(1); o.put(n)", "list(o.queue)", True),
    ("o = threading.Event()", "o.set(); o.clear(); o.set(); n = o.is_set()", "o.is_set()", False),
)
_LIBRARIES = (
    "argparse", "calendar", "collections", "configparser", "copy", "csv", "ctypes", "decimal", "functools", "io",
    "itertools", "mmap", "multiprocessing", "queue", "random", "sqlite3", "string", "textwrap", "threading", "types",
)  # fmt: skip


def _outcomes(made: str, lines: str, changed: str, shown: str, jit: Any) -> list[Any]:
    np.random.seed(5)
    names: dict[str, Any] = {
        "aj": aj,
        "np": np,
        "scipy": scipy,
        "k": 0,
        **{name: __import__(name) for name in _LIBRARIES},
    }
    exec(made, names)
    exec(f"def step(x):\n    {lines}\n    return x * float(n)", names)
    step, found = jit(names["step"]), []
    for k in range(5):
        found.append(step(aj.tensor([1.0 + k, 2.0], dtype=aj.float64)).tolist())
        found.append(repr(eval(shown, names)))
        names["k"] = k
        exec(changed, names)
    for value in names.values():
        if isinstance(value, sqlite3.Connection | sqlite3.Cursor):
            value.close()
    return found


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    with decimal.localcontext():
        yield
    calendar.setfirstweekday(0)


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
@pytest.mark.parametrize(("made", "asked", "changed"), PROGRAMS)
def test_what_an_object_of_a_library_says_is_asked_at_every_call(made: str, asked: str, changed: str) -> None:
    program = made, f"n = {asked}", changed, "0"
    assert _outcomes(*program, aj.jit) == _outcomes(*program, lambda f: f)


@pytest.mark.parametrize(("made", "lines", "shown"), CHANGING)
def test_what_the_step_does_to_an_object_of_a_library_is_seen_by_it(made: str, lines: str, shown: str) -> None:
    program = made, lines, "", shown
    assert _outcomes(*program, aj.jit) == _outcomes(*program, lambda f: f)


@pytest.mark.parametrize(("made", "lines", "shown", "is_compiled"), TOLD)
def test_an_object_of_a_library_is_told_things_in_order(made: str, lines: str, shown: str, is_compiled: bool) -> None:
    program, steps = (made, lines, "", shown), []
    found = _outcomes(*program, lambda f: steps.append(aj.jit(f)) or steps[-1])
    assert found == _outcomes(*program, lambda f: f)
    assert not is_compiled or "line by line" not in steps[0].explain(), steps[0].explain()


def test_files_are_read_at_every_call(tmp_path: Path) -> None:
    file = tmp_path / "rate"

    def step(x: aj.Tensor) -> aj.Tensor:
        with open(file) as stream:
            return x * float(stream.read())

    jitted = aj.jit(step)
    for rate in (1.0, 2.0, 3.0):
        file.write_text(str(rate))
        assert jitted(aj.ones(2)).tolist() == [rate, rate]
    assert "open() at" in jitted.explain()
