"""What hidden inputs are drawn from: containers that the step changes, arguments, context variables."""

from __future__ import annotations

import contextvars
import itertools
import random
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import autojit as aj
from tests.jit.test_ways_to_names import Jit, same_everywhere


def _shuffled(items: Any, shuffle: Callable[[list[Any]], None]) -> Any:
    copied = list(items)
    shuffle(copied)
    return copied[0]


DRAWS: dict[str, Callable[[Any], Any]] = {
    "choice": lambda b: random.choice(b),
    "sample": lambda b: random.sample(b, 1)[0],
    "choices": lambda b: random.choices(b, k=2)[1],
    "weights": lambda b: random.choices(b, weights=[1] * len(b))[0],
    "choice of a copy": lambda b: random.choice(list(b)),
    "shuffle": lambda b: _shuffled(b, random.shuffle),
    "shuffle of numpy": lambda b: _shuffled(b, np.random.shuffle),
    "permutation": lambda b: b[int(np.random.permutation(len(b))[0])],
    "place": lambda b: b[random.randrange(len(b))],
}
CHANGES: dict[str, Callable[[Any, Any], Any]] = {
    "append": lambda b, x: b.append(x),
    "pair": lambda b, x: b.append((x, x.sum())),
    "extend": lambda b, x: b.extend([x, x * 2]),
    "number": lambda b, x: b.append(3.0),
    "item": lambda b, x: b.__setitem__(0, x),
    "nothing": lambda b, x: None,
}


def _plain(item: Any) -> float:
    return float(item[1] if isinstance(item, tuple) else item)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("kind", [list, partial(deque, maxlen=3)], ids=["list", "deque"])
def test_draws_from_what_the_step_changes_are_those_of_eager_mode(kind: Any, draw: str, change: str) -> None:
    def program(jit: Jit) -> Iterator[Any]:
        random.seed(3)
        np.random.seed(3)
        kept = kind([aj.ones(1) * 5])

        def step(x: Any) -> Any:
            CHANGES[change](kept, x * 3)
            found = DRAWS[draw](kept)
            return (found[1] if isinstance(found, tuple) else found) * 2 + x

        run = jit(step)
        for k in range(5):
            yield float(run(aj.ones(1) * k)), [_plain(item) for item in kept]
        yield random.random(), np.random.rand()

    same_everywhere(program)


def _counting(start: int) -> Iterator[float]:
    yield from (100.0 * start + k for k in itertools.count())


SOURCES: dict[str, tuple[Callable[[int], Any], Callable[[Any, Any], Any]]] = {
    "iterator": (lambda k: iter([10.0 * k + n for n in range(20)]), lambda x, it: x * next(it)),
    "generator": (_counting, lambda x, it: x * next(it) + 2 * next(it)),
    "exhausted": (lambda k: iter([1.0 * k]), lambda x, it: x * next(it, 7.0)),
    "random": (random.Random, lambda x, it: x * it.random()),
    "choice": (random.Random, lambda x, it: x * it.choice([1.0, 2.0, 3.0])),
    "numpy": (np.random.default_rng, lambda x, it: x * aj.tensor(it.normal(size=(2,))).sum()),
    "old numpy": (np.random.RandomState, lambda x, it: x * it.rand()),
    "decided": (random.Random, lambda x, it: x * (it.random() if it.random() > 0.5 else 3.0)),
}


@pytest.mark.parametrize("order", ["0101", "001120", "012012012", "000000"])
@pytest.mark.parametrize("is_named", [False, True], ids=["by place", "by name"])
@pytest.mark.parametrize("source", SOURCES)
def test_what_is_drawn_from_an_argument_is_drawn_from_the_one_of_the_call(
    source: str, is_named: bool, order: str
) -> None:
    make, use = SOURCES[source]

    def program(jit: Jit) -> Iterator[Any]:
        step, sources = jit(use), [make(k) for k in range(3)]
        for k in map(int, order):
            yield float(step(aj.ones(1), it=sources[k]) if is_named else step(aj.ones(1), sources[k]))
        yield [float(use(aj.ones(1), it)) for it in sources]

    same_everywhere(program)


