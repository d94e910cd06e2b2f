"""Rows about ``backward``: arguments, vectors, accumulation, the lifetime of the graph, ``.grad`` and leaves."""

from __future__ import annotations

import gc
import inspect
import weakref
from typing import Any

import pytest

import autojit as aj
from autojit.autograd.derivatives import OldNameWarning
from tests.autograd.modes import Mode
from tests.autograd.steps import leaf, run, same, vector

backward = aj.autograd.backward


def gradient_of(mode: Mode, body: Any, x: aj.Tensor) -> Any:
    """``x.grad`` after the body, which starts without one."""

    def step() -> None:
        x.grad = None
        body()

    run(mode, step)
    return x.grad


# -- arguments


def test_S0_07_backward_takes_tensors_and_lists_and_returns_none(mode: Mode) -> None:
    x = leaf(1.0, 2.0)

    def calls() -> Any:
        x.grad = None
        return [
            backward((x * 2).sum()),
            backward([(x * 2).sum()]),
            backward(x * 2, vector(1.0, 1.0)),
            backward(tensors=[x * 2], grad_tensors=[vector(1.0, 1.0)]),
            backward((x * 2, (x * 3).sum()), (vector(1.0, 1.0), None), retain_graph=False, create_graph=False),
        ]

    assert run(mode, calls) == [None] * 5
    same(x.grad, [13.0, 13.0])


def test_S0_08_roots_add_up(mode: Mode) -> None:
    x = leaf(1.0, 2.0)
    together = gradient_of(mode, lambda: backward([(x * x).sum(), (x * 3).sum()]), x)
    same(together, [5.0, 7.0])


def test_S0_09_a_non_scalar_needs_a_vector(mode: Mode) -> None:
    x = leaf(1.0, 2.0)
    with pytest.raises(RuntimeError, match="grad can be implicitly created only for scalar outputs"):
        mode(lambda: (x * x).backward())()
    same(gradient_of(mode, lambda: (x * x).backward(vector(1.0, 10.0)), x), [2.0, 40.0])


def test_S0_10_vectors_match_in_number_and_may_be_none(mode: Mode) -> None:
    x = leaf(1.0, 2.0)
    with pytest.raises(RuntimeError, match="got 2 tensors and 1 gradients"):
        mode(lambda: backward([x.sum(), x * 2], [vector(1.0, 1.0)]))()
    same(gradient_of(mode, lambda: backward([x.sum(), x * 2], [None, vector(1.0, 10.0)]), x), [3.0, 21.0])


def test_S0_11_gradients_accumulate(mode: Mode) -> None:
    x = leaf(1.0, 2.0)

    def twice() -> None:
        (x * x).sum().backward()
        (x * x).sum().backward()

    same(gradient_of(mode, twice, x), [4.0, 8.0])
    same(gradient_of(mode, lambda: (x * x).sum().backward(), x), [2.0, 4.0])


def test_S0_12_create_graph_warns_and_leaves_no_cycle_once_grad_is_none(mode: Mode) -> None:
    x = leaf(1.0, 2.0)

    def penalised() -> aj.Tensor:
        y = (x * x).sum()
        with pytest.warns(UserWarning, match="reference cycle") as noted:
            y.backward(create_graph=True)
        assert len(noted) == 1
        return x.grad * 1

    same(mode(penalised)(), [2.0, 4.0])
    mode.does_not_apply("a compiled step has no graph that could live on")
    x.grad = None
    gc.disable()
    try:
        y = (x * x).sum()
        with pytest.warns(UserWarning, match="reference cycle"):
            y.backward(create_graph=True)
        graph = weakref.ref(y.grad_fn), weakref.ref(x.grad.grad_fn)
        del y
        x.grad = None
        assert [node() for node in graph] == [None, None]
    finally:
        gc.enable()


def test_S0_13_the_graph_is_freed_unless_retained(mode: Mode) -> None:
    x = leaf(1.0, 2.0)

    def again(retain_graph: bool) -> None:
        y = x.exp().sum()
        y.backward(retain_graph=retain_graph)
        y.backward()

    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        mode(lambda: again(False))()
    e = 2.718281828459045
    same(gradient_of(mode, lambda: again(True), x), [2 * e, 2 * e * e])


def test_S0_14_create_graph_makes_gradients_differentiable(mode: Mode) -> None:
    x = leaf(1.0, 2.0)

    def orders() -> Any:
        (flat,) = aj.autograd.grad((x**3).sum(), x)
        (first,) = aj.autograd.grad((x**3).sum(), x, create_graph=True)
        assert not flat.requires_grad
        assert first.requires_grad
        return aj.autograd.grad(first.sum(), x)[0]

    same(run(mode, orders), [6.0, 12.0])


