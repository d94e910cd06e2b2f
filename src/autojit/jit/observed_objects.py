"""The part of an observer that knows which objects exist outside the capture, and guards what is read of them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, MethodWrapperType, ModuleType
from typing import TYPE_CHECKING, Any

from autojit.core.source import here, user_place
from autojit.history.gradients import hook_tables
from autojit.jit.asked_contexts import note_contexts
from autojit.jit.contents import CONTAINERS
from autojit.jit.counted_reads import CountedReads
from autojit.jit.guards import Guard, WordsGuard, same, type_word
from autojit.jit.instrumented_code import is_instrumented
from autojit.jit.line_by_line import LineByLine, Uncompiled
from autojit.jit.observed_functions import ObservedFunctions, is_user_class, is_user_names, own_code, special_methods
from autojit.jit.places import Location, is_a
from autojit.jit.read_hooks import HOOKS, PLAIN
from autojit.jit.replaced_code import note_class
from autojit.runtime.entry_spec import MISSING, CellGuard, DictGuard
from autojit.runtime.object_layout import function_words, type_version
from autojit.tensor.state import state
from autojit.tensor.tensor import Tensor

if TYPE_CHECKING:
    from autojit.jit.cached_calls import CachedCalls
    from autojit.jit.contents import Contents

_CLASS = object()  # the key of what an object is
_META = object()  # of what a class is
_PARTS = object()  # and of what a partial holds


class ObservedObjects:
    """The objects from outside that one capture has met."""

    contents: Contents
    cached: CachedCalls
    is_at_once: bool

    if TYPE_CHECKING:

        def note_place(self, guard: Guard, value: object) -> None: ...

    def __init__(self, rebound: frozenset[tuple[int, Any]]) -> None:
        self.rebound = rebound
        self.guards: list[Guard] = []
        self.unguarded: list[str] = []
        self.outside: dict[int, Any] = {}  # by id: what existed before; kept, so that no other object gets the id
        self.names: dict[int, str] = {}  # what messages call them
        self.written: dict[tuple[int, Any], tuple[Location, Any]] = {}  # places, and what they held
        self.rewritten: dict[tuple[int, Any], tuple[Location, Any]] = {}  # the same for those that are rebound
        self.on_tensor: Callable[[Tensor], None] = lambda t: None  # told of every concrete tensor when it is first met
        self.counted = CountedReads(rebound)
        self.places_read: dict[tuple[int, Any], Guard] = {}
        self.is_torn = False  # whether a place gave something else when it was read again: another thread writes it
        self._late: dict[Any, tuple[Any, Any, str, Callable[[], Any]]] = {}
        self._functions = ObservedFunctions(HOOKS)

    def give_up(self, reason: LineByLine) -> None:
        """End the capture that is in progress, if there is one: its call runs line by line."""
        trace: Any = state.trace
        if trace is not None and not self.is_at_once:
            trace.give_up(reason)

    def refuse(self, what: str) -> None:
        """``give_up`` for something that no step does."""
        self.give_up(Uncompiled(f"{what}: ran line by line"))

    def enter(self, value: Any, name: str = "") -> Any:
        """``value`` exists outside: what is read from it is guarded. The value."""
        kind: Any = type(value)
        if (kind is BuiltinFunctionType or kind is MethodWrapperType) and not is_a(value.__self__, ModuleType):
            self.enter(value.__self__)  # a method of something outside
        if kind in PLAIN or id(value) in self.outside:
            if kind is Tensor and id(value) not in self.outside:
                self._enter_tensor(value)
            return value
        self.outside[id(value)] = value
        if name:
            self.names.setdefault(id(value), name)
        if issubclass(kind, Tensor):
            self._enter_tensor(value)
        elif kind is CellType:
            return value
        else:
            self.counted.meet(value, name or kind.__name__, self)
            note_contexts(self, value)
        self.cached.meet(value)
        if kind not in CONTAINERS:
            note_class(self, value if issubclass(kind, type) else kind)
            self._functions.behind(value, self._met)
            if kind is FunctionType:
                self._enter_function(value)
                self._note_code(value)
            elif kind is MethodType and type(value.__func__) is FunctionType:
                self._note_code(value.__func__)
            elif issubclass(kind, functools.partial):
                self.note_parts(value)
            elif issubclass(kind, type):
                self.note_class_of(value)
            elif kind is not MethodType and is_user_class(kind):
                self.note(
                    value,
                    _CLASS,
                    f"type({self.name_of(value)})",
                    lambda: type(value),
                    kind,
                    WordsGuard(value, type_word),
                )
                self.note_class_of(value)
        return value

    def observe(self, value: object) -> None:
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

    def note_class_of(self, value: object) -> None:
        """The methods that Python looks up by itself, in the class."""
        cls = value if is_a(value, type) else type(value)
        if is_user_class(cls):
            read, name = functools.partial(special_methods, cls), f"methods of {cls.__name__}"
            self.note(cls, _CLASS, name, read, read(), WordsGuard(cls, type_version))
            meta = type(cls)
            if is_user_class(meta):  # where Python looks up what is done with the class itself
                self.note(cls, _META, f"type({cls.__name__})", lambda: type(cls), meta, WordsGuard(cls, type_word))
                self.note_class_of(meta)

    def _note_code(self, function: FunctionType) -> None:
        if is_instrumented(function.__code__):
            named = function.__kwdefaults__ or {}
            for name, value in named.items():
                self.note_key(named, name, f"default {name} of {function.__name__}", value)
            read: Callable[[], Any] = lambda: (own_code(function), function.__defaults__, function.__kwdefaults__)
            self.note(
                function, _CLASS, f"code of {function.__name__}", read, read(), WordsGuard(function, function_words)
            )

    def began(self, code: CodeType) -> None:
        """A function runs, whatever has called it: one of those with this code, which no frame tells apart."""
        self.cached.began(code)
        for function in self._functions.with_code(code):
            if is_user_names(function.__globals__):
                self._note_code(function)

    def _met(self, part: object) -> None:
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

    def is_of_step(self, holder: object, key: object) -> bool:
        """Whether what a place holds comes from the step: its argument, or what it has assigned."""
        identity = id(holder), key
        return identity in self.rebound or identity in self.written

    def name_of(self, value: object) -> str:
        """What a user would call an object."""
        if is_a(value, ModuleType | type | FunctionType):
            return str(value.__name__)
        return self.names.get(id(value)) or type(value).__name__

    # -- reads

    def note(
        self,
        holder: object,
        key: object,
        name: str,
        read: Callable[[], Any],
        value: object,
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
        guard = self.places_read[identity] = Guard(name, read, value, native, source=user_place())
        if held:
            guard.held_by = holder, key
        self.outside.setdefault(id(holder), holder)
        self.guards.append(guard)
        if guard.held_by is not None:
            self.note_place(guard, value)

    def late(self, holder: object, key: object, name: str, read: Callable[[], Any]) -> None:
        """Like ``note``, of what the capture leaves there."""
        self._late.setdefault((id(holder), key), (holder, key, name, read))

    def note_again(self, obj: object, key: object, where: str, read: Callable[[], Any], value: object) -> None:
        """What a library's object gives when it is asked, if it gives the same when it is asked again."""
        if same(read(), value):
            self.note(obj, key, where, read, value)
        elif id(obj) in self.outside:
            self.unguarded.append(f"{where}, at {here()}")

    def note_key(self, table: dict[Any, Any], key: object, where: str, value: object, is_counted: bool = False) -> None:
        """``is_counted``: assignments to what has the table count in the guard epoch."""
        is_word = type(table) is dict and not is_counted
        native = DictGuard(table, key, value) if type(key) is str and is_word else None
        read = lambda: dict.get(table, key, MISSING)
        self.note(table, key, where, read, value, native, held=native is None)
        if is_counted and (id(table), key) in self.places_read:
            self.places_read[id(table), key].by_epoch = True

    def note_write(self, location: Location, before: object) -> None:
        self.outside.setdefault(id(location.holder), location.holder)
        places = self.rewritten if location.identity in self.rebound else self.written
        places.setdefault(location.identity, (location, before))
