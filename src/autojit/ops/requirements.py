"""Conditions on elements without which a step is an error, wherever its results go."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from autojit.core.dtypes import bool_, int32, int64
from autojit.core.errors import (
    ArgumentError,
    AutojitError,
    DifferentiationError,
    DTypeError,
    IndexOutOfRangeError,
    UsageError,
    WideIntegerError,
    rounds_text,
)
from autojit.core.records import record
from autojit.core.types import TensorType
from autojit.core.user_warnings import warn_beside_error
from autojit.ir.op import Ndarray, O, Op, Operands, bind, not_differentiable
from autojit.ops.base import Elementwise, broadcast_shapes
from autojit.ops.indexing import out_of_range
from autojit.ops.joining import one_by_one
from autojit.ops.refused_values import refused_facts
from autojit.ops.samples import Samples, positions, ramp

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from autojit.core.dtypes import DType
    from autojit.ir.emitter import Emitter, S

__all__ = ["InRange", "Refusal", "Require", "RequireNumbers", "Witness", "require"]

KINDS: dict[str, type[Exception]] = {
    "usage": UsageError,
    "argument": ArgumentError,
    "differentiation": DifferentiationError,
    "index": IndexOutOfRangeError,
    "overflow": OverflowError,
    "value": ValueError,
    "zero": ZeroDivisionError,
    "wide": WideIntegerError,
}
"""What is raised, by the name that the text of a graph has for it."""


@record
class Require(Elementwise):
    """The operand itself (bool), all of whose elements hold; else an error of the ``kind`` that says ``refusal``."""

    refusal: str
    kind: str

    accepts: ClassVar[tuple[str, ...]] = ("bool",)
    is_cheap: ClassVar[bool] = False
    refuses: ClassVar[bool] = True

    def failure(self, number: int) -> Exception:
        """The error (``number``: which of the op's failures; there is one)."""
        return KINDS[self.kind](self.refusal)

    def eager(self, holds: NDArray[np.bool_]) -> NDArray[np.bool_]:
        if not holds.all():
            raise self.failure(1)
        return holds.copy()

    def partials(self, primals: Operands, result: O) -> tuple[None]:
        return (None,)

    def lower(self, emit: Emitter[S], holds: S) -> S:
        emit.failures.append(emit.cast(emit.logical_not(holds), int32))
        return holds

    @staticmethod
    def samples(dtype: DType) -> Samples:
        return [(Require("refused", "usage"), (np.ones((2, 3), np.bool_),))] if dtype is bool_ else []


@record
class Witness(Elementwise):
    """``holds`` itself, whose elements say which elements of ``value`` a step may go on with; see `Require`.

    Native code only learns from `Require` whether all hold. The reference, which looks at a failed step once more,
    comes by here first and says which value is refused, and where it is. So that it does so only where the step would
    refuse it, too, passes treat this op as one that refuses: it is never moved to where it would not have run.

    Args:
        refusal, kind: see `Require`.
        named: what users know ``value`` by.
        valid: the values that are not refused.
        is_told_only: something else refuses them natively, so that native code need not compute ``holds``.
    """

    refusal: str
    kind: str
    named: str
    valid: str
    is_told_only: bool = False

    is_cheap: ClassVar[bool] = False
    refuses: ClassVar[bool] = True

    def may_fail(self, *types: TensorType) -> bool:
        """Its code reports nothing: that of `Require` does."""
        return False

    def result_type(self, holds: TensorType, value: TensorType) -> TensorType:  # type: ignore[override]
        if holds.dtype is not bool_:
            raise DTypeError("witness: the operand is no condition", {"holds": holds})
        shape = broadcast_shapes(holds.shape, value.shape, op="witness")
        return TensorType(shape, bool_, holds.device)

    def failure(self, number: int) -> Exception:
        """The error where the value is not known (``number``: which of the op's failures; there is one)."""
        return KINDS[self.kind](self.refusal)

    def eager(self, holds: NDArray[np.bool_], value: Ndarray) -> NDArray[np.bool_]:
        if not holds.all():
            raise self.refused(holds, value)
        return np.broadcast_to(holds, np.broadcast_shapes(holds.shape, value.shape)).copy()

    def refused(self, holds: NDArray[np.bool_], value: Ndarray) -> Exception:
        """The error that names the first value for which ``holds`` is false."""
        kind = KINDS[self.kind]
        facts = refused_facts(~holds, self.named, self.valid, value)
        if "{value}" in self.refusal:
            return kind(self.refusal.format(value=facts.pop("value")), facts)
        return kind(self.refusal, facts)

    def partials(self, primals: Operands, result: O) -> tuple[None, None]:
        return None, None

    def lower(self, emit: Emitter[S], holds: S, value: S) -> S:
        return emit.logical_not(emit.zero(holds)) if self.is_told_only else holds

    @staticmethod
    def samples(dtype: DType) -> Samples:
        holds = np.ones((2, 3), np.bool_)
        return [(Witness("refused", "usage", "x", "all", flag), (holds, ramp((2, 3), dtype))) for flag in (False, True)]


@record
class RequireNumbers(Require):
    """That a gradient has no NaN, where anomaly mode watches a derivative inside of a loop's body.

    Args:
        forward: the forward op and its line, if it is known.
        order: the order of the derivative.
        rounds: of loops in Python that the forward op was in.
        reports: what the error is preceded by: the calls that led to the forward op, as warnings.
    """

    forward: str
    order: int
    rounds: tuple[int, ...]
    reports: tuple[str, ...]

    def failure(self, number: int) -> Exception:
        """See ``Require``."""
        for text in self.reports:
            warn_beside_error(text)
        facts: dict[str, object] = {"forward op": self.forward} if self.forward else {}
        facts["derivative"] = f"of order {self.order}"
        if self.rounds:
            facts["round"] = rounds_text(self.rounds)
        return KINDS[self.kind](self.refusal, facts)

    @staticmethod
    def samples(dtype: DType) -> Samples:
        op = RequireNumbers("returned nan", "differentiation", "sqrt at train.py:3", 1, (2,), ("a report",))
        return [(op, (np.ones((2, 3), np.bool_),))] if dtype is bool_ else []


@record
class InRange(Elementwise):
    """True for every index of an axis of ``extent``, negative ones counted from its end; any other one is an error.

    The check of a look-up by itself, for what has to be known before the look-up's kernel runs (`schedule.commits`).

    Args:
        looked_up: the name of what looks up, which the error is told of, with the ``axis``.
        indexed: the type of the tensor that it picks from, as the error says it.
    """

    looked_up: str
    axis: int
    extent: int
    indexed: str

    accepts: ClassVar[tuple[str, ...]] = ("int",)
    is_cheap: ClassVar[bool] = False
    refuses: ClassVar[bool] = True
    vjp = jvp = not_differentiable("a condition is piecewise constant")

    def result_dtype(self, dtype: DType) -> DType:
        return bool_

    @property
    def shown_name(self) -> str:
        return self.looked_up

    def failure(self, number: int) -> Exception:
        """The error where the index is not known (``number``: which of the op's failures; there is one)."""
        return IndexOutOfRangeError(
            f"{self.looked_up}: an index is out of bounds for dimension {self.axis} with size {self.extent}",
            {"indexed": self.indexed},
        )

    def eager(self, index: NDArray[np.int64]) -> NDArray[np.bool_]:
        if ((index < -self.extent) | (index >= self.extent)).any():
            error = out_of_range(self.looked_up, index, self.axis, self.extent)
            raise error.with_facts({"indexed": self.indexed})
        return np.ones(index.shape, np.bool_)

    def lower(self, emit: Emitter[S], index: S) -> S:
        extent = emit.size(self.extent, int64)
        is_inside = emit.logical_and(emit.lt(index, extent), emit.ge(emit.add(index, extent), emit.zero(index)))
        emit.failures.append(emit.cast(emit.logical_not(is_inside), int32))
        return is_inside

    @staticmethod
    def samples(dtype: DType) -> Samples:
        return [(InRange("gather", 1, 3, "i64[2, 3]"), (positions([[0, 2], [-3, 1]]),))] if dtype is int64 else []


@record
class Refusal(Op):
    """0 where ``op`` takes its operands as they are, else a number that stands for its error: what the error says.

    Args:
        op: an op that may refuse operands.
    """

    op: Op

    vjp = jvp = not_differentiable("whether an op refuses is piecewise constant")

    def result_type(self, *operands: TensorType) -> TensorType:
        self.op.result_type(*operands)
        return TensorType((), int64, operands[0].device)

    def eager(self, *operands: Ndarray) -> NDArray[np.int64]:
        try:
            self.op.eager(*operands)
        except Exception as error:
            return np.asarray(1 + zlib.crc32(_told(error).encode()), np.int64)
        return np.zeros((), np.int64)

    def batch(self, args: Operands, batched: tuple[bool, ...]) -> Any:
        return one_by_one(self, args, batched)

    @staticmethod
    def samples(dtype: DType) -> Samples:
        holds = Require("refused", "usage")
        return [(Refusal(holds), (np.asarray(flags),)) for flags in ([True], [True, False])] if dtype is bool_ else []


def _told(error: Exception) -> str:
    """What an error says by itself: not where it came up, which this op's caller knows better."""
    facts = error.facts if isinstance(error, AutojitError) else {}
    what = error.what if isinstance(error, AutojitError) else error
    return f"{type(error).__qualname__}: {what} {[f'{name} {fact}' for name, fact in facts.items()]}"


def require(holds: O, refusal: str, kind: str = "usage") -> O:
    """``holds``, which is all true; see `Require`."""
    return bind(Require(refusal, kind), holds)
