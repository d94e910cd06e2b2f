"""A module's call while a step is captured: what it records belongs to the module, by its path in the model."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from autojit.core.program_parts import Parts
from autojit.core.source import enter, entered_part, leave

if TYPE_CHECKING:
    from autojit.nn.module import Module


def call_in_step(module: Module, parts: Parts, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The call with its hooks."""
    before = enter(sys._getframe(), parts.of(module, entered_part()))
    try:
        if module._has_call_hooks():
            return module._call_with_hooks(args, kwargs)
        return module.forward(*args, **kwargs)
    finally:
        leave(before)
