"""Ranks that Ray starts: it places them on a cluster and says which have died; what they exchange goes by MPI.

An attempt is a set of Ray's actors, one per rank, each a process. They join by `process_manager`, so the MPI library is
MPICH or made of it. An MPI job has as many processes as it had at the start: when one has died the attempt is over, and
the next one has as many ranks as there are free cores, from the last checkpoint.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from autojit.core.errors import UsageError
from autojit.core.user_warnings import warn
from autojit.distributed.failures import RankFailed
from autojit.distributed.groups import destroy_process_group, init_process_group

Result = TypeVar("Result")
LOOK_S = 0.2
PLACED_S = 60.0  # until there is room for as many ranks as are asked for at least
SETTLED_S = 10.0  # until a machine that has lost a rank is known to be free again, or gone; then with what there is


def _ray() -> Any:
    """The package, connected to its cluster.

    Raises:
        UsageError: it is not installed.
    """
    try:
        import ray
    except ImportError as error:
        raise UsageError("elastic.run: Ray is not installed", {"error": error}, "pip install 'autojit[ray]'") from None
    if not ray.is_initialized():
        ray.init(address=os.environ.get("RAY_ADDRESS"), include_dashboard=False)
    return ray


class Worker:
    """One rank; an actor of Ray's."""

    def address(self) -> tuple[str, int]:
        """Where the others find this rank, if it is the first."""
        import ray

        with socket.create_server(("", 0)) as free:
            return ray.util.get_node_ip_address(), int(free.getsockname()[1])

    def run(self, train: Callable[[], Result], rank: int, size: int, address: tuple[str, int], joining: Any) -> Result:
        """Join the others and train."""
        given = {"RANK": rank, "WORLD_SIZE": size, "MASTER_ADDR": address[0], "MASTER_PORT": address[1]}
        os.environ.update({name: str(value) for name, value in given.items()})
        init_process_group(**joining)
        result = train()
        destroy_process_group()
        return result


def run(
    train: Callable[[], Result], min_size: int, max_size: int | None, max_failures: int, joining: Mapping[str, Any]
) -> Result:
    """See `autojit.elastic.run`."""
    ray = _ray()
    wanted, failures = max_size, 0
    while True:
        workers = _placed(ray, min_size, max_size, wanted)
        try:
            result: Result = _attempt(ray, workers, train, joining)
            return result
        except ray.exceptions.RayError as error:
            failures += 1
            if not _is_a_loss(ray, error):
                raise
            if failures > max_failures:
                raise RankFailed(f"elastic.run: {failures} attempts have failed", {"last": error}) from error
            warn(f"elastic.run: an attempt of {len(workers)} ranks has failed ({error}); starting again", UserWarning)
        finally:
            for worker in workers:
                ray.kill(worker)
        wanted = len(workers)


def _placed(ray: Any, least: int, most: int | None, wanted: int | None) -> list[Any]:
    """As many workers as the cluster has cores for; waits for the least number, and a while for those wanted.

    Raises:
        RankFailed: there is no room for so many.
    """
    start = time.monotonic()
    while True:
        free, waited_s = int(ray.available_resources().get("CPU", 0)), time.monotonic() - start
        if free >= least and (wanted is None or free >= wanted or waited_s > SETTLED_S):
            break
        if waited_s > PLACED_S:
            raise RankFailed("elastic.run: the cluster is too small", {"free cores": free, "min_size": least})
        time.sleep(LOOK_S)
    threads = {"AUTOJIT_NUM_THREADS": os.environ.get("AUTOJIT_NUM_THREADS", "1")}  # a rank has one core
    kind = ray.remote(num_cpus=1, max_restarts=0, runtime_env={"env_vars": threads})(Worker)
    return [kind.remote() for _ in range(free if most is None else min(free, most))]


def _attempt(ray: Any, workers: Sequence[Any], train: Callable[[], Any], joining: Mapping[str, Any]) -> Any:
    """What rank 0 has returned.

    Raises:
        ray.exceptions.RayError: a rank has died (`RayActorError`), or has raised what is the error's cause.
    """
    address = ray.get(workers[0].address.remote())
    calls = [w.run.remote(train, k, len(workers), address, dict(joining)) for k, w in enumerate(workers)]
    waiting = list(calls)
    while waiting:
        done, waiting = ray.wait(waiting, num_returns=1)
        ray.get(done)
    return ray.get(calls[0])


def _is_a_loss(ray: Any, error: Any) -> bool:
    """Whether a rank is gone; else the program has raised something, on one of them."""
    return not isinstance(error, ray.exceptions.RayTaskError) or isinstance(error.cause, RankFailed)
