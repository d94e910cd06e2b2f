"""Rows about hooks: on tensors, leaves and nodes, their order and handles; retained gradients; rewards."""

from __future__ import annotations

from typing import Any

import pytest

import autojit as aj
from tests.autograd.modes import Mode
from tests.autograd.steps import leaf, run, same, vector


def doubled(mode: Mode) -> aj.Tensor:
    """The documentation's example: zeros(3) with a hook that doubles."""
    v = aj.zeros(3, requires_grad=True)
    v.register_hook(lambda g: g * 2)

    def step() -> None:
        v.grad = None
        v.backward(aj.tensor([1.0, 2.0, 3.0]))

    run(mode, step)
    assert v.grad is not None
    return v.grad


def test_S2_36_hooks_run_in_the_order_of_registration(mode: Mode) -> None:
    x = leaf(1.0, 2.0)

    def step() -> Any:
        order: list[str] = []
        y = x * 3
        y.register_hook(lambda g: order.append("first"))
        y.register_hook(lambda g: (order.append("second"), g * 10)[1])
        y.register_hook(lambda g: order.append(f"third {tuple(g.shape)}"))
        (found,) = aj.autograd.grad(y.sum(), x)
        assert order == ["first", "second", "third (2,)"]
        return found

    same(run(mode, step), [30.0, 30.0])


def test_S2_37_a_replacement_is_used_downstream_and_for_grad(mode: Mode) -> None:
    x = leaf(1.0, 2.0)
    x.register_hook(lambda g: g + 1)

    def step() -> None:
        x.grad = None
        y = x * 3
        y.register_hook(lambda g: g * 10)
        y.sum().backward()

    run(mode, step)
    same(x.grad, [31.0, 31.0])


def test_S2_37_anomaly_mode_finds_hooks_that_change_their_argument(mode: Mode) -> None:
    x = leaf(1.0, 2.0)

    def step() -> Any:
        y = x * 2
        y.register_hook(lambda g: [g.mul_(2)][1:] or None)
        return aj.autograd.grad((y * y).sum(), x)[0]

    with (
        pytest.warns(UserWarning, match="Anomaly"),
        aj.autograd.detect_anomaly(),
        pytest.raises(RuntimeError, match="modified its argument by an inplace operation"),
    ):
        mode(step)()


def test_S2_38_handles_remove_hooks(mode: Mode) -> None:
    x = leaf(1.0)

    def step() -> Any:
        y = x * 1
        handle = y.register_hook(lambda g: g * 2)
        (with_hook,) = aj.autograd.grad(y.sum(), x, retain_graph=True)
        handle.remove()
        handle.remove()
        with y.register_hook(lambda g: g * 5):
            (inside,) = aj.autograd.grad(y.sum(), x, retain_graph=True)
        (after,) = aj.autograd.grad(y.sum(), x)
        return with_hook, inside, after

    found = run(mode, step)
    same(found[0], [2.0])
    same(found[1], [5.0])
    same(found[2], [1.0])


def test_S2_39_example(mode: Mode) -> None:
    v = aj.zeros(3, requires_grad=True)
    handle = v.register_hook(lambda g: g * 2)
    run(mode, lambda: (setattr(v, "grad", None), v.backward(aj.tensor([1.0, 1.0, 1.0])), None)[2])
    same(v.grad, [2.0, 2.0, 2.0])
    handle.remove()


def test_S2_40_reinforce_points_to_log_prob(mode: Mode) -> None:
    x = vector(1.0, 0.0)
    with pytest.raises(RuntimeError, match=r"(?s)reinforce\(\) was removed.*log_prob"):
        mode(lambda: x.reinforce(vector(1.0, 2.0)))()


def test_S2_41_no_reward_is_accepted(mode: Mode) -> None:
    x = vector(1.0, 0.0)
    for reward in (None, 1.0, vector(1.0)):
        with pytest.raises(RuntimeError, match="compat"):
            mode(lambda reward=reward: x.reinforce(reward))()


