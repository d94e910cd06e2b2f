"""A call whose function is captured more than once uses up the histories outside once, as eager mode does."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import autojit as aj

Make = Callable[[Any], Any]


class Squared(aj.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 2 * x * grad


HISTORIES: dict[str, Make] = {
    "product": lambda w: w * w,
    "exp": lambda w: w.exp() * 2,
    "function": Squared.apply,
    "view": lambda w: (w * w)[:1],
    "nothing kept": lambda w: w + 1,
}


def _backward(at: Any, y: Any) -> Any:
    loss = (at.h * y.sum()).sum()
    loss.backward()
    return loss.detach()


def _grad(at: Any, y: Any) -> Any:
    (grad,) = aj.autograd.grad((at.h * y.sum()).sum(), (at.w,))
    return grad


def _counted(at: Any, y: Any) -> Any:  # what it assigns is found by the first capture
    at.count += 1
    return _backward(at, y) * at.count


def _appends(at: Any, y: Any) -> Any:
    found = _backward(at, y)
    at.log.append(found.item())
    return found


def _decides(at: Any, y: Any) -> Any:
    found = _backward(at, y)
    return found * 2 if y.sum() > 5 else found


STEPS = {f.__name__.strip("_"): f for f in (_backward, _grad, _counted, _appends, _decides)}


def _program(make: Make, step: Callable[[Any, Any], Any], jit: Callable[[Any], Any], again: bool) -> list[Any]:
    w = aj.ones(2, requires_grad=True)
    at = SimpleNamespace(w=w, h=None, count=0, log=[])
    run, found = jit(lambda y: step(at, y)), []
    for n in (4, 5, 6, 1, 7, 7):
        at.h = make(w)
        for _ in range(1 + again):
            try:
                found.append(run(aj.ones(n)).tolist())
            except RuntimeError as error:
                found.append("a second time" in str(error))
            found.append((None if w.grad is None else w.grad.tolist(), at.count, len(at.log)))
            if found[-2] is True:  # a call that raises has changed nothing; eager mode stops where it is
                at.count, at.log[:] = 0, []
                found[-1] = None
    return found


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("made", HISTORIES)
def test_a_history_is_used_up_once_by_a_call(made: str, name: str) -> None:
    """The capture with open sizes is recorded twice: the second met what the first had freed."""
    args = HISTORIES[made], STEPS[name]
    for again in (False, True):
        assert _program(*args, aj.jit, again) == _program(*args, lambda f: f, again)


def test_a_capture_that_raises_uses_up_nothing() -> None:
    w = aj.ones(2, requires_grad=True)
    at = SimpleNamespace(h=w * w, fails=True)

    @aj.jit
    def step(y: Any) -> Any:
        loss = (at.h * y.sum()).sum()
        loss.backward()
        if at.fails:
            raise ValueError
        return loss.detach()

    for n in (3, 4):
        with pytest.raises(ValueError):
            step(aj.ones(n))
    at.fails = False
    assert step(aj.ones(4)).item() == 8
    assert w.grad is not None and w.grad.tolist() == [8.0, 8.0]
    with pytest.raises(RuntimeError, match="a second time"):
        step(aj.ones(4))
