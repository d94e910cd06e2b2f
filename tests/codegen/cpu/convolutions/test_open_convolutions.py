"""One kernel of a convolution serves grids of all extents, and gives what NumPy gives."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from autojit.compiler import compile
from autojit.core.dtypes import DType, bfloat16, float32, float64, int8, int32
from autojit.core.errors import SpecializeSize
from autojit.core.sizes import named_size
from autojit.core.types import Shape, TensorType
from autojit.ir import GraphBuilder
from autojit.ir.concrete import concrete
from autojit.ops.convolution import Convolution, ConvolutionInput, ConvolutionWeight, Trilinear

GRIDS = (9, 10, 12, 17, 33, 40, 70)
BATCH = named_size("s9", 3)


def three_ops(choose: random.Random, axes: int) -> list[tuple[Trilinear, Shape, Shape]]:
    """A convolution with random parameters on grids of open extents, and its derivatives; types of their operands."""
    pick = choose.choice
    groups, batch = pick((1, 1, 2)), pick((1, 2, BATCH))
    inputs, outputs = groups * pick((1, 3, 8)), groups * pick((1, 4, 7, 16))
    kernel, stride, padding, dilation = (
        tuple(pick(values) for _ in range(axes)) for values in ((1, 2, 3, 5), (1, 1, 2, 3), (0, 1, 2), (1, 1, 2))
    )
    grid = tuple(pick((named_size(f"s{k}", 20), named_size(f"s{k}", 20), 16)) for k in range(axes))
    windows = zip(grid, kernel, stride, padding, dilation, strict=True)
    places = tuple((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in windows)
    x, w, y = (batch, inputs, *grid), (outputs, inputs // groups, *kernel), (batch, outputs, *places)
    given = stride, padding, dilation, groups
    return [
        (Convolution(places, *given), x, w),
        (ConvolutionInput(grid, *given), y, w),
        (ConvolutionWeight(kernel, *given), x, y),
    ]


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("dtype", [float32, float64, int32, bfloat16], ids=lambda d: d.short)
def test_kernels_serve_every_extent(axes: int, dtype: DType) -> None:
    choose, numbers = random.Random(f"{axes}{dtype.short}"), np.random.default_rng(0)
    for op, a, b in three_ops(choose, axes):
        builder = GraphBuilder()
        shown = builder.input(TensorType((BATCH, *(named_size(f"s{k}", 20) for k in range(axes))), int8))
        operands = [builder.input(TensorType(shape, dtype)) for shape in (a, b)]
        executable = compile(builder.finish(builder.apply(op, operands))).executable
        for _ in range(4):
            values = {f"s{k}": choose.choice(GRIDS if axes < 3 else GRIDS[:3]) for k in range(axes)} | {"s9": 2}
            arrays = [np.asarray(numbers.integers(-3, 4, concrete(s, values)), dtype.numpy) for s in (a, b)]
            (found,) = executable.run([np.zeros(concrete(shown.type.shape, values), np.int8), *arrays])
            np.testing.assert_array_equal(found, concrete(op, values).eager(*arrays), err_msg=f"{op} {values}")


def test_a_grid_is_cut_into_bands() -> None:
    builder = GraphBuilder()
    height, width = named_size("s0", 20), named_size("s1", 20)
    x = builder.input(TensorType((1, 16, height, width), float32))
    w = builder.input(TensorType((5, 16, 3, 3), float32))
    op = Convolution((height, width), (1, 1), (1, 1), (1, 1), 1)
    executable = compile(builder.finish(builder.apply(op, [x, w]))).executable
    numbers = np.random.default_rng(0)
    for shape in ((150, 90), (20, 400), (2, 2), (40, 40)):
        arrays = [np.asarray(numbers.integers(-3, 4, s), np.float32) for s in ((1, 16, *shape), (5, 16, 3, 3))]
        expected = concrete(op, dict(zip(("s0", "s1"), shape, strict=True))).eager(*arrays)
        np.testing.assert_array_equal(executable.run(arrays)[0], expected)


def test_channels_are_not_open() -> None:
    builder = GraphBuilder()
    channels = named_size("s0", 4)
    x = builder.input(TensorType((2, channels, 8), float32))
    w = builder.input(TensorType((5, channels, 3), float32))
    made: Any = builder.apply(Convolution((8,), (1,), (1,), (1,), 1), [x, w])
    with pytest.raises(SpecializeSize, match="only its batch and its grids"):
        compile(builder.finish(made))
