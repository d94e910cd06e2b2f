"""Whose table of attributes is whose: ``o.__dict__ = {...}`` puts another dictionary where a capture has read one.

What a step reads of an object are keys of its dictionary. That the object still has this dictionary is a word in it.
"""

from __future__ import annotations

from types import FunctionType, GetSetDescriptorType, MemberDescriptorType
from typing import TYPE_CHECKING

from autojit.core.source import here, is_own
from autojit.jit.guards import WordsGuard, table_word
from autojit.jit.observed_functions import is_own_class, is_user_class, is_user_code, own_code
from autojit.jit.places import attributes_of, defines, is_a

if TYPE_CHECKING:
    from autojit.jit.observed_objects import ObservedObjects

_TABLE = object()  # the key of "which dictionary has an object's attributes"


def note_table(observer: ObservedObjects, obj: object) -> None:
    """Guard that an object from outside has the table that it has."""
    table = attributes_of(obj)
    if table is None or id(obj) not in observer.outside or (id(obj), _TABLE) in observer.places_read:
        return
    if attributes_of(obj) is table:  # else it is made for everyone who asks
        name = f"{observer.name_of(obj)}.__dict__"
        observer.note(obj, _TABLE, name, lambda: attributes_of(obj), table, WordsGuard(obj, table_word))


def is_kept_by_c(member: object) -> bool:
    """Whether an attribute that a class defines is kept where Python has no place for it."""
    kind = type(member)
    if is_a(member, MemberDescriptorType | GetSetDescriptorType):
        return True
    return kind is not property and defines(kind, "__set__") and not is_own_class(kind) and not is_user_class(kind)


def _is_of_library(function: object) -> bool:
    if not is_a(function, FunctionType):
        return False
    code = own_code(function)
    return not is_own(code) and not is_user_code(code, function.__globals__)


def refuse_hidden(observer: ObservedObjects, obj: object, name: str, member: object) -> None:
    """``o.__dict__ = d``, ``f.__code__ = c``, ``c_struct.field = 1`` in a step: what C keeps is no place of Python's.

    Nor is what a library's property keeps.
    """
    if is_own_class(type(obj)) or is_a(member, MemberDescriptorType):
        return
    is_of_library = is_a(member, property) and (not is_user_class(type(obj)) or _is_of_library(member.fset))
    if is_of_library or is_kept_by_c(member):
        observer.refuse(f"the step assigns {type(obj).__name__}.{name} at {here()}")