def test_S2_42_retain_grad_populates_grad_of_results(mode: Mode) -> None:
    x = leaf(1.0, 2.0)

    def step() -> Any:
        y = x * 3
        y.retain_grad()
        y.retain_grad()
        (y * y).sum().backward()
        return y

    function = mode(step)
    for _ in range(3):
        x.grad = None
        y = function()
    same(y, [3.0, 6.0])
    same(y.grad, [6.0, 12.0])
    assert y.retains_grad
    same(x.grad, [18.0, 36.0])
    x.retain_grad()
    assert not x.retains_grad
    with pytest.raises(RuntimeError, match="can't retain_grad"):
        vector(1.0).retain_grad()


def test_S2_42_retained_gradients_accumulate_and_follow_in_place_changes(mode: Mode) -> None:
    x = leaf(1.0, 2.0)

    def step() -> Any:
        y = x * 3
        y.retain_grad()
        y.mul_(5)
        z = y.sum()
        z.backward(retain_graph=True)
        z.backward()
        return y.grad * 1

    same(run(mode, step), [2.0, 2.0])


def test_S2_42_retained_gradients_of_views_follow_changes_of_their_base(mode: Mode) -> None:
    x = leaf(1.0, 2.0, 3.0)

    def step() -> Any:
        base = x * 2
        view = base[:2]
        view.retain_grad()
        base.mul_(5)
        (view * 2).sum().backward()
        return view.grad * 1

    same(run(mode, step), [2.0, 2.0])


def test_S3_54_register_hook(mode: Mode) -> None:
    same(doubled(mode), [2.0, 4.0, 6.0])


def test_S3_55_a_hook_returns_a_tensor_or_none(mode: Mode) -> None:
    x = leaf(1.0, 2.0)

    def step(replacement: Any) -> Any:
        y = x * 1
        y.register_hook(lambda g: replacement)
        return aj.autograd.grad(y.sum(), x)[0]

    same(run(mode, lambda: step(None)), [1.0, 1.0])
    with pytest.raises(TypeError, match="expected Variable, but hook returned 'str'"):
        mode(lambda: step("gradient"))()
    with pytest.raises(RuntimeError, match="has changed the size of value"):
        mode(lambda: step(vector(1.0)))()
    with pytest.raises(RuntimeError, match="has changed the type of value"):
        mode(lambda: step(aj.ones(2)))()


def test_S3_56_handles(mode: Mode) -> None:
    x = leaf(1.0)
    handle = x.register_hook(lambda g: g * 2)
    step = mode(lambda: aj.autograd.grad((x * 1).sum(), x)[0])
    same(step(), [2.0])
    handle.remove()
    handle.remove()
    same(step(), [1.0])


def test_S3_57_example(mode: Mode) -> None:
    same(doubled(mode), [2.0, 4.0, 6.0])


# -- what happens when: torch's order of hooks at one tensor and its node


def test_hooks_at_a_tensor_and_its_node_run_in_torchs_order(mode: Mode) -> None:
    x = leaf(1.0, 2.0)

    def step() -> Any:
        order: list[str] = []
        x.grad = None
        y = x * 2
        y.register_hook(lambda g: order.append("tensor 1"))
        y.retain_grad()
        y.register_hook(lambda g: (order.append("tensor 2"), g * 10)[1])
        y.grad_fn.register_hook(lambda inputs, outputs: order.append("node"))
        y.grad_fn.register_prehook(lambda outputs: order.append("before node"))
        accumulator = y.grad_fn.next_functions[0][0]
        accumulator.register_prehook(lambda g: order.append("before leaf"))
        accumulator.register_hook(lambda inputs, outputs: order.append(f"leaf {len(inputs)}"))
        first = x.register_hook(lambda g: order.append("leaf tensor"))
        last = x.register_post_accumulate_grad_hook(lambda t: order.append("accumulated"))
        y.sum().backward()
        first.remove()
        last.remove()
        assert order == [
            "tensor 1", "tensor 2", "before node", "node", "leaf tensor", "before leaf", "accumulated", "leaf 0",
        ]  # fmt: skip
        return y.grad * 1

    same(mode(step)(), [10.0, 10.0])
    same(x.grad, [20.0, 20.0])


def test_node_hooks_replace_gradients(mode: Mode) -> None:
    x = leaf(1.0, 2.0)

    def step() -> Any:
        y = x * 2
        y.grad_fn.register_prehook(lambda grads: (grads[0] * 5,))
        y.grad_fn.register_hook(lambda inputs, outputs: (inputs[0] + 1, None))
        return aj.autograd.grad(y.sum(), x)[0]

    same(run(mode, step), [11.0, 11.0])


