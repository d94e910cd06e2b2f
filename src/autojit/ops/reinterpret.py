"""Views of memory under other strides or another dtype: as_strided, view_as_real, view_as_complex, view(dtype).

All alias their operand and state ``unview``, so writes through them are values under capture.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, ClassVar

import numpy as np

from autojit.core.dtypes import DType, dtype_of_numpy, int8, int16, int32, int64
from autojit.core.errors import DTypeError, ShapeError
from autojit.core.records import record
from autojit.core.sizes import surely_equal
from autojit.core.strided_views import as_strided as numpy_as_strided
from autojit.core.types import Shape, TensorType
from autojit.ir.index import Index, reshaped
from autojit.ir.op import Ndarray, O, Op, Operands, bind, linear_jvp, not_differentiable
from autojit.ops.base import Structured
from autojit.ops.elementwise_arithmetic import add, mul
from autojit.ops.samples import Samples, ramp
from autojit.ops.scattering import IndexUpdate
from autojit.ops.shape import View, reshape
from autojit.ops.sources import iota

__all__ = ["AsStrided", "Bitcast", "ViewAsComplex", "ViewAsReal"]


@record
class AsStrided(View):
    """Element ``offset + sum(i[k] * strides[k])`` of the operand's ``span`` elements in row-major order, for every
    position ``i`` of ``shape``. Several positions may show one element.
    """

    masks_cotangents: ClassVar[bool] = True
    may_copy: ClassVar[bool] = True
    shape: Shape
    strides: tuple[int, ...]
    offset: int
    span: int

    @property
    def _last(self) -> int:
        return self.offset + sum((n - 1) * step for n, step in zip(self.shape, self.strides, strict=True))

    @property
    def is_within(self) -> bool:
        """Whether all positions show elements of the operand."""
        return not prod(self.shape) or 0 <= self.offset <= self._last < self.span

    @property
    def is_whole(self) -> bool:
        """Whether the positions in row-major order surely show the operand's elements in theirs."""
        step = 1
        for n, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if not (surely_equal(n, 1) or surely_equal(stride, step)):
                return False
            step *= n
        return surely_equal(self.offset, 0) and surely_equal(step, self.span)

    def result_type(self, x: TensorType) -> TensorType:
        if x.size != self.span:
            raise ShapeError("as_strided: the operand has another number of elements", {"x": x, "span": self.span})
        if not self.is_within:
            last = self._last
            raise ShapeError(
                f"setStorage: sizes {list(self.shape)}, strides {list(self.strides)}, storage offset {self.offset}, "
                f"and itemsize {x.dtype.size_bytes} requiring a storage size of {(last + 1) * x.dtype.size_bytes} are "
                f"out of bounds for storage of size {x.size_bytes}",
                {"x": x},
                "keep offset + sum((size - 1) * stride) below the number of elements",
            )
        return x.with_shape(self.shape)

    def eager(self, x: Ndarray) -> Ndarray:
        flat = np.ascontiguousarray(x).reshape(-1)  # that of an array with gaps may have gaps itself
        flat = flat[self.offset :] if prod(self.shape) else flat[:0]
        return numpy_as_strided(flat, self.shape, [step * x.itemsize for step in self.strides])

    def copies(self, x: Ndarray) -> bool:
        return not x.flags.c_contiguous

    def source_index(self, index: tuple[Index, ...], x: TensorType) -> tuple[Index, ...]:
        place = Index((), self.offset)
        for i, step in zip(index, self.strides, strict=True):
            place = place + i * step
        return reshaped((place,), (self.span,), x.shape)

    def _places(self, like: O) -> O:
        """The element each position shows, as a vector."""
        places: O | None = None
        for axis, step in enumerate(self.strides):
            steps = mul(iota(like, self.shape, axis), step)
            places = steps if places is None else add(places, steps)
        if places is None:
            return reshape(like._literal(self.offset, TensorType((), int64, like.spec.device)), (1,))
        return reshape(add(places, self.offset), (prod(self.shape),))

    def _spread(self, base: O, piece: O, combine: str) -> O:
        flat = reshape(piece, (prod(self.shape),))
        return bind(IndexUpdate(0, combine), base, flat, self._places(piece))

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        x = primals[0].spec
        if not prod(self.shape):
            return (None,)
        return (lambda: reshape(self._spread(y_bar._literal(0, x.with_shape((self.span,))), y_bar, "add"), x.shape),)

    def unview(self, base: O, piece: O) -> O:
        if not prod(self.shape):
            return base
        return reshape(self._spread(reshape(base, (self.span,)), piece, "set"), base.spec.shape)

    def shifted(self, extent: int) -> Op:
        return AsStrided((extent, *self.shape), (self.span, *self.strides), self.offset, self.span * extent)

    @staticmethod
    def samples(dtype: DType) -> Samples:
        return [
            (AsStrided((2, 2), (4, 1), 3, 12), (ramp((3, 4), dtype),)),
            (AsStrided((3, 3), (2, 1), 1, 12), (ramp((12,), dtype),)),
            (AsStrided((), (), 2, 6), (ramp((2, 3), dtype),)),
            (AsStrided((0, 2), (1, 1), 0, 4), (ramp((4,), dtype),)),
        ]


class Retyped(Structured, abstract=True):
    """A view of the whole memory as numbers of another dtype, linear where it says nothing else."""

    is_view: ClassVar[bool] = True

    def inverse(self, origin: DType) -> Op:
        """The op that shows the operand's numbers, of dtype ``origin``, again."""
        raise NotImplementedError(self.name)

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        return (bind(self.inverse(primals[0].spec.dtype), y_bar),)

    jvp = linear_jvp

    def batch(self, args: Operands, batched: tuple[bool, ...]) -> Any:
        return bind(self, args[0])

    def unview(self, base: O, piece: O) -> O:
        """The base with the viewed elements replaced: all of them."""
        return bind(self.inverse(base.spec.dtype), piece)

    def shifted(self, extent: int) -> Op:
        """The same op on an operand with a leading batch axis."""
        return self


