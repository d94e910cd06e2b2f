"""Containers of an optimiser that count their changes in the guard epoch.

A compiled step looks again at what it reads of an optimiser when the epoch has moved on, and at no other time. So every
change of which parameters, which options and which state there are has to count: these containers are the dictionaries
and lists of torch's interface, and count. In a captured step such a change would happen once: its calls run line by
line, except for containers that the step has made, and for state that is begun.
"""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from autojit.core.counted_dict import ItemByItem, counting
from autojit.optim.param_group import ParamGroup
from autojit.tensor.state import bump_guard_epoch, is_tracing
from autojit.tensor.state import state as now

_OF_LIST = (
    "__setitem__", "__delitem__", "append", "extend", "insert", "pop", "remove", "clear", "reverse", "sort", "__iadd__",
    "__imul__",
)  # fmt: skip


def made_now() -> Any:
    """What tells later in which capture, if any, something is made."""
    return None if now.trace is None else weakref.ref(now.trace)


def count_change(made_in: Any, what: str) -> None:
    """Before a change: it counts. Calls of a step that changes what it has not made run line by line."""
    if now.trace is not None and (made_in is None or made_in() is not now.trace):
        now.trace.cannot(f"the step changes {what} of an optimiser that exists outside it")
    bump_guard_epoch()


def own(optimizer: object, name: str) -> Any:
    """What an optimiser holds under a property's name.

    Raises:
        AttributeError: it holds none, as an object that was given an optimiser's class: its ``__getattr__`` is asked.
    """
    try:
        return vars(optimizer)[name]
    except KeyError:
        raise AttributeError(f"{type(optimizer).__name__!r} object has no attribute {name!r}") from None


def _outside_steps(*names: str) -> Callable[[type], type]:
    """A class decorator: these methods count as changes, which steps do not make."""
    return counting(*names, note=lambda table: count_change(getattr(table, "made_in", made_now()), table.what))


def _note_key(table: dict[Any, Any], key: Any) -> None:
    """Count a new value of a key; state that a capture begins is nothing that another step could have read."""
    if key in table or not is_tracing():
        bump_guard_epoch()


@counting("__delitem__", "clear", "pop", "popitem")
class ParameterState(ItemByItem[str]):
    """What an optimiser keeps for one parameter."""

    __slots__ = ()

    def __setitem__(self, key: str, value: Any) -> None:
        _note_key(self, key)
        dict.__setitem__(self, key, value)

    def __copy__(self) -> dict[str, Any]:
        return dict(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return ParameterState, (dict(self),)


@_outside_steps("__delitem__", "clear", "pop", "popitem")
class OptimizerState(ItemByItem[Any], defaultdict[Any, Any]):
    """What an optimiser keeps, by parameter: a dictionary is made for a parameter that has none."""

    what = "state"
    is_parted = False  # whether no two parameters share a counter, as whoever looks from outside finds them

    def __init__(self, values: Iterable[Any] = ()) -> None:
        super().__init__(ParameterState)
        self.made_in = made_now()
        self.update(values)

    def __setitem__(self, key: Any, value: Any) -> None:
        _note_key(self, key)
        super().__setitem__(key, ParameterState(value) if type(value) is dict else value)

    def __reduce__(self) -> tuple[Any, ...]:
        return OptimizerState, (dict(self),)


@_outside_steps(*_OF_LIST)
class CountedList(list[Any]):
    """The parameters of a group."""

    __slots__ = ("made_in",)
    what = "parameters"

    def __init__(self, values: Iterable[Any] = ()) -> None:
        super().__init__(values)
        self.made_in = made_now()


class ParamGroups(CountedList):
    """An optimiser's groups; a dictionary that is put in becomes one."""

    __slots__ = ()
    what = "groups"

    def __init__(self, groups: Iterable[Any] = ()) -> None:
        super().__init__(map(as_group, groups))
        bump_guard_epoch()

    def __setitem__(self, index: Any, value: Any) -> None:
        before = self[index]
        if isinstance(index, slice):
            groups = list(map(as_group, value))
            for old, new in zip(before, groups, strict=False):
                new.take_over(old)
            super().__setitem__(index, groups)
        else:
            group = as_group(value)
            group.take_over(before)
            super().__setitem__(index, group)

    def append(self, group: Any) -> None:
        """Add a group at the end."""
        super().append(as_group(group))

    def insert(self, index: Any, group: Any) -> None:
        """Add a group before a position."""
        super().insert(index, as_group(group))

    def extend(self, groups: Iterable[Any]) -> None:
        """Add groups at the end."""
        for group in groups:
            self.append(group)

    def __iadd__(self, groups: Iterable[Any]) -> ParamGroups:  # type: ignore[misc]
        self.extend(groups)
        return self


def as_group(group: Any) -> ParamGroup:
    """A dictionary as a group whose numbers compiled steps can read."""
    found = group if isinstance(group, ParamGroup) else ParamGroup(group)
    params = dict.get(found, "params")
    if isinstance(params, list) and not isinstance(params, CountedList):
        dict.__setitem__(found, "params", CountedList(params))
    return found
