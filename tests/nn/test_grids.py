"""affine_grid and grid_sample: values at whole positions, laws of padding, derivatives, compiled steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autojit as aj
import autojit.nn.functional as F
from autojit.autograd import gradcheck, gradgradcheck

IDENTITY = aj.tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]], dtype=aj.float64)


def image(*shape: int) -> aj.Tensor:
    return aj.arange(float(np.prod(shape)), dtype=aj.float64).reshape(shape)


@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_the_identity_map_gives_the_image_back(mode: str, aligned: bool) -> None:
    x = image(1, 2, 3, 4)
    grid = F.affine_grid(IDENTITY, x.shape, aligned)
    assert aj.allclose(F.grid_sample(x, grid, mode, align_corners=aligned), x)


def test_a_volume_is_sampled_along_three_axes() -> None:
    x = image(1, 1, 2, 3, 4)
    theta = aj.eye(4, dtype=aj.float64)[None, :3]
    assert aj.allclose(F.grid_sample(x, F.affine_grid(theta, x.shape, False), align_corners=False), x)
    middle = F.grid_sample(x, aj.zeros(1, 1, 1, 1, 3, dtype=aj.float64), align_corners=True)
    assert middle.item() == x.mean().item()


@pytest.mark.parametrize(
    ("padding", "expected"), [("zeros", [0.0, 0.0]), ("border", [0.0, 3.0]), ("reflection", [1.0, 2.0])]
)
def test_what_lies_outside_follows_the_padding(padding: str, expected: list[float]) -> None:
    line = image(1, 1, 1, 4)
    places = aj.tensor([-1.0, 4.0], dtype=aj.float64) * (2 / 3) - 1  # one sample beyond either end
    grid = aj.stack([places, aj.zeros_like(places)], -1)[None, None]
    assert F.grid_sample(line, grid, "nearest", padding, align_corners=True).flatten().tolist() == expected


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_grid_sample_is_differentiable_twice(mode: str, padding: str) -> None:
    aj.manual_seed(0)
    x = aj.randn(1, 2, 3, 3, dtype=aj.float64).requires_grad_()
    grid = (aj.rand(1, 2, 2, 2, dtype=aj.float64) * 2.4 - 1.2).requires_grad_()
    assert gradcheck(lambda x, g: F.grid_sample(x, g, mode, padding, False), (x, grid))
    assert gradgradcheck(lambda x, g: F.grid_sample(x, g, mode, padding, False), (x, grid), fast_mode=True)


def test_nearest_sampling_has_derivative_zero_by_the_positions() -> None:
    grid = aj.zeros(1, 1, 1, 2, requires_grad=True)
    (slope,) = aj.autograd.grad(F.grid_sample(aj.ones(1, 1, 2, 2), grid, "nearest", align_corners=True).sum(), grid)
    assert not slope.any()


def test_a_spatial_transformer_compiles_to_one_step() -> None:
    x, theta = aj.randn(2, 3, 5, 6), IDENTITY.float().repeat(2, 1, 1).requires_grad_()

    def step(x: aj.Tensor, theta: aj.Tensor) -> Any:
        loss = F.grid_sample(x, F.affine_grid(theta, x.shape, False), align_corners=False).square().sum()
        return loss, aj.autograd.grad(loss, theta)[0]

    compiled = aj.jit(step)
    compiled(x, theta)
    for found, expected in zip(compiled(x, theta), step(x, theta), strict=True):
        assert aj.allclose(found, expected, rtol=1e-4, atol=1e-4)
    assert compiled.stats()["fallbacks"] == 0


def test_bad_grids_are_refused() -> None:
    x = aj.ones(1, 1, 2, 2)
    with pytest.raises(ValueError, match="expected mode"):
        F.grid_sample(x, aj.zeros(1, 1, 1, 2), "linear")
    with pytest.raises(ValueError, match="padding_mode"):
        F.grid_sample(x, aj.zeros(1, 1, 1, 2), padding_mode="wrap")
    with pytest.raises(RuntimeError, match="same batch size"):
        F.grid_sample(x, aj.zeros(2, 1, 1, 2), align_corners=False)
    with pytest.raises(RuntimeError, match="size 2 in last dimension"):
        F.grid_sample(x, aj.zeros(1, 1, 1, 3), align_corners=False)
    with pytest.raises(RuntimeError, match="same dtype"):
        F.grid_sample(x, aj.zeros(1, 1, 1, 2, dtype=aj.float64), align_corners=False)
    with pytest.raises(ValueError, match="Nx2x3"):
        F.affine_grid(aj.ones(1, 3, 3), (1, 1, 2, 2), False)
    with pytest.raises(NotImplementedError):
        F.affine_grid(IDENTITY, (1, 1, 2), False)
    with pytest.warns(UserWarning, match="align_corners"):
        F.affine_grid(IDENTITY, (1, 1, 2, 2))
