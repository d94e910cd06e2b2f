"""Elementwise ops against independent functions, in every float dtype, at special values; their errors."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import scipy.special
from numpy.typing import NDArray

from autojit import ops
from autojit.core.dtypes import bfloat16, bool_, complex64, float16, float32, float64, int8, int32, int64, uint8
from autojit.core.errors import ArgumentError, DTypeError, ShapeError
from autojit.core.types import TensorType
from autojit.ir import GraphBuilder, Op
from tests.ops.test_composites import call, gradient

UNARY: dict[str, Any] = {
    "exp": math.exp, "exp2": lambda v: 2.0**v, "expm1": math.expm1, "log": math.log, "log2": math.log2,
    "log10": math.log10, "log1p": math.log1p, "sqrt": math.sqrt, "rsqrt": lambda v: 1 / math.sqrt(v),
    "reciprocal": lambda v: 1 / v, "square": lambda v: v * v, "neg": lambda v: -v, "abs": math.fabs, "sin": math.sin,
    "cos": math.cos, "tan": math.tan, "asin": math.asin, "acos": math.acos, "atan": math.atan, "sinh": math.sinh,
    "cosh": math.cosh, "tanh": math.tanh, "asinh": math.asinh, "acosh": math.acosh, "atanh": math.atanh,
    "erf": math.erf, "erfc": math.erfc, "erfinv": scipy.special.erfinv, "lgamma": math.lgamma,
    "digamma": scipy.special.digamma, "sigmoid": scipy.special.expit, "floor": math.floor, "ceil": math.ceil,
    "trunc": math.trunc, "round": round, "relu": lambda v: max(v, 0.0), "sign": lambda v: math.copysign(1.0, v),
}  # fmt: skip
BINARY: dict[str, Any] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "div": lambda a, b: a / b,
    "floor_divide": lambda a, b: a // b, "remainder": lambda a, b: a % b, "fmod": math.fmod, "pow": math.pow,
    "trunc_divide": lambda a, b: math.trunc(a / b), "atan2": math.atan2, "hypot": math.hypot, "maximum": max,
    "minimum": min, "fmax": max, "fmin": min, "copysign": math.copysign, "nextafter": math.nextafter,
    "logaddexp": lambda a, b: math.log(math.exp(a) + math.exp(b)), "guarded_mul": lambda a, b: a * b,
    "guarded_div": lambda a, b: a / b, "squared_deviation": lambda a, b: (a - b) ** 2,
}  # fmt: skip
INTEGER: dict[str, Any] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "maximum": max, "minimum": min,
    "floor_divide": lambda a, b: a // b, "remainder": lambda a, b: a % b, "trunc_divide": lambda a, b: int(a / b),
    "fmod": lambda a, b: int(math.fmod(a, b)), "bitwise_and": lambda a, b: a & b, "bitwise_or": lambda a, b: a | b,
    "bitwise_xor": lambda a, b: a ^ b,
}  # fmt: skip


def samples_of(name: str, dtype: Any) -> list[tuple[NDArray[Any], ...]]:
    return [inputs for _, inputs in Op.registry[name].samples(dtype)]  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", UNARY)
def test_unary_agrees_with_the_scalar_function(name: str) -> None:
    for (x,) in samples_of(name, float64):
        expected = np.array([UNARY[name](float(v)) for v in x.ravel()]).reshape(x.shape)
        np.testing.assert_allclose(call(getattr(ops, name), x), expected, rtol=4e-15, atol=4e-15)


@pytest.mark.parametrize("name", BINARY)
def test_binary_agrees_with_the_scalar_function(name: str) -> None:
    cases = samples_of("mul", float64) if name == "squared_deviation" else samples_of(name, float64)
    for x, y in cases:
        a, b = np.broadcast_arrays(x, y)
        expected = np.array([BINARY[name](float(v), float(w)) for v, w in zip(a.ravel(), b.ravel(), strict=True)])
        np.testing.assert_allclose(call(getattr(ops, name), x, y), expected.reshape(a.shape), rtol=4e-15, atol=4e-15)


@pytest.mark.parametrize("name", INTEGER)
def test_integers_follow_python_and_wrap(name: str) -> None:
    a = np.array([7, -7, 7, -7, 5, 0], np.int32)
    b = np.array([2, 2, -2, -2, 3, 4], np.int32)
    expected = [INTEGER[name](int(v), int(w)) for v, w in zip(a, b, strict=True)]
    np.testing.assert_array_equal(call(getattr(ops, name), a, b), np.array(expected, np.int32))


@pytest.mark.parametrize("dtype", [float16, bfloat16, float32], ids=str)
@pytest.mark.parametrize("name", [*UNARY, *BINARY])
def test_narrow_floats_are_the_rounded_wide_result(name: str, dtype: Any) -> None:
    if name == "nextafter":
        pytest.skip("its step is the dtype's")
    for inputs in samples_of("mul" if name == "squared_deviation" else name, dtype):
        wide = call(getattr(ops, name), *[x.astype(np.float64) for x in inputs])
        found = call(getattr(ops, name), *inputs)
        assert found.dtype == dtype.numpy
        eps = float(ml_dtypes.finfo(dtype.numpy).eps)
        np.testing.assert_allclose(found.astype(np.float64), wide, rtol=4 * eps, atol=4 * eps)


def test_special_values() -> None:
    nan, inf = np.nan, np.inf
    x = np.array([nan, inf, -inf, -0.0])
    np.testing.assert_array_equal(call(ops.isnan, x), [True, False, False, False])
    np.testing.assert_array_equal(call(ops.isinf, x), [False, True, True, False])
    np.testing.assert_array_equal(call(ops.signbit, x)[1:], [False, True, True])
    np.testing.assert_array_equal(call(ops.maximum, x, np.zeros(4)), [nan, inf, 0, 0])
    np.testing.assert_array_equal(call(ops.fmax, x, np.zeros(4)), [0, inf, 0, 0])
    np.testing.assert_array_equal(call(ops.relu, x), [nan, inf, 0, 0])
    np.testing.assert_array_equal(call(lambda x: ops.clamp(x, -1, 1), x), [nan, 1, -1, 0])
    np.testing.assert_array_equal(call(ops.clamp_min, np.zeros(2), np.array([nan, 1])), [nan, 1])
    np.testing.assert_array_equal(call(ops.sigmoid, x), [nan, 1, 0, 0.5])
    np.testing.assert_array_equal(call(ops.sign, x), [0, 1, -1, 0])
    np.testing.assert_array_equal(call(ops.logaddexp, x, x)[1:3], [inf, -inf])
    np.testing.assert_array_equal(call(ops.nan_to_num, x), [0, np.finfo(float).max, np.finfo(float).min, 0])
    np.testing.assert_array_equal(call(lambda x: ops.pow(x, 0), x), np.ones(4))
    np.testing.assert_array_equal(call(ops.guarded_mul, np.zeros(4), x), np.zeros(4))
    np.testing.assert_array_equal(call(ops.guarded_div, np.zeros(4), np.array([0, nan, inf, 1])), np.zeros(4))
    np.testing.assert_array_equal(call(lambda x: ops.heaviside(x, 0.5), np.array([-1.0, 0, 2])), [0, 0.5, 1])
    np.testing.assert_array_equal(call(ops.round, np.array([0.5, 1.5, 2.5, -0.5])), [0, 2, 2, -0.0])
    np.testing.assert_allclose(call(lambda x: ops.round(x, 2), np.array([1.237])), [1.24])
    np.testing.assert_allclose(call(lambda x: ops.round(x, -2), np.array([1237.0])), [1200])


def test_the_denominator_of_a_guarded_quotient_gets_zero_where_quotient_or_cotangent_is_zero() -> None:
    def denominator_bar(x: Any, y: Any, y_bar: Any) -> Any:
        op = Op.registry["guarded_div"]()
        return op.vjp((x, y), ops.guarded_div(x, y), y_bar)[1]()

    nan, inf = math.nan, math.inf
    x = np.array([0.0, 0.0, 3.0, 3.0, 3.0, 0.0])
    y = np.array([0.0, nan, 0.0, nan, 2.0, inf])
    y_bar = np.array([5.0, 5.0, 0.0, 0.0, 4.0, 1.0])
    np.testing.assert_array_equal(call(denominator_bar, x, y, y_bar), [0, 0, 0, 0, -3, 0])


def test_logical_ops_read_non_zero_as_true() -> None:
    x, y = np.array([0.0, 2.0, 0.0]), np.array([1, 1, 0])
    np.testing.assert_array_equal(call(ops.logical_and, x, y), [False, True, False])
    np.testing.assert_array_equal(call(ops.logical_or, x, y), [True, True, False])
    np.testing.assert_array_equal(call(ops.logical_xor, x, y), [True, False, False])
    np.testing.assert_array_equal(call(ops.logical_not, x), [True, False, True])


@pytest.mark.parametrize(
    ("value", "target", "expected"),
    [(2.9, int32, 2), (-2.9, int8, -2), (0.5, bool_, True), (3, float16, 3), (300, uint8, 44), (1 + 2j, float32, 1)],
)
def test_cast_follows_c(value: Any, target: Any, expected: Any) -> None:
    found = call(lambda x: ops.cast(x, target), np.array([value]))
    assert found.dtype == target.numpy
    assert found[0] == expected


@pytest.mark.parametrize("name", ["floor_divide", "remainder", "fmod", "trunc_divide"])
def test_integer_division_by_zero_raises_as_in_torch(name: str) -> None:
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        call(getattr(ops, name), np.array([1, 2]), np.array([1, 0]))


def test_a_number_takes_the_operands_dtype() -> None:
    for dtype in (float16, bfloat16, float32, int64, complex64):
        x = np.ones(2).astype(dtype.numpy)
        for function in (lambda x: ops.add(x, 2), lambda x: ops.mul(3, x), lambda x: ops.where(ops.ne(x, 0), x, 0)):
            assert call(function, x).dtype == dtype.numpy


def test_errors_name_op_and_operands() -> None:
    builder = GraphBuilder()
    x = builder.tracer(builder.input(TensorType((2, 3), float32)))
    y = builder.tracer(builder.input(TensorType((4,), float32)))
    z = builder.tracer(builder.input(TensorType((3,), float64)))
    with pytest.raises(ShapeError, match="must match the size of tensor b"):
        ops.add(x, y)
    with pytest.raises(DTypeError, match="add: operands differ in dtype"):
        ops.add(x, z)
    with pytest.raises(DTypeError, match='"bitwise_and" not implemented'):
        ops.bitwise_and(x, x)
    with pytest.raises(DTypeError, match="boolean"):
        ops.where(x, x, x)
    with pytest.raises(ArgumentError, match="negative n"):
        ops.polygamma(-1, x)


def test_minus_zero_and_nan_are_literals_of_their_own() -> None:
    full = Op.registry["full"]
    make = lambda value: full(value, float64, ())  # type: ignore[call-arg]
    assert make(0.0) != make(-0.0)
    assert make(float("nan")) == make(float("nan"))
    assert hash(make(float("nan"))) == hash(make(float("nan")))


def test_complex_cotangents_follow_torch() -> None:
    z = np.array([3 + 4j, 0j])
    np.testing.assert_allclose(gradient(ops.abs, z)[0], [0.6 + 0.8j, 0])
    np.testing.assert_allclose(gradient(lambda z: ops.real(ops.mul(z, z)), z)[0], 2 * np.conj(z))
    np.testing.assert_allclose(gradient(lambda z: ops.imag(z), z)[0], [1j, 1j])
    np.testing.assert_allclose(gradient(ops.angle, z[:1])[0], [1j * z[0] / 25])
