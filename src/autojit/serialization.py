"""torch's module of this name: saving, loading, and which classes of yours a file may name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from autojit.core.device import Device
from autojit.io.file_options import (
    LoadEndianness,
    get_crc32_options,
    get_default_load_endianness,
    get_default_mmap_options,
    set_crc32_options,
    set_default_load_endianness,
    set_default_mmap_options,
    skip_data,
)
from autojit.io.safe_globals import add_safe_globals, clear_safe_globals, get_safe_globals, safe_globals
from autojit.io.saving import get_unsafe_globals_in_checkpoint, load, save

MAP_LOCATION: TypeAlias = Callable[[Any, str], Any] | Device | str | dict[str, str] | None

DEFAULT_PROTOCOL = 2
"""Of pickles, by torch's name."""

__all__ = [
    "DEFAULT_PROTOCOL", "LoadEndianness", "add_safe_globals", "clear_safe_globals", "get_crc32_options",
    "get_default_load_endianness", "get_default_mmap_options", "get_safe_globals", "get_unsafe_globals_in_checkpoint",
    "load", "safe_globals", "save", "set_crc32_options", "set_default_load_endianness", "set_default_mmap_options",
    "skip_data",
]  # fmt: skip
