"""Reference rows on dtypes, orders of derivative and forward mode beside gradient modes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.autograd import forward_ad, functional, gradcheck
from autojit.ops.control_flow import HoldsGraphs
from autojit.ops.formula import Formula
from tests.autograd.modes import Mode
from tests.autograd.registry import first_samples, function_of, tensors

WIDE = {aj.float16: aj.float64, aj.bfloat16: aj.float64, aj.float32: aj.float64, aj.complex64: aj.complex128}
EPSILON = {aj.float16: 2.0**-10, aj.bfloat16: 2.0**-7, aj.float32: 2.0**-23, aj.complex64: 2.0**-23}
UNITS = 8  # how many units of its dtype's precision a gradient may be off, relative to its largest element


def test_S1_01_gradients_come_by_adding_one_keyword(mode: Mode) -> None:
    def loss_of(x: Any, y: Any, slope: Any, offset: Any) -> Any:
        prediction = aj.exp(slope * x) + offset
        error = prediction - y
        return aj.mean(error * error)

    def script(**keyword: Any) -> tuple[Any, Any, Any]:
        x, y = aj.linspace(0, 1, 5, dtype=aj.float64), aj.arange(5, dtype=aj.float64)
        slope = aj.tensor(0.5, dtype=aj.float64, **keyword)
        offset = aj.tensor(0.1, dtype=aj.float64, **keyword)
        return slope, offset, mode(loss_of)(x, y, slope, offset)

    _, _, plain = script()
    assert not plain.requires_grad
    slope, offset, loss = script(requires_grad=True)
    assert loss.item() == plain.item()
    loss.backward()
    x = np.linspace(0, 1, 5)
    error = np.exp(0.5 * x) + 0.1 - np.arange(5.0)
    np.testing.assert_allclose(slope.grad.item(), np.mean(2 * error * x * np.exp(0.5 * x)))
    np.testing.assert_allclose(offset.grad.item(), np.mean(2 * error))


def gradients_of(op: Any) -> Callable[..., list[Any]]:
    function = function_of(op)

    def gradients(*given: Any) -> list[Any]:
        xs = [x.detach().requires_grad_() if x.is_floating_point() or x.is_complex() else x for x in given]
        outputs = [y for y in function(*xs) if y.requires_grad]
        if not outputs:
            return []
        bars = []
        for k, y in enumerate(outputs):
            generator = np.random.default_rng(k)
            values = generator.uniform(0.5, 1.5, y.shape) * generator.choice([-1.0, 1.0], y.shape)
            bars.append(aj.tensor(values, dtype=y.dtype, device=y.device))
        leaves = [x for x in xs if x.requires_grad]
        return list(aj.autograd.grad(outputs, leaves, bars, allow_unused=True))

    return gradients


@pytest.mark.parametrize("dtype", list(WIDE), ids=lambda d: d.name)
def test_S1_02_gradients_have_the_dtype_of_their_input_and_its_precision(mode: Mode, dtype: Any) -> None:
    wrong = []
    for name, op, arrays in first_samples(dtype, one_of=mode.one_of):
        if op.is_random or isinstance(op, HoldsGraphs | Formula):  # the graphs that an op holds have one dtype
            continue
        given = [t.detach() for t in tensors(arrays)]
        wide = [t.to(WIDE[dtype]) if t.dtype is dtype else t for t in given]
        function = gradients_of(op)
        found, expected = mode(function)(*given), function(*wide)
        kinds = [t.dtype for t in given if t.is_floating_point() or t.is_complex()]
        for got, reference, kind in zip(found, expected, kinds, strict=False):
            assert (got is None) == (reference is None), name
            if got is None:
                continue
            assert got.dtype is kind, name
            a, b = got.to(WIDE[dtype]).numpy(), reference.numpy()
            gap = np.max(np.abs(a - b)) / (np.max(np.abs(b)) or 1.0)
            if not gap <= UNITS * EPSILON[dtype]:
                wrong.append(f"{name}: {gap / EPSILON[dtype]:.1f} units")
    assert not wrong, "\n".join(wrong)


def test_S1_02_double_precision_is_the_reference(mode: Mode) -> None:
    x = aj.tensor([0.5, -1.25], dtype=aj.float64, requires_grad=True)
    mode(lambda x: (x.exp() * x).sum())(x).backward()
    assert x.grad is not None
    assert x.grad.dtype is aj.float64
    np.testing.assert_allclose(x.grad.numpy(), np.exp(x.detach().numpy()) * (1 + x.detach().numpy()), rtol=1e-15)


def test_S1_03_the_gradient_of_the_squared_modulus_is_twice_the_number(mode: Mode) -> None:
    for dtype in (aj.complex64, aj.complex128):
        z = aj.tensor([1 + 2j, -0.5j, 3.0], dtype=dtype, requires_grad=True)
        mode(lambda z: (z.abs() ** 2).sum())(z).backward()
        assert z.grad is not None
        assert z.grad.dtype is dtype
        np.testing.assert_allclose(z.grad.numpy(), 2 * z.detach().numpy(), rtol=1e-6)


def test_S1_03_complex_derivatives_pass_gradcheck_for_every_op(mode: Mode) -> None:
    count = 0
    for name, op, arrays in first_samples(aj.complex128, largest=16, one_of=mode.one_of):
        given = tensors(arrays)
        function = mode(function_of(op))
        assert gradcheck(function, given, check_undefined_grad=False, atol=2e-5, fast_mode=mode.is_jit), name
        count += 1
    assert count > (60 if mode.one_of == 1 else 15)


def test_S1_13_forward_mode_does_not_depend_on_gradient_modes(mode: Mode) -> None:
    x, v = aj.tensor([0.5, 2.0]), aj.tensor([1.0, -1.0])

    def push(x: Any, v: Any) -> Any:
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(x, v)
            return forward_ad.unpack_dual((dual**3).sin()).tangent

    outside = mode(push)(x, v)
    for manager in (aj.no_grad, aj.enable_grad):
        with manager():
            inside = mode(push)(x, v)
            _, product = mode(lambda x, v: aj.jvp(lambda x: (x**3).sin(), (x,), (v,)))(x, v)
            np.testing.assert_array_equal(product.numpy(), outside.numpy())
            _, product = functional.jvp(lambda x: (x**3).sin(), x, v)
        np.testing.assert_array_equal(inside.numpy(), outside.numpy())
        np.testing.assert_allclose(product.numpy(), outside.numpy(), rtol=1e-6)


def test_S1_21_unpacking_drops_the_tangent(mode: Mode) -> None:
    def push(x: Any, v: Any) -> Any:
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(x, v)
            primal, tangent = forward_ad.unpack_dual(dual * 2)
            assert forward_ad.unpack_dual(primal * 3).tangent is None
            return primal.clone(), tangent

    x, v = aj.tensor([0.5, 2.0]), aj.tensor([1.0, -1.0])
    for _ in range(2):
        primal, tangent = mode(push)(x, v)
    np.testing.assert_array_equal(primal.numpy(), 2 * x.numpy())
    np.testing.assert_array_equal(tangent.numpy(), 2 * v.numpy())


def test_S1_28_inference_of_gradients_is_no_business_of_forward_mode(mode: Mode) -> None:
    x, v = aj.tensor([0.5, 2.0]), aj.tensor([1.0, -1.0])

    def push(x: Any, v: Any) -> Any:
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(x, v)
            with aj.set_grad_enabled(False):
                inner = dual * dual
            return forward_ad.unpack_dual(inner).tangent

    outside = mode(push)(x, v)
    with aj.set_grad_enabled(False):
        np.testing.assert_array_equal(mode(push)(x, v).numpy(), outside.numpy())
    np.testing.assert_array_equal(outside.numpy(), (2 * x * v).numpy())


def test_S1_38_orders_one_to_four_of_a_composed_function(mode: Mode) -> None:
    def orders(x: Any) -> Any:
        x = x.detach().requires_grad_()
        found = []
        y = (x**3).sin()
        for _ in range(4):
            (y,) = aj.autograd.grad(y.sum(), x, create_graph=True)
            found.append(y.detach())
        return found

    points = np.array([0.3, 0.8, 1.2])
    u, sine, cosine = points**3, np.sin(points**3), np.cos(points**3)
    x = points
    expected = [
        3 * x**2 * cosine,
        6 * x * cosine - 9 * x**4 * sine,
        6 * cosine - 54 * u * sine - 27 * x**6 * cosine,
        -180 * x**2 * sine - 324 * x**5 * cosine + 81 * x**8 * sine,
    ]
    for found, analytic in zip(mode(orders)(aj.tensor(points)), expected, strict=True):
        np.testing.assert_allclose(found.numpy(), analytic, rtol=1e-9)
