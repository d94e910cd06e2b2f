"""Gradients of leaves are laid out like the leaves: ``torch.cat([g.view(-1) for g in grads])`` is in many programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit import nn
from autojit.nn import functional as F


def _given(*shape: int) -> Any:
    return aj.tensor(np.random.default_rng(sum(shape)).normal(size=shape), requires_grad=True)


def _linear() -> tuple[Any, list[Any]]:
    w, x = _given(3, 6), _given(8, 6)
    return F.linear(x, w).sin().sum(), [w, x]


def _cell() -> tuple[Any, list[Any]]:
    cell = nn.LSTMCell(4, 5).double()
    h, _ = cell(_given(3, 4))
    return h.square().sum(), list(cell.parameters())


def _transposed() -> tuple[Any, list[Any]]:
    a, b = _given(4, 5), _given(6, 5)
    return (a @ b.t()).square().sum(), [a, b]


def _column_major() -> tuple[Any, list[Any]]:
    a = aj.tensor(np.asfortranarray(np.ones((4, 5)))).requires_grad_()
    b = _given(5, 3)
    return (a @ b).exp().sum(), [a, b]


def _mixed() -> tuple[Any, list[Any]]:
    l, w = nn.Linear(6, 6).double(), _given(2)
    x = _given(8, 6)
    return F.cross_entropy(w[0] * x + w[1] * l(x), aj.arange(8) % 6), [w, l.weight, l.bias, x]


PROGRAMS: dict[str, Callable[[], tuple[Any, list[Any]]]] = {
    "linear": _linear, "cell": _cell, "transposed": _transposed, "column_major": _column_major, "mixed": _mixed,
}  # fmt: skip


@pytest.mark.parametrize("create_graph", (False, True))
@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_are_laid_out_like_leaves(name: str, create_graph: bool) -> None:
    loss, leaves = PROGRAMS[name]()
    found = aj.autograd.grad(loss, leaves, create_graph=create_graph, retain_graph=True)
    loss.backward(retain_graph=True)
    for g, x in zip(found, leaves, strict=True):
        assert g.stride() == x.stride() == x.grad.stride()
        np.testing.assert_allclose(g.detach().numpy(), x.grad.numpy(), rtol=1e-12)  # BLAS may add in another order
    if create_graph:
        flat = aj.cat([g.t().reshape(-1) if name == "column_major" and g.ndim == 2 else g.reshape(-1) for g in found])
        again = aj.autograd.grad(flat.square().sum(), leaves, allow_unused=True)
        assert all(g is None or g.stride() == x.stride() for g, x in zip(again, leaves, strict=True))


@pytest.mark.parametrize("name", ("linear", "cell", "transposed", "mixed"))
def test_flat_gradients_by_view_eager_and_compiled(name: str) -> None:
    def flat() -> Any:
        aj.manual_seed(0)
        loss, leaves = PROGRAMS[name]()
        return aj.cat([g.view(-1) for g in aj.autograd.grad(loss, leaves)])

    np.testing.assert_allclose(
        aj.jit(flat)().numpy(), flat().numpy(), rtol=1e-5, atol=1e-7
    )  # parameters are drawn as float32


def test_what_a_compiled_function_gives_is_laid_out_likewise() -> None:
    net = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    step = aj.jit(lambda x: net(x).square().sum())
    for _ in range(4):
        found = aj.autograd.grad(step(_given(8, 6).detach()), list(net.parameters()))
        assert [g.stride() for g in found] == [p.stride() for p in net.parameters()]


def test_what_is_expanded_stays_so() -> None:
    x = _given(3, 4)
    (g,) = aj.autograd.grad(x.sum(), x)
    assert g.stride() == (0, 0)
