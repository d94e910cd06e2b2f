"""``x.data = y`` in a step changes values and counts nothing, as in eager mode; ``set_`` and new shapes are errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj

Step = Callable[[Any, Any, Any], Any]


def _halved(x: Any, w: Any, v: Any) -> Any:
    w.data = w.data / 2
    return (w * x).sum().detach()


def _before_backward(x: Any, w: Any, v: Any) -> Any:
    y = (w * v).sum()
    v.data = v + 1  # what the product has kept is the tensor: its history is not spoilt
    y.backward()
    return y.detach()


def _of_an_argument(x: Any, w: Any, v: Any) -> Any:
    x.data = x * 2
    return x * w.detach()


def _program(jit: Callable[[Any], Any], step: Step) -> list[Any]:
    w, v = aj.arange(4.0).add(1).requires_grad_(), aj.ones(4)
    compiled = jit(lambda x: step(x, w, v))
    found = []
    for k in range(3):
        x = aj.ones(4) * (k + 1)
        result = compiled(x)
        grad = None if w.grad is None else w.grad.tolist()
        found.append((result.tolist(), [(t.tolist(), t._version) for t in (x, w, v)], grad))
    return found


@pytest.mark.parametrize("step", [_halved, _before_backward, _of_an_argument])
def test_data_is_given_as_in_eager_mode(step: Step) -> None:
    assert _program(aj.jit, step) == _program(lambda f: f, step)


def _set(x: Any, w: Any, v: Any) -> Any:
    v.add_(1)
    x.set_((x * 2).clone())
    return x


def _set_inside(x: Any, w: Any, v: Any) -> Any:
    v.add_(1)
    z = x * 2
    z.set_(x * 3)
    return z


def _of_another_shape(x: Any, w: Any, v: Any) -> Any:
    v.add_(1)
    x.data = aj.zeros(())
    return x


@pytest.mark.parametrize("step", [_set, _set_inside, _of_another_shape])
def test_memory_that_others_may_look_at_is_refused_and_nothing_is_changed(step: Step) -> None:
    w, v, base = aj.ones(4).requires_grad_(), aj.ones(4), aj.ones(6)
    with pytest.raises(aj.core.errors.TraceError, match="assign a new tensor"):
        aj.jit(lambda x: step(x, w, v))(base[1:5])
    assert v.tolist() == [1.0] * 4
    assert base.tolist() == [1.0] * 6
