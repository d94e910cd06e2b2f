"""Convolutions by minimal filtering: exact forms, bounded errors, infinities as in plain sums, equal on machines."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import autojit.ops  # noqa: F401
from autojit.backend import compiling_by, cpu_backend
from autojit.codegen.cpu.convolutions import kernel
from autojit.codegen.cpu.convolutions.filtered_plan import is_worth_filtering, window_of
from autojit.codegen.cpu.convolutions.minimal_filtering import MOST_TAPS, filtering, transposed
from autojit.codegen.module_text import WALKED
from autojit.codegen.target import host_target
from autojit.compiler import compile
from autojit.core.dtypes import DType, bfloat16, float32, float64
from autojit.core.sizes import named_size
from autojit.core.types import TensorType
from autojit.ir import Graph, GraphBuilder
from autojit.ops.convolution import Convolution, ConvolutionInput, ConvolutionWeight

Array = NDArray[Any]

# batch, channels, image, outputs, kernel, padding, groups
SHAPES: dict[str, tuple[Any, ...]] = {
    "places left over": (3, 20, (7, 9), 37, (3, 3), (1, 1), 1),
    "groups under other kernels": (2, 12, (9, 6), 21, (5, 2), (4, 3), 3),
    "blocks and bands": (1, 70, (30, 40), 70, (3, 3), (0, 2), 1),
    "whole tiles": (2, 16, (8, 8), 32, (3, 3), (1, 1), 1),
    "one tile an image": (40, 3, (4, 4), 4, (3, 3), (1, 1), 1),
    "a kernel of one row": (2, 7, (5, 20), 6, (1, 3), (0, 1), 1),
    "signals": (3, 8, (50,), 6, (4,), (1,), 1),
}
QUICK = 3
"""So many of them run always: a program takes half a second to compile."""

shapes = pytest.mark.parametrize(
    "shape", [name if k < QUICK else pytest.param(name, marks=pytest.mark.slow) for k, name in enumerate(SHAPES)]
)


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Filtering wherever it can be, however small."""
    monkeypatch.setattr(kernel, "is_worth_filtering", lambda window, by_weight: window is not None)
    yield


