"""cuDNN: not used. Its switches are remembered, so that programs which set them run unchanged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

enabled = False
benchmark = False
deterministic = True
allow_tf32 = False


def is_available() -> bool:
    """Whether cuDNN is used: never, every kernel is generated."""
    return False


def version() -> int | None:
    """The version of cuDNN: None."""
    return None


@contextmanager
def flags(
    enabled: bool = False, benchmark: bool = False, deterministic: bool = False, allow_tf32: bool = True
) -> Iterator[None]:
    """Switches for the time of a ``with`` block; they change nothing.

    Example:
        >>> import autojit as aj
        >>> with aj.backends.cudnn.flags(enabled=False):
        ...     y = aj.ones(2) + 1
    """
    yield


__all__ = ["allow_tf32", "benchmark", "deterministic", "enabled", "flags", "is_available", "version"]
