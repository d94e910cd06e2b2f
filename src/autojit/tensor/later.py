"""Methods whose modules are imported when they are first used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from autojit.tensor.argument_errors import with_argument_errors
from autojit.tensor.declared import declaration_of
from autojit.tensor.methods import methods_of
from autojit.tensor.tensor import Tensor


class LaterMethod:
    """Stands in a class for the method ``name`` of a function in a module; the first use puts that in its place.

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
        import_module(self.module)
        method: Any = with_argument_errors(methods_of(declaration_of(self.name))[self.name])
        if vars(Tensor).get(self.name) is self:
            setattr(Tensor, self.name, method)
        return method.__get__(instance, owner)


def attach_later(names: dict[str, str]) -> None:
    """Give Tensor methods by name and module."""
    for name, module in names.items():
        setattr(Tensor, name, LaterMethod(name, module))
