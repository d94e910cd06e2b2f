"""The transforms that torch names: of single numbers, of vectors and of matrices."""

from __future__ import annotations

from math import log as log_of
from typing import Any

from autojit.distributions import constraints
from autojit.distributions.joined_transforms import CatTransform as CatTransform
from autojit.distributions.joined_transforms import CumulativeDistributionTransform as CumulativeDistributionTransform
from autojit.distributions.joined_transforms import StackTransform as StackTransform
from autojit.distributions.matrix_transforms import CorrCholeskyTransform as CorrCholeskyTransform
from autojit.distributions.matrix_transforms import PositiveDefiniteTransform as PositiveDefiniteTransform
from autojit.distributions.parameters import sum_rightmost
from autojit.distributions.transform import ComposeTransform as ComposeTransform
from autojit.distributions.transform import IndependentTransform as IndependentTransform
from autojit.distributions.transform import Transform as Transform
from autojit.distributions.transform import _InverseTransform as _InverseTransform
from autojit.distributions.transform import identity_transform as identity_transform
from autojit.functions.comparison import clamp
from autojit.functions.elementwise import abs as absolute
from autojit.functions.elementwise import exp, expm1, log, log1p, sigmoid, tanh
from autojit.functions.factories import arange
from autojit.functions.namespace import finfo
from autojit.functions.order import cumsum
from autojit.functions.reduction import softmax
from autojit.functions.shape import broadcast_shapes, diag_embed
from autojit.nn.functional import logsigmoid, pad, softplus
from autojit.tensor.size import Size
from autojit.tensor.tensor import Tensor

__all__ = [
    "AbsTransform", "AffineTransform", "CatTransform", "ComposeTransform", "CorrCholeskyTransform",
    "CumulativeDistributionTransform", "ExpTransform", "IndependentTransform", "LowerCholeskyTransform",
    "PositiveDefiniteTransform", "PowerTransform", "ReshapeTransform", "SigmoidTransform", "SoftmaxTransform",
    "SoftplusTransform", "StackTransform", "StickBreakingTransform", "TanhTransform", "Transform",
    "identity_transform",
]  # fmt: skip


class _Elementwise(Transform):
    """An increasing function of single numbers without settings."""

    bijective = True
    _distinct_by = ()

    @property
    def sign(self) -> Tensor | int:
        return 1


