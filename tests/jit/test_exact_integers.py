"""Ints that Python computes from numbers of a step are exact, whatever their size; int64 tensors wrap around."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import autojit as aj

MOST = 2**63 - 1
EDGES = [
    3, -4, 0, 1, -1, 2**31, -(2**31) - 1, 2**32 + 1, 3037000500, -3037000499, 2**53 + 1, 10**18, 2**62, -(2**62) - 1,
    MOST, MOST - 1, -MOST, -MOST - 1,
]  # fmt: skip
ONE: dict[str, Callable[[int], Any]] = {
    "plus": lambda n: (n + 1, 1 + n, n - 1, 1 - n, n + 2**62, n - 2**62),
    "minus large": lambda n: (n - MOST, -MOST - n, n + MOST, MOST - n),
    "times": lambda n: (n * 2, -3 * n, n * 10**6, n * -1, n * 0, n * 1),
    "beyond": lambda n: (n + 2**63, n * 2**64, 2**63 - n, n // 2**63, n % 2**64),
    "signs": lambda n: (-n, abs(n), ~n, +n),
    "shifts": lambda n: (n << 1, n << 3, n << 63, n >> 1, n >> 62, n << 64),
    "bits": lambda n: (n & 255, n & (2**61 - 1), n | 1, n ^ 3),
    "powers": lambda n: (n**0, n**1, n**2, n**3, n**4),
    "quotients": lambda n: (n // 7, n // -1, n % 7, n % -7, divmod(n, 10), n // -(2**62)),
    "in turn": lambda n: (n * 33 + 7, (n * 33 + 7) * 33 + 7, (n + 1) * (n - 1), (n * n) % 97),
    "compared": lambda n: (n < 2**63, n == 2**63, n >= 2**63, n > -(2**64), n != 2**70, n <= 2**62, n > MOST - 1),
    "with floats": lambda n: (n < 2.5, n == 2.0**53, n >= float(2**53), n > 1e30, n == 3.0, n != 0.5, n <= -(2.0**62)),
    "chosen": lambda n: (min(n, 2**63), max(n, 2**63), max(n, -(2**70)), min(n, 5), max(n, 5)),
    "digits": lambda n: (str(n * 10), len(str(n * n)), hash(n + n), [0, 1, 2][(n * 10) % 3]),
    "decided": lambda n: "more" if n * 3 > n * 2 else "less",
}
TWO: dict[str, Callable[[int, int], Any]] = {
    "plus": lambda n, m: n + m,
    "minus": lambda n, m: n - m,
    "times": lambda n, m: n * m,
    "several": lambda n, m: (n + m) * (n - m) + n,
    "sum": lambda n, m: sum((n, m, n, m)),
    "compared": lambda n, m: (n < m, n == m, n * 2 >= m),
    "least": lambda n, m: (min(n, m), max(n, m)),
}


def _of_tensor(step: Callable[..., Any], dtype: Any) -> Callable[..., Any]:
    return lambda *ns: step(*[aj.tensor(n, dtype=dtype) for n in ns])


def _agree(question: Callable[..., Any], calls: list[tuple[int, ...]]) -> None:
    """From tensors, from arguments, and from places that the function assigns to."""
    from_items = aj.jit(lambda *ts: question(*[t.item() for t in ts]))
    from_arguments = aj.jit(question)
    at = SimpleNamespace()

    def assign() -> None:
        at.found = question(*[getattr(at, f"n{k}") for k in range(len(calls[0]))])
        for k in range(len(calls[0])):
            setattr(at, f"n{k}", getattr(at, f"n{k}") + 1)

    from_places = aj.jit(assign)
    for ns in calls:
        expected = question(*ns)
        assert from_items(*[aj.tensor(n, dtype=aj.int64) for n in ns]) == expected, ns
        assert from_arguments(*ns) == expected, ns
        for k, n in enumerate(ns):
            setattr(at, f"n{k}", n)
        from_places()
        assert at.found == expected, ns
        assert [getattr(at, f"n{k}") for k in range(len(ns))] == [n + 1 for n in ns]


@pytest.mark.filterwarnings("ignore:(?s)jit. .* served no second call")
@pytest.mark.parametrize("name", ONE)
def test_of_one(name: str) -> None:
    _agree(ONE[name], [(n,) for n in EDGES])
    _agree(ONE[name], [(n,) for n in reversed(EDGES)])


@pytest.mark.parametrize("name", TWO)
def test_of_two(name: str) -> None:
    rng = random.Random(name)
    pairs = [(rng.choice(EDGES), rng.choice(EDGES)) for _ in range(40)]
    _agree(TWO[name], [(3, 4), (5, -6), *pairs])


FLOATS = [1.5, -2.5, 0.0, 2.0**53, 2.0**62, -(2.0**63), 2.0**63, 1e20, -1e300, 9223372036854774784.0]
OF_FLOATS: dict[str, Callable[[float], Any]] = {
    "int": int,
    "trunc": math.trunc,
    "floor": math.floor,
    "ceil": math.ceil,
    "round": round,
    "compared": lambda f: (f < 2**53 + 1, f > 2**63 - 1, f == 10**20, f >= 2**70, f != 2**62),
    "computed with": lambda f: int(f) * 3 + 1,
}


@pytest.mark.parametrize("name", OF_FLOATS)
def test_of_floats(name: str) -> None:
    step = aj.jit(lambda t: OF_FLOATS[name](t.item()))
    for f in (*FLOATS, *reversed(FLOATS)):
        assert step(aj.tensor(f, dtype=aj.float64)) == OF_FLOATS[name](f), f


@pytest.mark.parametrize("factor", [3, 10**6, -(2**20)])
def test_a_number_that_grows_from_call_to_call(factor: int) -> None:
    at, model = SimpleNamespace(n=1), aj.ones(2)

    @aj.jit
    def step(x: Any) -> Any:
        at.n = at.n * factor + len(x)
        model.add_(x)
        return model * 1

    n = 1
    for k in range(45):
        found = step(aj.ones(2))
        n = n * factor + 2
        assert at.n == n
        assert found.tolist() == [k + 2.0] * 2, "what the step changes is changed once"


def test_what_fits_is_computed_natively_and_what_does_not_is_told() -> None:
    step = aj.jit(lambda t: t.item() * t.item() + 1)
    for k in range(12):
        assert step(aj.tensor(k)) == k * k + 1
    assert step.stats()["native_calls"] >= 10
    assert step.stats()["captures"] == 1
    assert step(aj.tensor(2**40)) == 2**80 + 1
    assert "needs more than 64 bits" in step.explain()
    assert step(aj.tensor(7)) == 50
    assert step.stats()["captures"] == 1


def test_optimisers_and_gradients_of_a_call_that_begins_again() -> None:
    def seen(jit: Callable[[Any], Any]) -> list[Any]:
        weight = aj.nn.Parameter(aj.ones(2))
        optimiser = aj.optim.Adam([weight], lr=0.1)
        at = SimpleNamespace(n=1, log=[])

        @jit
        def step(x: Any) -> Any:
            optimiser.zero_grad()
            (weight * x).square().sum().backward()
            optimiser.step()
            at.n *= 10**5
            at.log.append(at.n)
            return weight.detach() * 1

        return [[f"{v:.5f}" for v in step(aj.ones(2)).tolist()] for _ in range(8)] + [at.n, at.log]

    assert seen(aj.jit) == seen(lambda f: f)


def test_errors_that_a_function_catches_are_its_own() -> None:
    @aj.jit
    def step(t: Any) -> Any:
        try:
            return t.item() * 10**10
        except Exception:
            return -1

    for n in (1, 2, 3, 10**10, 4):
        assert step(aj.tensor(n)) == n * 10**10


def test_tensors_wrap_around() -> None:
    step = aj.jit(lambda t: (t * 2, t + t, -t))
    for n in (3, MOST, -MOST - 1):
        t = aj.tensor([n])
        assert [r.tolist() for r in step(t)] == [(t * 2).tolist(), (t + t).tolist(), (-t).tolist()]
