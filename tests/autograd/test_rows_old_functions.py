"""Rows of old programs: functions with state of their own, and reinforcement of samples."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.compat import v0_3
from autojit.compat.v0_3 import Variable
from tests.autograd.mode_checks import thrice
from tests.autograd.modes import Mode
from tests.autograd.old_programs import variable_warns_again  # noqa: F401  (a fixture)

# -- functions


class OldExp(v0_3.Function):
    def forward(self, x: aj.Tensor) -> aj.Tensor:
        assert self.requires_grad == self.needs_input_grad[0]
        y = x.exp()
        self.save_for_backward(y)
        return y

    def backward(self, y_bar: aj.Tensor) -> aj.Tensor:
        (y,) = self.saved_tensors
        return y_bar * y


class OldPair(v0_3.Function):
    def __init__(self, scale: float, extra: int) -> None:
        self.scale, self.extra = scale, extra

    def forward(self, a: aj.Tensor, b: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
        self.save_for_backward(a, b)
        return a * b, a + b * self.scale

    def backward(self, product_bar: aj.Tensor, sum_bar: aj.Tensor) -> Any:
        a, b = self.saved_tensors
        found = (product_bar * b + sum_bar, product_bar * a + sum_bar * self.scale, *[None] * self.extra)
        return found[: 2 + self.extra] if self.extra >= 0 else found[:1]


def test_S2_43_old_functions_are_nodes_of_the_graph(mode: Mode) -> None:
    def body(t: aj.Tensor) -> Any:
        x = Variable(t, requires_grad=True)
        a = x * 2
        y = OldExp()(a) + OldExp()(a)
        names = [type(node).__name__ for node, _ in y.grad_fn.next_functions]
        y.sum().backward()
        return names, x.grad.data

    names, grad = thrice(mode(body), aj.zeros(2))
    assert names == ["OldExpBackward"] * 2
    assert grad.tolist() == [4.0, 4.0]


def test_S2_46_an_old_function_is_used_once(mode: Mode) -> None:
    def body(t: aj.Tensor) -> Any:
        x = Variable(t, requires_grad=True)
        function = OldExp()
        y = function(x)
        with pytest.raises(RuntimeError, match="used once"):
            function(x)
        return y.data

    assert thrice(mode(body), aj.zeros(2)).tolist() == [1.0, 1.0]


def test_S2_47_saved_tensors_of_an_old_function_are_a_tuple(mode: Mode) -> None:
    def body(t: aj.Tensor) -> Any:
        x = Variable(t, requires_grad=True)
        function = OldExp()
        y = function(x)
        assert isinstance(function.saved_tensors, tuple)
        with pytest.warns(DeprecationWarning, match="saved_tensors"):
            saved = function.saved_variables
        y.sum().backward()
        with pytest.raises(RuntimeError, match="freed"):
            function.saved_tensors
        return saved[0].data

    assert thrice(mode(body), aj.zeros(2)).tolist() == [1.0, 1.0]


def test_S2_50_an_old_function_counts_inputs_and_outputs(mode: Mode) -> None:
    def body(t: aj.Tensor) -> Any:
        function = OldPair(3.0, 0)
        with pytest.raises(RuntimeError, match="has not been called"):
            function.num_inputs
        y, _ = function(Variable(t, requires_grad=True), Variable(t))
        return function.num_inputs, function.num_outputs, function.needs_input_grad, y.requires_grad

    assert thrice(mode(body), aj.ones(2)) == (2, 2, (True, False), True)


def test_S2_53_old_functions_return_a_gradient_per_input(mode: Mode) -> None:
    def body(a: aj.Tensor, b: aj.Tensor) -> Any:
        x, y = Variable(a, requires_grad=True), Variable(b, requires_grad=True)
        product, total = OldPair(3.0, 2)(x, y)  # two None too many are tolerated
        v0_3.backward([product.sum(), total.sum()])
        return x.grad.data, y.grad.data, type(product) is Variable

    x_bar, y_bar, wrapped = thrice(mode(body), aj.tensor([1.0, 2.0]), aj.tensor([3.0, 4.0]))
    assert x_bar.tolist() == [4.0, 5.0]
    assert y_bar.tolist() == [4.0, 5.0]
    assert wrapped
    x = Variable(aj.ones(2), requires_grad=True)
    product, _ = OldPair(3.0, -1)(x, x)
    with pytest.raises(RuntimeError, match=r"incorrect number of gradients \(expected 2, got 1\)"):
        product.sum().backward()

    class Modern(v0_3.Function):
        @staticmethod
        def forward(ctx: Any, x: aj.Tensor) -> aj.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, y_bar: aj.Tensor) -> aj.Tensor:
            return y_bar * 2

    for y in (Modern()(x), Modern.apply(x)):
        x.grad = None
        y.sum().backward()
        assert x.grad.tolist() == [2.0, 2.0]


# -- reinforcement


def deviation(found: float, expected: float, values: np.ndarray[Any, Any]) -> float:
    """Distance from the expectation in standard errors of the mean."""
    return abs(found - expected) / (values.std() / math.sqrt(values.size))


COUNT = 100_000


def test_S2_40_reinforce_gives_score_function_gradients(mode: Mode) -> None:
    def bernoulli(p: aj.Tensor, count: int) -> Any:
        probs = Variable(p.expand(count).clone(), requires_grad=True)
        action = v0_3.bernoulli(probs)
        action.reinforce(action.data * 3 + (1 - action.data))  # 3 for a one, 1 for a zero
        action.backward()
        return -probs.grad.data

    aj.manual_seed(0)
    found = mode(bernoulli)(aj.tensor(0.3), COUNT).numpy().astype(np.float64)
    assert deviation(found.mean(), 3 - 1, found) < 3  # d/dp (3 p + 1 (1 - p))

    def normal(mean: aj.Tensor, std: aj.Tensor, count: int) -> Any:
        m = Variable(mean.expand(count).clone(), requires_grad=True)
        s = Variable(std.expand(count).clone(), requires_grad=True)
        x = v0_3.normal(m, s)
        x.reinforce((x.data - 2) ** 2)
        v0_3.backward([x], [None])
        return -m.grad.data, -s.grad.data

    by_mean, by_std = mode(normal)(aj.tensor(0.5), aj.tensor(1.5), COUNT)
    for got, expected in ((by_mean, 2 * (0.5 - 2)), (by_std, 2 * 1.5)):  # E (x-2)^2 = (mean-2)^2 + std^2
        values = got.numpy().astype(np.float64)
        assert deviation(values.mean(), expected, values) < 3

    def multinomial(weights: aj.Tensor, rewards: aj.Tensor, count: int) -> Any:
        probs = Variable(weights.expand(count, 3).clone(), requires_grad=True)
        action = v0_3.multinomial(probs)
        action.reinforce(rewards[action.data])
        action.backward()
        return -probs.grad.data

    weights, rewards = np.array([1.0, 2.0, 5.0]), np.array([4.0, -1.0, 2.0])
    found = mode(multinomial)(aj.tensor(weights, dtype=aj.float32), aj.tensor(rewards, dtype=aj.float32), COUNT)
    expected = rewards / 8 - (weights * rewards).sum() / 64  # d/dw of sum(w r) / sum(w)
    for k in range(3):
        values = found.numpy()[:, k].astype(np.float64)
        assert deviation(values.mean(), expected[k], values) < 3

    mode_free = Variable(aj.tensor([0.5]), requires_grad=True)
    action = mode_free.bernoulli()
    with pytest.raises(RuntimeError, match="requires providing a reward"):
        (action * 2).sum().backward()
    action.reinforce(2.0)
    (action * 2).sum().backward()
    assert abs(mode_free.grad.item()) == 4.0
    with pytest.raises(RuntimeError, match="stochastic functions"):
        (mode_free * 2).reinforce(1.0)
    with pytest.raises(RuntimeError, match="log_prob"):
        aj.ones(2).reinforce(aj.ones(2))


def _rewarded(action: Any, reward: aj.Tensor) -> Any:
    action.reinforce(reward)
    action.backward()
    return action.data * 1


def _rewarded_only(action: Any, reward: aj.Tensor) -> Any:
    action.reinforce(reward)
    return reward * 2


def _used(action: Any, reward: aj.Tensor) -> Any:
    action.reinforce(reward)
    return (action * reward).sum()


@pytest.mark.parametrize("body", [_rewarded, _rewarded_only, _used])
def test_a_sample_drawn_outside_is_reinforced_at_every_call(mode: Mode, body: Any) -> None:
    function = mode(body)
    for k in range(1, 4):
        probs = Variable(aj.tensor([0.5, 0.25]), requires_grad=True)
        action = v0_3.bernoulli(probs)
        result = function(action, aj.tensor([1.0, 2.0]) * k)
        if body is _rewarded_only:
            action.backward()
        elif body is _used:
            result.backward()
        chosen = [0.5 if a else -0.5 for a in action.data.tolist()]
        expected = [-k * chosen[0] / 0.25, -2 * k * (0.75 if chosen[1] > 0 else -0.25) / (0.25 * 0.75)]
        assert probs.grad.data.tolist() == pytest.approx(expected)
    with pytest.raises(RuntimeError, match="stochastic functions"):
        function(Variable(aj.tensor([0.5, 0.25]), requires_grad=True) * 2, aj.ones(2))


def test_S2_41_a_reward_has_the_shape_and_device_of_its_sample(mode: Mode) -> None:
    def body(p: aj.Tensor, reward: aj.Tensor) -> Any:
        probs = Variable(p, requires_grad=True)
        action = v0_3.bernoulli(probs)
        action.reinforce(reward)
        action.backward()
        return probs.grad.data.abs()

    function = mode(body)
    for _ in range(3):
        assert function(aj.tensor([0.5, 0.5]), aj.tensor([1.0, 2.0])).tolist() == [2.0, 4.0]
    with pytest.raises(ValueError, match="shape"):
        function(aj.tensor([0.5, 0.5]), aj.ones(3))
    with pytest.raises(ValueError, match="shape"):
        function(aj.tensor([0.5, 0.5]), aj.ones(1))
