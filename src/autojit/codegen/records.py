"""Records of 64-bit words that Python writes and native code reads: each is declared once, as a class.

Plans, contexts and descriptors are such records. The class says which words there are and in which order; Python makes
a record of them by name, and a `FunctionText` loads and stores them by their `Field`, so no order is written twice::

    class Patch(Record[int]):
        address: Pointer  # where to write
        bytes: Word


    Patch(address=4096, bytes=8)  # the words, in order: (4096, 8)
    function.get("%patch", Patch.bytes)  # the name of an i64

A field without a default must be given, and only fields can be given: mypy says so, and so does Python.
"""

from __future__ import annotations

import sys
from typing import Any, ClassVar, Generic, Self, TypeVar, dataclass_transform, overload

T = TypeVar("T")
WORD_BYTES = 8


class Field(Generic[T]):
    """A word of a record: of the class it is the field itself, of a record the word's value.

    Args:
        place: words before it.
        offset_bytes: where it is in its record.
        name: as the class declares it.
    """

    kind: ClassVar[str]  # in LLVM

    def __init__(self, place: int, offset_bytes: int, name: str) -> None:
        self.place = place
        self.offset_bytes = offset_bytes
        self.name = name

    @overload
    def __get__(self, record: None, owner: type[Any]) -> Self: ...

    @overload
    def __get__(self, record: Record[T], owner: type[Any]) -> T: ...

    def __get__(self, record: Record[T] | None, owner: type[Any]) -> Self | T:
        return self if record is None else record[self.place]

    def __set__(self, record: Record[T], value: T) -> None:
        raise AttributeError(f"{self.name}: a record is not written to; make another")


class Word(Field[int]):
    """A number."""

    kind = "i64"


class HalfWord(Field[int]):
    """A number in the lower half of its word."""

    kind = "i32"


class Pointer(Field[int]):
    """An address."""

    kind = "ptr"


def field(*, default: int) -> Any:
    """A word that is ``default`` unless given: native code writes it, or only some records of the class need it."""
    return default


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
class Record(tuple[T, ...]):
    """Words in the order of the fields that a subclass declares, ``apart`` bytes from one to the next."""

    fields: ClassVar[dict[str, Field[Any]]] = {}
    size_bytes: ClassVar[int] = 0
    _names: ClassVar[tuple[str, ...]] = ()
    _defaults: ClassVar[dict[str, Any]] = {}

    def __init_subclass__(cls, apart: int = WORD_BYTES) -> None:
        known = vars(sys.modules[cls.__module__])
        cls._defaults = {name: vars(cls)[name] for name in cls.__annotations__ if name in vars(cls)}
        kinds = cls.__annotations__.items()
        cls.fields = {name: known[kind](place, apart * place, name) for place, (name, kind) in enumerate(kinds)}
        cls.size_bytes = apart * len(cls.fields)
        cls._names = tuple(cls.fields)
        for name, declared in cls.fields.items():
            setattr(cls, name, declared)

    def __new__(cls, **values: T) -> Self:
        if tuple(values) != cls._names:  # most are given in order
            values = cls._completed(values)
        return super().__new__(cls, values.values())

    @classmethod
    def _completed(cls, values: dict[str, T]) -> dict[str, T]:
        given = {**cls._defaults, **values}
        if given.keys() != cls.fields.keys():
            missing, unknown = sorted(cls.fields.keys() - given.keys()), sorted(given.keys() - cls.fields.keys())
            raise TypeError(f"{cls.__name__}: missing fields: {missing}, unknown ones: {unknown}")
        return {name: given[name] for name in cls._names}

    def __reduce__(self) -> tuple[Any, ...]:
        return _of_words, (type(self), tuple(self))

    @classmethod
    def in_order(cls, *words: T) -> Self:
        """The record of as many words as there are fields, quickly: nothing is checked."""
        return super().__new__(cls, words)

    def but(self, **values: T) -> Self:
        """The record with other values in some of its fields."""
        if values.keys() - self.fields.keys():
            raise TypeError(f"{type(self).__name__}: unknown fields: {sorted(values.keys() - self.fields.keys())}")
        return super().__new__(
            type(self), [values.get(name, word) for name, word in zip(self._names, self, strict=True)]
        )


def _of_words(kind: type[Record[T]], words: tuple[T, ...]) -> Record[T]:
    return kind.in_order(*words)
