"""Kernels of Fourier transforms: every radix and direction, real and complex, any axis, on every width of register."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from autojit.backend import compiling_by, cpu_backend
from autojit.codegen.cpu.structured.fourier_stages import LARGEST_RADIX, radices_of, unit_root
from autojit.codegen.target import host_target
from autojit.compiler import compile
from autojit.ir import Graph, parse_graph
from tests.codegen.agreement import check_compiled

SHAPES = ((5, 24), (3, 26), (2, 35, 9), (19, 33))
"""Radices 4, 2, 3; 13 with an even half; 5 and 7 along a middle axis; 11 with more lines than a vector has lanes."""


def program(shape: tuple[int, ...], real: str) -> Graph:
    """Both directions, complex and real."""
    wide = {"f32": "c64", "f64": "c128"}[real]
    axis = -2 if len(shape) == 3 else -1
    half = list(shape)
    half[axis] = shape[axis] // 2 + 1
    dims, halves = list(shape), half
    return parse_graph(
        f"(x: {wide}{dims}, r: {real}{dims}, h: {wide}{halves}) {{"
        f" a: {wide}{dims} = fft[axes=({axis},), is_inverse=False, norm='backward'](x);"
        f" b: {wide}{dims} = fft[axes=({axis},), is_inverse=True, norm='ortho'](x);"
        f" c: {wide}{halves} = rfft[axis={axis}, norm='forward'](r);"
        f" d: {real}{dims} = irfft[n={shape[axis]}, axis={axis}, norm='backward'](h); return a, b, c, d }}"
    )


def operands(graph: Graph, rng: np.random.Generator) -> list[np.ndarray]:
    found = []
    for value in graph.inputs:
        x = rng.standard_normal(value.type.shape)
        x = x + 1j * rng.standard_normal(value.type.shape) if value.type.dtype.is_complex else x
        found.append(x.astype(value.type.dtype.numpy))
    return found


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("real", ["f32", "f64"])
def test_transforms_are_native(shape: tuple[int, ...], real: str, rng: Any) -> None:
    graph = program(shape, real)
    compiled = check_compiled(graph, operands(graph, rng), 32)
    assert compiled.lowered.fallbacks == ()


def test_every_size_of_registers_gives_the_same(rng: Any) -> None:
    """A line's result is the same in every lane, beside whatever lines; without fused products it is rounded more."""
    graph = program((5, 24), "f32")
    arrays = operands(graph, rng)
    for vector_bytes in (32, 16):
        narrow = host_target().limited_to(vector_bytes)
        with compiling_by(replace(cpu_backend(), target=lambda narrow=narrow: narrow)):
            check_compiled(graph, arrays, 32)
    whole = compile(graph).executable.run(arrays)
    alone = compile(program((1, 24), "f32")).executable.run([x[:1].copy() for x in arrays])
    for many, one in zip(whole, alone, strict=True):
        np.testing.assert_array_equal(many[:1], one)


def test_empty_batches_and_single_points_are_transformed(rng: Any) -> None:
    for shape in ((0, 8), (3, 1), (1, 2)):
        graph = program(shape, "f64")
        check_compiled(graph, operands(graph, rng), 32)


def test_a_number_of_points_is_the_product_of_its_radices() -> None:
    for points in range(1, 400):
        found = radices_of(points)
        large = [p for p in range(LARGEST_RADIX + 1, points + 1) if points % p == 0 and all(p % q for q in range(2, p))]
        assert (found is None) == bool(large)
        assert found is None or int(np.prod(found)) == points


def test_roots_of_unity_turn_by_the_sum_of_their_numbers() -> None:
    draws = np.random.default_rng(0)
    for order in (1, 2, 3, 7, 8, 12, 1000):
        a, b = draws.integers(-2 * order, 2 * order, (2, 200))
        turned = unit_root(a, order, 1) * unit_root(b, order, 1)
        np.testing.assert_allclose(unit_root(a + b, order, 1), turned, rtol=0, atol=1e-15)
        np.testing.assert_array_equal(unit_root(a, order, -1), np.conj(unit_root(a, order, 1)))
