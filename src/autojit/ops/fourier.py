"""Discrete Fourier transforms along axes counted from the end; eager through numpy.fft in the operand's precision.

``norm`` scales as NumPy's does: "backward" divides inverse transforms by the number of points, "forward" the others,
"ortho" both by its square root. A transform and the opposite one with the opposite scale are adjoint to each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from autojit.core.dtypes import DType, float32, float64
from autojit.core.errors import DTypeError
from autojit.core.records import record
from autojit.core.types import TensorType
from autojit.ir.op import Ndarray, O, Operands, bind, linear_jvp
from autojit.ops.base import Structured
from autojit.ops.elementwise_arithmetic import cast, mul, where
from autojit.ops.elementwise_logic import eq, logical_or
from autojit.ops.samples import Samples, draws
from autojit.ops.shape import batch_all
from autojit.ops.sources import iota, literal

__all__ = ["Fft", "Irfft", "Rfft", "fft", "irfft", "rfft"]

_ADJOINT_NORM = {"backward": "forward", "forward": "backward", "ortho": "ortho"}


class Transform(Structured, abstract=True):
    """Linear, and the batch axis in front is not one of its axes."""

    fixes_sizes: ClassVar[bool] = True

    jvp = linear_jvp

    def batch(self, args: Operands, batched: tuple[bool, ...]) -> Any:
        return bind(self, *batch_all(args, batched))


@record
class Fft(Transform):
    """The complex transform along ``axes`` (negative): ``sum over n of x[n] exp(-2 pi i k n / N)``.

    The sign is + if it is an inverse one.
    """

    axes: tuple[int, ...]
    is_inverse: bool
    norm: str

    def result_type(self, x: TensorType) -> TensorType:
        _require(self.name, x, x.dtype.is_complex)
        return x

    def eager(self, x: Ndarray) -> Ndarray:
        transform: Any = np.fft.ifftn if self.is_inverse else np.fft.fftn
        found = transform(x, axes=self.axes, norm=self.norm)
        return np.ascontiguousarray(found, dtype=x.dtype).reshape(x.shape)

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        return (lambda: bind(Fft(self.axes, not self.is_inverse, _ADJOINT_NORM[self.norm]), y_bar),)

    @staticmethod
    def samples(dtype: DType) -> Samples:
        if not dtype.is_complex:
            return []
        x = draws((2, 3, 4), dtype)
        return [(Fft((-1,), False, "backward"), (x,)), (Fft((-3, -1), True, "ortho"), (x,))]


@record
class Rfft(Transform):
    """The half ``k = 0, ..., N // 2`` of a real operand's transform along ``axis`` (negative)."""

    axis: int
    norm: str

    def result_type(self, x: TensorType) -> TensorType:
        _require(self.name, x, x.dtype in (float32, float64))
        shape = list(x.shape)
        shape[self.axis] = shape[self.axis] // 2 + 1
        return x.with_shape(tuple(shape)).with_dtype(x.dtype.to_complex())

    def eager(self, x: Ndarray) -> Ndarray:
        wide = np.result_type(x.dtype, np.complex64)
        return np.ascontiguousarray(_rfft(x, axis=self.axis, norm=self.norm), dtype=wide)

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        n = primals[0].spec.shape[self.axis]
        back = Irfft(n, self.axis, _ADJOINT_NORM[self.norm])
        return (lambda: bind(back, _weighted(y_bar, n, self.axis, 1.0, 0.5)),)

    @staticmethod
    def samples(dtype: DType) -> Samples:
        if dtype not in (float32, float64):
            return []
        x = draws((2, 5, 4), dtype)
        return [(Rfft(-1, "backward"), (x,)), (Rfft(-2, "ortho"), (x,))]


@record
class Irfft(Transform):
    """The ``n`` real points along ``axis`` (negative) whose half transform is the operand; the inverse of ``Rfft``.

    The imaginary parts of the first and, if ``n`` is even, the last entry have no influence.
    """

    n: int
    axis: int
    norm: str

    def result_type(self, x: TensorType) -> TensorType:
        _require(self.name, x, x.dtype.is_complex)
        shape = list(x.shape)
        shape[self.axis] = self.n
        return x.with_shape(tuple(shape)).with_dtype(x.dtype.to_real())

    def eager(self, x: Ndarray) -> Ndarray:
        narrow = x.real.dtype
        return np.ascontiguousarray(_irfft(x, n=self.n, axis=self.axis, norm=self.norm), dtype=narrow)

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        back = Rfft(self.axis, _ADJOINT_NORM[self.norm])
        return (lambda: _weighted(bind(back, y_bar), self.n, self.axis, 1.0, 2.0),)

    @staticmethod
    def samples(dtype: DType) -> Samples:
        if not dtype.is_complex:
            return []
        x = draws((2, 3, 4), dtype)
        return [(Irfft(6, -1, "backward"), (x,)), (Irfft(5, -2, "ortho"), (x,))]


_rfft: Any = np.fft.rfft
_irfft: Any = np.fft.irfft


def _require(op: str, x: TensorType, is_right: bool) -> None:
    if not is_right:
        raise DTypeError(f"{op}: Unsupported dtype {x.dtype}", {"input": x})


def _weighted(half: O, n: int, axis: int, ends: float, middle: float) -> O:
    """Entries of a half spectrum that stand for one of ``n`` times ``ends``, those that stand for two ``middle``."""
    spec = half.spec
    shape = [1] * spec.ndim
    shape[axis] = spec.shape[axis]
    k = iota(half, tuple(shape), spec.ndim + axis)
    is_end = eq(k, literal(k, 0))
    if n % 2 == 0:
        is_end = logical_or(is_end, eq(k, literal(k, n // 2)))
    real = spec.dtype.to_real()
    weight = where(is_end, _number(half, ends, real), _number(half, middle, real))
    return mul(half, cast(weight, spec.dtype))


def _number(like: O, value: float, dtype: DType) -> O:
    return like._literal(value, TensorType((), dtype, like.spec.device))


def fft(x: O, axes: Sequence[int], is_inverse: bool = False, norm: str = "backward") -> O:
    """The transform of a complex operand along negative ``axes``."""
    return bind(Fft(tuple(axes), is_inverse, norm), x) if axes else x


def rfft(x: O, axis: int = -1, norm: str = "backward") -> O:
    """The first half of the transform of a real operand along a negative axis."""
    return bind(Rfft(axis, norm), x)


def irfft(x: O, n: int, axis: int = -1, norm: str = "backward") -> O:
    """The ``n`` real points along a negative axis with this half transform."""
    return bind(Irfft(n, axis, norm), x)
