"""Results of compiled functions differentiate to any order, as the eager function's do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj


class Twice(aj.autograd.Function):
    """A custom function whose derivative is deliberately five, not two."""

    @staticmethod
    def forward(ctx: Any, x: aj.Tensor) -> aj.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, bar: aj.Tensor) -> aj.Tensor:
        return bar * 5


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "smooth": lambda x, y: (x * y).tanh() * x.exp(),
    "matmul": lambda x, y: x @ y.T,
    "detach": lambda x, y: x * x.detach() * y,
    "no grad inside": lambda x, y: x * _without_grad(y) + y,
    "several": lambda x, y: (x.sin(), y.sum(), (x * y).sum(0)),
    "reduction": lambda x, y: (x.softmax(-1) * y).logsumexp(0),
    "inner gradient": lambda x, y: _inner_gradient(x, y),
    "in place": lambda x, y: _in_place(x, y),
    "views": lambda x, y: (x[0] * y[1], x.T),
    "hook": lambda x, y: _hooked(x, y),
}


def _without_grad(y: aj.Tensor) -> aj.Tensor:
    with aj.no_grad():
        return y * 3


def _inner_gradient(x: aj.Tensor, y: aj.Tensor) -> Any:
    (slope,) = aj.autograd.grad(((x**3) * y).sum(), x, create_graph=True)
    return slope * y


def _in_place(x: aj.Tensor, y: aj.Tensor) -> aj.Tensor:
    z = x * 2
    z[0] = y[1] * x[0]
    z.mul_(y)
    return z


def _hooked(x: aj.Tensor, y: aj.Tensor) -> aj.Tensor:
    z = x * y
    z.register_hook(lambda g: g * 3)
    return z.sin()


def inputs() -> list[aj.Tensor]:
    rng = np.random.default_rng(0)
    return [aj.tensor(rng.standard_normal((2, 3))).requires_grad_() for _ in range(2)]


def total(result: Any) -> aj.Tensor:
    return sum((r**2).sum() for r in (result if isinstance(result, tuple) else (result,)))  # type: ignore[return-value]


def derivatives(function: Callable[..., Any]) -> list[np.ndarray]:
    """First and second derivatives of every input."""
    x, y = inputs()
    first = aj.autograd.grad(total(function(x, y)), (x, y), create_graph=True)
    second = aj.autograd.grad(sum((g**2).sum() for g in first), (x, y), allow_unused=True)
    third = aj.autograd.grad(total(function(x, y)), (x, y))
    return [g.detach().numpy() for g in (*first, *second, *third) if g is not None]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_first_and_second_derivatives_agree(name: str) -> None:
    function = FUNCTIONS[name]
    step = aj.jit(function)
    for _ in range(2):
        for a, b in zip(derivatives(function), derivatives(step), strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-10, atol=1e-12)
    assert step.stats()["captures"] == 1


@pytest.mark.parametrize("name", ["smooth", "matmul", "reduction", "several", "in place", "inner gradient"])
def test_gradcheck_of_compiled_functions(name: str) -> None:
    step = aj.jit(FUNCTIONS[name])
    assert aj.autograd.gradcheck(step, tuple(inputs()))
    assert aj.autograd.gradgradcheck(step, tuple(inputs()))


def test_custom_functions_keep_their_derivative() -> None:
    step = aj.jit(lambda x: Twice.apply(x) * x)
    for function in (lambda x: Twice.apply(x) * x, step):
        x = aj.tensor([3.0], requires_grad=True)
        function(x).backward()
        assert x.grad.item() == 5 * 3 + 2 * 3


def test_parameters_integers_and_detached_results() -> None:
    table = aj.nn.Parameter(aj.arange(6, dtype=aj.float64).reshape(3, 2))

    def function(index: aj.Tensor, x: aj.Tensor) -> Any:
        rows = table[index] * x
        return rows, index + 1, rows.detach(), rows > 2

    step = aj.jit(function)
    found = []
    for f in (function, step, step):
        table.grad = None
        x = aj.ones(2, dtype=aj.float64, requires_grad=True)
        rows, index, detached, flags = f(aj.tensor([2, 0]), x)
        assert not detached.requires_grad and not index.requires_grad and not flags.requires_grad
        (rows**2).sum().backward()
        found.append((table.grad.tolist(), x.grad.tolist(), detached.tolist(), index.tolist(), flags.tolist()))
    assert found[0] == found[1] == found[2]


def test_leaf_hooks_run_once_per_backward() -> None:
    weight = aj.ones(2, requires_grad=True)
    weight.register_hook(lambda g: g * 10)
    step = aj.jit(lambda x: (x * weight).sum())
    step(aj.ones(2)).backward()
    assert weight.grad.tolist() == [10.0, 10.0]


def test_a_penalty_outside_on_a_compiled_forward() -> None:
    model = aj.nn.Sequential(aj.nn.Linear(3, 4), aj.nn.Tanh(), aj.nn.Linear(4, 1)).double()
    forward = aj.jit(model)
    found = []
    for f in (model, forward):
        model.zero_grad()
        x = aj.ones(2, 3, dtype=aj.float64, requires_grad=True)
        y = f(x)
        (slope,) = aj.autograd.grad(y.sum(), x, create_graph=True)
        ((slope**2).sum() + y.mean()).backward()
        found.append([p.grad.numpy().copy() for p in model.parameters()])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-10)


def test_a_non_leaf_argument_passes_gradients_on() -> None:
    step = aj.jit(lambda h: (h**2).sum())
    x = aj.tensor([1.0, 2.0], requires_grad=True)
    step(x * 3).backward()
    assert x.grad.tolist() == [18.0, 36.0]

    @aj.jit
    def backward_inside(h: aj.Tensor) -> None:
        (h**2).sum().backward()

    x.grad = None
    backward_inside(x * 3)
    assert x.grad.tolist() == [18.0, 36.0]


@pytest.mark.parametrize("overwrite", [lambda x: x.clone().zero_(), lambda x: x.clone().fill_(2.0) * 3])
def test_a_result_whose_gradient_is_zero_requires_one(overwrite: Callable[[aj.Tensor], aj.Tensor]) -> None:
    """As in eager mode: the numbers do not depend on the argument, the history does."""
    x = aj.tensor([1.0, 2.0], requires_grad=True)
    run = aj.jit(overwrite)
    for _ in range(2):
        y = run(x)
        assert y.requires_grad
        assert aj.autograd.grad(y.sum(), x)[0].tolist() == [0.0, 0.0]
    assert not run(x.detach()).requires_grad


def test_forward_mode_and_batches_go_through_the_backward_of_a_compiled_step() -> None:
    x, y, bar, bar_dot = (aj.tensor(np.random.default_rng(k).standard_normal((2, 3))) for k in range(4))

    def product(function: Callable[..., Any]) -> Callable[[aj.Tensor], aj.Tensor]:
        leaf = x.clone().requires_grad_()
        result = function(leaf, y)
        return lambda bar: aj.autograd.grad(result, leaf, bar, retain_graph=True)[0]

    eager = FUNCTIONS["smooth"]
    found, expected = (aj.func.jvp(product(f), (bar,), (bar_dot,)) for f in (aj.jit(eager), eager))
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-12)
    bars = aj.stack([bar, bar_dot])
    batched, plain = (aj.func.vmap(product(f))(bars) for f in (aj.jit(eager), eager))
    np.testing.assert_allclose(batched.numpy(), plain.numpy(), rtol=1e-12)