class ExpTransform(_Elementwise):
    """y = exp(x).

    Example:
        >>> import autojit as aj
        >>> from autojit.distributions.transforms import ExpTransform
        >>> ExpTransform().inv(aj.tensor(1.0))
        tensor(0.)
    """

    codomain = constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return exp(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return log(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x


def _clipped_sigmoid(x: Tensor) -> Tensor:
    """The logistic function, kept off 0 and 1; libraries import it by this name."""
    kind = finfo(x.dtype)
    return clamp(sigmoid(x), min=kind.tiny, max=1.0 - kind.eps)


class SigmoidTransform(_Elementwise):
    """y = 1 / (1 + exp(-x)), kept off 0 and 1."""

    codomain = constraints.unit_interval

    def _call(self, x: Tensor) -> Tensor:
        return _clipped_sigmoid(x)

    def _inverse(self, y: Tensor) -> Tensor:
        kind = finfo(y.dtype)
        kept = clamp(y, min=kind.tiny, max=1.0 - kind.eps)
        return log(kept) - log1p(-kept)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -softplus(-x) - softplus(x)


class TanhTransform(_Elementwise):
    """y = tanh(x); its log-derivative does not lose digits at large x."""

    codomain = constraints.interval(-1.0, 1.0)

    def _call(self, x: Tensor) -> Tensor:
        return tanh(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return 0.5 * (log1p(y) - log1p(-y))

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return 2.0 * (log_of(2.0) - x - softplus(-2.0 * x))


class SoftplusTransform(_Elementwise):
    """y = log(1 + exp(x))."""

    codomain = constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return softplus(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return log(-expm1(-y)) + y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -softplus(-x)


class PowerTransform(Transform):
    """y = x to a power, of positive x."""

    bijective = True
    domain = constraints.positive
    codomain = constraints.positive
    _distinct_by = ("exponent",)

    def __init__(self, exponent: Tensor | float, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.exponent = exponent

    @property
    def sign(self) -> Tensor | int:
        return self.exponent.sign() if isinstance(self.exponent, Tensor) else (1 if self.exponent > 0 else -1)

    def _call(self, x: Tensor) -> Tensor:
        return x**self.exponent

    def _inverse(self, y: Tensor) -> Tensor:
        return y ** (1 / self.exponent)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return log(absolute(self.exponent * y / x))

    def forward_shape(self, shape: Any) -> Size:
        return _broadcast(shape, self.exponent)

    inverse_shape = forward_shape


class AffineTransform(Transform):
    """y = loc + scale * x; the last ``event_dim`` axes are one value.

    Example:
        >>> import autojit as aj
        >>> from autojit.distributions.transforms import AffineTransform
        >>> AffineTransform(1.0, 2.0)(aj.tensor(3.0))
        tensor(7.)
    """

    bijective = True
    _distinct_by = ("loc", "scale", "event_dim")

    def __init__(self, loc: Tensor | float, scale: Tensor | float, event_dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.loc, self.scale = loc, scale
        self.domain = self.codomain = (
            constraints.independent(constraints.real, event_dim) if event_dim else constraints.real
        )

    @property
    def sign(self) -> Tensor | int:
        if isinstance(self.scale, Tensor):
            return self.scale.sign()
        return (self.scale > 0) - (self.scale < 0)

    def _call(self, x: Tensor) -> Tensor:
        return self.loc + self.scale * x

    def _inverse(self, y: Tensor) -> Tensor:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        stretch = log(absolute(self.scale if isinstance(self.scale, Tensor) else x.new_full((), float(self.scale))))
        return sum_rightmost(stretch.expand(x.shape), self.event_dim)

    def forward_shape(self, shape: Any) -> Size:
        return _broadcast(shape, self.loc, self.scale)

    inverse_shape = forward_shape


def _broadcast(shape: Any, *values: Any) -> Size:
    return Size(broadcast_shapes(tuple(shape), *(tuple(getattr(value, "shape", ())) for value in values)))


class AbsTransform(Transform):
    """y = |x|; the inverse gives the positive one."""

    codomain = constraints.positive
    _distinct_by = ()

    def _call(self, x: Tensor) -> Tensor:
        return absolute(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return y


class ReshapeTransform(Transform):
    """The last axes in another shape of as many elements."""

    bijective = True
    _distinct_by = ("in_shape", "out_shape")

    def __init__(self, in_shape: Any, out_shape: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.in_shape, self.out_shape = Size(in_shape), Size(out_shape)
        if self.in_shape.numel() != self.out_shape.numel():
            raise ValueError("in_shape, out_shape have different numbers of elements")
        self.domain = constraints.independent(constraints.real, len(self.in_shape))
        self.codomain = constraints.independent(constraints.real, len(self.out_shape))

    def _call(self, x: Tensor) -> Tensor:
        return x.reshape(*x.shape[: x.ndim - len(self.in_shape)], *self.out_shape)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.reshape(*y.shape[: y.ndim - len(self.out_shape)], *self.in_shape)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x.new_zeros(x.shape[: x.ndim - len(self.in_shape)])

    def forward_shape(self, shape: Any) -> Size:
        return _replace_end(shape, self.in_shape, self.out_shape)

    def inverse_shape(self, shape: Any) -> Size:
        return _replace_end(shape, self.out_shape, self.in_shape)


def _replace_end(shape: Any, expected: Size, wanted: Size) -> Size:
    cut = len(shape) - len(expected)
    if cut < 0 or tuple(shape[cut:]) != tuple(expected):
        raise ValueError(f"Shape mismatch: expected {tuple(expected)} at the end of {tuple(shape)}")
    return Size((*shape[:cut], *wanted))


class SoftmaxTransform(Transform):
    """Logarithms to probabilities along the last axis; not one to one, so it has no volume."""

    domain = constraints.real_vector
    codomain = constraints.simplex
    _distinct_by = ()

    def _call(self, x: Tensor) -> Tensor:
        return softmax(x, -1)

    def _inverse(self, y: Tensor) -> Tensor:
        return log(y)


class StickBreakingTransform(Transform):
    """n - 1 numbers to n probabilities: each takes its share of what those before it left.

    Example:
        >>> import autojit as aj
        >>> from autojit.distributions.transforms import StickBreakingTransform
        >>> StickBreakingTransform()(aj.zeros(2))
        tensor([0.3333, 0.3333, 0.3333])
    """

    domain = constraints.real_vector
    codomain = constraints.simplex
    bijective = True
    _distinct_by = ()

    def _call(self, x: Tensor) -> Tensor:
        share = logsigmoid(self._centred(x))
        left = cumsum(logsigmoid(-self._centred(x)), -1)
        return exp(pad(share, [0, 1], value=0.0) + pad(left, [1, 0], value=0.0))

    def _centred(self, x: Tensor) -> Tensor:
        """Shifted so that 0 gives equal probabilities."""
        return x - log(arange(x.shape[-1], 0, -1, dtype=x.dtype, device=x.device))

    def _inverse(self, y: Tensor) -> Tensor:
        first = y[..., :-1]
        left = clamp(1 - cumsum(first, -1), min=finfo(y.dtype).tiny)
        ahead = arange(first.shape[-1], 0, -1, dtype=y.dtype, device=y.device)
        return log(first) - log(left) + log(ahead)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        centred = self._centred(x)
        return (-centred + logsigmoid(centred) + log(y[..., :-1])).sum(-1)

    def forward_shape(self, shape: Any) -> Size:
        return Size((*shape[:-1], shape[-1] + 1))

    def inverse_shape(self, shape: Any) -> Size:
        return Size((*shape[:-1], shape[-1] - 1))


class LowerCholeskyTransform(Transform):
    """Any matrices to lower triangles with a positive diagonal."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.lower_cholesky
    _distinct_by = ()

    def _call(self, x: Tensor) -> Tensor:
        return x.tril(-1) + diag_embed(exp(x.diagonal(dim1=-2, dim2=-1)))

    def _inverse(self, y: Tensor) -> Tensor:
        return y.tril(-1) + diag_embed(log(y.diagonal(dim1=-2, dim2=-1)))
