"""How long a program is does not limit it: nothing recurs as deep as the graph, wherever the call comes from."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import autojit as aj
from tests.covering import covering


def _stacked(x: Any) -> Any:
    return aj.stack([x * k for k in range(1000)]).sum(0)


def _rows(x: Any) -> Any:
    rows = (x * aj.arange(1200.0).reshape(400, 3)) / 1000
    return sum(r * r * (k + 1) for k, r in enumerate(rows)) / 400


def _padded(x: Any) -> Any:
    for _ in range(500):
        x = aj.nn.functional.pad(x[1:], (1, 0)) + 1
    return x


def _rolled(x: Any) -> Any:
    for _ in range(600):
        x = aj.cat([x[1:], x[:1]]) * 1.001
    return x


def _written(x: Any) -> Any:
    x = x * 1
    for k in range(300):
        x[k % 3] = x[(k + 1) % 3] * 1.001
    return x


def _long(x: Any) -> Any:
    for _ in range(800):
        x = (x * 1.0001).sin()
    return x


@covering("function, with_gradient", [_stacked, _rows, _padded, _rolled, _written, _long], [True, False], every=2)
def test_long_programs_are_compiled(function: Callable[[Any], Any], with_gradient: bool) -> None:
    def step(x: Any) -> Any:
        y = function(x)
        return aj.autograd.grad((y * y).sum(), x)[0] if with_gradient else y

    def given() -> Any:
        return aj.tensor([0.5, 1.0, 1.5], requires_grad=with_gradient)

    limit = sys.getrecursionlimit()
    found = aj.jit(step)(given())
    assert sys.getrecursionlimit() == limit
    np.testing.assert_allclose(found.detach().numpy(), step(given()).detach().numpy(), rtol=2e-4)


def test_a_call_from_deep_down_has_room() -> None:
    def below(depth: int, call: Callable[[], Any]) -> Any:
        return call() if depth == 0 else below(depth - 1, call)

    def chain(x: Any) -> Any:
        for _ in range(390):
            x = aj.where(x > 0, x.sin(), x) + 0.01
        return x

    frames = len(list(_frames()))
    step = aj.jit(chain)
    found = below(sys.getrecursionlimit() - frames - 150, lambda: step(aj.ones(3)))
    np.testing.assert_allclose(found.numpy(), chain(aj.ones(3)).numpy(), rtol=1e-4)


def _frames() -> Any:
    frame = sys._getframe()
    while frame is not None:
        yield frame
        frame = frame.f_back  # type: ignore[assignment]
