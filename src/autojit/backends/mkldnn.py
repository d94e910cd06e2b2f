"""oneDNN (MKL-DNN): not used."""

from __future__ import annotations


def is_available() -> bool:
    """Whether oneDNN is used: never, every kernel is generated.

    Example:
        >>> import autojit as aj
        >>> aj.backends.mkldnn.is_available()
        False
    """
    return False


__all__ = ["is_available"]
