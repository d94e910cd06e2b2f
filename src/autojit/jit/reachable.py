"""Everything a function can reach and change: walked once to be put back, and again to be compared.

The walk follows closures, the globals that code names, attributes, containers and tensors, and gives each part the name
a user would write. It knows nothing of captures, so it also sees what a capture has overlooked. Objects of libraries
and autojit's own machinery are left out.
"""

from __future__ import annotations

import functools
import random
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from autojit.core.device_array import has_layout, write_array
from autojit.core.records import record
from autojit.core.source import is_own
from autojit.core.wrapping import own
from autojit.functions.random import default_generator
from autojit.history.gradients import hook_tables
from autojit.jit.counted_reads import UNCOUNTED
from autojit.jit.guards import PRIMITIVES
from autojit.jit.held_contents import fill
from autojit.jit.observed_functions import BAGS
from autojit.jit.places import Location
from autojit.tensor.tensor import SLOTS, Tensor

if TYPE_CHECKING:
    pass

DEEPEST = 60
OWN_STATE = tuple(f"autojit.{part}" for part in ("nn", "optim", "amp", "functions.random", "utils", "distributions"))
"""autojit's own objects that users see as state of theirs; the others are machinery and caches."""
UNSEEN = UNCOUNTED | {"_made_in"}  # of steps that run compiled: differ


@record(eq=False, frozen=False)
class Part:
    """One thing the walk has met: where, what, and what it holds."""

    path: str
    value: Any
    content: Any = None  # a copy: of an array, the items of a container


