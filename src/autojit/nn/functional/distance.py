"""Norms, distances and similarities along an axis."""

from __future__ import annotations

import autojit as aj
from autojit.core.errors import DTypeError, ShapeError
from autojit.core.sizes import surely_equal
from autojit.core.top_level import top_level
from autojit.dispatch.composite_nodes import as_float
from autojit.dispatch.kernels import in_one_step
from autojit.functions.autocast import in_full_precision_on_devices
from autojit.functions.refused_dtypes import refuses
from autojit.nn.functional.reduction import promoted
from autojit.ops.base import normalize_axis
from autojit.tensor import Tensor
from autojit.tensor.tensor import type_of

__all__ = ["cosine_similarity", "normalize", "pairwise_distance", "pdist"]


def _p_norm(x: Tensor, p: float, dim: int, keepdim: bool) -> Tensor:
    return aj.norm(x, p, dim, keepdim)


@in_full_precision_on_devices
def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: Tensor | None = None) -> Tensor:
    """x / max(|x|_p, eps) along ``dim``."""
    axis = normalize_axis(dim, input.ndim, "normalize") if type(dim) is int else -1
    if axis >= 0 and input.dtype in (aj.float32, aj.float64):
        found: Tensor = in_one_step("unit_vectors", (float(p), axis, eps), input, node="DivBackward0")
    else:
        found = input / _p_norm(input, p, dim, True).clamp(min=eps).expand_as(input)
    return found if out is None else out.copy_(found)


@top_level
@refuses("complex")
@in_full_precision_on_devices
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """x1 . x2 / (max(|x1|, eps) max(|x2|, eps)) along ``dim`` of the broadcast inputs."""
    are_alike = surely_equal(type_of(x1).shape, type_of(x2).shape)
    left, right = promoted(*(x1, x2) if are_alike else aj.broadcast_tensors(x1, x2))
    if not left.is_floating_point():
        raise DTypeError(
            f"cosine_similarity: expected common dtype to be floating point, yet common dtype is {left.dtype}",
            {"x1": x1, "x2": x2},
            "convert an operand: x1.float()",
        )
    axis = normalize_axis(dim, left.ndim, "cosine_similarity") if type(dim) is int and left.ndim else -1
    if axis >= 0 and left.dtype in (aj.float32, aj.float64):
        found: Tensor = in_one_step("cosines", (axis, as_float(eps)), left, right, node="SumBackward1")
        return found
    left_norm = _p_norm(left, 2.0, dim, True).clamp(min=eps)
    right_norm = _p_norm(right, 2.0, dim, True).clamp(min=eps)
    return ((left / left_norm) * (right / right_norm)).sum(dim)


@top_level
def pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Tensor:
    """|x1 - x2 + eps|_p along the last axis."""
    return _p_norm(x1 - x2 + eps, p, -1, keepdim)


@refuses("complex")
@in_full_precision_on_devices
def pdist(input: Tensor, p: float = 2) -> Tensor:
    """Distances between all pairs of rows, the upper triangle without its diagonal row by row."""
    if input.ndim != 2:
        raise ShapeError(f"pdist only supports 2D tensors, got: {input.ndim}D")
    rows, columns = aj.triu_indices(input.shape[0], input.shape[0], 1, device=input.device)
    return _p_norm(input[rows] - input[columns], p, -1, False)
