"""The index maps that code generation uses agree with the eager rules, element by element."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import autojit.ops  # noqa: F401
from autojit.core.dtypes import dtype_of_numpy, float64
from autojit.core.types import TensorType
from autojit.ir import Op
from autojit.ir.index import Index, LoopVariable, Quotient, Remainder, Term
from autojit.ops.base import Reindex
from autojit.ops.indexing import Gathering
from autojit.ops.scattering import Scattering


def cases(family: type[Op]) -> list[Any]:
    classes = [op for op in Op.registry.values() if issubclass(op, family)]
    return [pytest.param(op, inputs, id=str(op)) for c in classes for op, inputs in c.samples(float64)]  # type: ignore[attr-defined]


def value_of(index: Index, at: dict[str, int]) -> int:
    def term(t: Term) -> int:
        if isinstance(t, LoopVariable):
            return at[t.name]
        assert isinstance(t, Quotient | Remainder)
        base = value_of(t.base, at)
        assert base >= 0, "quotients and remainders are of non-negative indices"
        return base // t.divisor if isinstance(t, Quotient) else base % t.divisor

    return index.offset + sum(c * term(t) for t, c in index.terms)


def loops(shape: tuple[int, ...]) -> tuple[Index, ...]:
    return tuple(Index.of(LoopVariable(f"i{axis}", n)) for axis, n in enumerate(shape))


def places(shape: tuple[int, ...]) -> list[tuple[tuple[int, ...], dict[str, int]]]:
    return [(place, {f"i{axis}": i for axis, i in enumerate(place)}) for place in np.ndindex(*shape)]


def type_of(x: NDArray[Any]) -> TensorType:
    return TensorType(x.shape, dtype_of_numpy(x.dtype))


@pytest.mark.parametrize(("op", "inputs"), cases(Reindex))
def test_source_index_names_the_element_eager_takes(op: Any, inputs: tuple[NDArray[Any], ...]) -> None:
    x, y = inputs[0], op.eager(*inputs)
    if y.size == 0:
        return
    index = loops(y.shape)
    source, conditions = op.source_index(index, type_of(x)), op.valid(index, type_of(x))
    for place, at in places(y.shape):
        if all(low <= value_of(i, at) < high for i, low, high in conditions):
            assert y[place] == x[tuple(value_of(i, at) for i in source)]
        else:
            assert y[place] == op.value


def fetcher(arrays: tuple[NDArray[Any], ...], at: dict[str, int]) -> Any:
    def fetch(operand: int, position: tuple[Index, ...], extent: int) -> Index:
        found = int(arrays[operand][tuple(value_of(i, at) for i in position)])
        return Index((), found + extent if found < 0 else found)

    return fetch


@pytest.mark.parametrize(("op", "inputs"), cases(Gathering))
def test_gathers_name_the_element_eager_takes(op: Any, inputs: tuple[NDArray[Any], ...]) -> None:
    x, *_ = inputs
    y = op.eager(*inputs)
    for place, at in places(y.shape):
        source = op.source_index_at(loops(y.shape), [type_of(a) for a in inputs], fetcher(inputs, at))
        assert y[place] == x[tuple(value_of(i, at) for i in source)]


@pytest.mark.parametrize(("op", "inputs"), cases(Scattering))
def test_scatters_name_the_element_eager_writes(op: Any, inputs: tuple[NDArray[Any], ...]) -> None:
    base, src, *_ = inputs
    expected = base.copy()
    for place, at in places(src.shape):
        index = op.target_index_at(loops(src.shape), [type_of(a) for a in inputs], fetcher(inputs, at))
        target = tuple(value_of(i, at) for i in index)
        folds = {"set": lambda _, new: new, "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
        expected[target] = folds[op.combine](expected[target], src[place])
    np.testing.assert_allclose(op.eager(*inputs), expected, rtol=1e-14)
