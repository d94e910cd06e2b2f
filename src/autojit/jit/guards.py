"""Guards: what a capture baked in, and whether it still holds.

A capture reads Python state through the function's closure cells, the globals its code names, attributes of the objects
found there, and modules. ``collect`` walks what the function can reach and snapshots it as guards, each with the name a
user would write. Cheap ones are checked natively by identity on every call; all are checked by equality when the native
check fails. Modules and optimiser groups count their changes in the guard epoch, so they cost one comparison; contents
of lists and class attributes are compared by Python before each call.
"""

from __future__ import annotations

import dis
import functools
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import BuiltinFunctionType, CodeType, FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any

import numpy as np

from autojit.core.device import Device
from autojit.core.dtypes import DType
from autojit.core.source import is_own
from autojit.runtime.entry_spec import MISSING, CellGuard, DictGuard
from autojit.tensor.gradients import hook_keys
from autojit.tensor.tensor import Tensor, type_of

PRIMITIVES = (bool, int, float, complex, str, bytes, type(None), DType, Device)
GLOBAL_READS = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS", "STORE_GLOBAL"})
CONTAINER_LIMIT = 256
DEPTH_LIMIT = 6
MODULE_HOOKS = frozenset({"_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"})
CALLED_METHODS = frozenset({"__init__", "__call__", "forward", "setup_context", "backward", "vjp", "jvp"})
_STDLIB = os.path.dirname(os.__file__) + os.sep


@dataclass(eq=False)
class Guard:
    """One fact: ``read()`` still gives something equal to ``expected``.

    ``native``: checked by the entry point; ``by_epoch``: its changes are counted in the guard epoch. A guard that is
    neither is read before every call.
    """

    name: str
    read: Callable[[], Any]
    expected: Any
    native: CellGuard | DictGuard | None = None
    by_epoch: bool = False
    code: CodeType | None = None
    position: int = -1  # of the native guard in the entry point
    held_by: tuple[Any, Any] | None = None  # the dictionary or cell, and the key

    def __post_init__(self) -> None:
        if isinstance(self.native, CellGuard):
            self.held_by = self.native.cell, None
        elif isinstance(self.native, DictGuard):
            self.held_by = self.native.mapping, self.native.key

    def holds(self) -> bool:
        return same(self.read(), self.expected)

    def describe(self) -> str:
        return f"{self.name}: {shown(self.expected)} -> {shown(self.read())}{self.place()}"

    def place(self) -> str:
        """Where the user's code reads the name, as " at file.py:41"."""
        if self.code is None:
            return ""
        name = self.name.rpartition(".")[2].rpartition(" ")[2].partition("[")[0]
        uses = (i for i in dis.get_instructions(self.code) if i.argval == name and i.positions)
        line = next((i.positions.lineno for i in uses if i.positions), None)
        return f" at {os.path.basename(self.code.co_filename)}:{line or self.code.co_firstlineno}"


def shown(value: Any) -> str:
    """A value in one short line; tensors by type, containers by their first items."""
    if value is MISSING:
        return "<absent>"
    if isinstance(value, Tensor):
        return str(type_of(value))
    if isinstance(value, list | tuple):
        items = [shown(v) for v in value[:4]] + (["..."] if len(value) > 4 else [])
        text = f"({', '.join(items)})"
    elif isinstance(value, PRIMITIVES):
        text = repr(value)
    else:
        text = f"<{getattr(value, '__name__', type(value).__name__)}>"
    return text if len(text) <= 80 else text[:77] + "..."


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
    if isinstance(a, MethodType):
        return a.__self__ is b.__self__ and a.__func__ is b.__func__
    return False


