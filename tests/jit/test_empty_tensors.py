"""Tensors without elements go through every view, write and reduction of a step as they do in eager mode."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj

VIEWS: dict[str, Callable[[Any], Any]] = {
    "expand": lambda x: x.expand(2, *x.shape)[1],
    "transpose": lambda x: x.transpose(0, -1),
    "reshape": lambda x: x.reshape(*x.shape, 1),
    "flatten": lambda x: x.reshape(-1),
    "regrouped": lambda x: x.reshape(x.shape[0], 0) if 0 in x.shape[1:] else x.reshape(0, 3),
    "rows": lambda x: x[1:],
    "every second": lambda x: x[..., ::2],
    "unsqueeze": lambda x: x.unsqueeze(0),
    "narrow": lambda x: x.narrow(0, 0, x.shape[0] // 2),
    "unbound": lambda x: (x if x.shape[0] else x.transpose(0, -1)).unbind(0)[:1] or (x,),
}
MADE: dict[str, Callable[[], Any]] = {
    "no row": lambda: aj.zeros(0, 4),
    "no column": lambda: aj.zeros(3, 0),
    "none of three": lambda: aj.zeros(2, 0, 3),
    "a row expanded to none": lambda: aj.ones(1, 4).expand(0, 4),
    "a column expanded to none": lambda: aj.ones(3, 1).expand(3, 0),
    "a slice": lambda: aj.ones(3, 4)[:, 2:2],
    "nothing expanded": lambda: aj.zeros(0, 1).expand(0, 4),
    "nothing several times": lambda: aj.zeros(1, 0).expand(3, 0),
}


def applied(name: str, x: Any) -> Any:
    y = VIEWS[name](x)
    return y[0] if isinstance(y, tuple) else y


@pytest.mark.parametrize("made", MADE.values(), ids=MADE.keys())
@pytest.mark.parametrize("is_written", [False, True], ids=["read", "written"])
def test_two_views_of_nothing(made: Callable[[], Any], is_written: bool) -> None:
    for first, second in itertools.product(VIEWS, VIEWS):

        def run(x: Any, first: str = first, second: str = second) -> Any:
            y = applied(second, applied(first, x))
            if is_written:
                y.add_(1)
            return y * 2, y.sum(), (x + y.sum()).exp(), y.shape, y.stride()

        wanted = run(made())
        got = aj.jit(run)(made())
        for ours, theirs in zip(got, wanted, strict=True):
            if isinstance(theirs, aj.Tensor):
                assert (ours.shape, ours.tolist()) == (theirs.shape, theirs.tolist()), (first, second)
            else:
                assert ours == theirs, (first, second)


@pytest.mark.parametrize("made", MADE.values(), ids=MADE.keys())
@pytest.mark.parametrize("is_given", [False, True], ids=["outside", "given"])
def test_gradients_of_nothing_are_accumulated(made: Callable[[], Any], is_given: bool) -> None:
    def seen(jit: Callable[[Any], Any]) -> list[Any]:
        x = made().requires_grad_()
        step = jit(lambda y: ((y if is_given else x).tanh() ** 2).sum().backward())
        found: list[Any] = []
        for _ in range(3):
            step(x)
            found.append((x.grad.tolist(), x.grad.shape, x.grad.stride()))
        return found

    assert seen(aj.jit) == seen(lambda f: f)
