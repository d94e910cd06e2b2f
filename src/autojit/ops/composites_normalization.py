"""Normalisation over axes: layer, group, batch and root-mean-square norm are calls of these."""

from __future__ import annotations

from autojit.ir.op import O
from autojit.ops.base import Axes
from autojit.ops.composites_reduction import mean, var_mean
from autojit.ops.elementwise_arithmetic import add, mul, square, sub
from autojit.ops.elementwise_exponential import rsqrt

__all__ = ["layer_norm", "rms_norm", "standardize"]


def standardize(x: O, axes: Axes, eps: float = 1e-5) -> O:
    """``(x - mean) / sqrt(variance + eps)`` over axes, with the biased variance.

    The adjoint's two reductions do not depend on each other, so one sweep over the row serves both.
    """
    variance, middle = var_mean(x, axes, correction=0, keep=True)
    return mul(sub(x, middle), rsqrt(add(variance, eps)))


def layer_norm(x: O, n_axes: int = 1, weight: O | None = None, bias: O | None = None, eps: float = 1e-5) -> O:
    """Standardised over the last ``n_axes`` axes, then scaled and shifted by operands of those axes' shape."""
    y = standardize(x, tuple(range(x.spec.ndim - n_axes, x.spec.ndim)), eps)
    y = y if weight is None else mul(y, weight)
    return y if bias is None else add(y, bias)


def rms_norm(x: O, n_axes: int = 1, weight: O | None = None, eps: float = 1e-6) -> O:
    """``x / sqrt(mean(x**2) + eps)`` over the last ``n_axes`` axes, then scaled."""
    axes = tuple(range(x.spec.ndim - n_axes, x.spec.ndim))
    y = mul(x, rsqrt(add(mean(square(x), axes, keep=True), eps)))
    return y if weight is None else mul(y, weight)
