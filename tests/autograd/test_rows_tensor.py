"""Reference rows of what a tensor tells about gradients: data, grad, requires_grad, is_leaf, grad_fn, factories."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.autograd import Variable
from autojit.testing import second_device
from tests.autograd.modes import Mode


@pytest.fixture(autouse=True)
def _old_names_are_fine() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Variable is deprecated")
        warnings.filterwarnings("ignore", message="Using backward\\(\\) with create_graph=True")
        yield


def leaf(*values: float) -> aj.Tensor:
    return aj.tensor(values, dtype=aj.float64, requires_grad=True)


def square_sum(x: aj.Tensor) -> aj.Tensor:
    return (x * x).sum()


def test_S2_19_variable_is_a_tensor_with_a_gradient_and_a_creator(mode: Mode) -> None:
    run = mode(square_sum)
    v = Variable(aj.ones(3), requires_grad=True)
    assert isinstance(v, aj.Tensor)
    for _ in range(2):
        y = run(v)
        assert isinstance(y, Variable)
        assert y.grad_fn is not None
    assert (v.grad, v.grad_fn) == (None, None)
    assert v.data.tolist() == [1.0, 1.0, 1.0]


def test_S2_20_what_users_create_is_a_leaf(mode: Mode) -> None:
    def step(x: aj.Tensor) -> bool:
        made = aj.ones(2, requires_grad=True)
        return x.grad_fn is None and made.grad_fn is None and made.is_leaf

    run = mode(step)
    assert all(run(leaf(1.0)) for _ in range(2))


def test_S2_21_gradients_have_the_size_of_the_data_and_belong_to_leaves(mode: Mode) -> None:
    def step(x: aj.Tensor) -> aj.Tensor:
        y = x * 2
        y.sum().backward()
        return y

    run = mode(step)
    for _ in range(3):
        x = aj.ones(2, 3, requires_grad=True)
        y = run(x)
        assert x.grad is not None
        assert x.grad.shape == x.shape
    y = x * 2
    with pytest.warns(UserWarning, match="not a leaf Tensor is being accessed"):
        assert y.grad is None


def check_data(mode: Mode) -> None:
    x = leaf(1.0, 2.0)
    x.data.mul_(3)
    assert x.tolist() == [3.0, 6.0]
    assert (x._version, x.data.requires_grad) == (0, False)

    def step(x: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
        y = x * 2
        y.data.mul_(10)  # seen, and not part of the history
        return y.detach(), aj.autograd.grad((y * x.detach()).sum(), x)[0]

    run = mode(step)
    for _ in range(3):
        seen, gradient = run(leaf(1.0, 2.0))
        assert seen.tolist() == [20.0, 40.0]
        assert gradient.tolist() == [2.0, 4.0]


def test_S2_22_data_shares_memory_and_is_not_tracked(mode: Mode) -> None:
    check_data(mode)


def test_S3_39_var_data_is_tensor_data(mode: Mode) -> None:
    check_data(mode)
    v = Variable(aj.ones(2), requires_grad=True)
    v.data.fill_(4)
    assert v.tolist() == [4.0, 4.0]


def test_S2_23_grad_is_allocated_lazily_and_assigned_by_rule(mode: Mode) -> None:
    run = mode(lambda x: square_sum(x).backward())
    for dtype in (aj.float32, aj.float64):
        x = aj.ones(2, dtype=dtype, requires_grad=True)
        assert x.grad is None
        run(x)
        assert x.grad is not None
        assert (x.grad.dtype, x.grad.device) == (dtype, x.device)  # type: ignore[unreachable]
        x.grad = None
        x.grad = aj.zeros(2, dtype=dtype)
        for wrong in (aj.zeros(3, dtype=dtype), aj.zeros(2, dtype=aj.int64)):
            with pytest.raises(RuntimeError, match="assigned grad has data of a different"):
                x.grad = wrong
    from autojit.compat import v0_3

    old = v0_3.Variable(aj.ones(2), requires_grad=True)
    with pytest.raises(RuntimeError, match="cannot be assigned"):
        old.grad = aj.ones(2)


def test_S2_24_requires_grad_follows_the_subgraph_and_changes_only_on_leaves(mode: Mode) -> None:
    def step(x: aj.Tensor, w: aj.Tensor) -> tuple[bool, bool]:
        return (x * x).requires_grad, (x * w).requires_grad

    run = mode(step)
    for _ in range(2):
        assert run(aj.ones(2), leaf(1.0, 2.0)) == (False, True)

    def switch_off(x: aj.Tensor) -> None:
        (x * 2).requires_grad = False

    with pytest.raises(RuntimeError, match="you can only change requires_grad flags of leaf variables"):
        mode(switch_off)(leaf(1.0))
    with pytest.raises(RuntimeError, match="requires_grad must be a bool"):
        leaf(1.0).requires_grad = "yes"  # type: ignore[assignment]
    assert Variable(aj.ones(2), True).requires_grad
    from autojit.compat import v0_3

    with pytest.raises(TypeError, match="positional"):
        v0_3.Variable(aj.ones(2), True)


def test_S2_26_is_leaf_says_whether_the_user_made_it(mode: Mode) -> None:
    def step(x: aj.Tensor, c: aj.Tensor) -> tuple[bool, ...]:
        return x.is_leaf, (x * 2).is_leaf, (c + c).is_leaf, (x * 2).detach().is_leaf

    run = mode(step)
    for _ in range(2):
        assert run(leaf(1.0), aj.ones(1)) == (True, False, True, True)


def test_S2_27_grad_fn_is_walkable_to_the_leaves(mode: Mode) -> None:
    def walk(node: Any) -> set[str]:
        found = {node.name()}
        for following, _ in node.next_functions:
            if following is not None:
                found |= walk(following)
        return found

    run = mode(lambda x: (x * x).exp().sum())
    for _ in range(2):
        x = leaf(1.0, 2.0)
        y = run(x)
        assert y.grad_fn is not None
        assert any(name.endswith("AccumulateGrad") for name in walk(y.grad_fn))
    assert {"SumBackward0", "ExpBackward0", "MulBackward0"} <= walk((x * x).exp().sum().grad_fn)


def test_S2_28_the_constructor_takes_any_data(mode: Mode) -> None:
    run = mode(square_sum)
    for data in (np.ones(3), np.ones(3, np.float32), aj.ones(3), aj.DoubleTensor([1, 1, 1]), leaf(1.0, 1.0, 1.0)):
        v = Variable(data, requires_grad=True)
        assert v.is_leaf
        run(v).backward()
        assert v.grad is not None
        assert v.grad.tolist() == [2.0, 2.0, 2.0]
    array = np.ones(2)
    assert Variable(array).data_ptr() == array.__array_interface__["data"][0]


def test_S2_29_backward_takes_both_names_of_retain_graph(mode: Mode) -> None:
    def step(x: aj.Tensor) -> None:
        y = square_sum(x)
        y.backward(retain_graph=True)
        y.backward(None, True)

    run = mode(step)
    for _ in range(2):
        x = leaf(1.0)
        run(x)
        assert x.grad is not None
        assert x.grad.tolist() == [4.0]
    y = square_sum(x)
    with pytest.warns(DeprecationWarning, match="retain_graph"):
        y.backward(gradient=None, retain_variables=True)
    y.backward()
    assert x.grad.tolist() == [8.0]


def test_S2_30_results_that_are_no_scalar_need_a_gradient_of_their_shape(mode: Mode) -> None:
    run = mode(lambda x, g: (x * 3).backward(g))
    for _ in range(2):
        x = leaf(1.0, 2.0)
        run(x, aj.tensor([1.0, 10.0], dtype=aj.float64))
        assert x.grad is not None
        assert x.grad.tolist() == [3.0, 30.0]
    with pytest.raises(RuntimeError, match="grad can be implicitly created only for scalar outputs"):
        mode(lambda x: (x * 3).backward())(x)
    with pytest.raises(RuntimeError, match="shape"):
        run(x, aj.ones(3, dtype=aj.float64))


def test_S2_31_leaves_accumulate(mode: Mode) -> None:
    run = mode(lambda x: square_sum(x).backward())
    x = leaf(1.0, 2.0)
    for times in range(1, 5):
        run(x)
        assert x.grad is not None
        assert x.grad.tolist() == [2.0 * times, 4.0 * times]


def test_S2_32_gradients_that_are_passed_enter_a_graph_only_on_request(mode: Mode) -> None:
    def step(x: aj.Tensor, g: aj.Tensor, create_graph: bool) -> tuple[bool, bool]:
        (x * x).backward(g, create_graph=create_graph)
        assert x.grad is not None
        return x.grad.requires_grad, x.grad.grad_fn is not None

    run = mode(step)
    for create_graph in (False, True):
        for _ in range(2):
            assert run(leaf(1.0, 2.0), leaf(1.0, 1.0), create_graph) == (create_graph, create_graph)
    with warnings.catch_warnings(action="ignore"):
        (x, g) = leaf(3.0), leaf(1.0)
        (x * x).backward(g)  # the default is False whatever g requires
        assert x.grad is not None
        assert not x.grad.requires_grad


def test_S3_40_backward_detach_and_register_hook_keep_their_names(mode: Mode) -> None:
    assert all(callable(getattr(aj.Tensor, name)) for name in ("backward", "detach", "register_hook"))

    def step(x: aj.Tensor) -> aj.Tensor:
        y = x * 2
        y.register_hook(lambda g: g * 5)
        (y * y.detach()).sum().backward()
        return y.detach()

    run = mode(step)
    for _ in range(3):
        x = leaf(1.0)
        assert run(x).tolist() == [2.0]
        assert x.grad is not None
        assert x.grad.tolist() == [20.0]


FACTORIES = [
    lambda **o: aj.zeros((2, 3), **o), lambda **o: aj.zeros(2, 3, **o),
    lambda **o: aj.ones((2, 3), **o), lambda **o: aj.ones(2, 3, **o),
    lambda **o: aj.empty((2, 3), **o), lambda **o: aj.empty(2, 3, **o),
    lambda **o: aj.rand((2, 3), **o), lambda **o: aj.rand(2, 3, **o),
    lambda **o: aj.randn((2, 3), **o), lambda **o: aj.randn(2, 3, **o),
    lambda **o: aj.full((2, 3), 1.5, **o), lambda **o: aj.eye(2, 3, **o),
    lambda **o: aj.tensor([[1.0, 2.0, 3.0]] * 2, **o),
    lambda **o: aj.zeros_like(aj.ones(2, 3), **o), lambda **o: aj.ones_like(aj.ones(2, 3), **o),
    lambda **o: aj.rand_like(aj.ones(2, 3), **o), lambda **o: aj.randn_like(aj.ones(2, 3), **o),
    lambda **o: aj.full_like(aj.ones(2, 3), 2.0, **o), lambda **o: aj.empty_like(aj.ones(2, 3), **o),
    lambda **o: aj.ones(1).new_zeros((2, 3), **o), lambda **o: aj.ones(1).new_ones(2, 3, **o),
    lambda **o: aj.ones(1).new_full((2, 3), 1.0, **o), lambda **o: aj.ones(1).new_tensor([[1.0] * 3] * 2, **o),
    lambda **o: aj.empty_strided((2, 3), (1, 2), **o),
]  # fmt: skip
LINES = [
    lambda **o: aj.arange(0.0, 3.0, **o), lambda **o: aj.linspace(0, 1, 3, **o), lambda **o: aj.logspace(0, 1, 3, **o)
]  # fmt: skip


@pytest.mark.parametrize("factory", [*FACTORIES, *LINES])
def test_S3_41_factories_take_requires_grad(mode: Mode, factory: Any) -> None:
    def step() -> aj.Tensor:
        x = factory(requires_grad=True)
        assert x.requires_grad
        assert x.is_leaf
        square_sum(x).backward()
        assert x.grad is not None
        return x.grad

    run = mode(step)
    for _ in range(2):
        assert run().shape == factory().shape
    assert not factory().requires_grad
    if factory in FACTORIES:
        assert factory().shape == (2, 3)
    assert aj.randn((2, 3, 4), requires_grad=True).shape == (2, 3, 4)


def test_S3_53_six_examples_of_leaves(mode: Mode) -> None:
    mode.does_not_apply("no code is compiled for the second device of tests")
    with second_device() as other:
        a = aj.rand(10, requires_grad=True)
        assert a.is_leaf
        b = aj.rand(10, requires_grad=True).to(other)
        assert not b.is_leaf
        c = aj.rand(10, requires_grad=True) + 2
        assert not c.is_leaf
        d = aj.rand(10).to(other)
        assert d.is_leaf
        e = aj.rand(10).to(other).requires_grad_()
        assert e.is_leaf
        f = aj.rand(10, requires_grad=True, device=other)
        assert f.is_leaf
        assert str(f.device) == "fake:0"
        (a.to(other) * e * f).sum().backward()
        for x in (a, e, f):
            assert x.grad is not None
            assert x.grad.device == x.device


def test_the_second_device_keeps_apart_what_lies_on_it() -> None:
    with second_device() as other:
        x = aj.ones(3, device=other, requires_grad=True)
        y = x.detach().clone()
        wrong = [
            lambda: x + aj.ones(3, device="cpu"),
            lambda: y.add_(aj.ones(3, device="cpu")),
            lambda: aj.cat([x, aj.ones(1, device="cpu")]),
        ]
        for mixed in wrong:
            with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device, but found at least"):
                mixed()
        with pytest.raises(RuntimeError, match="device"):
            x.grad = aj.ones(3, device="cpu")
        with pytest.raises(RuntimeError, match="device"):
            (x * 2).backward(aj.ones(3, device="cpu"))
        with pytest.raises(TypeError, match="can't convert fake:0 device type tensor to numpy"):
            y.numpy()
        assert (x * 2 + aj.tensor(1.0, device="cpu")).device == x.device  # numbers may lie anywhere
        y[0] = 5.0
        assert x.tolist() == [1.0, 1.0, 1.0]
        host = aj.zeros(3, device="cpu")
        host.copy_(x)
        host.sum().backward()
        assert x.grad is not None
        assert x.grad.device == x.device
        assert aj.zeros_like(x).device == x.view(3, 1).t()[0].device == x.device
        assert (x.cpu().device.type, x.get_device(), x.cpu().get_device()) == ("cpu", 0, -1)
    with pytest.raises(RuntimeError, match="fake"):
        aj.ones(1, device="fake")


def test_types_have_names() -> None:
    x = aj.zeros(2, 3, device="cpu")
    assert x.type() == "autojit.FloatTensor"
    for kind, dtype in ((aj.DoubleTensor, aj.float64), (aj.IntTensor, aj.int32), (aj.ByteTensor, aj.uint8)):
        y = x.type(kind)
        assert isinstance(y, kind)
        assert not isinstance(x, kind)
        assert y.dtype is dtype
        assert x.type(y.type()).dtype is x.type(dtype).dtype is dtype
        assert y.type(kind).data_ptr() == y.data_ptr()
    assert aj.FloatTensor(2, 2).shape == (2, 2)
    assert aj.LongTensor([[1, 2]]).tolist() == [[1, 2]]
    assert x.new(3).dtype is x.new([1, 2]).dtype is aj.float32
    with pytest.raises(ValueError, match="invalid type"):
        x.type("autojit.NoTensor")


def test_conversions_between_floats_have_gradients(mode: Mode) -> None:
    def step(x: aj.Tensor) -> aj.Tensor:
        return aj.autograd.grad((x.float().half().double().bfloat16().type(aj.float64) * x).sum(), x)[0]

    run = mode(step)
    for _ in range(2):
        assert run(leaf(1.0, 2.0)).tolist() == [2.0, 4.0]
    assert not leaf(1.0).long().requires_grad
