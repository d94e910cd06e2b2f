"""Laws of the scalar emitter: every op computes what NumPy computes, on every dtype it takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from autojit.codegen.emitter import ScalarEmitter
from autojit.core.dtypes import (
    ALL_DTYPES,
    DType,
    bfloat16,
    bool_,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from benchmarks.vector_math import Kernel

INTEGERS = (int8, int16, int32, int64, uint8, uint16, uint32, uint64)
SIGNED = (int8, int16, int32, int64)
HALVES = (float16, bfloat16)
FLOATS = (float32, float64)
REAL = tuple(dtype for dtype in ALL_DTYPES if dtype.kind != "complex")


def integers(dtype: DType, count: int, rng: np.random.Generator) -> np.ndarray:
    """All magnitudes, with the extremes, zero and small numbers."""
    info = np.iinfo(dtype.numpy)
    wide = rng.integers(info.min, info.max, count, dtype=dtype.numpy, endpoint=True)
    small = rng.integers(max(info.min, -9), 10, count).astype(dtype.numpy)
    ends = np.array([info.min, info.max, 0, 1, info.max if info.min == 0 else -1] * 5, dtype.numpy)
    return rng.permutation(np.concatenate([wide, small, ends]))


def floats(dtype: DType, count: int, rng: np.random.Generator) -> np.ndarray:
    """Random bit patterns, ordinary numbers and special values."""
    bits = rng.integers(0, 2 ** (8 * dtype.size_bytes), count, dtype=np.uint64)
    patterns = bits.astype(f"u{dtype.size_bytes}").view(dtype.numpy)
    with np.errstate(invalid="ignore"):
        patterns[np.isnan(patterns)] = np.nan  # of signalling NaNs NumPy warns
    ordinary = (rng.normal(size=count) * 30).astype(dtype.numpy)
    special = np.array([0, -0.0, 1, -1, 0.5, 2.5, -2.5, np.inf, -np.inf, np.nan] * 5).astype(dtype.numpy)
    return rng.permutation(np.concatenate([patterns, ordinary, special]))


def two_integers(dtype: DType, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    return integers(dtype, 500, rng), integers(dtype, 500, rng)


def apply(method: str, dtype: DType, *operands: np.ndarray, result: DType | None = None) -> np.ndarray:
    kernel = Kernel(lambda emit, *xs: getattr(emit, method)(*xs), [dtype] * len(operands), result or dtype)
    return kernel(*operands)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize(
    ("method", "reference"),
    [
        ("add", np.add),
        ("sub", np.subtract),
        ("mul", np.multiply),
        ("floor_div", np.floor_divide),
        ("remainder", np.remainder),
        ("fmod", np.fmod),
        ("maximum", np.maximum),
        ("bitwise_xor", np.bitwise_xor),
    ],
)
def test_integer_arithmetic_is_numpys(method: str, reference: np.ufunc, dtype: DType, rng: np.random.Generator) -> None:
    a, b = two_integers(dtype, rng)
    with np.errstate(all="ignore"):
        want = reference(a, b)
    np.testing.assert_array_equal(apply(method, dtype, a, b), want)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_division_by_a_literal_is_division(dtype: DType, rng: np.random.Generator) -> None:
    x, _ = two_integers(dtype, rng)
    for divisor in (1, 3, 7, 100):
        kernel = Kernel(lambda emit, a, d=divisor: emit.floor_div(a, d), [dtype], dtype)
        np.testing.assert_array_equal(kernel(x), x // dtype.numpy.type(divisor))


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_powers_wrap(dtype: DType, rng: np.random.Generator) -> None:
    base, exponent = two_integers(dtype, rng)
    exponent = np.abs(exponent.astype(np.float64) % 120).astype(dtype.numpy)
    np.testing.assert_array_equal(apply("pow", dtype, base, exponent), np.power(base, exponent))
    cube = Kernel(lambda emit, x: emit.pow(x, 3), [dtype], dtype)
    np.testing.assert_array_equal(cube(base), base * base * base)


def test_negative_integer_powers_truncate() -> None:
    base = np.array([-2, -1, -1, 0, 1, 2], np.int32)
    exponent = np.array([-1, -1, -2, -1, -5, -3], np.int32)
    np.testing.assert_array_equal(apply("pow", int32, base, exponent), [0, -1, 1, 0, 1, 0])


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_shifts_are_numpys_for_every_count(dtype: DType) -> None:
    x = np.array([1, 3, 77, np.iinfo(dtype.numpy).max, np.iinfo(dtype.numpy).min] * 20, dtype.numpy)
    count = np.arange(x.size).astype(dtype.numpy)
    np.testing.assert_array_equal(apply("shift_left", dtype, x, count), np.left_shift(x, count))
    np.testing.assert_array_equal(apply("shift_right", dtype, x, count), np.right_shift(x, count))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(
    ("method", "reference"), [("fmod", np.fmod), ("remainder", np.remainder), ("floor_div", np.floor_divide)]
)
def test_float_remainders_are_exact_for_all_quotients(
    method: str, reference: np.ufunc, dtype: DType, rng: np.random.Generator
) -> None:
    a, b = floats(dtype, 4000, rng), floats(dtype, 4000, rng)
    with np.errstate(all="ignore"):
        want = reference(a, b)
    np.testing.assert_array_equal(apply(method, dtype, a, b), want)


@pytest.mark.parametrize("dtype", (*FLOATS, *HALVES), ids=str)
@pytest.mark.parametrize(
    ("method", "reference"),
    [("maximum", np.maximum), ("minimum", np.minimum), ("fmax", np.fmax), ("fmin", np.fmin)],
)
def test_extrema_treat_nan_as_numpy_does(
    method: str, reference: np.ufunc, dtype: DType, rng: np.random.Generator
) -> None:
    a, b = floats(dtype, 300, rng), floats(dtype, 300, rng)
    want = reference(a.astype(np.float64), b.astype(np.float64))
    np.testing.assert_array_equal(apply(method, dtype, a, b).astype(np.float64), want)
    for limit in (0.0, 2.0):
        kernel = Kernel(lambda emit, x, c=limit: getattr(emit, method)(c, x), [dtype], dtype)
        np.testing.assert_array_equal(kernel(a).astype(np.float64), reference(a.astype(np.float64), limit))


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize(
    ("method", "reference"),
    [("add", np.add), ("sub", np.subtract), ("mul", np.multiply), ("div", np.divide)],
)
def test_halves_round_once_from_float32(
    method: str, reference: np.ufunc, dtype: DType, rng: np.random.Generator
) -> None:
    a = np.arange(65536, dtype=np.uint16).view(dtype.numpy)
    b = rng.permutation(a)
    with np.errstate(all="ignore"):
        want = reference(a.astype(np.float32), b.astype(np.float32)).astype(dtype.numpy)
    np.testing.assert_array_equal(apply(method, dtype, a, b).astype(np.float32), want.astype(np.float32))


@pytest.mark.parametrize("dtype", (*FLOATS, *HALVES), ids=str)
@pytest.mark.parametrize(
    ("method", "reference"),
    [
        ("floor", np.floor),
        ("ceil", np.ceil),
        ("trunc", np.trunc),
        ("round", np.rint),
        ("sign", lambda x: np.nan_to_num(np.sign(x), nan=0.0)),  # 0 of NaN, as in torch
        ("abs", np.abs),
        ("neg", np.negative),
    ],
)
def test_rounding_and_signs_are_numpys(
    method: str, reference: Callable[..., Any], dtype: DType, rng: np.random.Generator
) -> None:
    x = floats(dtype, 500, rng)
    got = apply(method, dtype, x).astype(np.float64)
    with np.errstate(all="ignore"):
        want = reference(x.astype(np.float64))
    np.testing.assert_array_equal(got, want)
    numbers = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got[numbers]), np.signbit(want[numbers]))


@pytest.mark.parametrize("dtype", REAL, ids=str)
@pytest.mark.parametrize("name", ["equal", "not_equal", "less", "less_equal", "greater", "greater_equal"])
def test_comparisons_are_numpys(name: str, dtype: DType, rng: np.random.Generator) -> None:
    a, b = (_values(dtype, rng) for _ in range(2))
    method = {"equal": "eq", "not_equal": "ne"}.get(name) or name[0] + ("e" if name.endswith("equal") else "t")
    np.testing.assert_array_equal(apply(method, dtype, a, b, result=bool_), getattr(np, name)(a, b))


def _values(dtype: DType, rng: np.random.Generator) -> np.ndarray:
    if dtype is bool_:
        return rng.integers(0, 2, 200).astype(np.bool_)
    if dtype.kind == "float":
        return np.round(rng.normal(size=200) * 3).astype(dtype.numpy)
    return integers(dtype, 100, rng)


@pytest.mark.parametrize("source", REAL, ids=str)
def test_casts_in_range_are_numpys(source: DType, rng: np.random.Generator) -> None:
    values = _values(source, rng) if source.kind != "float" else (rng.uniform(-120, 120, 300)).astype(source.numpy)
    for target in REAL:
        x = np.abs(values) if source.kind == "float" and target.kind == "uint" else values
        # Halves are rounded from float32, as in torch.
        via = x.astype(np.float32) if target in HALVES and source is not bool_ else x
        got = Kernel(lambda emit, a, t=target: emit.cast(a, t), [source], target)(x)
        with np.errstate(over="ignore"):
            want = via.astype(target.numpy)
        np.testing.assert_array_equal(got.astype(np.float64), want.astype(np.float64), err_msg=f"to {target}")


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.0, 3.0, -1.0, -2.0, 0.5, -0.5, 2.5])
def test_literal_powers_agree_with_numpy(exponent: float, dtype: DType, rng: np.random.Generator) -> None:
    x = np.exp(rng.normal(size=200)).astype(dtype.numpy)
    got = Kernel(lambda emit, a: emit.pow(a, exponent), [dtype], dtype)(x)
    np.testing.assert_allclose(got, np.power(x, dtype.numpy.type(exponent)), rtol=4 * np.finfo(dtype.numpy).eps)


def _philox_word(word: int, counter: int, key: int) -> Callable[..., Any]:
    def build(emit: ScalarEmitter, position: Any) -> Any:
        fixed_counter, fixed_key = emit.constant(counter, uint32), emit.constant(key, uint32)
        start = emit.add(position, counter)
        return emit.philox((start, fixed_counter, fixed_counter, fixed_counter), (fixed_key, fixed_key))[word]

    return build


@pytest.mark.parametrize(
    ("fill", "words"),
    [
        (0, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        (0xFFFFFFFF, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    ],
)
def test_philox_gives_the_published_words(fill: int, words: tuple[int, ...]) -> None:
    """Known answers of Random123 (kat_vectors, philox4x32 10)."""
    position = np.zeros(40, np.uint32)
    got = [Kernel(_philox_word(i, fill, fill), [uint32], uint32)(position)[-1] for i in range(4)]
    assert tuple(int(word) for word in got) == words


@pytest.mark.parametrize("dtype", (*FLOATS, *HALVES), ids=str)
def test_uniform_numbers_lie_in_the_half_open_unit_interval(dtype: DType) -> None:
    words = np.array([0, 1 << 31, 0xFFFFFFFF] * 12, np.uint32)
    kernel = Kernel(lambda emit, a, b: emit.uniform(dtype, a, b), [uint32, uint32], dtype)
    got = kernel(words, words).astype(np.float64)
    digits = {float32: 24, float64: 53, float16: 11, bfloat16: 8}[dtype]
    np.testing.assert_allclose(got[:3], [0.0, 0.5, 1 - 2.0**-digits], rtol=0, atol=1e-7)
    assert got.max() < 1


def test_bools_add_as_or_and_multiply_as_and() -> None:
    a, b = np.array([[False, False, True, True], [False, True, False, True]])
    np.testing.assert_array_equal(apply("add", bool_, a, b), a | b)
    np.testing.assert_array_equal(apply("mul", bool_, a, b), a & b)
    np.testing.assert_array_equal(apply("logical_not", bool_, a), ~a)


def test_constants_are_exact() -> None:
    for dtype in (float32, float64, float16, bfloat16):
        for value in (0.1, -1 / 3, np.inf, 1e-40, 65519.0):
            kernel = Kernel(lambda emit, x, v=value: emit.constant(v, x.dtype), [dtype], dtype)
            with np.errstate(over="ignore"):
                want = np.float32(value).astype(dtype.numpy) if dtype in HALVES else dtype.numpy.type(value)
            assert kernel(np.zeros(3, dtype.numpy))[0] == want
