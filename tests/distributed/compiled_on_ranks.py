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
from autojit.ir import evaluate, parse_graph, verify
from tests.distributed.spmd_programs import Program

KINDS = ("f64", "f32", "bf16", "i8", "bool", "c128")


def _graph(kind: str, n: int, name: str, length: int) -> Any:
    w, x, parts = f"group='{name}', size={n}", f"{kind}[{length}]", f"{kind}[{n}, {length}]"
    ring = tuple((r, (r + 1) % n) for r in range(n))[: max(1, n - 1)]
    nodes = {
        "a": (x, f"all_reduce[{w}, combine='sum', is_replicated=True](x)"),
        "b": (x, f"all_reduce[{w}, combine='prod', is_replicated=True](x)"),
        "c": (parts, f"all_gather[{w}, is_replicated=True](x)"),
        "d": (x, f"reduce_scatter[{w}](p)"),
        "e": (parts, f"all_to_all[{w}](p)"),
        "f": (x, f"broadcast[{w}, root={n - 1}, is_replicated=True](x)"),
        "g": (x, f"send_recv[{w}, pairs={ring}](x)"),
        "h": (x, f"own_part[{w}](c)"),
        "i": ("i64[]", f"rank[{w}]()"),
    }
    if not kind.startswith("c"):
        nodes["j"] = (x, f"all_reduce[{w}, combine='max', is_replicated=True](x)")
        nodes["k"] = (x, f"all_reduce[{w}, combine='min', is_replicated=True](x)")
    if kind in ("f64", "f32", "bf16"):
        nodes["l"] = (f"i64[{length}]", f"owner[{w}, combine='min'](x)")
    lines = " ".join(f"{key}: {type} = {op};" for key, (type, op) in nodes.items())
    return verify(parse_graph(f"(x: {x}, p: {parts}) {{ {lines} return {', '.join(nodes)} }}"))


def _same(name: str, kinds: Sequence[str] = KINDS) -> Iterator[str]:
    """Where compiled code and the reference differ in a group."""
    n, rank = dist.get_world_size(), dist.get_rank()
    for kind in kinds:
        for length in (0, 23) if kind == "f64" else (23,):
            graph = _graph(kind, n, name, length)
            draw = np.random.default_rng(rank)
            given = []
            for value in graph.inputs:
                x = 60 * draw.standard_normal(value.type.shape).astype(np.float32)
                if kind in ("f64", "f32", "bf16") and rank == 0 and x.size:
                    x.flat[0] = np.nan
                is_whole = kind[0] in "iu"
                given.append(x.astype(np.int64).astype(value.type.dtype.numpy) if is_whole else x.astype(
                    value.type.dtype.numpy))  # fmt: skip
            made = compile(graph)
            if made.lowered.fallbacks:
                yield f"{kind}: called back: {made.lowered.fallbacks}"
            found = made.executable.run(given)
            for key, a, b in zip("abcdefghijkl", evaluate(graph, given), found, strict=False):
                if not np.array_equal(a.astype(np.complex128), b.astype(np.complex128), equal_nan=True):
                    yield f"{kind}[{length}] {key}: {a} {b}"


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
