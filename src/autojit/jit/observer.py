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
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    MemberDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
)
from typing import Any

from autojit.core.epoch import switches
from autojit.core.source import here, relay
from autojit.core.user_warnings import taker
from autojit.history.gradients import hook_tables
from autojit.jit import outside_arrays
from autojit.jit.argument_nests import ArgumentNests
from autojit.jit.attribute_tables import is_kept_by_c, note_table
from autojit.jit.cached_calls import CachedCalls
from autojit.jit.container_changes import ContainerChanges
from autojit.jit.contents import CONTAINERS, Contents
from autojit.jit.counted_reads import CountedReads
from autojit.jit.foreign_calls import ForeignCalls
from autojit.jit.guards import ClassGuard, CodeGuard, Guard, TypeGuard, WordsGuard, handed_on, mean_objects, same
from autojit.jit.instrumented_code import is_instrumented
from autojit.jit.late_values import settle
from autojit.jit.library_contexts import note_contexts
from autojit.jit.line_by_line import LineByLine
from autojit.jit.named_lookups import by_container
from autojit.jit.numpy_arrays import TracedArray, holds_key
from autojit.jit.observed_calls import ObservedCalls
from autojit.jit.observed_draws import ObservedDraws
from autojit.jit.observed_functions import (
    ObservedFunctions,
    is_module,
    is_own_class,
    is_user_class,
    is_user_module,
    is_user_names,
    own_code,
    special_methods,
)
from autojit.jit.observed_writes import ObservedWrites
from autojit.jit.places import Location, attributes_of, defines, is_a, static_attribute
from autojit.jit.pytree import LEAF
from autojit.jit.read_hooks import HOOKS, PLAIN, active
from autojit.jit.replaced_code import note_class, note_name
from autojit.jit.tables import Tables
from autojit.jit.tensor_attributes import TensorAttributes
from autojit.runtime.entry_spec import MISSING, CellGuard, DictGuard
from autojit.tensor.state import state
from autojit.tensor.tensor import Tensor