class Walk:
    """The parts that can be reached from some roots, in an order that depends on nothing but the program."""

    def __init__(self, roots: list[tuple[str, Any]]) -> None:
        self.parts: list[Part] = []
        self.first: dict[int, str] = {}
        self.aliases: list[tuple[str, str]] = []  # (path, the path under which the same object was met first)
        self._codes: set[CodeType] = set()
        for path, value in roots:
            self._visit(path, value, 0)

    def _visit(self, path: str, value: object, depth: int) -> None:
        if isinstance(value, PRIMITIVES):
            self.parts.append(Part(path, value))
            return
        if depth > DEEPEST:
            return
        if isinstance(value, tuple):
            self.parts.append(Part(path, value, type(value)))
            for k, item in enumerate(value):
                self._visit(f"{path}[{k}]", item, depth + 1)
            return
        if id(value) in self.first:
            self.aliases.append((path, self.first[id(value)]))
            return
        self.first[id(value)] = path
        for kinds, visit in _VISITS:
            if isinstance(value, kinds):
                visit(self, path, value, depth + 1)
                return
        self._instance(path, value, depth + 1)

    def _tensor(self, path: str, t: Tensor, depth: int) -> None:
        array = t._array
        self.parts.append(Part(path, t, array.copy(order="K") if has_layout(array) else None))
        for hooks in hook_tables(t):
            for hook in (hooks or {}).values():
                self._visit(f"a hook of {path}", hook, depth)
        if t._grad is not None:
            self._visit(f"{path}.grad", t._grad, depth)
        if t.__dict__:
            self._visit(f"vars({path})", t.__dict__, depth)

    def _dict(self, path: str, table: dict[Any, Any], depth: int) -> None:
        self.parts.append(Part(path, table, dict(table)))
        for k, (key, item) in enumerate(table.items()):
            if key not in UNSEEN if isinstance(key, str) else True:
                self._visit(f"{path}[{key!r}]" if isinstance(key, PRIMITIVES) else f"{path}[key {k}]", item, depth)

    def _sequence(self, path: str, items: Iterable[object], depth: int) -> None:
        self.parts.append(Part(path, items, list(items)))
        for k, item in enumerate(items):
            self._visit(f"{path}[{k}]", item, depth)

    def _cell(self, path: str, cell: CellType, depth: int) -> None:
        try:
            content = cell.cell_contents
        except ValueError:
            return
        self.parts.append(Part(path, cell, content))
        self._visit(path, content, depth)

    def _method(self, path: str, method: MethodType, depth: int) -> None:
        self._visit("self" if depth <= 1 else f"{path}.self", method.__self__, depth)
        self._visit(path, method.__func__, depth)

    def _partial(self, path: str, partial: functools.partial[Any], depth: int) -> None:
        self._visit(path, partial.func, depth)
        self._visit(f"{path}.args", (*partial.args, *partial.keywords.values()), depth)

    def _function(self, path: str, function: FunctionType, depth: int) -> None:
        code = function.__code__
        wrapped = own(function, "__wrapped__", None)
        if wrapped is not None:
            self._visit(path, wrapped, depth)
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            self._visit(name, cell, depth)
        if is_own(code) or not _is_users(function.__module__ or ""):
            return
        self._visit(f"defaults of {function.__name__}", function.__defaults__ or (), depth)
        names = sorted(set(_names(code)))
        for name in names:
            if name in function.__globals__:
                self._global(name, function.__globals__, names, depth)

    def _global(self, name: str, table: dict[str, Any], names: list[str], depth: int) -> None:
        value = table[name]
        if isinstance(value, ModuleType):
            module = vars(value)
            if _is_users(value.__name__) and id(value) not in self.first:
                self.first[id(value)] = name
                for attribute in names:
                    if attribute in module:
                        self._global(attribute, module, names, depth + 1)
            return
        self.parts.append(Part(f"global {name}", Location(name, table, name), value))
        self._visit(name, value, depth)

    def _class(self, path: str, cls: type, depth: int) -> None:
        if not _is_users(cls.__module__):
            return
        for base in reversed(cls.__mro__):
            if not _is_users(base.__module__):
                continue
            for name, member in vars(base).items():
                function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
                if isinstance(function, FunctionType):
                    self._visit(f"{path}.{name}", function, depth)
                elif not name.startswith("__") and isinstance(member, (*PRIMITIVES, list, dict, set, Tensor, tuple)):
                    self.parts.append(Part(f"{path}.{name}", Location(name, base, name), member))
                    self._visit(f"{path}.{name}", member, depth)

    def _instance(self, path: str, value: Any, depth: int) -> None:
        cls = type(value)
        if cls.__name__ == "JitFunction" and cls.__module__.startswith("autojit."):
            self._visit(path, value.function, depth)
            return
        if not (cls.__module__.startswith(OWN_STATE) or _is_users(cls.__module__) or cls.__name__ in BAGS):
            return
        self._visit(cls.__name__, cls, depth)
        table = getattr(value, "__dict__", None)
        if isinstance(table, dict):
            self.parts.append(Part(path, table, dict(table)))
            for name, item in list(table.items()):
                if name not in UNSEEN:
                    self._visit(f"{path}.{name}", item, depth)
        for name in slots_of(cls):
            if hasattr(value, name):
                self.parts.append(Part(f"{path}.{name}", _Slot(name, value, name), getattr(value, name)))
                self._visit(f"{path}.{name}", getattr(value, name), depth)


class _Slot(Location):
    """A slot of an object, whatever its class does when it is assigned to."""

    def write(self, value: object) -> None:
        object.__setattr__(self.holder, self.key, value)


RANDOM = (random.Random, np.random.Generator, np.random.RandomState)
RandomSource = random.Random | np.random.Generator | np.random.RandomState
_VISITS: tuple[tuple[Any, Callable[..., None]], ...] = (
    (Tensor, Walk._tensor),
    (np.ndarray, lambda walk, path, array, depth: walk.parts.append(Part(path, array, array.copy(order="K")))),
    (dict, Walk._dict),
    ((list, deque), Walk._sequence),
    (set, lambda walk, path, items, depth: walk.parts.append(Part(path, items, set(items)))),
    (CellType, Walk._cell),
    (MethodType, Walk._method),
    (functools.partial, Walk._partial),
    (FunctionType, Walk._function),
    (type, Walk._class),
    (RANDOM, lambda walk, path, source, depth: walk.parts.append(Part(path, source, _state_of(source)))),
    (ModuleType, lambda *_: None),
)


GENERATOR: list[tuple[str, Any]] = [("the default generator", default_generator)]
"""What every call may reach and other threads may move on meanwhile."""


