"""The error about a refused value says which value it is, where it is, what is valid, what was called, and where."""

from __future__ import annotations

import inspect
import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

import autojit as aj
from autojit import nn
from autojit.compiler import compile
from autojit.core.config import config
from autojit.core.dtypes import ALL_DTYPES
from autojit.core.errors import AutojitError, rounds_text
from autojit.ir import Op
from tests.ops.laws import graph_of, type_of

F, D = nn.functional, aj.distributions
COUNT = 5
ROUNDS = 3


def seed_of(name: str) -> int:
    return zlib.crc32(name.encode())


# -- ops: every one that may fail, found in the registry


def _outside(op: Any, inputs: list[Any], draws: np.random.Generator) -> Iterator[tuple[int, ...]]:
    for place, _, extent in op.look_ups(*map(type_of, inputs)):
        if inputs[place].size:
            before = inputs[place].copy()
            position = tuple(int(draws.integers(n)) for n in inputs[place].shape)
            inputs[place][position] = extent + draws.integers(9) if draws.integers(2) else -extent - 1
            yield position
            inputs[place] = before


def _one(value: Any, operand: int) -> Callable[[Any, list[Any], np.random.Generator], Iterator[tuple[int, ...]]]:
    def spoil(op: Any, inputs: list[Any], draws: np.random.Generator) -> Iterator[tuple[int, ...]]:
        inputs[operand] = inputs[operand].copy()
        position = tuple(int(draws.integers(n)) for n in inputs[operand].shape)
        inputs[operand][position] = value
        yield position

    return spoil


def _matrix(operand: float) -> Callable[[Any, list[Any], np.random.Generator], Iterator[tuple[int, ...]]]:
    def spoil(op: Any, inputs: list[Any], draws: np.random.Generator) -> Iterator[tuple[int, ...]]:
        inputs[:] = [np.stack([x] * 4) for x in inputs]
        position = tuple(int(draws.integers(n)) for n in inputs[0].shape[:-2])
        inputs[0][position] = operand
        yield position

    return spoil


QUOTIENTS = ("floor_divide", "trunc_divide", "remainder", "fmod")
SPOILT: dict[str, Callable[[Any, list[Any], np.random.Generator], Iterator[tuple[int, ...]]]] = {
    **dict.fromkeys(QUOTIENTS, _one(0, 1)),
    **dict.fromkeys(("inv", "solve", "triangular_solve", "cholesky"), _matrix(0.0)),
    "svd": _matrix(math.nan),
    "witness": _one(False, 0),
    "in_range": _one(99, 0),
}
"""How operands are spoilt, and at which position, where an op does not say that they are indices."""

UNLOCATED = {
    "eigh": "of a matrix for which an iteration does not end",
    "require": "has one element, and a witness before it",
    "require_numbers": "is about no operand of the user's",
    "pseudo_inverse": "of a matrix for which an iteration does not end",
    "matrix_exp": "of a matrix for which an iteration does not end",
}
FAILING = sorted(
    op.name
    for op in Op.registry.load().values()
    if op.__module__.startswith("autojit.ops.") and hasattr(op, "samples") and op.name not in UNLOCATED
    for dtype in ALL_DTYPES[:12]
    if any(sample.may_refuse(*map(type_of, inputs)) or sample.looks_up for sample, inputs in op.samples(dtype))
)  # fmt: skip


@pytest.mark.parametrize("name", sorted(set(FAILING)))
def test_every_op_that_refuses_a_value_says_where_it_is_as_numpy_and_compiled(name: str) -> None:
    draws = np.random.default_rng(seed_of(name))
    for dtype in ALL_DTYPES:
        for op, inputs in Op.registry[name].samples(dtype):  # type: ignore[attr-defined]
            operands = [np.array(x, order="C") for x in inputs]
            types = list(map(type_of, operands))
            is_unit = getattr(op, "unit", False)  # a triangle whose diagonal is not read
            if is_unit or min(x.size for x in operands) == 0 or not (op.looks_up or op.may_refuse(*types)):
                continue
            assert op.looks_up or name in SPOILT, "say here which operand it refuses"
            for position in (_outside if op.looks_up else SPOILT[name])(op, operands, draws):
                with pytest.raises(AutojitError) as eager:
                    op.eager(*operands)
                told = eager.value.facts
                if name == "witness":
                    continue  # native code leaves it to the op that follows
                with pytest.raises(AutojitError) as compiled:
                    compile(graph_of(op, operands)).executable.run(operands)
                assert not position or str(told["position"]).startswith(str(position)), (op, told)
                assert {**told, **compiled.value.facts} == compiled.value.facts


