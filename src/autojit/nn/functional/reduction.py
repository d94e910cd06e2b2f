"""How a loss is reduced, with torch's old and new spelling."""

from __future__ import annotations

import autojit as aj
from autojit.core.device_array import is_concrete
from autojit.core.errors import ArgumentError
from autojit.core.user_warnings import warn
from autojit.dispatch.kernels import LARGE, in_one_pass, in_one_step
from autojit.tensor import Tensor
from autojit.tensor.state import computes_at_once

COMMON = "fd"
"""NumPy's letters for float32 and float64, in which composed ops (``ops.composed``) compute."""


def resolve_reduction(size_average: bool | None, reduce: bool | None, reduction: str) -> str:
    """The reduction meant by the deprecated ``size_average`` and ``reduce``, else ``reduction`` itself."""
    if size_average is None and reduce is None:
        return reduction
    if reduce is False:
        found = "none"
    else:
        found = "sum" if size_average is False else "mean"
    warn(f"size_average and reduce args will be deprecated, please use reduction='{found}' instead.")
    return found


def legacy_get_string(size_average: bool | None, reduce: bool | None, emit_warning: bool = True) -> str:
    """``nn._reduction.legacy_get_string``, which libraries' losses call."""
    if emit_warning:
        return resolve_reduction(size_average, reduce, "mean")
    return "none" if reduce is False else "sum" if size_average is False else "mean"


def get_enum(reduction: str) -> int:
    """``nn._reduction.get_enum``: 0, 1 and 2 for none, mean and sum."""
    return ("none", "mean", "sum").index(known(reduction))


def known(reduction: str) -> str:
    """The reduction itself; ValueError for one that there is not."""
    if reduction not in ("none", "mean", "sum"):
        raise ArgumentError(f"{reduction} is not a valid value for reduction")
    return reduction


def reduce_loss(loss: Tensor, reduction: str) -> Tensor:
    """The loss itself, its mean or its sum; ValueError for any other reduction."""
    if reduction == "mean":
        return loss.mean()
    if reduction == "sum":
        return loss.sum()
    known(reduction)
    return loss


def promoted(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Both in the dtype that their sum would have."""
    if x.dtype is y.dtype:
        return x, y
    common = aj.result_type(x, y)
    return x.to(common), y.to(common)


def reduced_in_one_step(
    name: str, options: tuple[object, ...], x: Tensor, y: Tensor, reduction: str, *, node: str
) -> Tensor:
    """The losses that the composite ``name`` of ``ops.fused`` gives, reduced: one node where the arrays are large."""
    x, y = promoted(x, y)
    if reduction == "none" or x.shape != y.shape or x.numel() < LARGE:
        return reduce_loss(in_one_pass(name, options, x, y, node=node), reduction)
    return in_one_step("pointwise_losses", (name, options, known(reduction)), x, y, node=node)


def at_hand(input: Tensor, target: Tensor) -> bool:
    """Whether a composed op can compute the loss at once: concrete elements, not none, of one common type."""
    x, y = input._array, target._array
    return (
        computes_at_once()
        and is_concrete(x)
        and type(y) is type(x)
        and x.dtype is y.dtype
        and x.dtype.char in COMMON
        and x.shape == y.shape
        and x.size != 0
    )
