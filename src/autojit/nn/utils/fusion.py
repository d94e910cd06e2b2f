"""Layers joined for evaluation: batch normalisation absorbed by the layer before it."""

from __future__ import annotations

import copy
from typing import Any, TypeVar

import autojit as aj
from autojit.nn.module import Module
from autojit.nn.parameter import Parameter
from autojit.tensor import Tensor

Layer = TypeVar("Layer", bound=Module)


def _copied(layer: Layer, bn: Any) -> Layer:
    """A copy of the layer to fuse; an error where that is not possible."""
    if layer.training or bn.training:
        raise AssertionError("Fusion only for eval!")
    if bn.running_mean is None or bn.running_var is None:
        raise AssertionError("bn.running_mean and bn.running_var must not be None")
    return copy.deepcopy(layer)


def fuse_conv_bn_eval(conv: Layer, bn: Any, transpose: bool = False) -> Layer:
    """A copy of a convolution that computes what it and ``bn`` after it compute in evaluation mode.

    Args:
        transpose: whether it is a transposed convolution.

    Raises:
        AssertionError: a layer is in training mode, or ``bn`` has no running statistics.

    Example:
        >>> import autojit as aj
        >>> from autojit import nn
        >>> conv, bn = nn.Conv1d(1, 2, 1).eval(), nn.BatchNorm1d(2).eval()
        >>> x = aj.ones(1, 1, 3)
        >>> bool(aj.allclose(nn.utils.fuse_conv_bn_eval(conv, bn)(x), bn(conv(x))))
        True
    """
    fused = _copied(conv, bn)
    fused.weight, fused.bias = fuse_conv_bn_weights(
        fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias, transpose
    )
    return fused


def fuse_conv_bn_weights(
    conv_w: Tensor,
    conv_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
    transpose: bool = False,
) -> tuple[Parameter, Parameter]:
    """Weight and bias of ``fuse_conv_bn_eval`` from those of both layers."""
    return _fused(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, 1 if transpose else 0)


def fuse_linear_bn_eval(linear: Layer, bn: Any) -> Layer:
    """A copy of a linear layer that computes what it and ``bn`` after it compute in evaluation mode.

    Raises:
        AssertionError: a layer is in training mode, their features differ, or ``bn`` has no running statistics.
    """
    fused = _copied(linear, bn)
    if fused.out_features != bn.num_features and bn.num_features != 1:
        raise AssertionError("To fuse, linear.out_features == bn.num_features or bn.num_features == 1")
    fused.weight, fused.bias = fuse_linear_bn_weights(
        fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias
    )
    return fused


def fuse_linear_bn_weights(
    linear_w: Tensor,
    linear_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
) -> tuple[Parameter, Parameter]:
    """Weight and bias of ``fuse_linear_bn_eval`` from those of both layers."""
    return _fused(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, 0)


def _fused(
    weight: Tensor,
    bias: Tensor | None,
    mean: Tensor,
    variance: Tensor,
    eps: float,
    scale: Tensor | None,
    shift: Tensor | None,
    axis: int,
) -> tuple[Parameter, Parameter]:
    """The layer's outputs, along ``axis`` of its weight, centred, scaled and shifted."""
    factor = aj.rsqrt(variance + eps)
    if scale is not None:
        factor = factor * scale
    shape = [-1 if k == axis else 1 for k in range(weight.ndim)]
    moved = ((0.0 if bias is None else bias) - mean) * factor
    if shift is not None:
        moved = moved + shift
    kind = weight.dtype if bias is None else bias.dtype
    needs_grad = bias is not None and bias.requires_grad
    fused_weight = (weight * factor.reshape(shape)).to(weight.dtype)
    return Parameter(fused_weight, weight.requires_grad), Parameter(moved.to(kind), needs_grad)
