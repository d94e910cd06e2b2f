"""Tensors that exchange what they hold: everything goes with it but the identity."""

from __future__ import annotations

from typing import Any

import pytest

import autojit as aj
from autojit import nn


def held(t: aj.Tensor) -> tuple[Any, ...]:
    """What can be seen of a tensor."""
    grad = t.grad.tolist() if t.is_leaf and t.grad is not None else None
    return type(t), t.dtype, t.tolist(), t.requires_grad, grad, t.is_leaf, t._version, dict(t.__dict__)


def parameter_with_gradient() -> aj.Tensor:
    p = nn.Parameter(aj.ones(2))
    (3 * p).sum().backward()
    p.note = "mine"  # type: ignore[attr-defined]
    return p


def changed() -> aj.Tensor:
    x = aj.zeros(2, 2, dtype=aj.float64)
    x.add_(1)
    return x


MAKERS = {
    "plain": lambda: aj.arange(3), "parameter": parameter_with_gradient, "changed": changed,
    "buffer": lambda: nn.Buffer(aj.zeros(1)), "view": lambda: aj.arange(6.0).view(2, 3)[1],
    "result": lambda: 2 * aj.ones(2, requires_grad=True),
}  # fmt: skip


@pytest.mark.parametrize("first", MAKERS)
@pytest.mark.parametrize("second", MAKERS)
def test_each_tensor_has_what_the_other_had(first: str, second: str) -> None:
    a, b = MAKERS[first](), MAKERS[second]()
    before = held(a), held(b)
    aj.utils.swap_tensors(a, b)
    assert (held(b), held(a)) == before


def test_a_compiled_step_sees_the_tensor_that_has_come() -> None:
    a, b = aj.tensor([1.0, 2.0]), aj.tensor([10.0, 20.0, 30.0])
    step = aj.jit(lambda: a.sum())
    assert step().item() == 3
    aj.utils.swap_tensors(a, b)
    assert step().item() == 60


def test_what_would_follow_the_wrong_tensor_is_refused() -> None:
    a, b = aj.zeros(3), aj.ones(3)
    view = a[1:]
    with pytest.raises(RuntimeError, match="Cannot swap t1 because views"):
        aj.utils.swap_tensors(a, b)
    assert view.tolist() == [0, 0]
    p, q = (nn.Parameter(aj.ones(1)) for _ in range(2))
    loss = (2 * p).sum()
    aj.utils.swap_tensors(p, q)
    with pytest.raises(RuntimeError, match="poisoned by swap_tensors"):
        loss.backward()


def test_what_compiled_modules_have_seen_of_a_tensor_follows_nobody() -> None:
    """A layer reads its weight as a view; the step that is kept of it holds no view of the tensor."""
    first, second = nn.Linear(2, 3), nn.Linear(2, 3)
    x = aj.randn(4, 2)
    expected = first(x).tolist(), second(x).tolist()
    steps = aj.jit(first), aj.jit(second)
    for step in steps:
        for _ in range(3):
            step(x).sum().backward()
    aj.utils.swap_tensors(first.weight, second.weight)
    aj.utils.swap_tensors(first.bias, second.bias)
    for _ in range(3):
        assert (steps[1](x).tolist(), steps[0](x).tolist()) == expected


def test_loading_with_the_switch_keeps_the_parameters_of_the_optimiser() -> None:
    with aj.device("meta"):
        model = nn.Linear(2, 1)
    optimizer = aj.optim.SGD(model.parameters(), lr=1.0)
    state = nn.Linear(2, 1).state_dict()
    aj.__future__.set_swap_module_params_on_conversion(True)
    try:
        model.load_state_dict(state, assign=True)
    finally:
        aj.__future__.set_swap_module_params_on_conversion(False)
    assert optimizer.param_groups[0]["params"][0] is model.weight and model.weight.equal(state["weight"])
    before = model.weight.detach().clone()
    model(aj.ones(1, 2)).sum().backward()
    optimizer.step()
    assert (before - model.weight).tolist() == [[1, 1]]
