"""Planted anomalies: what anomaly mode reports names the op, the user's line of the forward op and the order.

How to read: a ``Plant`` is a loss whose forward op marked ``# planted`` makes a NaN (or an exception) in the derivative
of some order, for one input, while for another input everything is finite. Every plant is run three ways: eagerly, with
the whole step compiled (first with the good input, so that the bad one meets a compiled step), and with only the loss
compiled and differentiated outside. False alarms are programs that meet NaN where it does not reach the gradients.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import autojit as aj
from autojit.autograd import Function, set_detect_anomaly

INF = float("inf")
NAN = float("nan")


def leaf(values: tuple[float, ...]) -> aj.Tensor:
    return aj.tensor(values, dtype=aj.float64, requires_grad=True)


class NanBackward(Function):
    """Its backward gives NaN where the input is negative."""

    @staticmethod
    def forward(ctx: Any, x: aj.Tensor) -> aj.Tensor:
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, y_bar: aj.Tensor) -> aj.Tensor:
        (x,) = ctx.saved_tensors
        return aj.where(x < 0, y_bar * NAN, y_bar * 2)


class SecondInput(Function):
    """Its backward gives NaN for its second input only."""

    @staticmethod
    def forward(ctx: Any, x: aj.Tensor, y: aj.Tensor) -> aj.Tensor:
        ctx.save_for_backward(x, y)
        return x + y

    @staticmethod
    def backward(ctx: Any, bar: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
        _, y = ctx.saved_tensors
        return bar, aj.where(y < 0, bar * NAN, bar)


class SqrtInBackward(Function):
    """Its backward computes an op whose own derivative is NaN at zero."""

    @staticmethod
    def forward(ctx: Any, x: aj.Tensor) -> aj.Tensor:
        ctx.save_for_backward(x)
        return x.abs()

    @staticmethod
    def backward(ctx: Any, y_bar: aj.Tensor) -> aj.Tensor:
        (x,) = ctx.saved_tensors
        return y_bar * (x * x).sqrt()


class LengthInBackward(Function):
    """Its backward is finite at zero, the derivative of its backward is not."""

    @staticmethod
    def forward(ctx: Any, x: aj.Tensor) -> aj.Tensor:
        ctx.save_for_backward(x)
        return x * 3

    @staticmethod
    def backward(ctx: Any, y_bar: aj.Tensor) -> aj.Tensor:
        (x,) = ctx.saved_tensors
        return y_bar * aj.hypot(x, x * 2)


class Inner(Function):
    """Used in the backward of Outer."""

    @staticmethod
    def forward(ctx: Any, bar: aj.Tensor, x: aj.Tensor) -> aj.Tensor:
        ctx.save_for_backward(x)
        return bar * x

    @staticmethod
    def backward(ctx: Any, bar_bar: aj.Tensor) -> tuple[Any, aj.Tensor]:
        (x,) = ctx.saved_tensors
        return None, aj.where(x < 0, bar_bar * NAN, bar_bar)


class Outer(Function):
    """Its second derivative is NaN for negative input."""

    @staticmethod
    def forward(ctx: Any, x: aj.Tensor) -> aj.Tensor:
        ctx.save_for_backward(x)
        return x * x / 2

    @staticmethod
    def backward(ctx: Any, y_bar: aj.Tensor) -> aj.Tensor:
        return Inner.apply(y_bar, ctx.saved_tensors[0])


def sqrt(x: aj.Tensor) -> aj.Tensor:
    return x.sqrt()  # planted


def power(x: aj.Tensor) -> aj.Tensor:
    y = x * 1.5
    return y**1.7  # planted


def rsqrt(x: aj.Tensor) -> aj.Tensor:
    return x.rsqrt()  # planted


def arcsine(x: aj.Tensor) -> aj.Tensor:
    return aj.asin(x)  # planted


def arccosine(x: aj.Tensor) -> aj.Tensor:
    return aj.acos(x)  # planted


def acosh(x: aj.Tensor) -> aj.Tensor:
    return x.acosh() + x  # planted


def sine_of_infinity(x: aj.Tensor) -> aj.Tensor:
    return x.sin()  # planted


def cosine_of_infinity(x: aj.Tensor) -> aj.Tensor:
    return x.cos()  # planted


def tangent_of_infinity(x: aj.Tensor) -> aj.Tensor:
    return x.tan()  # planted


def zero_over_zero(x: aj.Tensor) -> aj.Tensor:
    top = x * 2
    return top / x  # planted


def overflow_times_zero(x: aj.Tensor) -> aj.Tensor:
    large = x.exp()
    small = x * 0  # planted
    return large * small


def norm_by_hand(x: aj.Tensor) -> aj.Tensor:
    squares = x * x  # planted
    return squares.sum().sqrt()


def spread_of_one(x: aj.Tensor) -> aj.Tensor:
    centred = x - x.mean()
    return ((centred * centred).sum() / (len(x) - 1) * x.sum()).sqrt()  # planted


def logarithm(x: aj.Tensor) -> aj.Tensor:
    return x.log()  # planted


def hyperbolic_tangent(x: aj.Tensor) -> aj.Tensor:
    return x.tanh()  # planted


def sigmoid(x: aj.Tensor) -> aj.Tensor:
    return x.sigmoid() * 3  # planted


def product(x: aj.Tensor) -> aj.Tensor:
    return x.prod()  # planted


def matrix_product(x: aj.Tensor) -> aj.Tensor:
    row = x.reshape(1, 2)
    return row @ row.mT  # planted


def length(x: aj.Tensor) -> aj.Tensor:
    return aj.hypot(x, x * 2)  # planted


def times_nan(x: aj.Tensor) -> aj.Tensor:
    w = (x.detach() - 2.0).sqrt()
    return x * w  # planted


def deep(x: aj.Tensor) -> aj.Tensor:
    def layer(t: aj.Tensor) -> aj.Tensor:
        return (t - 3.0).sqrt()  # planted

    y = x.exp()
    return layer(y) * 2


def in_a_loop(x: aj.Tensor) -> aj.Tensor:
    for _ in range(4):
        x = x.sqrt() - 0.2  # planted
    return x


def in_a_loop_with_a_second_line(x: aj.Tensor) -> aj.Tensor:
    total = x.sum() * 0
    for k in range(3):
        total = total + (x - 0.5 * k).rsqrt().sum()  # planted
    return total


def custom(x: aj.Tensor) -> aj.Tensor:
    return NanBackward.apply(x)  # planted


def custom_in_a_loop(x: aj.Tensor) -> aj.Tensor:
    for _ in range(3):
        x = NanBackward.apply(x) - 3.0  # planted
    return x


def custom_second_input(x: aj.Tensor) -> aj.Tensor:
    return SecondInput.apply(x * 2, x)  # planted


def second_order_of_custom(x: aj.Tensor) -> aj.Tensor:
    return SqrtInBackward.apply(x)  # planted


def second_order_nested(x: aj.Tensor) -> aj.Tensor:
    return Outer.apply(x) + x  # planted


def second_order_length(x: aj.Tensor) -> aj.Tensor:
    y = x * 2.0
    return LengthInBackward.apply(y) + y.sum()  # planted


def second_order_in_a_loop(x: aj.Tensor) -> aj.Tensor:
    for _ in range(2):
        x = Outer.apply(x) - 1.0  # planted
    return x


class Plant(NamedTuple):
    """A loss, a good and a bad input, the op, its node, and the order of the derivative that fails."""

    loss: Callable[[aj.Tensor], aj.Tensor]
    good: tuple[float, ...]
    bad: tuple[float, ...]
    op: str
    node: str
    order: int = 1


PLANTS = [
    Plant(sqrt, (4.0,), (-1.0,), "sqrt", "SqrtBackward0"),
    Plant(power, (4.0, 1.0), (-1.0, 1.0), "pow_number", "PowBackward0"),
    Plant(rsqrt, (4.0,), (-1.0,), "rsqrt", "RsqrtBackward0"),
    Plant(arcsine, (0.5,), (2.0,), "asin", "AsinBackward0"),
    Plant(arccosine, (0.5,), (2.0,), "acos", "AcosBackward0"),
    Plant(acosh, (1.5,), (0.5,), "acosh", "AcoshBackward0"),
    Plant(sine_of_infinity, (1.0,), (INF,), "sin", "SinBackward0"),
    Plant(cosine_of_infinity, (1.0,), (-INF,), "cos", "CosBackward0"),
    Plant(tangent_of_infinity, (1.0,), (INF,), "tan", "TanBackward0"),
    Plant(zero_over_zero, (1.0,), (0.0,), "div", "DivBackward0"),
    Plant(overflow_times_zero, (1.0,), (1000.0,), "mul", "MulBackward0"),
    Plant(norm_by_hand, (1.0, 2.0), (0.0, 0.0), "mul", "MulBackward0"),
    Plant(spread_of_one, (1.0, 3.0), (-1.0, -3.0), "sqrt", "SqrtBackward0"),
    Plant(logarithm, (1.0,), (NAN,), "log", "LogBackward0"),
    Plant(hyperbolic_tangent, (1.0,), (NAN,), "tanh", "TanhBackward0"),
    Plant(sigmoid, (1.0,), (NAN,), "sigmoid", "SigmoidBackward0"),
    Plant(product, (1.0, 2.0, 3.0), (INF, 0.0, 0.0), "prod", "ProdBackward0"),
    Plant(matrix_product, (1.0, 2.0), (NAN, 2.0), "matmul", "MmBackward0"),
    Plant(length, (1.0,), (0.0,), "hypot", "HypotBackward0"),
    Plant(times_nan, (3.0,), (1.0,), "mul", "MulBackward0"),
    Plant(deep, (2.0,), (0.0,), "sqrt", "SqrtBackward0"),
    Plant(in_a_loop, (9.0,), (0.001,), "sqrt", "SqrtBackward0"),
    Plant(in_a_loop_with_a_second_line, (3.0,), (0.7,), "rsqrt", "RsqrtBackward0"),
    Plant(custom, (1.0,), (-1.0,), "NanBackward", "NanBackwardBackward"),
    Plant(custom_in_a_loop, (9.0,), (1.0,), "NanBackward", "NanBackwardBackward"),
    Plant(custom_second_input, (1.0,), (-1.0,), "SecondInput", "SecondInputBackward"),
    Plant(second_order_of_custom, (1.0,), (0.0,), "mul", "MulBackward0", 2),
    Plant(second_order_nested, (1.0,), (-1.0,), "Inner", "InnerBackward", 2),
    Plant(second_order_length, (1.0,), (0.0,), "hypot", "HypotBackward0", 2),
    Plant(second_order_in_a_loop, (4.0,), (0.5,), "Inner", "InnerBackward", 2),
]

WAYS = ("eager", "compiled step", "compiled loss")


def step_of(loss: Callable[[aj.Tensor], aj.Tensor], order: int) -> Callable[[aj.Tensor], aj.Tensor]:
    """The gradient of an order, as one step."""

    def step(x: aj.Tensor) -> aj.Tensor:
        y = loss(x).sum()
        for _ in range(order - 1):
            (g,) = aj.autograd.grad(y, x, create_graph=True)
            y = g.sum()
        return aj.autograd.grad(y, x)[0]

    return step


def way_of(way: str, loss: Callable[[aj.Tensor], aj.Tensor], order: int) -> Callable[[aj.Tensor], aj.Tensor]:
    if way == "eager":
        return step_of(loss, order)
    if way == "compiled step":
        return aj.jit(step_of(loss, order))
    return step_of(aj.jit(loss), order)


def planted_line(function: Callable[..., Any]) -> int:
    lines, first = inspect.getsourcelines(function)
    return first + next(k for k, line in enumerate(lines) if "# planted" in line)


def reported(step: Callable[[aj.Tensor], aj.Tensor], bad: aj.Tensor, match: str, kind: type = RuntimeError) -> Any:
    """The error of a step and the texts of the warnings that explain it."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        with pytest.raises(kind, match=match) as raised:
            step(bad)
    return str(raised.value), [str(w.message) for w in found]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.loss.__name__)
