"""Random programs for many ranks: what a rank computes, and its derivatives, are its part of the global program's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from autojit.compiler import compile
from autojit.distributed.threads import run_ranks
from autojit.ir import Graph, evaluate, verify
from autojit.transforms.adjoint import adjoint
from autojit.transforms.jvp import jvp
from tests.distributed.spmd_programs import Program
from tests.ops.test_collectives import on_ranks

FAR = 1e6  # programs whose numbers grow beyond it lose the digits that are compared


def agree(program: Program, ranks: Sequence[Sequence[Any]], whole: Sequence[Any], kinds: Sequence[bool]) -> None:
    """Ranks have their part of the whole, and hold the same where a value is replicated."""
    for k, (expected, is_varying) in enumerate(zip(whole, kinds, strict=True)):
        scale = float(np.max(np.abs(expected), initial=1.0))
        for r, found in enumerate(ranks):
            wanted = expected[r] if is_varying else expected
            try:
                np.testing.assert_allclose(found[k], wanted, rtol=1e-9, atol=1e-11 * scale)
            except AssertionError as error:  # text of a graph takes as long as the laws
                raise AssertionError(f"seed {program.seed}\n{program.graph}") from error
            assert is_varying or np.array_equal(found[k], ranks[0][k]), program.seed


def check(seed: int) -> None:
    """All laws of one program; those that cost more are asked of some."""
    program = Program(seed, has_extremes=seed % 3 != 0)
    graph, whole, kinds, n = verify(program.graph), verify(program.whole), program.kinds, program.size
    inputs = program.inputs()
    results = evaluate(whole, inputs)
    agree(program, on_ranks(graph, n, inputs, program.varying), results, kinds)
    bars = program.like(kinds, (seed, 1))
    flags = [*program.varying, *kinds]
    pulled = evaluate(adjoint(whole), [*inputs, *bars])
    if max(float(np.max(np.abs(x))) for x in (*results, *pulled)) > FAR:
        return
    back = verify(adjoint(graph))
    agree(program, on_ranks(back, n, [*inputs, *bars], flags), pulled, program.varying)
    dots = program.inputs(seed=2)
    pushed = evaluate(jvp(whole), [*inputs, *dots])
    agree(program, on_ranks(jvp(graph), n, [*inputs, *dots], [*program.varying] * 2), pushed, [*kinds, *kinds])
    left = sum(float(np.sum(w * y)) for w, y in zip(bars, pushed[len(kinds) :], strict=True))
    right = sum(float(np.sum(x * v)) for x, v in zip(pulled, dots, strict=True))
    size = sum(float(np.sum(np.abs(w * y))) for w, y in zip(bars, pushed[len(kinds) :], strict=True))
    assert abs(left - right) <= 1e-9 * max(1.0, size), seed
    if seed % 3 == 0:  # without kinks
        assert difference_error(whole, inputs, dots, pushed[len(kinds) :]) < 1e-6, seed
    if seed % 5 == 0:
        more = program.inputs(seed=3)
        twice = evaluate(adjoint(adjoint(whole)), [*inputs, *bars, *more])
        found = on_ranks(verify(adjoint(back)), n, [*inputs, *bars, *more], [*flags, *program.varying])
        agree(program, found, twice, flags)
    if seed % 7 == 0:
        agree(program, compiled(back, n, [*inputs, *bars], flags), pulled, program.varying)


def difference_error(graph: Graph, inputs: Sequence[Any], dots: Sequence[Any], tangents: Sequence[Any]) -> float:
    """How far tangents are from five-point differences, of the step that is best: programs may be steep."""

    def at(step: float) -> list[Any]:
        return evaluate(graph, [x + step * v for x, v in zip(inputs, dots, strict=True)])

    errors = []
    for h in (1e-2, 1e-3, 1e-4, 1e-5, 1e-6):
        samples = zip(at(-2 * h), at(-h), at(h), at(2 * h), tangents, strict=True)
        found = [((a - 8 * b + 8 * c - d) / (12 * h), t) for a, b, c, d, t in samples]
        errors.append(max(float(np.max(np.abs(e - t)) / max(1.0, np.max(np.abs(t)))) for e, t in found))
    return min(errors)


def compiled(graph: Graph, n: int, inputs: Sequence[Any], varying: Sequence[bool]) -> list[list[Any]]:
    """What every rank computes by native code."""

    def program(world: Any) -> list[Any]:
        given = [x[world.rank] if flag else x for x, flag in zip(inputs, varying, strict=True)]
        return [np.array(y) for y in compile(graph).executable.run(given)]

    return run_ranks(n, program)


@pytest.mark.parametrize("seed", range(30))
def test_ranks_compute_their_part_of_the_global_program(seed: int) -> None:
    check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 10_000, 250))
def test_ten_thousand_programs(first: int) -> None:
    for seed in range(first, first + 250):
        check(seed)
