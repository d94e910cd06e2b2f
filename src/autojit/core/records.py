"""Dataclasses whose methods are written when the first instance is made.

``dataclass`` compiles a frozen class's six methods when the class is declared, 0.3 ms; most programs use few of the
200 classes that ``import autojit`` and the first compiled step declare. Here a class's declaration costs nothing, and
its first instance 0.07 ms: only ``__init__`` is compiled, the other methods are closures over the fields' names.
Records are equal when their fields are written alike (`structure`): open sizes among them are asked nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, MISSING, Field, FrozenInstanceError, dataclass, field, fields
from inspect import get_annotations
from operator import attrgetter
from reprlib import recursive_repr
from typing import Any, ClassVar, NamedTuple, TypeVar, dataclass_transform, overload

from autojit.core.locks import new_lock
from autojit.core.size_recorder import asked
from autojit.core.structure import structure

T = TypeVar("T")

_lock = new_lock()


class _Wishes(NamedTuple):
    eq: bool
    frozen: bool


class _Absent:
    """What stands in signatures for a default that is made at every call, as ``dataclass`` shows it."""

    def __repr__(self) -> str:
        return "<factory>"


_ABSENT = _Absent()
_unfinished: dict[type, _Wishes] = {}


@overload
def record(cls: type[T]) -> type[T]: ...


@overload
def record(*, eq: bool = True, frozen: bool = True) -> Callable[[type[T]], type[T]]: ...


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: type[Any] | None = None, *, eq: bool = True, frozen: bool = True) -> Any:
    """``dataclass(frozen=frozen, eq=eq)``, put off until the first instance of the class is made.

    A base class must be finished (`finish`) before a plain ``dataclass`` inherits its fields; ``Op`` sees to that.
    For slots and ``InitVar`` there is ``dataclass``, and for classes that users make, since `inspect` does not know the
    signature before the first instance.

    Example:
        >>> @record
        ... class Shift:
        ...     steps: int
        >>> Shift(2) == Shift(steps=2)
        True
    """

    def declare(cls: type[Any]) -> type[Any]:
        def first_init(self: object, *values: object, **named: object) -> None:
            finish(cls)
            type(self).__init__(self, *values, **named)

        _unfinished[cls] = _Wishes(eq, frozen)
        type.__setattr__(cls, "__init__", first_init)
        return cls

    return declare if cls is None else declare(cls)


def finish(cls: type) -> None:
    """Write the methods of a class and its bases, where they are records and this has not happened; thread-safe."""
    if not any(base in _unfinished for base in cls.__mro__):
        return
    with _lock:
        for base in reversed(cls.__mro__):  # bases first: fields are inherited
            if base in _unfinished:
                _write(base, _unfinished[base])
                del _unfinished[base]


def _write(cls: type[Any], wishes: _Wishes) -> None:
    """Make a dataclass of a class; ``__init__`` comes last, since other threads wait in the one that is there."""
    inherits_frozen = any(getattr(base, "__dataclass_params__", wishes).frozen for base in cls.__mro__[1:-1])
    _take_fields(cls, inherits_frozen)
    cls.__dataclass_params__.frozen = wishes.frozen  # for dataclasses that inherit: all are frozen, or none is
    listed = fields(cls)
    added: dict[str, object] = {"__repr__": _repr([f.name for f in listed if f.repr])}
    if wishes.frozen:
        added |= _refusals(cls, frozenset(f.name for f in listed))
    if wishes.eq:
        added |= _comparison([f.name for f in listed if f.compare])
        if not wishes.frozen:
            added["__hash__"] = None
    for name, method in added.items():
        if name not in vars(cls):
            type.__setattr__(cls, name, method)
    type.__setattr__(cls, "__init__", _initializer(cls, listed, wishes.frozen))


def _take_fields(cls: type[Any], frozen: bool) -> None:
    """Let ``dataclass`` find a class's fields. It searches each text for special types, most of its time."""
    texts = get_annotations(cls)
    kinds = {name: _special(text) if isinstance(text, str) else text for name, text in texts.items()}
    type.__setattr__(cls, "__annotations__", kinds)
    try:
        dataclass(init=False, repr=False, eq=False, frozen=frozen)(cls)
    finally:
        type.__setattr__(cls, "__annotations__", texts)
    for name, text in texts.items():
        if name in cls.__dataclass_fields__:
            cls.__dataclass_fields__[name].type = text


def _special(text: str) -> Any:
    """What ``dataclass`` has to know of an annotation."""
    name = text.partition("[")[0].rpartition(".")[2]
    return ClassVar if name == "ClassVar" else KW_ONLY if name == "KW_ONLY" else object


def _repr(names: Sequence[str]) -> Callable[[Any], str]:
    @recursive_repr()
    def __repr__(self: object) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    return __repr__


def _refusals(cls: type, names: frozenset[str]) -> dict[str, Any]:
    """What a frozen class does when somebody assigns to its fields."""

    def __setattr__(self: object, name: str, value: object) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        object.__setattr__(self, name, value)

    def __delattr__(self: object, name: str) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        object.__delattr__(self, name)

    return {"__setattr__": __setattr__, "__delattr__": __delattr__}


def _comparison(names: Sequence[str]) -> dict[str, Any]:
    values_of: Callable[[Any], Any] = attrgetter(*names) if names else lambda _: ()

    def __eq__(self: object, other: object) -> bool:
        if self.__class__ is not other.__class__:
            return NotImplemented
        if asked.recorder is None:  # nobody answers for a call: values are compared as they are
            return bool(values_of(self) == values_of(other))
        return bool(structure(values_of(self)) == structure(values_of(other)))

    def __hash__(self: object) -> int:
        return hash(values_of(self) if asked.recorder is None else structure(values_of(self)))

    return {"__eq__": __eq__, "__hash__": __hash__}


def _initializer(cls: type, listed: Sequence[Field[Any]], frozen: bool) -> Callable[..., None]:
    """``__init__`` with the parameters and defaults that ``dataclass`` gives it."""
    names: dict[str, Any] = {"put": object.__setattr__, "ABSENT": _ABSENT}
    parameters, named, body = ["self"], list[str](), list[str]()
    for f in listed:
        value = f.name
        if f.default is not MISSING:
            names[f"default_{f.name}"] = f.default
            default = f" = default_{f.name}"
        elif f.default_factory is not MISSING:
            names[f"make_{f.name}"] = f.default_factory
            default = " = ABSENT"
            value = f"make_{f.name}() if {f.name} is ABSENT else {f.name}" if f.init else f"make_{f.name}()"
        else:
            default = ""
        if f.init:
            (named if f.kw_only else parameters).append(f.name + default)
        elif f.default_factory is MISSING:
            continue  # the class has its default, or `__post_init__` gives it a value
        body.append(f"put(self, {f.name!r}, {value})" if frozen else f"self.{f.name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    signature = ", ".join([*parameters, *(["*", *named] if named else [])])
    exec(f"def __init__({signature}):\n " + "\n ".join(body or ["pass"]), names)
    made: Callable[..., None] = names["__init__"]
    made.__qualname__, made.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    made.__annotations__ = {f.name: f.type for f in listed if f.init} | {"return": None}
    return made