def test_a_planted_nan_is_reported_with_op_line_and_order(plant: Plant, way: str) -> None:
    step = way_of(way, plant.loss, plant.order)
    with set_detect_anomaly(True):
        for _ in range(2):
            assert np.isfinite(step(leaf(plant.good)).numpy()).all()
        match = rf"Function '{plant.node}' returned nan values in its \d+th output"
        error, texts = reported(step, leaf(plant.bad), match)
        assert np.isfinite(step(leaf(plant.good)).numpy()).all()
    assert f"{plant.op} at {__file__}:" in error
    assert f"of order {plant.order}" in error
    place = f'File "{__file__}", line {planted_line(plant.loss)}, in '
    assert texts[0].startswith(f"Error detected in {plant.node}. Traceback of forward call that caused the error:")
    assert f"(derivative of order {plant.order})" in texts[0]
    assert len(texts) == plant.order
    assert place in texts[plant.order - 1]  # the last one tells about the forward op of the user
    assert all("Previous calculation was induced by" in text for text in texts[1:])
    assert "site-packages" not in "".join(texts)
    if plant.order == 1:
        assert f"{plant.op} at {__file__}:{planted_line(plant.loss)}" in error
    assert np.isnan(step(leaf(plant.bad)).numpy()).any()  # without the mode nothing is checked


