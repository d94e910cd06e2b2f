"""What is saved for backward keeps its contents: in-place ops under pack hooks, allowed mutation, numbers of nodes."""

from __future__ import annotations

from typing import Any

import pytest

import autojit as aj
from autojit.autograd import graph
from tests.autograd.modes import Mode
from tests.autograd.steps import leaf, same


def in_place_chain(x: Any) -> Any:
    y = x.clone()
    y.sin_()
    y.exp_()
    y.mul_(y)
    first = y[0]
    first.cos_()
    return y.t().sin().sum()


def out_of_place_chain(x: Any) -> Any:
    y = x.sin().exp() ** 2
    return aj.cat([y[:1].cos(), y[1:]]).t().sin().sum()


def test_in_place_ops_give_pack_hooks_contents_that_do_not_change(mode: Mode) -> None:
    def keeping(x: Any) -> Any:
        with graph.saved_tensors_hooks(lambda t: t, lambda t: t):
            y = in_place_chain(x)
        return aj.autograd.grad(y, x)[0]

    x = leaf(0.5, -1.0, 2.0, 0.1).detach().reshape(2, 2).requires_grad_()
    expected = aj.autograd.grad(out_of_place_chain(x), x)[0]
    run = mode(keeping)
    for _ in range(3):
        same(run(x), expected)


def test_in_place_ops_that_save_their_operand_where_mutation_is_allowed(mode: Mode) -> None:
    def allowing(x: Any) -> Any:
        with graph.allow_mutation_on_saved_tensors():
            y = in_place_chain(x)
            z = x.clone()
            z.mul_(z[0])
            return aj.autograd.grad(y + z.sum(), x)[0]

    x = leaf(0.5, -1.0, 2.0, 0.1).detach().reshape(2, 2).requires_grad_()
    expected = aj.autograd.grad(out_of_place_chain(x) + (x * x[0]).sum(), x)[0]
    run = mode(allowing)
    for _ in range(3):
        same(run(x), expected)


def test_what_is_saved_twice_is_copied_once_and_only_as_long_as_it_is_needed() -> None:
    with graph.allow_mutation_on_saved_tensors() as context:
        x = leaf(1.0, 2.0).clone()
        y, z = x**2, x**2
        assert len(context.tid_to_weakhandle) == 1
        assert len(context.cloned) == 0
        x.sin_()
        assert len(context.cloned) == 1
        w = x**2
        x.sin_()
        assert len(context.cloned) == 2
        del y
        assert len(context.cloned) == 2
        del z
        assert len(context.cloned) == 1
        del w
        assert len(context.cloned) == 0


def test_nothing_is_copied_for_what_is_no_longer_saved() -> None:
    with graph.allow_mutation_on_saved_tensors() as context:
        x = leaf(1.0, 2.0).clone()
        (x**2).sum().backward()
        x.sin_()
        assert len(context.cloned) == 0


# -- numbers of nodes


def test_a_renumbered_node_runs_by_its_number_but_after_its_users(mode: Mode) -> None:
    seen: list[str] = []

    def step(x: Any, y: Any) -> Any:
        a = x + y
        b = y * 2
        c = a + b
        highest = c.grad_fn._sequence_nr()
        a.grad_fn._set_sequence_nr(highest + 2)
        b.grad_fn._set_sequence_nr(highest + 1)
        assert a.grad_fn._sequence_nr() == highest + 2
        for name, t in (("a", a), ("b", b), ("c", c)):
            t.register_hook(lambda grad, name=name: seen.append(name))
        return aj.autograd.grad(c.sum(), (x, y))

    run = mode(step)
    for _ in range(3):
        x_bar, y_bar = run(leaf(1.0), leaf(2.0))
        same(x_bar, aj.ones(1))
        same(y_bar, 3 * aj.ones(1))
    assert seen[:3] == ["c", "a", "b"]


def test_the_engine_tells_whether_it_keeps_the_graph() -> None:
    kept: list[bool] = []
    x = leaf(1.0)
    y = x * x
    y.register_hook(lambda grad: kept.append(aj._C._autograd._get_current_graph_task_keep_graph()))
    y.sum().backward(retain_graph=True)
    y.sum().backward()
    assert kept == [True, False]


# -- a slope that is chosen


@pytest.mark.parametrize("value", [0.0, 1e-200])
def test_atan2_has_slope_zero_where_the_radius_vanishes(value: float, mode: Mode) -> None:
    def slopes(y: Any, x: Any) -> Any:
        return aj.autograd.grad(aj.atan2(y, x).sum(), (y, x))

    run = mode(slopes)
    for _ in range(3):
        y_bar, x_bar = run(leaf(value), leaf(value))
        same(y_bar, aj.zeros(1))
        same(x_bar, aj.zeros(1))


# -- results of in-place ops


def test_a_change_of_a_result_that_its_own_rule_reads_is_noticed(mode: Mode) -> None:
    def changed(x: Any, method: str, through_view: bool) -> Any:
        y = x.clone()
        (y[0] if through_view else y).exp_()
        getattr(y, method)(2.0)
        return aj.autograd.grad(y.sum(), x)

    for through_view in (False, True):
        run = mode(changed)
        x = leaf(1.0, 2.0, 3.0, 4.0).detach().reshape(2, 2).requires_grad_()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            run(x, "mul_", through_view)


def test_a_result_that_stays_as_it_is_can_be_differentiated_twice(mode: Mode) -> None:
    def twice(x: Any) -> Any:
        y = x.clone()
        y[0].exp_()
        (g,) = aj.autograd.grad((y * y).sum(), x, create_graph=True)
        return g.detach(), aj.autograd.grad(g.sum(), x)[0]

    run = mode(twice)
    x = leaf(0.1, 0.2, 0.3, 0.4).detach().reshape(2, 2).requires_grad_()
    for _ in range(3):
        first, second = run(x)
        same(first[0], 2 * (2 * x[0]).exp().detach().numpy(), rtol=1e-9)
        same(second[0], 4 * (2 * x[0]).exp().detach().numpy(), rtol=1e-9)
        same(second[1], [2.0, 2.0])


def test_forward_mode_does_not_see_copies_without_tangents() -> None:
    x = aj.ones(2, dtype=aj.float64)
    with aj.autograd.graph.allow_mutation_on_saved_tensors():
        with pytest.raises(RuntimeError, match="forward mode"):
            aj.func.hessian(lambda x: (x**3).sum())(x)
        assert aj.func.jacrev(aj.func.grad(lambda x: (x**3).sum()))(x).tolist() == [[6.0, 0.0], [0.0, 6.0]]