def test_S2_02_the_old_names_work_and_say_what_replaces_them(mode: Mode) -> None:
    x = leaf(1.0, 2.0)

    def old() -> None:
        with pytest.warns(DeprecationWarning, match="Use `tensors`"):
            backward(variables=[(x * 2).sum()])
        with pytest.warns(DeprecationWarning, match="Use `grad_tensors`"):
            backward(x * 2, grad_variables=vector(1.0, 1.0))
        y = x.exp().sum()
        with pytest.warns(DeprecationWarning, match="Use `retain_graph`"):
            backward(y, retain_variables=True)
        y.backward()

    mode(old)()
    e = 2.718281828459045
    same(x.grad, [4 + 2 * e, 4 + 2 * e * e])


def test_S2_03_sum_of_gradients_with_vectors(mode: Mode) -> None:
    x = leaf(1.0, 2.0)
    found = gradient_of(mode, lambda: backward([x * x, x.sum()], [vector(1.0, 2.0), None]), x)
    same(found, [3.0, 9.0])


def test_S2_04_accumulation_into_leaves(mode: Mode) -> None:
    x, y = leaf(1.0), leaf(2.0)

    def step() -> None:
        x.grad, y.grad = None, None
        (x * y).backward()
        (x * y).backward()

    run(mode, step)
    same(x.grad, [4.0])
    same(y.grad, [2.0])


@pytest.mark.parametrize("form", [list, tuple])
def test_S2_05_several_tensors(mode: Mode, form: Any) -> None:
    x = leaf(1.0, 2.0)
    same(gradient_of(mode, lambda: backward(form([x.sum(), (x * x).sum()])), x), [3.0, 5.0])


def test_S2_06_a_vector_is_part_of_the_graph_only_with_create_graph(mode: Mode) -> None:
    x, v = leaf(1.0, 2.0), leaf(3.0, 4.0)

    def pull_back() -> Any:
        (flat,) = aj.autograd.grad(x * x, x, v)
        assert not flat.requires_grad
        (first,) = aj.autograd.grad(x * x, x, v, create_graph=True)
        return aj.autograd.grad(first.sum(), v)[0]

    same(run(mode, pull_back), [2.0, 4.0])


def test_S2_07_retain_graph_and_retain_variables_must_agree(mode: Mode) -> None:
    x = leaf(1.0)
    with pytest.raises(RuntimeError, match="both passed"), pytest.warns(DeprecationWarning):
        mode(lambda: backward((x * x).sum(), retain_graph=True, retain_variables=False))()

    def agreeing() -> None:
        with pytest.warns(DeprecationWarning):
            backward((x * x).sum(), retain_graph=True, retain_variables=True)

    mode(agreeing)()
    same(x.grad, [2.0])


def test_S2_08_a_vector_that_requires_grad_does_not_turn_create_graph_on(mode: Mode) -> None:
    x, v = leaf(1.0, 2.0), leaf(1.0, 1.0)

    def step() -> aj.Tensor:
        x.grad = None
        backward(x * x, v)
        assert not x.grad.requires_grad
        return x.grad * 1

    same(run(mode, step), [2.0, 4.0])
    assert v.grad is None


def test_S2_11_only_inputs_false_accumulates_the_others(mode: Mode) -> None:
    x, w = leaf(1.0, 2.0), leaf(3.0, 4.0)
    hooked: list[str] = []
    w.register_hook(lambda g: hooked.append("w"))

    def step() -> Any:
        w.grad = None
        with pytest.warns(DeprecationWarning, match="only_inputs"):
            return aj.autograd.grad((x * w).sum(), x, only_inputs=False)[0]

    same(mode(step)(), [3.0, 4.0])
    same(w.grad, [1.0, 2.0])
    assert x.grad is None
    assert hooked == ["w"]


def test_S3_05_signature(mode: Mode) -> None:
    mode.does_not_apply("a signature has nothing to compile")
    names = ["tensors", "grad_tensors", "retain_graph", "create_graph", "grad_variables"]
    parameters = inspect.signature(backward).parameters
    assert list(parameters)[: len(names)] == names
    assert parameters["create_graph"].default is False
    assert parameters["retain_graph"].default is None


def test_S3_06_sum_with_respect_to_leaves(mode: Mode) -> None:
    x = leaf(2.0)
    same(gradient_of(mode, lambda: backward([x * x, x * 3], [vector(1.0), vector(1.0)]), x), [7.0])


