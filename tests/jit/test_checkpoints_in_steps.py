"""Checkpoints inside a compiled step: what they forget takes no memory, and all results are those of eager mode."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit import nn
from autojit.control_flow import scan
from autojit.utils.checkpoint import checkpoint, checkpoint_sequential

F = nn.functional
ROWS, WIDTH = 64, 8


def batch(seed: int, rows: int = ROWS, width: int = WIDTH) -> aj.Tensor:
    return aj.tensor(np.random.default_rng(seed).standard_normal((rows, width)).astype(np.float32))


def dense(width: int, dropout: float = 0.0) -> nn.Module:
    layers = [nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(dropout), nn.Linear(4 * width, width)]
    return nn.Sequential(*layers, nn.LayerNorm(width))


def mixing(width: int) -> nn.Module:
    """Rows of the batch take part in each other, so that no slice of them has a life of its own."""
    return nn.Sequential(nn.Linear(width, width), nn.BatchNorm1d(width), nn.Tanh(), nn.BatchNorm1d(width))


class Looped(nn.Module):
    """A block with a loop in it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(aj.eye(width) * 0.5)

    def forward(self, x: Any) -> Any:
        def body(carry: Any, row: Any) -> tuple[Any, Any]:
            carry = (carry @ self.weight + row).tanh()
            return carry, carry * row

        return scan(body, x[0], x)[1]


class Convolved(nn.Module):
    """A block with a convolution and normalisation over the batch in it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv1d(1, 3, 3, padding=1), nn.BatchNorm1d(3), nn.ReLU(), nn.Conv1d(3, 1, 1))

    def forward(self, x: Any) -> Any:
        return self.body(x[:, None])[:, 0]


Make = Callable[[int], nn.Module]
Wrap = Callable[..., Any]
plain: Wrap = lambda block, x: block(x)
forgetful = partial(checkpoint, use_reentrant=False)
reentrant = partial(checkpoint, use_reentrant=True)


def nested(block: Any, x: Any) -> Any:
    """A checkpoint in a checkpoint."""
    return forgetful(lambda t: forgetful(block, t).sin(), x)


class Training:
    """A stack of blocks with residuals, and its training step."""

    def __init__(self, make: Make, depth: int, wrap: Wrap, width: int = WIDTH, compiled: bool = True) -> None:
        aj.manual_seed(3)
        self.first = nn.Linear(width, width)
        self.blocks = nn.ModuleList(make(width) for _ in range(depth))
        parameters = [*self.first.parameters(), *self.blocks.parameters()]
        self.optimiser = aj.optim.SGD(parameters, lr=0.05)
        self.wrap = wrap
        self.step = aj.jit(self._step) if compiled else self._step

    def _step(self, x: Any, y: Any) -> Any:
        self.optimiser.zero_grad()
        hidden = self.first(x)
        for block in self.blocks:
            hidden = hidden + self.wrap(block, hidden)
        loss = F.mse_loss(hidden.sin(), y)
        loss.backward()
        self.optimiser.step()
        return loss.detach()

    def losses(self, count: int = 3) -> list[float]:
        aj.manual_seed(5)
        return [self.step(batch(k), batch(k + 10)).item() for k in range(count)]


def arena(make: Make, depth: int, wrap: Wrap, rows: int, width: int) -> int:
    training = Training(make, depth, wrap, width)
    training.step(batch(0, rows, width), batch(1, rows, width))
    found: int = training.step.memory()["arena_bytes"]  # type: ignore[attr-defined]
    return found


@pytest.mark.parametrize("wrap", [forgetful, reentrant], ids=["saved", "reentrant"])
@pytest.mark.parametrize("make", [mixing, partial(dense, dropout=0.3)], ids=["mixing", "random"])
def test_a_further_block_keeps_its_operand_alone(make: Make, wrap: Wrap) -> None:
    rows, width = 512, 64
    forgetting, keeping = (
        arena(make, 5, kind, rows, width) - arena(make, 3, kind, rows, width) for kind in (wrap, plain)
    )
    assert forgetting <= 0.5 * keeping
    if aj.get_default_device().type == "cpu":  # on devices random bits are kept, and one value more
        assert forgetting <= 2 * 1.1 * 4 * rows * width


@pytest.mark.parametrize(
    "make", [partial(dense, dropout=0.3), mixing, Looped, Convolved], ids=["random", "mixing", "loop", "conv"]
)
@pytest.mark.parametrize("wrap", [forgetful, reentrant, nested], ids=["saved", "reentrant", "nested"])
def test_losses_are_those_of_eager_mode(make: Make, wrap: Wrap) -> None:
    compiled = Training(make, 2, wrap)
    eager = Training(make, 2, wrap, compiled=False)
    assert compiled.losses() == pytest.approx(eager.losses(), rel=2e-4)
    assert compiled.step.stats()["fallbacks"] == 0  # type: ignore[attr-defined]


def test_a_chain_in_segments_keeps_what_is_between_them() -> None:
    def of(segments: int) -> int:
        aj.manual_seed(0)
        chain = nn.Sequential(*[nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(24)])

        @aj.jit
        def step(x: Any) -> Any:
            x = x.clone().requires_grad_()
            y = checkpoint_sequential(chain, segments, x, use_reentrant=False) if segments else chain(x)
            return aj.autograd.grad(y.square().sum(), [x, *chain.parameters()])

        step(batch(0))
        found: int = step.memory()["arena_bytes"]
        return found

    assert of(6) < 0.7 * of(0)


def test_gradients_of_gradients_go_through_what_is_computed_again() -> None:
    weight = aj.tensor(np.random.default_rng(1).standard_normal((WIDTH, WIDTH)))

    def penalty(x: Any, wrap: Wrap) -> Any:
        x = x.double().requires_grad_()
        y = wrap(lambda t: (t @ weight).tanh().square(), x)
        (slope,) = aj.autograd.grad(y.sum(), x, create_graph=True)
        (second,) = aj.autograd.grad(slope.square().sum(), x)
        return slope.detach(), second

    x = batch(2)
    found = aj.jit(lambda t: penalty(t, forgetful))(x)
    for mine, theirs in zip(found, penalty(x, plain), strict=True):
        np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=1e-9, atol=1e-12)


def test_a_step_of_any_batch_computes_again_too() -> None:
    compiled, eager = Training(dense, 2, forgetful), Training(dense, 2, forgetful, compiled=False)
    for k, n in enumerate((64, 48, 33)):
        x, y = batch(k)[:n], batch(k + 9)[:n]
        assert compiled.step(x, y).item() == pytest.approx(eager.step(x, y).item(), rel=2e-4)
    assert compiled.step.stats()["captures"] <= 2  # type: ignore[attr-defined]
    assert "later" in compiled.step.show("graph")  # type: ignore[attr-defined]
