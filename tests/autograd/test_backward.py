"""backward and grad: accumulation, vectors, graph lifetime, unused inputs, any order, memory."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import autojit as aj


def leaf(*values: float) -> aj.Tensor:
    return aj.tensor(values, dtype=aj.float64, requires_grad=True)


def test_two_calls_accumulate_into_the_same_object() -> None:
    x = leaf(1.0, 2.0)
    (x * x).sum().backward()
    first = x.grad
    (x * x).sum().backward()
    assert x.grad is first
    np.testing.assert_array_equal(x.grad.numpy(), [4, 8])
    x.grad = None
    x.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), [1, 1])


def test_gradients_never_alias_each_other_or_the_users_vector() -> None:
    a, b, vector = leaf(1.0), leaf(2.0), aj.ones(1, dtype=aj.float64)
    (a + b).backward(vector)
    a.grad.mul_(5.0)
    assert b.grad.item() == 1
    assert vector.item() == 1


def test_a_vector_is_needed_unless_the_output_is_scalar() -> None:
    x = leaf(1.0, 2.0)
    with pytest.raises(RuntimeError, match="grad can be implicitly created only for scalar outputs"):
        (x * 2).backward()
    (x * x).backward(aj.tensor([1.0, 10.0], dtype=aj.float64))
    np.testing.assert_array_equal(x.grad.numpy(), [2, 40])


def test_the_history_is_freed_unless_retained() -> None:
    x = leaf(1.0)
    y = x.exp().sum()
    y.backward(retain_graph=True)
    y.backward()
    with pytest.raises(RuntimeError, match="a second time"):
        y.backward()


def test_each_node_runs_once_after_all_its_users() -> None:
    x = leaf(3.0)
    calls: list[str] = []
    a = x * 2
    a.register_hook(lambda g: calls.append("a"))
    b, c = a * 3, a * 4
    b.register_hook(lambda g: calls.append("b"))
    c.register_hook(lambda g: calls.append("c"))
    (b * c).sum().backward()
    assert sorted(calls[:2]) == ["b", "c"]
    assert calls[2:] == ["a"]
    assert x.grad.item() == pytest.approx(2 * 48 * 3)


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_derivatives_of_any_order(order: int) -> None:
    x = leaf(0.4, 1.3)
    y = (x**3).sin()
    for _ in range(order):
        (y,) = aj.autograd.grad(y.sum(), x, create_graph=True)
    v = np.array([0.4, 1.3])
    c, s = np.cos(v**3), np.sin(v**3)
    exact = {
        1: 3 * v**2 * c,
        2: 6 * v * c - 9 * v**4 * s,
        3: 6 * c - 54 * v**3 * s - 27 * v**6 * c,
        4: -180 * v**2 * s - 324 * v**5 * c + 81 * v**8 * s,
    }
    np.testing.assert_allclose(y.detach().numpy(), exact[order], rtol=1e-9)


def test_grad_leaves_dot_grad_alone_and_reports_unused_inputs() -> None:
    x, y = leaf(1.0), leaf(2.0)
    z = (x * 3).sum()
    (found,) = aj.autograd.grad(z, x, retain_graph=True)
    assert found.item() == 3
    assert x.grad is None
    with pytest.raises(RuntimeError, match="appears to not have been used"):
        aj.autograd.grad(z, [x, y], retain_graph=True)
    assert aj.autograd.grad(z, [x, y], allow_unused=True, retain_graph=True)[1] is None
    assert aj.autograd.grad(z, [x, y], materialize_grads=True, retain_graph=True)[1].item() == 0
    with pytest.raises(ValueError, match="allow_unused"):
        aj.autograd.grad(z, [x, y], materialize_grads=True, allow_unused=False)


def test_zero_derivatives_are_zeros_not_missing() -> None:
    x = leaf(1.5)
    x.floor().sum().backward()
    assert x.grad.item() == 0


def test_backward_restricted_to_inputs_reaches_intermediates_too() -> None:
    x, y = leaf(1.0, 2.0), leaf(3.0, 4.0)
    z = x * y
    (z * z).sum().backward(inputs=[x, z])
    assert y.grad is None
    np.testing.assert_array_equal(z.grad.numpy(), 2 * z.detach().numpy())


def test_only_inputs_false_accumulates_the_others() -> None:
    x, w = leaf(2.0), leaf(5.0)
    with pytest.warns(FutureWarning):
        (found,) = aj.autograd.grad((x * w).sum(), x, only_inputs=False)
    assert found.item() == 5
    assert x.grad is None
    assert w.grad.item() == 2


def test_gradient_edges_stand_for_tensors() -> None:
    x = leaf(2.0)
    y = x * x
    edge, origin = aj.autograd.graph.get_gradient_edge(y), aj.autograd.graph.get_gradient_edge(x)
    del y
    (found,) = aj.autograd.grad(edge, origin, grad_outputs=aj.ones(1, dtype=aj.float64))
    assert found.item() == 4


def test_complex_gradients_are_conjugate_wirtinger() -> None:
    z = aj.tensor([1 + 2j], dtype=aj.complex128, requires_grad=True)
    (z.abs() ** 2).sum().backward()
    np.testing.assert_allclose(z.grad.numpy(), 2 * z.detach().numpy())


def test_a_plain_backward_needs_no_garbage_collector() -> None:
    gc.collect()
    gc.disable()
    try:
        references: list[weakref.ref[Any]] = []

        def step() -> None:
            x = aj.randn(4, requires_grad=True)
            y = x.exp() * x
            v = y.clone()
            v[0] = 1.0
            references.extend(weakref.ref(o) for o in (x, y, y.grad_fn, v.grad_fn))
            (v.tanh().sum() + y.sum()).backward()

        step()
        assert [r() for r in references] == [None] * 4
    finally:
        gc.enable()


def test_history_can_be_walked_to_the_leaves() -> None:
    x = leaf(1.0)
    y = (x * 2).exp()
    names = []
    node = y.grad_fn
    while node is not None:
        names.append(node.name())
        node = node.next_functions[0][0] if node.next_functions else None
    assert names == ["ExpBackward0", "MulBackward0", "torch::autograd::AccumulateGrad"]


def test_assigning_grad_checks_type() -> None:
    x = leaf(1.0, 2.0)
    x.grad = aj.ones(2, dtype=aj.float64)
    with pytest.raises(RuntimeError, match="different size"):
        x.grad = aj.ones(3, dtype=aj.float64)
    with pytest.raises(RuntimeError, match="different type"):
        x.grad = aj.ones(2)
    with pytest.raises(TypeError):
        x.grad = 1.0
    with pytest.warns(UserWarning, match="not a leaf"):
        assert (x * 2).grad is None


def test_cotangents_are_checked() -> None:
    x = leaf(1.0, 2.0)
    with pytest.raises(RuntimeError, match="Mismatch in shape"):
        (x * 2).backward(aj.ones(3, dtype=aj.float64))
    with pytest.raises(RuntimeError, match="tensors and"):
        aj.autograd.backward([x.sum(), x.sum()], [None])
    with pytest.raises(TypeError):
        (x * 2).backward(3.0)
    with pytest.raises(RuntimeError, match="does not require grad"):
        x.detach().sum().backward()


def test_batched_vectors_give_a_jacobian() -> None:
    x = leaf(1.0, 2.0)
    (rows,) = aj.autograd.grad(x**2, x, aj.eye(2, dtype=aj.float64), is_grads_batched=True)
    np.testing.assert_array_equal(rows.numpy(), [[2, 0], [0, 4]])


@pytest.mark.parametrize("function", [aj.relu, aj.abs])
@pytest.mark.parametrize("compiled", [False, True])
def test_a_gradient_that_is_constant_in_its_input_can_be_differentiated_to_zero(function: Any, compiled: bool) -> None:
    x = aj.tensor([1.0, -2.0], requires_grad=True)

    def curvature(x: aj.Tensor) -> Any:
        (slope,) = aj.autograd.grad(function(x).sum(), x, create_graph=True)
        assert slope.requires_grad
        return aj.autograd.grad(slope.sum(), x)[0]

    assert (aj.jit(curvature) if compiled else curvature)(x).tolist() == [0, 0]
