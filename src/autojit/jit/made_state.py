"""Python state that a step has made itself, as far as the body of a loop or branch can reach and change it.

What exists outside a step is the observer's, which sees each write to it. What the step makes is nobody's business
until a body that is captured once changes it. So it is walked before the body runs, and compared afterwards: the cells,
attributes and containers that lead on from the body's functions. Of what cannot be looked into (an iterator, a file, a
generator of random numbers) a use is taken for a change, and told by the observer.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, MethodWrapperType, ModuleType
from typing import Any

import numpy as np

from autojit.core.source import is_own
from autojit.jit.container_changes import BASES
from autojit.jit.guards import PRIMITIVES
from autojit.jit.held_contents import parts_of, snapshot
from autojit.jit.observed_functions import BAGS, is_own_class, is_user_class, is_without_secrets
from autojit.jit.places import attributes_of, cell_content, is_a
from autojit.jit.reachable import OWN_STATE, RANDOM, UNSEEN, slots_of
from autojit.jit.traced_number import TracedNumber
from autojit.runtime.entry_spec import MISSING
from autojit.tensor.tensor import Tensor

_FIXED = (
    *PRIMITIVES, range, slice, type(Ellipsis), type(NotImplemented), ModuleType, CodeType, TracedNumber, np.generic,
    np.dtype, np.ufunc, super, property, staticmethod, classmethod,
)  # fmt: skip


class MadeState:
    """What a body may change of what the step has made.

    ``functions``: those of the body; ``written``: what the step has put into places outside; ``outside``: by id, what
    is not the step's. ``opaque``: what is changed when it is used.
    """

    def __init__(self, functions: Iterable[Any], written: Iterable[Any], outside: Collection[int]) -> None:
        self.opaque: dict[int, Any] = {}
        self._outside = outside
        self._seen: dict[int, Any] = {}
        self._parts: list[tuple[str, Any, Any]] = []  # name, what holds something, what it held
        waiting = [("what the step has made", value) for value in (*functions, *written)]
        while waiting:
            name, value = waiting.pop()
            if not is_a(value, _FIXED) and id(value) not in self._seen and id(value) not in outside:
                self._seen[id(value)] = value
                waiting += self._leading_from(name, value)

    def changed(self) -> list[str]:
        """The names of what holds something else now."""
        return [name for name, holder, before in self._parts if not _is_same(_held(holder), before)]

    def _leading_from(self, name: str, value: Any) -> list[tuple[str, Any]]:
        """What a value leads to, with names; notes what it holds."""
        if is_a(value, Tensor):
            return self._attributes(name, value)
        if is_a(value, FunctionType):
            return self._function(value)
        if is_a(value, MethodType):
            return [(name, value.__func__), (name, value.__self__)]
        if is_a(value, BuiltinFunctionType | MethodWrapperType):
            return [(name, value.__self__)]
        if is_a(value, functools.partial):
            return [(name, part) for part in (value.func, value.args, value.keywords)]
        if isinstance(value, BASES):
            return self._container(name, value)
        return self._object(name, value)

    def _container(self, name: str, container: Any) -> list[tuple[str, Any]]:
        if not is_a(container, tuple | frozenset):
            self._parts.append((name, container, _held(container)))
        return [(name, part) for _, part in parts_of(container)]

    def _function(self, function: FunctionType) -> list[tuple[str, Any]]:
        found = [(function.__name__, part) for part in (function.__defaults__, function.__kwdefaults__)]
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            if id(cell) not in self._outside and id(cell) not in self._seen:
                self._seen[id(cell)] = cell
                if not is_own(function.__code__):
                    self._parts.append((name, cell, _held(cell)))
                found.append((name, cell_content(cell)))
        return found + self._attributes(function.__name__, function)

    def _object(self, name: str, value: object) -> list[tuple[str, Any]]:
        kind = type(value)
        if is_a(value, type):
            return []
        if is_own_class(kind):
            return self._attributes(name, value, is_noted=kind.__module__.startswith(OWN_STATE))
        if is_user_class(kind) or kind.__name__ in BAGS:
            for slot in slots_of(kind):
                self._parts.append((f"{name}.{slot}", _Slot(value, slot), getattr(value, slot, MISSING)))
            found = [(f"{name}.{slot}", getattr(value, slot, MISSING)) for slot in slots_of(kind)]
            return found + self._attributes(name, value)
        if is_a(value, RANDOM) or not is_without_secrets(kind):
            self.opaque[id(value)] = value
        return []

    def _attributes(self, name: str, value: object, is_noted: bool = True) -> list[tuple[str, Any]]:
        table = attributes_of(value)
        if not is_a(table, dict) or id(table) in self._seen:
            return []
        self._seen[id(table)] = table
        if is_noted:
            self._parts.append((f"an attribute of {name}", table, _held(table)))
        return [(f"{name}.{key}", part) for key, part in table.items() if key not in UNSEEN]


class _Slot:
    """A slot of an object."""

    def __init__(self, obj: object, name: str) -> None:
        self.obj = obj
        self.name = name


def _held(holder: Any) -> Any:
    """What a holder holds, for ``_is_same``."""
    if is_a(holder, CellType):
        return cell_content(holder)
    if type(holder) is _Slot:
        return getattr(holder.obj, holder.name, MISSING)
    if is_a(holder, dict):
        return snapshot({key: value for key, value in holder.items() if key not in UNSEEN}, frozenset())
    return snapshot(holder, frozenset())


def _is_same(a: Any, b: Any) -> bool:
    """Whether nothing was put into a holder: the same objects, or equal plain ones."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if is_a(a, tuple):
        return len(a) == len(b) and all(map(_is_same, a, b))
    if is_a(a, np.ndarray):
        return bool(a.shape == b.shape and a.tobytes() == b.tobytes())
    return bool(is_a(a, (*PRIMITIVES, frozenset)) and (a == b or (a != a and b != b)))
