"""Sizes that are made of open ones (``n // 2``, ``n - 1``, ``n % 3``) and become 1 or 0, and those that a step counts.

What is special there is so in a step too: views are in row-major order, what copies shows the same memory, divisors are
0. A table of functions and one of views times the sizes, in an order in which each kind comes first once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
from tests.covering import covering

pytestmark = pytest.mark.filterwarnings("ignore:.*degrees of freedom is <= 0")  # a step of open sizes does not tell

F = aj.nn.functional
ORDERS = ((8, 6, 3, 2, 5, 1), (3, 2, 7, 8), (4, 5, 2, 3, 6))
IMAGE = aj.arange(24.0).reshape(1, 6, 4)
MATRIX = (aj.arange(24.0).reshape(4, 6) - 9) / 7


def _cube(x: aj.Tensor) -> aj.Tensor:
    return x[:, None, None] + aj.arange(12.0).reshape(3, 4)


VIEWS: dict[str, Callable[[aj.Tensor, int], aj.Tensor]] = {
    "first": lambda x, n: _cube(x)[:n],
    "first of transposed": lambda x, n: _cube(x).transpose(0, 1)[:, :n],
    "last": lambda x, n: _cube(x).permute(1, 2, 0)[..., :n],
    "transposed": lambda x, n: x[:, None].expand(-1, 3).contiguous()[:n].t(),
    "square": lambda x, n: (x[:, None] + x)[:n, :n],
    "square, transposed": lambda x, n: (x[:, None] + x)[:n, :n].t(),
    "steps": lambda x, n: x[::n],
    "expanded": lambda x, n: x[:n].expand(3, -1),
    "one less": lambda x, n: _cube(x).permute(2, 1, 0)[..., : n - 1],
    "remainder": lambda x, n: _cube(x)[: x.shape[0] % 3].transpose(0, 2),
    "unsqueezed": lambda x, n: x[:n].unsqueeze(0).t(),
    "diagonal": lambda x, n: (x[:, None] + x).diagonal()[:n],
}


def _asked(view: Any) -> Any:
    def function(x: aj.Tensor) -> Any:
        y = view(x, x.shape[0] // 2)
        return y.is_contiguous(), y.stride(), y.reshape(-1).stride(), y.contiguous().stride(), y + 1

    return function


def _written_to(view: Any) -> Any:
    def function(x: aj.Tensor) -> Any:
        y = view(x.clone(), x.shape[0] // 2)
        a = y.reshape(-1)
        a += 1
        b = y.contiguous()
        b *= 2
        c = y.flatten()
        c -= 3
        return y, a, b, c

    return function


def _viewed(view: Any) -> Any:
    return lambda x: view(x, x.shape[0] // 2).view(-1)


def _image(axes: int, mode: str, aligned: bool) -> Any:
    image = IMAGE.reshape(1, 6, *([4] * (axes > 0)), *([1] * (axes - 1)))
    return lambda x, n: F.interpolate(image, size=(n,) * axes, mode=mode, align_corners=aligned)


FUNCTIONS: dict[str, Callable[[aj.Tensor, int], Any]] = {
    **{
        f"interpolate {mode} {aligned}": _image(axes, mode, aligned)
        for mode, axes in (("linear", 1), ("bilinear", 2), ("bicubic", 2), ("trilinear", 3))
        for aligned in (True, False)
    },
    "interpolate from": lambda x, n: F.interpolate(x[None, None, :n], size=5, mode="linear", align_corners=True),
    "linspace": lambda x, n: aj.linspace(2, 5, n),
    "hann_window": lambda x, n: aj.hann_window(n, periodic=False),
    "affine_grid": lambda x, n: F.affine_grid(aj.eye(2, 3)[None], (1, 1, n, 3), align_corners=True),
    "adaptive_avg_pool1d": lambda x, n: F.adaptive_avg_pool1d(IMAGE, n),
    "std": lambda x, n: x[:n].std(),
    "squeeze": lambda x, n: x[:n].squeeze(),
    "broadcast": lambda x, n: x[:n] + aj.ones(3),
    "expand": lambda x, n: x[:n].expand(4),
    "batch_norm": lambda x, n: F.batch_norm(MATRIX[:n], None, None, training=True),
    "unfold": lambda x, n: x.unfold(0, n, 1),
    "item": lambda x, n: x[:n].item(),
    "roll": lambda x, n: x[: n - 1].roll(1),
    "max": lambda x, n: x[: n - 1].max(),
    "eye": lambda x, n: aj.eye(n),
}
OF_COUNTED: dict[str, Callable[[aj.Tensor], Any]] = {
    "squeeze": lambda y: y.squeeze(),
    "roll": lambda y: y.roll(1),
    "max": lambda y: y.max(),
    "amin": lambda y: y.amin(),
    "argmax": lambda y: y.argmax(0),
    "std": lambda y: y.std(),
    "eye": lambda y: aj.eye((y > 0).sum().item()),
    "interpolate": lambda y: F.interpolate(IMAGE, size=(y > 0).sum().item(), mode="linear", align_corners=True),
}


def _outcome(function: Any, x: aj.Tensor) -> Any:
    try:
        found = function(x)
    except Exception as error:
        return type(error)
    parts = found if type(found) is tuple else (found,)
    return [
        (p.dtype, tuple(p.shape), p.is_contiguous(), p.detach().numpy()) if isinstance(p, aj.Tensor) else p
        for p in parts
    ]


def _compare(function: Any, arguments: list[aj.Tensor]) -> None:
    compiled = aj.jit(lambda x: function(x))
    for x in arguments:
        expected, found = _outcome(function, x), _outcome(compiled, x)
        assert str(found) == str(expected) or type(expected) is list, x.shape
        if type(expected) is list:
            for part, wanted in zip(found, expected, strict=True):
                assert part[:3] == wanted[:3] if type(wanted) is tuple and len(wanted) == 4 else part == wanted, x.shape
                if isinstance(wanted, tuple) and len(wanted) == 4:
                    np.testing.assert_allclose(part[3], wanted[3], rtol=1e-5, atol=1e-5)


def _lengths(sizes: tuple[int, ...]) -> list[aj.Tensor]:
    return [aj.arange(float(n)) + 0.5 for n in sizes]


@covering("view, way, sizes", VIEWS.values(), [_asked, _written_to, _viewed], ORDERS, every=2)
def test_views(view: Any, way: Any, sizes: tuple[int, ...]) -> None:
    _compare(way(view), _lengths(sizes))


@pytest.mark.parametrize("sizes", ORDERS[:2], ids=str)
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_functions(function: Any, sizes: tuple[int, ...]) -> None:
    _compare(lambda x: function(x, x.shape[0] // 2), _lengths(sizes))


@pytest.mark.parametrize("function", OF_COUNTED.values(), ids=OF_COUNTED)
def test_counted(function: Any) -> None:
    arguments = [aj.tensor([1.5, 2.5, 0.5, 4][:n] + [-1.0] * (5 - n)) for n in (4, 3, 1, 0, 2, 1)]
    _compare(lambda x: function(x[x > 0]), arguments)


def test_a_derived_size_that_stays_from_two_on_costs_no_capture() -> None:
    compiled = aj.jit(lambda x: _cube(x).transpose(0, 1)[:, : x.shape[0] // 2].reshape(-1))
    for x in _lengths((8, 6, 5, 9, 40)):
        compiled(x)
    assert compiled.stats()["captures"] == 2


DIFFERENTIATED: dict[str, Callable[[aj.Tensor], aj.Tensor]] = {
    **{f"{name} of a half": lambda x, f=name: getattr(x[: x.shape[0] // 2], f)(0) for name in ("cumprod", "cumsum")},
    "cumprod of columns": lambda x: x[:, : x.shape[1] - 1].cumprod(1),
    "sorted rest": lambda x: x[x.shape[0] // 2 :].sort(0).values,
    "prod of steps": lambda x: x[::2].prod(0),
    "differences of a chunk": lambda x: x[:, 0].chunk(2)[-1].diff(),
    "singular values": lambda x: aj.linalg.svdvals(x[1:-1]),
    "eigenvalues": lambda x: aj.linalg.eigvalsh(x[:, 1:] @ x[:, 1:].t()),
}


@pytest.mark.parametrize("function", DIFFERENTIATED.values(), ids=DIFFERENTIATED)
def test_derivatives_outside_of_the_step(function: Any) -> None:
    compiled = aj.jit(lambda x: function(x))
    for shape in ((4, 3), (5, 4), (6, 3), (9, 5), (3, 3)):
        found = []
        for call in (function, compiled):
            x = ((aj.arange(float(np.prod(shape))) * 0.37) % 2.1 + 0.3).reshape(shape).requires_grad_()
            y = call(x)
            y.square().sum().backward()
            found.append((y.detach().numpy(), x.grad.numpy()))
        for part, wanted in zip(found[1], found[0], strict=True):
            np.testing.assert_allclose(part, wanted, rtol=2e-3, atol=2e-3)