class Collector:
    """Walks what a function reaches. ``rebound``: (id of the holder, key) of places that are arguments of the step."""

    def __init__(self, rebound: frozenset[tuple[int, Any]] = frozenset()) -> None:
        self.rebound = rebound
        self.tables: list[tuple[str, Any]] = []  # classes, dictionaries of attributes and others that were looked into
        self.counted: set[int] = set()  # ids of those whose changes the guard epoch counts
        self.of_own: set[int] = set()  # and of those of autojit's own modules
        self.guards: list[Guard] = []
        self.seen: set[Any] = set()
        self.kept: list[Any] = []
        self.tensors: list[Tensor] = []
        self.code: CodeType | None = None

    # -- functions

    def function(self, function: Any, depth: int = 0) -> None:
        """Everything a callable reads: cells, globals, defaults, the object it is bound to, what it calls."""
        if isinstance(function, functools.partial):
            self.function(function.func, depth)
            for k, value in enumerate((*function.args, *function.keywords.values())):
                self.follow(value, f"partial argument {k}", _names_of(function.func), depth)
            return
        if isinstance(function, MethodType):
            self.follow(function.__self__, "self", _names_of(function), depth)
            function = function.__func__
        function = getattr(function, "__wrapped__", function) if not isinstance(function, FunctionType) else function
        if not isinstance(function, FunctionType):
            if not isinstance(function, type | BuiltinFunctionType | ModuleType):
                self.follow(function, type(function).__name__, frozenset(), depth)
            return
        if function in self.seen or depth > DEPTH_LIMIT or is_foreign(function.__code__):
            return
        self.seen.add(function)
        self.kept.append(function)
        before, self.code = self.code, function.__code__
        names = _names(function.__code__)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            self._cell(name, cell, function, names, depth)
        for name in sorted(_global_names(function.__code__)):
            if name in function.__globals__:
                self._global(name, function.__globals__, names, depth)
        for k, value in enumerate((*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())):
            self.follow(value, f"default {k} of {function.__name__}", names, depth)
        if hasattr(function, "__wrapped__"):
            self.function(function.__wrapped__, depth + 1)
        self.code = before

    def _cell(self, name: str, cell: Any, function: FunctionType, names: frozenset[str], depth: int) -> None:
        try:
            value = cell.cell_contents
        except ValueError:
            return

        def read() -> Any:
            try:
                return cell.cell_contents
            except ValueError:
                return MISSING

        if (id(cell), None) in self.rebound:
            return
        self._add(f"{function.__name__}: {name}", read, value, CellGuard(cell, value))
        self.follow(value, name, names, depth)

    def _global(self, name: str, table: dict[str, Any], names: frozenset[str], depth: int) -> None:
        value = table[name]
        if (id(table), name) in self.rebound:
            return
        self._add(f"global {name}", lambda: table.get(name, MISSING), value, DictGuard(table, name, value))
        self.follow(value, name, names, depth)

    def _add(
        self,
        name: str,
        read: Callable[[], Any],
        value: Any,
        native: CellGuard | DictGuard | None,
        by_epoch: bool = False,
    ) -> None:
        if not isinstance(value, ModuleType | BuiltinFunctionType) and not (isinstance(value, type) and native is None):
            self.guards.append(Guard(name, read, value, native, by_epoch, self.code))

    # -- values

    def follow(self, value: Any, name: str, names: frozenset[str], depth: int) -> None:
        """Look into a value the code can reach."""
        if isinstance(value, Tensor):
            self.tensors.append(value)
        elif isinstance(value, FunctionType | MethodType | functools.partial):
            self.function(value, depth + 1)
        elif isinstance(value, ModuleType):
            self._module_globals(value, name, names, depth)
        elif type(value).__name__ == "JitFunction" and is_own_instance(value):  # it is inlined
            self.function(value.function, depth + 1)
        elif isinstance(value, type):
            self._class(value, name, names, depth)
        elif not isinstance(value, (*PRIMITIVES, np.ndarray, np.generic, type, BuiltinFunctionType)):
            self.object(value, name, names, depth)

    def object(self, value: Any, name: str, names: frozenset[str], depth: int = 0) -> None:
        """Attributes of an instance that the code names; modules and optimisers are followed to their parts."""
        if id(value) in self.seen or depth > DEPTH_LIMIT:
            return
        self.seen.add(id(value))
        self.kept.append(value)
        if isinstance(value, dict) and not is_own_instance(value):
            self._dict(value, name, names, depth)
        elif isinstance(value, list | tuple):
            self._sequence(value, name, names, depth)
        elif hasattr(value, "named_modules"):
            self._module(value, name, names, depth)
        elif hasattr(value, "_guard_snapshot"):
            self._add(f"{name} (parameters and options)", value._guard_snapshot, value._guard_snapshot(), None, True)
            self.tensors += [p for group in value.param_groups for p in group["params"]]
            if not (value._is_followed or is_own_instance(value)):
                self._optimizer_state(value, name, names, depth)
        elif not is_own_instance(value):
            self._instance(value, name, names, depth)

    def _optimizer_state(self, optimizer: Any, name: str, names: frozenset[str], depth: int) -> None:
        """What an optimiser of the user's keeps, as it likes."""
        table, state = vars(optimizer), optimizer.state
        where = f"{name}.state"
        self.tables += [(name, table), (where, state)]
        self.tables += [(where, kept) for kept in state.values() if isinstance(kept, dict)]
        if (id(table), "state") not in self.rebound:
            self._add(where, lambda: table.get("state", MISSING), state, DictGuard(table, "state", state))
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        parameters = [p for p in parameters if (id(state), p) not in self.rebound]
        read = functools.partial(_kept_for, state, parameters)
        self._add(f"{where} by parameter", read, read(), None)
        for p in parameters:
            if isinstance(state.get(p), dict):
                self._dict(state[p], where, names, depth + 1)

    def _class(self, cls: type, name: str, names: frozenset[str], depth: int) -> None:
        """Attributes of a user's class that the code names, and the methods that are called without being named."""
        module = sys.modules.get(cls.__module__)
        if depth > DEPTH_LIMIT or is_own_class(cls) or module is None or _is_library(module):
            return
        self.tables.append((name, cls))
        for attribute in sorted(names | CALLED_METHODS):
            member = inspect.getattr_static(cls, attribute, MISSING)
            if member is MISSING or (cls, attribute) in self.seen or (id(cls), attribute) in self.rebound:
                continue
            self.seen.add((cls, attribute))
            function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
            if isinstance(function, FunctionType):
                self.function(function, depth + 1)
            elif isinstance(member, (*PRIMITIVES, list, tuple, dict, Tensor)):
                where = f"{name}.{attribute}"
                self._add(where, lambda a=attribute: getattr(cls, a, MISSING), member, None)  # type: ignore[misc]
                self.follow(member, where, names, depth + 1)

    def _dict(self, table: dict[Any, Any], name: str, names: frozenset[str], depth: int) -> None:
        self._add(f"keys of {name}", lambda: tuple(table), tuple(table), None)
        self.tables.append((name, table))
        for k, (key, item) in enumerate(table.items()):
            if k >= CONTAINER_LIMIT:
                break
            if (id(table), key) in self.rebound:
                continue
            where = f"{name}[{key!r}]"
            native = DictGuard(table, key, item) if type(key) is str and type(table) is dict else None
            self._add(where, lambda key=key: table.get(key, MISSING), item, native)  # type: ignore[misc]
            self.follow(item, where, names, depth + 1)

    def _sequence(self, items: Any, name: str, names: frozenset[str], depth: int) -> None:
        if isinstance(items, list):
            read = functools.partial(_head, items, self.rebound)
            self._add(name, read, read(), None)
            self.tables.append((name, items))
        for k, item in enumerate(items):
            if k >= CONTAINER_LIMIT:
                break
            if (id(items), k) in self.rebound:
                continue
            self.follow(item, f"{name}[{k}]", names, depth + 1)

    def _module_globals(self, module: ModuleType, name: str, names: frozenset[str], depth: int) -> None:
        if module in self.seen or depth > DEPTH_LIMIT or _is_library(module):
            return
        self.seen.add(module)
        table = module.__dict__
        for attribute in sorted(names):
            if attribute in table:
                value = table[attribute]
                where = f"{name}.{attribute}"
                self._add(where, lambda a=attribute: table.get(a, MISSING), value, DictGuard(table, attribute, value))  # type: ignore[misc]
                self.follow(value, where, names, depth + 1)

    def _instance(self, value: Any, name: str, names: frozenset[str], depth: int) -> None:
        names = self._methods(value, names, depth)
        table = getattr(value, "__dict__", None)
        if isinstance(table, dict):
            self.tables.append((name, table))
        for attribute in sorted(names):
            where = f"{name}.{attribute}"
            if (id(table), attribute) in self.rebound or (id(value), attribute) in self.rebound:
                continue
            if isinstance(table, dict) and attribute in table:
                found = table[attribute]
                read = lambda a=attribute, t=table: t.get(a, MISSING)
                self._add(where, read, found, DictGuard(table, attribute, found))
                self.follow(found, where, names, depth + 1)
                continue
            found = inspect.getattr_static(value, attribute, MISSING)
            if isinstance(found, MemberDescriptorType):  # a slot
                found = getattr(value, attribute, MISSING)
                self._add(where, lambda a=attribute: getattr(value, a, MISSING), found, None)  # type: ignore[misc]
                self.guards[-1].held_by = value, attribute
                self.follow(found, where, names, depth + 1)
            elif isinstance(found, (*PRIMITIVES, list, dict, tuple, Tensor)):
                self._class_attribute(value, attribute, found, where, names, depth)

    def _class_attribute(
        self, value: Any, attribute: str, found: Any, where: str, names: frozenset[str], depth: int
    ) -> None:
        table = getattr(value, "__dict__", None)
        cls = type(value)
        if isinstance(table, dict):
            absent = DictGuard(table, attribute, MISSING)
            self._add(f"{where} (of the instance)", lambda: table.get(attribute, MISSING), MISSING, absent)
        self._add(where, lambda: inspect.getattr_static(cls, attribute, MISSING), found, None)
        self.follow(found, where, names, depth + 1)

    def _methods(self, value: Any, names: frozenset[str], depth: int) -> frozenset[str]:
        """Follow the methods the code names; the names with those that the methods use."""
        found = set(names)
        waiting = list(names) + ["__call__"]
        while waiting:
            member = inspect.getattr_static(type(value), waiting.pop(), None)
            member = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
            for layer in _layers(member):
                if isinstance(layer, FunctionType) and not is_foreign(layer.__code__):
                    more = _names(layer.__code__) - found
                    found |= more
                    waiting += more
                    self.function(layer, depth + 1)
        return frozenset(found)

    def _module(self, module: Any, name: str, names: frozenset[str], depth: int) -> None:
        for path, part in module.named_modules():
            self.kept.append(part)
            where = f"{name}.{path}" if path else name
            table = part.__dict__
            tables = (table, part._parameters, part._buffers)
            self.tables += [(where, t) for t in tables]
            self.counted |= set(map(id, tables))
            if is_own_class(type(part)):
                self.of_own |= set(map(id, tables))
            for attribute, found in table.items():
                if (id(table), attribute) in self.rebound:
                    continue
                if isinstance(found, PRIMITIVES):
                    self._add(f"{where}.{attribute}", lambda t=table, a=attribute: t.get(a, MISSING), found, None, True)  # type: ignore[misc]
                    self.guards[-1].held_by = table, attribute
                elif attribute in MODULE_HOOKS:
                    for hook in found.values():
                        self.function(hook, depth + 1)
                elif not is_own_class(type(part)) and not attribute.startswith("_"):
                    if type(found) is dict:
                        self.tables.append((f"{where}.{attribute}", found))
                    self._module_attribute(part, attribute, found, where, names, depth)
            read = functools.partial(_members, part, self.rebound)
            self._add(f"members of {where}", read, read(), None, True)
            self.tensors += [p for p in part._parameters.values() if p is not None]
            if not is_own_class(type(part)):
                self._methods(part, frozenset({"forward"}), depth)

    def _module_attribute(
        self, part: Any, attribute: str, found: Any, where: str, names: frozenset[str], depth: int
    ) -> None:
        table = part.__dict__
        more = _names_of(type(part).forward) | names
        if attribute in more:
            self._add(
                f"{where}.{attribute}", lambda: table.get(attribute, MISSING), found, DictGuard(table, attribute, found)
            )
            self.follow(found, f"{where}.{attribute}", more, depth + 1)


