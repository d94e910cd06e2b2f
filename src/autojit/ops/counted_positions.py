"""Sizes that are known when the step runs: how many elements a mask chooses, or the value of a number.

Such an op defines a size: ``count``, a symbol of its own, is an extent of its result, and whatever is computed from
that has the size in its type. So indexing with a mask is an ordinary gather at the positions of the mask's true
elements, and its derivative an ordinary scatter.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from autojit.core.dtypes import DType, bool_, int64
from autojit.core.errors import AutojitError, DTypeError, IndexOutOfRangeError, ShapeError, UsageError
from autojit.core.records import record
from autojit.core.types import TensorType
from autojit.ir.op import Ndarray, O, Operands, bind, bind_all, not_differentiable
from autojit.ops.base import Structured
from autojit.ops.joining import select, stack
from autojit.ops.samples import Samples, draws

__all__ = ["LEAST", "NO_PLACE", "Counting", "Extent", "PackedPositions", "Positions", "negative_size", "true_positions"]


LEAST = -(2**63)  # added to a place that is too great, so that it is negative, too
NO_PLACE = "index"  # how the error of a place begins, until its number is known
NO_SIZE = "a size is negative"  # of a shape: functions that count say what they ask for


@record
class Counting(Structured, abstract=True):
    """An op that defines a size, the first extent of its result.

    Args:
        count: the size, a symbol of its own of least value 0.
        is_given: an operand of the graph has the size as an extent too (``passes.given_sizes``): it is only compared.
    """

    needs_elements: ClassVar[bool] = True
    has_effect: ClassVar[bool] = True  # types that name the size rely on it, also where nothing reads the result
    count: int
    is_given: bool = False

    vjp = jvp = not_differentiable("a number of elements is a whole number")

    def batch(self, args: Operands, batched: tuple[bool, ...]) -> Any:
        raise ShapeError(
            f"{self.name}: examples of a batch would have results of different lengths",
            fix="use where(condition, x, y) instead of indexing with a mask",
        )

    @staticmethod
    def samples(dtype: DType) -> Samples:
        return []  # the result's length is not a property of the op and its operands' types


@record
class Positions(Counting):
    """Row-major positions of the true elements, in order: ``bool[...] -> i64[count]``."""

    def result_type(self, mask: TensorType) -> TensorType:
        if mask.dtype is not bool_:
            raise DTypeError("positions: the operand is no mask", {"mask": mask})
        return TensorType((self.count,), int64, mask.device)

    def eager(self, mask: Ndarray) -> Ndarray:
        return np.flatnonzero(mask).astype(np.int64, copy=False)

    def failure(self, number: int) -> Exception:
        """The error where the size was known before and the mask has another number of true elements."""
        return UsageError(f"positions: the mask has not {self.count} true elements")


@record
class Extent(Counting):
    """A size that is a number of the step: ``i64[] -> bool[count, 0]``, a result without elements.

    Args:
        most: what the number does not exceed, or None: memory for what has this size is had when the number is known.
        refusal: the message of the error if the number is negative.
        is_place: the number is a place in a tensor, so that the error is an IndexError.
    """

    most: int | None = None
    refusal: str = NO_SIZE
    is_place: bool = False

    def result_type(self, number: TensorType) -> TensorType:
        if number.dtype is not int64 or number.ndim:
            raise DTypeError("extent: the operand is no whole number", {"number": number})
        return TensorType((self.count, 0), bool_, number.device)

    def eager(self, number: Ndarray) -> Ndarray:
        if number < 0:
            raise negative_size(self.refusal, self.is_place, int(number))
        return np.empty((int(number), 0), np.bool_)

    def failure(self, number: int) -> Exception:
        """The error of a negative number (``number``: which of the op's failures; there is one)."""
        return negative_size(self.refusal, self.is_place)


@record
class PackedPositions(Structured):
    """Positions of a vector's true elements, in order, then zeros; and how many they are: ``bool[n] -> i64[n], i64[]``.

    What a device counts before anybody knows the size.
    """

    n_outputs: ClassVar[int] = 2

    def result_type(self, mask: TensorType) -> tuple[TensorType, TensorType]:
        if mask.dtype is not bool_ or mask.ndim != 1:
            raise DTypeError("packed_positions: the operand is no vector of bools", {"mask": mask})
        return mask.with_dtype(int64), TensorType((), int64, mask.device)

    def eager(self, mask: Ndarray) -> tuple[Ndarray, Ndarray]:
        found = np.flatnonzero(mask)
        packed = np.zeros(len(mask), np.int64)
        packed[: len(found)] = found
        return packed, np.asarray(len(found), np.int64)

    vjp = jvp = not_differentiable("a position is piecewise constant")

    def batch(self, args: Operands, batched: tuple[bool, ...]) -> Any:
        (masks,) = args
        each = [bind_all(self, select(masks, 0, k)) for k in range(masks.spec.shape[0])]
        return tuple(stack(results) for results in zip(*each, strict=True))

    @staticmethod
    def samples(dtype: DType) -> Samples:
        return [(PackedPositions(), (draws((n,), dtype),)) for n in (0, 7)] if dtype is bool_ else []


def negative_size(refusal: str, is_place: bool = False, number: int | None = None) -> AutojitError:
    """The error of a size that is negative; see `Extent`. ``number``: which it is, or stands for a place."""
    if is_place:
        if number is not None and refusal.startswith(NO_PLACE):
            place = number - LEAST if number < LEAST // 2 else number
            refusal = f"{NO_PLACE} {place}{refusal.removeprefix(NO_PLACE)}"
        return IndexOutOfRangeError(refusal)
    return ShapeError(refusal) if refusal == NO_SIZE else UsageError(refusal)


def true_positions(mask: O, count: int) -> O:
    """Row-major positions of the true elements; ``count`` is the symbol for their number."""
    return bind(Positions(count), mask)
