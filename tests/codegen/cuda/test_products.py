"""Matrix products on the emulated device, against NumPy in float64: any shapes, strides, batches and dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autojit.codegen.cuda.product_choice import Choice, choose
from autojit.codegen.cuda.products import print_product
from autojit.codegen.cuda.target import CudaTarget
from autojit.core.dtypes import DType, bfloat16, float16, float32, float64, int8, int32, int64, uint8
from tests.codegen.cuda.emulated import TARGET, run_grid
from tests.codegen.cuda.product_kernels import View, draw, product, repeated_view, scattered_view, whole
from tests.codegen.cuda.split_arithmetic import split_product

Array = np.ndarray[Any, Any]

EXTENTS = (1, 2, 3, 7, 8, 16, 17, 31, 33, 40)
TOLERANCE = {float32: 2.0**-22, float64: 2.0**-51, float16: 2.0**-10, bfloat16: 2.0**-7}
"""Of a product, in parts of the product of the operands' magnitudes: what BLAS of the dtype meets, twice."""


def _multiplied(a: View, b: View, added: Array | None = None, **how: Any) -> Array:
    """What the kernel of a product gives; with ``added`` in the memory of what it is added to."""
    target = CudaTarget(how.pop("architecture", "sm_90"), how.pop("processors", TARGET.processors))
    kernel = product(a, b, adds=added is not None)
    result = np.zeros((*a.seen.shape[:-1], b.seen.shape[-1]), a.seen.dtype)
    arrays = [a.stored, b.stored, *([] if added is None else [added]), result]
    same = {} if added is None else {3: 2}
    found, _ = run_grid(print_product(kernel, target), arrays, same=same, architecture=target.cpu, **how)
    return found[-1]


def error_of(found: Array, a: Array, b: Array, added: Array | None = None) -> float:
    """The largest error of an element, in parts of the magnitudes that it is a sum of."""
    wide = np.longdouble if a.dtype == np.float64 else np.float64
    x, y = (v.astype(wide) for v in (a, b))
    exact, scale = x @ y, np.abs(x) @ np.abs(y)
    if added is not None:
        exact, scale = exact + added, scale + np.abs(added.astype(wide))
    return float(np.max(np.abs(found - exact) / np.maximum(scale, 1e-300), initial=0.0))


def _operands(generator: np.random.Generator, dtype: DType) -> tuple[View, View]:
    m, n, k = (int(extent) for extent in generator.choice(EXTENTS, 3))
    batch = tuple(int(extent) for extent in generator.choice((1, 2, 3), int(generator.integers(0, 3))))
    views = [scattered_view(generator, draw(generator, (*batch, *shape), dtype)) for shape in ((m, k), (k, n))]
    if generator.random() < 0.2:
        values = draw(generator, (*batch, m, k), dtype)
        views[0] = repeated_view(values, int(generator.integers(0, values.ndim)))
    return views[0], views[1]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("dtype", [float32, float64, float16, bfloat16], ids=str)
@pytest.mark.parametrize("architecture", ["sm_75", "sm_90"])
def test_products_of_floats(dtype: DType, seed: int, architecture: str) -> None:
    generator = np.random.default_rng(seed)
    a, b = _operands(generator, dtype)
    added = draw(generator, (*a.seen.shape[:-1], b.seen.shape[-1]), dtype) if seed % 2 else None
    processors = int(generator.choice((1, 8, 132)))
    order = None if seed < 2 else seed
    found = _multiplied(a, b, added, architecture=architecture, processors=processors, order=order)
    assert error_of(found, a.seen, b.seen, added) <= TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", [int8, uint8, int32, int64], ids=str)
def test_products_of_whole_numbers_wrap(dtype: DType) -> None:
    generator = np.random.default_rng(7)
    a, b = _operands(generator, dtype)
    added = draw(generator, (*a.seen.shape[:-1], b.seen.shape[-1]), dtype)
    assert np.array_equal(_multiplied(a, b, added, order=1), a.seen @ b.seen + added)


