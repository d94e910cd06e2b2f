"""Rows about ``grad``: arguments, unused inputs, gradient edges, batches of vectors, higher orders."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.autograd.graph import get_gradient_edge
from tests.autograd.modes import Mode
from tests.autograd.steps import leaf, run, same, vector

grad = aj.autograd.grad


# -- the first page


def test_S0_15_signature(mode: Mode) -> None:
    mode.does_not_apply("a signature has nothing to compile")
    names = list(inspect.signature(grad).parameters)
    assert names[:5] == ["outputs", "inputs", "grad_outputs", "retain_graph", "create_graph"]


def test_S0_16_one_gradient_per_input_and_grad_untouched(mode: Mode) -> None:
    x, y = leaf(2.0), leaf(3.0)
    found = run(mode, lambda: grad([(x * y).sum(), (x * x).sum()], [x, y]))
    assert len(found) == 2
    same(found[0], [7.0])
    same(found[1], [2.0])
    assert x.grad is None
    assert y.grad is None


def test_S0_17_grad_outputs_match_and_may_be_none(mode: Mode) -> None:
    x = leaf(1.0, 2.0)
    (found,) = run(mode, lambda: grad([x.sum(), x * x], x, [None, vector(1.0, 10.0)]))
    same(found, [3.0, 41.0])
    with pytest.raises(RuntimeError, match="gradients"):
        mode(lambda: grad([x.sum(), x * x], x, [None]))()


def test_S0_18_single_tensors_give_a_tuple_of_one(mode: Mode) -> None:
    x = leaf(2.0)
    found = run(mode, lambda: grad(x * x, x))
    assert isinstance(found, tuple)
    assert len(found) == 1


def test_S0_19_values_agree_with_recorded_results_of_pytorch(mode: Mode) -> None:
    x = leaf(0.5, -1.25)  # torch 2.13: autograd.grad(((x * 3).tanh() * x.exp()).sum(), x)
    (found,) = run(mode, lambda: grad(((x * 3).tanh() * x.exp()).sum(), x))
    same(found, [2.3861418169718074, -0.28428861517244614])


# -- the second page


def test_S1_32_signature(mode: Mode) -> None:
    mode.does_not_apply("a signature has nothing to compile")
    parameters = inspect.signature(grad).parameters
    assert {"outputs", "inputs", "grad_outputs", "retain_graph", "create_graph", "allow_unused"} <= set(parameters)
    assert parameters["allow_unused"].default is None
    assert parameters["retain_graph"].default is None


def test_S1_33_sum_over_outputs(mode: Mode) -> None:
    x = leaf(1.0, 2.0)
    same(run(mode, lambda: grad((x.sum(), (x * x).sum()), x))[0], [3.0, 5.0])


def test_S1_34_gradient_edges_stand_for_tensors(mode: Mode) -> None:
    x = leaf(1.0, 2.0)

    def through_edges() -> Any:
        y = x * 2
        z = (y * y).sum()
        edge = get_gradient_edge(y)
        del y
        return grad(get_gradient_edge(z), [edge, get_gradient_edge(x)])

    found = run(mode, through_edges)
    same(found[0], [4.0, 8.0])
    same(found[1], [8.0, 16.0])


def test_S1_34_an_edge_means_the_value_before_an_in_place_change(mode: Mode) -> None:
    x = leaf(1.0, 2.0)

    def changed() -> Any:
        y = x * 2
        edge = get_gradient_edge(y)
        y.mul_(3)
        return grad((y * y).sum(), [edge, y])

    before, after = run(mode, changed)
    same(after, [12.0, 24.0])
    same(before, [36.0, 72.0])


def test_S1_34_edges_of_non_scalars_need_a_vector(mode: Mode) -> None:
    x = leaf(1.0, 2.0)
    with pytest.raises(RuntimeError, match="only for scalar outputs"):
        mode(lambda: grad(get_gradient_edge(x * 2), x))()
    with pytest.raises(RuntimeError, match="does not require gradients"):
        get_gradient_edge(vector(1.0))


def test_S1_35_leaf_gradients_are_there_when_grad_returns(mode: Mode) -> None:
    mode.does_not_apply("streams need a GPU; here: passes in several threads wait for nobody and lose nothing")
    import threading

    x = leaf(*np.ones(1000))
    found: list[Any] = []

    def pull_back() -> None:
        found.append(grad((x * x).sum(), x)[0] * 1)

    threads = [threading.Thread(target=pull_back) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    for gradient in found:
        same(gradient, np.full(1000, 2.0))


def test_S1_36_grad_outputs_are_optional(mode: Mode) -> None:
    x = leaf(3.0)
    same(run(mode, lambda: grad([x * 2, x * x], [x], grad_outputs=(None, None)))[0], [8.0])


def test_S1_37_retain_graph_defaults_to_create_graph(mode: Mode) -> None:
    x = leaf(3.0)

    def again() -> Any:
        y = x * x
        grad(y, x, create_graph=True)
        return grad(y, x)

    same(run(mode, again)[0], [6.0])

    def freed() -> Any:
        y = x * x
        grad(y, x)
        return grad(y, x)

    with pytest.raises(RuntimeError, match="a second time"):
        mode(freed)()


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_S1_38_derivatives_of_order_1_to_4(mode: Mode, order: int) -> None:
    x = leaf(0.4, 1.3)

    def derivative() -> Any:
        y = (x**3).sin()
        for _ in range(order):
            (y,) = grad(y.sum(), x, create_graph=True)
        return y.detach()

    v = np.array([0.4, 1.3])
    c, s = np.cos(v**3), np.sin(v**3)
    exact = {
        1: 3 * v**2 * c,
        2: 6 * v * c - 9 * v**4 * s,
        3: 6 * c - 54 * v**3 * s - 27 * v**6 * c,
        4: -180 * v**2 * s - 324 * v**5 * c + 81 * v**8 * s,
    }
    same(run(mode, derivative), exact[order], rtol=1e-9)


def test_S1_39_an_unused_input_is_an_error_unless_allowed(mode: Mode) -> None:
    x, unused = leaf(1.0, 2.0), leaf(3.0)
    with pytest.raises(RuntimeError, match=r"at index 1 .*Set allow_unused=True"):
        mode(lambda: grad(x.sum(), [x, unused]))()
    found = run(mode, lambda: grad(x.sum(), [x, unused], allow_unused=True))
    same(found[0], [1.0, 1.0])
    assert found[1] is None
    with pytest.raises(RuntimeError, match="does not require grad"):
        mode(lambda: grad(x.sum(), vector(1.0)))()


def test_S1_40_unused_inputs_are_materialized(mode: Mode) -> None:
    x, unused = leaf(1.0, 2.0), leaf(3.0, 4.0, 5.0)
    found = run(mode, lambda: grad(x.sum(), [x, unused], materialize_grads=True))
    same(found[1], [0.0, 0.0, 0.0])
    assert found[1].dtype is aj.float64
    assert not found[1].requires_grad
    assert grad(x.sum(), [unused], materialize_grads=True, create_graph=True)[0].requires_grad
    with pytest.raises(ValueError, match="Expected allow_unused to be True"):
        mode(lambda: grad(x.sum(), x, allow_unused=False, materialize_grads=True))()


def test_S1_41_the_result_is_a_tuple(mode: Mode) -> None:
    x = leaf(1.0)
    assert isinstance(run(mode, lambda: grad([x.sum()], [x])), tuple)


def test_a_dictionary_of_inputs_gives_a_dictionary(mode: Mode) -> None:
    x, y = leaf(2.0), leaf(3.0)
    found = run(mode, lambda: grad((x * y).sum(), {"x": x, "y": y}))
    assert list(found) == ["x", "y"]
    same(found["y"], [2.0])


def test_no_inputs_are_an_error(mode: Mode) -> None:
    x = leaf(1.0)
    for error in (RuntimeError, ValueError):
        with pytest.raises(error, match="non-empty inputs"):
            mode(lambda: grad(x.sum(), []))()
    with pytest.raises(RuntimeError, match="cannot be empty"):
        mode(lambda: x.sum().backward(inputs=[]))()


def test_S1_42_is_grad_enabled_tells_the_threads_mode(mode: Mode) -> None:
    step = mode(lambda: (aj.is_grad_enabled(), aj.zeros(1)))
    assert step()[0] is True
    with aj.no_grad():
        assert step()[0] is False
    assert step()[0] is True


# -- batches of vectors


def test_batched_vectors_are_pulled_back_at_once(mode: Mode) -> None:
    x = leaf(1.0, 2.0, 3.0)

    def jacobian() -> Any:
        shapes: list[Any] = []
        y = x**3
        y.register_hook(lambda g: shapes.append(tuple(g.shape)))
        (rows,) = grad(y, x, aj.eye(3, dtype=aj.float64), is_grads_batched=True)
        assert shapes == [(3,)]
        return rows

    same(run(mode, jacobian), np.diag([3.0, 12.0, 27.0]))


def test_batched_gradients_can_be_differentiated() -> None:
    x = leaf(1.0, 2.0)
    (rows,) = grad(x**3, x, aj.eye(2, dtype=aj.float64), is_grads_batched=True, create_graph=True)
    same(grad(rows.sum(), x)[0], [6.0, 12.0])


def test_batched_vectors_must_fit(mode: Mode) -> None:
    x = leaf(1.0, 2.0)
    with pytest.raises(RuntimeError, match="interpret the first dimension of each grad_output as the batch"):
        mode(lambda: grad(x * 2, x, vector(1.0, 2.0), is_grads_batched=True))()


# -- the third and fourth page


def test_S2_09_create_graph_may_be_none(mode: Mode) -> None:
    x = leaf(3.0)
    (found,) = run(mode, lambda: grad(x * x, x, None, None, None, True))
    same(found, [6.0])
    assert not found.requires_grad


def test_S2_10_a_vector_that_requires_grad_is_differentiated_only_on_request(mode: Mode) -> None:
    x, v = leaf(3.0), leaf(2.0)

    def both() -> Any:
        (flat,) = grad(x * x, x, v)
        assert not flat.requires_grad
        (first,) = grad(x * x, x, v, create_graph=True)
        return grad(first, v)

    same(run(mode, both)[0], [6.0])


def test_S2_12_inputs_are_returned_not_accumulated(mode: Mode) -> None:
    x = leaf(3.0)
    run(mode, lambda: grad([x * x], [x]))
    assert x.grad is None


def test_S2_13_grad_outputs_as_for_backward(mode: Mode) -> None:
    x, v = leaf(3.0), vector(5.0)
    (found,) = run(mode, lambda: grad(x * x, x, v))
    same(found, [30.0])
    assert not found.requires_grad


def test_S2_14_retain_graph(mode: Mode) -> None:
    x = leaf(3.0)

    def twice() -> Any:
        y = x * x
        return grad(y, x, retain_graph=True)[0] + grad(y, x)[0]

    same(run(mode, twice), [12.0])


def test_S2_15_create_graph_is_off_by_default(mode: Mode) -> None:
    x, v = leaf(3.0), leaf(1.0)
    assert run(mode, lambda: grad(x * x, x, v)[0].requires_grad) is False


def test_S3_15_signature(mode: Mode) -> None:
    mode.does_not_apply("a signature has nothing to compile")
    parameters = inspect.signature(grad).parameters
    names = ["outputs", "inputs", "grad_outputs", "retain_graph", "create_graph", "only_inputs", "allow_unused"]
    assert list(parameters)[: len(names)] == names
    assert parameters["only_inputs"].default is True


def test_S3_16_sum_with_respect_to_inputs(mode: Mode) -> None:
    x = leaf(3.0)
    same(run(mode, lambda: grad([x * 2, x * 3], x))[0], [5.0])


def test_S3_17_grad_outputs(mode: Mode) -> None:
    x = leaf(1.0, 2.0)
    same(run(mode, lambda: grad(x * x, x, grad_outputs=[vector(1.0, 2.0)]))[0], [2.0, 8.0])


def test_S3_18_only_inputs(mode: Mode) -> None:
    x, w = leaf(2.0), leaf(5.0)
    with pytest.warns(FutureWarning, match="only_inputs"):
        (found,) = mode(lambda: grad(x * w, x, only_inputs=False))()
    same(found, [5.0])
    same(w.grad, [2.0])


def test_S3_19_grad_is_left_alone(mode: Mode) -> None:
    x = leaf(2.0)
    x.grad = vector(7.0)
    run(mode, lambda: grad(x * x, x))
    same(x.grad, [7.0])


def test_S3_20_retain_graph_default(mode: Mode) -> None:
    x = leaf(2.0)

    def three_times() -> Any:
        y = x**3
        (first,) = grad(y, x, create_graph=True)
        (second,) = grad(first, x, create_graph=True)
        return grad(y, x)[0] + (first + second).detach()

    same(run(mode, three_times), [36.0])


def test_S3_21_higher_orders(mode: Mode) -> None:
    x = leaf(2.0)

    def second() -> Any:
        (first,) = grad(x**3, x, create_graph=True)
        return grad(first, x)

    same(run(mode, second)[0], [12.0])


def test_S3_22_allow_unused(mode: Mode) -> None:
    x, unused = leaf(2.0), leaf(1.0)
    with pytest.raises(RuntimeError, match="allow_unused"):
        mode(lambda: grad(x * x, unused, allow_unused=False))()
    assert run(mode, lambda: (grad(x * x, unused, allow_unused=True)[0], x.detach() * 1))[0] is None