def broken_guard(guards: Sequence[Guard]) -> str | None:
    """What has changed since a capture, or None."""
    return next((guard.describe() for guard in guards if not guard.holds()), None)


def hook_guards(tensors: Iterable[Tensor]) -> list[Guard]:
    """Guards of the hooks of leaves whose gradients a capture has computed or may have computed."""
    found: dict[int, Guard] = {}
    for t in tensors:
        if t._requires_grad or t._leaf_hooks is not None:
            read = functools.partial(hook_keys, t)
            found[id(t)] = Guard(f"hooks of a tensor {type_of(t)}", read, read(), None, True)
    return list(found.values())


def _head(items: list[Any], rebound: frozenset[tuple[int, Any]]) -> tuple[Any, ...]:
    head = items[:CONTAINER_LIMIT]
    if rebound:
        head = [item for k, item in enumerate(head) if (id(items), k) not in rebound]
    return (len(items), *head)


def _members(part: Any, rebound: frozenset[tuple[int, Any]]) -> tuple[Any, ...]:
    """What a module holds, and the numbers of its hooks and of those of all modules."""
    tables = (part._parameters, part._buffers, part._modules)
    held = [t[key] for t in tables for key in t if not rebound or (id(t), key) not in rebound]
    hooks = [tuple(part.__dict__.get(kind, ())) for kind in MODULE_HOOKS]
    return (*held, *hooks, tuple(getattr(part, "_hooks_of_all", ())))


