"""Training in several processes: not available; the questions that programs ask first.

Example:
    >>> import autojit as aj
    >>> aj.distributed.is_available() and aj.distributed.is_initialized()
    False
"""

from __future__ import annotations

__all__ = ["get_rank", "get_world_size", "is_available", "is_initialized"]


def is_available() -> bool:
    """Whether processes can work together: no."""
    return False


def is_initialized() -> bool:
    """Whether they do."""
    return False


def get_rank(group: object = None) -> int:
    """This process's number: -1, as it belongs to no group."""
    return -1


def get_world_size(group: object = None) -> int:
    """The number of processes: -1, as there is no group."""
    return -1
