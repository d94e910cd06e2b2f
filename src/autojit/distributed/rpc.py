"""torch.distributed.rpc: calls of functions in other processes, of which there are none here; programs ask.

Example:
    >>> import autojit as aj
    >>> aj.distributed.rpc.is_available()
    False
"""

from __future__ import annotations

__all__ = ["is_available"]


def is_available() -> bool:
    """Whether functions can be called in other processes: no."""
    return False
