"""torch's module of this name: saving, loading, and which classes of yours a file may name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from autojit.core.device import Device
from autojit.io.safe_globals import add_safe_globals, clear_safe_globals, get_safe_globals, safe_globals
from autojit.io.saving import get_unsafe_globals_in_checkpoint, load, save

MAP_LOCATION: TypeAlias = Callable[[Any, str], Any] | Device | str | dict[str, str] | None

__all__ = [
    "add_safe_globals", "clear_safe_globals", "get_safe_globals", "get_unsafe_globals_in_checkpoint", "load",
    "safe_globals", "save",
]  # fmt: skip