@pytest.mark.parametrize("shape", [(0, 3, 2), (2, 0, 3), (2, 3, 0)])
def test_empty_products(shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    a, b = np.zeros((m, k), np.float32), np.zeros((k, n), np.float32)
    added = np.arange(m * n, dtype=np.float32).reshape(m, n)
    assert np.array_equal(_multiplied(whole(a), whole(b)), a @ b)
    assert np.array_equal(_multiplied(whole(a), whole(b), added), added)


def _matrices(seed: int, most: int, *, is_positive: bool = False) -> tuple[Array, Array, Choice]:
    """Operands whose contracted axis is longer the fewer results there are, and how a small GPU multiplies them."""
    generator = np.random.default_rng(seed)
    m, n = (int(extent) for extent in generator.integers(1, 60, 2))
    k = int(generator.integers(17, min(most, 100_000 // (m + n)) + 18))
    a, b = (generator.random(shape, np.float32) for shape in ((m, k), (k, n)))
    if not is_positive:
        a, b = draw(generator, (m, k), float32), draw(generator, (k, n), float32)
    return a, b, choose(float32, CudaTarget("sm_90", (1, 8, 132)[seed % 3]), (m, n, k), 1)


@pytest.mark.parametrize("seed", range(9))
def test_float32_on_tensor_cores_is_rounded_as_written_down(seed: int) -> None:
    a, b, choice = _matrices(seed, 400)
    found = _multiplied(whole(a), whole(b), processors=(1, 8, 132)[seed % 3])
    assert np.array_equal(found, split_product(a, b, choice))


def test_float32_on_tensor_cores_is_as_accurate_as_float32() -> None:
    """Over 200 shapes, of sums of up to 20,000 terms, by the arithmetic that the test above compares with kernels."""
    ratios = []
    for seed in range(200):
        a, b, choice = _matrices(seed, 20_000, is_positive=seed % 4 == 0)
        ratios.append(error_of(split_product(a, b, choice), a, b) / max(error_of(a @ b, a, b), 2.0**-25))
    assert max(ratios) <= 2.0, sorted(ratios)[-5:]


def _rounded(x: Array) -> Array:
    """Float32 with 11 bits, ties away from zero."""
    return ((x.view(np.uint32) + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)


@pytest.mark.parametrize("seed", range(3))
def test_where_users_allow_it_operands_are_rounded_to_11_bits(seed: int) -> None:
    generator = np.random.default_rng(seed)
    m, n, k = (int(extent) for extent in generator.integers(17, 150, 3))
    a, b = draw(generator, (m, k), float32), draw(generator, (k, n), float32)
    target = CudaTarget("sm_90", (1, 8, 132)[seed], rounds_operands=True)
    (*_, found), _ = run_grid(print_product(product(whole(a), whole(b)), target), [a, b, np.zeros((m, n), "f4")])
    assert error_of(found, _rounded(a), _rounded(b)) <= TOLERANCE[float32]
    a[0, 0] = np.inf
    (*_, found), _ = run_grid(print_product(product(whole(a), whole(b)), target), [a, b, np.zeros((m, n), "f4")])
    assert np.isinf(found[0]).all() and np.isfinite(found[1:]).all()


SPECIAL = (np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-45, -3e-39, 1.2e-38, 3.4028235e38, -2e20, 1e-33, 1.0, -3.1)


@pytest.mark.parametrize("depth", [1, 24])  # lane by lane; on tensor cores unless an element is special
@pytest.mark.parametrize("processors", [1, 132])  # tiles of several warps, and of one
def test_special_numbers_are_those_of_float32(processors: int, depth: int) -> None:
    generator = np.random.default_rng(11)
    a, b = np.zeros((60, depth), np.float32), np.zeros((depth, 60), np.float32)
    place = depth // 2
    a[:, place], b[place] = (generator.choice(SPECIAL, 60).astype(np.float32) for _ in range(2))
    with np.errstate(all="ignore"):
        expected = a[:, [place]] * b[place] + np.float32(0)
    found = _multiplied(whole(a), whole(b), processors=processors)
    assert np.array_equal(found, expected, equal_nan=True)


def test_one_element_that_cannot_be_split_leaves_the_accuracy_of_the_rest() -> None:
    generator = np.random.default_rng(3)
    a, b = draw(generator, (70, 70), float32), draw(generator, (70, 70), float32)
    a[3, 40] = 1e-40
    found = _multiplied(whole(a), whole(b), processors=1)
    assert error_of(found, a, b) <= TOLERANCE[float32]
    a[3, 40] = np.inf
    found = _multiplied(whole(a), whole(b), processors=1)
    assert np.isinf(found[3]).all() and np.isfinite(np.delete(found, 3, axis=0)).all()
