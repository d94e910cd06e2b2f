"""Fake quantisation rounds to the grid, and its gradient is the identity's where nothing is cut off."""

from __future__ import annotations

import numpy as np
import pytest

import autojit as aj


def test_elements_go_to_the_grid_and_gradients_through_what_is_not_cut_off_eager_and_compiled() -> None:
    x = np.linspace(-2.0, 2.0, 81).astype(np.float32)
    scale, zero, least, most = 0.125, 3, -2, 9
    whole = np.rint(x / np.float32(scale)) + zero
    expected = (np.clip(whole, least, most) - zero) * np.float32(scale)

    def quantised(x: aj.Tensor, scale: float) -> tuple[aj.Tensor, aj.Tensor]:
        leaf = x.clone().requires_grad_()
        y = aj.fake_quantize_per_tensor_affine(leaf, scale, zero, least, most)
        (slope,) = aj.autograd.grad(y.sum(), leaf)
        return y.detach(), slope

    for run in (quantised, aj.jit(quantised)):
        y, slope = run(aj.from_numpy(x), scale)
        np.testing.assert_array_equal(y.numpy(), expected)
        np.testing.assert_array_equal(slope.numpy(), (whole >= least) & (whole <= most))


def test_per_channel_is_per_tensor_for_each_index() -> None:
    x = aj.from_numpy(np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32))
    scale, zero = aj.tensor([0.1, 0.2, 0.3]), aj.tensor([0, 1, -1], dtype=aj.int32)
    found = aj.fake_quantize_per_channel_affine(x, scale, zero, 1, -4, 5)
    for k in range(3):
        one = aj.fake_quantize_per_tensor_affine(x[:, k], scale[k], zero[k], -4, 5)
        np.testing.assert_array_equal(found[:, k].numpy(), one.numpy())


def test_ranges_that_are_none_are_refused() -> None:
    with pytest.raises(RuntimeError, match="less than or equal"):
        aj.fake_quantize_per_tensor_affine(aj.ones(2), 0.1, 0, 5, 4)
    with pytest.raises(RuntimeError, match="must be between"):
        aj.fake_quantize_per_tensor_affine(aj.ones(2), 0.1, 9, 0, 4)
    with pytest.raises(RuntimeError, match="one number for each"):
        aj.fake_quantize_per_channel_affine(aj.ones(2, 3), aj.ones(2), aj.zeros(2), 1, 0, 4)
