"""Attributes of tensor arguments that a function asks for: a part of the signature of a call."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from autojit.jit.guards import PRIMITIVES, is_value
from autojit.jit.line_by_line import LineByLine
from autojit.jit.places import static_attribute
from autojit.runtime.entry_spec import MISSING
from autojit.tensor.tensor import Tensor

ALL = "*"  # stands for all names, where a step looks at the dictionary
_OF_TENSORS = frozenset(dir(Tensor)) - {"__dict__"}  # which shows the others


def is_of_class(kind: type, name: str) -> bool:
    """Whether a name of a tensor is what its class says, whatever the tensor's own dictionary holds."""
    if name in _OF_TENSORS:
        return True
    member = MISSING if name == "__dict__" else static_attribute(kind, name)
    return member is not MISSING and (callable(member) or hasattr(type(member), "__get__"))


def attributes_in_signature(t: Tensor, asked: Collection[str]) -> tuple[Any, ...]:
    """What a step may have read of the attributes of an argument.

    Raises:
        UnsharedAttribute: no capture can be for others that are alike.
    """
    held = vars(t)
    if not asked or not held:
        return ()
    names = sorted(held if ALL in asked else asked & held.keys())
    return tuple([(name, _plain(t, name, held[name])) for name in names])


def _plain(t: Tensor, name: str, value: object) -> Any:
    if type(value) is tuple:
        return tuple([_plain(t, name, item) for item in value])
    if isinstance(value, PRIMITIVES) or is_value(value):
        return type(value), repr(value) if isinstance(value, float | complex) else value
    raise UnsharedAttribute(t, name)


class UnsharedAttribute(LineByLine):
    """A step asks an argument for an attribute that is a tensor, or another object."""

    text = (
        "attribute {1!r} of an argument {0}, which the step asks for, is no number or text: ran line by line (pass it "
        "as an argument of its own)"
    )
