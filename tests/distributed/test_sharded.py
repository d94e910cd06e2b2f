"""Divided optimisers and checkpoints, on ranks of MPI's and in a group of one."""

from __future__ import annotations

import pytest

from autojit import distributed as dist
from tests.distributed import sharded_on_ranks
from tests.distributed.worlds import check, needs_mpi


@needs_mpi
@pytest.mark.parametrize("ranks", [pytest.param(2, marks=pytest.mark.slow), 3])
def test_what_is_divided_among_ranks(ranks: int) -> None:
    check(ranks, "sharded_on_ranks")


def test_a_group_of_one_obeys_the_same_laws() -> None:
    for name, law in vars(sharded_on_ranks).items():
        if name.startswith("check_") and "cannot_write" not in name:
            dist.init_process_group()
            try:
                law()
            finally:
                dist.destroy_process_group()