class Failing(Function):
    """Raises in backward where ``order`` says so."""

    @staticmethod
    def forward(ctx: Any, x: aj.Tensor, order: int) -> aj.Tensor:
        ctx.order = order
        return x * 2

    @staticmethod
    def backward(ctx: Any, y_bar: aj.Tensor) -> tuple[aj.Tensor, None]:
        if ctx.order == 1:
            raise KeyError("planted exception")
        return Failing.apply(y_bar, ctx.order - 1), None


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("way", WAYS)
def test_an_exception_in_backward_keeps_its_type_and_is_explained(way: str, order: int) -> None:
    def loss(x: aj.Tensor) -> aj.Tensor:
        return (Failing.apply(x * x, order) * x).exp()  # planted

    step = way_of(way, loss, order)
    with set_detect_anomaly(True):
        error, texts = reported(step, leaf((0.5,)), "planted exception", KeyError)
    assert error == "'planted exception'"
    failing = [k for k, text in enumerate(texts) if text.startswith("Error detected in FailingBackward.")]
    assert len(failing) == 1
    explained = texts[failing[0] :]
    assert f"(derivative of order {order})" in explained[0]
    assert f'File "{__file__}", line {planted_line(loss)}, in loss' in explained[order - 1]


def masked(x: aj.Tensor) -> aj.Tensor:
    return aj.where(x > 0, x.sqrt(), x * 2)


