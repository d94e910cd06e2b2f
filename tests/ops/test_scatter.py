from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from autojit.ops import index_add, index_copy, index_put, scatter, scatter_add
from tests.ops.running import integers, normal, record, run


def test_scatter_add_agrees_with_a_loop() -> None:
    base, src, index = normal(3, 4), normal(5, 4, seed=1), integers(-3, 3, 5, 3)
    expected = base.copy()
    for i, j in np.ndindex(5, 3):
        expected[index[i, j], j] += src[i, j]
    np.testing.assert_allclose(run(lambda b, i, s: scatter_add(b, 0, i, s), base, index, src), expected)


def test_scatter_replaces() -> None:
    base, src, index = normal(3, 4), normal(3, 2, seed=1), np.array([[3, 0], [1, 2], [0, 1]])
    expected = base.copy()
    np.put_along_axis(expected, index, src, 1)
    np.testing.assert_array_equal(run(lambda b, i, s: scatter(b, 1, i, s), base, index, src), expected)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_index_add_sums_equal_places(axis: int) -> None:
    shape = [4, 4, 4]
    shape[axis] = 9
    base, src, index = normal(4, 4, 4), normal(*shape, seed=1), integers(-4, 4, 9)
    expected = base.copy()
    np.add.at(expected, (*(slice(None) for _ in range(axis)), index), src)
    np.testing.assert_allclose(run(lambda b, i, s: index_add(b, axis, i, s), base, index, src), expected)


def test_index_copy_replaces_slices() -> None:
    base, src = normal(4, 3), normal(2, 3, seed=1)
    expected = base.copy()
    expected[[3, 0]] = src
    np.testing.assert_array_equal(run(lambda b, i, s: index_copy(b, 0, i, s), base, np.array([3, 0]), src), expected)


def test_index_put_broadcasts_the_value() -> None:
    base, rows, columns = normal(4, 5, 2), np.array([[0], [2]]), np.array([1, -1, 3])
    expected = base.copy()
    expected[rows, columns] = 2.5
    found = run(lambda b, r, c, v: index_put(b, (r, c), v), base, rows, columns, np.float64(2.5))
    np.testing.assert_array_equal(found, expected)
    with pytest.raises(RuntimeError, match="cannot be broadcast"):
        record(lambda b, r, v: index_put(b, (r,), v), base, np.array([0]), normal(3, 5, 2))


def test_halves_are_summed_in_float32_and_rounded_once() -> None:
    base = np.zeros(1, ml_dtypes.bfloat16)
    src = np.full(1000, 1.0, ml_dtypes.bfloat16)
    index = np.zeros(1000, np.int64)
    assert run(lambda b, i, s: index_add(b, 0, i, s), base, index, src)[0] == 1000


def test_operands_are_not_changed() -> None:
    base = normal(3, 2)
    before = base.copy()
    run(lambda b, i, s: index_add(b, 0, i, s), base, np.array([0, 0]), normal(2, 2))
    np.testing.assert_array_equal(base, before)


def test_a_place_out_of_range_is_named() -> None:
    with pytest.raises(IndexError, match="index 9 is out of bounds for dimension 0 with size 3"):
        run(lambda b, i, s: index_add(b, 0, i, s), normal(3), np.array([9]), normal(1))