# -- functions


class Check(NamedTuple):
    """A function of a vector, an element that it takes, and one that it refuses; what the error says of them."""

    call: Callable[[Any], Any]
    good: float
    bad: float
    of: str
    shown: str | None = None  # where the error does not tell the element itself


def f(value: float) -> aj.Tensor:
    return aj.full((COUNT,), float(value))


TABLE = aj.ones(4, 2)
WHOLE = aj.arange(COUNT) + 7
CHECKS = {
    "binary_cross_entropy": Check(lambda p: F.binary_cross_entropy(p, f(1)), 0.5, 1.25, "input"),
    "gaussian_nll_loss": Check(lambda v: F.gaussian_nll_loss(f(1), f(2), v), 0.5, -2.0, "var"),
    "multinomial": Check(lambda w: w.multinomial(2), 0.5, -2.0, "input"),
    "bernoulli": Check(lambda p: aj.bernoulli(p), 0.5, 1.25, "p"),
    "normal": Check(lambda s: aj.normal(f(0), s), 0.5, -2.0, "std"),
    "poisson": Check(lambda r: aj.poisson(r), 0.5, -2.0, "input"),
    "quantile": Check(lambda q: f(1).quantile(q), 0.5, 1.25, "q"),
    "nanquantile": Check(lambda q: f(1).nanquantile(q), 0.5, 1.25, "q"),
    "cov": Check(lambda w: aj.ones(2, COUNT).cov(aweights=w), 0.5, -2.0, "aweights"),
    "Normal": Check(lambda s: D.Normal(f(0), s).sample(), 0.5, -2.0, "scale"),
    "Uniform": Check(lambda h: D.Uniform(h, f(3)).sample(), 0.5, 5.0, "low"),
    "Geometric": Check(lambda p: D.Geometric(p).mean, 0.5, 0.0, "probs"),
    "log_prob": Check(lambda x: D.Poisson(f(1)).log_prob(x), 2.0, -2.0, "value"),
    "floor_divide": Check(lambda n: WHOLE // n, 2, 0, "the divisor"),
    "remainder": Check(lambda n: WHOLE % n, 2, 0, "the divisor"),
    "fmod": Check(lambda n: aj.fmod(WHOLE, n), 2, 0, "the divisor"),
    "div": Check(lambda n: aj.div(WHOLE, n, rounding_mode="trunc"), 2, 0, "the divisor"),
    "one_hot": Check(lambda t: F.one_hot(t, 4), 2, 4, "tensor"),
    "cross_entropy": Check(lambda t: F.cross_entropy(aj.ones(COUNT, 4), t), 2, 4, "target", "Target 4 "),
    "nll_loss": Check(lambda t: F.nll_loss(aj.ones(COUNT, 4), t), 2, -3, "target", "Target -3 "),
    "embedding": Check(lambda t: F.embedding(t, TABLE), 2, 7, "the index", "index 7 "),
    "gather": Check(lambda t: f(1).gather(0, t), 2, 7, "the index", "index 7 "),
    "index_select": Check(lambda t: TABLE.index_select(0, t), 2, 7, "the index", "index 7 "),
    "getitem": Check(lambda t: TABLE[t], 2, -7, "the index", "index -7 "),
    "scatter_add": Check(lambda t: aj.zeros(4).scatter_add(0, t, f(1)), 2, 7, "the index", "index 7 "),
    "index_add": Check(lambda t: aj.zeros(4).index_add(0, t, f(1)), 2, 7, "the index", "index 7 "),
    "take": Check(lambda t: f(1).take(t), 2, 7, "the index", "index 7 "),
}
WITHOUT_BATCHES = ("multinomial", "bernoulli", "normal", "poisson", "Normal", "Uniform")  # draws under vmap


def summed(found: Any) -> Any:
    return found.to(aj.float64).sum()


def scanned(check: Check) -> Callable[[Any], Any]:
    return lambda x: aj.scan(lambda c, row: (c + summed(check.call(row)), c), aj.zeros((), dtype=aj.float64), x)[0]


def looped(check: Check) -> Callable[[Any], Any]:
    def body(k: Any, total: Any, x: Any) -> Any:
        return k + 1, total + summed(check.call(x.select(0, 0) + 0 * k)), x

    start = aj.tensor(0), aj.zeros((), dtype=aj.float64)
    return lambda x: aj.while_loop(lambda k, total, x: k < ROUNDS, body, (*start, x))[1]


def taken(check: Check) -> Callable[[Any], Any]:
    return lambda x: aj.cond(x.numel() * aj.ones(()) > 0, lambda x: summed(check.call(x[0])), lambda x: summed(x), (x,))


WAYS: dict[str, Callable[[Check], Callable[[Any], Any]]] = {
    "plain": lambda check: lambda x: check.call(x[0]),
    "unread": lambda check: lambda x: (check.call(x[0]), x + 1)[1],
    "scan": scanned,
    "while_loop": looped,
    "cond": taken,
    "vmap": lambda check: aj.vmap(check.call),
}


def operands(check: Check, way: str, draws: np.random.Generator) -> tuple[aj.Tensor, aj.Tensor, tuple[int, ...], int]:
    """Rows of good elements, the same with a bad one, its position as it is told, and its row."""
    kind = aj.int64 if isinstance(check.bad, int) else aj.float32
    row = int(draws.integers(ROUNDS)) if way in ("scan", "vmap") else 0
    column = int(draws.integers(COUNT))
    good = aj.full((ROUNDS, COUNT), check.good, dtype=kind)
    bad = good.clone()
    bad[row, column] = check.bad
    return good, bad, (row, column) if way == "vmap" else (column,), row


def told_by(function: Callable[[Any], Any], given: aj.Tensor) -> str:
    with pytest.raises(AutojitError) as found:
        function(given)
    return str(found.value)


def assert_told(text: str, name: str, check: Check, position: Sequence[int]) -> None:
    line = inspect.getsourcelines(check.call)[1]
    assert f"{tuple(position)} of {check.of}\n" in text, text
    assert (check.shown or f"  {check.bad}\n") in text, text
    assert "  valid " in text, text
    assert f"test_located_values.py:{line}, calling {name.removesuffix('_')}" in text, text


CASES = [(name, way) for name in CHECKS for way in WAYS if way != "vmap" or name not in WITHOUT_BATCHES]


@pytest.mark.parametrize(("name", "way"), CASES)
def test_value_position_range_call_and_line_are_told_eager_and_compiled(name: str, way: str) -> None:
    check = CHECKS[name]
    function = WAYS[way](check)
    good, bad, position, row = operands(check, way, np.random.default_rng(seed_of(name + way)))
    eager = told_by(function, bad)
    assert_told(eager, name, check, position)
    step = aj.jit(function)
    step(good)
    for text in (told_by(step, bad), told_by(aj.jit(function), bad)):
        assert_told(text, name, check, position)
        assert way != "scan" or f"round     {rounds_text((row,))}" in text, text


@pytest.mark.parametrize("name", CHECKS)
def test_checked_builds_tell_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "check", True)
    check = CHECKS[name]
    good, bad, position, _ = operands(check, "plain", np.random.default_rng(seed_of(name)))
    step = aj.jit(WAYS["plain"](check))
    step(good)
    assert_told(told_by(step, bad), name, check, position)


def test_an_item_that_is_written_is_told_as_a_write() -> None:
    cache, rows = aj.zeros(4, 3), [aj.zeros(4)]

    def write(i: Any) -> Any:
        cache[i] = 1.0
        return cache.sum()

    def write_in_container(i: Any) -> Any:
        rows[0][i] = 1.0
        return rows[0].sum()

    for function in (write, write_in_container, lambda i: cache.__setitem__(i, 2.0)):
        step = aj.jit(function)
        step(aj.tensor([1]))
        texts = [told_by(call, aj.tensor([7])) for call in (function, step)]
        assert all("setitem: index 7 is out of bounds" in text and ", calling setitem()" in text for text in texts)
