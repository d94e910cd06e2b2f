"""Methods whose modules are imported when they are first used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from autojit.dispatch.declared import declaration_of
from autojit.functions.argument_errors import with_argument_errors
from autojit.functions.methods import methods_of
from autojit.tensor.tensor import Tensor


class LaterMethod:
    """Stands in a class for the method ``name`` of a function in a module, which the first use imports.

    It stays there: steps watch what a class has, and a method that is used for the first time must not seem a change.

    Example:
        >>> from autojit.tensor.tensor import Tensor
        >>> LaterMethod("ravel", "autojit.functions.shape").__get__(None, Tensor).__name__
        'ravel'
    """

    __slots__ = ("method", "module", "name")

    def __init__(self, name: str, module: str) -> None:
        self.name = name
        self.module = module
        self.method: Any = None

    def __get__(self, instance: object, owner: type) -> Any:
        method = self.method
        if method is None:
            import_module(self.module)
            method = self.method = with_argument_errors(methods_of(declaration_of(self.name))[self.name])
        return method.__get__(instance, owner)


def attach_later(names: dict[str, str]) -> None:
    """Give Tensor methods by name and module."""
    for name, module in names.items():
        setattr(Tensor, name, LaterMethod(name, module))
