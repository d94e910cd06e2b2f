"""Calls of modules by their paths in the model: what a captured step records in them, and errors that leave them."""

from __future__ import annotations

import sys
import weakref
from typing import TYPE_CHECKING, Any

from autojit.core.errors import AutojitError
from autojit.core.program_parts import Parts, path_within
from autojit.core.source import enter, entered_part, leave

if TYPE_CHECKING:
    from autojit.nn.module import Module


_came_up_in: weakref.WeakKeyDictionary[AutojitError, Module] = weakref.WeakKeyDictionary()
"""The innermost module that an error has left; not an attribute, which copies and pickles of the error would have."""


def call_in_step(module: Module, parts: Parts, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The call with its hooks."""
    before = enter(sys._getframe(), parts.of(module, entered_part()))
    try:
        if module._has_call_hooks():
            return module._call_with_hooks(args, kwargs)
        return module.forward(*args, **kwargs)
    finally:
        leave(before)


def note_module(error: Exception, module: Module) -> None:
    """An error leaves the call of a module: it says by its path which module it came up in."""
    if isinstance(error, AutojitError):
        inner = _came_up_in.setdefault(error, module)
        path = path_within(module, inner)
        if path is not None:  # else a module that no attribute leads to: what is known of the inner one stays
            error.in_module(path, type(inner).__name__)