def test_S3_07_non_scalar_needs_grad_tensors(mode: Mode) -> None:
    x = leaf(2.0, 3.0)
    with pytest.raises(RuntimeError, match="only for scalar outputs"):
        mode(lambda: backward([x * x]))()


def test_S3_08_length_and_none(mode: Mode) -> None:
    x = leaf(2.0)
    same(gradient_of(mode, lambda: backward([x * 2, x * 3], [None, None]), x), [5.0])


def test_S3_09_accumulates(mode: Mode) -> None:
    x = leaf(2.0)
    same(gradient_of(mode, lambda: [backward(x * 2) for _ in range(3)], x), [6.0])


def test_S3_10_a_sequence_of_tensors(mode: Mode) -> None:
    x = leaf(2.0)
    same(gradient_of(mode, lambda: backward((x * 2, x)), x), [3.0])


def test_S3_11_grad_tensors_are_optional_for_scalars(mode: Mode) -> None:
    x = leaf(2.0)
    same(gradient_of(mode, lambda: backward([x * 2]), x), [2.0])


def test_S3_12_retain_graph_defaults_to_create_graph(mode: Mode) -> None:
    x = leaf(2.0)

    def again() -> None:
        y = (x * x).sum()
        with pytest.warns(UserWarning, match="reference cycle"):
            y.backward(create_graph=True)
        y.backward()

    x.grad = None
    mode(again)()
    same(x.grad, [8.0])
    x.grad = None


def test_S3_13_create_graph_is_off_by_default(mode: Mode) -> None:
    x = leaf(2.0)

    def step() -> bool:
        x.grad = None
        (x * x).sum().backward()
        return bool(x.grad.requires_grad)

    assert run(mode, step) is False


def test_S3_14_grad_variables_is_the_old_name(mode: Mode) -> None:
    x = leaf(2.0, 3.0)

    def old() -> None:
        with pytest.warns(OldNameWarning, match="grad_variables"):
            backward(x * 2, grad_variables=vector(1.0, 1.0))

    mode(old)()
    same(x.grad, [2.0, 2.0])
    with pytest.raises(RuntimeError, match="both passed"), pytest.warns(FutureWarning):
        mode(lambda: backward(x * 2, vector(1.0, 1.0), grad_variables=vector(1.0, 1.0)))()


# -- Tensor.backward and .grad


def test_S3_42_method_signature(mode: Mode) -> None:
    mode.does_not_apply("a signature has nothing to compile")
    parameters = inspect.signature(aj.Tensor.backward).parameters
    assert list(parameters)[:4] == ["self", "gradient", "retain_graph", "create_graph"]


def test_S3_43_the_gradient_must_fit(mode: Mode) -> None:
    x = leaf(1.0, 2.0)
    z = x * (1 + 1j)
    with pytest.raises(RuntimeError, match=r"grad_output\[0\] has a shape of .*3.* and output\[0\] has a shape of"):
        mode(lambda: (x * 2).backward(vector(1.0, 1.0, 1.0)))()
    with pytest.raises(RuntimeError, match="required to have the same dtype"):
        mode(lambda: z.backward(vector(1.0, 1.0)))()
    with pytest.raises(TypeError):
        mode(lambda: (x * 2).backward(1.0))()
    assert x.grad is None


def test_S3_43_the_message_of_a_wrong_shape_is_exactly_torchs(mode: Mode) -> None:
    x, v = leaf(1.0, 2.0), vector(1.0)
    with pytest.raises(RuntimeError) as raised:
        mode(lambda: (x * 2).backward(v))()
    text = f"Mismatch in shape: grad_output[0] has a shape of {v.shape} and output[0] has a shape of {x.shape}."
    assert str(raised.value) == text
    assert "pass a gradient" in raised.value.__notes__[0]


def test_S3_44_the_method_accumulates(mode: Mode) -> None:
    x = leaf(1.0, 2.0)
    same(gradient_of(mode, lambda: [(x * x).sum().backward() for _ in range(2)], x), [4.0, 8.0])


def test_S3_45_the_gradient_is_detached_unless_create_graph(mode: Mode) -> None:
    x, v = leaf(1.0, 2.0), leaf(1.0, 1.0)

    def step() -> aj.Tensor:
        x.grad = None
        (x * x).backward(v)
        assert not x.grad.requires_grad
        x.grad = None
        with pytest.warns(UserWarning):
            (x * x).backward(v, create_graph=True)
        (found,) = aj.autograd.grad(x.grad.sum(), v)
        x.grad = None
        return found

    same(mode(step)(), [2.0, 4.0])


