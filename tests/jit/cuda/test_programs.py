"""What programs may do in a step on a GPU, each against the same program on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit import nn
from tests.autograd.functions import Exp

Results = list[Any]


def rows(device: str, count: int = 3, width: int = 4) -> aj.Tensor:
    return aj.linspace(-1, 1, count * width, device=device).reshape(count, width)


def branching(device: str) -> Results:
    """Python decides by values, twice."""

    @aj.jit
    def step(x: aj.Tensor) -> aj.Tensor:
        y = x * 2
        if y.sum() > 0:
            y = y.exp()
        return y * y.max().item()

    return [step(rows(device) + shift) for shift in (1.0, -1.0, 0.5, -0.5, 1.0)]


def in_place(device: str) -> Results:
    """State, a view of it and an argument are written."""
    state = rows(device).clone()
    column = state.t()[1]

    @aj.jit
    def step(x: aj.Tensor) -> aj.Tensor:
        column.mul_(2)
        state[0] += x[0]
        x[:, 1:].neg_()
        return (state**2).sum()

    found: Results = []
    for k in range(3):
        x = rows(device) * k
        found += [step(x), x]
    return [*found, state, column]


def turned_state(device: str) -> Results:
    """State whose elements are in another order than row-major."""
    state = rows(device).t().contiguous().t()

    @aj.jit
    def step(x: aj.Tensor) -> aj.Tensor:
        state.add_(x)
        return state.sum(0)

    return [*(step(rows(device)) for _ in range(3)), state]


def derivatives(device: str) -> Results:
    """Hooks, a user's Function, gradients of gradients, all in one step."""
    w = rows(device).clone().requires_grad_()

    @aj.jit
    def step(x: aj.Tensor) -> tuple[aj.Tensor, ...]:
        hidden = x * w
        hidden.register_hook(lambda bar: bar * 2)
        (first,) = aj.autograd.grad(Exp.apply(hidden).sum(), w, create_graph=True)
        (second,) = aj.autograd.grad((first**2).sum(), w)
        return first.detach(), second

    return [value for k in range(3) for value in step(rows(device) + k)]


def outside_derivatives(device: str) -> Results:
    """The caller differentiates what a step returns."""
    layer = nn.Linear(4, 2)
    with aj.no_grad():
        for p in layer.parameters():
            p.copy_(aj.linspace(-1, 1, p.numel()).reshape(p.shape))
    layer.to(device)
    step = aj.jit(lambda x: layer(x).tanh())
    found: Results = []
    for k in range(3):
        layer.zero_grad()
        step(rows(device) + k).square().sum().backward()
        found += [p.grad.clone() for p in layer.parameters()]
    return found


def drawn(device: str) -> Results:
    """Random numbers are the same wherever they are drawn."""
    aj.manual_seed(3)
    step = aj.jit(lambda x: (nn.functional.dropout(x, 0.5) + aj.randn_like(x), aj.rand(3, device=x.device)))
    return [value for _ in range(3) for value in step(rows(device))]


def mixed(device: str) -> Results:
    """A counter of the host, copies there and back."""
    count = aj.zeros((), device="cpu")

    @aj.jit
    def step(x: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
        count.add_(1)
        y = x.to(device) * count
        total = y.sum().cpu()
        return total, y + (total + 1).to(device)

    return [*(value for _ in range(3) for value in step(rows("cpu"))), count]


def called_back(device: str) -> Results:
    """An op without code for the device, in the middle of a step that updates state."""
    state = aj.eye(3, device=device)

    @aj.jit
    def step(x: aj.Tensor) -> aj.Tensor:
        state.add_(x @ x.t())
        return aj.linalg.inv(state * 2) + 1

    return [*(step(rows(device)) for _ in range(3)), state]


def loops(device: str) -> Results:
    """Loops and branches of the graph."""

    def rounds(x: aj.Tensor) -> aj.Tensor:
        total, _ = aj.scan(lambda c, row: (c * 0.5 + row, c), aj.zeros(4, device=device), x)
        (last,) = aj.while_loop(lambda c: c.sum() < 50, lambda c: (c * 2,), (total.exp(),))
        return aj.cond(last.sum() > 60, lambda c: c + 1, lambda c: c - 1, (last,)).sum()

    step = aj.jit(aj.func.grad(rounds))
    return [step(rows(device) + k) for k in range(2)]


def drawn_in_loops(device: str) -> Results:
    """Loops that draw: the generator's key is the host's, what they compute with is not."""

    @aj.jit
    def step(x: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
        def body(carry: aj.Tensor, row: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
            made = nn.functional.dropout(carry, 0.5) + row * aj.randn_like(row)
            return made, made.sum()

        last, sums = aj.scan(body, x[0], x)
        return aj.cond(last.sum() > 0, lambda y: y * aj.rand_like(y), lambda y: y - aj.rand_like(y), (last,)), sums

    aj.manual_seed(3)
    return [value for _ in range(3) for value in step(rows(device))]


def totals(device: str) -> Results:
    """What is updated in place is summed on the way, by fewer elements than a block has threads."""
    state = aj.arange(5.0, device=device)

    @aj.jit
    def step(x: aj.Tensor) -> aj.Tensor:
        state.mul_(0.5).add_(x)
        return state.square().sum()

    return [*(step(aj.ones(5, device=device)) for _ in range(4)), state]


def placed(device: str) -> Results:
    """State is written at run-time places, and read there."""
    state = rows(device, 5).clone()

    @aj.jit
    def step(places: aj.Tensor, x: aj.Tensor) -> aj.Tensor:
        state[places] = x
        state.index_add_(0, places, x)
        return state[places] * 2

    given = [aj.tensor(places, device=device) for places in ([4, 0], [1, 2], [0, 3])]
    return [*(step(places, rows(device, 2)) for places in given), state]


def sizes(device: str) -> Results:
    """Extents that change, sizes that the data decide."""
    step = aj.jit(lambda x: (x.softmax(-1).cumsum(0), x[x > 0].sum()))
    return [value for n in (2, 5, 3, 5) for value in step(rows(device, n))]


@pytest.mark.parametrize(
    "program",
    [
        branching,
        in_place,
        turned_state,
        derivatives,
        outside_derivatives,
        drawn,
        mixed,
        called_back,
        loops,
        drawn_in_loops,
        totals,
        placed,
        sizes,
    ],
    ids=lambda program: program.__name__,
)
def test_a_program_has_the_results_of_the_cpu(program: Callable[[str], Results]) -> None:
    expected, found = ([value.detach().cpu().numpy() for value in program(device)] for device in ("cpu", "cuda"))
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
