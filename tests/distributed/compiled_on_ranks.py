"""What holds on several ranks of MPI's for collectives of compiled steps, which call MPI's functions themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import autojit as aj
from autojit import distributed as dist
from autojit.compiler import compile
from autojit.core.communicator import communicator, join, leave
from autojit.distributed import functional, mpi
from autojit.ir import evaluate
from tests.distributed.every_collective import REAL, every_collective
from tests.distributed.spmd_programs import Program

KINDS = ("f64", "f32", "bf16", "i8", "bool", "c128")


def _same(name: str, kinds: Sequence[str] = KINDS) -> Iterator[str]:
    """Where compiled code and the reference differ in a group."""
    n, rank = dist.get_world_size(), dist.get_rank()
    for kind in kinds:
        for length in (0, 23) if kind == "f64" else (23,):
            graph = every_collective(kind, length, n, name)
            draw = np.random.default_rng(rank)
            given = []
            for value in graph.inputs:
                x = 60 * draw.standard_normal(value.type.shape).astype(np.float32)
                if kind in REAL and rank == 0 and x.size:
                    x.flat[0] = np.nan
                is_whole = kind[0] in "iu"
                given.append(x.astype(np.int64).astype(value.type.dtype.numpy) if is_whole else x.astype(
                    value.type.dtype.numpy))  # fmt: skip
            made = compile(graph)
            if made.lowered.fallbacks:
                yield f"{kind}: called back: {made.lowered.fallbacks}"
            found = made.executable.run(given)
            made_by = graph.definitions()
            for key, a, b in zip(graph.outputs, evaluate(graph, given), found, strict=True):
                if not np.array_equal(a.astype(np.complex128), b.astype(np.complex128), equal_nan=True):
                    yield f"{kind}[{length}] {made_by[key].op}: {a} {b}"


def check_native_calls_give_what_eager_ones_give() -> None:
    assert list(_same("world")) == []


def check_long_buffers_go_in_pieces() -> None:
    whole: Any = communicator("world")
    most, mpi.MOST = mpi.MOST, 7
    try:
        short = whole.split(0, whole.rank, "short")
        join(short)
        assert short.native().most == 7
        assert list(_same("short", ("f64", "i8"))) == []
    finally:
        mpi.MOST = most
        leave("short")


def check_random_programs() -> None:
    """The same compiled by MPI's functions, and by NumPy for all ranks at once."""
    from autojit.transforms.adjoint import adjoint

    n, rank, done, seed = dist.get_world_size(), dist.get_rank(), 0, 0
    while done < 3:
        seed += 1
        program = Program(seed, has_extremes=True)
        if program.size != n:
            continue
        done += 1
        inputs, bars = program.inputs(), program.like(program.kinds, (seed, 1))
        flags = [*program.varying, *program.kinds]
        expected = evaluate(adjoint(program.whole), [*inputs, *bars])
        mine = [x[rank] if flag else x for x, flag in zip([*inputs, *bars], flags, strict=True)]
        found = compile(adjoint(program.graph)).executable.run(mine)
        for a, b, flag in zip(found, expected, program.varying, strict=True):
            np.testing.assert_allclose(a, b[rank] if flag else b, rtol=1e-8, atol=1e-9 * max(1, np.abs(b).max()))