def safe_mask(x: aj.Tensor) -> aj.Tensor:
    inside = x > 0
    return aj.where(inside, aj.where(inside, x, 1.0).log(), 0.0)


def detached(x: aj.Tensor) -> aj.Tensor:
    return x * 2 + (x.detach().sqrt() * 0).nan_to_num()


def unused(x: aj.Tensor) -> aj.Tensor:
    _ = NanBackward.apply(x)
    _ = x.sqrt()
    return x * 3


def without_recording(x: aj.Tensor) -> aj.Tensor:
    with aj.no_grad():
        size = x.sqrt().isnan().sum()
    return x * size


def constant_nan(x: aj.Tensor) -> aj.Tensor:
    return x + aj.full((1,), NAN, dtype=aj.float64)


def infinite_gradient(x: aj.Tensor) -> aj.Tensor:
    return x.log()


def chosen_elements(x: aj.Tensor) -> aj.Tensor:
    both = aj.cat([x * x, (x * 0 + 1.0) * 2])
    return both[:1]


def other_input(x: aj.Tensor) -> aj.Tensor:
    return SecondInput.apply(x * 2, x.detach())


FALSE_ALARMS = [
    (masked, -1.0), (safe_mask, -1.0), (detached, -1.0), (unused, -1.0), (without_recording, -1.0),
    (constant_nan, -1.0), (infinite_gradient, 0.0), (chosen_elements, -1.0), (other_input, -1.0),
]  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("loss", "value"), FALSE_ALARMS, ids=lambda v: getattr(v, "__name__", str(v)))
def test_no_alarm_for_values_that_do_not_reach_the_gradient(loss: Any, value: float, way: str) -> None:
    step = way_of(way, loss, 1)
    expected = step_of(loss, 1)(leaf((value,))).numpy()
    assert not np.isnan(expected).any()
    with set_detect_anomaly(True):
        for _ in range(3):
            np.testing.assert_array_equal(step(leaf((value,))).numpy(), expected)


@pytest.mark.parametrize("way", WAYS[:2])
def test_an_error_leaves_parameters_and_state_as_before_the_step(way: str) -> None:
    weight = leaf((1.0, 2.0))
    optimizer = aj.optim.SGD([weight], lr=0.1, momentum=0.9)

    def train(x: aj.Tensor) -> aj.Tensor:
        optimizer.zero_grad()
        loss = (weight * x).sqrt().sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = aj.jit(train) if way == "compiled step" else train
    good, bad = aj.ones(2, dtype=aj.float64), -aj.ones(2, dtype=aj.float64)
    with set_detect_anomaly(True):
        for _ in range(3):
            step(good)
        before = weight.detach().clone()
        reported(step, bad, "SqrtBackward0")
        assert aj.equal(weight.detach(), before)
        step(good)
        assert not aj.equal(weight.detach(), before)


def test_a_compiled_step_is_checked_by_native_code_and_pays_nothing_when_the_mode_is_off() -> None:
    step = aj.jit(step_of(sqrt, 1))
    for _ in range(3):
        step(leaf((4.0,)))
    plain = step.stats()
    assert (plain["captures"], plain["splits"]) == (1, 0)
    nodes = len(step.last_step().segment.graph.nodes)
    with set_detect_anomaly(True):
        for _ in range(4):
            step(leaf((4.0,)))
    checked = step.stats()
    assert (checked["captures"], checked["splits"], checked["fallbacks"]) == (2, 1, 0)
    for _ in range(3):
        step(leaf((4.0,)))
    assert step.stats()["captures"] == 2
    assert step.stats()["native_calls"] > plain["native_calls"]
    assert len(step.steps()[0].segment.graph.nodes) == nodes or len(step.steps()[1].segment.graph.nodes) == nodes
