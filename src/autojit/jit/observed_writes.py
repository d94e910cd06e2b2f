"""The part of an observer that knows what the step assigns to places outside: attributes, items, names."""

from __future__ import annotations

from collections.abc import Callable
from threading import local
from types import MemberDescriptorType, ModuleType
from typing import TYPE_CHECKING, Any

from autojit.jit.asked_attributes import is_of_class
from autojit.jit.attribute_tables import note_table, refuse_hidden
from autojit.jit.named_lookups import by_container
from autojit.jit.observed_functions import class_number, is_module
from autojit.jit.observed_objects import ObservedObjects
from autojit.jit.places import Location, attributes_of, defines, is_a, static_attribute
from autojit.runtime.entry_spec import MISSING
from autojit.tensor.tensor import Tensor

if TYPE_CHECKING:
    from autojit.jit.tensor_attributes import TensorAttributes


class ObservedWrites(ObservedObjects):
    """The places that one capture has written to."""

    attributes: TensorAttributes

    if TYPE_CHECKING:

        def calling(self, function: Callable[..., Any], *args: object, **kwargs: object) -> Any: ...

    def __init__(self, rebound: frozenset[tuple[int, Any]]) -> None:
        super().__init__(rebound)
        self._first_class = class_number()

    def set_attribute(self, obj: object, name: str, value: object) -> None:
        """``obj.name = value``."""
        if (instead := by_container(obj, "__setattr__")) is not None:
            self.calling(instead, name, value)
        else:
            self.changing_attribute(obj, name, lambda: setattr(obj, name, value))

    def delete_attribute(self, obj: object, name: str) -> None:
        """``del obj.name``."""
        if (instead := by_container(obj, "__delattr__")) is not None:
            self.calling(instead, name)
        else:
            self.changing_attribute(obj, name, lambda: delattr(obj, name))

    def changing_attribute(self, obj: object, name: str, change: Callable[[], None]) -> None:
        """Assign to an attribute, or delete it."""
        is_class = is_a(obj, type)
        is_others = is_a(obj, type) and not self.is_class_made_inside(obj)
        is_one = id(obj) in self.outside or is_a(obj, ModuleType) or is_others
        if is_a(obj, Tensor) and not is_of_class(type(obj), name) and (obj._array is None or not is_one):
            self.attributes.change(obj, name, change)
            return
        if not is_one or (is_a(obj, Tensor) and is_of_class(type(obj), name)):
            change()
            return
        member = MISSING if is_class else static_attribute(type(obj), name)
        refuse_hidden(self, obj, name, member)
        if not is_class:
            note_table(self, obj)
        is_slot = is_a(member, MemberDescriptorType)
        if is_module(obj) and not is_slot and id(vars(obj)) in self.counted.tables:
            self.counted.note_assigned(obj, name)  # its tables are compared as a whole
            change()
            return
        holder = obj if is_class or is_slot or is_a(obj, local) else attributes_of(obj)
        if holder is None:
            change()
            return
        place = Location(f"{self.name_of(obj)}.{name}", holder, name)
        before = place.read()
        change()
        if is_slot or place.read() is not before or not defines(type(member), "__set__"):
            self.note_write(place, before)

    def is_class_made_inside(self, cls: type) -> bool:
        """Whether the step has made a class, which is nobody else's then."""
        return id(cls) not in self.outside and class_number(cls) > self._first_class > 0
