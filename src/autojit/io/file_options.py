"""How files are read and written where neither they nor the caller say.

The order of bytes, whose memory a mapped file is, checksums, files without their tensors' bytes, and what the
environment says of ``weights_only``.
"""

from __future__ import annotations

import mmap
import os
import sys
import threading
from enum import Enum

from autojit.core.errors import ArgumentError, UsageError
from autojit.core.user_warnings import warn


class LoadEndianness(Enum):
    """The order of the bytes of numbers."""

    NATIVE = 1
    LITTLE = 2
    BIG = 3


class _Options:
    endianness: LoadEndianness | None = None
    mapped: int = mmap.MAP_PRIVATE
    checksums: bool = True


class _Skipping(threading.local):
    """Whether the thread writes files without their tensors' bytes."""

    on: bool = False


_options = _Options()
_skipping = _Skipping()


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


def get_crc32_options() -> bool:
    """Whether ``save`` writes the checksums of the records."""
    return _options.checksums


def set_crc32_options(compute_crc32: bool) -> None:
    """Whether ``save`` writes the checksums (CRC-32) of the records: without them writing is faster, ``load`` cannot
    see that a file is damaged, and other programs may say that it is.
    """
    _options.checksums = compute_crc32


class skip_data:
    """Inside, ``save`` leaves the tensors' bytes out, and keeps their places in the file for a program that writes them
    there later. Until then they are 0.

    Example:
        >>> import io
        >>> import autojit as aj
        >>> file = io.BytesIO()
        >>> with aj.serialization.skip_data():
        ...     aj.save(aj.ones(2), file)
        >>> aj.load(file)
        tensor([0., 0.])
    """

    def __init__(self, materialize_fake_tensors: bool = False) -> None:
        self.before = False
        if materialize_fake_tensors:
            raise ArgumentError(
                "skip_data: there are no fake tensors here",
                fix="leave materialize_fake_tensors out; tensors of the device 'meta' are saved without bytes anyway",
            )

    def __enter__(self) -> None:
        self.before, _skipping.on = _skipping.on, True

    def __exit__(self, *reason: object) -> None:
        _skipping.on = self.before


def skips_data() -> bool:
    """Whether ``skip_data`` is on."""
    return _skipping.on


def refuse_while_skipping() -> None:
    """UsageError for ``load`` inside of ``skip_data``."""
    if _skipping.on:
        raise UsageError("load: Please call torch.load outside the skip_data context manager.")


def with_modules(weights_only: bool | None) -> bool:
    """Whether a file may hold whole modules: what ``weights_only`` says, and the environment where it may.

    ``TORCH_FORCE_WEIGHTS_ONLY_LOAD=1`` forbids them whatever ``weights_only`` says;
    ``TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1`` allows them where it says nothing.
    """
    forced, free = (_is_set(f"TORCH_FORCE_{name}WEIGHTS_ONLY_LOAD") for name in ("", "NO_"))
    if forced and free:
        raise UsageError(
            "load: only one of TORCH_FORCE_WEIGHTS_ONLY_LOAD and TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD can be set"
        )
    if weights_only is None and free:
        warn(
            "Environment variable TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD detected, since the `weights_only` argument was not "
            "explicitly passed to `torch.load`, forcing weights_only=False."
        )
        return True
    return weights_only is False and not forced


def _is_set(variable: str) -> bool:
    return os.environ.get(variable, "0") in ("1", "y", "yes", "true")
