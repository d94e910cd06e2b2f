"""``Require``: a condition on elements without which a step is an error, wherever its results go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from autojit.core.dtypes import bool_, int32
from autojit.core.errors import ArgumentError, IndexOutOfRangeError, UsageError
from autojit.core.records import record
from autojit.ir.op import Operand, Operands, bind
from autojit.ops.base import Elementwise
from autojit.ops.samples import Samples

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from autojit.core.dtypes import DType

__all__ = ["Require", "require"]

KINDS: dict[str, type[Exception]] = {
    "usage": UsageError,
    "argument": ArgumentError,
    "index": IndexOutOfRangeError,
    "value": ValueError,
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

    def partials(self, primals: Operands, result: Any) -> tuple[None]:
        return (None,)

    def lower(self, emit: Any, holds: Any) -> Any:
        emit.failures.append(emit.cast(emit.logical_not(holds), int32))
        return holds

    @staticmethod
    def samples(dtype: DType) -> Samples:
        return [(Require("refused", "usage"), (np.ones((2, 3), np.bool_),))] if dtype is bool_ else []


def require(holds: Operand, refusal: str, kind: str = "usage") -> Any:
    """``holds``, which is all true; see `Require`."""
    return bind(Require(refusal, kind), holds)
