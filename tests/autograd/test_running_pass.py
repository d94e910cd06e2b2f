"""What can be asked of a backward pass while it runs, and what it leaves behind."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit import _C
from autojit.autograd import _functions, graph
from tests.autograd.modes import Mode


def leaf(*values: float) -> aj.Tensor:
    return aj.tensor(list(values), requires_grad=True)


def test_the_node_whose_rule_runs_can_be_asked_for() -> None:
    seen: list[Any] = []

    class Asking(aj.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: aj.Tensor) -> aj.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, y_bar: aj.Tensor) -> aj.Tensor:
            seen.append(_C._current_autograd_node())
            with aj.enable_grad():
                (other * other).sum().backward()
            seen.append(_C._current_autograd_node())
            return y_bar * 2

    other = leaf(3.0)
    y = Asking.apply(leaf(1.0))
    y.sum().backward()
    assert seen == [y.grad_fn, y.grad_fn]
    assert _C._current_autograd_node() is None


def test_a_hook_registered_while_its_node_runs_sees_no_gradients_of_outputs() -> None:
    given: list[Any] = []

    def unpack(t: aj.Tensor) -> aj.Tensor:
        _C._current_autograd_node().register_hook(lambda results, grads: given.append(grads) or (results[0] / 2,))
        return t

    x = leaf(1.0, 2.0)
    with graph.saved_tensors_hooks(lambda t: t, unpack):
        y = x.exp()
    y.sum().backward()
    assert given == [(None,)]
    np.testing.assert_allclose(x.grad.numpy(), np.exp([1.0, 2.0]) / 2, rtol=1e-6)


def test_unpack_hooks_cannot_change_which_hooks_are_entered() -> None:
    def entering() -> weakref.ref[Any]:
        def unpack(t: aj.Tensor) -> aj.Tensor:
            found = reference()
            assert found is not None
            found.__enter__()
            return t

        hooks = graph.saved_tensors_hooks(lambda t: t, unpack)
        reference = weakref.ref(hooks)
        with hooks:
            leaf(1.0).sin().sum().backward()
        return weakref.ref(unpack)

    gc.disable()
    try:
        assert entering()() is None
    finally:
        gc.enable()
    leaf(1.0).exp().grad_fn._raw_saved_result.register_hooks(lambda t: t, lambda t: t)  # no hooks are active


def order_of(y: aj.Tensor, **options: Any) -> list[str]:
    found: list[Any] = []
    handle = y.register_hook(lambda grad: found.append(_C._current_graph_task_execution_order()))
    with aj.autograd.set_multithreading_enabled(False):
        if options:
            aj.autograd.grad(y, **options)
        else:
            y.backward()
    handle.remove()
    return [node.name() for node in found[0]]


def test_the_order_of_a_pass_is_known_before_it_has_run() -> None:
    end = "torch::autograd::AccumulateGrad"
    x, w = aj.tensor(1.0, requires_grad=True), aj.tensor(2.0, requires_grad=True)
    assert order_of(x.clone().sin().exp()) == ["ExpBackward0", "SinBackward0", "CloneBackward0", end]
    assert order_of(x.sin() * w.cos()) == ["MulBackward0", "CosBackward0", end, "SinBackward0", end]
    assert order_of((x * w).sin(), inputs=[x]) == ["SinBackward0", "MulBackward0", end]


def test_the_order_of_a_pass_is_refused_outside_and_with_threads() -> None:
    with pytest.raises(RuntimeError, match="only be called during the backward pass"):
        _C._current_graph_task_execution_order()
    y = leaf(1.0).exp().sum()
    y.register_hook(lambda grad: _C._current_graph_task_execution_order())
    with pytest.raises(RuntimeError, match="multithreading disabled"):
        y.backward()


def test_a_leaf_of_grad_cannot_be_asked_about() -> None:
    x = leaf(1.0)
    y = x * 2
    accumulator = y.grad_fn.next_functions[0][0]
    y.register_hook(lambda grad: _C._will_engine_execute_node(accumulator) or None)
    with pytest.raises(RuntimeError, match=r"currently running autograd\.grad"):
        aj.autograd.grad(y.sum(), x)
    with pytest.raises(RuntimeError, match="expects an grad_fn"):
        _C._will_engine_execute_node(y)


def test_a_delayed_error_is_raised_only_where_its_gradient_is_asked_for() -> None:
    x, w = leaf(1.0), leaf(2.0)
    safe = _C._functions.DelayedError("unreachable", 1)(w)
    y = x.clone().view(-1)
    y += safe
    (grad,) = aj.autograd.grad(y.sum(), x, retain_graph=True)
    assert grad.tolist() == [1.0]
    with pytest.raises(RuntimeError, match="unreachable"):
        y.sum().backward()
    with pytest.raises(TypeError, match="expected 2 tensors"):
        _C._functions.DelayedError("two", 2)(x)


def test_hooks_of_a_view_do_not_see_the_change_of_its_base(mode: Mode) -> None:
    seen: list[str] = []

    def body(x: aj.Tensor) -> aj.Tensor:
        x = x.detach().requires_grad_()
        base = x.clone()
        view, other = base[:], base[:]
        view.register_hook(lambda grad: seen.append("old view"))
        view.mul_(2)
        other.register_hook(lambda grad: seen.append("new view"))
        (view + other).sum().backward()
        return x.grad

    assert mode(body)(aj.tensor([1.0, 3.0])).tolist() == [4.0, 4.0]
    assert seen == ["new view"]


def test_hooks_of_a_view_still_see_what_used_the_view_before_the_change() -> None:
    seen: list[Any] = []
    base = leaf(1.0, 3.0).clone()
    view = base[:1]
    view.register_hook(lambda grad: seen.append(grad.tolist()))
    used = view * 5
    view += 1
    used.sum().backward()
    assert seen == [[5.0]]


def test_a_changed_view_names_the_function_that_made_it_only_when_asked_to() -> None:
    def changed() -> str:
        return str(leaf(1.0, 2.0).clone().view(2, 1).add_(1).grad_fn.name())

    force = aj.autograd._force_original_view_tracking
    assert changed() == "AsStridedBackward0"
    with force(True):
        assert changed() == "ViewBackward0"
        assert aj.autograd.is_view_replay_enabled()
    assert not aj.autograd.is_view_replay_enabled()
    force(True)
    assert changed() == "ViewBackward0"
    force(False)
    assert force(True)(changed)() == "ViewBackward0"
    assert changed() == "AsStridedBackward0"


def test_version_counters_can_be_set() -> None:
    x, w = aj.ones(2), aj.ones(2)
    x.add_(1)
    with aj.autograd._unsafe_preserve_version_counter((x, w)):
        x.add_(1)
        w.add_(1)
    assert (x._version, w._version) == (1, 0)
    _C._autograd._unsafe_set_version_counter((x, w), (0, 7))
    assert (x._version, w._version) == (0, 7)
    with pytest.raises(RuntimeError, match="Cannot set"):
        _C._autograd._unsafe_set_version_counter((x,), (-1,))


def test_set_makes_another_leaf_of_a_tensor() -> None:
    x = leaf(1.0, 2.0)
    edge = graph.get_gradient_edge(x)
    y = x.clone().sum()
    with aj.no_grad():
        x.set_(aj.zeros(2))
    with pytest.raises(RuntimeError, match="not have been used in the graph"):
        aj.autograd.grad(y, x, retain_graph=True)
    (grad,) = aj.autograd.grad(y, edge)
    assert grad.tolist() == [1.0, 1.0]


def test_with_create_graph_a_gradient_is_a_copy() -> None:
    x = leaf(1.0, 2.0)
    with pytest.warns(UserWarning, match="create_graph=True"):
        (x * x).sum().backward(create_graph=True)
    node = x.grad.grad_fn
    assert node.name() == "torch::autograd::CopyBackwards"
    assert node.next_functions[0] == (None, 0)
    x.grad.sum().backward(inputs=[x])
    assert x.grad.tolist() == [4.0, 6.0]
    x.grad = None


def test_a_hook_of_the_accumulator_sees_the_gradient_in_its_place(mode: Mode) -> None:
    def add_half(t: aj.Tensor) -> None:
        t.grad.add_(0.5)

    def body(x: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
        x = x.detach().requires_grad_()
        accumulator = x.view_as(x).grad_fn.next_functions[0][0]
        x.register_post_accumulate_grad_hook(add_half)
        found: list[aj.Tensor] = []
        accumulator.register_hook(lambda _, grads: found.append(grads[0] * 1))
        (x * x).sum().backward()
        return x.grad, found[0]

    run = mode(body)
    for _ in range(3):
        grad, shown = run(aj.ones(2))
        assert grad.tolist() == shown.tolist() == [2.5, 2.5]


def test_hooks_of_a_leaf_run_when_its_gradient_is_undefined(mode: Mode) -> None:
    class Ignoring(aj.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: aj.Tensor, w: aj.Tensor) -> aj.Tensor:
            return x * w

        @staticmethod
        def backward(ctx: Any, y_bar: aj.Tensor) -> tuple[aj.Tensor, None]:
            return y_bar, None

    seen: list[Any] = []
    x, w = leaf(1.0), leaf(2.0)
    w.register_hook(lambda grad: seen.append(grad))
    w.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad))
    mode(lambda: Ignoring.apply(x, w).sum().backward())()
    assert seen == [None, None]
    assert w.grad is None


def test_resize_gives_the_elements_another_shape() -> None:
    x = aj.arange(6.0).requires_grad_()
    y = _functions.Resize.apply(x, (2, 3))
    (y * y).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), 2 * np.arange(6.0))
    with pytest.raises(RuntimeError, match="requested resize to 2x2"):
        _functions.Resize.apply(x, (2, 2))


def test_the_shapes_that_a_cotangent_must_have() -> None:
    x = aj.ones(2, 3, requires_grad=True)
    assert aj.autograd._calculate_shape(x, aj.ones(4, 2, 3), True) == ((2, 3), (2, 3))
    edge = graph.get_gradient_edge(x.sum(0))
    assert aj.autograd._calculate_shape(edge, aj.ones(5), False) == ((3,), (5,))


def test_a_result_that_could_not_be_packed_is_freed() -> None:
    made: list[weakref.ref[aj.Tensor]] = []

    class Keeping(aj.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: aj.Tensor) -> aj.Tensor:
            y = x.clone()
            ctx.save_for_backward(y)
            made.append(weakref.ref(y))
            return y

        @staticmethod
        def backward(ctx: Any, y_bar: aj.Tensor) -> aj.Tensor:
            return y_bar

    def refuse(t: aj.Tensor) -> None:
        raise KeyError("full")

    gc.disable()
    try:
        with pytest.raises(KeyError), graph.saved_tensors_hooks(refuse, lambda t: t):
            Keeping.apply(leaf(1.0))
        assert made[0]() is None
    finally:
        gc.enable()


def test_forward_mode_of_igamma_by_its_first_operand_is_missing() -> None:
    with aj.autograd.forward_ad.dual_level():
        x = aj.autograd.forward_ad.make_dual(aj.ones(2), aj.ones(2))
        with pytest.raises(NotImplementedError, match="Trying to use forward AD with igamma that does not support it"):
            aj.special.gammainc(x, x)
