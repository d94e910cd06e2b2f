"""What may stand in a body: everything that eager code does with tensors, with the same results and gradients."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
from tests.control_flow.agreement import F, agree, derivatives

RNG = np.random.default_rng(5)
W = aj.tensor(RNG.standard_normal((3, 3)) / 2, requires_grad=True)
NET = aj.nn.Sequential(aj.nn.Linear(3, 3), aj.nn.Tanh()).double()


def start() -> aj.Tensor:
    return aj.tensor([0.4, -0.3, 0.7], dtype=F, requires_grad=True)


def no_grad_part(h: aj.Tensor, u: aj.Tensor) -> Any:
    with aj.no_grad():
        k = h.sin()
    return h * k + u, h.sum()


def checkpointed(h: aj.Tensor, u: aj.Tensor) -> Any:
    return aj.utils.checkpoint.checkpoint(lambda h: (h @ W).tanh(), h, use_reentrant=False) + u, ()


def written_in_place(h: aj.Tensor, u: aj.Tensor) -> Any:
    made = h.clone()
    made[1] = h[0] * u
    made[0:1].mul_(2)
    return made.sin(), made


def swapped(c: aj.Tensor, u: aj.Tensor) -> Any:
    return c.flip(0), (c, c, u, c[0])


def nested_function(h: aj.Tensor, u: aj.Tensor) -> Any:
    return aj.jit(lambda h: h.sin() * u)(h), ()


STEPS: dict[str, Callable[..., Any]] = {
    "no_grad": no_grad_part,
    "module": lambda h, u: (NET(h) + u, ()),
    "checkpoint": checkpointed,
    "in place": written_in_place,
    "results twice": swapped,
    "outside row": lambda h, u: (h * W[0] + W.mT[1] * u, h[1]),
    "mask": lambda h, u: (aj.where(h > 0, h * u, h.exp()), h.relu()),
    "compiled function": nested_function,
    "constants": lambda h, u: (h * aj.tensor([1.0, 2.0, 0.5], dtype=F), aj.ones(2, dtype=F)),
    "softmax": lambda h, u: (h.softmax(0) * 2 + u, h.logsumexp(0)),
    "extremes": lambda h, u: (h * 0.9 + h.amax().sin(), h.argmax()),
    "numbers": lambda h, u: (h * 0.5 + 1, 2.0),
}


@pytest.mark.parametrize("name", STEPS)
def test_steps(name: str) -> None:
    def run(x: aj.Tensor) -> Any:
        h, ys = aj.scan(STEPS[name], x, x)
        extra = [y.sum() for y in aj.utils._pytree.tree_leaves(ys) if isinstance(y, aj.Tensor) and y.requires_grad]
        return ys, derivatives((h**3).sum() + sum(e.sin() for e in extra), x)

    agree(run, start())


def test_tensors_that_the_step_changed_before() -> None:
    def run(x: aj.Tensor) -> Any:
        b = x * 2
        b.add_(1)
        rest = b[1:]
        b[0] = 5.0
        h, _ = aj.scan(lambda h, u: (h * b + rest.sum() * u, ()), x, x)
        return derivatives((h**2).sum(), x)

    agree(run, start())


@pytest.mark.parametrize("mode", [aj.no_grad, aj.inference_mode])
def test_modes(mode: Any) -> None:
    def run(x: aj.Tensor) -> Any:
        with mode():
            return aj.scan(lambda h, u: (h * u + W[0], h.sum()), x, x)

    found = agree(run, start())(start())
    assert not found[0].requires_grad


def test_what_needs_no_gradient_has_none() -> None:
    run = aj.jit(lambda x: aj.scan(lambda c, u: ((c[0] * u, c[1] + 1), c[1]), (x, aj.zeros(())), x.detach()))
    (h, count), counts = run(start())
    assert h.requires_grad
    assert not count.requires_grad
    assert not counts.requires_grad


def test_a_training_step_with_an_optimizer() -> None:
    nets = [copy.deepcopy(NET) for _ in range(2)]
    optimizers = [aj.optim.Adam(net.parameters(), lr=0.01) for net in nets]

    def train(net: Any, optimizer: Any, x: aj.Tensor) -> aj.Tensor:
        optimizer.zero_grad()
        h, _ = aj.scan(lambda h, u: (net(h) + u, ()), x, x)
        loss = (h**2).sum()
        loss.backward()
        optimizer.step()
        return loss

    step = aj.jit(lambda x: train(nets[1], optimizers[1], x))
    x = start().detach()
    for _ in range(5):
        np.testing.assert_allclose(step(x).item(), train(nets[0], optimizers[0], x).item(), rtol=1e-9)
    assert (step.stats()["captures"], step.stats()["fallbacks"]) == (1, 0)


def test_an_inner_training_loop_is_differentiated() -> None:
    def run(x: aj.Tensor) -> Any:
        def descend(weights: Any, rate: aj.Tensor) -> Any:
            loss = ((x @ weights[0] + weights[1]) ** 2).sum()
            slopes = aj.autograd.grad(loss, weights, create_graph=True)
            return tuple(w - rate * s for w, s in zip(weights, slopes, strict=True)), loss

        weights, losses = aj.scan(descend, (W, x * 1), aj.full((4,), 0.05, dtype=F))
        return losses, derivatives(sum((w**2).sum() for w in weights), x, W)

    agree(run, start())


def test_dropout_draws_anew_in_every_step_and_its_gradient_agrees() -> None:
    drop = aj.nn.Dropout(0.5)

    def run(x: aj.Tensor) -> Any:
        h, ys = aj.scan(lambda h, u: (drop(h) + u, h), x, aj.ones(6, 3, dtype=F))
        return ys, *derivatives((h**2).sum() + ys.sum(), x)

    step = aj.jit(run)
    for seed in (0, 1):
        aj.manual_seed(seed)
        expected = run(start())
        aj.manual_seed(seed)
        for a, b in zip(step(start()), expected, strict=True):
            np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-9)


def test_draws_in_a_batch_are_passed_in() -> None:
    def draw(x: aj.Tensor) -> aj.Tensor:
        return aj.scan(lambda h, u: (h + aj.rand(3, dtype=F), ()), x, x)[0]

    with pytest.raises(RuntimeError, match="draws random numbers inside of vmap"):
        aj.jit(aj.vmap(draw, randomness="same"))(aj.ones(2, 3, dtype=F))


def test_draws_in_forward_mode() -> None:
    def draw(x: aj.Tensor) -> aj.Tensor:
        return aj.scan(lambda h, u: (h * aj.rand(3, dtype=F), ()), x, x)[0]

    def run(x: aj.Tensor) -> Any:
        return aj.func.jvp(draw, (x,), (x.cos(),))

    step = aj.jit(run)
    for seed in (0, 1):
        aj.manual_seed(seed)
        expected = run(start().detach())
        aj.manual_seed(seed)
        for a, b in zip(step(start().detach()), expected, strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-9)


def test_a_derivative_that_changes_tensors_outside_runs_turn_by_turn() -> None:
    calls = aj.zeros(())

    class Counted(aj.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, y_bar: Any) -> Any:
            calls.add_(1)
            return y_bar * 2

    step = lambda x: aj.autograd.grad(aj.scan(lambda h, u: (Counted.apply(h) + u, ()), x[0], x)[0].sum(), x)[0]
    found, wanted = (run(aj.ones(3, 2, requires_grad=True)).tolist() for run in (aj.jit(step), step))
    assert found == wanted
    assert calls.item() == 6


def test_complex_carries() -> None:
    z = aj.tensor([0.5 + 0.2j, -0.1j], dtype=aj.complex128, requires_grad=True)

    def run(z: aj.Tensor) -> Any:
        h, ys = aj.scan(lambda c, u: (c * u + z, c.abs()), z, z)
        return aj.autograd.grad((h.abs() ** 2).sum() + ys.sum(), z)

    compiled = aj.jit(run)
    np.testing.assert_allclose(compiled(z)[0].numpy(), run(z)[0].numpy(), rtol=1e-10)


def test_half_precision_carries() -> None:
    x = aj.tensor([0.5, -0.25], dtype=aj.float16)
    run = lambda x: aj.scan(lambda c, u: ((c * u).sin(), c), x, x.expand(3, 2))
    for a, b in zip(aj.jit(run)(x), run(x), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=2e-3, atol=1e-3)


def test_tangents_of_outside_tensors_reach_the_body() -> None:
    def loss(x: aj.Tensor, s: aj.Tensor) -> aj.Tensor:
        def grow(c: aj.Tensor, n: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
            inner, _ = aj.scan(lambda a, u: (a * s + u * x[0], ()), c, aj.stack([x, s]))
            return (inner.sin() + x) * 1.5, n + 1

        y, _ = aj.while_loop(lambda c, n: (n < 3) & (c.abs().sum() < 20), grow, (x * 2, aj.tensor(0)))
        return aj.cond(y.sum() > 0, lambda: (y * s).sum(), lambda: (y - s).sin().sum())

    x, s = start().detach(), aj.tensor([0.9, 1.1, -0.4], dtype=F)

    def run(x: aj.Tensor, s: aj.Tensor) -> Any:
        product = aj.func.jvp(loss, (x, s), (s, x))[1]
        slopes = aj.func.grad(loss, argnums=(0, 1))(x, s)
        return product, (slopes[0] * s).sum() + (slopes[1] * x).sum(), aj.func.hessian(lambda x: loss(x, s))(x)

    agree(run, x, s)
    product, by_gradient, _ = aj.jit(run)(x, s)
    np.testing.assert_allclose(product.item(), by_gradient.item(), rtol=1e-10)


def test_products_that_are_the_same_in_every_step() -> None:
    def run(x: aj.Tensor) -> Any:
        h, ys = aj.scan(lambda h, u: (h * 0.5 + u, (W @ W, x @ W)), x, x.expand(4, 3))
        return derivatives((h**2).sum() + (ys[0] ** 2).sum() + ys[1].sin().sum(), x, W)

    agree(run, start())
