from __future__ import annotations

import numpy as np
import pytest

from autojit.ops import embedding, gather, gather_nd, index_select, take, take_along_axis
from tests.ops.running import integers, normal, record, run


def test_gather_agrees_with_numpy() -> None:
    x, index = normal(3, 4, 5), integers(-4, 4, 2, 6, 3)
    expected = np.take_along_axis(x[:2, :, :3], index, 1)
    np.testing.assert_array_equal(run(lambda x, i: gather(x, 1, i), x, index), expected)


def test_take_along_axis_broadcasts_and_flattens() -> None:
    x, index = normal(3, 1, 5), integers(0, 5, 1, 4, 2)
    expected = np.take_along_axis(np.broadcast_to(x, (3, 4, 5)), np.broadcast_to(index, (3, 4, 2)), 2)
    np.testing.assert_array_equal(run(lambda x, i: take_along_axis(x, i, -1), x, index), expected)
    flat = integers(0, 15, 7)
    np.testing.assert_array_equal(run(take_along_axis, x, flat), x.reshape(-1)[flat])


def test_rows_are_selected() -> None:
    table, index = normal(6, 3), integers(-6, 6, 2, 4)
    np.testing.assert_array_equal(run(embedding, table, index), table[index])
    np.testing.assert_array_equal(
        run(lambda t, i: index_select(t, 1, i), table, integers(0, 3, 5)), table[:, integers(0, 3, 5)]
    )
    np.testing.assert_array_equal(run(take, table, index), table.reshape(-1)[index])


def test_integer_arrays_broadcast_among_each_other() -> None:
    x, rows, columns = normal(4, 5, 2), integers(-4, 4, 3, 1), integers(0, 5, 6)
    np.testing.assert_array_equal(run(gather_nd, x, rows, columns), x[rows, columns])


def test_scalars_can_be_gathered() -> None:
    zero = np.zeros((), np.int64)
    assert run(lambda x, i: gather(x, 0, i), np.float64(3.5), zero) == 3.5
    assert run(lambda x, i: index_select(x, 0, i), np.float64(3.5), zero) == 3.5


@pytest.mark.parametrize("bad", [3, -4])
def test_an_index_out_of_range_is_named(bad: int) -> None:
    index = np.array([0, bad])
    for function in (
        lambda x, i: index_select(x, 0, i),
        lambda x, i: gather(x, 0, i),
        gather_nd,
    ):
        with pytest.raises(IndexError, match=f"index {bad} is out of bounds for dimension 0 with size 3"):
            run(function, normal(3), index)


def test_an_index_must_be_int64() -> None:
    with pytest.raises(RuntimeError, match="int64"):
        record(lambda x, i: gather(x, 0, i), normal(3), np.zeros(2, np.int32))
