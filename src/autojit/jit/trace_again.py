"""What a capture does while a checkpointed function runs again: everything it computes is computed anew, and late."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import TYPE_CHECKING

from autojit.ir.graph import Value
from autojit.jit.trace_part import TracePart
from autojit.ops.ordering import WITHOUT_ORDER, Later

if TYPE_CHECKING:
    from autojit.core.source import SourceLocation
    from autojit.ir.op import Op


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
        self.second_run = None if after.type.dtype.kind in WITHOUT_ORDER else SecondRun(after)
        try:
            yield
        finally:
            self.second_run = before

    def recorded(self, op: Op, values: Sequence[Value], place: SourceLocation) -> tuple[Value, ...]:
        """An op; in a second run on operands from outside as they are once it may run."""
        run = self.second_run
        if run is None:
            return self.builder.apply(op, values, place)
        made = self.builder.apply(op, [self._had_later(run, value) for value in values], place)
        run.made.update(made)
        return made

    def copied_from(self, value: Value) -> Value:
        """The value that one is an unchanged copy of, late or not: random numbers go on from a state put back."""
        self._index()
        while (node := self.definition.get(value)) is not None:
            if node.op.name not in ("cast", "reshape", "later") or node.inputs[0].type != value.type:
                break
            value = node.inputs[0]
        return value

    def _had_later(self, run: SecondRun, value: Value) -> Value:
        # What is elsewhere (the state of a generator of random numbers) waits for nothing on this device.
        if value in run.made or _is_number(value) or value.type.device != run.after.type.device:
            return value
        if value not in run.later:
            (run.later[value],) = self.builder.apply(Later(), (value, run.after))
        return run.later[value]


def _is_number(value: Value) -> bool:
    """Whether a value costs nothing to keep, or cannot be waited for."""
    return value.type.dtype.kind in WITHOUT_ORDER or prod(value.type.shape) == 1
