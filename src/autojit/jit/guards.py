"""Guards: what a capture baked in, and whether it still holds.

A capture reads Python state through the function's closure cells, the globals its code names, attributes of the objects
found there, and modules. ``collect`` walks what the function can reach and snapshots it as guards, each with the name a
user would write. Cheap ones are checked natively by identity on every call; all are checked by equality when the native
check fails. Modules and optimiser groups count their changes in the guard epoch, so they cost one comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from autojit.core.device import Device
from autojit.core.dtypes import DType
from autojit.core.source import is_own
from autojit.runtime.entry_spec import MISSING, CellGuard, DictGuard
from autojit.tensor.tensor import Tensor

PRIMITIVES = (bool, int, float, complex, str, bytes, type(None), DType, Device)
CONTAINER_LIMIT = 64
DEPTH_LIMIT = 6


@dataclass(eq=False)
class Guard:
    """One fact: ``read()`` still gives something equal to ``expected``."""

    name: str
    read: Callable[[], Any]
    expected: Any
    native: CellGuard | DictGuard | None = None
    position: int = -1  # of the native guard in the entry point

    def holds(self) -> bool:
        return same(self.read(), self.expected)

    def describe(self) -> str:
        return f"{self.name}: {_short(self.expected)} -> {_short(self.read())}"


def _short(value: Any) -> str:
    text = "<deleted>" if value is MISSING else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def same(a: Any, b: Any) -> bool:
    """Equal for a trace: identical, or primitives of one type with one value (nan equals nan, 0.0 is not -0.0)."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return repr(a) == repr(b)
    if isinstance(a, PRIMITIVES):
        return bool(a == b)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return False


def _is_snapshot(value: Any) -> bool:
    return isinstance(value, list | tuple) and len(value) <= CONTAINER_LIMIT and all(
        isinstance(v, PRIMITIVES) or _is_snapshot(v) for v in value
    )


class Collector:
    """Walks what a function reaches."""

    def __init__(self) -> None:
        self.guards: list[Guard] = []
        self.seen: set[int] = set()
        self.modules: list[Any] = []
        self.kept: list[Any] = []

    def function(self, function: Any, depth: int = 0) -> None:
        if isinstance(function, MethodType):
            self.object(function.__self__, "self", _names(function.__func__.__code__), depth)
            function = function.__func__
        if not isinstance(function, FunctionType) or id(function) in self.seen or depth > DEPTH_LIMIT:
            return
        if is_own(function.__code__):
            return
        self.seen.add(id(function))
        self.kept.append(function)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            self._cell(name, cell, function, depth)
        for name in _names(function.__code__):
            if name in function.__globals__:
                self._global(name, function, depth)

    def _cell(self, name: str, cell: Any, function: FunctionType, depth: int) -> None:
        try:
            value = cell.cell_contents
        except ValueError:
            return

        def read() -> Any:
            try:
                return cell.cell_contents
            except ValueError:
                return MISSING

        self._add(f"{function.__name__}: {name}", read, value, CellGuard(cell, value))
        self._follow(value, name, _names(function.__code__), depth)

    def _global(self, name: str, function: FunctionType, depth: int) -> None:
        table = function.__globals__
        value = table[name]
        self._add(f"global {name}", lambda: table.get(name, MISSING), value, DictGuard(table, name, value))
        self._follow(value, name, _names(function.__code__), depth)

    def _add(self, name: str, read: Callable[[], Any], value: Any, native: CellGuard | DictGuard | None) -> None:
        if isinstance(value, list) and _is_snapshot(value):
            self.guards.append(Guard(name, lambda: list(read()), list(value)))
            return
        if isinstance(value, Tensor | np.ndarray) or not isinstance(value, ModuleType | type | BuiltinFunctionType):
            self.guards.append(Guard(name, read, value, native))

    def _follow(self, value: Any, name: str, names: frozenset[str], depth: int) -> None:
        if isinstance(value, FunctionType | MethodType):
            self.function(value, depth + 1)
        elif not isinstance(value, (*PRIMITIVES, Tensor, np.ndarray, ModuleType, type, BuiltinFunctionType)):
            self.object(value, name, names, depth)

    def object(self, value: Any, name: str, names: frozenset[str], depth: int = 0) -> None:
        """Attributes of an instance that the code names; modules are followed to their parts."""
        if id(value) in self.seen or depth > DEPTH_LIMIT or isinstance(value, Tensor):
            return
        self.seen.add(id(value))
        self.kept.append(value)
        if isinstance(value, list | tuple | dict):
            items = value.values() if isinstance(value, dict) else value
            for k, item in enumerate(items):
                if k >= CONTAINER_LIMIT:
                    break
                self._follow(item, f"{name}[{k}]", names, depth + 1)
            return
        if hasattr(value, "named_modules"):
            self._module(value, name, depth)
            return
        table = getattr(value, "__dict__", None)
        if not isinstance(table, dict) or is_own_instance(value):
            return
        for attribute in names:
            if attribute in table:
                found = table[attribute]
                self._add(
                    f"{name}.{attribute}",
                    lambda table=table, attribute=attribute: table.get(attribute, MISSING),  # type: ignore[misc]
                    found,
                    DictGuard(table, attribute, found),
                )
                self._follow(found, f"{name}.{attribute}", names, depth + 1)

    def _module(self, module: Any, name: str, depth: int) -> None:
        for path, part in module.named_modules():
            where = f"{name}.{path}" if path else name
            for attribute, found in part.__dict__.items():
                if isinstance(found, PRIMITIVES) and not attribute.startswith("_"):
                    self.guards.append(
                        Guard(
                            f"{where}.{attribute}",
                            lambda part=part, attribute=attribute: part.__dict__.get(attribute, MISSING),  # type: ignore[misc]
                            found,
                        )
                    )
            self.function(type(part).forward, depth + 1)
        self.modules.append(module)


def is_own_instance(value: Any) -> bool:
    """Whether the class of an object is autojit's own (its state is counted in the epoch or is tensors)."""
    return type(value).__module__.partition(".")[0] == "autojit"


def _names(code: CodeType) -> frozenset[str]:
    return frozenset(_all_names(code))


def _all_names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _all_names(constant)


def collect(function: Any) -> Collector:
    """Guards of everything ``function`` reads from outside its arguments."""
    collector = Collector()
    collector.function(function)
    return collector