def test_arguments_to_draw_from_may_be_one_object_and_may_change_places() -> None:
    def program(jit: Jit) -> Iterator[Any]:
        step = jit(lambda x, a, b: x * next(a) + 10 * next(b))
        p, q = _counting(0), _counting(1)
        for a, b in ((p, q), (q, p), (p, p), (p, q), (q, q), (p, p)):
            yield step(aj.ones(1), a, b).item()

    same_everywhere(program)


def _set_and_used(v: contextvars.ContextVar[float], x: Any) -> Any:
    token = v.set(v.get() + 1)
    return x * v.get() * (1 if token is not None else 2)


def _set_and_read(v: contextvars.ContextVar[float], x: Any) -> Any:
    v.set(v.get() + 1)
    return x * v.get()


def _set_and_reset(v: contextvars.ContextVar[float], x: Any) -> Any:
    token = v.set(v.get() + 1)
    y = x * v.get()
    v.reset(token)
    return y


CONTEXTS: dict[str, Callable[[contextvars.ContextVar[float], Any], Any]] = {
    "read": lambda v, x: x * v.get(),
    "read or another": lambda v, x: x * v.get(5.0),
    "set": lambda v, x: (v.set(v.get() + 1), x)[1],
    "set and used": _set_and_used,
    "set and read": _set_and_read,
    "set and reset": _set_and_reset,
    "copied": lambda v, x: x * contextvars.copy_context().get(v, 1.0),
    "run": lambda v, x: contextvars.copy_context().run(lambda: (v.set(9.0), x * v.get())[1]),
}


@pytest.mark.parametrize("name", CONTEXTS)
def test_context_variables_are_as_after_eager_calls(name: str) -> None:
    def program(jit: Jit) -> Iterator[Any]:
        v = contextvars.ContextVar("v", default=2.0)
        step = jit(lambda x: CONTEXTS[name](v, x))
        for k in range(6):
            if k == 3:
                v.set(20.0)
            yield step(aj.ones(1)).item(), v.get()

    same_everywhere(lambda jit: contextvars.copy_context().run(lambda: iter(list(program(jit)))))


POWERS: dict[str, Callable[[int], Any]] = {
    "base": lambda n: pow(n, 2, 7),
    "exponent": lambda n: pow(2, n, 7),
    "modulus": lambda n: pow(2, 3, n),
    "all": lambda n: pow(n, n, n + 1),
    "named": lambda n: pow(base=n, exp=2, mod=5),
    "inverse": lambda n: pow(n, -1, 11),
    "method": lambda n: n.__pow__(2, 7),
    "unbound": lambda n: int.__pow__(n, 2, 7),
    "two": lambda n: pow(n, 2),
}


@pytest.mark.parametrize("name", POWERS)
def test_powers_of_ints_that_change_from_call_to_call(name: str) -> None:
    def program(jit: Jit) -> Iterator[Any]:
        step = jit(lambda x, n: x * POWERS[name](n))
        yield from (step(aj.ones(1), n).item() for n in range(1, 9))

    same_everywhere(program)


