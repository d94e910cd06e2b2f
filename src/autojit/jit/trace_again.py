"""What a capture does while a checkpointed function runs again: everything it computes is computed anew, and late."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import prod

from autojit.ir.graph import Value
from autojit.jit.trace_part import TracePart
from autojit.ops.ordering import Later

_WITHOUT_ORDER = ("complex", "float8")
"""Kinds of dtypes whose elements generated code does not address: a value of these would be copied to be had later."""


class SecondRun:
    """One run: what it has made, and what it read from outside, which it may read ``after`` a value alone."""

    def __init__(self, after: Value) -> None:
        self.after = after
        self.made: set[Value] = set()
        self.later: dict[Value, Value] = {}


class TraceAgain(TracePart):
    """The part of a trace that knows of second runs."""

    def __init__(self) -> None:
        self.second_run: SecondRun | None = None

    @contextmanager
    def again(self, after: Value) -> Iterator[None]:
        """What is recorded inside is not merged with what was recorded before, and runs when there is ``after``."""
        before = self.second_run
        self.second_run = None if after.type.dtype.kind in _WITHOUT_ORDER else SecondRun(after)
        try:
            yield
        finally:
            self.second_run = before

    def had_later(self, run: SecondRun, values: Sequence[Value]) -> list[Value]:
        """The operands of an op of a second run: those from outside as they are once it may run.

        What is elsewhere (the state of a generator of random numbers) waits for nothing on this device.
        """
        found: list[Value] = []
        for value in values:
            if value in run.made or _is_number(value) or value.type.device != run.after.type.device:
                found.append(value)
                continue
            known = run.later.get(value)
            if known is None:
                (known,) = self.builder.apply(Later(), (value, run.after))
                run.later[value] = known
            found.append(known)
        return found


def _is_number(value: Value) -> bool:
    """Whether a value costs nothing to keep, or cannot be waited for."""
    return value.type.dtype.kind in _WITHOUT_ORDER or prod(value.type.shape) == 1