def test_S3_46_the_method_retains_with_create_graph(mode: Mode) -> None:
    x = leaf(3.0)

    def step() -> None:
        x.grad = None
        y = (x * x).sum()
        y.backward(retain_graph=True)
        y.backward()

    run(mode, step)
    same(x.grad, [12.0])


def test_S3_49_grad_is_none_then_a_tensor_that_keeps_its_identity(mode: Mode) -> None:
    x = leaf(1.0, 2.0)
    step = mode(lambda: (x * x).sum().backward())
    assert x.grad is None
    step()
    first = x.grad
    same(first, [2.0, 4.0])
    for _ in range(3):
        step()
    assert x.grad is first
    same(first, [8.0, 16.0])


def test_S3_49_with_create_graph_accumulation_makes_a_new_tensor() -> None:
    x = leaf(1.0, 2.0)
    (x * x).sum().backward()
    first = x.grad
    with pytest.warns(UserWarning):
        (x * x).sum().backward(create_graph=True)
    assert x.grad is not first
    same(first, [2.0, 4.0])
    same(x.grad, [4.0, 8.0])
    x.grad = None


def test_S3_49_grad_is_laid_out_like_a_dense_leaf() -> None:
    x = aj.arange(6.0).reshape(2, 3).t().detach().requires_grad_()
    (x * x).sum().backward()
    assert x.grad.stride() == x.stride() == (1, 3)
    w = aj.arange(6.0).reshape(2, 3).detach().requires_grad_()
    w.t().sum().backward()
    assert w.grad.stride() == (3, 1)


def test_S3_49_what_may_be_assigned_to_grad() -> None:
    x = leaf(1.0, 2.0)
    for wrong, error in ((1, TypeError), (vector(1.0), RuntimeError), (aj.ones(2), RuntimeError), (x, RuntimeError)):
        with pytest.raises(error):
            x.grad = wrong
        assert x.grad is None
    x.grad = vector(5.0, 6.0)
    x.sum().backward()
    same(x.grad, [6.0, 7.0])
    del x.grad
    assert x.grad is None


def test_S3_50_tensors_without_gradients_are_leaves(mode: Mode) -> None:
    a, b = vector(1.0), vector(2.0)
    assert run(mode, lambda: (a + b).is_leaf) is True


def test_S3_51_tensors_with_gradients_are_leaves_when_users_made_them(mode: Mode) -> None:
    x = leaf(1.0)
    assert x.is_leaf
    assert x.grad_fn is None

    def ask() -> Any:
        y = x * 2
        return x.is_leaf, y.is_leaf, y.grad_fn is None, y.detach().is_leaf

    assert run(mode, ask) == (True, False, False, True)


def test_S3_52_only_leaves_are_populated(mode: Mode) -> None:
    x = leaf(3.0)

    def step() -> Any:
        x.grad = None
        y = x * 2
        kept = x * 5
        kept.retain_grad()
        (y * kept).sum().backward()
        with pytest.warns(UserWarning, match="not a leaf Tensor"):
            assert y.grad is None
        return kept.grad * 1

    same(mode(step)(), [6.0])
    same(x.grad, [60.0])


def test_S3_58_requires_grad_is_set_on_leaves_and_chains(mode: Mode) -> None:
    x = vector(1.0, 2.0)
    assert x.requires_grad_() is x
    assert x.requires_grad
    x.requires_grad = False
    assert not x.requires_grad
    w = leaf(1.0)
    with pytest.raises(RuntimeError, match="leaf variables"):
        mode(lambda: setattr(w * 2, "requires_grad", False))()

    def made() -> Any:
        y = vector(1.0, 2.0).requires_grad_()
        (y * y).sum().backward()
        return y.grad * 1

    same(run(mode, made), [2.0, 4.0])


def test_S3_59_requires_grad_does_not_mean_that_grad_is_populated(mode: Mode) -> None:
    x = leaf(1.0)

    def ask() -> Any:
        y = x * 2
        assert y.requires_grad
        y.sum().backward()
        with pytest.warns(UserWarning, match="retain_grad"):
            return y.grad is None

    assert mode(ask)() is True


def test_S3_110_a_root_that_requires_no_grad_is_an_error(mode: Mode) -> None:
    a, constant = leaf(1.0), vector(1.0)
    with pytest.raises(RuntimeError, match="element 1 of tensors does not require grad and does not have a grad_fn"):
        mode(lambda: backward([a.sum(), constant.sum()]))()
    with pytest.raises(RuntimeError, match="element 0 of tensors does not require grad"):
        mode(lambda: constant.sum().backward())()
    unreached = leaf(1.0)
    run(mode, lambda: backward(a.sum(), inputs=[unreached]))
    assert unreached.grad is None
    assert a.grad is None
