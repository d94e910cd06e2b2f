"""What a step tells a tensor about its history: `requires_grad_`, `retain_grad`, `detach_`, on arguments and outside.

Law: the caller's tensor is afterwards what eager mode makes of it, gradients of the results go where they go there, and
later calls see it. A call that fails has changed nothing (eager mode stops where it is).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj

FLAGS: dict[str, Callable[[Any], Any]] = {
    "requires_grad_()": lambda x: x.requires_grad_(),
    "requires_grad_(False)": lambda x: x.requires_grad_(False),
    "requires_grad = True": lambda x: setattr(x, "requires_grad", True),
    "requires_grad = False": lambda x: setattr(x, "requires_grad", False),
    "there and back": lambda x: x.requires_grad_().requires_grad_(False),
    "retain_grad": lambda x: x.retain_grad(),
    "detach_": lambda x: x.detach_(),
    "detach_ and requires_grad_": lambda x: x.detach_().requires_grad_(),
}
REST: dict[str, Callable[[Any], Any]] = {
    "nothing": lambda x: None,
    "a result": lambda x: (x * 2).sum(),
    "two results": lambda x: (x * 2).sum() * (x * x).sum(),
    "backward": lambda x: (x * x).sum().backward() if x.requires_grad else None,
    "grad": lambda x: aj.autograd.grad((x * x).sum(), [x])[0] if x.requires_grad else None,
    "detached": lambda x: (x * 2).sum().detach(),
    "in place": lambda x: [aj.no_grad()(lambda: x.add_(1))(), None][1],
    "the tensor": lambda x: x,
    "a view": lambda x: x[1:],
    "a view with a flag": lambda x: x[1:].requires_grad_(),
    "a view without history": lambda x: aj.no_grad()(lambda: x.view(-1))(),
    "what it is": lambda x: (x.requires_grad, x.is_leaf),
}
TENSORS: dict[str, Callable[[], Any]] = {
    "plain": lambda: aj.tensor([1.0, 2.0]),
    "leaf": lambda: aj.tensor([1.0, 2.0], requires_grad=True),
    "made": lambda: aj.tensor([1.0, 2.0], requires_grad=True) * 2,
    "view": lambda: aj.ones(2, 2)[0],
}


def told(x: Any) -> Any:
    if not isinstance(x, aj.Tensor):
        return x
    grad = x.grad.tolist() if (x.is_leaf or x.retains_grad) and x.grad is not None else None
    return x.detach().tolist(), x.requires_grad, x.is_leaf, x.retains_grad, grad


def seen(jit: Callable[[Any], Any], flag: str, rest: str, tensor: str, is_given: bool) -> list[Any]:
    held: list[Any] = [None]

    @jit
    def step(x: Any) -> Any:
        x = held[0] if x is None else x
        FLAGS[flag](x)
        return REST[rest](x)

    found: list[Any] = []
    x = TENSORS[tensor]()
    for k in range(7):
        if k < 4:  # a fresh one, then the same one again and again
            x = TENSORS[tensor]()
        held[0] = x
        try:
            result = step(x if is_given else None)
            found += [result is x, told(result), told(x)]
            if isinstance(result, aj.Tensor) and result.requires_grad and result is not x:
                result.sum().backward()
                found.append(told(x))
        except RuntimeError as error:
            return [*found, type(error).__name__]
    return found


@pytest.mark.parametrize("is_given", [True, False], ids=["argument", "outside"])
@pytest.mark.parametrize("rest", REST)
@pytest.mark.parametrize("flag", FLAGS)
def test_flags_are_left_as_eagerly(flag: str, rest: str, is_given: bool) -> None:
    for tensor in TENSORS:
        expected = seen(lambda f: f, flag, rest, tensor, is_given)
        assert seen(aj.jit, flag, rest, tensor, is_given) == expected, tensor


def test_a_step_that_only_needs_gradients_of_its_argument_is_captured_once_for_each_flag() -> None:
    @aj.jit
    def saliency(x: Any) -> Any:
        x.requires_grad_()
        return aj.autograd.grad((x * x).sum(), [x])[0]

    for _ in range(3):
        x = aj.ones(2)
        assert saliency(x).tolist() == saliency(x).tolist() == [2.0, 2.0]
        assert x.requires_grad
    assert saliency.stats()["captures"] == 2


def test_the_derivative_of_a_result_by_an_argument_that_the_step_lets_require_gradients() -> None:
    def found(jit: Callable[[Any], Any]) -> list[Any]:
        @jit
        def step(x: Any, w: Any) -> Any:
            x.requires_grad_()
            return (x * w).sum() + (x * x * x).sum()

        x, w = aj.tensor([1.0, 2.0]), aj.tensor([3.0, 4.0], requires_grad=True)
        slopes = aj.autograd.grad(step(x, w), [x, w], create_graph=True)
        curvature = aj.autograd.grad(slopes[0].sum(), [x])[0]
        return [t.detach().tolist() for t in (*slopes, curvature)]

    assert found(aj.jit) == found(lambda f: f)


USES: dict[str, Callable[[Any, Any], Any]] = {
    "backward": lambda x, w: ((x * w).square().sum().backward(), None)[1],
    "gradient returned": lambda x, w: ((x * w).square().sum().backward(), x.grad)[1],
    "gradient read": lambda x, w: ((x * w).square().sum().backward(), x.grad.sign() * 2 + x.detach())[1],
    "grad": lambda x, w: aj.autograd.grad((x * w).square().sum(), x)[0],
    "penalty": lambda x, w: (
        aj.autograd.grad((x * w).square().sum(), x, create_graph=True)[0].square().sum().backward(),
        None,
    )[1],
}


@pytest.mark.parametrize("use", USES)
def test_gradients_that_a_step_gives_to_arguments_cost_no_python(use: str) -> None:
    def run(jit: Callable[[Any], Any]) -> tuple[list[Any], Any]:
        w = aj.tensor([3.0, 4.0], requires_grad=True)

        @jit
        def step(x: Any, y: Any) -> Any:
            x.requires_grad_()
            w.grad = None
            return USES[use](x, w * y)

        found: list[Any] = []
        held = []
        for k in range(8):
            x = aj.tensor([1.0 + k, 2.0])
            result = step(x, y=aj.tensor(0.5))
            held.append(x)  # gradients that somebody keeps are not written again
            found += [told(result), told(x), result is x.grad, told(held[0]), told(w)]
        x.requires_grad_(False)  # a gradient from before is added to
        step(x, y=aj.tensor(0.5))
        return [*found, told(x)], step

    (expected, _), (found, step) = run(lambda f: f), run(aj.jit)
    assert found == expected
    assert step.stats()["native_calls"] >= 5, step.explain()
