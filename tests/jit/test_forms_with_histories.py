"""Gradients through arguments that a step gives another shape or other values in place are eager mode's.

The caller sees them where the argument is now (its new history), where it came from, and through other views of that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj
from tests.covering import covering
from tests.jit.agreement import check_equal

FORMS: dict[str, Callable[[Any], Any]] = {
    "unsqueeze_": lambda x: x.unsqueeze_(0),
    "t_": lambda x: x.t_() if x.ndim == 2 else x.squeeze_(0).t_(),
    "there and back": lambda x: x.transpose_(0, 1).transpose_(0, 1),
    "twice": lambda x: x.swapaxes_(0, -1).unsqueeze_(-1),
    "squeeze_": lambda x: x.squeeze_(),
}


def _unrecorded(form: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def change(x: Any) -> Any:
        with aj.no_grad():
            return form(x)

    return change


def _second(change: Callable[[Any], Any], x: Any, w: Any) -> Any:
    before = x.view(-1)
    change(x)
    return [before * 2, x.select(-1, 0), x]


CHANGES = dict(FORMS)
CHANGES |= {f"{name}, not recorded": _unrecorded(form) for name, form in FORMS.items() if name != "twice"}
CHANGES |= {
    "a view's form, not recorded": lambda x: _unrecorded(FORMS["t_"])(x.squeeze()),
    "written, then formed": lambda x: x.mul_(3.0).unsqueeze_(0),
    "formed, then written": lambda x: x.t_().exp_(),
    "written": lambda x: x.mul_(3.0),
    "counted": lambda x: x.copy_(x),
}
USES: dict[str, Callable[[Callable[[Any], Any], Any, Any], Any]] = {
    "used after": lambda change, x, w: (change(x), x * x)[1],
    "used before": lambda change, x, w: (x * 2, change(x))[:1],
    "used before and after": lambda change, x, w: [x.sum() * w, change(x), x.amax(0)],
    "views before and after": _second,
    "not used": lambda change, x, w: (change(x), w * 2)[1],
    "nothing to differentiate": lambda change, x, w: (change(x), x.detach() * 2)[1],
    "differentiated inside": lambda change, x, w: (change(x), (x * x).sum().backward(retain_graph=True))[:1],
    "a view of it": lambda change, x, w: [change(x[:2]), x * w[0, 0]],
}
MADE: dict[str, Callable[[Any], Any]] = {
    "made": lambda w: w * 1,
    "a view": lambda w: (w * 1)[:, :],
    "a part": lambda w: (w * 1)[1:, 1:],
    "a leaf": lambda w: w.detach().clone().requires_grad_(),
    "without gradients": lambda w: w.detach().clone(),
}


def _program(jit: Callable[[Any], Any], change: str, use: str, made: str) -> list[Any]:
    """What a caller sees of each call: results, arguments, gradients with respect to all there is, to second order."""
    seen: list[Any] = []
    step = jit(lambda x, w: USES[use](CHANGES[change], x, w))
    for _ in range(2):
        w = aj.linspace(0.5, 1.5, 12, dtype=aj.float64).reshape(3, 4).requires_grad_()
        x = MADE[made](w)
        base = x if x._base is None else x._base
        try:
            found = step(x, w)
        except RuntimeError as error:
            seen.append(str(error).splitlines()[0])
            continue
        found = found if isinstance(found, list | tuple) else [found]
        found = [t for t in (*found, x) if isinstance(t, aj.Tensor)]
        seen += [[t.tolist(), t.requires_grad, t.is_leaf] for t in found] + [x._version]
        total = sum((t * t).sum() for t in found if t.requires_grad)
        if isinstance(total, int):
            continue
        inputs = [t for t in (w, x, base) if t.requires_grad]
        try:
            first = aj.autograd.grad(total, inputs, create_graph=True, allow_unused=True)
            seen += [None if g is None else g.tolist() for g in first]
            seen.append(w.grad is not None and w.grad.tolist())
        except RuntimeError as error:
            seen.append(str(error).splitlines()[0])
    return seen


@covering("change, use, made", CHANGES, USES, MADE, every=2)
def test_gradients_through_a_changed_argument(change: str, use: str, made: str) -> None:
    check_equal(_program(lambda f: f, change, use, made), _program(aj.jit, change, use, made))


RESULTS: dict[str, Callable[[Any, Callable[[Any], Any]], Any]] = {
    "alone": lambda made, change: [change(made)],
    "and its detached memory from before": lambda made, change: [made.detach(), change(made)][::-1],
    "and its detached memory": lambda made, change: [change(made), made.detach()],
    "and a part": lambda made, change: [change(made), made[:1]],
    "twice": lambda made, change: [change(made), made],
    "and what is made of it": lambda made, change: [change(made), made * 2],
    "only what is made of it": lambda made, change: [change(made) * 1],
}


@pytest.mark.parametrize("results", RESULTS)
@pytest.mark.parametrize("form", FORMS)
def test_a_result_with_a_form_that_nobody_recorded_is_eager_modes(form: str, results: str) -> None:
    """Its gradients, or why there are none; and who sees what is written to the other results."""

    def step(x: aj.Tensor) -> Any:
        return RESULTS[results](x * 3, _unrecorded(FORMS[form]))

    def shown(run: Callable[[Any], Any], rows: int) -> list[Any]:
        x = aj.arange(3.0 * rows).reshape(rows, 3).requires_grad_()
        first, *others = run(x)
        seen: list[Any] = [(t.shape, t.stride(), t.requires_grad) for t in (first, *others)]
        try:
            (first * aj.arange(3.0 * rows).reshape(first.shape)).sum().backward()
        except RuntimeError as error:
            seen.append(str(error).split(" - ", 1)[0])
        with aj.no_grad():
            for t in others:
                t.add_(10.0)
        return [*seen, first.tolist(), x.grad]

    compiled = aj.jit(step)
    for rows in (2, 2, 5, 4, 3, 2):  # of 3 the transposed gradient has the right shape again
        check_equal(shown(compiled, rows), shown(step, rows))
