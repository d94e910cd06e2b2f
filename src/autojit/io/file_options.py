"""How files are read where neither they nor the caller say: the order of bytes, and whose memory a mapped file is."""

from __future__ import annotations

import mmap
import sys
from enum import Enum

from autojit.core.errors import ArgumentError


class LoadEndianness(Enum):
    """The order of the bytes of numbers."""

    NATIVE = 1
    LITTLE = 2
    BIG = 3


class _Options:
    endianness: LoadEndianness | None = None
    mapped: int = mmap.MAP_PRIVATE


_options = _Options()


def get_default_load_endianness() -> LoadEndianness | None:
    """What ``set_default_load_endianness`` was given; None before."""
    return _options.endianness


def set_default_load_endianness(endianness: LoadEndianness | None) -> None:
    """Say in which order the bytes of numbers are in files that do not say it (torch's from before version 2.1).

    Raises:
        TypeError: it is no ``LoadEndianness``, nor None, which means the order of little endian.
    """
    if endianness is not None and not isinstance(endianness, LoadEndianness):
        raise TypeError("Invalid argument type in function set_default_load_endianness")
    _options.endianness = endianness


def is_big_by_default() -> bool:
    """Whether files that do not say it have their numbers' highest byte first."""
    if _options.endianness is LoadEndianness.NATIVE:
        return sys.byteorder == "big"
    return _options.endianness is LoadEndianness.BIG


def get_default_mmap_options() -> int:
    """``mmap.MAP_PRIVATE`` unless ``set_default_mmap_options`` said otherwise."""
    return _options.mapped


class set_default_mmap_options:
    """Whether tensors of ``load(..., mmap=True)`` write into the file: ``mmap.MAP_SHARED``, or ``mmap.MAP_PRIVATE``.

    Holds from the call on; as a context manager until its end.

    Raises:
        ValueError: another flag.
    """

    def __init__(self, flags: int) -> None:
        if flags not in (mmap.MAP_PRIVATE, mmap.MAP_SHARED):
            raise ArgumentError(
                "Invalid argument in function set_default_mmap_options, expected mmap.MAP_PRIVATE or mmap.MAP_SHARED, "
                f"but got {flags}"
            )
        self.before = _options.mapped
        _options.mapped = flags

    def __enter__(self) -> None:
        pass

    def __exit__(self, *reason: object) -> None:
        _options.mapped = self.before
