"""What the gradient of a gradient is by operands on which that depends with derivative zero: zeros, as in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj
from autojit import nn
from autojit.autograd.flat_nodes import FLAT

F = nn.functional
FLAT_ONES: dict[str, Callable[[Any], Any]] = {
    "relu": F.relu, "leaky_relu": F.leaky_relu, "hardtanh": F.hardtanh, "relu6": F.relu6, "hardshrink": F.hardshrink,
    "softshrink": F.softshrink, "threshold": lambda z: F.threshold(z, 0.1, 0.2), "relu_": lambda z: F.relu_(z * 1),
    "max_pool2d": lambda z: F.max_pool2d(z, 2), "max_pool3d": lambda z: F.max_pool3d(z[None], (1, 2, 2)),
    "avg_pool2d": lambda z: F.avg_pool2d(z, 2), "avg_pool3d": lambda z: F.avg_pool3d(z[None], (1, 2, 2)),
    "nll_loss": lambda z: F.nll_loss(z[0], aj.tensor([0, 2, 1, 3])),
    "nll_loss2d": lambda z: F.nll_loss(z[None, 0, :, None], aj.tensor([[[0, 2, 1, 3]]])),
}  # fmt: skip
OTHERS = {"linear": lambda z: z * 3, "masked": lambda z: z.masked_fill(z > 0.3, 0)}


def second(function: Callable[[Any], Any], factor: Any, is_compiled: bool) -> list[Any]:
    """``.grad`` of a weight, an offset and an input behind the function, of a loss that is made of a gradient alone."""
    x, weight = (aj.linspace(-1, 2, 16).reshape(1, 4, 4).mul(k).requires_grad_() for k in (1.0, 0.5))
    offset = aj.zeros(4, requires_grad=True)

    def step(x: Any) -> None:
        (slope,) = aj.autograd.grad((function(x * weight + offset) * factor).sum(), x, create_graph=True)
        slope.square().sum().backward()

    run = aj.jit(step) if is_compiled else step
    for _ in range(2):
        run(x)
    return [t.grad for t in (weight, offset, x)]


@pytest.mark.parametrize("is_compiled", [False, True])
@pytest.mark.parametrize("factor", ["constant", "with a history"])
@pytest.mark.parametrize("name", FLAT_ONES)
def test_gradients_behind_flat_nodes_are_zeros(name: str, factor: str, is_compiled: bool) -> None:
    """Whether or not another history leads from the gradient: a loss of it can be differentiated in any case."""
    by = aj.tensor(1.5, requires_grad=True) if factor == "with a history" else 1.5
    weight, offset, x = second(FLAT_ONES[name], by, is_compiled)
    assert weight.any()
    assert offset is not None and not offset.any() and x is not None and not x.any()


@pytest.mark.parametrize("is_compiled", [False, True])
@pytest.mark.parametrize("name", OTHERS)
def test_what_a_gradient_was_not_computed_from_has_none(name: str, is_compiled: bool) -> None:
    weight, offset, x = second(OTHERS[name], aj.tensor(1.5, requires_grad=True), is_compiled)
    assert weight.any()
    assert offset is None and x is None


def test_every_flat_node_is_tried() -> None:
    z = aj.ones(1, 4, 4, requires_grad=True)
    names = {function(z).grad_fn.name() for function in FLAT_ONES.values()}
    assert names == FLAT


@pytest.mark.parametrize("is_compiled", [False, True])
def test_optimisers_move_offsets_by_a_penalty_alone(is_compiled: bool) -> None:
    """Momentum goes on where a gradient is zeros; of None it would stand still."""
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    optimizer = aj.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    net = aj.jit(model) if is_compiled else model
    x = aj.randn(5, 3)
    net(x).sum().backward()
    optimizer.step()
    before = model[0].bias.detach().clone()
    for _ in range(3):
        optimizer.zero_grad()
        x = aj.randn(5, 3, requires_grad=True)
        (slope,) = aj.autograd.grad(net(x).sum(), x, create_graph=True)
        slope.square().sum().backward()
        optimizer.step()
    assert not model[0].bias.equal(before) and model[2].bias.grad is None
