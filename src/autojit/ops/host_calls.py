"""Calls of users' functions from the middle of a step: ways out that nothing of the step depends on.

A `HostCall` is run once wherever the program runs it, in the program's order, and by nothing else: what computes values
again leaves it out (`ir.calls_out`), and the schedule lets each wait for the one before it.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from autojit.core.dtypes import bool_
from autojit.core.records import record
from autojit.core.types import TensorType
from autojit.ir.op import Operands, bind, not_differentiable
from autojit.ops.base import EqualByText, Structured

__all__ = ["HostCall", "HostFunction"]

_numbers: weakref.WeakKeyDictionary[HostFunction, int] = weakref.WeakKeyDictionary()
_count = itertools.count(1)


class HostFunction:
    """What is called with arrays: ``function(*arrays)``.

    ``same`` says by its equality which functions do the same, so that a capture made twice is the same capture.
    """

    def __init__(self, name: str, function: Callable[..., object], same: object) -> None:
        self.name = name
        self.function = function
        self.same = same
        self.number: int = _numbers.setdefault(self, next(_count))

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, HostFunction) and self.same == other.same)

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        """Texts of graphs are equal where the functions are."""
        return f"{self.name} {self.number}"


@record(eq=False)
class HostCall(EqualByText, Structured):
    """``function(*operands)``, for what it does outside; the result, one bool, says that it has been called.

    ``maps``: for each batch around it, the outermost first, which operands have its axis; it is called once for every
    element.
    """

    function: HostFunction
    maps: tuple[tuple[bool, ...], ...] = ()

    has_effect: ClassVar[bool] = True
    calls_out: ClassVar[bool] = True
    spans_devices: ClassVar[bool] = True

    def silent(self) -> None:
        """Nothing is left of it."""

    @property
    def shown_name(self) -> str:
        """What users know the op by."""
        return self.function.name

    def result_type(self, *types: TensorType) -> TensorType:
        return TensorType((), bool_)

    def eager(self, *arrays: Any) -> Any:
        _call(self.function.function, arrays, self.maps)
        return np.ones((), np.bool_)

    vjp = jvp = not_differentiable("what a call outside of the step does is no part of its results")

    def batch(self, args: Operands, batched: tuple[bool, ...]) -> Any:
        size = next(a.spec.shape[0] for a, flag in zip(args, batched, strict=True) if flag)
        done = bind(HostCall(self.function, (tuple(batched), *self.maps)), *args)
        return done._literal(True, TensorType((size,), bool_))


def _call(function: Callable[..., object], arrays: Sequence[Any], maps: Sequence[tuple[bool, ...]]) -> None:
    if not maps:
        function(*arrays)
        return
    flags, *inner = maps
    size = next(len(array) for array, flag in zip(arrays, flags, strict=True) if flag)
    for k in range(size):
        _call(function, [array[k] if flag else array for array, flag in zip(arrays, flags, strict=True)], inner)
