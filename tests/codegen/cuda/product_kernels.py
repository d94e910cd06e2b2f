"""Descriptions of matrix products for tests: operands that are views of arrays, as the schedule would describe them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from autojit.core.dtypes import DType, dtype_of_numpy
from autojit.core.types import TensorType
from autojit.ir.graph import Node, SourceLocation, Value
from autojit.ops.matmul import MATMUL, MatmulAdd
from autojit.schedule.kernels import Access, MatmulKernel

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class View:
    """An operand: an array that is stored, and what of it is read."""

    stored: Array
    seen: Array

    def access(self, name: str) -> Access:
        """How the view reads the array."""
        size = self.stored.itemsize
        offset = _address(self.seen) - _address(self.stored) if self.seen.size else 0
        return Access(Value(_type(self.stored), name), offset // size, tuple(s // size for s in self.seen.strides))


def whole(array: Array) -> View:
    """All of a contiguous array."""
    return View(array, array)


def scattered_view(generator: np.random.Generator, values: Array) -> View:
    """Values somewhere in a larger array whose axes come in any order."""
    order = [int(axis) for axis in generator.permutation(values.ndim)]
    before, after = (generator.integers(0, 3, values.ndim) for _ in range(2))
    shape = [values.shape[axis] + int(before[axis] + after[axis]) for axis in order]
    stored = np.zeros(shape, values.dtype)
    seen = stored.transpose(np.argsort(order))
    seen = seen[tuple(slice(int(b), int(b) + n) for b, n in zip(before, values.shape, strict=True))]
    seen[...] = values
    return View(stored, seen)


def repeated_view(values: Array, axis: int) -> View:
    """The first values along an axis, everywhere along it: a stride of zero."""
    first = np.ascontiguousarray(np.take(values, [0], axis))
    return View(first, np.broadcast_to(first, values.shape))


def product(a: View, b: View, *, adds: bool = False) -> MatmulKernel:
    """The product of two views, added to what is stored contiguously if it ``adds``."""
    types = [_type(a.seen), _type(b.seen)]
    result = TensorType((*a.seen.shape[:-1], b.seen.shape[-1]), types[0].dtype)
    types += [result] * adds
    inputs = tuple(Value(spec, f"x{k}") for k, spec in enumerate(types))
    node = Node(MatmulAdd() if adds else MATMUL, inputs, (Value(result, "result"),), SourceLocation("test", 1))
    return MatmulKernel(node, a.access("a"), b.access("b"), inputs[2] if adds else None)


def draw(generator: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
    """Normal numbers, or small whole ones of both signs where the dtype has them."""
    if dtype.kind == "float":
        return generator.normal(size=shape).astype(dtype.numpy)
    return generator.integers(0 if dtype.kind == "uint" else -100, 100, shape).astype(dtype.numpy)


def _type(array: Array) -> TensorType:
    return TensorType(array.shape, dtype_of_numpy(array.dtype))


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])
