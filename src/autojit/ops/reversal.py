"""Flip: reversed axes. A copy, while the reindexing ops of ``shape.py`` are views."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from autojit.core.dtypes import DType
from autojit.core.records import record
from autojit.core.types import TensorType
from autojit.ir.index import Index
from autojit.ir.op import Ndarray, O, Operands, bind
from autojit.ops.base import Axes, Reindex, normalize_axes
from autojit.ops.samples import Samples, ramp

__all__ = ["Flip", "flip"]


@record
class Flip(Reindex):
    """Reversed order along ``axes`` (sorted, non-negative). A copy, as in torch, so that no stride is negative."""

    axes: tuple[int, ...]
    parameter_names: ClassVar[Mapping[str, str]] = {"axes": "dims"}

    def result_type(self, x: TensorType) -> TensorType:
        return x

    def eager(self, x: Ndarray) -> Ndarray:
        return np.flip(x, self.axes).copy()

    def source_index(self, index: tuple[Index, ...], x: TensorType) -> tuple[Index, ...]:
        return tuple(Index() - i + (x.shape[a] - 1) if a in self.axes else i for a, i in enumerate(index))

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        return (bind(self, y_bar),)

    def batch(self, args: Operands, batched: tuple[bool, ...]) -> Any:
        return bind(Flip(tuple(a + 1 for a in self.axes)), args[0])

    @staticmethod
    def samples(dtype: DType) -> Samples:
        return [(Flip((0, 2)), (ramp((2, 3, 4), dtype),)), (Flip((0,)), (ramp((0, 2), dtype),))]


def flip(x: O, axes: Axes) -> O:
    """Reverse the order of the elements along ``axes``; a copy."""
    found = () if axes == () else normalize_axes(axes, x.spec.ndim, "flip")
    return bind(Flip(found), x) if found else x
