"""Composites with reductions that are one function to the user, in the forms that eager mode computes by one kernel:
their operands are tensors, everything else are options. ``fused_arrays.py`` makes ops of them.
"""

from __future__ import annotations

from typing import Any

from autojit.ir.op import Operand
from autojit.ops.composites_normalization import standardize
from autojit.ops.composites_reduction import mean
from autojit.ops.elementwise_arithmetic import add, mul, square
from autojit.ops.elementwise_exponential import rsqrt

__all__ = ["normalized", "rms_normalized"]


def _affine(x: Operand, has_weight: bool, has_bias: bool, affine: tuple[Any, ...]) -> Any:
    y = mul(x, affine[0]) if has_weight else x
    return add(y, affine[-1]) if has_bias else y


def normalized(x: Operand, *rest: Any) -> Any:
    """``standardize`` over axes, then scaled and shifted by operands that broadcast.

    ``rest``: the weight and the bias, where they are there; the axes, epsilon, whether they are there.
    """
    *affine, axes, eps, has_weight, has_bias = rest
    return _affine(standardize(x, axes, eps), has_weight, has_bias, tuple(affine))


def rms_normalized(x: Operand, *rest: Any) -> Any:
    """``x / sqrt(mean(x**2) + eps)`` over axes, then scaled; ``rest`` as of ``normalized``, without a bias."""
    *affine, axes, eps, has_weight = rest
    y = mul(x, rsqrt(add(mean(square(x), axes, keep=True), eps)))
    return _affine(y, has_weight, False, tuple(affine))
