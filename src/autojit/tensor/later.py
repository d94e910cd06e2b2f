"""Methods whose modules are imported when they are first used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from autojit.tensor.method_forms import has_axis, method_of, with_numpy_names
from autojit.tensor.tensor import Tensor


class LaterMethod:
    """Stands in a class for the method ``name`` made of a module's function; the first use puts that in its place.

    Example:
        >>> from autojit.tensor.tensor import Tensor
        >>> LaterMethod("ravel", "autojit.tensor.functions_shape").__get__(None, Tensor).__name__
        'ravel'
    """

    __slots__ = ("module", "name")

    def __init__(self, name: str, module: str) -> None:
        self.name = name
        self.module = module

    def __get__(self, instance: Any, owner: type) -> Any:
        method = method_of(getattr(import_module(self.module), self.name))
        if has_axis(method):
            method = with_numpy_names(method)
        if vars(Tensor).get(self.name) is self:
            setattr(Tensor, self.name, method)
        return method.__get__(instance, owner)


def attach_later(names: dict[str, str]) -> None:
    """Give Tensor methods by name and module."""
    for name, module in names.items():
        setattr(Tensor, name, LaterMethod(name, module))
