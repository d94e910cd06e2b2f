"""Native kernels of convolutions: every shape of loop they have, all dtypes, no call-backs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import autojit.ops  # noqa: F401
from autojit.backend import compiling_by, cpu_backend
from autojit.codegen.target import host_target
from autojit.compiler import compile
from autojit.ir import Graph, parse_graph
from tests.codegen.agreement import check_compiled
from tests.covering import covering

# (x, w, y, stride, padding, dilation, groups)
SHAPES: dict[str, tuple[Any, ...]] = {
    "rows of whole vectors": ([3, 5, 9, 16], [13, 5, 3, 3], [3, 13, 9, 16], (1, 1), (1, 1), (1, 1), 1),
    "runs over rows": ([2, 4, 7, 7], [9, 4, 3, 3], [2, 9, 7, 7], (1, 1), (1, 1), (1, 1), 1),
    "bands": ([1, 40, 64, 50], [3, 40, 3, 3], [1, 3, 64, 50], (1, 1), (1, 1), (1, 1), 1),
    "overlapping bands of a line": ([1, 6, 20011], [2, 6, 5], [1, 2, 20003], (1,), (0,), (2,), 1),
    "phases": ([2, 3, 19, 23], [7, 3, 3, 3], [2, 7, 10, 8], (2, 3), (1, 1), (1, 1), 1),
    "more phases than taps": ([1, 2, 17, 17], [2, 2, 2, 2], [1, 2, 4, 4], (5, 5), (0, 0), (1, 1), 1),
    "a table of taps": ([2, 2, 12, 12], [3, 2, 7, 6], [2, 3, 6, 7], (1, 1), (0, 0), (1, 1), 1),
    "a table and phases": ([1, 2, 40, 40], [3, 2, 11, 11], [1, 3, 9, 9], (4, 4), (2, 2), (1, 1), 1),
    "dilation against the stride": ([1, 2, 15, 15], [2, 2, 3, 3], [1, 2, 6, 6], (2, 2), (1, 1), (3, 3), 1),
    "groups": ([2, 6, 8, 8], [9, 2, 3, 3], [2, 9, 8, 8], (1, 1), (1, 1), (1, 1), 3),
    "single channels": ([2, 8, 10, 24], [8, 1, 3, 3], [2, 8, 10, 24], (1, 1), (1, 1), (1, 1), 8),
    "one place": ([2, 4, 3, 3], [5, 4, 3, 3], [2, 5, 1, 1], (1, 1), (0, 0), (1, 1), 1),
    "image smaller than its padding": ([1, 2, 2, 2], [3, 2, 3, 3], [1, 3, 2, 2], (3, 3), (2, 2), (1, 1), 1),
    "what the last window leaves": ([1, 2, 10, 11], [3, 2, 3, 3], [1, 3, 3, 3], (3, 3), (0, 0), (1, 1), 1),
    "taps that see zeros": ([3, 4, 12, 12], [5, 4, 5, 5], [3, 5, 8, 8], (1, 1), (0, 0), (1, 1), 1),
    "taps that see zeros in bands": ([1, 40, 8, 300], [60, 40, 5, 3], [1, 60, 4, 298], (1, 1), (0, 0), (1, 1), 1),
    "rows that see nothing": ([1, 2, 3, 20], [3, 2, 3, 3], [1, 3, 15, 20], (1, 1), (7, 1), (1, 1), 1),
    "phases that see zeros": ([2, 3, 9, 20], [4, 3, 5, 5], [2, 4, 3, 8], (2, 2), (0, 0), (1, 1), 1),
    "volumes": ([2, 3, 5, 6, 8], [4, 3, 2, 3, 3], [2, 4, 4, 6, 8], (1, 1, 1), (0, 1, 1), (1, 1, 1), 1),
    "volumes in phases": ([1, 2, 6, 7, 9], [3, 2, 3, 2, 3], [1, 3, 3, 4, 9], (2, 2, 1), (1, 1, 1), (1, 1, 1), 1),
    "an image per column of the kernel": ([3, 16, 7, 28], [24, 16, 5, 5], [3, 24, 7, 28], (1, 1), (2, 2), (1, 1), 1),
    "columns of the kernel apart": ([2, 9, 9, 29], [20, 9, 3, 4], [2, 20, 3, 11], (3, 2), (1, 1), (2, 3), 1),
    "images per column in bands": ([1, 96, 30, 28], [40, 96, 3, 3], [1, 40, 30, 28], (1, 1), (1, 1), (1, 1), 1),
    "a few stretches of places": (
        [2, 5, 4, 6, 7],
        [13, 5, 3, 3, 3],
        [2, 13, 4, 6, 7],
        (1, 1, 1),
        (1, 1, 1),
        (1, 1, 1),
        1,
    ),
    "a long line in bands": ([1, 24, 6007], [16, 24, 9], [1, 16, 5999], (1,), (0,), (1,), 1),
    "many lines of taps": ([1, 3, 30, 30], [16, 3, 11, 11], [1, 16, 20, 20], (1, 1), (0, 0), (1, 1), 1),
    "rounds of images": ([40, 3, 24, 24], [8, 3, 3, 3], [40, 8, 24, 24], (1, 1), (1, 1), (1, 1), 1),
    "rounds of images in copies": ([30, 2, 23, 21], [8, 2, 3, 5], [30, 8, 21, 17], (1, 1), (0, 0), (1, 1), 1),
    "columns of outputs": ([9, 7, 11, 13], [37, 7, 3, 3], [9, 37, 6, 7], (2, 2), (1, 1), (1, 1), 1),
    "columns of outputs of a volume": (
        [2, 6, 5, 6, 8],
        [40, 3, 2, 3, 3],
        [2, 40, 4, 6, 8],
        (1, 1, 1),
        (0, 1, 1),
        (1, 1, 1),
        2,
    ),
    "large weights in phases": ([3, 90, 7, 6], [170, 90, 3, 3], [3, 170, 4, 3], (2, 2), (1, 1), (1, 1), 1),
    "no images": ([0, 2, 6], [3, 2, 3], [0, 3, 4], (1,), (0,), (1,), 1),
    "no inputs": ([2, 0, 6], [3, 0, 3], [2, 3, 4], (1,), (0,), (1,), 1),
}


@covering("shape, dtype", SHAPES, ["f32", "f64"], every=2)
def test_all_three_convolutions_are_native(shape: str, dtype: str, rng: Any) -> None:
    check(SHAPES[shape], dtype, rng)


@covering("shape", SHAPES, every=2)
def test_every_size_of_registers_gives_the_same(shape: str, rng: Any) -> None:
    """Tiles are cut for a machine; an element is the same sum in all of them."""
    graph, arrays = program(SHAPES[shape], "f32", rng)
    found = [compile(graph).executable.run(arrays)]
    for vector_bytes in (32, 16):
        narrow = host_target().limited_to(vector_bytes)
        with compiling_by(replace(cpu_backend(), target=lambda narrow=narrow: narrow)):
            found.append(compile(graph).executable.run(arrays))
    for others in found[1:]:
        for one, other in zip(found[0], others, strict=True):
            np.testing.assert_array_equal(one, other)


@covering("shape", SHAPES, every=8)
def test_bfloat16_takes_pairs_of_channels_and_of_places(shape: str, rng: Any) -> None:
    check(SHAPES[shape], "bf16", rng)


@pytest.mark.parametrize("dtype", ["f16", "i64", "i32", "i8", "u8"])
def test_every_dtype_is_native(dtype: str, rng: Any) -> None:
    check(SHAPES["phases"], dtype, rng)
    check(SHAPES["rows of whole vectors"], dtype, rng)


def check(case: tuple[Any, ...], dtype: str, rng: Any) -> None:
    graph, arrays = program(case, dtype, rng)
    compiled = check_compiled(graph, arrays, 64)
    assert compiled.lowered.fallbacks == ()


def program(case: tuple[Any, ...], dtype: str, rng: Any) -> tuple[Graph, list[Any]]:
    """A convolution and its two derivatives, and operands."""
    x, w, y, stride, padding, dilation, groups = case
    rest = f"stride={stride}, padding={padding}, dilation={dilation}, groups={groups}"
    graph = parse_graph(
        f"(x: {dtype}{x}, w: {dtype}{w}, y: {dtype}{y}) {{"
        f" a: {dtype}{y} = convolution[extents={extents(y)}, {rest}](x, w);"
        f" b: {dtype}{x} = convolution_input[extents={extents(x)}, {rest}](y, w);"
        f" c: {dtype}{w} = convolution_weight[extents={extents(w)}, {rest}](x, y);"
        " return a, b, c }"
    )
    kind = graph.inputs[0].type.dtype.numpy
    whole = np.dtype(kind).kind in "iu"
    arrays = [rng.integers(0, 5, s).astype(kind) if whole else rng.standard_normal(s).astype(kind) for s in (x, w, y)]
    return graph, arrays


def extents(shape: list[int]) -> str:
    return str(tuple(shape[2:]))
