"""torch's collectives on 2 and 3 ranks of MPI's, and in a group of one."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import autojit as aj
from autojit import distributed as dist
from tests.distributed import collectives_on_ranks
from tests.distributed.worlds import ROOT, check, needs_mpi

ALONE = [
    "check_all_reduce_is_numpys_over_the_ranks", "check_averages_and_bits", "check_parameters_and_their_versions",
    "check_all_that_only_moves_moves_every_dtype", "check_reduce_scatter_is_a_part_of_all_reduce", "check_objects",
    "check_tensors_that_are_not_contiguous", "check_async_handles", "check_uneven_exchanges", "check_groups",
]  # fmt: skip


@needs_mpi
@pytest.mark.parametrize("ranks", [2, 3])
def test_collectives_on_ranks(ranks: int) -> None:
    check(ranks, "collectives_on_ranks")


@pytest.fixture
def alone() -> object:
    dist.init_process_group("gloo")
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


@pytest.mark.parametrize("name", ALONE)
def test_a_group_of_one_obeys_the_same_laws(alone: object, name: str) -> None:
    getattr(collectives_on_ranks, name)()


def test_a_group_of_one_imports_no_mpi() -> None:
    code = (
        "import sys, autojit as aj; d = aj.distributed; d.init_process_group(); d.all_reduce(aj.ones(1)); "
        "d.destroy_process_group(); print('mpi4py' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT / "src")
    assert done.stdout.strip() == "False"


def test_spawned_functions_run_in_the_ranks_that_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, ...]] = []
    variables = {"RANK": "1", "WORLD_SIZE": "2", "OMPI_COMM_WORLD_SIZE": "2", "AUTOJIT_RANK_PROCESS": str(os.getpid())}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    aj.multiprocessing.spawn(lambda *given: calls.append(given), (5,), nprocs=2)
    assert calls == [(1, 5)]
    context = aj.multiprocessing.spawn(lambda *given: calls.append(given), nprocs=2, join=False)
    assert context is not None
    assert context.join()
    assert calls == [(1, 5), (1,)]
    monkeypatch.setenv("AUTOJIT_RANK_PROCESS", "1")  # as in a process that the rank has started
    with pytest.raises(RuntimeError, match="started by a rank"):
        dist.init_process_group("gloo")
    assert not dist.is_initialized()


def test_another_launcher_is_told_what_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("RANK", "1")
    with pytest.raises(RuntimeError, match=r"python -m autojit\.launch -n 4"):
        dist.init_process_group("nccl")
    assert not dist.is_initialized()
    monkeypatch.setenv("WORLD_SIZE", "1")
    dist.init_process_group("nccl")
    assert dist.get_backend() == "nccl"
    with pytest.raises(ValueError, match="twice"):
        dist.init_process_group()
    dist.destroy_process_group()
    with pytest.raises(ValueError, match="Default process group has not been initialized"):
        dist.get_rank()
    with pytest.raises(ValueError, match="Invalid backend"):
        dist.init_process_group("pigeon")
    with pytest.raises(ValueError, match="rank is not that of the job"):
        dist.init_process_group(rank=1, world_size=1)
    assert aj.distributed.group.WORLD is None
