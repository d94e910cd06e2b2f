"""jacobian, hessian, vjp, jvp, hvp, vhp: values, nesting of results, strict mode, refusals; eager and compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.autograd import functional, gradcheck
from tests.autograd.modes import Mode

X = np.array([[0.3, -0.5], [1.1, 0.2]])
Y = np.array([0.7, -1.2])
WAYS = [
    {},
    {"create_graph": True},
    {"vectorize": True},
    {"vectorize": True, "create_graph": True},
    {"vectorize": True, "strategy": "forward-mode"},
]


def two_outputs(x: Any, y: Any) -> Any:
    return (x * y).exp().sum(1), (x @ y) ** 3


def scalar(x: Any, y: Any) -> Any:
    return ((x @ y) ** 3).sum() + (y**4).sum()


def differences(function: Callable[..., Any], inputs: list[Any], step: float = 1e-5) -> list[Any]:
    """Per input the derivative of one output by central differences, in the shape output.shape + input.shape."""
    found = []
    for k, x in enumerate(inputs):
        columns = []
        for index in np.ndindex(x.shape):
            values = []
            for sign in (1, -1):
                moved = [np.array(a) for a in inputs]
                moved[k][index] += sign * step
                values.append(function(*[aj.tensor(a) for a in moved]).numpy())
            columns.append((values[0] - values[1]) / (2 * step))
        found.append(np.stack(columns, -1).reshape(*columns[0].shape, *x.shape))
    return found


def given(*arrays: Any) -> Any:
    return tuple(aj.tensor(a) for a in arrays)


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_jacobian_has_a_block_per_output_and_input(mode: Mode, way: dict[str, Any]) -> None:
    run = mode(lambda x, y: functional.jacobian(two_outputs, (x, y), **way))
    for _ in range(2):
        found = run(*given(X, Y))
    assert isinstance(found, tuple)
    for k, row in enumerate(found):
        assert isinstance(row, tuple)
        expected = differences(lambda *xs, k=k: two_outputs(*xs)[k], [X, Y])
        for block, reference in zip(row, expected, strict=True):
            assert tuple(block.shape) == reference.shape
            np.testing.assert_allclose(block.detach().numpy(), reference, rtol=1e-6, atol=1e-8)


def test_functions_that_fill_a_buffer(mode: Mode) -> None:
    def fill(y: Any) -> Any:
        buffer = aj.zeros(3, dtype=aj.float64)
        buffer[0] = y[1] ** 2
        buffer[1:] += y * 3
        return buffer

    expected = np.array([[0, 2 * Y[1]], [3, 0], [0, 3]])
    for way in WAYS:
        found = mode(lambda y, way=way: functional.jacobian(fill, y, **way))(aj.tensor(Y))
        np.testing.assert_allclose(found.detach().numpy(), expected)


def test_results_are_nested_as_inputs_and_outputs_are() -> None:
    y = aj.tensor(Y)
    for way in WAYS:
        assert isinstance(functional.jacobian(lambda y: y**2, y, **way), aj.Tensor)
        assert isinstance(functional.jacobian(lambda y: y**2, (y,), **way), tuple)
        assert [type(r) for r in functional.jacobian(lambda y: (y**2, y), y, **way)] == [aj.Tensor] * 2
    assert isinstance(functional.hessian(lambda y: (y**3).sum(), y), aj.Tensor)
    nested = functional.hessian(lambda y: (y**3).sum(), (y,))
    assert isinstance(nested, tuple)
    assert isinstance(nested[0], tuple)
    value, product = functional.vjp(lambda y: (y**2, y), y, (y, y))
    assert isinstance(value, tuple)
    assert isinstance(product, aj.Tensor)


@pytest.mark.parametrize(
    "way",
    [
        {},
        {"create_graph": True},
        {"vectorize": True},
        {"vectorize": True, "outer_jacobian_strategy": "forward-mode"},
        {"strict": True},
    ],
    ids=str,
)
def test_hessian_is_the_jacobian_of_the_gradient(mode: Mode, way: dict[str, Any]) -> None:
    run = mode(lambda x, y: functional.hessian(scalar, (x, y), **way))
    for _ in range(2):
        found = run(*given(X, Y))
    for k, row in enumerate(found):

        def gradient(*xs: Any, k: int = k) -> Any:
            leaves = [x.detach().requires_grad_() for x in xs]
            return aj.autograd.grad(scalar(*leaves), leaves)[k]

        for block, reference in zip(row, differences(gradient, [X, Y]), strict=True):
            np.testing.assert_allclose(block.detach().numpy(), reference, rtol=1e-5, atol=1e-7)


def test_products_agree_with_the_matrices(mode: Mode) -> None:
    x, y = given(X, Y)
    v = given(np.array([[1.0, -1.0], [0.5, 2.0]]), np.array([0.3, -0.7]))
    jacobian = functional.jacobian(two_outputs, (x, y))
    hessian = functional.hessian(scalar, (x, y))

    outputs, pushed = mode(lambda x, y, *v: functional.jvp(two_outputs, (x, y), v))(x, y, *v)
    for found, row in zip(pushed, jacobian, strict=True):
        expected = np.tensordot(row[0].numpy(), v[0].numpy(), 2) + row[1].numpy() @ v[1].numpy()
        np.testing.assert_allclose(found.numpy(), expected)
    for found, expected in zip(outputs, two_outputs(x, y), strict=True):
        np.testing.assert_allclose(found.numpy(), expected.numpy())

    w = given(np.array([1.0, -2.0]), np.array([0.5, 3.0]))
    _, pulled = mode(lambda x, y, *w: functional.vjp(two_outputs, (x, y), w))(x, y, *w)
    for k, found in enumerate(pulled):
        expected = sum(np.tensordot(w[i].numpy(), jacobian[i][k].numpy(), 1) for i in range(2))
        np.testing.assert_allclose(found.numpy(), expected)

    for function in (functional.hvp, functional.vhp):
        value, products = mode(lambda x, y, *v, function=function: function(scalar, (x, y), v))(x, y, *v)
        np.testing.assert_allclose(value.numpy(), scalar(x, y).numpy())
        for found, row in zip(products, hessian, strict=True):
            expected = np.tensordot(row[0].numpy(), v[0].numpy(), 2) + row[1].numpy() @ v[1].numpy()
            np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)


def test_a_vector_can_be_left_out_for_one_element() -> None:
    one = aj.tensor([2.0])
    assert functional.vjp(lambda x: x**3, one)[1].item() == 12
    assert functional.jvp(lambda x: x**3, one)[1].item() == 12
    assert functional.hvp(lambda x: (x**3).sum(), one)[1].item() == 12
    two = aj.tensor([2.0, 1.0])
    with pytest.raises(RuntimeError, match="v can only be None if the user-provided function returns a single Tensor"):
        functional.vjp(lambda x: x**3, two)
    for function in (functional.jvp, functional.hvp, functional.vhp):
        with pytest.raises(RuntimeError, match="v can only be None if the input to the user-provided function"):
            function(lambda x: (x**3).sum(), two)


def test_vectors_must_fit() -> None:
    x, y = given(X, Y)
    with pytest.raises(RuntimeError, match="v is a tuple of invalid length: should be 2 but got 1"):
        functional.jvp(scalar, (x, y), x)
    with pytest.raises(RuntimeError, match="The given v should contain a single Tensor"):
        functional.vjp(lambda y: y, y, (y, y))
    with pytest.raises(RuntimeError, match="Entry 1 in v has invalid size"):
        functional.vhp(scalar, (x, y), (x, x))
    with pytest.raises(RuntimeError, match=r"^v has invalid size"):
        functional.vjp(lambda y: y, y, x)


@pytest.mark.parametrize("name", functional.__all__)
def test_what_is_not_a_tensor_is_refused(name: str) -> None:
    function = getattr(functional, name)
    y = aj.tensor(Y)
    with pytest.raises(TypeError, match=f"The inputs given to {name} must be either a Tensor"):
        function(lambda y: y.sum(), [y])
    with pytest.raises(TypeError, match=rf"The inputs given to {name} .* the value at index 1 has type"):
        function(lambda y, z: y.sum(), (y, 3))
    extra = {} if name in ("jacobian", "hessian") else {"v": y}
    what = f"The outputs of the user-provided function given to {name} must be either a Tensor"
    with pytest.raises(TypeError, match=what):
        function(lambda y: "text", y, **extra)


@pytest.mark.parametrize("name", ["hessian", "hvp", "vhp"])
def test_second_derivatives_take_one_number(name: str) -> None:
    function = getattr(functional, name)
    y = aj.tensor(Y)
    extra = {} if name == "hessian" else {"v": y}
    with pytest.raises(RuntimeError, match=f"function given to {name} should return a single Tensor"):
        function(lambda y: (y.sum(), y), y, **extra)
    with pytest.raises(RuntimeError, match=f"returned by the function given to {name} should contain a single element"):
        function(lambda y: y, y, **extra)


def test_zero_where_nothing_connects_and_an_error_in_strict_mode(mode: Mode) -> None:
    y = aj.tensor(Y)
    for name in functional.__all__:
        function = getattr(functional, name)
        extra = {} if name in ("jacobian", "hessian") else {"v": aj.tensor(1.0) if name == "vjp" else y}
        found = mode(lambda y, function=function, extra=extra: function(lambda y: y.detach().sum(), y, **extra))(y)
        derivative = found if name in ("jacobian", "hessian") else found[1]
        assert not derivative.numpy().any(), name
        with pytest.raises(RuntimeError, match="Output 0 of the user-provided function does not require gradients"):
            function(lambda y: y.detach().sum(), y, strict=True, **extra)


def test_strict_mode_names_the_independent_input() -> None:
    y = aj.tensor(Y)
    linear = lambda y: (3 * y).sum()
    first_only = lambda a, b: (a**3).sum()
    with pytest.raises(RuntimeError, match="independent of input 1"):
        functional.jacobian(lambda a, b: a * 2, (y, y), strict=True)
    with pytest.raises(RuntimeError, match="independent of input 1"):
        functional.vjp(first_only, (y, y), strict=True)
    for name in ("hessian", "hvp", "vhp"):
        extra = () if name == "hessian" else (y,)
        with pytest.raises(RuntimeError, match="jacobian of the user-provided function with respect to input 0 is"):
            getattr(functional, name)(linear, y, *extra, strict=True)
    with pytest.raises(RuntimeError, match="jacobian of the user-provided function is independent of input 0"):
        functional.jacobian(lambda y: y * 3, y, strict=True, create_graph=True)
    with pytest.raises(RuntimeError, match="not allowed in strict mode when create_graph=True"):
        functional.vjp(lambda y: y * 3, y, y, strict=True, create_graph=True)
    with pytest.raises(RuntimeError, match="not supported together"):
        functional.jacobian(lambda y: y**2, y, strict=True, vectorize=True)
    with pytest.raises(RuntimeError, match="not supported together"):
        functional.jacobian(lambda y: y**2, y, strict=True, vectorize=True, strategy="forward-mode")


def test_strategies_are_checked() -> None:
    y = aj.tensor(Y)
    with pytest.raises(AssertionError, match="Expected strategy to be either"):
        functional.jacobian(lambda y: y, y, strategy="sideways")
    with pytest.raises(NotImplementedError, match="create_graph=True"):
        functional.jacobian(lambda y: y, y, create_graph=True, vectorize=True, strategy="forward-mode")
    with pytest.raises(NotImplementedError, match="vectorize=True"):
        functional.jacobian(lambda y: y, y, strategy="forward-mode")


def test_create_graph_connects_results_with_the_inputs() -> None:
    x, y = (t.requires_grad_() for t in given(X, Y))
    assert gradcheck(lambda x, y: functional.jacobian(two_outputs, (x, y), create_graph=True)[0], (x, y))
    vectorized = {"create_graph": True, "vectorize": True}
    assert gradcheck(lambda x, y: functional.jacobian(two_outputs, (x, y), **vectorized)[0], (x, y))
    assert gradcheck(lambda x, y: functional.hessian(scalar, (x, y), create_graph=True)[1], (x, y))
    v = tuple(t.detach().clone().requires_grad_() for t in (x, y))
    for function in (functional.jvp, functional.hvp, functional.vhp):

        def products(x: Any, y: Any, a: Any, b: Any, function: Any = function) -> Any:
            value, found = function(scalar, (x, y), (a, b), create_graph=True)
            return (value, *found) if isinstance(found, tuple) else (value, found)

        assert gradcheck(products, (x, y, *v))
    w = aj.tensor([2.0], dtype=aj.float64, requires_grad=True)
    assert gradcheck(lambda y, w: functional.vjp(lambda y: (y**3).sum(0, True), y, w, create_graph=True), (y, w))


def test_without_create_graph_results_have_no_history_and_inputs_no_gradients() -> None:
    y = aj.tensor(Y, requires_grad=True)
    value, product = functional.vjp(lambda y: (y**3).sum(), y)
    assert not value.requires_grad
    assert not product.requires_grad
    assert y.grad is None
    assert not functional.jacobian(lambda y: y**2, y).requires_grad
    plain = aj.tensor(Y)
    functional.hessian(lambda y: (y**3).sum(), plain)
    assert not plain.requires_grad


def test_gradients_are_recorded_inside_whatever_the_mode_is_outside() -> None:
    y = aj.tensor(Y, requires_grad=True)
    with aj.no_grad():
        np.testing.assert_allclose(functional.jacobian(lambda y: y**2, y).numpy(), np.diag(2 * Y))
        found = functional.vjp(lambda y: (y**2).sum(), y, create_graph=True)[1]
        np.testing.assert_allclose(functional.hvp(lambda y: (y**3).sum(), y, y)[1].detach().numpy(), 6 * Y * Y)
    assert found.requires_grad


def test_empty_inputs_and_outputs() -> None:
    empty = aj.zeros(0, dtype=aj.float64)
    y = aj.tensor(Y)
    for way in ({}, {"vectorize": True}):
        assert tuple(functional.jacobian(lambda y: y[:0], y, **way).shape) == (0, 2)
        assert tuple(functional.jacobian(lambda e: e.sum() + y, empty, **way).shape) == (2, 0)
