from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import autojit as aj
from autojit.core.dtypes import float64
from autojit.core.strided_views import as_strided
from autojit.ops import Permute, Reshape, Slice, ViewUpdate, diagonal, unfold
from tests.ops.running import normal, record, run


@pytest.mark.parametrize("offset", [-3, -1, 0, 2, 9])
def test_diagonal_agrees_with_numpy(offset: int) -> None:
    x = normal(3, 4, 5)
    np.testing.assert_array_equal(run(lambda x: diagonal(x, offset, 2, 0), x), np.diagonal(x, offset, 2, 0))


def test_unfold_agrees_with_sliding_windows() -> None:
    x = normal(3, 11)
    expected = np.lib.stride_tricks.sliding_window_view(x, 4, 1)[:, ::3]
    np.testing.assert_array_equal(run(lambda x: unfold(x, -1, 4, 3), x), expected)


def test_unfold_refuses_windows_longer_than_the_axis() -> None:
    with pytest.raises(RuntimeError, match="maximum size for tensor at dimension 0 is 3 but size is 4"):
        record(lambda x: unfold(x, 0, 4, 1), normal(3))


@pytest.mark.parametrize(("op", "inputs"), ViewUpdate.samples(float64), ids=str)
def test_expanding_a_view_update_gives_the_same(op: ViewUpdate, inputs: tuple[NDArray[Any], ...]) -> None:
    np.testing.assert_array_equal(run(op.expand, *inputs), op.eager(*inputs))


def test_a_view_update_writes_through_a_reshape_that_copies() -> None:
    chain = (Permute((1, 0)), Reshape((12,)), Slice((2,), (11,), (4,)))
    base, piece = normal(3, 4), normal(3, seed=1)
    expected = base.T.copy()
    expected.reshape(-1)[2:11:4] = piece
    np.testing.assert_array_equal(ViewUpdate(chain).eager(base, piece), expected.T)


def test_an_empty_chain_replaces_the_base() -> None:
    base, piece = normal(3), normal(3, seed=1)
    np.testing.assert_array_equal(ViewUpdate(()).eager(base, piece), piece)
    np.testing.assert_array_equal(run(ViewUpdate(()).expand, base, piece), piece)


def test_windows_that_overlap_are_written_as_in_eager_mode() -> None:
    def step(x: aj.Tensor) -> aj.Tensor:
        x.unfold(0, 3, 1).mul_(2)
        return x * 1

    assert aj.jit(step)(aj.arange(6.0)).tolist() == step(aj.arange(6.0)).tolist()


def test_views_by_strides_are_those_of_numpy() -> None:
    whole = np.arange(24.0)
    cases = [
        (whole, (3, 4), (8, 24)), (whole.reshape(4, 6), (4,), (56,)), (whole[:6], (4, 6), (48, 8)),
        (whole.reshape(4, 6)[:, 1:], (2, 2), (48, 16)), (whole[:0], (0, 3), (8, 8)),
        (whole[5:6].reshape(()), (3,), (0,)),
    ]  # fmt: skip
    for x, shape, strides in cases:
        found, expected = as_strided(x, shape, strides), np.lib.stride_tricks.as_strided(x, shape, strides)
        np.testing.assert_array_equal(found, expected)
        assert (found.strides, found.flags.writeable) == (expected.strides, expected.flags.writeable)
        assert not found.size or np.shares_memory(found, whole)
    whole.flags.writeable = False
    assert not as_strided(whole, (3,), (8,)).flags.writeable


def test_what_a_mask_chooses_is_what_numpy_chooses() -> None:
    for x, mask in (((5,), (5,)), ((3, 4), (3, 4)), ((3, 1), (4,)), ((), ()), ((0,), (0,)), ((2,), (3, 1))):
        a = np.random.default_rng(1).normal(size=x)
        chosen = np.random.default_rng(2).random(mask) < 0.5
        t = aj.tensor(a, requires_grad=True)
        found = aj.masked_select(t, aj.tensor(chosen))
        elements, kept = np.broadcast_arrays(a, chosen)
        np.testing.assert_array_equal(found.detach().numpy(), elements[kept])
        (slope,) = aj.autograd.grad(found.sum(), t)
        (expected,) = aj.autograd.grad((t * aj.tensor(chosen)).sum(), t)
        assert aj.equal(slope, expected)
