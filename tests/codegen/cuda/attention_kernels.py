"""Attention for tests: operands drawn by shape, and what kernels make of them on the emulated device."""

from __future__ import annotations

from typing import Any

import numpy as np

from autojit.codegen.cuda.attention import print_attention
from autojit.codegen.cuda.machine import CUDA_MACHINE
from autojit.codegen.cuda.target import CudaTarget
from autojit.codegen.grid_text import GridText
from autojit.core.dtypes import DType, float32
from autojit.ops.attention import Attending, Attention, AttentionAdjoint
from autojit.passes.pipeline import optimize
from autojit.schedule.kernels import StructuredKernel
from autojit.schedule.scheduler import schedule
from tests.codegen.cuda.emulated import TARGET, run_grid
from tests.ops.laws import graph_of

Array = np.ndarray[Any, Any]


def kernel_of(op: Attending, operands: list[Array]) -> StructuredKernel:
    """How the op is scheduled for a GPU; its operands are contiguous."""
    plan = schedule(optimize(graph_of(op, operands), CUDA_MACHINE), CUDA_MACHINE)
    (kernel,) = (k for k in plan.kernels if isinstance(k, StructuredKernel))
    return kernel


def text_of(op: Attending, operands: list[Array], architecture: str = TARGET.cpu) -> GridText:
    """Its kernels."""
    return print_attention(kernel_of(op, operands), CudaTarget(architecture, TARGET.processors))


def computed(
    op: Attending, operands: list[Array], *, order: int | None = None, architecture: str = TARGET.cpu
) -> list[Array]:
    """What the emulated device makes of operands, which it checks every access to; nothing is reported."""
    arrays = [np.ascontiguousarray(x) for x in operands]
    results = [np.empty(np.shape(y), np.asarray(y).dtype) for y in op.eager(*operands)]
    text = text_of(op, arrays, architecture)
    found, words = run_grid(text, [*arrays, *results], order=order, architecture=architecture)
    assert words.tolist() == [0, 0]
    return found[len(arrays) :]


def drawn(
    generator: np.random.Generator, extents: tuple[int, int, int, int], batch: tuple[int, ...], dtype: DType
) -> list[Array]:
    """Queries, keys and values of (queries, keys, elements of a key, elements of a value)."""
    queries, keys, key_width, value_width = extents
    shapes = (queries, key_width), (keys, key_width), (keys, value_width)
    return [generator.normal(size=(*batch, *shape)).astype(dtype.numpy) for shape in shapes]


def mask_for(generator: np.random.Generator, operands: list[Array], kind: str) -> Array:
    """A mask, bool or added, which removes all keys of a query."""
    q, k, _ = operands
    shape = (*q.shape[:-1], k.shape[-2])
    keep = generator.random(shape) < 0.6
    keep[..., q.shape[-2] // 2, :] = False
    if kind == "bool":
        return keep
    return np.where(keep, generator.normal(size=shape), -np.inf).astype(float32.numpy)


def with_adjoint(
    op: Attention, operands: list[Array], generator: np.random.Generator
) -> tuple[AttentionAdjoint, list[Array]]:
    """The op's derivative, and its operands, the op's and its results among them."""
    adjoint = AttentionAdjoint(op.scale, op.is_causal, op.has_mask, op.dropped, False)
    with np.errstate(all="ignore"):
        y, lse = map(np.asarray, op.eager(*operands))
    return adjoint, [*operands, y, lse, generator.normal(size=y.shape).astype(y.dtype)]
