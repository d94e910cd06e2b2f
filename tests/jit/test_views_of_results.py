"""Views that a step returns have their gradients summed where eager mode sums them, and in its order.

Each law is a table of functions that return views of one tensor, of views of it and of views of these: of an argument
in several layouts, of what the step computes, of a tensor outside.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import autojit as aj


def _one_of_several(x: aj.Tensor) -> list[aj.Tensor]:
    first, second = x.t().split(2)
    return [second.t(), first, first.t()]


def _columns(x: aj.Tensor) -> list[aj.Tensor]:
    columns = x.unbind(1)
    return [columns[2].unsqueeze(0), columns[2].unsqueeze(1), columns[0]]


def _as_function(take: Callable[[aj.Tensor, aj.Tensor], list[aj.Tensor]]) -> Callable[[aj.Tensor], list[aj.Tensor]]:
    return lambda x: take(x, x.t())


SHOWN: dict[str, Callable[[aj.Tensor], list[aj.Tensor]]] = {
    "of a view that stays inside": _as_function(lambda x, t: [t.unsqueeze(0), t.T]),
    "of a view that is returned": _as_function(lambda x, t: [t, t[-1], t.T]),
    "returned the last first": _as_function(lambda x, t: [t.T, t.unsqueeze(0), t]),
    "taken the last first": _as_function(lambda x, t: [x[:, 1:], t, x.unsqueeze(0)]),
    "three deep": _as_function(lambda x, t: [(u := t.unsqueeze(1)).permute(2, 1, 0), u[0], u, t]),
    "of two views that are alike": _as_function(lambda x, t: [t.T, x.t().T, x.t().unsqueeze(0)]),
    "rows and gaps": _as_function(lambda x, t: [(u := t[::2])[0], u[:, 1], u]),
    "expanded": _as_function(lambda x, t: [(u := t.expand(2, 4, 3))[0], u.mT, t]),
    "reshaped": _as_function(lambda x, t: [(u := t.unflatten(0, (2, 2)))[1], u.flatten(0, 1), u.mT]),
    "the diagonal": _as_function(lambda x, t: [t.diagonal(), t.diagonal().unsqueeze(0), t.T]),
    "several ops at once": _as_function(lambda x, t: [(u := t[1:, None, 0]), u.T, u[:, 0]]),
    "one of several": _one_of_several,
    "columns": _columns,
    "twice": _as_function(lambda x, t: [t, t, t.T]),
}
LAYOUTS: dict[str, Callable[[Any], aj.Tensor]] = {
    "row-major": lambda a: aj.tensor(a),
    "column-major": lambda a: aj.from_numpy(np.asfortranarray(a)),
    "gaps": lambda a: aj.from_numpy(np.repeat(a, 2, axis=1))[:, ::2],
    "expanded": lambda a: aj.tensor(a[:1]).expand(3, 4),
}
PARAMETER = aj.from_numpy(np.linspace(0.5, 2.0, 12).reshape(3, 4)).requires_grad_()
BASES: dict[str, Callable[[aj.Tensor], aj.Tensor]] = {
    "argument": lambda x: x,
    "result": lambda x: x * 1,
    "outside": lambda x: PARAMETER,
}
BARS: tuple[Callable[[Any], aj.Tensor], ...] = (
    lambda a: aj.from_numpy(a),
    lambda a: aj.from_numpy(np.asfortranarray(a)),
    lambda a: aj.full((1,) * a.ndim, 0.5, dtype=aj.float64).expand(a.shape),
)


def seen(found: Sequence[aj.Tensor | None]) -> list[Any]:
    return [None if g is None else (tuple(g.shape), g.dtype, g.stride(), g.tolist()) for g in found]


def gradients(wrap: Callable[[Any], Any], base: str, layout: str) -> dict[Any, Any]:
    """What ``autograd.grad`` and ``backward`` give, by what is shown and how the cotangents lie."""
    array, found = np.linspace(0.5, 2.0, 12).reshape(3, 4), {}
    x = LAYOUTS[layout](array).detach().requires_grad_()
    for name, show in SHOWN.items():
        step = wrap(lambda x, show=show: show(BASES[base](x)))
        for kinds in itertools.product(range(3), range(3)):
            shown = step(x)
            bars = [BARS[kinds[k > 0]](np.full(t.shape, k + 1.0)) for k, t in enumerate(shown)]
            target = PARAMETER if base == "outside" else x
            found[name, kinds] = seen(aj.autograd.grad(shown, (target,), bars))
            aj.autograd.backward(step(x), bars)
            found[name, kinds, "backward"] = seen([target.grad])
            target.grad = None
    return found


@pytest.mark.parametrize(
    ("base", "layout"), [*(("argument", layout) for layout in LAYOUTS), ("result", "column-major"), ("outside", "gaps")]
)
def test_gradients_of_views_lie_as_in_eager_mode(base: str, layout: str) -> None:
    expected, compiled = gradients(lambda f: f, base, layout), gradients(aj.jit, base, layout)
    assert [k for k, wanted in expected.items() if compiled[k] != wanted] == []


@pytest.mark.parametrize("base", BASES)
def test_views_of_a_view_that_is_returned_have_gradients_by_it(base: str) -> None:
    def by_views(wrap: Callable[[Any], Any]) -> list[Any]:
        x, found = aj.tensor(np.linspace(0.5, 2.0, 12).reshape(3, 4)).requires_grad_(), []
        for show in SHOWN.values():
            shown = wrap(lambda x, show=show: show(BASES[base](x)))(x)
            for y in shown:
                found += seen(aj.autograd.grad((y * y).sum(), shown, retain_graph=True, allow_unused=True))
        return found

    assert by_views(aj.jit) == by_views(lambda f: f)


@pytest.mark.parametrize("base", ["argument", "result"])
def test_views_that_were_taken_follow_changes_in_place(base: str) -> None:
    def changed(wrap: Callable[[Any], Any]) -> list[Any]:
        def show(x: aj.Tensor) -> list[aj.Tensor]:
            t = BASES[base](x).t()
            return [t, t[1:], t.T]

        x = aj.tensor(np.linspace(0.5, 2.0, 12).reshape(3, 4)).requires_grad_()
        step, found = wrap(show), list[Any]()
        for number in range(3):
            shown = step(x * 1)
            shown[number].mul_(3)
            found += seen([*shown, *aj.autograd.grad([(t * t).sum() for t in shown], (x,))])
        return found

    assert changed(aj.jit) == changed(lambda f: f)


def test_views_with_open_sizes_are_taken_as_in_eager_mode() -> None:
    step = aj.jit(SHOWN["of a view that is returned"])
    for n in (3, 4, 5, 6):
        x, y = (aj.ones(n, 4, dtype=aj.float64).requires_grad_() for _ in range(2))
        for t, shown in ((x, step(x)), (y, SHOWN["of a view that is returned"](y))):
            aj.autograd.backward([(part * part).sum() for part in shown[1:]] + [shown[0].sum()])
            assert t.grad is not None
        assert seen([x.grad]) == seen([y.grad])
