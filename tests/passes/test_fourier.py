"""Transforms of any size, made of those that a machine has kernels for: results stay, and every part has a kernel."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autojit.core.dtypes import dtype_of_numpy
from autojit.core.machine import Transforms
from autojit.core.types import TensorType
from autojit.ir import Graph, GraphBuilder, evaluate, parse_graph, verify
from autojit.ir.op import Op
from autojit.ops.fourier import Fft, Irfft, Rfft
from autojit.passes.dead_code import eliminate_dead_code
from autojit.passes.expand import expand
from tests.codegen.agreement import disagreement
from tests.on_cpu import CPU_MACHINE

SMALL = replace(
    CPU_MACHINE, transforms=Transforms(16, largest_prime=5, least_lines=2, least_points=8, least_neighbours=3)
)
"""Long lines begin at 17 points, few are one, and 7 is a large prime factor."""

SIZES = (1, 2, 3, 5, 7, 8, 11, 12, 14, 16, 18, 24, 49, 64, 97, 120, 360)
NORMS = ("backward", "forward", "ortho")


def along(op: Op, x: np.ndarray) -> Graph:
    builder = GraphBuilder()
    return verify(builder.finish(builder.apply(op, [builder.input(TensorType(x.shape, dtype_of_numpy(x.dtype)))])))


def check(op: Op, x: np.ndarray) -> None:
    graph = along(op, x)
    changed = verify(eliminate_dead_code(expand(graph, SMALL)))
    for node in changed.nodes:
        if isinstance(node.op, Fft | Rfft | Irfft):
            (axis,) = node.op.axes if isinstance(node.op, Fft) else (node.op.axis,)
            points = max(v.type.shape[axis] for v in (*node.inputs, *node.outputs))
            points = points // 2 if points % 2 == 0 and not isinstance(node.op, Fft) else points
            assert points <= 17, "a kernel of many points"
    (found,), (expected,) = evaluate(changed, [x]), evaluate(graph, [x])
    assert not disagreement(found, expected, 64.0), f"{op} of {x.shape}"


@pytest.mark.parametrize("points", SIZES)
def test_lines_of_any_size_are_made_of_small_ones(points: int) -> None:
    draws = np.random.default_rng(points)
    for k, shape in enumerate(((points,), (3, points), (2, points, 3), (points, 1, 2))):
        axis = shape.index(points) - len(shape)
        half = tuple(n // 2 + 1 if a == shape.index(points) else n for a, n in enumerate(shape))
        x, h = (draws.standard_normal(s) + 1j * draws.standard_normal(s) for s in (shape, half))
        norm = NORMS[k % 3]
        check(Fft((axis,), False, norm), x)
        check(Fft((axis,), True, norm), x)
        check(Rfft(axis, norm), x.real.copy())
        check(Irfft(points, axis, norm), h)


def test_axes_are_transformed_one_after_the_other() -> None:
    draws = np.random.default_rng(0)
    x = draws.standard_normal((4, 7, 18)) + 1j * draws.standard_normal((4, 7, 18))
    for norm in NORMS:
        check(Fft((-3, -2, -1), False, norm), x)
        check(Fft((-3, -1), True, norm), x)


def test_lines_may_be_open_and_points_that_are_stay_one_op() -> None:
    for shape, axis in (("s0, 12, s0", -2), ("3, s0", -1)):
        op = f"fft[axes=({axis},), is_inverse=False, norm='backward']"
        graph = parse_graph(f"(x: c64[{shape}]) {{ y: c64[{shape}] = {op}(x); return y }}")
        changed = eliminate_dead_code(expand(graph, SMALL))
        assert sum(isinstance(node.op, Fft) for node in changed.nodes) == 1


def test_without_kernels_transforms_are_left_alone() -> None:
    x = np.zeros((3, 97), np.complex64)
    graph = along(Fft((-1,), False, "backward"), x)
    assert [n.op.name for n in expand(graph, replace(CPU_MACHINE, transforms=None)).nodes] == ["fft"]
