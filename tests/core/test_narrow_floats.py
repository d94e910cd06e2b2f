"""Floats of one byte are kept, moved, compared and converted, as torch rounds them."""

from __future__ import annotations

import math
import pickle
from pathlib import Path

import numpy as np
import pytest

import autojit as aj

VALUES = [1.0, 2.5, -300.0, 500.0, 1e-5, math.nan, math.inf]
ROUNDED = {  # by torch 2.13
    "float8_e4m3fn": [1.0, 2.5, -288.0, 448.0, 0.0, math.nan, 448.0],
    "float8_e5m2": [1.0, 2.5, -320.0, 512.0, 1.52587890625e-05, math.nan, math.inf],
    "float8_e4m3fnuz": [1.0, 2.5, math.nan, math.nan, 0.0, math.nan, math.nan],
    "float8_e5m2fnuz": [1.0, 2.5, -320.0, 512.0, 7.62939453125e-06, math.nan, math.nan],
}


@pytest.mark.parametrize("name", ROUNDED)
def test_conversions_round_as_torch(name: str) -> None:
    dtype = getattr(aj, name)
    for x in (aj.tensor(VALUES), aj.tensor(VALUES, dtype=aj.float64)):
        np.testing.assert_array_equal(x.to(dtype).float().numpy(), ROUNDED[name])
        np.testing.assert_array_equal(aj.jit(lambda x: x.to(dtype).float())(x).numpy(), ROUNDED[name])
    assert dtype.is_floating_point
    assert dtype.itemsize == 1


def test_they_are_kept_moved_and_compared() -> None:
    x = aj.tensor([1.0, 2.5, -3.0]).to(aj.float8_e4m3fn)
    assert x[1:].tolist() == [2.5, -3.0]
    assert aj.cat([x, x]).shape == (6,)
    assert (x == x).all()
    assert x.view(aj.uint8).dtype is aj.uint8
    assert aj.zeros(2, dtype=aj.float8_e5m2).tolist() == [0.0, 0.0]
    assert x.clone().copy_(aj.ones(3)).tolist() == [1.0, 1.0, 1.0]
    assert pickle.loads(pickle.dumps(x)).equal(x)
    assert aj.finfo(aj.float8_e4m3fn).max == 448.0
    assert "float8_e5m2" in repr(aj.ones(1).to(aj.float8_e5m2))
    assert aj.tensor([1.0, 3.0]).to(aj.float8_e8m0fnu).float().tolist() == [1.0, 4.0]


def test_conversions_differentiate() -> None:
    x = aj.tensor([1.0, 2.0], requires_grad=True)
    (slope,) = aj.autograd.grad(x.to(aj.float8_e5m2).float().sum(), x)
    assert slope.tolist() == [1.0, 1.0]


def test_they_are_not_promoted() -> None:
    with pytest.raises(RuntimeError, match="Promotion for Float8"):
        aj.promote_types(aj.float8_e4m3fn, aj.float32)
    with pytest.raises(RuntimeError, match="Promotion for Float8"):
        aj.ones(2).to(aj.float8_e4m3fn) + aj.ones(2)


def test_they_are_saved_and_loaded(tmp_path: Path) -> None:
    values = {"a": aj.tensor([1.0, -2.0]).to(aj.float8_e4m3fn), "b": aj.tensor([[0.5]]).to(aj.float8_e5m2)}
    aj.io.save(values, tmp_path / "values.safetensors")
    found = aj.io.load(tmp_path / "values.safetensors")
    assert {name: (t.dtype, t.tolist()) for name, t in found.items()} == {
        name: (t.dtype, t.tolist()) for name, t in values.items()
    }
