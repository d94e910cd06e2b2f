"""Whole numbers: every op at the edges of every dtype gives compiled what it gives in eager mode, errors among it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.tensor.state import reference_only

DTYPES = [aj.int8, aj.int16, aj.int32, aj.int64, aj.uint8]
FLOATS = [aj.float16, aj.bfloat16, aj.float32, aj.float64]
Call = Callable[..., Any]


def edges(dtype: aj.dtype) -> list[int]:
    info = aj.iinfo(dtype)
    wanted = {info.min, info.min + 1, -2, -1, 0, 1, 2, 3, 7, 8, 31, 63, 64, info.max - 1, info.max}
    return sorted(n for n in wanted if info.min <= n <= info.max)


def grid(dtype: aj.dtype) -> tuple[aj.Tensor, aj.Tensor]:
    """Every pair of edges."""
    points = edges(dtype)
    pairs = [(a, b) for a in points for b in points]
    return tuple(aj.tensor([pair[k] for pair in pairs], dtype=dtype) for k in (0, 1))  # type: ignore[return-value]


def outcome(call: Call, *given: Any) -> tuple[Any, ...]:
    """What can be seen of a call: results with their dtypes, or the type of the error."""
    try:
        found = call(*given)
    except Exception as error:
        return ("error", type(error))
    parts = found if isinstance(found, tuple) else (found,)
    return tuple((t.dtype, t.tolist()) for t in parts)


def agree(call: Call, *given: Any) -> tuple[Any, ...]:
    """The outcome in eager mode, which two compiled calls have too."""
    with reference_only():
        expected = outcome(call, *given)
    step = aj.jit(call)
    for _ in range(2):
        found = outcome(step, *given)
        assert str(found) == str(expected)  # NaN equals NaN
    return expected


PAIRS: dict[str, Call] = {
    "arithmetic": lambda a, b: (a + b, a - b, a * b, aj.maximum(a, b), aj.minimum(a, b), aj.fmax(a, b)),
    "power": lambda a, b: a**b,
    "bits": lambda a, b: (a & b, a | b, a ^ b, ~a),
    "shifts": lambda a, b: (a << b, a >> b),
    "comparisons": lambda a, b: (a == b, a != b, a < b, a <= b, a > b, a >= b),
    "logic": lambda a, b: (aj.logical_and(a, b), aj.logical_or(a, b), aj.logical_xor(a, b), aj.logical_not(a)),
    "floats": lambda a, b: (a / b, aj.copysign(a, b)),
    "factors": lambda a, b: (aj.gcd(a, b), aj.lcm(a, b)),
    "choice": lambda a, b: (aj.where(a > b, a, b), a.clamp(-1, 3), aj.heaviside(a, b)),
}
ONE: dict[str, Call] = {
    "signs": lambda a: (a.abs(), -a, a.sign(), a.square(), +a, aj.relu(a)),
    "folds": lambda a: (a.sum(), a.prod(), a.max(), a.min(), a.argmax(), a.any(), a.all()),
    "scans": lambda a: (a.cumsum(0), a.cumprod(0), a.sort()[0], a.diff(), a.flip(0)),
    "powers": lambda a: (a**0, a**1, a**2, a**3, a**7, a**100),
    "shifts": lambda a: tuple(a << n for n in (-3, -1, 0, 1, 7, 8, 31, 63, 64, 100)),
    "right shifts": lambda a: tuple(a >> n for n in (-3, -1, 0, 1, 7, 8, 31, 63, 64, 100)),
    "casts": lambda a: tuple(a.to(d) for d in (*DTYPES, aj.float32, aj.float64, aj.bool)),
    "divisors": lambda a: tuple(f(a, n) for n in (1, -1, 2, -3, 7, 100) for f in (aj.floor_divide, aj.fmod)),
    "modulus": lambda a: tuple(a % n for n in (1, -1, 2, -3, 7, 100)),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", PAIRS)
def test_pairs_of_edges(name: str, dtype: aj.dtype) -> None:
    assert agree(PAIRS[name], *grid(dtype))[0] != "error"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ONE)
def test_single_edges(name: str, dtype: aj.dtype) -> None:
    assert agree(ONE[name], aj.tensor(edges(dtype), dtype=dtype))[0] != "error"


def test_bools_count_as_zero_and_one() -> None:
    a, b = aj.tensor([True, True, False, False]), aj.tensor([True, False, True, False])
    agree(lambda a, b: (a + b, a * b, a & b, a | b, a ^ b, ~a, a.sum(), a.cumsum(0), a / (b + 1)), a, b)


@pytest.mark.parametrize("source", FLOATS, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_floats_beyond_a_dtype_become_the_same_whole_number(dtype: aj.dtype, source: aj.dtype) -> None:
    special = [np.nan, np.inf, -np.inf, 1e30, -1e30, 300.7, -300.7, 127.9, -128.9, 255.5, -0.5, 0.5, -1.5]
    powers = [s * (2.0**k + d) for k in (7, 8, 15, 16, 31, 32, 62, 63, 64) for s in (1, -1) for d in (-1, 0, 1)]
    agree(lambda x: x.to(dtype), aj.tensor([*special, *powers], dtype=source))


WRAPPING: dict[str, Call] = {
    "+": lambda a, n: (a + n, n + a, a - n, n - a, a * n, n * a),
    "&": lambda a, n: (a & n, a | n, a ^ n),
    "==": lambda a, n: (a == n, a != n, a < n, a <= n, a > n, a >= n),
    "<<": lambda a, n: (a << n, a >> n),
    "/": lambda a, n: (a / n, n / (a + 1), aj.copysign(a, n)),
    "**": lambda a, n: n ** a.abs(),
}
REFUSING: dict[str, Call] = {
    "full": lambda a, n: aj.full((2,), n, dtype=a.dtype), "fill_": lambda a, n: a.clone().fill_(n),
    "masked_fill": lambda a, n: a.masked_fill(a > 0, n), "index_fill": lambda a, n: a.index_fill(0, aj.tensor([0]), n),
    "scatter": lambda a, n: a.scatter(0, aj.tensor([0]), n), "clamp": lambda a, n: a.clamp(max=n),
    "pad": lambda a, n: aj.nn.functional.pad(a, (1, 1), value=n), "where": lambda a, n: aj.where(a > 0, a, n),
    "alpha": lambda a, n: aj.add(a, a, alpha=n), "addcmul": lambda a, n: aj.addcmul(a, a, a, value=n),
    "**": lambda a, n: a**n, "setitem": lambda a, n: a.clone().__setitem__(0, n), "tensor": lambda a, n: aj.tensor(
    [n], dtype=a.dtype), "index_add": lambda a, n: a.index_add(0, aj.tensor([0]), a[:1], alpha=n),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [aj.int8, aj.uint8, aj.int32, aj.int64], ids=str)
@pytest.mark.parametrize("name", WRAPPING)
def test_a_number_beyond_the_dtype_wraps_around_as_an_operand(name: str, dtype: aj.dtype) -> None:
    call, a = WRAPPING[name], aj.tensor(edges(dtype), dtype=dtype)
    for number in (128, -129, 255, 256, 1000, -1000, 2**31, -(2**40), 2**63 - 1):
        assert agree(lambda a, n=number: call(a, n), a)[0] != "error"
    if dtype is aj.int8:
        assert (aj.tensor([1, 2], dtype=dtype) * 1000).tolist() == [-24, -48]


@pytest.mark.parametrize("name", REFUSING)
def test_a_number_beyond_the_dtype_is_refused_as_a_value(name: str) -> None:
    a = aj.tensor([1, -3, 100], dtype=aj.int8)
    assert agree(lambda a: REFUSING[name](a, 1000), a) == ("error", agree(lambda a: REFUSING["full"](a, 1000), a)[1])


DIVISIONS: dict[str, Call] = {
    "//": lambda a, b: a // b, "%": lambda a, b: a % b, "fmod": aj.fmod,
    "trunc": lambda a, b: aj.div(a, b, rounding_mode="trunc"),
    "floor": lambda a, b: aj.div(a, b, rounding_mode="floor"),
}  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", DIVISIONS)
def test_division_is_defined_but_by_zero(name: str, dtype: aj.dtype) -> None:
    call, (a, b) = DIVISIONS[name], grid(dtype)
    assert agree(call, a[b != 0], b[b != 0])[0] != "error"
    assert agree(call, a, b)[0] == "error"
    assert agree(lambda a: call(a, 0), a)[0] == "error"
    assert agree(call, a[:0], b[:0])[0] != "error"


def unread(q: Call, a: Any, b: Any) -> Any:
    q(a, b)
    return a + 1


def decided(q: Call, a: Any, b: Any) -> Any:
    if q(a, b).sum() > 0:
        return a + 1
    return a - 1


PLACES: dict[str, Callable[[Call, Any, Any], Any]] = {
    "unread": unread,
    "decided": decided,
    "sliced": lambda q, a, b: q(a, b)[:1] + 1,
    "broadcast": lambda q, a, b: q(a.reshape(-1, 1), b)[0, 0],
    "stacked": lambda q, a, b: aj.stack([a, q(a, b)])[0],
    "summed": lambda q, a, b: q(a, b).float().sum(),
    "masked": lambda q, a, b: aj.where(b != 0, q(a, b), 0),
    "padded": lambda q, a, b: aj.nn.functional.pad(q(a, b), (2, 2)),
    "an index": lambda q, a, b: aj.arange(100)[q(a, b).abs()],
    "batched": lambda q, a, b: aj.vmap(q)(a, b),
    "taken": lambda q, a, b: aj.cond(a.sum() > 0, q, lambda a, b: a, (a, b)),
    "scanned": lambda q, a, b: aj.scan(lambda c, x: (c + q(x[0], x[1]), c), aj.tensor(0), (a, b)),
    "looped": lambda q, a, b: aj.while_loop(lambda i, t: i < 2, lambda i, t: (i + 1, q(a, b)), (aj.tensor(0), a)),
}
NOT_TAKEN: dict[str, Callable[[Call, Any, Any], Any]] = {
    "branch": lambda q, a, b: aj.cond(a.sum() < 0, q, lambda a, b: a + 1, (a, b)),
    "loop": lambda q, a, b: aj.while_loop(lambda i, t: i < 0, lambda i, t: (i + 1, q(a, b)), (aj.tensor(0), a)),
    "empty": lambda q, a, b: q(a[:0], b[:0]),
    "padding": lambda q, a, b: aj.nn.functional.pad(q(aj.arange(3), aj.arange(3) + 1), (2, 2)),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_zero_divisor_is_an_error_wherever_the_quotient_goes(place: str) -> None:
    for call in (DIVISIONS["//"], DIVISIONS["%"]):
        good, bad = aj.tensor([1, 3, 2]), aj.tensor([1, 0, 2])
        a = aj.tensor([7, 8, 9])
        assert agree(lambda a, b, q=call: PLACES[place](q, a, b), a, bad)[0] == "error"
        assert agree(lambda a, b, q=call: PLACES[place](q, a, b), a, good)[0] != "error"


@pytest.mark.parametrize("place", NOT_TAKEN)
def test_a_quotient_that_is_not_computed_is_no_error(place: str) -> None:
    a, bad = aj.tensor([7, 8, 9]), aj.tensor([1, 0, 2])
    assert agree(lambda a, b: NOT_TAKEN[place](DIVISIONS["//"], a, b), a, bad)[0] != "error"


def test_a_step_of_native_calls_recovers_from_a_zero_divisor() -> None:
    step = aj.jit(lambda a, b: a // b)
    a = aj.arange(5000)
    for divisor in (3, 3, 0, 3, 0, 5):
        b = aj.full((5000,), 7)
        b[4321] = divisor
        assert outcome(step, a, b) == outcome(lambda a, b: a // b, a, b)
