"""oneDNN (MKL-DNN): not used."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


def is_available() -> bool:
    """Whether oneDNN is used: never, every kernel is generated.

    Example:
        >>> import autojit as aj
        >>> aj.backends.mkldnn.is_available()
        False
    """
    return False


@contextmanager
def flags(enabled: bool = False, deterministic: bool = False, allow_tf32: bool = True) -> Iterator[None]:
    """A block in which oneDNN would be used or not: it has no effect here.

    Example:
        >>> import autojit as aj
        >>> with aj.backends.mkldnn.flags(enabled=False):
        ...     y = aj.ones(2) + 1
    """
    yield


__all__ = ["flags", "is_available"]
