"""Reads that need no guard of their own: modules and optimisers count their changes in the guard epoch.

What autojit's own layers and optimisers read of themselves is read by code that is not observed. So a module that a
capture meets is guarded with all its parts (flags and numbers of its layers, parameters, buffers, submodules, hooks),
an optimiser with its parameters and options. Every assignment to them counts one up, and natively that one number is
compared. Distributions and transforms count nothing; their attributes are guarded one by one.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from autojit.core.epoch import meet
from autojit.jit.guards import PRIMITIVES, Guard
from autojit.jit.observed_functions import MODULE_HOOKS, is_module, is_own_class
from autojit.jit.places import defines
from autojit.jit.replaced_code import note_class
from autojit.runtime.entry_spec import MISSING

if TYPE_CHECKING:
    from autojit.jit.observed_objects import ObservedObjects

UNCOUNTED = frozenset(("_step_calls", "_is_captured"))  # of an optimiser: compiled steps run unseen


class CountedReads:
    """Modules and optimisers that one capture has met.

    ``tables``: the dictionaries in which they keep what they are made of, by id, with a name and what each held.
    """

    def __init__(self, rebound: frozenset[tuple[int, Any]]) -> None:
        self.rebound = rebound
        self.guards: list[Guard] = []
        self.tables: dict[int, tuple[str, dict[Any, Any], dict[Any, Any]]] = {}
        self._layers: list[tuple[dict[str, Any], dict[str, Any]]] = []  # of modules, and what they were
        self.hooks: list[tuple[str, dict[Any, Any]]] = []  # what hooks may be registered on, and their tables
        self.of_own: set[int] = set()  # ids of the tables of autojit's own layers
        self.assigned: set[tuple[int, str]] = set()  # (id of one of these, name): what the user's code assigns there
        self._options: list[Guard] = []  # of optimisers: what they hold is known when all that is read is known

    def meet(self, value: Any, name: str, observer: ObservedObjects) -> None:
        """An object from outside, which may be one of these, or be made of others that autojit's own code reads."""
        if is_module(value):
            self.module(value, name, observer)
        elif defines(type(value), "_guard_snapshot"):
            self.optimizer(value, name, observer)
        elif defines(type(value), "_changes_itself"):
            for key, held in vars(value).items():
                if key not in value._changes_itself:
                    observer.note_key(vars(value), key, f"{name}.{key}", observer.enter(held, f"{name}.{key}"))
                    if type(held) is list:
                        observer.contents.whole(held)

    def module(self, module: Any, name: str, observer: ObservedObjects) -> None:
        """Guard a module and all its parts."""
        for path, part in module.named_modules():
            if id(vars(part)) not in self.tables:
                self._part(part, f"{name}.{path}" if path else name, observer)

    def _part(self, part: Any, where: str, observer: ObservedObjects) -> None:
        table = vars(part)
        meet(table, part._parameters, part._buffers, part._modules)  # first: what changes from now on counts
        observer.outside[id(part)] = part
        observer.names.setdefault(id(part), where)
        note_class(observer, type(part))
        is_own = is_own_class(type(part))
        for kept in (table, part._parameters, part._buffers):
            self._keep(where, kept)
            if is_own:
                self.of_own.add(id(kept))
        self._layers.append((part._modules, dict(part._modules)))
        self._keep_hooks(where, *(table[k] for k in MODULE_HOOKS if table.get(k) is not None))
        for attribute, value in table.items():
            if is_own and (id(table), attribute) not in self.rebound and _is_option(value):
                read = functools.partial(dict.get, table, attribute, MISSING)
                held = value[:] if type(value) is list else value
                guard = Guard(f"{where}.{attribute}", read, held, None, True)
                if held is value or not attribute.startswith("_"):  # a list that users do not know they do not change
                    guard.held_by = table, attribute
                self.guards.append(guard)
            elif type(value) is dict and not attribute.startswith("_") and not is_own:
                self._keep(f"{where}.{attribute}", value)
        members = functools.partial(_members, part, self.rebound)
        self.guards.append(Guard(f"members of {where}", members, members(), None, True))
        for p in part._parameters.values():
            if p is not None and not defines(type(p), "materialize"):  # a lazy one, which the capture makes
                observer.enter(p)
        observer.note_class_of(part)
        if not is_own:
            observer.note_key(table, "forward", f"{where}.forward", table.get("forward", MISSING))

    def optimizer(self, optimizer: Any, name: str, observer: ObservedObjects) -> None:
        """Guard an optimiser: its own snapshot, and for users' classes also what they keep for parameters."""
        read = functools.partial(optimizer._guard_snapshot, self.rebound)
        guard = Guard(f"{name} (parameters and options)", read, None, None, True)
        self.guards.append(guard)
        self._options.append(guard)
        self._keep_hooks(name, optimizer._step_pre_hooks, optimizer._step_post_hooks)
        for p in (p for group in optimizer.param_groups for p in group["params"]):
            observer.enter(p)
        if not (optimizer._is_followed or is_own_class(type(optimizer))):
            self._keep(name, vars(optimizer))
            observer.note_key(vars(optimizer), "state", f"{name}.state", optimizer.state)
            observer.outside.setdefault(id(optimizer.state), optimizer.state)
            observer.names.setdefault(id(optimizer.state), f"{name}.state")

    def note_assigned(self, module: Any, name: str) -> None:
        """The user's code assigns to an attribute of a module, wherever that keeps it."""
        tables = (vars(module), module._parameters, module._buffers, module._modules)
        self.assigned.update((id(table), name) for table in tables)

    def put_layers_back(self) -> bool:
        """Give modules the parts that they had; whether the step has given them others."""
        changed = [
            (now, was) for now, was in self._layers if list(map(id, now.values())) != list(map(id, was.values()))
        ]
        for table, before in changed:
            table.clear()
            table.update(before)
        return bool(changed)

    def settle(self) -> None:
        """When the function has run: which options of optimisers the capture has read."""
        for guard in self._options:
            guard.expected = guard.read()

    def _keep_hooks(self, name: str, *tables: dict[Any, Any]) -> None:
        self.hooks += [(name, table) for table in tables]

    def _keep(self, name: str, table: dict[Any, Any]) -> None:
        self.tables[id(table)] = name, table, dict(table)


def _is_option(value: object) -> bool:
    """Whether a layer of autojit's own may compute by an attribute: a number, sizes by axis, a function."""
    return isinstance(value, (*PRIMITIVES, tuple, list)) or (callable(value) and not is_module(value))


def _members(part: Any, rebound: frozenset[tuple[int, Any]]) -> tuple[Any, ...]:
    """What a module holds, the numbers of its hooks, a ``forward`` of its own, and the table of its attributes."""
    tables = (part._parameters, part._buffers, part._modules)
    held = [t[key] for t in tables for key in t if not rebound or (id(t), key) not in rebound]
    hooks = [tuple(vars(part).get(kind, ())) for kind in MODULE_HOOKS]
    forward = MISSING if (id(vars(part)), "forward") in rebound else vars(part).get("forward", MISSING)
    return (*held, *hooks, forward, vars(part))
