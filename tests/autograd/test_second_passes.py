"""A second backward pass is allowed where torch's node keeps nothing: constants that a function made itself last."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
import autojit.nn.functional as F

Function = Callable[[Any], Any]

ALLOWED: dict[str, Function] = {
    "tril": lambda x: x.tril(),
    "triu": lambda x: aj.triu(x, 1),
    "diag": lambda x: aj.diag(x[0]),
    "diag_embed": lambda x: x.diag_embed(),
    "diagflat": lambda x: x[:2].diagflat(),
    "pad": lambda x: F.pad(x, (1, 2), value=3.0),
    "crop": lambda x: F.pad(x, (-1, 2)),
    "nearest": lambda x: F.interpolate(x[None], scale_factor=2),
    "linear": lambda x: F.interpolate(x[None], size=7, mode="linear"),
    "bicubic": lambda x: F.interpolate(x[None, None], size=(5, 6), mode="bicubic"),
    "area": lambda x: F.interpolate(x[None], size=3, mode="area"),
    "upsample": lambda x: F.upsample_bilinear(x[None, None], scale_factor=2),
    "adaptive": lambda x: F.adaptive_avg_pool1d(x[None], 3),
    "add": lambda x: aj.add(aj.ones(x.shape[-1], dtype=x.dtype), x, alpha=2),
    "sub": lambda x: x.sub(x.sum(0), alpha=0.5),
    "rsub": lambda x: aj.rsub(x, 1.0, alpha=3),
    "lerp": lambda x: aj.lerp(x, x.flip(0), 0.3),
    "frac": lambda x: x.frac(),
    "deg2rad": lambda x: x.deg2rad(),
    "rad2deg": lambda x: aj.rad2deg(x),
    "round": lambda x: x.round(decimals=2),
    "gradient": lambda x: aj.gradient(x, spacing=2.0)[0],
    "trapezoid": lambda x: aj.trapezoid(x, dx=0.5),
    "cumulative_trapezoid": lambda x: aj.cumulative_trapezoid(x, dx=0.5),
    "lu_unpack": lambda x: aj.lu_unpack(x, aj.arange(1, x.shape[-1] + 1, dtype=aj.int32)).U,
    "two of them": lambda x: F.pad(x.tril(), (1, 1)).deg2rad(),
}
REFUSED: dict[str, Function] = {
    "by a number": lambda x: x * 2,
    "by what the user made": lambda x: x * aj.rand(x.shape[-1], dtype=x.dtype),
    "lerp of a tensor": lambda x: aj.lerp(x, x.flip(0), x.detach()),
    "tanhshrink": lambda x: F.tanhshrink(x),
    "masked": lambda x: x.masked_fill(x > 0, 0.0),
    "behind one that keeps": lambda x: x.exp().tril(),
    "before one that keeps": lambda x: x.tril().exp(),
    "clamp": lambda x: x.clamp(-0.5, 0.5),
}


def values(n: int) -> aj.Tensor:
    return aj.arange(n * n, dtype=aj.float64).reshape(n, n).sin().requires_grad_()


def passes(f: Function, n: int) -> Any:
    """The leaf's gradient after each pass of two."""
    x = values(n)
    y = f(x)
    y.backward(aj.ones_like(y))
    assert x.grad is not None
    first = x.grad.numpy().copy()
    y.backward(aj.ones_like(y))
    return first, x.grad.numpy()


def inside(f: Function, n: int) -> Any:
    """``passes`` of a step that makes both."""
    x = values(n)

    @aj.jit
    def step(x: aj.Tensor) -> aj.Tensor:
        y = f(x)
        y.backward(aj.ones_like(y))
        first = x.grad.clone()
        y.backward(aj.ones_like(y))
        return first

    first = step(x)
    assert x.grad is not None
    return first.numpy(), x.grad.numpy()


WAYS: dict[str, Callable[[Function, int], Any]] = {
    "eager": passes,
    "of a compiled call": lambda f, n: passes(aj.jit(f), n),
    "in a step": inside,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("n", [4, 160])
@pytest.mark.parametrize("name", ALLOWED)
def test_constants_made_by_a_function_outlast_a_backward_pass(name: str, n: int, way: str) -> None:
    if n > 4 and name in ("diag_embed", "diagflat"):
        n = 40
    first, second = WAYS[way](ALLOWED[name], n)
    np.testing.assert_array_equal(second, 2 * first)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("n", [4, 160])
@pytest.mark.parametrize("name", REFUSED)
def test_what_torch_saves_is_freed(name: str, n: int, way: str) -> None:
    with pytest.raises(RuntimeError, match="a second time"):
        WAYS[way](REFUSED[name], n)


@pytest.mark.parametrize("jit", [lambda f: f, aj.jit])
@pytest.mark.parametrize("n", [4, 160])
@pytest.mark.parametrize("name", ["tril", "triu", "pad", "diag", "deg2rad", "lerp", "nearest"])
def test_operands_may_change_before_backward_where_nothing_is_kept(name: str, n: int, jit: Any) -> None:
    def gradient(is_changed: bool) -> Any:
        w = values(n)
        x = w * 1
        y = jit(ALLOWED[name])(x)
        if is_changed:
            with aj.no_grad():
                x.zero_()
        y.backward(aj.ones_like(y))
        assert w.grad is not None
        return w.grad.numpy()

    np.testing.assert_array_equal(gradient(True), gradient(False))
