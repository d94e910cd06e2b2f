"""OpenMP: not used; compiled steps have threads of their own."""

from __future__ import annotations

__all__ = ["is_available"]


def is_available() -> bool:
    """Whether OpenMP is used: never."""
    return False
