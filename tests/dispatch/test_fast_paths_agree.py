"""The law of the fast paths: each gives what its op's NumPy rule gives, at every size, layout and special value.

What may differ is rounding, and it is bounded from dtype, length and magnitude: elementwise functions promise 2 ulp, so
two of them are 4 apart; sums of n terms differ by sqrt(n) roundings of the sum of magnitudes; orders, bits, maxima and
copies are equal.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from autojit.core.dtypes import bfloat16
from autojit.dispatch.fast_paths import NARROW, TABLE
from autojit.ir.op import Op
from autojit.tensor.state import quietly, state

Arrays = Sequence[NDArray[Any]]
BASE = 4096
SIZES = [0, 1, BASE - 1, BASE, BASE + 1, 3 * BASE + 5]
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, 2.0, 1e-30, -1e-30, 1e30, -7.0, 3.0]
FLOATS = [np.float32, np.float64]


def make(name: str, *parameters: Any) -> Any:
    """An op by its name."""
    return Op.registry[name](*parameters)


def exactly(y: NDArray[Any]) -> float:
    """The bound of results that are equal."""
    return 0.0


def draw(n: int, dtype: Any, seed: int, special: bool = True) -> NDArray[Any]:
    """Numbers of many magnitudes, special ones among them."""
    generator = np.random.default_rng(zlib.crc32(f"{n} {seed}".encode()))
    x = generator.normal(size=n) * 10.0 ** generator.integers(-3, 3, n)
    if special:
        places = generator.integers(0, max(n, 1), n // 16)
        x[places] = generator.choice(SPECIAL, len(places))
    with np.errstate(all="ignore"):
        return x.astype(dtype)


def layouts(x: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """The same elements in other orders of memory."""
    spaced = np.zeros(2 * len(x), x.dtype)[::2]
    spaced[...] = x
    odd = np.zeros(x.nbytes + 1, np.uint8)[1:].view(x.dtype) if x.nbytes else x
    odd[...] = x
    frozen = x.copy()
    frozen.flags.writeable = False
    return {"rows": x, "reversed": x[::-1].copy()[::-1], "spaced": spaced, "unaligned": odd, "read-only": frozen}


def both(op: Any, arrays: Arrays) -> tuple[list[NDArray[Any]], list[NDArray[Any]]]:
    assert not state.reference
    fast, slow = quietly(op.fast, *arrays), quietly(op.eager, *arrays)
    return [[np.asarray(y) for y in (found if op.n_outputs > 1 else (found,))] for found in (fast, slow)]  # type: ignore[return-value]


def assert_near(op: Any, arrays: Arrays, bound: Callable[[NDArray[Any]], Any]) -> None:
    """``bound(expected)`` is how far apart results may be."""
    for found, expected in zip(*both(op, arrays), strict=True):
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
        if found.dtype.kind not in "fc" and found.dtype != bfloat16.numpy:
            np.testing.assert_array_equal(found, expected, str(op))
            continue
        a, b = found.astype(np.float64), expected.astype(np.float64)
        finite = np.isfinite(b)
        np.testing.assert_array_equal(a[~finite], b[~finite], str(op))
        with np.errstate(all="ignore"):
            gap, limit = np.abs(a - b)[finite], np.broadcast_to(bound(b), b.shape)[finite]
        assert np.isfinite(a[finite]).all(), f"{op}: not finite where NumPy is"
        worst = int(np.argmax(gap - limit)) if gap.size else 0
        assert not (gap > limit).any(), f"{op}: {a[finite][worst]} is not {b[finite][worst]} (bound {limit[worst]})"


def roundings(dtype: Any, count: float, least: float = 0.0) -> Callable[[NDArray[Any]], Any]:
    """So many units in the last place of the result; below ``least`` and the normal numbers, of these."""
    info = np.finfo(dtype if dtype != bfloat16.numpy else np.float32)
    return lambda y: count * float(info.eps) * np.maximum(np.abs(y), max(float(info.tiny), least))


ELEMENTWISE = {
    "sigmoid": 1, "rsqrt": 1, "logaddexp": 2, "hypot": 2, "copysign": 2, "sign": 1, "relu": 1, "erf": 1, "erfc": 1,
    "erfinv": 1, "lgamma": 1, "digamma": 1, "floor_divide": 2, "trunc_divide": 2, "remainder": 2, "fmod": 2,
    "erfcx": 1, "ndtri": 1, "nextafter": 2,
}  # fmt: skip
LOOSER = {"erfcx": 16, "ndtri": 16}  # units in the last place, most of them the reference's


NEAR_ZEROS = {"logaddexp": 1.0, "lgamma": 4.0, "digamma": 4.0}  # differences of numbers so large: absolute there
POSITIVE = (
    "lgamma",
    "digamma",
)  # left of 0 they are as wrong as the reflected argument's rounding: see test_special.py


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise_functions_differ_by_the_promised_roundings(name: str, dtype: Any) -> None:
    op, bound = make(name), roundings(dtype, LOOSER.get(name, 4), NEAR_ZEROS.get(name, 0.0))
    change = np.abs if name in POSITIVE else np.asarray
    for n in SIZES:
        operands = [layouts(change(draw(n, dtype, k))) for k in range(ELEMENTWISE[name])]
        for label in operands[0]:
            assert_near(op, [given[label] for given in operands], bound)
    if len(operands) == 2:
        one = [draw(BASE, dtype, 0), np.asarray(dtype(0.3))]  # a number beside an array, either way round
        assert_near(op, one, bound)
        assert_near(op, one[::-1], bound)
        assert_near(op, [draw(BASE, dtype, 0).reshape(64, 64), draw(64, dtype, 1)], bound)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64, np.float16, bfloat16.numpy, np.bool_])
def test_dtypes_without_a_fast_path_are_numpys(dtype: Any) -> None:
    for name, arity in ELEMENTWISE.items():
        op = make(name)
        x = np.abs(draw(BASE + 1, np.float64, 0, special=False)).clip(1, 9).astype(dtype)
        try:
            op.result_type(*[_type(x)] * arity)
        except TypeError:
            continue
        except Exception as error:
            assert isinstance(error, NotImplementedError | RuntimeError), error
            continue
        for found, expected in zip(*both(op, [x] * arity), strict=True):
            assert found.tobytes() == expected.tobytes()


def _type(x: NDArray[Any]) -> Any:
    from autojit.core.dtypes import dtype_of_numpy
    from autojit.core.types import TensorType

    return TensorType(x.shape, dtype_of_numpy(x.dtype))


@pytest.mark.parametrize("dtype", FLOATS)
def test_choices_powers_and_polygammas(dtype: Any) -> None:
    for n in SIZES:
        x, y = draw(n, dtype, 0), draw(n, dtype, 1)
        assert_near(make("where"), [x > 0, x, y], exactly)
        assert_near(make("where"), [x > 0, x, np.asarray(dtype(2))], exactly)
        for exponent in (2, 3, -1, 0.5, 7, 2.5):
            assert_near(make("pow_number", exponent), [x], roundings(dtype, 4 + abs(exponent)))
    x = np.abs(draw(BASE, dtype, 2, special=False)) + dtype(0.5)
    assert_near(make("polygamma", 1), [x], roundings(dtype, 8))
    for kind in ("j0", "j1", "y0", "y1", "i0", "i1", "k0", "k1", "i0e", "i1e", "k0e", "k1e"):
        assert_near(make("bessel", kind), [x], roundings(dtype, 32, 1.0 if kind[0] in "jy" else 0.0))


def _rows(n: int) -> tuple[int, int]:
    return n // 32, 32


@pytest.mark.parametrize("dtype", FLOATS)
def test_sums_differ_by_what_the_order_of_additions_can(dtype: Any) -> None:
    eps = float(np.finfo(dtype).eps)
    for n in (0, 96, 1 << 15, (1 << 15) + 32, 1 << 17):
        for special in (False, True):
            x = draw(n, dtype, 0, special).reshape(_rows(n))
            x = np.where(np.abs(x) > 1e20, 1, x) if special else x
            for given in (x, x.T.copy().T, np.repeat(x, 2, 1)[:, ::2]):
                for axes in ((0,), (1,), (0, 1)):
                    length = int(np.prod([given.shape[a] for a in axes]))
                    scale = np.abs(np.nan_to_num(given.astype(np.float64), posinf=0, neginf=0)).sum(axes)
                    bound = eps * (2 + length**0.5) * scale
                    assert_near(make("sum", axes), [given], lambda y, bound=bound: bound)
                    if length:
                        assert_near(make("mean", axes, False), [given], lambda y, b=bound / length: b + eps * np.abs(y))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_differs_by_the_roundings_of_its_sum(name: str, dtype: Any) -> None:
    eps = float(np.finfo(dtype).eps)
    least = 1.0 if name == "log_softmax" else 1e-30  # a logarithm of a number near 1 keeps that number's rounding
    for n in (32, BASE - 32, BASE, BASE + 32):
        x = draw(n, dtype, 0, special=False).reshape(_rows(n)).clip(-80, 80)
        for given in (x, x.T.copy().T, x[::-1]):
            for axis in (0, 1):
                # the shift x - max rounds by eps * |x|, which the exponential turns into a relative error
                spread = 4 + 2 * given.shape[axis] ** 0.5 + float(np.ptp(given))
                assert_near(make(name, axis), [given], lambda y, s=spread: eps * s * np.maximum(np.abs(y), least))


@pytest.mark.parametrize("dtype", [*FLOATS, np.float16, bfloat16.numpy])
def test_scans_differ_by_the_roundings_of_their_terms(dtype: Any) -> None:
    wide = np.float32 if np.dtype(dtype).itemsize == 2 else dtype
    eps = float(np.finfo(wide).eps) if wide is dtype else 2.0**-7 if dtype == bfloat16.numpy else 2.0**-10
    for n in (0, BASE - 32, BASE, 2 * BASE):
        x = draw(n, np.float64, 0, special=False).reshape(_rows(n)).clip(-3, 3).astype(dtype)
        for given in (x, x.T.copy().T):
            for axis in (0, 1):
                for reverse in (False, True):
                    length = given.shape[axis]
                    scale = np.abs(given.astype(np.float64)).sum(axis, keepdims=True) if n else 0.0
                    bound = eps * (2 + length**0.5) * scale
                    assert_near(make("cumulative", "sum", axis, reverse), [given], lambda y, b=bound: b)
                    decay = (given.astype(np.float64) / 4).astype(dtype)
                    assert_near(make("linear_recurrence", axis, reverse), [decay, given], lambda y, b=bound: b)
                    small = roundings(wide, 2 + length) if wide is dtype else lambda y: 2 * eps * np.abs(y) + eps
                    assert_near(make("cumulative", "prod", axis, reverse), [given], small)
                for kind in ("max", "min"):
                    assert_near(make("cumulative_extreme", kind, axis), [given], exactly)


@pytest.mark.parametrize("dtype", [*FLOATS, np.float16, np.int32, np.uint8, np.bool_])
def test_orders_flips_and_bits_are_equal(dtype: Any) -> None:
    for n in (64, BASE - 32, BASE, BASE + 32):
        x = draw(n, np.float64, 0, special=np.dtype(dtype).kind == "f")
        with np.errstate(all="ignore"):
            x = np.round(x, 1).astype(dtype)  # equal elements among them
        for given in (x, x[::-1], x.reshape(_rows(n)), x.reshape(_rows(n)).T):
            for axis in range(given.ndim):
                for descending in (False, True):
                    assert_near(make("sort", axis, descending), [given], exactly)
                    assert_near(make("sort", axis, descending, (0, 3)), [given], exactly)
                if given.dtype.kind == "f" and given.dtype.itemsize >= 4:
                    assert_near(make("flip", (axis,)), [given], exactly)
    for count in (1, BASE - 1, BASE, BASE + 3):
        assert_near(make("random_bits", (count,)), [np.array([7, 2**33], np.int64)], exactly)


@pytest.mark.parametrize("dtype", FLOATS)
def test_scattered_additions_differ_by_the_roundings_of_their_terms(dtype: Any) -> None:
    eps = float(np.finfo(dtype).eps)
    generator = np.random.default_rng(5)
    for n in (0, BASE - 32, BASE, BASE + 32):
        src = draw(n, dtype, 0, special=False).reshape(_rows(n)).clip(-9, 9)
        base = draw(16 * 32, dtype, 1, special=False).reshape(16, 32).clip(-9, 9)
        index = generator.integers(0, 16, src.shape)
        bound = eps * (2 + n**0.5) * (9 + 9 * n / 16)
        assert_near(make("scatter", 0, "add"), [base, src, index], lambda y, b=bound: b)
        if n:
            assert_near(make("index_update", 0, "add"), [base, src, index[:, 0]], lambda y, b=bound: b)
            assert_near(make("index_put", "add"), [base, src, index[:, 0]], lambda y, b=bound: b)


def test_an_index_outside_is_the_reference_s_error() -> None:
    index = np.full((BASE // 8, 8), 99)
    arrays = [np.zeros((4, 8), np.float32), np.ones((BASE // 8, 8), np.float32), index]
    op = make("scatter", 0, "add")
    with pytest.raises(IndexError) as slow:
        op.eager(*arrays)
    with pytest.raises(IndexError) as fast:
        op.fast(*arrays)
    assert type(fast.value) is type(slow.value)
    assert "index 99 is out of bounds" in str(fast.value)


@pytest.mark.parametrize("dtype", FLOATS)
def test_convolutions_differ_by_the_roundings_of_their_terms(dtype: Any) -> None:
    x, w = draw(2 * 16 * 32 * 32, dtype, 0, False), draw(16 * 16 * 9, dtype, 1, False)
    x, w = x.reshape(2, 16, 32, 32).clip(-3, 3), w.reshape(16, 16, 3, 3).clip(-3, 3)
    eps = float(np.finfo(dtype).eps)
    rules = {
        "convolution": ((32, 32), x, w),
        "convolution_input": ((32, 32), x, w),
        "convolution_weight": ((3, 3), x, x),
    }
    for name, (extents, a, b) in rules.items():
        op = make(name, extents, (1, 1), (1, 1), (1, 1), 1)
        assert op.count_products(a.shape, b.shape) >= 4_000_000
        terms = 16 * 9 if name != "convolution_weight" else 2 * 32 * 32
        assert_near(op, [a, b], lambda y, t=terms: 9 * eps * (2 + t**0.5) * t)


@pytest.mark.parametrize("dtype", FLOATS)
def test_fourier_transforms_differ_by_the_roundings_of_their_steps(dtype: Any) -> None:
    """A few rounds of roundings of the root of the sum of squares, in the kernel and in NumPy's transform alike."""
    x = np.clip(draw(2 * 301 * 128, dtype, 0, False), -3, 3)
    z = (x[::2] + 1j * x[1::2]).astype(np.result_type(dtype, np.complex64))
    bound = 64 * float(np.finfo(dtype).eps) * 4.3 * 512**0.5
    cases = [
        (make("fft", (-1,), False, "backward"), z.reshape(301, 128)),
        (make("rfft", -1, "ortho"), x.reshape(-1, 256)),
    ]
    cases += [(make("fft", (-2,), True, "forward"), np.tile(z, 2).reshape(128, 602)[::-1])]
    cases += [(make("irfft", 255, -1, "forward"), np.tile(z, 2).reshape(602, 128))]
    for op, operand in cases:
        for found, expected in zip(*both(op, [operand]), strict=True):
            assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
            assert np.abs(found - expected).max() <= bound


