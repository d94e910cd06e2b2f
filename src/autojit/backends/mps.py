"""Metal: not used."""

from __future__ import annotations

__all__ = ["is_available", "is_built"]


def is_available() -> bool:
    """Whether tensors can be placed on Apple's device: never.

    Example:
        >>> import autojit as aj
        >>> aj.backends.mps.is_available()
        False
    """
    return False


def is_built() -> bool:
    """Whether this build knows the device: no."""
    return False
