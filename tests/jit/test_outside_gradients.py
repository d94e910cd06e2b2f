"""Gradients that go on through an argument's own history, whatever the step does to the argument and what it keeps.

Law: the call leaves what eager mode leaves. Where eager mode raises, the step raises and has changed nothing; where it
runs line by line, which it tells, it stops where eager mode stops.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.core.errors import TraceError

Change = Callable[[aj.Tensor], Any]

CHANGES: dict[str, Change] = {
    "nothing": lambda x: None,
    "numbers": lambda x: x.mul_(2),
    "mask": lambda x: x.masked_fill_(x > 0, 0.5),
    "item": lambda x: x.__setitem__(x > 1, 0.0),
    "part": lambda x: x[:, ::2].mul_(3),
    "zeros": lambda x: x.zero_(),
    "without history": lambda x: x.data.mul_(2),
    "form": lambda x: x.t_(),
    "view and form": lambda x: (x.t_(), x[1:].mul_(2)),
    "detached": lambda x: x.detach_(),
}
HISTORIES: dict[str, Change] = {
    "keeps nothing": lambda w: w * 1,
    "keeps its operand": lambda w: w * w,
    "keeps its result": lambda w: w.exp(),
    "lies in columns": lambda w: (w * 2).T,
    "is a view": lambda w: (w * 2)[:3],
}


def told(tensors: list[aj.Tensor]) -> list[Any]:
    return [(t.shape, t.stride(), t._version, t.detach().numpy().copy(), t.requires_grad) for t in tensors]


def assert_same(before: list[Any], after: list[Any]) -> None:
    for a, b in zip(before, after, strict=True):
        assert (a[0], a[1], bool(a[2]), a[4]) == (b[0], b[1], bool(b[2]), b[4])
        np.testing.assert_allclose(a[3], b[3], rtol=1e-12)  # a few roundings of float64


def called(jit: Any, changes: Change, history: Change, when: str, keeps: bool) -> tuple[Any, list[Any], list[Any], Any]:
    """The error of a call, what there was before and after it (the last is the gradient of the leaf), and the step."""

    def step(x: aj.Tensor, y: aj.Tensor) -> aj.Tensor:
        y.add_(1)
        if when == "before":
            changes(x)
        loss = (x * x).sum() + (x.sum() * y).sum()
        loss.backward(retain_graph=keeps)
        if when == "after":
            with aj.no_grad():
                changes(x)
        return loss.detach()

    compiled = jit(step)
    for _ in range(2):
        w = (aj.arange(16, dtype=aj.float64).reshape(4, 4).sin() * 2).requires_grad_()
        x, y = history(w), aj.ones(2, dtype=aj.float64)
        before, error = told([x, y, w]), None
        try:
            compiled(x, y)
        except RuntimeError as raised:
            error = raised
        after = told([x, y, w, *([w.grad] if w.grad is not None else [])])
    return error, before, after, compiled


@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("history", HISTORIES)
@pytest.mark.parametrize("change", CHANGES)
def test_a_gradient_goes_on_through_a_changed_argument_as_eagerly(
    change: str, history: str, when: str, keeps: bool
) -> None:
    error, _, expected, _ = called(lambda f: f, CHANGES[change], HISTORIES[history], when, keeps)
    raised, before, found, step = called(aj.jit, CHANGES[change], HISTORIES[history], when, keeps)
    if isinstance(raised, TraceError):  # a form of its own and a history that the caller can differentiate
        assert change == "view and form"
        assert_same(before, found)
        return
    assert (error is None) == (raised is None), raised or error
    is_eager = error is None or "ran line by line" in step.explain()
    assert_same(expected if is_eager else before, found)


def test_what_a_history_keeps_is_read_before_the_step_changes_it() -> None:
    def left(jit: Any) -> Any:
        buffer = aj.full((3,), 2.0, dtype=aj.float64)

        @jit
        def step(x: aj.Tensor) -> None:
            (x * x).sum().backward()
            buffer.add_(1)

        found = []
        for _ in range(3):
            w = aj.ones(3, dtype=aj.float64, requires_grad=True)
            step(w * buffer)
            found.append(w.grad.numpy().copy())
        return found

    np.testing.assert_array_equal(left(lambda f: f), left(aj.jit))


@pytest.mark.parametrize("history", ["freed", "changed", "without derivative"])
def test_a_history_that_is_of_no_use_is_found_before_anything_is_written(history: str) -> None:
    buffer = aj.zeros(3)

    @aj.jit
    def step(x: aj.Tensor) -> None:
        buffer.add_(1)
        x.mul_(2)
        (x * x).sum().backward()

    step(aj.ones(3, requires_grad=True) * 2)
    w = aj.ones(3, requires_grad=True)
    kept = w * 1
    x = kept * kept
    if history == "freed":
        x.sum().backward()
    elif history == "changed":
        kept.detach().add_(1)
    before = told([x, w, buffer])
    if history == "without derivative":
        x = aj.unique(w * aj.arange(1.0, 4.0))
        before = told([x, w, buffer])
        with pytest.raises(NotImplementedError):
            step(x)
    else:
        with pytest.raises(RuntimeError, match="modified by an inplace" if history == "changed" else "a second time"):
            step(x)
    assert_same(before, told([x, w, buffer]))
