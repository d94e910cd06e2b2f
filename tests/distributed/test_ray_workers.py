"""Ranks that Ray places: what `autojit.elastic` makes of a cluster, of a rank that is lost, and of errors.

Ray is a stand-in here, whose actors run in this process, one call after the other; where Ray is installed, it runs too.
"""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

import autojit as aj
from autojit import distributed as dist
from autojit.distributed import ray_workers


class Killed(BaseException):
    """Ends the actor that raises it."""


class RayError(Exception):
    """Ray's base class."""


class RayActorError(RayError):
    """An actor is gone."""


class RayTaskError(RayError):
    """A call has raised its cause."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(repr(cause))
        self.cause = cause


class Cluster:
    """The calls of Ray's that autojit makes. An actor that dies takes its core with it, as a machine does."""

    def __init__(self, cores: int) -> None:
        self.cores, self.alive = cores, 0
        self.jobs: list[list[int]] = []  # by attempt, the ranks that were asked to run
        self.exceptions = types.SimpleNamespace(
            RayError=RayError, RayActorError=RayActorError, RayTaskError=RayTaskError
        )
        self.util = types.SimpleNamespace(get_node_ip_address=lambda: "127.0.0.1")

    def is_initialized(self) -> bool:
        return True

    def available_resources(self) -> dict[str, float]:
        return {"CPU": float(self.cores - self.alive)} if self.cores > self.alive else {}

    def remote(self, num_cpus: int, max_restarts: int, runtime_env: Any) -> Callable[[type], Any]:
        assert (num_cpus, max_restarts) == (1, 0)
        assert runtime_env["env_vars"]["AUTOJIT_NUM_THREADS"].isdigit()
        self.jobs.append([])
        return lambda kind: types.SimpleNamespace(remote=lambda: Actor(self, kind()))

    def get(self, asked: Any) -> Any:
        if isinstance(asked, list):
            return [self.get(call) for call in asked]
        found = asked()
        if isinstance(found, RayError):
            raise found
        return found

    def wait(self, calls: Sequence[Any], num_returns: int) -> tuple[list[Any], list[Any]]:
        done = next((c for c in calls if isinstance(c(), RayError)), calls[0])
        return [done], [c for c in calls if c is not done]

    def kill(self, actor: Actor) -> None:
        actor.end()


class Actor:
    def __init__(self, cluster: Cluster, own: Any) -> None:
        self.cluster, self.own, self.is_alive = cluster, own, True
        cluster.alive += 1

    def __getattr__(self, name: str) -> Any:
        return types.SimpleNamespace(remote=lambda *arguments: self._call(name, arguments))

    def _call(self, name: str, arguments: Sequence[Any]) -> Callable[[], Any]:
        if name == "run":
            self.cluster.jobs[-1].append(arguments[1])
        found: Any
        try:
            found = getattr(self.own, name)(*arguments)
        except Killed:
            self.end()
            self.cluster.cores -= 1
            found = RayActorError("the actor has died")
        except Exception as error:
            found = RayTaskError(error)
        return lambda: found

    def end(self) -> None:
        self.cluster.alive -= self.is_alive
        self.is_alive = False


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], Cluster]]:
    """Makes the cluster of so many cores; ranks join nobody."""

    def made(cores: int) -> Cluster:
        found = Cluster(cores)
        monkeypatch.setitem(sys.modules, "ray", found)
        return found

    monkeypatch.setattr(ray_workers, "init_process_group", lambda **joining: None)
    monkeypatch.setattr(ray_workers, "destroy_process_group", lambda: None)
    monkeypatch.setattr(ray_workers, "PLACED_S", 0.0)
    monkeypatch.setattr(ray_workers, "SETTLED_S", 0.0)
    before = dict(os.environ)
    yield made
    for name in set(os.environ) - set(before):
        del os.environ[name]
    os.environ.update(before)


def job() -> tuple[int, int]:
    return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


@pytest.mark.parametrize(("cores", "most", "victim"), [(4, None, 2), (5, 3, 0), (3, None, None)])
def test_attempts_have_a_rank_for_every_core_that_is_left(
    cluster: Any, cores: int, most: int | None, victim: int | None
) -> None:
    ray = cluster(cores)

    def train() -> Any:
        assert os.environ["MASTER_ADDR"] == "127.0.0.1"
        if len(ray.jobs) == 1 and job()[0] == victim:
            raise Killed
        return job()

    sizes = [min(cores, most or cores)]
    if victim is not None:
        sizes.append(min(cores - 1, most or cores))
        with pytest.warns(UserWarning, match=f"an attempt of {sizes[0]} ranks has failed"):
            found = aj.elastic.run(train, scheduler="ray", min_size=2, max_size=most)
    else:
        found = aj.elastic.run(train, scheduler="ray", min_size=2, max_size=most)
    assert found == (0, sizes[-1])
    assert ray.jobs == [list(range(size)) for size in sizes]
    assert ray.alive == 0


def test_what_the_program_raises_is_raised_and_nobody_is_left(cluster: Any) -> None:
    ray = cluster(3)

    def train() -> None:
        if job()[0] == 1:
            raise KeyError("only here")

    with pytest.raises(RayTaskError, match="only here"):
        aj.elastic.run(train, scheduler="ray")
    assert (ray.jobs, ray.alive) == ([[0, 1, 2]], 0)


def test_losses_are_counted_and_room_is_needed(cluster: Any) -> None:
    ray = cluster(9)

    def train() -> None:
        raise Killed if job()[0] == 0 else dist.RankFailed("another one is gone")

    with pytest.warns(UserWarning, match="starting again"), pytest.raises(dist.RankFailed, match="3 attempts have"):
        aj.elastic.run(train, scheduler="ray", max_failures=2)
    assert [len(job) for job in ray.jobs] == [9, 8, 7]
    with pytest.raises(dist.RankFailed, match=r"too small[\s\S]*free cores\s+6\n\s*min_size\s+7"):
        aj.elastic.run(train, scheduler="ray", min_size=7)
    assert ray.alive == 0


def test_what_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(RuntimeError, match=r"Ray is not installed[\s\S]*autojit\[ray\]"):
        aj.elastic.run(job, scheduler="ray")
    with pytest.raises(ValueError, match="no such scheduler"):
        aj.elastic.run(job, scheduler="slurm")
    with pytest.raises(ValueError, match="max_size is less than min_size"):
        aj.elastic.run(job, scheduler="ray", min_size=3, max_size=2)
    with pytest.raises(ValueError, match=r"the launcher says[\s\S]*scheduler"):
        aj.elastic.run(job, max_size=3)