@record
class ViewAsReal(Retyped):
    """Complex numbers as pairs: ``c[...] -> f[..., 2]``, real part first. An isometry, so its transpose inverts it."""

    def result_type(self, x: TensorType) -> TensorType:
        if not x.dtype.is_complex:
            raise DTypeError("view_as_real is only supported for complex tensors", {"x": x})
        return TensorType((*x.shape, 2), x.dtype.to_real(), x.device)

    def eager(self, x: Ndarray) -> Ndarray:
        parts = x.real
        return numpy_as_strided(parts, (*x.shape, 2), (*x.strides, parts.itemsize))

    def inverse(self, origin: DType) -> Op:
        return ViewAsComplex()

    @staticmethod
    def samples(dtype: DType) -> Samples:
        if not dtype.is_complex:
            return []
        return [(ViewAsReal(), (ramp((2, 3), dtype),)), (ViewAsReal(), (ramp((4, 3), dtype)[::2].T,))]


@record
class ViewAsComplex(Retyped):
    """Pairs as complex numbers: ``f[..., 2] -> c[...]``. An isometry, so its transpose inverts it."""

    may_copy: ClassVar[bool] = True

    def result_type(self, x: TensorType) -> TensorType:
        if x.dtype.kind != "float" or x.dtype.size_bytes < 4:
            raise DTypeError(
                f"view_as_complex is only supported for half, float and double tensors, but got a tensor of scalar "
                f"type: {x.dtype.scalar_type}",
                {"x": x},
            )
        if not x.ndim:
            raise ShapeError("Input tensor must have one or more dimensions", {"x": x})
        if x.shape[-1] != 2:
            raise ShapeError("Tensor must have a last dimension of size 2", {"x": x})
        return TensorType(x.shape[:-1], x.dtype.to_complex(), x.device)

    def eager(self, x: Ndarray) -> Ndarray:
        if self.copies(x):
            x = np.ascontiguousarray(x)
        return x.view(np.complex64 if x.itemsize == 4 else np.complex128)[..., 0]

    def copies(self, x: Ndarray) -> bool:
        return bool(x.strides[-1] != x.itemsize and x.size)

    def inverse(self, origin: DType) -> Op:
        return ViewAsReal()

    @staticmethod
    def samples(dtype: DType) -> Samples:
        if dtype.kind != "float" or dtype.size_bytes < 4:
            return []
        return [(ViewAsComplex(), (ramp((3, 2), dtype),)), (ViewAsComplex(), (ramp((4, 3, 2), dtype)[::2],))]


@record
class Bitcast(Retyped):
    """The same bytes as numbers of another dtype; the last extent changes where the sizes differ."""

    dtype: DType

    def result_type(self, x: TensorType) -> TensorType:
        have, want = x.dtype.size_bytes, self.dtype.size_bytes
        if have == want:
            return x.with_dtype(self.dtype)
        if not x.ndim:
            raise ShapeError(
                f"self.dim() cannot be 0 to {self._said(x.dtype)}",
                {"x": x},
            )
        total = x.shape[-1] * have
        if total % want:
            raise ShapeError(
                f"self.size(-1) must be divisible by {want // have} to {self._said(x.dtype)}, but got {x.shape[-1]}",
                {"x": x},
            )
        return TensorType((*x.shape[:-1], total // want), self.dtype, x.device)

    def eager(self, x: Ndarray) -> Ndarray:
        if self.copies(x):
            x = np.ascontiguousarray(x)
        return x.view(self.dtype.numpy)

    def _said(self, dtype: DType) -> str:
        return f"view {dtype.scalar_type} as {self.dtype.scalar_type} (different element sizes)"

    def require_view(self, kind: TensorType, x: Any, root: Any) -> None:
        """ShapeError where an array in the memory of ``root`` cannot be seen as numbers of the dtype without a copy."""
        self.result_type(kind)
        if type(x) is not np.ndarray or not x.size:
            return
        size, what = self.dtype.size_bytes, self._said(dtype_of_numpy(x.dtype))
        if x.ndim and self.copies(x):
            raise ShapeError(f"self.stride(-1) must be 1 to {what}, but got {x.strides[-1] // x.itemsize}")
        if size <= x.itemsize or type(root) is not np.ndarray:
            return
        ratio, offset = size // x.itemsize, x.ctypes.data - root.ctypes.data
        for name, step in (("storage_offset()", offset), *[(f"stride({k})", n) for k, n in enumerate(x.strides[:-1])]):
            if step % size:
                raise ShapeError(f"self.{name} must be divisible by {ratio} to {what}, but got {step // x.itemsize}")

    def copies(self, x: Ndarray) -> bool:
        return x.itemsize != self.dtype.size_bytes and x.strides[-1] != x.itemsize

    vjp = jvp = not_differentiable("the bytes of a number are not a smooth function of it")

    def inverse(self, origin: DType) -> Op:
        return Bitcast(origin)

    @staticmethod
    def samples(dtype: DType) -> Samples:
        same = {1: int8, 2: int16, 4: int32, 8: int64}.get(dtype.size_bytes)
        found: Samples = [] if same is None else [(Bitcast(same), (ramp((2, 3), dtype),))]
        if dtype.size_bytes == 4:
            found.append((Bitcast(int64), (ramp((3, 4), dtype),)))
        return found
