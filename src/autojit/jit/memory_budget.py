"""``jit(memory_budget=...)`` and ``memory()``: what a step's temporaries may take, and what they take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autojit.core.errors import TraceError
from autojit.core.user_warnings import warn
from autojit.jit.assigned_places import carried
from autojit.jit.attempts import by_steps
from autojit.jit.calls import alone
from autojit.jit.report import memory_of
from autojit.runtime.gate import UNLESS_REENTERED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from autojit.jit.function import JitFunction
    from autojit.jit.step import CompiledStep


class Measured(BaseException):
    """The step for a call is there, and does not run: it alone is asked for, or its memory."""

    def __init__(self, step: CompiledStep, memory: dict[str, int]) -> None:
        super().__init__()
        self.step = step
        self.memory = memory


def check_budget(budget: object) -> None:
    """ValueError for what ``jit(memory_budget=...)`` does not take."""
    if budget is not None and not (type(budget) is int and budget > 0):
        raise ValueError(f"jit: memory_budget must be None or a number of bytes, 1 or more, not {budget!r}")


def warn_if_missed(owner: JitFunction, step: CompiledStep, arrays: Sequence[Any]) -> None:
    """Tell the user of a step that takes more than it may, for the call that it was captured for."""
    budget = owner.memory_budget
    taken = 0 if budget is None else memory_of(step, arrays)["arena_bytes"]
    if budget is not None and taken > budget:
        told = f"memory_budget={budget}: temporaries of {owner.name} take {taken} bytes at least"
        owner.counts.note(told)
        warn(f"jit: {told}; smaller batches take less, and checkpoint() says by hand what is computed again")


def measured(owner: JitFunction, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, int]:
    """What the step for a call takes, which is captured if need be. State is left as it was.

    Raises:
        TraceError: the call would run line by line.
    """
    return looked_for(owner, args, kwargs).memory


def looked_for(owner: JitFunction, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Measured:
    """The step for a call, which does not run; see `measured`."""
    with UNLESS_REENTERED, alone(owner._lock, owner.natives):
        owner.is_measured = True
        try:
            by_steps(owner, tuple(args), dict(kwargs), carried(owner.function))
        except Measured as found:
            return found
        finally:
            owner.is_measured = False
    raise TraceError(
        "jit: no step serves such a call",
        {"function": owner.name},
        "explain() tells why it runs line by line",
    )
