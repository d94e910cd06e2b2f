"""What is raised when a process that others count on is gone, or was never reached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autojit.core.errors import AutojitError

__all__ = ["DistBackendError", "DistError", "DistNetworkError", "RankFailed"]


class DistError(RuntimeError):
    """Base of what goes wrong between processes."""


class DistBackendError(DistError):
    """What connects the processes has failed."""


class DistNetworkError(DistError):
    """A network has failed."""


class RankFailed(AutojitError, DistBackendError):
    """Another process of the group has died, or cannot be reached.

    Attributes:
        ranks: which, by their numbers in the whole job; empty where the engine cannot tell.
        hosts: where they ran, in the same order.
    """

    general_fix = "restart from a checkpoint: python -m autojit.launch --max-restarts, or autojit.elastic.run"
    ranks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()


def rank_failed(name: str, ranks: Sequence[int], hosts: Sequence[str], facts: Mapping[str, object]) -> RankFailed:
    """The error that says who failed, as one rank tells it that was in the collective ``name``."""
    who = ", ".join(f"rank {rank} on {host}" for rank, host in zip(ranks, hosts, strict=True)) or "a rank"
    made = RankFailed(f"{name}: {who} has failed", facts)
    made.ranks, made.hosts = tuple(ranks), tuple(hosts)
    return made
