"""The observer: what users' code reads and writes outside during one capture, recorded as it happens.

How to read: instrumented code (``instrumented_code.py``) calls hooks (``read_hooks.py``), which go to the thread's
``Observer``. The observer knows by identity which objects existed before the
capture: whatever is read from one of them is another. A read of such an object becomes a guard; a write is noted with
what was there before; an object that goes into code which cannot be observed is guarded with all its contents.
Containers and modules of autojit's own are not looked into here: they count their changes (``counted_reads.py``).
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import BuiltinFunctionType, FunctionType, MemberDescriptorType, ModuleType
from typing import Any

from autojit.core.epoch import switch_epoch, switches
from autojit.core.source import relay
from autojit.core.user_warnings import taker
from autojit.jit import outside_arrays
from autojit.jit.argument_nests import ArgumentNests
from autojit.jit.attribute_tables import is_kept_by_c, note_table
from autojit.jit.cached_calls import CachedCalls
from autojit.jit.container_changes import ContainerChanges
from autojit.jit.contents import CONTAINERS, Contents
from autojit.jit.foreign_calls import ForeignCalls
from autojit.jit.guards import Guard, WordsGuard, handed_on, mean_objects
from autojit.jit.late_values import settle
from autojit.jit.named_lookups import by_container
from autojit.jit.numpy_arrays import TracedArray, holds_key
from autojit.jit.numpy_methods import attribute as attribute_of_array
from autojit.jit.observed_calls import ObservedCalls
from autojit.jit.observed_draws import ObservedDraws
from autojit.jit.observed_functions import is_module, is_own_class, is_user_class, is_user_module
from autojit.jit.observed_objects import ObservedObjects
from autojit.jit.observed_writes import ObservedWrites
from autojit.jit.places import Location, attributes_of, defines, is_a, static_attribute
from autojit.jit.pytree import LEAF
from autojit.jit.read_hooks import active
from autojit.jit.replaced_code import note_class, note_name
from autojit.jit.tables import Tables
from autojit.jit.tensor_attributes import TensorAttributes
from autojit.runtime.entry_spec import MISSING
from autojit.runtime.object_layout import type_version
from autojit.tensor.tensor import Tensor


class Observer(ObservedCalls):
    """Reads and writes of one capture.

    Args:
        rebound: places (id of the holder, key) that are arguments of the step already: neither is a read of them a
            guard nor a write of them news.
        is_at_once: the function runs for one call only, which is given what has been drawn: all happens at once.
    """

    def __init__(self, rebound: frozenset[tuple[int, Any]] = frozenset(), is_at_once: bool = False) -> None:
        super().__init__(rebound)
        self.is_at_once = is_at_once
        self.changes: Callable[[], Iterable[tuple[Location, Any]]] = lambda: ()  # places, and what they held before
        self.settle: Callable[[], None] = lambda: None  # what the function has assigned is assigned at every call
        self.told_apart: list[tuple[Tensor, Tensor | None]] = []  # see ``identified``
        self.contents = Contents(self)
        self.foreign = ForeignCalls(self)
        self.cached = CachedCalls(self)
        self.attributes = TensorAttributes(self.defer)
        self.nests = ArgumentNests((), {}, LEAF, ())
        self._switches = switches()

    # -- reads

    def attribute(self, obj: object, name: str, read: Callable[[Any, str], Any] = getattr) -> Any:
        """``obj.name``, which ``read`` gives."""
        kind = type(obj)
        if is_a(obj, TracedArray):
            return attribute_of_array(obj, name)
        if kind in CONTAINERS:
            return outside_arrays.attribute(self, obj, name)
        if kind is Tensor and name in _OF_TENSORS:
            return getattr(obj, name)
        if is_a(obj, Tensor):
            self.attributes.read(obj, name)
        self.foreign.refuse_attribute(obj, name)
        if is_a(obj, type) and self.is_class_made_inside(obj):
            return getattr(obj, name)
        table = attributes_of(obj)
        before = MISSING if table is None else table.get(name, MISSING)
        if (
            before is MISSING
            and (instead := by_container(obj, "__getattr__"))
            and static_attribute(kind, name) is MISSING
        ):
            self._note_attribute(obj, name, MISSING, MISSING)
            return self.calling(instead, name)
        try:
            remembered = self.cached.property(obj, static_attribute(kind, name))
            value = read(obj, name) if remembered is None else remembered()
        except AttributeError:
            self._note_attribute(obj, name, before, MISSING)
            raise
        if self.is_of_step(obj if table is None else table, name):
            return value
        is_made = table is not None and before is MISSING and table.get(name, MISSING) is not MISSING
        if is_made and not is_a(obj, ModuleType):  # a module imports what it is asked for, once
            self.note_write(Location(f"{self.name_of(obj)}.{name}", table, name), MISSING)  # a cached property
            return value
        return self._note_attribute(obj, name, before, value)

    def _note_attribute(self, obj: object, name: str, held: object, value: object) -> Any:
        """Guard an attribute that was read; ``held``: what the object's own dictionary had."""
        kind = type(obj)
        where = f"{self.name_of(obj)}.{name}"
        if is_a(obj, ModuleType):
            if not is_user_module(obj):
                note_name(self, obj, name, where)
                return self._enter_if_observable(value)
            self.note_key(vars(obj), name, where, vars(obj).get(name, MISSING))
            if name not in vars(obj):  # Python asks the module's ``__getattr__``
                asked = vars(obj).get("__getattr__", MISSING)
                self.note_key(vars(obj), "__getattr__", f"{self.name_of(obj)}.__getattr__", asked)
            return self.enter(value, where)
        if is_a(obj, type):
            self._note_class(obj, name)
            self._note_class(kind, name)
            if name in _TOLD_OF_CLASSES and is_user_class(obj):
                self.note(obj, name, where, lambda: getattr(obj, name), value)
            return self.enter(value, where) if value is not MISSING and is_user_class(obj) else value
        if kind is super:
            bound: Any = obj
            cls, after = bound.__self_class__, bound.__thisclass__
            read: Callable[[], Any] = lambda: static_attribute(cls, name, after)
            self.note(
                cls, (after, name), f"super({after.__name__}).{name}", read, read(), WordsGuard(cls, type_version)
            )
            return value
        if id(obj) not in self.outside:
            self._note_class(kind, name)
            return value
        if is_a(obj, Tensor):  # a parameter, or of a class of the user's
            if name not in _OF_TENSORS:
                self.note_key(vars(obj), name, where, held)
                note_table(self, obj)
            self._note_class(kind, name)
            return self.enter(value, where)
        note_table(self, obj)
        is_slot = is_a(static_attribute(kind, name), MemberDescriptorType)
        if not is_slot and (is_own_class(kind) or (is_module(obj) and held is MISSING)):  # these count their changes
            table = attributes_of(obj)
            if table is not None:
                self.note_key(table, name, where, held, is_counted=held is MISSING and id(table) in self.counted.tables)
            self._note_class(kind, name)
            return self.enter(value, where)
        self._note_of_instance(obj, name, where, held, value)
        return self.enter(value, where)

    def _note_of_instance(self, obj: object, name: str, where: str, held: object, value: object) -> None:
        kind = type(obj)
        member = static_attribute(kind, name)
        if is_kept_by_c(member) or is_a(obj, threading.local):
            if name not in ("__dict__", "__weakref__"):
                self.note(obj, name, where, lambda: getattr(obj, name, MISSING), value, held=True)
            return
        table = attributes_of(obj)
        is_data = member is not MISSING and defines(type(member), "__set__")
        if table is not None and not is_data:
            self.note_key(table, name, where, held)
        if table is None and value is MISSING and not is_user_class(kind):
            self.note(obj, name, where, lambda: getattr(obj, name, MISSING), value)
        if held is MISSING or is_data:
            self._note_class(kind, name)
        if value is MISSING or held is not MISSING or is_user_class(kind):
            return
        if member is MISSING or is_a(member, property | functools.cached_property):  # what a library computes
            self.foreign.refuse_if_changed(obj)
            self.note_again(obj, name, where, lambda: getattr(obj, name, MISSING), value)

    def _note_class(self, cls: type, name: str) -> None:
        """A name was looked up in a class: users' classes may be patched."""
        if not is_user_class(cls) or (name.startswith("__") and name.endswith("__")) or self.is_class_made_inside(cls):
            return
        read = functools.partial(static_attribute, cls, name)
        self.note(cls, name, f"{cls.__name__}.{name}", read, read(), WordsGuard(cls, type_version))

    def _enter_if_observable(self, value: object) -> Any:
        """What a library's module holds is constant; functions that users put behind it are observed."""
        if is_a(value, type):
            note_class(self, value)
        elif not is_a(value, ModuleType | BuiltinFunctionType) and not is_own_class(type(value)):
            self.enter(value)
        return value

    def item(self, container: Any, key: object) -> Any:
        """``container[key]``."""
        if self.arrays.are_there and (type(container) is TracedArray or holds_key(key)):
            return self.arrays.item(container, key)
        if is_a(container, Tensor):
            self.contents.escape_masks(key)
            return container[key]
        if id(container) not in self.outside:
            return container[key]
        return self.contents.item(container, key)

    def identified(self, left: object, right: object) -> None:
        """``left is right``: a stand-in for an argument is not a tensor from outside; the argument may be."""
        self.arrays.identified(left, right)
        self.nests.identified(left, right)
        for value in (left, right) if left is not None is not right else ():
            self.mean(value)
        if is_a(left, Tensor) and is_a(right, Tensor):
            for one, other in ((left, right), (right, left)):
                if one._array is None and other._array is not None:
                    self.told_apart.append((one, other))

    def used_as_key(self, value: object) -> None:
        """The identity of an object is asked for, as that of keys is: a stand-in has none."""
        self.mean(value)
        self.arrays.refuse("the identity", value)
        self.nests.used_as_key(value)
        if is_a(value, Tensor) and value._array is None:
            self.told_apart.append((value, None))

    # -- the capture

    @contextmanager
    def observing(self) -> Iterator[None]:
        """Users' functions that this thread runs inside report to this observer."""
        before = active.observer, taker.take
        active.observer, taker.take = self, None if self.is_at_once else self.foreign.warnings.take
        try:
            yield
        except Exception as error:
            settle(error)
            raise
        finally:
            active.observer, taker.take = before
            self._functions.release()

    def all_guards(self, outputs: Iterable[Any] = (), places: Iterable[Location] = ()) -> list[Guard]:
        """What the capture has read, in the order in which it was read; what is counted last.

        ``outputs``, ``places``: see ``mean_objects``.
        """
        self.counted.settle()
        kept = [*handed_on(outputs), *self.meant.values()]
        looked_into = {*map(id, kept), *(identity[0] for identity in self.places_read)}
        for place in self.places.values():
            if place.is_asked and id(place.owner) not in looked_into:
                place.relax()
        for holder, key, name, read in self._late.values():
            self.note(holder, key, name, read, read())
        mean_objects(self.guards, kept, places)
        return [*self.guards, *self.counted.guards, _of_switches(self._switches)]


def _of_switches(found: tuple[object, ...]) -> Guard:
    return Guard("global switches", switches, found, WordsGuard(switch_epoch, lambda counter: counter))


_OF_TENSORS = frozenset(dir(Tensor)) - {"__dict__"}
_TOLD_OF_CLASSES = ("__name__", "__qualname__", "__module__", "__doc__", "__bases__", "__mro__")


_KINDS = Observer, ObservedCalls, ObservedDraws, ObservedWrites, ObservedObjects, Contents, ContainerChanges, Tables
for _kind in _KINDS:
    for _relay in vars(_kind).values():
        if is_a(_relay, FunctionType):
            relay(_relay)  # messages speak of the function that is read or called