@pytest.mark.parametrize("dtype", [*FLOATS, np.float16, bfloat16.numpy])
@pytest.mark.parametrize("dropped", [0.0, 0.25])
@pytest.mark.parametrize("mask", ["none", "bool", "added"])
def test_attention_differs_by_the_roundings_of_its_sums(mask: str, dropped: float, dtype: Any) -> None:
    """The same weights are dropped; a query that sees no key gets zeros and no gradient."""
    narrow = np.dtype(dtype).itemsize == 2
    eps = {np.float16: 2.0**-10, bfloat16.numpy: 2.0**-7}.get(dtype, 8 * float(np.finfo(np.float32).eps))
    eps = 8 * float(np.finfo(dtype).eps) if not narrow else eps
    for l, s, is_causal in [(0, 3, False), (64, 64, True), (64, 80, False), (80, 70, True)]:
        q, k, v, y_bar = (
            draw(8 * n * e, np.float64, seed, False).clip(-2, 2).reshape(2, 4, n, e).astype(dtype)
            for seed, (n, e) in enumerate([(l, 16), (s, 16), (s, 8), (l, 8)])
        )
        given = [q, k, v]
        kept = np.random.default_rng(3).random((2, 4, l, s)) > 0.3
        kept[..., l // 2 : l // 2 + 1, :] = False  # sees no key
        if mask != "none":
            wide = np.float32 if narrow else dtype
            given.append(kept if mask == "bool" else np.where(kept, 0.5, -np.inf).astype(wide))
        if dropped:
            given.append(np.array([11, 4], np.int64))
        told = (0.25, is_causal, mask != "none", dropped)
        assert_near(make("attention", *told), given, lambda y: eps * np.maximum(np.abs(y), 4))
        results = make("attention", *told).eager(*given)
        adjoint = make("attention_adjoint", *told, False)
        assert_near(adjoint, [*given, *results, y_bar], lambda y: 8 * eps * np.maximum(np.abs(y), 4))


def test_every_entry_of_the_table_is_held_to_its_op() -> None:
    judged = {*ELEMENTWISE, "where", "pow_number", "polygamma", "sum", "mean", "softmax", "log_softmax", "cumulative"}
    judged |= {
        "bessel",
        "linear_recurrence",
        "cumulative_extreme",
        "sort",
        "flip",
        "random_bits",
        "scatter",
        "index_update",
    }
    judged |= {"index_put", "convolution", "convolution_input", "convolution_weight", "fft", "rfft", "irfft"}
    judged |= {"attention", "attention_adjoint"}
    composites = {"fused", "fused_arrays"}  # in test_fused_arrays.py and test_kernels.py
    assert judged | composites | set(NARROW) == set(TABLE)  # bfloat16 alone: its bits are in test_fast_paths.py