def is_own_class(cls: type) -> bool:
    """Whether a class is autojit's own (its state is counted in the epoch or is tensors)."""
    return cls.__module__.partition(".")[0] == "autojit"


def is_own_instance(value: Any) -> bool:
    """Whether the class of an object is autojit's own."""
    return is_own_class(type(value))


def is_foreign(code: CodeType) -> bool:
    """Whether code is autojit's or a library's: nobody changes the constants it reads between two calls."""
    return is_own(code) or _is_library_file(code.co_filename)


def _is_library_file(path: str) -> bool:
    return path.startswith((_STDLIB, "<frozen")) or "site-packages" in path


def _is_library(module: ModuleType) -> bool:
    root = module.__name__.partition(".")[0]
    if root == "autojit" or (root in sys.stdlib_module_names and root != "__main__"):
        return True
    return _is_library_file(getattr(module, "__file__", None) or "")


def _kept_for(state: Mapping[Any, Any], parameters: Sequence[Tensor]) -> tuple[Any, ...]:
    return tuple([state.get(p, MISSING) for p in parameters])


def _names_of(function: Any) -> frozenset[str]:
    if isinstance(function, functools.partial):
        return _names_of(function.func)
    codes = [getattr(layer, "__code__", None) for layer in _layers(getattr(function, "__func__", function))]
    return frozenset().union(*(_names(code) for code in codes if code is not None))


def _layers(function: Any) -> Iterator[Any]:
    """A function and those that its decorators have wrapped (``@torch.no_grad()``)."""
    while function is not None:
        yield function
        function = getattr(function, "__wrapped__", None)


def _names(code: CodeType) -> frozenset[str]:
    return frozenset(_all_names(code))


def _all_names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _all_names(constant)


@functools.lru_cache(maxsize=4096)
def _global_names(code: CodeType) -> frozenset[str]:
    """The names that code reads as globals; an attribute of the same name (``p.data``) is none of them."""
    own = {i.argval for i in dis.get_instructions(code) if i.opname in GLOBAL_READS}
    return frozenset(own.union(*(_global_names(c) for c in code.co_consts if isinstance(c, CodeType))))


def collect(
    function: Any, objects: Sequence[tuple[str, Any]] = (), rebound: frozenset[tuple[int, Any]] = frozenset()
) -> Collector:
    """Guards of everything ``function`` reads from outside its tensor arguments; ``objects`` are baked-in arguments."""
    collector = Collector(rebound)
    collector.function(function)
    for name, value in objects:
        collector.follow(value, name, _names_of(function), 0)
    return collector
