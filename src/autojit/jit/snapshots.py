"""What a capture has changed outside, seen by comparing before and after; it is put back.

A capture runs the function once, and what that run stores would be stored once. What a step can take over is handed to
``assigned_places``, what it can do again at every call to ``contents``; the rest is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import is_
from types import MethodType
from typing import TYPE_CHECKING, Any

import numpy as np

from autojit.core.epoch import put_switch, switch_values, switches_since, tables_of_all
from autojit.core.errors import TraceError
from autojit.core.source import here
from autojit.core.wrapping import own
from autojit.history.gradients import hook_tables
from autojit.jit.arguments import BAKED, ArgumentLeaf
from autojit.jit.assigned_places import Assigned, Rebinding
from autojit.jit.calls import Call
from autojit.jit.container_changes import WHOLE
from autojit.jit.counted_reads import UNCOUNTED
from autojit.jit.eager_mode import set_modes
from autojit.jit.guards import PRIMITIVES, Guard, same, stays
from autojit.jit.histories import history_of
from autojit.jit.line_by_line import FlaggedBase, LeftHooks, MadeLayers, NewPlaces, RetainsGradient
from autojit.jit.observer import Observer
from autojit.jit.outcomes import DrawnOtherwise, Rebinds, Releases, Turned
from autojit.jit.places import Location, is_a
from autojit.jit.pytree import flatten, leaves_of, taken_apart
from autojit.jit.replaced_code import note_class, watch
from autojit.jit.traced_number import TracedNumber
from autojit.runtime.entry_spec import MISSING, DictGuard
from autojit.tensor.state import HookChanges, set_layers, set_trace, state
from autojit.tensor.tensor import Tensor, type_of

if TYPE_CHECKING:
    from autojit.jit.trace import Trace


class Snapshot:
    """What the places that a capture writes held before it ran."""

    def __init__(self, observer: Observer) -> None:
        self.observer = observer
        self._hooks: list[tuple[str, Callable[[], Iterable[Any]]]] = []  # what hooks may be registered on, their tables
        self._leaves: list[Tensor] = []
        self._of_arguments: list[Callable[[], Iterable[Any]]] = []  # the tables of hooks on what stands for arguments
        self._flags: list[tuple[Tensor, bool]] = []
        self._switches = switch_values()
        self.modes, self._layers = (state.grad_enabled, state.inference), state.layers
        self._recording_hooks = state.recording_hooks  # those of the caller get what the call saves, not the capture
        self._assigned: set[tuple[int, Any]] = set()  # places to which every call assigns an object
        self._outer_changes, self.hook_changes = state.hook_changes, HookChanges()
        for kind, table in tables_of_all().items():
            self._hooks.append((kind, partial(tuple, (table,))))
        observer.on_tensor, observer.changes, observer.settle = self._keep, self._changes, self.settle

    def _keep(self, t: Tensor) -> None:
        node = None if t._accumulator is None else t._accumulator()
        # where there is no node yet, the step makes it, with all its hooks, at every call
        tables = (lambda: t._leaf_hooks or ()) if node is None else node.hook_tables
        self._hooks.append((f"a tensor {type_of(t)}", tables))
        self._leaves.append(t)
        for node in history_of([t]):
            node.count_hooks()
            self._hooks.append((f"the history of a tensor {type_of(t)}", node.hook_tables))
        if t.is_leaf:
            self._flags.append((t, t._requires_grad))

    def know_argument(self, shell: Tensor) -> None:
        """What the function leaves on an argument's stand-in, it leaves on the argument."""
        node = shell._grad_fn
        self._of_arguments.append((lambda: shell._leaf_hooks or ()) if node is None else node.hook_tables)

    def check(self, rebinding: Rebinding | None, call: Call, result: object) -> None:
        """After the function has run: whether its steps have all the arguments and results that they need.

        Raises:
            Turned: there are more places that the step can take over, hidden inputs, or calls to make afterwards; there
                are fewer; what it draws cannot be given to a step; what it has read has changed meanwhile.
            LineByLine: it puts other layers into a module, or assigns to places that are new in every run.
            TraceError: it did what cannot be done again at every call.
        """
        observer = self.observer
        if observer.is_torn:
            call.give_up_torn()
        if observer.counted.put_layers_back():
            raise MadeLayers
        self._refuse_hooks()
        made = [t for t in leaves_of(result) if isinstance(t, Tensor)]
        if any(t._retains_grad and t._grad is None for t in made):
            raise RetainsGradient().always()
        flagged = [t._storage for t, flag in self._flags if t._requires_grad is not flag and t._storage is not None]
        if any(t._view is not None and t._storage in flagged for t in made):
            raise FlaggedBase().always()
        assert call.trace is not None
        call.trace.asks_attributes = observer.attributes.check(result, observer.outside)
        if any(self._is_new(place.key) for place, _ in observer.written.values()):
            raise Turned(DrawnOtherwise(observer.drawn, NewPlaces))
        self.settle()
        self._guard_what_stayed()
        changed = self.take_back()
        observer.contents.settle()
        if changed or observer.drawn:
            raise Turned(Rebinds(changed, drawn=observer.drawn))
        if observer.deferred and rebinding is None:
            raise Turned(Rebinds((), "done after every call: what the function appends or prints"))
        if rebinding is not None and rebinding.idle:
            raise Turned(Releases(rebinding.idle))

    def _refuse_hooks(self) -> None:
        """Hooks on what exists outside would be one more at every call."""
        left = [table for found in self._of_arguments for table in found() if table]
        if any(number in table for table in left for number in self.hook_changes.added):
            raise LeftHooks().always()
        for on, _, _ in self._registered():
            raise TraceError(
                "jit: the step registers a hook on something that exists outside it",
                {"on": on},
                "do it outside the step, or remove in the step what it registers",
            )
        for hook in self._removed_from_outside():
            name = own(hook, "__qualname__", type(hook).__name__)
            raise TraceError(
                "jit: the step removes a hook that exists outside it", {"hook": name}, "remove it outside the step"
            )

    def _removed_from_outside(self) -> list[Any]:
        """The hooks from before the capture that it has removed, except for those of lazy layers; they are back now."""
        found: list[Any] = []
        added = self.hook_changes.added
        for table, number, before in reversed(self.hook_changes.removed):
            hook = before[number]
            function = hook[0] if type(hook) is tuple else hook
            if number not in added and not own(function, "removes_itself", False):
                found.append(function)
                others = dict(table)  # those of other threads among them
                table.clear()
                table.update({key: hook for key, hook in before.items() if key not in added} | others)
        return found

    def modes_left(self) -> tuple[bool, int] | None:
        """(grad, inference) if the function has left them otherwise."""
        now = state.grad_enabled, state.inference
        return None if now == self.modes else now

    def settle(self) -> None:
        """Objects that the function has assigned, or replaced by others, are assigned after every call."""
        for location, before in list(self._changes()):
            value = location.read()
            is_object = not (_is_data(value) and _is_data(before)) or self._is_made_container(location, value, before)
            if is_object:
                if isinstance(before, np.ndarray) and location.identity in self.observer.places_read:
                    raise _array_replaced(location)
                location.write(before)
                self._assigned.add(location.identity)
                self.observer.defer(Assigned(self._counted(location)), value)
        for name, value, _ in switches_since(self._switches):
            self.observer.defer(partial(put_switch, name), value)
        self._put_switches()

    def _is_made_container(self, location: Location, value: object, before: object) -> bool:
        """Whether a place gets a container to which the step gives no part of what was in the place.

        It is one object, which later calls may add to: as data of the step it would be another one after each of them.
        """
        if isinstance(value, tuple) or not _is_nest(value):
            return False
        read, holder = self.observer.places_read, id(location.holder)
        return not _is_nest(before) or not (location.identity in read or (holder, WHOLE) in read)

    def _is_new(self, key: object) -> bool:
        """Whether a key, or an object in it, is another one in every run of the function."""
        if is_a(key, tuple):
            return any(map(self._is_new, key))
        if is_a(key, PRIMITIVES):
            return is_a(key, int) and key in self.observer.new_numbers
        hashing: Any = type(key).__hash__
        by_identity = is_a(key, Tensor) or hashing is object.__hash__
        return by_identity and id(key) not in self.observer.outside and not is_a(key, type)

    def _guard_what_stayed(self) -> None:
        """Places that hold what the function has assigned to them, as they did before it: the step assigns nothing."""
        observer, counted = self.observer, self.observer.counted
        kept = [(place, before) for place, before in observer.written.values() if stays(place.read(), before)]
        for name, table, before in counted.tables.values():
            keys = [key for key in before if (id(table), key) in counted.assigned and same(table.get(key), before[key])]
            kept += [(Location(f"{name}.{key}", table, key), before[key]) for key in keys]
        known = self._assigned | observer.places_read.keys() | observer.rebound
        for place, before in kept:
            observer.mean(before)  # as it leaves the step, were the place to hold another one
            if place.identity not in known:
                is_plain = type(place.holder) is dict and type(place.key) is str
                native = DictGuard(place.holder, place.key, before) if is_plain else None
                guard = Guard(place.name, place.read, before, native, source=here())
                guard.held_by = None if is_plain else (place.holder, place.key)
                observer.guards.append(guard)

    def _put_switches(self) -> None:
        for name, _, before in switches_since(self._switches):
            put_switch(name, before)

    def _counted(self, location: Location) -> Location:
        return replace(location, is_counted=id(location.holder) in self.observer.counted.tables)

    def take_back(self) -> list[Location]:
        """Put back what the function has changed; the places that a step can take over."""
        found: dict[tuple[int, Any], Location] = {}
        refused: TraceError | None = None
        for location, before in list(self._changes()):
            if location.identity not in found:
                found[location.identity] = self._counted(location)
                try:
                    location.write(before)
                except Exception as error:  # of a user's __setattr__
                    refused = _not_put_back(location.name, error)
        if refused is not None:
            raise refused
        return list(found.values())

    def leave(self, trace: Trace) -> None:
        """The capture ends: what the function has changed is as it was, and the thread is in no capture any more.

        Raises:
            TraceError: users' objects refuse to be put back.
        """
        set_trace(None)  # first: putting back is nothing that the function does, and that a step could not
        try:
            self.take_back()
            self._put_switches()
            self.observer.contents.put_back()
            self.observer.counted.put_layers_back()
        finally:
            state.recording_hooks = self._recording_hooks
            set_layers(self._layers)
            set_modes(self.modes)
            trace.restore()
            self.restore_hooks()

    def restore_hooks(self) -> None:
        """Hooks that the function registered while it was captured would stay for every later capture."""
        state.hook_changes = self._outer_changes
        if self._outer_changes is not None:
            self._outer_changes.added |= self.hook_changes.added
        self._hooks += [("", partial(hook_tables, t)) for t in self._leaves]  # and those of nodes that live on
        for _, table, number in list(self._registered()):
            table.pop(number, None)  # a leaf may have been met in several ways
        self._removed_from_outside()

    def _registered(self) -> Iterator[tuple[str, dict[Any, Any], int]]:
        """The hooks that the function has left on what exists outside it: on what, the table, the number."""
        tables = [(on, table) for on, found in self._hooks for table in found() if table]
        for on, table in (*tables, *self.observer.counted.hooks):
            yield from ((on, table, number) for number in self.hook_changes.added if number in table)

    def _changes(self) -> Iterable[tuple[Location, Any]]:
        for t, flag in self._flags:
            if t.is_leaf and t._requires_grad is not flag:  # else an in-place change gave it a history
                yield Location("requires_grad of a tensor", t), flag
        for location, before in list(self.observer.written.values()):
            if not stays(location.read(), before):
                yield location, before
        counted = self.observer.counted
        for name, table, before in counted.tables.values():
            if _is_untouched(table, before):
                continue  # most tables
            for key in dict.fromkeys((*table, *before)):
                if (id(table), key) in self.observer.rebound or key in UNCOUNTED:
                    continue  # the step's own argument, put there for the capture; what no compiled step counts
                old, new = before.get(key, MISSING), table.get(key, MISSING)
                is_own = id(table) in counted.of_own and (id(table), key) not in counted.assigned
                if not same(new, old) and (not is_own or key == "training" or _is_traced(new)):
                    yield Location(f"{name}.{key}" if isinstance(key, str | int) else name, table, key), old


