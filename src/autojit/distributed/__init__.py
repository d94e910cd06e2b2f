"""Training in several processes: not available; the questions that programs ask first.

Example:
    >>> import autojit as aj
    >>> aj.distributed.is_available() and aj.distributed.is_initialized()
    False
"""

from __future__ import annotations

from typing import NoReturn

from autojit.core.errors import UsageError

__all__ = [
    "barrier",
    "destroy_process_group",
    "get_rank",
    "get_world_size",
    "init_process_group",
    "is_available",
    "is_initialized",
]


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


def init_process_group(backend: str | None = None, *args: object, **kwargs: object) -> NoReturn:
    """Join other processes: refused. Programs ask for the name, and call it where they are started as one of several.

    Raises:
        UsageError: always.
    """
    raise UsageError(
        "init_process_group: processes cannot work together yet",
        {"backend": backend},
        "run the program as one process: leave RANK and WORLD_SIZE unset",
    )


def destroy_process_group(group: object = None) -> NoReturn:
    """Leave the other processes.

    Raises:
        UsageError: always, as there are none.
    """
    raise _no_group("destroy_process_group")


def barrier(group: object = None, async_op: bool = False, device_ids: object = None) -> NoReturn:
    """Wait for the other processes.

    Raises:
        UsageError: always, as there are none.
    """
    raise _no_group("barrier")


def _no_group(name: str) -> UsageError:
    return UsageError(
        f"{name}: Default process group has not been initialized, please make sure to call init_process_group.",
        fix="ask is_initialized() first",
    )
