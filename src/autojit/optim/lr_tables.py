"""Schedules as tables: what they will set, call by call, for steps that go on without Python (`autojit.export`).

What a schedule sets depends on how often it has been called, and on nothing that a step computes. So its values for so
many calls can be worked out beforehand, by a copy of it on a copy of the optimiser's options; in the captured step a
call takes the next row. A table that has come to its end is an error of the look-up, with the line of the call.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from autojit.core.errors import UnsupportedError
from autojit.optim.param_group import ParamGroup
from autojit.tensor import Tensor
from autojit.tensor.state import outside_trace
from autojit.tensor.tensor import wrap

if TYPE_CHECKING:
    from autojit.optim.lr_base import LRScheduler


class Option(NamedTuple):
    """A number among an optimiser's options: of which group, its name, and its place in a tuple (betas)."""

    group: int
    name: str
    place: int | None


class _Stand:
    """What a copied schedule has for its optimiser: the options, without the parameters."""

    _is_captured = True  # no warnings about the order of calls
    _step_calls = 0

    def __init__(self, groups: list[ParamGroup]) -> None:
        self.param_groups = [{name: _plain(value) for name, value in g.items() if name != "params"} for g in groups]

    def is_made_in(self, trace: object) -> bool:
        """Its schedules step at once, whatever is captured."""
        return True


def _plain(value: Any) -> Any:
    return float(value) if isinstance(value, Tensor) else value


class Table:
    """What a schedule will set.

    Args:
        calls: how many of its steps.
    """

    def __init__(self, schedule: LRScheduler, calls: int) -> None:
        self.schedule = schedule
        rows = list(_simulated(schedule, calls))
        first = dict(_numbers(schedule.optimizer.param_groups))
        self.options = [o for o in first if any(row.get(o) != first[o] for row in rows)]
        values = np.array([[row[o] for o in self.options] for row in rows], np.float64).reshape(calls, -1)
        self._check(values, first)
        with outside_trace():
            self.values, self.count = wrap(values), wrap(np.zeros((), np.int64))

    def _check(self, values: Any, first: dict[Option, float]) -> None:
        """Steps know the sign of an option; the last row is for nobody."""
        for column, option in enumerate(self.options):
            other = (np.sign(values[:-1, column]) != np.sign(first[option])) | ~np.isfinite(values[:-1, column])
            if other.any():
                call = int(other.argmax()) + 1
                raise UnsupportedError(
                    f"export: the schedule sets {option.name} to a number of another sign, which is another step",
                    {"call": call, option.name: values[call - 1, column], "before": first[option]},
                    f"let schedule_steps be {call} at most",
                )

    def step(self) -> None:
        """Set the next row's values; in a captured step."""
        row = self.values[self.count]
        for column, option in enumerate(self.options):
            group = self.schedule.optimizer.param_groups[option.group]
            value = group.plain(option.name)
            target = value if isinstance(value, Tensor) else group.slot(option.name, option.place)
            target.copy_(row[column])
        self.count.add_(1)


def _numbers(groups: Any) -> Iterator[tuple[Option, float]]:
    for k, group in enumerate(groups):
        for name, value in dict.items(group):
            if name == "params":
                continue
            parts = enumerate(value) if isinstance(value, tuple | list) else ((None, value),)
            for place, part in parts:
                if isinstance(part, int | float | Tensor) and not isinstance(part, bool):
                    yield Option(k, name, place), float(part)


def _simulated(schedule: LRScheduler, calls: int) -> Iterator[dict[Option, float]]:
    """The options after each of the next calls."""
    stand = _Stand(schedule.optimizer.param_groups)
    ahead = copy.deepcopy(schedule, {id(schedule.optimizer): stand})
    for _ in range(calls):
        ahead.step()
        yield dict(_numbers(stand.param_groups))


class _Asked(threading.local):
    calls = 0

    def __init__(self) -> None:
        self.tables: dict[int, Table] = {}


_asked = _Asked()


@contextmanager
def tabulated(calls: int) -> Iterator[None]:
    """While inside, captured steps of schedules take rows of tables of so many calls."""
    before = _asked.calls, _asked.tables
    _asked.calls, _asked.tables = calls, {}
    try:
        yield
    finally:
        _asked.calls, _asked.tables = before


def table_of(schedule: LRScheduler) -> Table | None:
    """The table of a schedule, where tables are asked for; the same one in every capture."""
    if not _asked.calls:
        return None
    if id(schedule) not in _asked.tables:
        _asked.tables[id(schedule)] = Table(schedule, _asked.calls)
    return _asked.tables[id(schedule)]
