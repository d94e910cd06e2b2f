"""Version counters move with a compiled call where they move with an eager one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj

Wrap = Callable[[Callable[..., Any]], Any]


def _onto_itself(x: aj.Tensor, w: aj.Tensor) -> None:
    w.copy_(w)
    x.copy_(x)


def _through_data(x: aj.Tensor, w: aj.Tensor) -> aj.Tensor:
    w.data.add_(1)
    x.data.add_(1)
    x.data[0].mul_(2)
    return w.sum()


def _both(x: aj.Tensor, w: aj.Tensor) -> None:
    w.add_(1)
    w.data.mul_(2)
    x.data.add_(1)
    x.mul_(2)


def _form(x: aj.Tensor, w: aj.Tensor) -> None:
    x.t_()
    w[0].zero_()


def _detached(x: aj.Tensor, w: aj.Tensor) -> None:
    x.detach().add_(1)
    w.detach().copy_(w)


def _several_times(x: aj.Tensor, w: aj.Tensor) -> None:
    for _ in range(3):
        w.add_(x)
        w[0].mul_(2.0)
        x.sub_(1.0)


def _nothing(x: aj.Tensor, w: aj.Tensor) -> aj.Tensor:
    return x.data + w.data


BODIES = [_onto_itself, _through_data, _both, _form, _detached, _several_times, _nothing]


def _run(jit: Wrap, body: Callable[..., Any]) -> list[Any]:
    w = aj.ones(3, 3)
    step = jit(lambda x: body(x, w))
    found = []
    for _ in range(4):
        x = aj.ones(3, 3)
        before = x._version, w._version
        step(x)
        found.append([x._version - before[0], w._version - before[1], x.tolist(), w.tolist()])
    return found


@pytest.mark.parametrize("body", BODIES)
def test_versions_move_as_in_eager_mode(body: Callable[..., Any]) -> None:
    assert _run(aj.jit, body) == _run(lambda f: f, body)
