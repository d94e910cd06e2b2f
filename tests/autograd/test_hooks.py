"""Hooks on tensors, leaves and nodes; retained gradients; saved-tensor hooks."""

from __future__ import annotations

import numpy as np
import pytest

import autojit as aj


def leaf(*values: float) -> aj.Tensor:
    return aj.tensor(values, requires_grad=True)


def test_hooks_run_in_order_and_may_replace_the_gradient() -> None:
    v = aj.zeros(3, requires_grad=True)
    handle = v.register_hook(lambda g: g * 2)
    v.register_hook(lambda g: g + 1)
    v.backward(aj.tensor([1.0, 2.0, 3.0]))
    np.testing.assert_array_equal(v.grad.numpy(), [3, 5, 7])
    handle.remove()
    handle.remove()
    v.grad = None
    v.backward(aj.tensor([1.0, 2.0, 3.0]))
    np.testing.assert_array_equal(v.grad.numpy(), [2, 3, 4])


def test_a_hook_on_an_intermediate_changes_what_flows_on() -> None:
    x = leaf(3.0)
    y = x * x
    with y.register_hook(lambda g: g * 10):
        y.sum().backward(retain_graph=True)
    assert x.grad.item() == 60
    x.grad = None
    y.sum().backward()
    assert x.grad.item() == 6


def test_retained_gradients_follow_in_place_changes() -> None:
    x = leaf(3.0)
    y = x * 2
    y.retain_grad()
    y.mul_(5.0)
    y.sum().backward()
    assert y.retains_grad
    assert y.grad.item() == 1
    assert x.grad.item() == 10


def test_a_hook_must_keep_the_shape() -> None:
    x = leaf(1.0)
    x.register_hook(lambda g: aj.zeros(2))
    with pytest.raises(RuntimeError, match="changed the size"):
        x.sum().backward()


def test_node_hooks_see_and_replace() -> None:
    x = leaf(2.0)
    y = x * 3
    seen = []
    y.grad_fn.register_prehook(lambda grads: (grads[0] * 2,))
    y.grad_fn.register_hook(lambda inputs, outputs: seen.append((inputs[0].item(), outputs[0].item())))
    y.sum().backward()
    assert seen == [(6.0, 2.0)]
    assert x.grad.item() == 6


class _AnswersEverything:
    """A hook, such as a mock, that has every attribute one asks for."""

    def __init__(self, result: object) -> None:
        self.result = result

    def __getattr__(self, name: str) -> object:
        return self

    def __call__(self, *given: object) -> object:
        return self.result


@pytest.mark.parametrize("register", ["register_prehook", "register_hook"])
@pytest.mark.parametrize(
    "result", [[aj.ones(1)], (aj.ones(1), aj.ones(1)), (aj.ones(2),), (aj.ones(1, dtype=aj.float64),)]
)
def test_what_a_node_hook_returns_is_checked_whatever_attributes_it_has(register: str, result: object) -> None:
    errors = []
    for hook in (_AnswersEverything(result), lambda *given: result):
        y = leaf(2.0) * 3
        getattr(y.grad_fn, register)(hook)
        with pytest.raises((TypeError, RuntimeError)) as error:
            y.sum().backward()
        errors.append(error.type)
    assert errors[0] is errors[1]


def test_post_accumulate_hooks_run_after_the_gradient_is_there() -> None:
    x = leaf(2.0)
    seen = []
    x.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad.item()))
    (x * x).sum().backward()
    assert seen == [4.0]


def test_saved_tensor_hooks_pack_and_unpack() -> None:
    x = leaf(2.0, 3.0)
    packed = []

    def pack(t: aj.Tensor) -> np.ndarray:
        packed.append(t.shape)
        return t.numpy().copy()

    with aj.autograd.graph.saved_tensors_hooks(pack, aj.tensor):
        y = (x * x).exp()
    (gradient,) = aj.autograd.grad(y.sum(), x, create_graph=True)
    gradient.sum().backward()
    v = np.array([2.0, 3.0], np.float32)
    np.testing.assert_allclose(x.grad.numpy(), (2 + 4 * v * v) * np.exp(v * v), rtol=1e-5)
    assert len(packed) >= 2


def test_a_hook_on_several_tensors_runs_once() -> None:
    a, b = leaf(1.0), leaf(2.0)
    calls = []
    aj.autograd.graph.register_multi_grad_hook((a, b), lambda grads: calls.append([g.item() for g in grads]))
    (a * b).sum().backward()
    assert calls == [[2.0, 1.0]]
