"""Arrays and buffers from outside to whose items a step assigns: the assignments are made after every run.

What the step computes is not there yet when it is captured, so an array that is given some of it does not hold in the
capture what it will hold; nobody may look at it from then on.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

import numpy as np

from autojit.core.source import here
from autojit.jit.late_values import is_of_step
from autojit.jit.line_by_line import LookedAt
from autojit.jit.places import is_a
from autojit.jit.pytree import flatten
from autojit.tensor.state import state

if TYPE_CHECKING:
    from autojit.jit.observer import Observer

ARRAYS = (np.ndarray, bytearray, memoryview, array)


class ArrayWrites:
    """The arrays that one capture writes to."""

    def __init__(self, observer: Observer) -> None:
        self.observer = observer
        self.written: list[Any] = []
        self._unknown: list[Any] = []  # those of them that do not hold what the step has assigned

    def assign(self, container: Any, key: object, value: object) -> None:
        """``container[key] = value`` after every run, and now if all is known."""
        if self.observer.is_at_once:
            container[key] = value
            return
        self.observer.defer(container.__setitem__, key, value)
        self.written.append(container)
        if any(map(is_of_step, flatten((key, value))[0])):
            self._unknown.append(container)
        else:
            container[key] = value

    def is_written(self, container: object) -> bool:
        """Whether the step has assigned to items of a container."""
        return any(container is other for other in self.written)

    def shows(self, value: object, container: object) -> bool:
        """Whether a value is the memory of an array itself."""
        return any(_share_memory(leaf, container) for leaf in flatten(value)[0])

    def check(self, value: object) -> None:
        """Before an array is read: whether it holds what the function has put there.

        Raises:
            GivenUp: it does not, or shows the memory of another that has been written to.
        """
        hidden = [other for other in self.written if other is not value] if self.written else []
        for other in (*self._unknown, *hidden):
            if other is value or _share_memory(other, value):
                self.observer.give_up(self._looked_at(other))

    def settle(self) -> None:
        """At the end of the capture: the step computes with none of them as it is before the call.

        Raises:
            LookedAt: it does.
        """
        trace: Any = state.trace
        for container in self.written if trace is not None else ():
            if any(_share_memory(entry.array, container) for entry in trace.state.values()):
                raise self._looked_at(container)

    def _looked_at(self, container: object) -> LookedAt:
        return LookedAt(f"{self.observer.name_of(container)} ({type(container).__name__})", str(here()))


def _share_memory(a: object, b: object) -> bool:
    return is_a(a, np.ndarray) and is_a(b, np.ndarray) and bool(np.may_share_memory(a, b))
