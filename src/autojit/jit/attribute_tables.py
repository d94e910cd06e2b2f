"""Whose table of attributes is whose: ``o.__dict__ = {...}`` puts another dictionary where a capture has read one.

What a step reads of an object are keys of its dictionary. That the object still has this dictionary is a word in it.
"""

from __future__ import annotations

from types import GetSetDescriptorType
from typing import Any

import numpy as np

from autojit.core.source import here
from autojit.jit.guards import TableGuard
from autojit.jit.line_by_line import Uncompiled
from autojit.jit.places import attributes_of, is_a

_TABLE = object()  # the key of "which dictionary has an object's attributes"


def note_table(observer: Any, obj: Any) -> None:
    """Guard that an object from outside has the table that it has."""
    table = attributes_of(obj)
    if table is None or id(obj) not in observer.outside or (id(obj), _TABLE) in observer.places_read:
        return
    if attributes_of(obj) is table:  # else it is made for everyone who asks
        name = f"{observer.name_of(obj)}.__dict__"
        observer.note(obj, _TABLE, name, lambda: attributes_of(obj), table, TableGuard(obj))


def refuse_hidden(observer: Any, obj: Any, name: str, member: Any) -> None:
    """``o.__dict__ = d``, ``o.__class__ = C``, ``f.__code__ = c`` in a step: what C keeps is no place of Python's."""
    if is_a(member, GetSetDescriptorType) and not is_a(obj, np.ndarray):
        observer.give_up(Uncompiled(f"the step assigns {type(obj).__name__}.{name} at {here()}: ran line by line"))
