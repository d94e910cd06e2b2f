"""A group of one process is native, too: steps with collectives are one call, and give what eager mode gives."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import autojit as aj
from autojit.compiler import compile
from autojit.core.communicator import join, leave
from autojit.distributed import functional
from autojit.distributed.alone import Alone
from autojit.ir import evaluate
from tests.codegen.test_collective_entries import KINDS
from tests.distributed.every_collective import every_collective


@pytest.fixture
def alone() -> Iterator[Alone]:
    made = Alone("native")
    join(made)
    yield made
    leave("native")


@pytest.mark.parametrize("kind", KINDS)
def test_native_calls_give_what_eager_ones_give(alone: Alone, kind: str) -> None:
    for n in (0, 9):
        graph = every_collective(kind, n, 1, "native")
        x = np.random.default_rng(0).standard_normal(n).astype(np.float32)
        x[n // 2 : n // 2 + 1] = np.nan if kind[0] in "fb" and kind != "bool" else 0
        given = x.astype(graph.inputs[0].type.dtype.numpy)
        made = compile(graph)
        assert made.lowered.fallbacks == ()
        for a, b in zip(evaluate(graph, [given, given[None]]), made.executable.run([given, given[None]]), strict=True):
            assert np.array_equal(a.astype(np.complex128), b.astype(np.complex128), equal_nan=True)


def test_a_program_for_many_ranks_runs_alone(alone: Alone) -> None:
    def gradient(x: aj.Tensor) -> aj.Tensor:
        y = functional.all_reduce(aj.tanh(x), group="native") * functional.shift(x, group="native")
        loss = functional.all_reduce((y * functional.all_gather(x, group="native").sum(0)).sum(), group="native")
        return aj.autograd.grad(loss, (x,))[0]

    step = aj.jit(gradient)
    x = aj.tensor([0.5, -1.0, 2.0], requires_grad=True)
    for _ in range(2):
        np.testing.assert_allclose(step(x).numpy(), gradient(x).numpy(), rtol=1e-6)
    assert step.stats()["fallbacks"] == 0