def world_of(function: object, args: Sequence[object], kwargs: Mapping[str, object]) -> list[tuple[str, Any]]:
    """The roots of a call: its arguments, the function, and Python's sources of random numbers."""
    roots: list[tuple[str, Any]] = [(f"argument {k}", value) for k, value in enumerate(args)]
    roots += [(f"argument {name}", value) for name, value in kwargs.items()]
    roots.append(("function", function))
    return [*roots, ("random", random._inst), ("numpy.random", np.random.mtrand._rand)]


def _state_of(source: RandomSource) -> Any:
    if isinstance(source, random.Random):
        return source.getstate()
    return source.bit_generator.state if isinstance(source, np.random.Generator) else source.get_state(legacy=False)


def _is_users(module: str) -> bool:
    root = module.partition(".")[0]
    if root == "__main__":
        return True
    found = sys.modules.get(module)
    path = getattr(found, "__file__", None) or ""
    return root != "autojit" and root not in sys.stdlib_module_names and "site-packages" not in path


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def slots_of(cls: type) -> list[str]:
    """The names of the slots that instances of a user's class have."""
    if not _is_users(cls.__module__):
        return []
    found: list[str] = []
    for base in cls.__mro__:
        slots = vars(base).get("__slots__", ())
        found += [slots] if isinstance(slots, str) else list(slots)
    return [name for name in found if name not in ("__dict__", "__weakref__")]


class Saved:
    """The parts of a walk with what is needed to put them back as they were."""

    def __init__(self, walk: Walk) -> None:
        self.walk = walk
        self.tensors = [_SavedTensor(p.value, p.content) for p in walk.parts if isinstance(p.value, Tensor)]

    def versions(self) -> dict[int, int]:
        """How often the memory of tensors had been changed, by id of the tensor."""
        return {id(s.t): 0 if s.storage is None else s.storage[1] for s in self.tensors}

    def restore(self) -> None:
        """Put everything back: containers first, which hold the tensors."""
        for part in self.walk.parts:
            value, content = part.value, part.content
            if isinstance(value, dict):
                _restore_dict(value, content)
            elif isinstance(value, list | deque | set):
                fill(value, content)
            elif isinstance(value, CellType):
                value.cell_contents = content
            elif isinstance(value, Location):
                if value.read() is not content:
                    value.write(content)
            elif isinstance(value, np.ndarray):
                if value.flags.writeable:
                    value[...] = content
            elif isinstance(value, RANDOM):
                _restore_random(value, content)
        for saved in self.tensors:
            saved.restore()


class _SavedTensor:
    def __init__(self, t: Tensor, content: object) -> None:
        self.t = t
        self.content = content
        self.slots = [(name, getattr(t, name)) for name in SLOTS]
        self.hooks = [dict(hooks or ()) for hooks in hook_tables(t)]
        storage = t._storage
        self.storage = (
            None if storage is None else (storage.array, storage.version, storage.changed_by, storage.changed_at)
        )

    def restore(self) -> None:
        t = self.t
        for name, value in self.slots:
            if getattr(t, name) is not value:
                setattr(t, name, value)
        for hooks, kept in zip(hook_tables(t), self.hooks, strict=True):
            if hooks is not None:
                _restore_dict(hooks, kept)
        storage = t._storage  # the one that it had, which is put back with the slots
        if storage is not None:
            assert self.storage is not None
            storage.array, storage.version, storage.changed_by, storage.changed_at = self.storage
        if has_layout(t._array) and t._array.flags.writeable and self.content is not None:
            write_array(t._array, self.content)


def _restore_dict(table: dict[Any, Any], content: dict[Any, Any]) -> None:
    now = dict(table)
    same = len(now) == len(content) and all(a is b for a, b in zip(now, content, strict=True))
    if same and all(now[key] is content[key] for key in content):
        return
    kind: type[dict[Any, Any]] = OrderedDict if isinstance(table, OrderedDict) else dict  # not what a user's class does
    kind.clear(table)
    for key, value in content.items():
        kind.__setitem__(table, key, value)
        if now.get(key, table) is not value and type(table).__module__.startswith("autojit."):
            table[key] = value  # an option of an optimiser has a slot that follows it


def _restore_random(source: RandomSource, content: Any) -> None:
    if isinstance(source, random.Random):
        source.setstate(content)
    elif isinstance(source, np.random.Generator):
        source.bit_generator.state = content
    else:
        source.set_state(content)
