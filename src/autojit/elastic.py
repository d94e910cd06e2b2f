"""Training that goes on when ranks are lost: with those that are left, from the last checkpoint.

Open MPI with fault tolerance lets the others of a dead rank form a smaller group (ULFM's shrink): nothing is started
again, and the loss of a rank costs the steps since the checkpoint. Other MPI libraries end all ranks; there, and after
the loss of a machine that runs the launcher, ``python -m autojit.launch --max-restarts`` starts the program
again, or Ray does (``scheduler="ray"``), with as many ranks as there is room for.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

from autojit.core.errors import ArgumentError, UsageError
from autojit.core.user_warnings import warn
from autojit.distributed import ray_workers
from autojit.distributed.failures import RankFailed
from autojit.distributed.groups import default_group, init_process_group, is_initialized, replace_world
from autojit.launched_rank import ELASTIC, REPORT

__all__ = ["run"]

Result = TypeVar("Result")


def run(
    train: Callable[[], Result],
    *,
    min_size: int = 1,
    max_size: int | None = None,
    max_failures: int = 3,
    scheduler: str | None = None,
    **joining: Any,
) -> Result:
    """Call ``train()``, again whenever a rank was lost, in the group of those that are left; its result.

    ``train`` makes its model, optimiser and compiled functions itself, loads the last checkpoint
    (`autojit.distributed.checkpoint`) and asks how many ranks there are. Start the program by
    ``python -m autojit.launch --elastic``.

    Args:
        min_size: with fewer ranks it ends.
        max_size: Ray starts no more ranks; by default one per free core.
        max_failures: after more losses it ends.
        scheduler: "ray": this program is no rank. Ray starts ranks on its cluster (``RAY_ADDRESS``, or this machine),
            and starts them again when one was lost. The result is rank 0's. Needs ``autojit[ray]``, whose MPI library
            is MPICH.
        joining: for `init_process_group`, which is called if it has not been.

    Raises:
        RankFailed: there were too many losses, too few ranks are left, or the MPI library cannot go on without one.
        ValueError: there is no such scheduler, or ``max_size`` is given without one, or is less than ``min_size``.
        UsageError: Ray is not installed, or the launcher ends all ranks when one is lost.

    Example:
        >>> import autojit as aj
        >>> aj.elastic.run(lambda: aj.distributed.get_world_size())
        1
        >>> aj.distributed.destroy_process_group()
    """
    if scheduler is not None:
        if scheduler != "ray":
            raise ArgumentError("elastic.run: there is no such scheduler", {"scheduler": scheduler}, '"ray", or None')
        if max_size is not None and max_size < min_size:
            raise ArgumentError("elastic.run: max_size is less than min_size", {"sizes": (min_size, max_size)})
        return ray_workers.run(train, min_size, max_size, max_failures, joining)
    if max_size is not None:
        raise ArgumentError(
            "elastic.run: the launcher says how many ranks there are", {"max_size": max_size}, 'scheduler="ray"'
        )
    if not is_initialized():
        init_process_group(**joining)
    failures = 0
    while True:
        watch = getattr(default_group().communicator, "watch", None)
        if watch is not None:
            watch.goes_on = True
        try:
            return train()
        except RankFailed as error:
            failures += 1
            if failures > max_failures:
                raise
            _go_on(error, min_size)


def _go_on(error: RankFailed, min_size: int) -> None:
    """Put the ranks that are left in the place of the whole group."""
    if REPORT in os.environ and ELASTIC not in os.environ:
        raise UsageError(
            "elastic.run: this launcher ends all ranks when one is lost",
            {"lost": error.ranks},
            "start the program by: python -m autojit.launch --elastic",
        ) from error
    world = default_group()
    left = world.communicator.shrunk()
    if left is None or left.size < min_size:
        raise error
    warn(
        f"elastic.run: {world.size() - left.size} of {world.size()} ranks were lost; going on with {left.size}",
        UserWarning,
    )
    replace_world(left)
