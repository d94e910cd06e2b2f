"""Large arrays of users' data begin where vectors do, and are what NumPy's own are otherwise."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.runtime.memory import (
    ALIGNED_FROM_BYTES,
    ALIGNMENT_BYTES,
    aligned_array,
    aligned_copy,
    owns_memory,
    zeros_array,
)

N = ALIGNED_FROM_BYTES  # elements: some of every dtype


@pytest.mark.parametrize("dtype", ["f4", "f8", "c16", "?", "i1", aj.bfloat16.numpy])
@pytest.mark.parametrize("make", [aligned_array, zeros_array])
def test_an_array_begins_at_a_line_of_the_cache(dtype: Any, make: Any) -> None:
    for shape in ((N,), (3, N // 2), (0, 5), (), (2, 2)):
        made = make(shape, np.dtype(dtype))
        assert made.shape == shape and made.dtype == np.dtype(dtype)
        assert made.flags.carray and owns_memory(made)
        assert made.nbytes < ALIGNED_FROM_BYTES or made.ctypes.data % ALIGNMENT_BYTES == 0
        assert make is aligned_array or not made.any()


def test_a_copy_is_in_the_order_of_what_it_copies() -> None:
    x = np.arange(2.0 * N).reshape(2, N)
    for given in (x, x.T, x[:, ::2], x[:, :3]):
        made = aligned_copy(given)
        np.testing.assert_array_equal(made, given)
        assert made.strides == given.copy("K").strides and not np.shares_memory(made, given)


def test_memory_goes_with_the_last_view() -> None:
    made = aligned_array((N,), "f8")
    memory = weakref.ref(made.base)
    view = made[1:].reshape(-1, 1)
    assert view.base is made and not owns_memory(view)
    del made
    assert memory() is not None
    del view
    gc.collect()
    assert memory() is None


@pytest.mark.parametrize("make", [
    lambda: aj.tensor(np.ones((N, 2))), lambda: aj.zeros(N), lambda: aj.empty(N, 3), lambda: aj.nn.Linear(N, 3).weight,
])  # fmt: skip
def test_data_and_parameters_are_aligned(make: Any) -> None:
    assert make().data_ptr() % ALIGNMENT_BYTES == 0
