"""DistributedDataParallel on ranks of MPI's, and in a group of one."""

from __future__ import annotations

import pytest

from autojit import distributed as dist
from tests.distributed import data_parallel_on_ranks
from tests.distributed.worlds import check, needs_mpi


@needs_mpi
@pytest.mark.parametrize("ranks", [2, 3])
def test_replicas_train_as_one_module(ranks: int) -> None:
    check(ranks, "data_parallel_on_ranks")


@needs_mpi
@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "steps"), [(2, 300), (3, 300), (4, 300), (2, 1000)])
def test_they_do_so_for_long(ranks: int, steps: int) -> None:
    check(ranks, "data_parallel_on_ranks", limit_s=600, DDP_STEPS=str(steps))


def test_a_group_of_one_obeys_the_same_laws() -> None:
    dist.init_process_group()
    try:
        for name, law in vars(data_parallel_on_ranks).items():
            if name.startswith("check_"):
                law()
    finally:
        dist.destroy_process_group()
