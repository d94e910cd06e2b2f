"""Programs for many ranks: simulated at once, by threads, with kinds known to the program; sums by a fixed tree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.core.errors import ArgumentError, ShapeError, UsageError
from autojit.distributed import functional, run_ranks
from autojit.distributed.simulated import simulated
from autojit.distributed.varying import per_rank
from tests.emulated import emulated_cuda


def explicit(w: Any, x: Any) -> Any:
    """A program that says where a replicated tensor becomes varying."""
    h = aj.tanh(x @ functional.pvary(w))
    y = functional.all_reduce(h, replicated=False) * functional.shift(h)
    total = functional.all_reduce((y * y).mean())
    return total + functional.all_reduce(h.max(), "max") * w.sum(), y


def data(n: int) -> tuple[Any, Any]:
    draw = np.random.default_rng(n)
    return aj.tensor(draw.standard_normal((4, 5))), aj.tensor(draw.standard_normal((n, 6, 4)))


@pytest.mark.parametrize("n", [1, 2, 3])
def test_threads_and_the_simulation_agree(n: int) -> None:
    w, x = data(n)
    one = simulated(explicit, n, (False, True))
    leaf_w, leaf_x = w.clone().requires_grad_(), x.clone().requires_grad_()
    loss, y = one(leaf_w, leaf_x)
    loss.backward()

    def program(world: Any) -> list[Any]:
        mine_w, mine_x = w.clone().requires_grad_(), x[world.rank].clone().requires_grad_()
        found, part = explicit(mine_w, mine_x)
        found.backward()
        return [found.detach(), part.detach(), mine_w.grad, mine_x.grad]

    for rank, (a, b, c, d) in enumerate(run_ranks(n, program)):
        pairs = [(a, loss), (b, y[rank]), (d, leaf_x.grad[rank])]
        for found, expected in pairs:
            np.testing.assert_allclose(found.numpy(), expected.detach().numpy(), rtol=1e-11, atol=1e-12)
        # the part that multiplies w outside of what varies counts once, the same on all ranks
        np.testing.assert_allclose(c.numpy(), leaf_w.grad.numpy(), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("is_compiled", [False, True])
def test_per_rank_gives_the_gradients_of_the_global_function(is_compiled: bool) -> None:
    n = 3
    w, x = data(n)

    def plain(w: Any, x: Any) -> Any:
        h = aj.tanh(x @ w) + x.sum()
        h += w.sum()
        h[0] = w.sum()  # what is replicated is written into what varies
        y = functional.all_reduce(h, replicated=False) * functional.shift(h)
        total = functional.all_reduce((y * y).mean() + w.sum())
        return total + functional.all_reduce(h.max(), "max") * w.sum() + (w.detach() * w).sum()

    leaf = w.clone().requires_grad_()
    loss = simulated(plain, n, (False, True))(leaf, x)
    loss.backward()

    def program(world: Any) -> tuple[Any, Any]:
        mine = w.clone().requires_grad_()
        run = per_rank(plain, (False, True))

        def gradient(w: Any, x: Any) -> Any:
            found = run(w, x)
            return found.detach(), aj.autograd.grad(found, (w,))[0]

        return (aj.jit(gradient) if is_compiled else gradient)(mine, x[world.rank].clone())

    for found, slope in run_ranks(n, program):
        np.testing.assert_allclose(found.numpy(), loss.detach().numpy(), rtol=1e-11)
        np.testing.assert_allclose(slope.numpy(), leaf.grad.numpy(), rtol=1e-11)


def test_a_thousand_ranks_in_one_process() -> None:
    n = 1024
    x = aj.arange(n).double()
    total, ring, numbers = simulated(
        lambda x: (functional.all_reduce(x), functional.shift(x, -1), functional.rank(x)), n
    )(x)
    assert float(total) == n * (n - 1) / 2
    assert ring.tolist() == [*range(1, n), 0]
    assert numbers.tolist() == list(range(n))


def test_a_simulation_is_part_of_a_compiled_step() -> None:
    w, x = data(3)
    one = simulated(explicit, 3, (False, True))

    def gradient(w: Any, x: Any) -> Any:
        return aj.autograd.grad(one(w, x)[0], (w,))[0]

    leaf = w.clone().requires_grad_()
    np.testing.assert_allclose(aj.jit(gradient)(leaf, x).numpy(), gradient(leaf, x).numpy(), rtol=1e-12)


def test_loops_with_collectives_are_simulated() -> None:
    def program(x: Any) -> Any:
        def body(c: Any, k: Any) -> tuple[Any, Any]:
            c = functional.all_reduce(aj.sin(c * k), replicated=False)
            return c, c.sum()

        last, sums = aj.scan(body, x, aj.tensor([1.0, 2.0, 3.0]).double())
        return functional.all_reduce(last.sum()) + functional.all_reduce((sums * sums).sum())

    x = aj.tensor(np.random.default_rng(0).standard_normal((3, 2))).requires_grad_()
    simulated(program, 3)(x).backward()

    def on_rank(world: Any) -> Any:
        mine = x.detach()[world.rank].clone().requires_grad_()
        (slope,) = aj.jit(lambda x: aj.autograd.grad(program(x), (x,)))(mine)
        return slope

    for rank, slope in enumerate(run_ranks(3, on_rank)):
        np.testing.assert_allclose(slope.numpy(), x.grad[rank].numpy(), rtol=1e-11)


def test_reductions_of_parts() -> None:
    x = np.random.default_rng(1).standard_normal((3, 3, 4))
    for how, fold in (("sum", np.sum), ("prod", np.prod), ("max", np.max), ("min", np.min)):
        found = simulated(lambda x, how=how: functional.reduce_scatter(x, how), 3)(aj.tensor(x))
        np.testing.assert_allclose(found.numpy(), fold(x, axis=0), rtol=1e-14)


@pytest.mark.parametrize("shape", [(), (7,), (2, 5)])
def test_a_sum_by_a_tree_has_the_same_bits_for_any_number_of_ranks(shape: tuple[int, ...]) -> None:
    shards = np.random.default_rng(2).standard_normal((8, *shape)).astype(np.float32) * 10.0 ** np.arange(8).reshape(
        (8, *(1,) * len(shape))
    ).astype(np.float32)

    def program(world: Any) -> bytes:
        mine = aj.tensor(shards.reshape(world.size, -1, *shape)[world.rank])
        eager = functional.tree_all_reduce(mine)
        step = aj.jit(functional.tree_all_reduce)
        assert step(mine).numpy().tobytes() == eager.numpy().tobytes()
        return eager.numpy().tobytes()

    found = {bits for n in (1, 2, 4, 8) for bits in run_ranks(n, program)}
    assert len(found) == 1


def test_a_training_step_by_shards_has_the_same_bits_for_any_number_of_ranks() -> None:
    draw = np.random.default_rng(3)
    x, y = draw.standard_normal((8, 4, 6)).astype(np.float32), draw.standard_normal((8, 4, 2)).astype(np.float32)
    weights = [draw.standard_normal(s).astype(np.float32) for s in ((6, 5), (5, 2))]

    def program(world: Any) -> bytes:
        count = 8 // world.size
        mine = [aj.tensor(a.reshape(world.size, count, *a.shape[1:])[world.rank]) for a in (x, y)]
        w = [aj.tensor(a, requires_grad=True) for a in weights]

        @aj.jit
        def step(x: Any, y: Any) -> None:
            parts = []
            for k in range(count):
                loss = ((aj.tanh(x[k] @ w[0]) @ w[1] - y[k]) ** 2).mean()
                parts.append(aj.autograd.grad(loss, w))
            with aj.no_grad():
                for leaf, slopes in zip(w, zip(*parts, strict=True), strict=True):
                    leaf -= 0.1 / 8 * functional.tree_all_reduce(aj.stack(slopes))

        for _ in range(20):
            step(*mine)
        return b"".join(leaf.detach().numpy().tobytes() for leaf in w)

    assert len({bits for n in (1, 2, 4) for bits in run_ranks(n, program)}) == 1


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ShapeError, match="a part for each of the 3 ranks"):
        simulated(lambda x: x, 3)(aj.ones(2))
    with pytest.raises(ArgumentError, match="there are 2 arguments"):
        simulated(lambda x, y: x, 3, (True,))(aj.ones(3), aj.ones(3))
    with pytest.raises(UsageError, match="all at once"):
        simulated(lambda x: x + aj.distributed.functional.communicator("world").rank, 3)(aj.ones(3))
    with pytest.raises(UsageError, match="differs from rank to rank"):
        simulated(lambda x: functional.own_part(x), 3)(aj.ones(3, 3))
    with pytest.raises(UsageError, match="has not joined"):
        functional.all_reduce(aj.ones(1), group="nobody's")
    with pytest.raises(ShapeError, match="power of two"):
        run_ranks(1, lambda world: functional.tree_all_reduce(aj.ones(3)))


def test_threads_that_differ_or_fail_end() -> None:
    def differ(world: Any) -> Any:
        return functional.all_reduce(aj.ones(2 + world.rank))

    with pytest.raises(UsageError, match="different collectives"):
        run_ranks(2, differ)

    def fail(world: Any) -> Any:
        if world.rank == 1:
            raise KeyError("mine")
        return functional.all_reduce(aj.ones(2))

    with pytest.raises(KeyError, match="mine"):
        run_ranks(3, fail)


def test_tensors_on_a_device_are_combined_by_way_of_the_host() -> None:
    def program(world: Any) -> None:
        x = aj.tensor([1.0 + world.rank, 2.0], device="cuda", requires_grad=True)

        def gradient(x: Any) -> Any:
            y = functional.all_reduce(aj.tanh(x)) * functional.rank(x)
            loss = functional.all_reduce((y * y).sum() + functional.all_reduce(x, "max").sum())
            return loss.detach(), aj.autograd.grad(loss, (x,))[0]

        step = aj.jit(gradient)
        step(x)
        for found, expected in zip(step(x), gradient(x), strict=True):
            assert str(found.device) == "cuda:0"
            np.testing.assert_allclose(found.cpu().numpy(), expected.cpu().numpy(), rtol=1e-5)

    with emulated_cuda():  # of one rank: threads that share a device wait for it, and for each other
        run_ranks(1, program)