def observed(
    function: Callable[..., Any],
    rebinding: Rebinding | None,
    baked: Mapping[str, Any],
    made: Sequence[ArgumentLeaf],
    leaves: Sequence[Any],
    attributes: set[str],
) -> tuple[Observer, Snapshot]:
    """The observer of a capture that begins: what exists is the function, what it is bound to, ``baked``, and hooks of
    the arguments ``leaves``, for which the capture has ``made`` leaves; they have ``attributes`` that it asks for.
    """
    observer = Observer(frozenset() if rebinding is None else rebinding.identities)
    observer.attributes.begin(made, leaves, attributes)
    snapshot = Snapshot(observer)
    watch(observer)
    note_class(observer, Tensor)
    if isinstance(function, MethodType):
        observer.enter(function.__self__, "self")
    observer.enter(function, own(function, "__name__", type(function).__name__))
    for name, value in baked.items():
        observer.enter(value, name)
    for shell in [leaf.shell for leaf in made if leaf.kind == "tensor" and leaf.shell is not None]:
        snapshot.know_argument(shell)
    for leaf in (leaf for leaf in leaves if isinstance(leaf, Tensor)):
        observer.enter(type(leaf))
        for hook in (hook for table in hook_tables(leaf) for hook in (table or {}).values()):
            observer.enter(hook, f"a hook of an argument {type_of(leaf)}")
    state.recording_hooks = None
    state.hook_changes = snapshot.hook_changes  # last: nothing that comes before takes it back when it fails
    return observer, snapshot


