"""Places: what Python code can assign to, named so that it can be read and written again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from threading import local
from types import CellType, UnionType
from typing import TYPE_CHECKING, Any, Protocol

from autojit.core.counted_dict import CountedDict
from autojit.core.epoch import is_flag, write_flag
from autojit.core.records import record
from autojit.runtime.entry_spec import MISSING
from autojit.tensor.state import state
from autojit.tensor.tensor import Tensor

HOLDERS_LIMIT = 16  # objects that held a place of one name and were left alone when the function ran last
IDENTITIES_LIMIT = 4096


class Method(Protocol):
    """A method bound to its object, of Python or C."""

    @property
    def __self__(self) -> Any: ...
    @property
    def __name__(self) -> str: ...
    def __call__(self, *args: object, **kwargs: object) -> Any: ...


@record(eq=False)
class Location:
    """What can be assigned: a key of a dictionary (of attributes, of globals), an item of a list, an attribute, a cell.

    A tensor as the holder stands for whether it requires gradients.
    """

    name: str
    holder: Any
    key: Any = None
    is_counted: bool = False  # whether steps that baked its value in look at the guard epoch only

    @property
    def identity(self) -> tuple[int, Any]:
        return id(self.holder), self.key

    def read(self) -> Any:
        if isinstance(self.holder, CellType):
            return cell_content(self.holder)
        if isinstance(self.holder, Tensor):
            return self.holder._requires_grad
        if isinstance(self.holder, dict):
            return dict.get(self.holder, self.key, MISSING)
        if isinstance(self.holder, list | type):
            return table_of(self.holder).get(self.key, MISSING)
        return getattr(self.holder, self.key, MISSING)

    def is_flag(self, value: object) -> bool:
        """Whether the guard epoch says by itself that this place changes to a value."""
        return type(self.holder) is dict and is_flag(self.key, self.holder.get("training"), value)

    def write(self, value: Any) -> None:
        if isinstance(self.holder, CellType):
            self.holder.cell_contents = value
        elif isinstance(self.holder, Tensor):
            self.holder._requires_grad = value
        elif value is MISSING and self.read() is MISSING:
            return
        elif type(self.holder) is CountedDict or (state.trace is not None and hasattr(type(self.holder), "plain")):
            # who writes here counts by himself; what a group of an optimiser holds in a capture is the capture's
            if value is MISSING:
                dict.__delitem__(self.holder, self.key)
            else:
                dict.__setitem__(self.holder, self.key, value)
        elif self.is_flag(value):
            write_flag(self.holder, value, partial(self.holder.__setitem__, self.key, value))
        elif isinstance(self.holder, dict | list):
            if value is MISSING:
                del self.holder[self.key]
            else:
                self.holder[self.key] = value
        elif value is MISSING:
            delattr(self.holder, self.key)
        else:
            setattr(self.holder, self.key, value)


if TYPE_CHECKING:
    from builtins import isinstance as is_a
else:

    def is_a(value: object, kinds: type | UnionType | tuple[type, ...]) -> bool:
        """``isinstance`` by the object's real class: asking an object for ``__class__`` may run a user's code."""
        return issubclass(type(value), kinds)


def table_of(holder: list[Any] | type) -> Mapping[Any, Any]:
    """A holder's keys and values: of a list its positions, of a class its own attributes."""
    return vars(holder) if isinstance(holder, type) else dict(enumerate(holder))


def cell_content(cell: CellType) -> Any:
    """What a closure cell holds; MISSING while it is empty."""
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING


def attributes_of(obj: object) -> dict[str, Any] | None:
    """The dictionary of an object's own attributes; None for objects that have one for every thread."""
    if is_a(obj, local):
        return None
    try:
        table = object.__getattribute__(obj, "__dict__")
    except AttributeError:
        return None
    return table if is_a(table, dict) else None


def in_use(places: Sequence[Location], untouched: Collection[tuple[int, Any]]) -> list[Location]:
    """The places that a function may assign to again, without those in objects that were its arguments long ago.

    ``untouched``: by identity, those that it left alone when it ran last. One that it does assign to is found again.
    """
    holders: Counter[str] = Counter()
    kept: list[Location] = []
    for place in reversed(places):
        is_untouched = place.identity in untouched
        holders[place.name] += is_untouched
        if not is_untouched or holders[place.name] <= HOLDERS_LIMIT:
            kept.append(place)
    return kept[::-1]


def with_more(known: frozenset[tuple[int, Any]], places: Sequence[Location]) -> frozenset[tuple[int, Any]]:
    """Identities of places that were found before, and of these; at some number of them the old ones go."""
    new = frozenset(place.identity for place in places)
    return known | new if len(known) < IDENTITIES_LIMIT else new


def static_attribute(cls: type, name: str, after: type | None = None) -> Any:
    """What a class or a base (``after`` one of them) has under a name, without asking it; MISSING without one."""
    bases = cls.__mro__ if after is None else cls.__mro__[cls.__mro__.index(after) + 1 :]
    for base in bases:
        table = vars(base)
        if name in table:
            return table[name]
    return MISSING


def module_of(cls: type) -> str:
    """The module that a class says it is of; some that C makes (``c_double * 3``) say nothing."""
    name: object = getattr(cls, "__module__", None)
    return name if isinstance(name, str) else ""


def defines(cls: type, name: str) -> bool:
    """Whether a class or a base has a name; its metaclass, which may answer to any, is not asked."""
    return static_attribute(cls, name) is not MISSING


__all__ = [
    "HOLDERS_LIMIT", "Location", "Method", "attributes_of", "cell_content", "defines", "in_use", "is_a", "module_of",
    "static_attribute", "table_of", "with_more",
]  # fmt: skip
