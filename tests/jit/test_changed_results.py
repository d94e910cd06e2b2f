"""Results and operands that are changed between a compiled call and backward: refused where eager mode refuses, and no
change of what the derivative is computed from goes unnoticed, however it is made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj

FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "exp": lambda x, w: ((w * x).exp(),),
    "factor": lambda x, w: (lambda a: ((a * a).sum(), a))(w * x),
    "detached factor": lambda x, w: (lambda a: ((a * a).sum(), a.detach()))(w * x),
    "view of a factor": lambda x, w: (lambda a: ((a * a).sum(), a[1:]))(w * x),
    "sum": lambda x, w: (lambda a: ((a + a).sum(), a))(w + x),
    "kept result": lambda x, w: (lambda a: (a.sum() * 2, a))((w * x).tanh()),
    "unneeded": lambda x, w: ((w * x).sum(), (w * x).detach() * 2),
    "without gradient": lambda x, w: (lambda s: ((w * s).sum(), s))(x.sin()),
    "two": lambda x, w: (w.exp().sum(), (w * 2).tanh()),
}


def unrecorded(t: Any) -> None:
    with aj.no_grad():
        t.mul_(2)


CHANGES: dict[str, Callable[[Any], Any]] = {
    "in place": lambda t: t.add_(1) if t.dim() else None,
    "unrecorded": unrecorded,
    "detached": lambda t: t.detach().zero_(),
    "a view": lambda t: unrecorded(t[:1]) if t.dim() else None,
    "data": lambda t: t.data.mul_(3),
    "data of data": lambda t: t.data.data.detach().mul_(3),
    "a view of data": lambda t: t.data.view(-1)[:1].mul_(3),
    "nothing": lambda t: None,
}
BY_DATA = [name for name in CHANGES if "data" in name]


def seen(jit: Any, function: str, change: str, which: str, root: int) -> tuple[Any, Any]:
    x = aj.tensor([0.5, 0.25, 2.0], dtype=aj.float64)
    w = aj.tensor([1.0, -1.0, 0.75], dtype=aj.float64, requires_grad=True)
    results = jit(FUNCTIONS[function])(x, w)
    changed = {"x": x, "w": w, "first": results[0], "last": results[-1]}[which]
    try:
        CHANGES[change](changed)
    except RuntimeError:
        return "not changed", None  # a leaf in grad mode
    try:
        results[root].sum().backward()
    except RuntimeError as error:
        return "refused", str(error)
    return w.grad.tolist(), None


@pytest.mark.parametrize("root", [0, -1])
@pytest.mark.parametrize("which", ["x", "w", "first", "last"])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_change_before_backward_is_refused_or_makes_no_difference(
    function: str, change: str, which: str, root: int
) -> None:
    eager, _ = seen(lambda f: f, function, change, which, root)
    compiled, told = seen(aj.jit, function, change, which, root)
    if compiled != "refused":
        assert compiled == (eager if isinstance(eager, str) else pytest.approx(eager, rel=1e-12))
    elif eager != "refused":  # values that eager mode keeps are computed again from what the call was given
        assert change != "nothing" and (change in BY_DATA or which in ("x", "w"))
        assert "call backward before the change" in told or which in ("x", "w"), told


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_changed_after_backward_is_nobodys_concern(change: str) -> None:
    w = aj.tensor([1.0, -1.0], dtype=aj.float64, requires_grad=True)
    f = aj.jit(lambda x: (w * x).exp())
    for _ in range(3):
        f(aj.ones(2, dtype=aj.float64)).sum().backward()
        with aj.no_grad():
            CHANGES[change](w)
    assert f.stats()["captures"] == 1


def test_results_that_backward_needs_are_kept_no_longer_than_it_takes() -> None:
    import gc
    import weakref

    w = aj.ones(3, requires_grad=True)
    f = aj.jit(lambda x: (lambda a: ((a * a).sum(), a))(w * x))
    loss, a = f(aj.ones(3))
    memory = weakref.ref(a._array)
    loss.backward()
    del a
    gc.collect()
    assert memory() is None
