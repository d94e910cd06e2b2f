"""A detached view outside a step, and the views of it: their base shows a part of the memory, not all of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj

Step = Callable[[Any, Any, Any], Any]  # of the detached view, a view of it, and the argument

STEPS: dict[str, Step] = {
    "read in a loop": lambda b, v, w: aj.scan(lambda c, z: (c + z * b.sum(), c * v.sum()), w, aj.ones(4, 3)),
    "changed": lambda b, v, w: v.add_(1).detach(),
    "changed and shown": lambda b, v, w: (b.add_(1).detach(), v.detach()[:1], v),
    "read with a gradient": lambda b, v, w: (w * b).sum() * v.sum(),
    "a part and the whole": lambda b, v, w: (b[1:] * 2, b.data[:1], v[1:]),
    "changed without history": lambda b, v, w: b.mul_(w.detach()),
}


def _program(step: Step, jit: Callable[[Any], Any], wants: bool) -> list[Any]:
    x = aj.arange(4.0)
    b = x[1:].detach()
    v = b[:2]
    if wants:
        b.requires_grad_()
        v = b[:2]
    w = aj.ones(3, requires_grad=True)
    run = jit(lambda w: step(b, v, w))
    found: list[Any] = []
    for _ in range(3):
        results = run(w)
        made = list(results) if isinstance(results, tuple) else [results]
        for t in made:
            found += [t.tolist(), t.requires_grad, t.stride()]
        sums = [t.sum() for t in made if t.requires_grad]
        if sums:
            aj.stack(sums).sum().backward()
        found += [t.tolist() for t in (x, b, v)] + [t._version for t in (x, b, v)]
        found += [None if t.grad is None else t.grad.tolist() for t in (w, b)]
    return found


_CASES = [(name, wants) for name in STEPS for wants in (False, True) if not (wants and name.startswith("changed"))]


@pytest.mark.parametrize(("name", "wants"), _CASES)
def test_a_step_sees_views_of_a_detached_view_as_eager_mode_does(name: str, wants: bool) -> None:
    assert _program(STEPS[name], aj.jit, wants) == _program(STEPS[name], lambda f: f, wants)


def test_a_history_in_place_that_a_step_cannot_leave_is_left_by_eager_mode() -> None:
    def left(wrap: Any) -> Any:
        x = aj.arange(4.0)
        b = x[1:].detach()
        v, w = b[:2], aj.ones(2, requires_grad=True)
        wrap(lambda w: v.add_(w))(w)
        b.sum().backward()
        return x.tolist(), x._version, b.requires_grad, type(v.grad_fn).__name__, w.grad.tolist()

    assert left(aj.jit) == left(lambda f: f)