SETTINGS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any], tuple[Any, ...]]] = {
    "threads": (aj.get_num_threads, aj.set_num_threads, (2, 1)),
    "interop threads": (aj.get_num_interop_threads, aj.set_num_interop_threads, (2, 1)),
    "default dtype": (aj.get_default_dtype, aj.set_default_dtype, (aj.float64, aj.float32)),
    "precision": (aj.get_float32_matmul_precision, aj.set_float32_matmul_precision, ("high", "highest")),
    "warnings": (aj.is_warn_always_enabled, aj.set_warn_always, (True, False)),
    "determinism": (aj.get_deterministic_debug_mode, aj.set_deterministic_debug_mode, ("warn", "default")),
    "autocast": (
        lambda: aj.get_autocast_dtype("cpu"),
        partial(aj.set_autocast_dtype, "cpu"),
        (aj.float16, aj.bfloat16),
    ),
    "anomaly": (aj.is_anomaly_enabled, aj.set_anomaly_enabled, (True, False)),
    "tf32": (
        lambda: aj.backends.cuda.matmul.allow_tf32,
        lambda v: setattr(aj.backends.cuda.matmul, "allow_tf32", v),
        (True, False),
    ),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_that_a_step_asks_for_are_followed(name: str) -> None:
    get, put, values = SETTINGS[name]
    threads = aj.get_num_threads()

    def program(jit: Jit) -> Iterator[Any]:
        put(values[-1])
        step = jit(lambda x: (x * 2, get())[1])
        yield step(aj.ones(1))
        for value in values * 2:
            put(value)
            yield step(aj.ones(1))

    try:
        same_everywhere(program)
    finally:
        put(values[-1])
        aj.set_num_threads(threads)


def test_a_step_that_sets_the_number_of_threads_runs_line_by_line() -> None:
    before = aj.get_num_threads()
    step = aj.jit(lambda x, n: (aj.set_num_threads(n), x * aj.get_num_threads())[1])
    try:
        assert [step(aj.ones(1), n).item() for n in (1, 2, 1)] == [1.0, 2.0, 1.0]
    finally:
        aj.set_num_threads(before)
    assert "line by line" in str(step.explain())


@pytest.mark.parametrize("first", ["", "random.random(); ", "np.random.rand(); ", "aj.rand(1); "])
@pytest.mark.parametrize(
    "statements",
    ["random.shuffle(items)", "np.random.shuffle(items)", "random.seed(len(items))", "np.random.seed(5)",
     "aj.manual_seed(5)", "state = random.getstate(); random.random(); random.setstate(state)"],
)  # fmt: skip
def test_generators_are_set_and_shuffle_where_the_function_says_so(first: str, statements: str) -> None:
    """Also where it has drawn before: what was drawn in a capture that is given up is given to the call."""

    def run(jit: Any) -> list[Any]:
        random.seed(3)
        np.random.seed(3)
        aj.manual_seed(3)
        names: dict[str, Any] = {"random": random, "np": np, "aj": aj}
        rest = "return x * items[0] + items[1] + random.random() + np.random.rand() + aj.rand(1)"
        exec(f"def step(x):\n    items = [3, 1, 2]\n    {first}{statements}\n    {rest}", names)
        step = jit(names["step"])
        return [step(aj.tensor([float(k)])).tolist() for k in range(4)]

    assert run(aj.jit) == run(lambda f: f)


OF_NUMPY = (
    "np.random.ranf()", "np.random.sample()", "np.random.random()", "np.random.rand()", "np.random.mtrand.ranf(2)[1]",
    "np.random.get_bit_generator().random_raw() % 7", "np.random.default_rng(3).random()", "np.random.bytes(1)[0]",
    "np.random.RandomState(3).rand()", "np.random.Generator(np.random.PCG64(3)).random()", "np.random.randn(3)[2]",
    "np.random.standard_normal()", "np.random.random_integers(5)",
)  # fmt: skip


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("expression", OF_NUMPY)
def test_whatever_draws_from_numpys_generator_draws_at_every_call(expression: str) -> None:
    """Some of them are functions, none of the generator's methods."""

    def run(jit: Any) -> list[float]:
        np.random.seed(3)
        names: dict[str, Any] = {"np": np}
        exec(f"def step(x): return x * 2 + float({expression})", names)
        step = jit(names["step"])
        return [step(aj.tensor(float(k), dtype=aj.float64)).item() for k in range(4)]

    assert run(aj.jit) == run(lambda f: f)