def program(case: tuple[Any, ...], batch: int | None = None, operand: DType = float32) -> Graph:
    """A convolution and its two derivatives, with results of float32."""
    images, channels, image, outputs, taps, padding, groups = case
    n = images if batch is None else batch
    places = tuple(e + 2 * p - k + 1 for e, p, k in zip(image, padding, taps, strict=True))
    ones = (1,) * len(image)
    builder = GraphBuilder()
    shapes = ((n, channels, *image), (outputs, channels // groups, *taps), (n, outputs, *places))
    x, w, y = (builder.input(TensorType(shape, operand)) for shape in shapes)
    given = ones, padding, ones, groups, None if operand is float32 else float32
    made = (
        *builder.apply(Convolution(places, *given), [x, w]),
        *builder.apply(ConvolutionInput(image, *given), [y, w]),
        *builder.apply(ConvolutionWeight(taps, *given), [x, y]),
    )
    return builder.finish(made)


def innermost_loops(text: str) -> list[str]:
    """What the innermost loops of a kernel and what combines its parts consist of."""
    functions = [f for f in text.split("\ndefine ") if f.startswith("void @kernel")]
    found = []
    for lines in (function.split("\n") for function in functions):
        heads = {line[:-1]: k for k, line in enumerate(lines) if line.startswith("loop.head")}
        for k, line in enumerate(lines):
            start = heads.get(line.split("%")[-1].split(",")[0]) if line.startswith("  br label %loop.head") else None
            if start is not None and start < k:
                inside = lines[start + 1 : k]
                found += [] if any(line.startswith("loop.head") for line in inside) else ["\n".join(inside)]
    return found


@pytest.mark.parametrize("shape", SHAPES)
def test_no_loop_of_a_kernel_that_walks_works_itself(shape: str, always: None) -> None:
    """What calls functions and does nothing else is compiled as it stands."""
    walked = 0
    for node in program(SHAPES[shape]).nodes:
        text = kernel.print_convolution(node, host_target()).text
        if text.startswith(WALKED):
            loops = innermost_loops(text)
            assert loops and all(" call void @" in loop for loop in loops)
            walked += 1
    assert walked


def draw(graph: Graph, rng: Any, images: int = 0) -> list[Array]:
    shapes = [value.type.shape for value in graph.inputs]
    if images:
        shapes = [(images, *shapes[0][1:]), shapes[1], (images, *shapes[2][1:])]
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def plain(graph: Graph, arrays: list[Array]) -> list[Array]:
    """The three results in double precision."""
    x, w, y = (a.astype(np.float64) for a in arrays)
    pairs = ((x, w), (y, w), (x, y))
    return [node.op.eager(*pair) for node, pair in zip(graph.nodes, pairs, strict=True)]


@pytest.mark.parametrize("taps", range(1, MOST_TAPS + 1))
def test_forms_are_exact(taps: int) -> None:
    """In fractions there is no error: places, and the derivative by the weight by the transposed matrices."""
    form, choose = filtering(taps), random.Random(taps)

    def times(matrix: Any, vector: list[Fraction]) -> list[Fraction]:
        return [sum((a * b for a, b in zip(row, vector, strict=True)), Fraction(0)) for row in matrix]

    d, w, y = ([Fraction(choose.randint(-9, 9)) for _ in range(n)] for n in (form.points, taps, form.places))
    seen = times(form.data, d)
    products = [a * b for a, b in zip(seen, times(form.weight, w), strict=True)]
    assert times(form.result, products) == [sum(w[k] * d[j + k] for k in range(taps)) for j in range(form.places)]
    products = [a * b for a, b in zip(seen, times(transposed(form.result), y), strict=True)]
    by_weight = [sum(y[j] * d[j + k] for j in range(form.places)) for k in range(taps)]
    assert times(transposed(form.weight), products) == by_weight


@shapes
def test_errors_are_rounding(shape: str, always: None, rng: Any) -> None:
    """Of the order of what the products' magnitudes add up to, for all three convolutions."""
    graph = program(SHAPES[shape])
    arrays = draw(graph, rng)
    found, expected = compile(graph).executable.run(arrays), plain(graph, arrays)
    scales = plain(graph, [np.abs(a) for a in arrays])
    for one, other, scale in zip(found, expected, scales, strict=True):
        np.testing.assert_array_less(np.abs(one - other), 60 * np.finfo(np.float32).eps * (scale.max() + 1))


@shapes
@pytest.mark.parametrize("special", [np.inf, -np.inf, np.nan, 3e38])
def test_what_is_not_finite_stays_where_it_is(shape: str, special: float, always: None, rng: Any) -> None:
    graph = program(SHAPES[shape])
    x, w, y = draw(graph, rng)
    for array in (x, y):
        array.reshape(-1)[array.size // 3] = special
    with np.errstate(all="ignore"):
        found, expected = compile(graph).executable.run([x, w, y]), plain(graph, [x, w, y])
        for one, other in zip(found[:2], expected[:2], strict=True):
            rounded = other.astype(np.float32)
            np.testing.assert_array_equal(np.isnan(one), np.isnan(rounded))
            np.testing.assert_array_equal(np.isinf(one), np.isinf(rounded))
            np.testing.assert_allclose(one, rounded, rtol=1e-5, atol=1e-4 * np.nanmedian(np.abs(rounded)))


@pytest.mark.parametrize(
    ("shape", "vector_bytes"),
    [
        pytest.param(name, n, marks=[pytest.mark.slow] * ((k, n) != (1, 32)))
        for k, name in enumerate(SHAPES)
        for n in (16, 32)
    ],
)
def test_every_size_of_registers_gives_the_same(shape: str, vector_bytes: int, always: None, rng: Any) -> None:
    graph = program(SHAPES[shape])
    arrays = draw(graph, rng)
    narrow = host_target().limited_to(vector_bytes)
    with compiling_by(replace(cpu_backend(), target=lambda: narrow)):
        found = compile(graph).executable.run(arrays)
    for one, other in zip(compile(graph).executable.run(arrays), found, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("special", [1.0, np.inf], ids=str)
def test_bfloat16_is_filtered_as_what_it_is_in_float32(special: float, always: None, rng: Any) -> None:
    shape = SHAPES["groups under other kernels"]
    arrays = [a.astype(bfloat16.numpy) for a in draw(program(shape), rng)]
    arrays[0][1, 2, 3, 4] = special
    found = compile(program(shape, operand=bfloat16)).executable.run(arrays)
    expected = compile(program(shape)).executable.run([a.astype(np.float32) for a in arrays])
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_one_kernel_serves_every_batch(always: None, rng: Any) -> None:
    case = SHAPES["places left over"]
    executable = compile(program(case, named_size("s0", 6))).executable
    for images in (1, 4, 5, 17):
        graph = program(case, images)
        arrays = draw(graph, rng)
        for one, other in zip(executable.run(arrays), plain(graph, arrays), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4 * np.abs(other).max())


def test_weights_of_parts_are_added(rng: Any) -> None:
    """Enough tiles that the derivative by the weight is cut into parts, each with weights of its own."""
    graph = program((16, 16, (28, 28), 16, (3, 3), (1, 1), 1))
    compiled = compile(graph)
    assert any(getattr(entry, "symbol", "") == "kernel_combine" for entry in compiled.lowered.entries)
    arrays = draw(graph, rng)
    found, expected = compiled.executable.run(arrays), plain(graph, arrays)
    np.testing.assert_allclose(found[2], expected[2], rtol=1e-3, atol=1e-4 * np.abs(expected[2]).max())


def test_what_filtering_is_for() -> None:
    """Products of many channels, in float32, without strides: shapes decide, and nothing of the machine."""

    def chosen(x: Any, w: Any, stride: int = 1, dtype: Any = float32) -> bool:
        builder = GraphBuilder()
        operands = [builder.input(TensorType(shape, dtype)) for shape in (x, w)]
        places = tuple((n + 2 - k) // stride + 1 for n, k in zip(x[2:], w[2:], strict=True))
        both = (1,) * len(places)
        made = builder.apply(Convolution(places, (stride,) * len(places), both, both, 1), operands)
        window = window_of(builder.finish(made).nodes[0])
        return window is not None and is_worth_filtering(window, by_weight=False)

    assert chosen((16, 64, 16, 16), (64, 64, 3, 3))
    assert chosen((4, 256, 14, 14), (256, 256, 3, 3))
    assert chosen((4, 64, 16000), (64, 64, 3))
    assert not chosen((16, 64, 16, 16), (64, 64, 3, 3), stride=2)
    assert not chosen((16, 64, 16, 16), (64, 64, 1, 1))
    assert not chosen((16, 64, 16, 16), (64, 64, 3, 3), dtype=float64)
    assert not chosen((16, 3, 32, 32), (8, 3, 3, 3))
    assert not chosen((1, 512, 4, 4), (512, 512, 3, 3))