def _is_untouched(table: Mapping[Any, Any], before: Mapping[Any, Any]) -> bool:
    """Whether two tables hold the very same items in the same order: quick to see for those that nobody touched."""
    same_keys = len(table) == len(before) and all(map(is_, table, before))
    return same_keys and all(map(is_, table.values(), before.values()))


def _is_traced(value: object) -> bool:
    return any(isinstance(leaf, Tensor) and leaf._array is None for leaf in flatten(value)[0])


def _not_put_back(name: str, error: Exception) -> TraceError:
    return TraceError(
        "jit: the step assigns to a place that cannot be given back what it held",
        {"place": name, "because": f"{type(error).__name__}: {error}"},
        "assign it outside the step",
    )


def _array_replaced(location: Location) -> TraceError:
    return TraceError(
        "jit: the step reads a NumPy array and assigns another one to its place",
        {"place": location.name},
        "keep it in a tensor, or pass it as an argument and return what it becomes",
    )


def _is_nest(value: object) -> bool:
    return taken_apart(value) is not None


def _is_data(value: object) -> bool:
    """Whether a step can take a value in and give it out: nests of tensors, numbers and constants."""
    leaves, _ = flatten(value)
    return value is MISSING or all(
        isinstance(leaf, (Tensor, TracedNumber, np.generic, np.ndarray, *BAKED)) for leaf in leaves
    )
