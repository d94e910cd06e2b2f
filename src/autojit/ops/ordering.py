"""A value that may be had only later: what keeps a second computation of it from being merged with the first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autojit.core.dtypes import DType
from autojit.core.records import record
from autojit.core.types import TensorType
from autojit.ir.index import Index
from autojit.ir.op import Ndarray, O, Operands, bind
from autojit.ops.base import Reindex
from autojit.ops.samples import Samples, ramp
from autojit.ops.shape import batch_all

__all__ = ["WITHOUT_ORDER", "Later", "later"]

WITHOUT_ORDER = ("complex", "float8")
"""Kinds of dtypes whose elements generated code does not address: a value of these would be copied to be had later."""


@record
class Later(Reindex):
    """``x``, once ``after`` has been computed; nothing of ``after`` is read.

    What depends on it is computed again, and kernels are not moved in front of ``after``: so a checkpoint's values
    are not kept until the backward pass. It costs nothing itself: readers address ``x``.
    """

    @staticmethod
    def samples(dtype: DType) -> Samples:
        return [(Later(), (ramp((2, 3), dtype), ramp((4,), dtype)))]

    def result_type(self, x: TensorType, after: TensorType) -> TensorType:
        return x

    def eager(self, x: Ndarray, after: Ndarray) -> Ndarray:
        return x.copy()

    def source_index(self, index: tuple[Index, ...], x: TensorType) -> tuple[Index, ...]:
        return index

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        return y_bar, None

    def jvp(self, primals: Operands, result: O, tangents: Operands) -> Any:
        return tangents[0]

    def batch(self, args: Operands, batched: tuple[bool, ...]) -> Any:
        return bind(self, *batch_all(args, batched))


def later(x: O, after: O) -> O:
    """``x``, once ``after`` has been computed."""
    return bind(Later(), x, after)