def test_node_hooks_must_return_a_tuple_of_the_right_length(mode: Mode) -> None:
    x = leaf(1.0)

    def step(replacement: Any) -> Any:
        y = x.exp()
        y.grad_fn.register_hook(lambda inputs, outputs: replacement)
        return aj.autograd.grad(y.sum(), x)[0]

    with pytest.raises(TypeError, match="expected tuple"):
        mode(lambda: step(vector(1.0)))()
    with pytest.raises(RuntimeError, match=r"incorrect number of values \(got 2, but expected 1\)"):
        mode(lambda: step((None, None)))()


def test_gradients_asked_for_are_seen_by_the_tensors_hooks(mode: Mode) -> None:
    x = leaf(1.0, 2.0)

    def step() -> Any:
        y = x * 2
        y.register_hook(lambda g: g * 10)
        return aj.autograd.grad((y * 3).sum(), y)[0]

    same(run(mode, step), [30.0, 30.0])


def test_nodes_that_are_not_needed_do_not_run(mode: Mode) -> None:
    x, w = leaf(1.0, 2.0), leaf(3.0, 4.0)

    def step() -> Any:
        ran: list[str] = []
        y = x * 2
        y.register_hook(lambda g: ran.append("y"))
        (found,) = aj.autograd.grad((y * w).sum(), w)
        assert ran == []
        return found

    same(run(mode, step), [2.0, 4.0])


def test_hooks_see_none_where_no_gradient_is_defined() -> None:
    class Nothing(aj.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return None

    x = leaf(1.0)
    seen: list[Any] = []
    x.register_hook(seen.append)
    Nothing.apply(x).sum().backward()
    assert seen == [None]
    assert x.grad is None
    y = x * 1
    y.register_hook(lambda g: vector(1.0))
    with pytest.raises(RuntimeError, match="can't replace a None gradient"):
        Nothing.apply(y).sum().backward()


def test_a_post_accumulate_hook_may_take_the_step_and_drop_the_gradient(mode: Mode) -> None:
    x = leaf(1.0, 2.0)

    def update(t: aj.Tensor) -> None:
        assert not aj.is_grad_enabled()
        t.add_(t.grad, alpha=-0.5)
        t.grad = None

    handle = x.register_post_accumulate_grad_hook(update)
    step = mode(lambda: (x * x).sum().backward())
    for _ in range(3):
        step()
    same(x, [0.0, 0.0])
    assert x.grad is None
    handle.remove()
    step()
    assert x.grad is not None
    with pytest.raises(RuntimeError, match="non-leaf"):
        (x * 1).register_post_accumulate_grad_hook(update)


def test_a_hook_may_run_another_backward_pass(mode: Mode) -> None:
    x = leaf(1.0, 2.0)

    def penalised(g: aj.Tensor) -> aj.Tensor:
        with aj.enable_grad():
            v = g.detach().requires_grad_()
            (v * 2).sum().backward()
        return g + v.grad

    def step() -> Any:
        y = x * x
        y.register_hook(penalised)
        return aj.autograd.grad(y.sum(), x)[0]

    same(run(mode, step), [6.0, 12.0])


def test_hooks_registered_before_an_in_place_change_see_the_old_value(mode: Mode) -> None:
    x = leaf(1.0, 2.0)

    def step() -> Any:
        y = x * 2
        seen: dict[str, Any] = {}
        y.register_hook(lambda g: seen.update(before=g))
        y.mul_(3)
        y.register_hook(lambda g: seen.update(after=g))
        aj.autograd.grad(y.sum(), x)
        return seen["before"] * 1, seen["after"] * 1

    before, after = run(mode, step)
    same(before, [3.0, 3.0])
    same(after, [1.0, 1.0])


def test_the_dictionary_of_hooks_is_an_attribute() -> None:
    x = leaf(1.0)
    assert x._backward_hooks is None
    x.register_hook(lambda g: g * 2)
    assert len(x._backward_hooks) == 1
    y = x * 1
    y._backward_hooks = {"own": lambda g: g * 3}
    y.sum().backward()
    same(x.grad, [6.0])
    with pytest.raises(RuntimeError, match="_backward_hooks"):
        del x._backward_hooks
