"""Positions of extremes along columns: two folds find what pairs find, ties, NaN and signs of zero included."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autojit.compiler import compile
from autojit.core.dtypes import DType, bfloat16, float16, float32, float64, int8, int64, uint8
from autojit.core.types import TensorType
from autojit.ir import Graph, GraphBuilder, evaluate, verify
from autojit.ir.op import bind
from autojit.ops.reductions import Argmax, Argmin, Position
from autojit.passes.column_positions import find_column_positions
from tests.on_cpu import CPU_MACHINE

MACHINE = replace(CPU_MACHINE, least_columns=2)
FEW_VALUES = (0.0, -0.0, 1.0, -2.0, np.inf, -np.inf, np.nan)  # so that most columns have ties


def _seeking(op: Position, shape: tuple[int, ...], dtype: DType) -> Graph:
    builder = GraphBuilder()
    x = builder.tracer(builder.input(TensorType(shape, dtype), "x"))
    return builder.finish([bind(op, x).value])


def _ties(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> np.ndarray:
    values = np.array(FEW_VALUES if dtype.kind == "float" else (0, 1, 3, 100))
    chosen: np.ndarray = rng.choice(
        values, shape, p=None if len(values) == 4 else (0.3, 0.2, 0.2, 0.2, 0.03, 0.04, 0.03)
    )
    return chosen.astype(dtype.numpy)


@pytest.mark.parametrize("dtype", [float32, float64, float16, bfloat16, int64, int8, uint8], ids=str)
@pytest.mark.parametrize("kind", [Argmax, Argmin])
def test_two_folds_find_the_first_place_of_the_extreme(
    kind: type[Position], dtype: DType, rng: np.random.Generator
) -> None:
    for shape, axis in (((7, 5), 0), ((3, 6, 4), 1), ((1, 3), 0), ((9, 2, 2), 0)):
        graph = _seeking(kind((axis,)), shape, dtype)
        found = verify(find_column_positions(graph, MACHINE))
        assert not any(isinstance(node.op, Position) for node in found.nodes)
        for x in [_ties(rng, shape, dtype) for _ in range(20)]:
            np.testing.assert_array_equal(evaluate(found, [x])[0], kind((axis,)).eager(x))


@pytest.mark.parametrize("dtype", [float32, float64, float16, bfloat16, int64, int8, uint8], ids=str)
def test_compiled_positions_along_columns_are_those_of_numpy(dtype: DType, rng: np.random.Generator) -> None:
    for shape, axis in (((40, 33), 0), ((3, 7, 16), 1), ((2, 2, 5, 4), 1)):
        x = _ties(rng, shape, dtype)
        (found,) = compile(_seeking(Argmax((axis,)), shape, dtype)).executable.run([x])
        np.testing.assert_array_equal(found, Argmax((axis,)).eager(x))


def test_rows_and_narrow_columns_keep_their_op() -> None:
    for shape, axis in (((5, 7), 1), ((5, 1), 0), ((6,), 0)):
        graph = _seeking(Argmax((axis,)), shape, float32)
        assert find_column_positions(graph, MACHINE) is graph
