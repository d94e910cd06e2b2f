"""Results of compiled calls are differentiated as often as in eager mode: for ever where no node keeps a tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj

FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "sum": lambda x, y: (x + y).sum(),
    "sum of a view": lambda x, y: x.T[1:].sum() - y[0, 0],
    "stacked": lambda x, y: aj.stack([x, y]).sum(0).reshape(-1)[2:].sum(),
    "mean": lambda x, y: x.mean() + y.mean(0)[1] - (x.T.mean(1, keepdim=True) * 2.0).sum(),
    "mean of part": lambda x, y: (x - x.mean(-1, keepdim=True)).sum() + y.mean((0, 1)),
    "product": lambda x, y: (x * y).sum(),
    "by a number": lambda x, y: (3 * x - y).sum(),
    "exp": lambda x, y: (x.exp() + y).sum(),
    "amax": lambda x, y: x.amax() + y.sum(),
    "matmul": lambda x, y: (x @ y.T).sum(),
    "written": lambda x, y: (x * 1).copy_(y).sum() + x.sum(),
    "softmax": lambda x, y: x.softmax(-1)[0, 0] + y.sum(),
    "norm": lambda x, y: x.sum() + y.norm(),
    "padded": lambda x, y: aj.nn.functional.pad(x, (1, 1)).sum() - y.diagonal().sum(),
    "where": lambda x, y: aj.where(x > 0, x, y).sum(),
}


def passes(f: Callable[[Any, Any], Any], first: bool) -> list[Any]:
    """The gradients after each of three backward passes, up to the first that raises: what it did before is no law."""
    x = (aj.arange(12, dtype=aj.float64).reshape(3, 4).sin()).requires_grad_()
    y = (aj.arange(12, dtype=aj.float64).reshape(3, 4).cos()).requires_grad_()
    found: list[Any] = []
    result = f(x, y)
    for k in range(3):
        try:
            result.backward(retain_graph=first and k == 0)
        except RuntimeError as error:
            return [*found, type(error)]
        found += [t.grad.numpy().copy() for t in (x, y) if t.grad is not None]
    return found


@pytest.mark.parametrize("retain_first", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_result_is_differentiated_again_where_eager_mode_can(name: str, retain_first: bool) -> None:
    expected, found = passes(FUNCTIONS[name], retain_first), passes(aj.jit(FUNCTIONS[name]), retain_first)
    assert [np.shape(a) for a in expected] == [np.shape(b) for b in found]
    for a, b in zip(expected, found, strict=True):
        if isinstance(a, type):
            assert a is b
        else:
            np.testing.assert_allclose(a, b, rtol=1e-12)  # a few roundings of float64


@pytest.mark.parametrize("name", ["sum", "sum of a view", "stacked"])
def test_an_operand_may_be_changed_where_no_node_keeps_a_tensor(name: str) -> None:
    def gradient(f: Callable[[Any, Any], Any]) -> Any:
        w = (aj.arange(12, dtype=aj.float64).reshape(3, 4).sin()).requires_grad_()
        x, y = w * 1, w * 2
        result = f(x, y)
        with aj.no_grad():
            x.mul_(3)
            y.zero_()
        result.backward()
        return w.grad.numpy().copy()

    np.testing.assert_array_equal(gradient(FUNCTIONS[name]), gradient(aj.jit(FUNCTIONS[name])))


def test_state_that_is_written_with_a_history_takes_gradients_through_every_step() -> None:
    def left(jit: Any) -> list[Any]:
        base = aj.arange(32, dtype=aj.float64).reshape(8, 4).sin()
        state = base[1:4]

        @jit
        def step(x: aj.Tensor) -> aj.Tensor:
            state.mT.add_(2)
            state.select(0, 0).copy_(x.select(0, 1))
            loss = state.abs().sum()
            loss.backward()
            return loss.detach()

        found: list[Any] = []
        leaves = []
        for k in range(4):
            x = aj.full((3, 4), k + 1.0, dtype=aj.float64)
            leaves.append(x.requires_grad_() if k != 1 else x)
            step(leaves[-1])
            found += [base.detach().numpy().copy(), *(t.grad.numpy().copy() for t in leaves if t.grad is not None)]
        return found

    expected, found = left(lambda f: f), left(aj.jit)
    assert len(expected) == len(found)
    for a, b in zip(expected, found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