def check_what_is_begun_is_there_when_it_has_been_waited_for() -> None:
    """Begun and ended in a step, outside of one, and on ranks of which some run line by line: the same numbers."""
    floats, whole = (aj.float64, aj.float32, aj.float16, aj.bfloat16), (aj.int8, aj.int64, aj.bool)
    cases = [(dtype, op) for dtype in floats for op in ("sum", "avg", "prod", "max", "min")]
    cases += [(dtype, op) for dtype in whole for op in ("sum", "max")]

    def summed(xs: list[Any], between: Any) -> Any:
        works = [dist.all_reduce(x, op, async_op=True) for x, (_, op) in zip(xs, cases, strict=True)]
        product = between @ between
        for work in works:
            work.wait()
        return xs, product

    step, by_line = aj.jit(summed), dist.get_rank() == 1
    for k in range(3):
        drawn = np.random.default_rng(10 * k + dist.get_rank())
        given = [aj.tensor(30 * drawn.normal(size=9)).to(dtype) for dtype, _ in cases]
        if dist.get_rank() == 0:
            for x in given[: 5 * len(floats)]:
                x[0] = float("nan")
        expected = [x.clone() for x in given]
        for x, (_, op) in zip(expected, cases, strict=True):
            dist.all_reduce(x, op)
        found, product = (summed if by_line and k == 2 else step)([x.clone() for x in given], aj.full((3, 3), k + 1.0))
        assert product[0, 0] == 3.0 * (k + 1) ** 2
        for x, y, case in zip(found, expected, cases, strict=True):
            assert x.dtype is y.dtype, case
            tolerance = {aj.float64: 1e-14, aj.float32: 1e-6, aj.float16: 1e-3, aj.bfloat16: 1e-2}.get(case[0], 0.0)
            size = 30 * tolerance  # of the terms: what cancels out is known to no more
            assert aj.allclose(x.double(), y.double(), rtol=tolerance, atol=size, equal_nan=True), (case, x, y)


def check_all_that_is_begun_in_a_step_is_begun_outside_of_it_too() -> None:
    """The same numbers, on ranks of which one runs line by line now and then; no call goes by way of Python."""
    n, me = dist.get_world_size(), dist.get_rank()

    def exchanged(x: Any, parts: Any) -> Any:
        rows, part, peak, swapped = aj.empty(n, *x.shape), aj.empty_like(x), aj.empty_like(x), aj.empty_like(parts)
        listed, one, root = [aj.empty_like(x) for _ in range(n)], x * 3, x * 4
        works = [
            dist.all_gather_into_tensor(rows, x, async_op=True),
            dist.all_gather(listed, x * 2, async_op=True),
            dist.reduce_scatter_tensor(part, parts, async_op=True),
            dist.reduce_scatter(peak, list(parts), "max", async_op=True),
            dist.all_to_all_single(swapped, parts, async_op=True),
            dist.reduce(one, n - 1, async_op=True),
            dist.broadcast(root, 0, async_op=True),
        ]
        product = x @ x
        for work in works[::-1]:
            work.wait()
        return [rows, part, peak, swapped, *listed, one, root, product]

    step = aj.jit(exchanged)
    for k in range(4):
        drawn = np.random.default_rng(10 * k + me)
        x, parts = (aj.tensor(drawn.normal(size=s).astype(np.float32)) for s in ((3, 3), (n, 3, 3)))
        found = (exchanged if k == 3 and me == n - 1 else step)(x, parts)
        every = [np.random.default_rng(10 * k + r) for r in range(n)]
        drawn_of_all = [[d.normal(size=s).astype(np.float32) for s in ((3, 3), (n, 3, 3))] for d in every]
        xs, ps = np.stack([d[0] for d in drawn_of_all]), np.stack([d[1] for d in drawn_of_all])
        one = 3 * (xs.sum(0) if me == n - 1 else xs[me])
        expected = [xs, ps[:, me].sum(0), ps[:, me].max(0), ps[:, me], *(2 * xs), one, 4 * xs[0], xs[me] @ xs[me]]
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a.numpy(), b, rtol=1e-5, atol=1e-5)
    if n > 1:
        assert step.stats()["fallbacks"] == 0
        schedule = step.show("schedule")
        assert schedule.count("manner='begun'") + schedule.count(" wait") >= 7, schedule


def check_other_programs_are_an_error_and_no_hang() -> None:
    @aj.jit
    def step(x: Any) -> Any:
        return functional.all_reduce(x, "max" if dist.get_rank() else "sum")

    try:
        step(aj.ones(3))
    except RuntimeError as error:
        assert "collective 0 differs" in str(error)
    else:
        assert dist.get_world_size() == 1
