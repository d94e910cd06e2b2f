"""Tensors with a history that a compiled step reads or changes in place: afterwards it is the eager one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj

Scenario = Callable[[Callable[..., Any]], Any]


def leaf(*values: float) -> aj.Tensor:
    return aj.tensor(values, dtype=aj.float64, requires_grad=True)


def derivatives(y: aj.Tensor, x: aj.Tensor) -> list[Any]:
    (first,) = aj.autograd.grad(y.sum(), x, create_graph=True)
    (second,) = aj.autograd.grad((first * first).sum(), x, retain_graph=True)
    return [first.tolist(), second.tolist()]


def changed_in_place(wrap: Callable[..., Any]) -> Any:
    def double(x: aj.Tensor) -> aj.Tensor:
        x.mul_(2)
        return x * x

    a = leaf(1.0, 2.0)
    x = a * 3
    version = x._version
    y = wrap(double)(x)
    assert x._version > version
    return [x.tolist(), x.requires_grad, x.is_leaf, derivatives(y.sum() + x.sum(), a)]


def gains_a_history(wrap: Callable[..., Any]) -> Any:
    def add(x: aj.Tensor, w: aj.Tensor) -> aj.Tensor:
        return x.add_(w * w)

    w, x = leaf(1.0, 2.0), aj.ones(2, dtype=aj.float64)
    y = wrap(add)(x, w)
    return [y is x, x.requires_grad, x.is_leaf, derivatives(y * y, w)]


def without_a_result(wrap: Callable[..., Any]) -> Any:
    def change(x: aj.Tensor, y: aj.Tensor) -> None:
        x.add_(y)
        y.mul_(2)

    a, b = leaf(1.0, 2.0), leaf(3.0, 4.0)
    x, y = a * 3, b * 1
    wrap(change)(x, y)
    return [derivatives(x * x * y, a), derivatives(x * y * y, b)]


def through_a_view(wrap: Callable[..., Any]) -> Any:
    def square(x: aj.Tensor) -> None:
        x.copy_(x.clone() ** 2)

    a = leaf(1.0, 2.0)
    x = a * 3
    wrap(square)(x[:1])
    return [x.tolist(), type(x.grad_fn).__name__, derivatives(x, a)]


def written_without_recording(wrap: Callable[..., Any]) -> Any:
    def shifted(x: aj.Tensor, w: aj.Tensor) -> aj.Tensor:
        with aj.no_grad():
            x.add_(1)
        return x * w

    a, w = leaf(1.0, 2.0), leaf(2.0, 3.0)
    wrap(shifted)(a * 3, w).sum().backward()
    return [a.grad.tolist(), w.grad.tolist()]


def gradient_before_the_change(wrap: Callable[..., Any]) -> Any:
    def penalty(x: aj.Tensor) -> aj.Tensor:
        (g,) = aj.autograd.grad((x * x).sum(), x, create_graph=True)
        x.add_(1)
        return (g * x).sum()

    a = leaf(1.0, 2.0)
    return derivatives(wrap(penalty)(a * 3), a)


def backward_goes_on_outside(wrap: Callable[..., Any]) -> Any:
    def run(x: aj.Tensor) -> tuple[bool, bool]:
        (x * 2).sum().backward(retain_graph=True)
        (x * x).sum().backward()
        return x.is_leaf, x.grad_fn is None

    a = leaf(1.0, 2.0)
    return [wrap(run)(a * 3), a.grad.tolist()]


def a_hook_on_the_argument(wrap: Callable[..., Any]) -> Any:
    def hooked(x: aj.Tensor) -> aj.Tensor:
        x.register_hook(lambda bar: bar * 10)
        return x * 2

    a = leaf(1.0, 2.0)
    return derivatives(wrap(hooked)(a * a), a)


def detached_in_place(wrap: Callable[..., Any]) -> Any:
    x = leaf(1.0) * 2
    wrap(lambda t: t.detach_())(x)
    return [x.requires_grad, x.is_leaf]


@pytest.mark.parametrize(
    "scenario",
    [
        changed_in_place, gains_a_history, without_a_result, through_a_view, written_without_recording,
        gradient_before_the_change, backward_goes_on_outside, a_hook_on_the_argument, detached_in_place,
    ],
)  # fmt: skip
def test_histories_after_a_compiled_call_are_the_eager_ones(scenario: Scenario) -> None:
    expected = scenario(lambda function: function)
    compiled: dict[Any, Any] = {}

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        return compiled.setdefault(function.__name__, aj.jit(function))  # the later runs meet a compiled step

    for _ in range(3):
        assert scenario(wrap) == expected
    (step,) = compiled.values()
    assert step.stats()["captures"] == (scenario is not a_hook_on_the_argument), "a hook that is left runs line by line"
    assert step.stats()["fallbacks"] == 0


def test_leaves_and_results_are_told_apart_by_native_code() -> None:
    step = aj.jit(lambda x: (aj.autograd.grad((x * x).sum(), x)[0], x.is_leaf))
    x = leaf(1.0, 2.0)
    for given, is_leaf in [(x, True)] * 3 + [(x * 2, False)] * 3 + [(x, True), (x * 2, False)]:
        grad, found = step(given)
        assert found == is_leaf
        assert grad.tolist() == (2 * given).tolist()
    assert step.stats()["captures"] == 2
    assert step.stats()["native_calls"] >= 2


def refused(message: str, run: Callable[[], Any]) -> None:
    with pytest.raises(RuntimeError, match=message):
        run()


def test_what_eager_mode_refuses_is_refused() -> None:
    double = aj.jit(lambda x: x.mul_(2))
    x = leaf(1.0, 2.0) * 1
    double(x)
    refused("a leaf Variable that requires grad", lambda: double(leaf(1.0, 2.0)))
    refused("a view of a leaf Variable that requires grad", lambda: double(leaf(1.0, 2.0)[:]))
    refused(
        "function that returns multiple views", lambda: double((leaf(1.0, 2.0, 3.0, 4.0) * 1).reshape(2, 2).unbind()[0])
    )


def test_what_was_saved_before_a_compiled_call_is_guarded() -> None:
    double = aj.jit(lambda x: x.mul_(2))
    w, x = leaf(1.0, 2.0), aj.ones(2, dtype=aj.float64)
    y = w * x
    double(x)
    refused("modified by an inplace operation", lambda: y.sum().backward())
    z = leaf(1.0, 2.0) * 3
    y = z * z
    double(z)
    refused("modified by an inplace operation", lambda: y.sum().backward())


def gathers_outside(wrap: Callable[..., Any]) -> Any:
    total, w = aj.zeros(2, dtype=aj.float64), leaf(1.0, 2.0)
    step = wrap(lambda x: total.add_(w * w * x) is None)
    for k in range(3):
        step(aj.full((2,), k + 1.0, dtype=aj.float64))
    return [total.tolist(), total.is_leaf, derivatives(total, w)]


def changes_a_result_outside(wrap: Callable[..., Any]) -> Any:
    a = leaf(1.0, 2.0)
    w = a * a

    def scale(x: aj.Tensor) -> aj.Tensor:
        w.mul_(x)
        return w.sum()

    step = wrap(scale)
    results = [step(aj.full((2,), k + 2.0, dtype=aj.float64)) for k in range(3)]
    return [w.tolist(), [derivatives(y, a) for y in results]]


def changes_a_view_outside(wrap: Callable[..., Any]) -> Any:
    a = leaf(1.0, 2.0)
    base = a * a
    view = base[:1]
    step = wrap(lambda x: view.mul_(x) is None)
    for _ in range(3):
        step(aj.full((1,), 2.0, dtype=aj.float64))
    return [base.tolist(), derivatives(base, a)]


def reads_a_leaf_and_what_was_made_of_it(wrap: Callable[..., Any]) -> Any:
    w = leaf(1.0, 2.0)
    h = w * w
    step = wrap(lambda x: h * w * x)
    step(aj.ones(2, dtype=aj.float64))
    return derivatives(step(aj.ones(2, dtype=aj.float64)), w)


@pytest.mark.parametrize(
    "scenario",
    [gathers_outside, changes_a_result_outside, changes_a_view_outside, reads_a_leaf_and_what_was_made_of_it],
)
def test_histories_of_tensors_outside_are_the_eager_ones(scenario: Scenario) -> None:
    assert scenario(aj.jit) == scenario(lambda function: function)
