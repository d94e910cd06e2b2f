"""Ranks compare the collectives that they have recorded: another program is an error on all of them, and no hang."""

from __future__ import annotations

from typing import Any

import pytest

import autojit as aj
from autojit.core.errors import UsageError
from autojit.distributed import functional, run_ranks


def raised(program: Any, ranks: int = 3) -> list[str]:
    """The error of every rank."""

    def guarded(world: Any) -> str:
        with pytest.raises(UsageError) as error:
            program(world)
        return str(error.value)

    return run_ranks(ranks, guarded, timeout_s=20)


def test_the_first_collective_that_differs_is_named_on_every_rank() -> None:
    def program(world: Any) -> None:
        @aj.jit
        def step(x: Any) -> Any:
            y = functional.all_reduce(x.sum())
            if world.rank == 1:
                return functional.all_reduce(x, "max").sum() + y
            return functional.all_gather(x).sum() + y

        step(aj.ones(3))

    messages = raised(program)
    for message in messages:
        assert "different programs: collective 1 differs" in message
        assert "rank 0   all_gather" in message
        assert "rank 1   all_reduce" in message
        assert "'max'" in message
        assert "test_rank_programs.py:" in message


@pytest.mark.parametrize("kind", ["shape", "fewer", "in a loop"])
def test_shapes_numbers_and_loops_are_compared(kind: str) -> None:
    def program(world: Any) -> None:
        @aj.jit
        def step(x: Any) -> Any:
            if kind == "shape":
                return functional.all_reduce(x[world.rank % 2 :])
            if kind == "fewer" and world.rank == 2:
                return functional.all_reduce(x)

            def body(c: Any, _: Any) -> tuple[Any, Any]:
                c = functional.all_reduce(c, "max" if world.rank and kind == "in a loop" else "sum", replicated=False)
                return c, c.sum()

            return aj.scan(body, functional.all_reduce(x), aj.arange(2))[0]

        step(aj.ones(3))

    assert len({message.partition("args")[0] for message in raised(program)}) == 1


def test_what_a_rank_computes_alone_may_differ_and_agreed_programs_are_not_compared_again() -> None:
    def program(world: Any) -> tuple[list[float], int]:
        @aj.jit
        def step(x: Any) -> Any:
            return functional.all_reduce((x * (world.rank + 1)).sum())

        found = [float(step(aj.ones(4)))]
        if world.rank == 1:
            aj.jit(lambda x: x + 1)(aj.ones(2))
        found.append(float(step(aj.ones(4 + world.rank))))  # rank 0 captures nothing new
        found.append(float(step(aj.ones(9, dtype=aj.float64 if world.rank else aj.float32).float())))
        return found, step.stats()["captures"]

    results = run_ranks(3, program, timeout_s=20)
    assert [found for found, _ in results] == [[24.0, 32.0, 54.0]] * 3


def test_a_group_of_some_ranks_is_compared_by_these() -> None:
    from autojit.core.communicator import ThreadAsRank

    def program(world: Any) -> float:
        half = world.split(world.rank % 2, 0, "half")
        with ThreadAsRank(half):
            step = aj.jit(lambda x: functional.all_reduce(x, "sum" if world.rank % 2 else "max", group="half"))
            return float(step(aj.tensor(1.0 + world.rank)))

    assert run_ranks(4, program, timeout_s=20) == [3.0, 6.0, 3.0, 6.0]
