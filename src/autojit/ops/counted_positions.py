"""Positions of true elements, whose number is known when the step runs.

The op defines a size: its result has ``count`` elements, a symbol of its own, and whatever is computed from the result
has that size in its type. So indexing with a mask is an ordinary gather at these positions, and its derivative an
ordinary scatter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from autojit.core.dtypes import DType, bool_, int64
from autojit.core.errors import DTypeError, ShapeError
from autojit.core.records import record
from autojit.core.types import TensorType
from autojit.ir.op import Operand, Operands, bind, not_differentiable
from autojit.ops.base import Structured
from autojit.ops.samples import Samples

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Positions", "true_positions"]


@record
class Positions(Structured):
    """Row-major positions of the true elements, in order: ``bool[...] -> i64[count]``.

    ``count`` is a symbolic size that this op defines: a symbol of its own of least value 0.
    """

    lowering: ClassVar[str] = "positions"
    has_effect: ClassVar[bool] = True  # types that name the size rely on it, also where nothing reads the positions
    count: int

    def result_type(self, mask: TensorType) -> TensorType:
        if mask.dtype is not bool_:
            raise DTypeError("positions: the operand is no mask", {"mask": mask})
        return TensorType((self.count,), int64, mask.device)

    def eager(self, mask: NDArray[Any]) -> NDArray[Any]:
        return np.flatnonzero(mask).astype(np.int64, copy=False)

    vjp = not_differentiable("positions are whole numbers")
    jvp = not_differentiable("positions are whole numbers")

    def batch(self, args: Operands, batched: tuple[bool, ...]) -> Any:
        raise ShapeError(
            "positions: examples of a batch would have results of different lengths",
            fix="use where(condition, x, y) instead of indexing with a mask",
        )

    @staticmethod
    def samples(dtype: DType) -> Samples:
        return []  # the result's length is no property of the op and its operands' types


def true_positions(mask: Operand, count: int) -> Any:
    """Row-major positions of the true elements; ``count`` is the symbol for their number."""
    return bind(Positions(count), mask)
