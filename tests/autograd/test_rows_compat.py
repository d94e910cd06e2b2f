"""Reference rows of the Variable era: names that still work, and the old semantics in ``autojit.compat``."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.autograd import variable
from autojit.compat import v0_3, v1_0
from autojit.compat.v0_3 import Variable
from autojit.tensor.state import state
from tests.autograd.mode_checks import thrice
from tests.autograd.modes import Mode
from tests.autograd.old_programs import variable_warns_again  # noqa: F401  (a fixture)

# -- the modern namespace accepts the names


def test_S2_01_a_variable_wraps_a_tensor(mode: Mode) -> None:
    def body(t: aj.Tensor) -> Any:
        v = aj.autograd.Variable(t, requires_grad=True)
        assert isinstance(v, aj.Tensor)
        (g,) = aj.autograd.grad((v * v).sum(), v)
        return g

    assert thrice(mode(body), aj.tensor([1.0, 2.0])).tolist() == [2.0, 4.0]

    def old(t: aj.Tensor) -> Any:
        w = Variable(t, requires_grad=True)
        (w * w).sum().backward()
        return w.grad.data

    assert thrice(mode(old), aj.tensor([1.0, 2.0])).tolist() == [2.0, 4.0]


def test_S2_02_backward_takes_the_historic_names(mode: Mode) -> None:
    def body(t: aj.Tensor) -> Any:
        x = Variable(t, requires_grad=True)
        y = x * x
        v0_3.backward(variables=[y], grad_variables=[aj.ones(2)], retain_variables=True)
        v0_3.backward(y, aj.ones(2))
        return x.grad.data

    assert thrice(mode(body), aj.tensor([1.0, 2.0])).tolist() == [4.0, 8.0]

    x = aj.ones(2, requires_grad=True)
    for options in ({"grad_variables": aj.ones(2)}, {"grad_tensors": aj.ones(2), "retain_variables": True}):
        with pytest.warns(DeprecationWarning, match="Use `(grad_tensors|retain_graph)` instead"):
            aj.autograd.backward(x * 2, **options)
    with pytest.warns(DeprecationWarning, match="Use `tensors` instead"):
        aj.autograd.backward(variables=(x * 2).sum())


def test_S2_03_the_old_backward_sums_over_variables(mode: Mode) -> None:
    def body(t: aj.Tensor) -> Any:
        x = Variable(t, requires_grad=True)
        v0_3.backward([(x * x).sum(), x * 3], [None, aj.tensor([1.0, 2.0])])
        return x.grad.data

    assert thrice(mode(body), aj.tensor([1.0, 2.0])).tolist() == [5.0, 10.0]
    x = Variable(aj.ones(2), requires_grad=True)
    with pytest.raises(RuntimeError, match="grad can be implicitly created only for scalar outputs"):
        v0_3.backward([x * 2])
    with pytest.raises(RuntimeError, match="1 variables and 2 gradients"):
        v0_3.backward([x * 2], [None, None])


def test_S2_04_the_old_backward_adds_to_the_leaves(mode: Mode) -> None:
    def body(t: aj.Tensor) -> Any:
        x = Variable(t, requires_grad=True)
        for _ in range(2):
            v0_3.backward((x * x).sum())
        twice = x.grad.data.clone()
        x.grad.data.zero_()
        v0_3.backward((x * x).sum())
        return twice, x.grad.data

    twice, once = thrice(mode(body), aj.tensor([1.0, 2.0]))
    assert twice.tolist() == [4.0, 8.0]
    assert once.tolist() == [2.0, 4.0]


@pytest.mark.parametrize("form", [lambda y: y, lambda y: [y], lambda y: (y,)])
def test_S2_05_variables_are_one_or_a_sequence(mode: Mode, form: Callable[[Any], Any]) -> None:
    def body(t: aj.Tensor) -> Any:
        x = Variable(t, requires_grad=True)
        v0_3.backward(form((x * x).sum()))
        return x.grad.data

    assert thrice(mode(body), aj.tensor([1.0, 2.0])).tolist() == [2.0, 4.0]


def test_S2_06_vectors_enter_a_graph_only_if_one_is_made(mode: Mode) -> None:
    def body(t: aj.Tensor) -> Any:
        x = Variable(t, requires_grad=True)
        v = Variable(aj.ones(2), requires_grad=True)
        v0_3.backward([x * x], [v], create_graph=False)
        first = x.grad.requires_grad
        (g,) = v0_3.grad([x * x], [x], [v], create_graph=True)
        v0_3.backward(g.sum())
        return first, v.grad.data, g.data

    first, vector_grad, g = thrice(mode(body), aj.tensor([1.0, 2.0]))
    assert first is False
    assert vector_grad.tolist() == [2.0, 4.0]
    assert g.tolist() == [2.0, 4.0]


def test_S2_07_retain_graph_has_two_names(mode: Mode) -> None:
    def body(t: aj.Tensor) -> Any:
        x = Variable(t, requires_grad=True)
        y = (x * x).sum()
        y.backward(retain_variables=True)
        y.backward(retain_graph=True)
        y.backward(retain_graph=True, retain_variables=True)
        y.backward()
        return x.grad.data

    assert thrice(mode(body), aj.tensor([1.0, 2.0])).tolist() == [8.0, 16.0]
    x = Variable(aj.ones(2), requires_grad=True)
    y = (x * x).sum()
    for backward in (y.backward, lambda **names: v0_3.backward(y, **names)):
        with pytest.raises(RuntimeError, match="two names of one argument"):
            backward(retain_graph=True, retain_variables=False)
    y.backward()
    with pytest.raises(RuntimeError, match="a second time"):
        y.backward()


def test_S2_08_a_recorded_vector_turns_create_graph_on(mode: Mode) -> None:
    def body(t: aj.Tensor, recorded: bool) -> Any:
        x = Variable(t, requires_grad=True)
        vector = Variable(aj.ones(2)) if recorded else aj.ones(2)
        v0_3.backward([x * x], [vector])
        by_backward = x.grad.requires_grad
        x.grad = None
        by_volatile = v0_3.grad([x * x], [x], [Variable(aj.ones(2), volatile=True)])[0].requires_grad
        (g,) = v0_3.grad([x * x], [x], [vector])
        return by_backward, g.requires_grad, by_volatile

    function = mode(body)
    assert thrice(function, aj.tensor([1.0, 2.0]), True) == (True, True, False)
    assert thrice(function, aj.tensor([1.0, 2.0]), False) == (False, False, False)
    x = aj.ones(2, requires_grad=True)
    aj.autograd.backward(x * x, aj.ones(2, requires_grad=True))  # today: off unless asked for
    assert not x.grad.requires_grad


def test_S2_10_the_old_grad_makes_a_graph_for_variables(mode: Mode) -> None:
    def body(t: aj.Tensor) -> Any:
        x = Variable(t, requires_grad=True)
        (g,) = v0_3.grad(x**3, x, Variable(aj.ones(2)))
        (h,) = v0_3.grad(g, x, aj.ones(2))
        return g.data, h.data, h.requires_grad

    g, h, graph = thrice(mode(body), aj.tensor([1.0, 2.0]))
    assert g.tolist() == [3.0, 12.0]
    assert h.tolist() == [6.0, 12.0]
    assert graph is False


# -- rules of the old Variable


def test_S2_21_the_gradient_of_a_result_is_zero(mode: Mode) -> None:
    def body(t: aj.Tensor) -> Any:
        x = Variable(t, requires_grad=True)
        y = x * x
        before = x.grad
        y.sum().backward()
        z = x * 2
        z.retain_grad()
        z.sum().backward()
        return before, y.grad.data, x.grad.shape == x.shape, z.grad.data

    before, zero, same_size, kept = thrice(mode(body), aj.tensor([1.0, 2.0]))
    assert before is None
    assert zero.tolist() == [0.0, 0.0]
    assert same_size
    assert kept.tolist() == [1.0, 1.0]


def test_S2_23_the_old_gradient_cannot_be_assigned(mode: Mode) -> None:
    def body(t: aj.Tensor) -> Any:
        x = Variable(t, requires_grad=True)
        assert x.grad is None
        (x * x).sum().backward()
        with pytest.raises(RuntimeError, match="cannot be assigned"):
            x.grad = aj.ones(2)
        before = x.grad.data.clone()
        x.grad.data.copy_(aj.zeros(2))
        after = x.grad.data
        x.grad = None
        assert x.grad is None
        return before, after

    before, after = thrice(mode(body), aj.ones(2))
    assert before.tolist() == [2.0, 2.0]
    assert after.tolist() == [0.0, 0.0]


def test_S2_24_the_flags_are_keywords(mode: Mode) -> None:
    def body(t: aj.Tensor) -> Any:
        with pytest.raises(TypeError):
            Variable(t, True)
        x = Variable(t, requires_grad=True)
        with pytest.raises(RuntimeError, match="leaf"):
            (x * 2).requires_grad = False
        with pytest.raises(ValueError, match="volatile and require_grad"):
            Variable(t, requires_grad=True, volatile=True)
        return (x * 2).requires_grad, (Variable(t) * 2).requires_grad

    assert thrice(mode(body), aj.ones(2)) == (True, False)


def test_S2_25_volatile_records_nothing(mode: Mode) -> None:
    def body(t: aj.Tensor) -> Any:
        weight = Variable(aj.ones(2), requires_grad=True)
        x = Variable(t, volatile=True)
        y = (weight * x).sum()
        z = aj.nn.functional.linear(x, weight.reshape(1, 2))
        return y.requires_grad, y.grad_fn, y.volatile, z.volatile, z.requires_grad, weight.volatile

    assert thrice(mode(body), aj.tensor([1.0, 2.0])) == (False, None, True, True, False, False)
    x = Variable(aj.ones(2), requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf"):
        (x * 2).volatile = True
    x.volatile = True
    assert not x.requires_grad
    assert "volatile=True" in repr(x)
    with pytest.raises(RuntimeError, match="does not require grad"):
        (x * 2).sum().backward()
    # today the keyword is accepted and says what to write
    with pytest.warns(UserWarning, match=r"with no_grad\(\)"):
        modern = aj.autograd.Variable(aj.ones(2), volatile=True)
    with pytest.warns(UserWarning, match="volatile was removed"):
        assert modern.volatile is False
    with pytest.warns(UserWarning, match=r"with no_grad\(\)"):
        modern.volatile = True
    assert (modern * aj.ones(2, requires_grad=True)).requires_grad


def test_S2_28_data_is_a_tensor_or_an_array(mode: Mode) -> None:
    def body(array: Any, t: aj.Tensor) -> Any:
        for make in (Variable, aj.autograd.Variable):
            with pytest.raises(TypeError, match="has to be a tensor, but got list"):
                make([1.0])
        return (Variable(array) * 2).data, (aj.autograd.Variable(array) * 2), (Variable(t) * 2).data

    for found in thrice(mode(body), np.ones(2, np.float32), aj.ones(2)):
        assert found.tolist() == [2.0, 2.0]
    array = np.ones(2, np.float32)
    v = Variable(array, requires_grad=True)
    v.data[0] = 5
    assert array[0] == 5


def test_S2_33_detach_keeps_volatility(mode: Mode) -> None:
    def body(t: aj.Tensor) -> Any:
        x = Variable(t, volatile=True)
        w = Variable(t, requires_grad=True)
        return (x * 2).detach().volatile, (w * 2).detach().volatile, (w * 2).detach().requires_grad

    assert thrice(mode(body), aj.ones(2)) == (True, False, False)


@pytest.mark.parametrize("volatile", [False, True])
@pytest.mark.parametrize("other_volatile", [False, True])
@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("other_recorded", [False, True])
def test_S2_55_truth_table_of_both_flags(
    mode: Mode, volatile: bool, other_volatile: bool, recorded: bool, other_recorded: bool
) -> None:
    if (volatile and recorded) or (other_volatile and other_recorded):
        return  # no leaf has both

    def body(a: aj.Tensor, b: aj.Tensor) -> Any:
        x = Variable(a, requires_grad=recorded, volatile=volatile)
        y = Variable(b, requires_grad=other_recorded, volatile=other_volatile)
        found = []
        for z in (x * y, x @ y, aj.cat([x, y]), (x * 1) + (y * 1), x[0] * y[0]):
            found.append((z.volatile, z.requires_grad, z.grad_fn is not None))
        target = x * 1
        target += y
        return [*found, (target.volatile, target.requires_grad, target.grad_fn is not None)]

    wins = volatile or other_volatile
    graph = (recorded or other_recorded) and not wins
    assert thrice(mode(body), aj.ones(2), aj.ones(2)) == [(wins, graph, graph)] * 6


def test_the_layer_of_variables_leaves_with_the_last_one() -> None:
    x = Variable(aj.ones(2))
    assert state.layers
    del x
    assert not state.layers
    function = aj.jit(lambda t: (Variable(t, volatile=True) * 2).data)
    thrice(function, aj.ones(2))
    assert function.stats()["native_calls"] == 2


def test_compiled_functions_take_and_give_variables() -> None:
    @aj.jit
    def loss_of(w: aj.Tensor, x: aj.Tensor) -> Any:
        return {"loss": ((w * x).sum() - 1) ** 2, "count": 3}

    w, x = Variable(aj.ones(2), requires_grad=True), Variable(aj.tensor([1.0, 2.0]))
    for _ in range(3):
        w.grad = None
        found = loss_of(w, x)
        assert type(found["loss"]) is Variable
        assert found["count"] == 3
        found["loss"].backward()
        assert w.grad.tolist() == [4.0, 8.0]
    assert loss_of.stats()["captures"] == 1
    assert loss_of.stats()["python_calls"] <= 3
    still = Variable(aj.tensor([1.0, 2.0]), volatile=True)
    found = loss_of(w, still)["loss"]
    assert found.volatile
    assert not found.requires_grad


# -- the page of 1.0


def test_S3_37_variable_warns_once(mode: Mode) -> None:
    def body(t: aj.Tensor) -> aj.Tensor:
        return aj.autograd.Variable(t) * 2

    variable._warned = False
    function = mode(body)
    with pytest.warns(DeprecationWarning, match="Variable is deprecated"):
        function(aj.ones(2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert function(aj.ones(2)).tolist() == [2.0, 2.0]
        aj.autograd.Variable(aj.ones(2))


def test_S3_38_variable_returns_tensors(mode: Mode) -> None:
    def body(t: aj.Tensor) -> Any:
        plain, recorded = aj.autograd.Variable(t), aj.autograd.Variable(t, True)
        assert type(plain) is aj.Tensor
        assert type(recorded) is aj.Tensor
        assert isinstance(plain, aj.autograd.Variable)
        return plain.requires_grad, recorded.requires_grad, aj.autograd.Variable(t, requires_grad=True).requires_grad

    assert thrice(mode(body), aj.ones(2)) == (False, True, True)
    assert issubclass(aj.Tensor, aj.autograd.Variable)
    with pytest.raises(RuntimeError, match="floating point"):
        aj.autograd.Variable(aj.tensor([1]), requires_grad=True)


def test_S3_26_integers_with_gradients_are_floats_in_1_0(mode: Mode) -> None:
    def body() -> Any:
        x = v1_0.tensor([1], requires_grad=True)
        with v1_0.no_grad():
            y = x * 2
        made = [v1_0.arange(3, requires_grad=True), v1_0.full((2,), 1, requires_grad=True)]
        return x.dtype, y.requires_grad, [t.dtype for t in made], v1_0.tensor([1]).dtype

    assert thrice(mode(body)) == (aj.float32, False, [aj.float32, aj.float32], aj.int64)
    x = v1_0.tensor([1], requires_grad=True)
    (x * 2).backward()
    assert x.grad.tolist() == [2.0]
