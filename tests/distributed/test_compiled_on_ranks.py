"""Compiled steps on ranks of MPI's."""

from __future__ import annotations

import pytest

from tests.distributed.worlds import check, needs_mpi


@needs_mpi
@pytest.mark.parametrize("ranks", [pytest.param(2, marks=pytest.mark.slow), 3])
def test_compiled_steps_on_ranks(ranks: int) -> None:
    check(ranks, "compiled_on_ranks")
