"""torch.distributed.rpc: calls of functions in other processes, of which there are none here; programs ask.

Example:
    >>> import autojit as aj
    >>> aj.distributed.rpc.is_available()
    False
"""

from __future__ import annotations

from typing import NoReturn

__all__ = ["is_available"]


def is_available() -> bool:
    """Whether functions can be called in other processes: no."""
    return False


def __getattr__(name: str) -> NoReturn:
    raise AttributeError(
        f"autojit.distributed.rpc has no {name!r}: there are no remote calls; ranks exchange tensors by the "
        "collectives of autojit.distributed"
    )
