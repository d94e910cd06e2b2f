"""``scan(..., remat=)``: the same results and derivatives, and memory that grows with the root of the rounds."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import autojit as aj

WIDTH = 5
RNG = np.random.default_rng(4)
W = aj.tensor(RNG.standard_normal((WIDTH, WIDTH)) * 0.4).requires_grad_(True)


def rows(length: int) -> Any:
    return aj.tensor(RNG.standard_normal((WIDTH, length)) if length else np.zeros((WIDTH, 0)))


def body(carry: Any, x: Any) -> Any:
    h = (carry["h"] @ W + x[0]).tanh()
    return {"h": h}, (h * x[1], (), [h[:2].sum()])


def derivatives(a: Any, b: Any, reverse: bool, remat: bool | int) -> tuple[Any, ...]:
    """Results, gradients and their gradients."""
    start = {"h": aj.zeros(WIDTH, dtype=aj.float64)}
    carry, (y, empty, (z,)) = aj.scan(body, start, (a, b), dim=1, reverse=reverse, remat=remat)
    assert empty == ()
    loss = carry["h"].sum() + (y * y).sum() + z.exp().sum()
    grads = aj.autograd.grad(loss, [a, W], create_graph=True)
    again = aj.autograd.grad(sum(g.square().sum() for g in grads), [a, W])
    return loss, y, z, *grads, *again


@pytest.mark.parametrize("length", [1, 7, 12])
@pytest.mark.parametrize("reverse", [False, True])
def test_pieces_change_neither_results_nor_derivatives(length: int, reverse: bool) -> None:
    a, b = rows(length).requires_grad_(True), aj.tensor(RNG.standard_normal((1, length)))
    wanted = derivatives(a, b, reverse, False)
    for remat, function in product((True, 1, 4, 12), (derivatives, aj.jit(derivatives))):
        for x, y in zip(function(a, b, reverse, remat), wanted, strict=True):
            np.testing.assert_allclose(x.detach(), y.detach(), rtol=1e-11, atol=1e-12)


def training(length: int, remat: bool | int) -> Any:
    @aj.jit
    def step(xs: Any) -> Any:
        h, _ = aj.scan(lambda h, x: ((h @ W + x).tanh(), ()), aj.zeros(8, WIDTH, dtype=aj.float64), xs, remat=remat)
        return aj.autograd.grad(h.square().sum(), W)[0]

    step(aj.ones(length, 8, WIDTH, dtype=aj.float64))
    return step


def test_memory_grows_with_the_root_of_the_rounds() -> None:
    taken = [training(length, True).memory()["arena_bytes"] for length in (64, 1024)]
    assert taken[1] < 5 * taken[0]
    assert taken[1] < training(1024, False).memory()["arena_bytes"] / 8


def test_pieces_of_loops_of_any_length_are_compiled_for_each() -> None:
    step = training(6, 4)
    for length in (9, 6, 9):
        found = step(aj.ones(length, 8, WIDTH, dtype=aj.float64))
        np.testing.assert_allclose(found, training(length, False)(aj.ones(length, 8, WIDTH, dtype=aj.float64)))
    assert step.stats()["fallbacks"] == 0


@pytest.mark.parametrize("remat", [-1, "all", 2.0, None])
def test_what_is_no_number_of_rounds_is_refused(remat: Any) -> None:
    with pytest.raises(RuntimeError, match="Remat must be a bool or the rounds of a piece"):
        aj.scan(lambda c, x: (c + x, x), aj.zeros(()), aj.ones(3), remat=remat)


@pytest.mark.parametrize("jit", [lambda f: f, aj.jit], ids=["eager", "compiled"])
def test_a_checkpoint_around_a_loop_inside_a_loop(jit: Any) -> None:
    """What its nodes keep lies in its hooks."""

    def run(xs: Any, wrap: Any) -> Any:
        def outer(h: Any, part: Any) -> Any:
            return wrap(lambda h, p: aj.scan(lambda h, x: ((h @ W + x).tanh(), h.sum()), h, p), h, part)

        h, sums = aj.scan(outer, aj.zeros(WIDTH, dtype=aj.float64), xs.reshape(3, 4, WIDTH))
        return aj.autograd.grad(h.sum() + sums.sum(), [W, xs])

    checkpointed = lambda f, *given: aj.utils.checkpoint.checkpoint(f, *given, use_reentrant=False)
    xs = rows(12).mT.contiguous().requires_grad_(True)
    for x, y in zip(jit(run)(xs, checkpointed), run(xs, lambda f, *given: f(*given)), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-12)