class Observer(ObservedCalls, ObservedWrites):
    """Reads and writes of one capture.

    Args:
        rebound: places (id of the holder, key) that are arguments of the step already: neither is a read of them a
            guard nor a write of them news.
        is_at_once: the function runs for one call only, which is given what has been drawn: all happens at once.
    """

    def __init__(self, rebound: frozenset[tuple[int, Any]] = frozenset(), is_at_once: bool = False) -> None:
        super().__init__()
        self.is_at_once = is_at_once
        ObservedWrites.__init__(self)
        self.rebound = rebound
        self.guards: list[Guard] = []
        self.unguarded: list[str] = []
        self.outside: dict[int, Any] = {}  # by id: what existed before; kept, so that no other object gets the id
        self.names: dict[int, str] = {}  # what messages call them
        self.on_tensor: Callable[[Tensor], None] = lambda t: None  # told of every concrete tensor when it is first met
        self.changes: Callable[[], Iterable[tuple[Location, Any]]] = lambda: ()  # places, and what they held before
        self.settle: Callable[[], None] = lambda: None  # what the function has assigned is assigned at every call
        self.told_apart: list[tuple[Tensor, Tensor | None]] = []  # see ``identified``
        self.counted = CountedReads(rebound)
        self.contents = Contents(self)
        self.foreign = ForeignCalls(self)
        self.cached = CachedCalls(self)
        self.attributes = TensorAttributes(self.defer)
        self.places_read: dict[tuple[int, Any], Guard] = {}
        self.is_torn = False  # whether a place gave something else when it was read again: another thread writes it
        self.nests = ArgumentNests((), {}, LEAF, ())
        self._switches = switches()
        self._late: dict[Any, tuple[Any, Any, str, Callable[[], Any]]] = {}
        self._functions = ObservedFunctions(HOOKS)

    def give_up(self, reason: LineByLine) -> None:
        """End the capture that is in progress, if there is one: its call runs line by line."""
        trace: Any = state.trace
        if trace is not None and not self.is_at_once:
            trace.give_up(reason)

    # -- what exists outside

    def enter(self, value: Any, name: str = "") -> Any:
        """``value`` exists outside: what is read from it is guarded. The value."""
        kind = type(value)
        if is_a(value, BuiltinFunctionType | MethodWrapperType) and not is_a(
            value.__self__, ModuleType
        ):  # a method of something outside
            self.enter(value.__self__)
        if kind in PLAIN or id(value) in self.outside:
            if kind is Tensor and id(value) not in self.outside:
                self._enter_tensor(value)
            return value
        self.outside[id(value)] = value
        if name:
            self.names.setdefault(id(value), name)
        if is_a(value, Tensor):
            self._enter_tensor(value)
        elif is_a(value, CellType):
            return value
        else:
            self.counted.meet(value, name or kind.__name__, self)
            note_contexts(self, value)
        self.cached.meet(value)
        if kind not in CONTAINERS:
            note_class(self, value if is_a(value, type) else kind)
            self._functions.behind(value, self._met)
            if is_a(value, FunctionType):
                self._enter_function(value)
                self._note_code(value)
            elif is_a(value, MethodType) and is_a(value.__func__, FunctionType):
                self._note_code(value.__func__)
            elif is_a(value, functools.partial):
                self.note_parts(value)
            elif is_a(value, type):
                self.note_class_of(value)
            elif kind is not MethodType and is_user_class(kind):
                self.note(value, _CLASS, f"type({self.name_of(value)})", lambda: type(value), kind, TypeGuard(value))
                self.note_class_of(value)
        return value

    def observe(self, value: Any) -> None:
        """Something callable is about to run that may have been made inside: its functions report what they read."""
        plain = getattr(value, "__func__", value) if type(value) is MethodType else value
        if is_a(value, functools.partial):
            self.note_parts(value)
            for part in (value.func, *value.args, *value.keywords.values()):
                if callable(part) and not is_a(part, Tensor):
                    self.observe(part)
        elif type(plain) is FunctionType:
            if not self.is_made_inside(plain):
                self.enter(plain)
        elif id(plain) not in self.outside and not is_a(plain, BuiltinFunctionType):
            self._functions.behind(plain, lambda part: None)

    def note_parts(self, value: functools.partial[Any]) -> None:
        """What a ``partial`` holds, which can be changed in place."""
        if id(value) in self.outside:
            read: Callable[[], Any] = lambda: (value.func, value.args, *value.keywords.items())
            self.note(value, _PARTS, f"what {self.name_of(value)} holds", read, read())
            for part in (value.func, *value.args, *value.keywords.values()):
                self.enter(part)

    def is_made_inside(self, function: FunctionType) -> bool:
        """See ``ObservedFunctions``."""
        return self._functions.is_made_inside(function)

    def note_class_of(self, value: Any) -> None:
        """The methods that Python looks up by itself, in the class."""
        cls = value if is_a(value, type) else type(value)
        if is_user_class(cls):
            read, name = functools.partial(special_methods, cls), f"methods of {cls.__name__}"
            self.note(cls, _CLASS, name, read, read(), ClassGuard(cls))
            meta = type(cls)
            if is_user_class(meta):  # where Python looks up what is done with the class itself
                self.note(cls, _META, f"type({cls.__name__})", lambda: type(cls), meta, TypeGuard(cls))
                self.note_class_of(meta)

    def _note_code(self, function: FunctionType) -> None:
        if is_instrumented(function.__code__):
            named = function.__kwdefaults__ or {}
            for name, value in named.items():
                self.note_key(named, name, f"default {name} of {function.__name__}", value)
            read: Callable[[], Any] = lambda: (own_code(function), function.__defaults__, function.__kwdefaults__)
            self.note(function, _CLASS, f"code of {function.__name__}", read, read(), CodeGuard(function))

    def began(self, code: CodeType) -> None:
        """A function runs, whatever has called it: one of those with this code, which no frame tells apart."""
        self.cached.began(code)
        for function in self._functions.with_code(code):
            if is_user_names(function.__globals__):
                self._note_code(function)

    def _met(self, part: Any) -> None:
        if is_a(part, FunctionType):
            self.outside.setdefault(id(part), part)
            self._enter_function(part)
        elif not is_a(part, type | property | staticmethod | classmethod):
            self.enter(part)

    def _enter_tensor(self, t: Tensor) -> None:
        self.outside[id(t)] = t
        if t._array is not None:
            self.on_tensor(t)
        if any(hook_tables(t)) or t._grad_fn is not None:
            self._functions.behind(t, self._met)

    def _enter_function(self, function: FunctionType) -> None:
        if self.is_made_inside(function):
            return
        for cell in function.__closure__ or ():
            self.outside.setdefault(id(cell), cell)
        for k, value in enumerate((*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())):
            self.enter(value, f"default {k} of {function.__name__}")

    def is_of_step(self, holder: Any, key: Any) -> bool:
        """Whether what a place holds comes from the step: its argument, or what it has assigned."""
        identity = id(holder), key
        return identity in self.rebound or identity in self.written

    def name_of(self, value: Any) -> str:
        """What a user would call an object."""
        if is_a(value, ModuleType | type | FunctionType):
            return str(value.__name__)
        return self.names.get(id(value)) or type(value).__name__

    # -- reads

    def note(
        self,
        holder: Any,
        key: Any,
        name: str,
        read: Callable[[], Any],
        value: Any,
        native: CellGuard | DictGuard | WordsGuard | None = None,
        held: bool = False,
    ) -> None:
        """A place outside was read and held ``value``; what it holds is outside too."""
        identity = id(holder), key
        if self.is_of_step(holder, key):
            return
        known = self.places_read.get(identity)
        if known is not None:
            self.is_torn |= not (
                value is known.expected or identity[0] in self.counted.tables or same(value, known.expected)
            )
            return
        guard = self.places_read[identity] = Guard(name, read, value, native, source=here())
        if held:
            guard.held_by = holder, key
        self.outside.setdefault(id(holder), holder)
        self.guards.append(guard)
        if guard.held_by is not None:
            self.note_place(guard, value)

    def late(self, holder: Any, key: Any, name: str, read: Callable[[], Any]) -> None:
        """Like ``note``, of what the capture leaves there."""
        self._late.setdefault((id(holder), key), (holder, key, name, read))

    def attribute(self, obj: Any, name: str, read: Callable[[Any, str], Any] = getattr) -> Any:
        """``obj.name``, which ``read`` gives."""
        kind = type(obj)
        if kind is TracedArray:
            return self.arrays.attribute(obj, name)
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

    def _note_attribute(self, obj: Any, name: str, held: Any, value: Any) -> Any:
        """Guard an attribute that was read; ``held``: what the object's own dictionary had."""
        kind = type(obj)
        where = f"{self.name_of(obj)}.{name}"
        if kind is ModuleType or is_a(obj, ModuleType):
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
            cls, after = obj.__self_class__, obj.__thisclass__
            read: Callable[[], Any] = lambda: static_attribute(cls, name, after)
            self.note(cls, (after, name), f"super({after.__name__}).{name}", read, read(), ClassGuard(cls))
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

    def _note_of_instance(self, obj: Any, name: str, where: str, held: Any, value: Any) -> None:
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

    def note_again(self, obj: Any, key: Any, where: str, read: Callable[[], Any], value: Any) -> None:
        """What a library's object gives when it is asked, if it gives the same when it is asked again."""
        if same(read(), value):
            self.note(obj, key, where, read, value)
        elif id(obj) in self.outside:
            self.unguarded.append(f"{where}, at {here()}")

    def note_key(self, table: dict[Any, Any], key: Any, where: str, value: Any, is_counted: bool = False) -> None:
        """``is_counted``: assignments to what has the table count in the guard epoch."""
        is_word = type(key) is str and type(table) is dict and not is_counted
        native = DictGuard(table, key, value) if is_word else None
        read = lambda: dict.get(table, key, MISSING)
        self.note(table, key, where, read, value, native, held=native is None)
        if is_counted and (id(table), key) in self.places_read:
            self.places_read[id(table), key].by_epoch = True

    def _note_class(self, cls: type, name: str) -> None:
        """A name was looked up in a class: users' classes may be patched."""
        if not is_user_class(cls) or (name.startswith("__") and name.endswith("__")) or self.is_class_made_inside(cls):
            return
        self.note(
            cls,
            name,
            f"{cls.__name__}.{name}",
            lambda: static_attribute(cls, name),
            static_attribute(cls, name),
            ClassGuard(cls),
        )

    def _enter_if_observable(self, value: Any) -> Any:
        """What a library's module holds is constant; functions that users put behind it are observed."""
        if is_a(value, type):
            note_class(self, value)
        elif not is_a(value, ModuleType | BuiltinFunctionType) and not is_own_class(type(value)):
            self.enter(value)
        return value

    def item(self, container: Any, key: Any) -> Any:
        """``container[key]``."""
        if self.arrays.are_there and (type(container) is TracedArray or holds_key(key)):
            return self.arrays.item(container, key)
        if is_a(container, Tensor):
            self.contents.escape_masks(key)
            return container[key]
        if id(container) not in self.outside:
            return container[key]
        return self.contents.item(container, key)

    def identified(self, left: Any, right: Any) -> None:
        """``left is right``: a stand-in for an argument is not a tensor from outside; the argument may be."""
        self.arrays.identified(left, right)
        self.nests.identified(left, right)
        for value in (left, right) if left is not None is not right else ():
            self.mean(value)
        if is_a(left, Tensor) and is_a(right, Tensor):
            for one, other in ((left, right), (right, left)):
                if one._array is None and other._array is not None:
                    self.told_apart.append((one, other))

    def used_as_key(self, value: Any) -> None:
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
        return [*self.guards, *self.counted.guards, Guard("global switches", switches, self._switches, None, True)]


_OF_TENSORS = frozenset(dir(Tensor)) - {"__dict__"}
_TOLD_OF_CLASSES = ("__name__", "__qualname__", "__module__", "__doc__", "__bases__", "__mro__")
_CLASS = object()  # the key of what an object is
_META = object()  # of what a class is
_PARTS = object()  # and of what a partial holds


for _kind in (Observer, ObservedCalls, ObservedDraws, ObservedWrites, Contents, ContainerChanges, Tables):
    for _relay in vars(_kind).values():
        if is_a(_relay, FunctionType):
            relay(_relay)  # messages speak of the function that is read or called


__all__ = ["Observer", "active"]
