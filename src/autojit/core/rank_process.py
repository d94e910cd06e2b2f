"""Which rank of a job this process is, as ``autojit.launch`` says: before it has joined the others, or without it."""

from __future__ import annotations

import os
from collections.abc import Mapping

RANK_PROCESS = "AUTOJIT_RANK_PROCESS"  # as `launched_rank` has it, which imports nothing


def is_rank_itself(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether this process may join: it is not one that a rank of ``autojit.launch`` has started."""
    return environment.get(RANK_PROCESS, str(os.getpid())) == str(os.getpid())


def launched_rank(environment: Mapping[str, str] = os.environ) -> tuple[int, int] | None:
    """The number of the rank that ``autojit.launch`` has started as this process, and of how many."""
    if RANK_PROCESS not in environment or not is_rank_itself(environment):
        return None
    return int(environment.get("RANK", "0")), int(environment.get("WORLD_SIZE", "1"))
