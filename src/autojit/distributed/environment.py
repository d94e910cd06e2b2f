"""What started this process: an MPI launcher, another launcher, or nobody."""

from __future__ import annotations

import os
from collections.abc import Mapping

SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "PALS_SIZE")
RANKS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "PALS_RANKID", "PMIX_RANK", "SLURM_PROCID")
LOCAL_RANKS = (
    "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "MV2_COMM_WORLD_LOCAL_RANK", "PALS_LOCAL_RANKID", "SLURM_LOCALID",
)  # fmt: skip
LOCAL_SIZES = ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "MV2_COMM_WORLD_LOCAL_SIZE")


def number(names: tuple[str, ...], environment: Mapping[str, str] = os.environ) -> int | None:
    """The first of these variables that is a number."""
    return next((int(environment[name]) for name in names if environment.get(name, "").isdigit()), None)


def is_under_mpi(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether an MPI launcher has started this process as one of several, or as the only one."""
    if number(SIZES, environment) is not None:
        return True
    tasks = environment.get("SLURM_NTASKS", environment.get("SLURM_STEP_NUM_TASKS", "1"))
    return "PMIX_RANK" in environment or ("SLURM_PROCID" in environment and tasks not in ("", "1"))


def job(environment: Mapping[str, str] = os.environ) -> tuple[int, int]:
    """This process's number and how many there are, as torchrun's variables say; -1 where they do not."""
    given = [environment.get(name, "") for name in ("RANK", "WORLD_SIZE")]
    if not all(text.isdigit() for text in given):
        return -1, int(given[1]) if given[1].isdigit() else -1
    return int(given[0]), int(given[1])


def as_torchrun() -> dict[str, str]:
    """The variables that torchrun would set, of those that the launcher did: for programs that read them."""
    rank, size = number(RANKS), number(SIZES)
    if rank is None:
        return {}
    near, local_size = number(LOCAL_RANKS) or 0, number(LOCAL_SIZES)
    found = {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": near, "LOCAL_WORLD_SIZE": local_size or size}
    return {name: str(value) for name, value in found.items() if value is not None}
