from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autojit.core.errors import TraceError
from autojit.ops import (
    Bincount,
    Nonzero,
    Unique,
    UniqueConsecutive,
    argsort,
    kthvalue,
    median,
    nonzero,
    searchsorted,
    sort,
    topk,
)  # fmt: skip
from tests.ops.running import integers, normal, record, run


@pytest.mark.parametrize("descending", [False, True])
def test_sort_is_stable_in_both_directions(descending: bool) -> None:
    x = integers(0, 4, 3, 40)
    values, places = run(lambda x: sort(x, 1, descending), x)
    key = -x if descending else x
    np.testing.assert_array_equal(places, np.argsort(key, 1, kind="stable"))
    np.testing.assert_array_equal(values, np.take_along_axis(x, places, 1))


def test_nan_counts_as_greatest() -> None:
    x = np.array([2.0, np.nan, -np.inf, 1.0])
    np.testing.assert_array_equal(run(argsort, x), [2, 3, 0, 1])
    np.testing.assert_array_equal(run(lambda x: argsort(x, descending=True), x), [1, 0, 3, 2])
    assert np.isnan(run(lambda x: median(x, 0), x)[0])


def test_topk_kthvalue_and_median_agree_with_sorting() -> None:
    x = normal(4, 7)
    ordered = np.sort(x, 1)
    np.testing.assert_array_equal(run(lambda x: topk(x, 3), x)[0], ordered[:, :-4:-1])
    np.testing.assert_array_equal(run(lambda x: topk(x, 2, largest=False), x)[0], ordered[:, :2])
    np.testing.assert_array_equal(run(lambda x: kthvalue(x, 5), x)[0], ordered[:, 4])
    np.testing.assert_array_equal(run(lambda x: median(x, 1), x)[0], np.median(x, 1))
    with pytest.raises(RuntimeError, match="out of range"):
        record(lambda x: topk(x, 8), x)


@pytest.mark.parametrize("right", [False, True])
def test_searchsorted_agrees_with_numpy(right: bool) -> None:
    lines, values = np.sort(integers(0, 9, 2, 6), 1), integers(-1, 10, 2, 5)
    found = run(lambda s, v: searchsorted(s, v, right), lines, values)
    for line, value, place in zip(lines, values, found, strict=True):
        np.testing.assert_array_equal(place, np.searchsorted(line, value, "right" if right else "left"))


def test_data_dependent_results_are_eager_only() -> None:
    x: Any = np.array([3, 1, 3, 0])
    np.testing.assert_array_equal(Nonzero().eager(x), [[0], [1], [2]])
    values, places, counts = Unique(None).eager(x)
    np.testing.assert_array_equal(values[places], x)
    np.testing.assert_array_equal(counts, [1, 1, 2])
    values, places, counts = UniqueConsecutive(None).eager(np.array([2, 2, 1, 2]))
    assert (values.tolist(), places.tolist(), counts.tolist()) == ([2, 1, 2], [0, 0, 1, 2], [2, 1, 1])
    np.testing.assert_array_equal(Bincount(6).eager(x), [1, 1, 0, 2, 0, 0])
    with pytest.raises(TraceError, match="depends on the data"):
        record(nonzero, x)
