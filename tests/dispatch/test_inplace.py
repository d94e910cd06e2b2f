"""In-place methods: same values and gradients as the functions, seen through views, refused where torch refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj

Change = Callable[[aj.Tensor, aj.Tensor], Any]


def pair() -> tuple[aj.Tensor, aj.Tensor]:
    generator = np.random.default_rng(0)
    x = aj.tensor(generator.random((3, 4)) + 0.5, requires_grad=True)
    y = aj.tensor(generator.random((3, 4)) + 0.5, requires_grad=True)
    return x, y


UNARY = ("exp", "log", "sqrt", "tanh", "sigmoid", "neg", "abs", "square", "reciprocal", "relu", "sin", "floor", "rsqrt")
BINARY = ("add", "sub", "mul", "div", "pow", "atan2", "fmod")


@pytest.mark.parametrize("name", UNARY + BINARY)
def test_a_method_equals_its_function(name: str) -> None:
    results = []
    for suffix in ("", "_"):
        x, y = pair()
        z = x * 1.5
        z = getattr(z, name + suffix)(*(() if name in UNARY else (y,)))
        (z * z).sum().backward()
        results.append((z.detach().numpy(), x.grad.numpy(), None if y.grad is None else y.grad.numpy()))
    for function, method in zip(*results, strict=True):
        if function is None:
            assert method is None
        else:
            np.testing.assert_allclose(method, function, rtol=1e-13)


def write_row(z: aj.Tensor, y: aj.Tensor) -> None:
    z[0] = y[1]


def scale_columns(z: aj.Tensor, y: aj.Tensor) -> None:
    z[:, 1:3] *= y[:, 1:3]


def write_then_use_older_view(z: aj.Tensor, y: aj.Tensor) -> None:
    row = z.view(4, 3)[1]
    z.mul_(y)
    row.mul_(2.0)


def view_of_view(z: aj.Tensor, y: aj.Tensor) -> None:
    part = z.t()[1:][0]
    part.copy_(y[:, 0])
    z.diagonal().mul_(3.0)


def overlapping(z: aj.Tensor, y: aj.Tensor) -> None:
    z[1:] += z[:-1] + y[1:]


def fill_and_add(z: aj.Tensor, y: aj.Tensor) -> None:
    z[1].fill_(2.0)
    z.add_(y, alpha=0.5)


CHANGES = (write_row, scale_columns, write_then_use_older_view, view_of_view, overlapping, fill_and_add)


@pytest.mark.parametrize("change", CHANGES)
def test_gradients_flow_through_writes_into_views(change: Change) -> None:
    def changed(x: aj.Tensor, y: aj.Tensor) -> aj.Tensor:
        z = x * x
        change(z, y)
        return z

    assert aj.autograd.gradcheck(changed, pair())
    assert aj.autograd.gradgradcheck(changed, pair())


def test_a_view_made_before_a_write_has_the_new_history() -> None:
    x, y = pair()
    z = x * 1.0
    row = z[1]
    z.mul_(y)
    row.sum().backward()
    np.testing.assert_allclose(x.grad.numpy()[1], y.detach().numpy()[1])
    np.testing.assert_array_equal(x.grad.numpy()[0], 0)


def test_versions_are_shared_by_views_and_detached_aliases() -> None:
    x = aj.zeros(3)
    view, detached, data = x[1:], x.detach(), x.data
    view.add_(1.0)
    detached.mul_(2.0)
    data.add_(1.0)
    assert x._version == view._version == detached._version == 2
    np.testing.assert_array_equal(x.numpy(), [1, 3, 3])


def test_a_saved_tensor_changed_later_is_an_error_that_names_op_versions_and_line() -> None:
    x, _ = pair()
    y = x.exp()
    y.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation") as caught:
        y.sum().backward()
    message = str(caught.value)
    assert "ExpBackward0" in message
    assert "version 1; expected version 0" in message
    assert "add_" in message
    assert "test_inplace.py" in message


def leaf(x: aj.Tensor, y: aj.Tensor) -> Any:
    return x.add_(1.0)


def view_of_leaf(x: aj.Tensor, y: aj.Tensor) -> Any:
    return x[0].add_(1.0)


def grows(x: aj.Tensor, y: aj.Tensor) -> Any:
    return aj.zeros(4, dtype=aj.float64).add_(y)


def lower_category(x: aj.Tensor, y: aj.Tensor) -> Any:
    return aj.zeros(2, dtype=aj.int64).add_(1.5)


def one_of_many_views(x: aj.Tensor, y: aj.Tensor) -> Any:
    return (x * 1).unbind(0)[0].mul_(2.0)


def expanded(x: aj.Tensor, y: aj.Tensor) -> Any:
    return aj.zeros(3).expand(2, 3).add_(1.0)


@pytest.mark.parametrize("attempt", [leaf, view_of_leaf, grows, lower_category, one_of_many_views, expanded])
def test_what_torch_refuses_is_refused_and_changes_nothing(attempt: Change) -> None:
    x, y = pair()
    before = x.detach().numpy().copy()
    with pytest.raises(RuntimeError):
        attempt(x, y)
    np.testing.assert_array_equal(x.detach().numpy(), before)


def test_leaves_may_be_changed_without_recording() -> None:
    x, _ = pair()
    with aj.no_grad():
        x.add_(1.0)
    assert x.is_leaf
    assert x.requires_grad
    assert x._version == 1


@pytest.mark.parametrize("method", ["addcmul_", "addcdiv_", "lerp_", "mul_", "sub_", "copysign_"])
def test_a_tensor_may_be_any_operand_of_its_own_change(method: str) -> None:
    operands = 2 if method.startswith(("addc", "lerp")) else 1
    for places in range(1, 1 << operands):
        x = aj.tensor([1.0, 3.0], requires_grad=True)
        y, w, z = x * 2.0, x * 2.0, aj.tensor([0.5, 0.25])
        expected = getattr(aj, method[:-1])(w, *(w if places >> k & 1 else z for k in range(operands)))
        getattr(y, method)(*(y if places >> k & 1 else z for k in range(operands)))
        assert y.tolist() == expected.tolist()


def test_a_whole_operand_takes_a_fraction_as_alpha_beside_a_float() -> None:
    whole, real = aj.tensor([1, 2]), aj.tensor([1.0, 2.0], dtype=aj.float64)
    expected = real + 0.1 * whole.double()
    assert aj.allclose(aj.add(real, whole, alpha=0.1), expected, rtol=1e-15)
    assert aj.allclose(aj.addcmul(real, whole, aj.ones(2, dtype=aj.int64), value=0.1), expected, rtol=1e-15)
    assert aj.allclose(aj.jit(lambda x: x.clone().add_(whole, alpha=0.1))(real), expected, rtol=1e-15)
    assert aj.allclose(real.clone().sub_(whole, alpha=0.1), real - 0.1 * whole.double(), rtol=1e-15)
    with pytest.raises(RuntimeError, match="alpha must not be a floating point number"):
        whole.add(whole, alpha=0.5)


OPERANDS: dict[str, Change] = {
    "mul_": lambda x, y: x.mul_(y),
    "sub_": lambda x, y: x.sub_(y),
    "addcmul_": lambda x, y: x.addcmul_(y, y),
    "addcdiv_": lambda x, y: x.addcdiv_(y, y),
    "lerp_": lambda x, y: x.lerp_(y * 2, y),
    "pow_": lambda x, y: x.pow_(y),
    "copy_": lambda x, y: x.copy_(y * 2),
}


@pytest.mark.parametrize("dtype", [aj.float64, aj.complex128], ids=str)
@pytest.mark.parametrize("change", OPERANDS.values(), ids=OPERANDS)
def test_an_operand_that_is_a_view_of_what_is_written_shows_the_new_values(change: Change, dtype: aj.dtype) -> None:
    x = aj.tensor([0.5, 0.6], dtype=dtype, requires_grad=True) * 1
    view = x.view(2, 1).squeeze(-1)
    change(x, view)
    assert view.tolist() == x.tolist()
    with aj.no_grad():
        x.zero_()
    assert view.tolist() == [0, 0]
