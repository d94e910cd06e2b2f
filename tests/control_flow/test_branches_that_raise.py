"""A branch of ``cond`` that raises counts where it is taken alone, as in eager mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj

RAISING: dict[str, Callable[[aj.Tensor], Any]] = {
    "Python": lambda z: z * {}["none"],
    "a type": lambda z: z + sum([1.0, "two"]),  # type: ignore[list-item]
    "a shape": lambda z: z @ aj.ones(7, 7),
    "an index": lambda z: z[5],
    "its own": lambda z: _refuse(z),
    "an axis": lambda z: z.sum(4),
    "no result": lambda z: z.reshape(-1, 5, 7),
}


def _refuse(z: aj.Tensor) -> Any:
    raise ArithmeticError("no")


def _outcomes(jit: Any, step: Callable[..., Any], starts: list[float]) -> list[Any]:
    compiled, found = jit(step), []
    for start in starts:
        w = aj.full((3,), start, requires_grad=True)
        total = aj.zeros(3)
        try:
            y = compiled(w, total)
            y.sum().backward()
            found.append((y.tolist(), None if w.grad is None else w.grad.tolist(), total.tolist()))
        except Exception as error:
            found.append((type(error), str(error).split("\n")[0], total.tolist()))
    return found


@pytest.mark.parametrize("first", [False, True], ids=["taken last", "taken first"])
@pytest.mark.parametrize("is_true", [False, True])
@pytest.mark.parametrize("name", RAISING)
def test_a_branch_that_raises_raises_where_it_is_taken(name: str, is_true: bool, first: bool) -> None:
    raises = RAISING[name]

    def step(w: aj.Tensor, total: aj.Tensor) -> Any:
        branches = (raises, lambda z: z * 2) if is_true else (lambda z: z * 2, raises)
        y = aj.cond(w.sum() > 0, *branches, (w,))
        total.add_(y.detach())
        return y * w

    starts = [1.0, -1.0, 2.0, -2.0, 1.0]
    starts = starts if first == is_true else [-start for start in starts]
    assert _outcomes(aj.jit, step, starts) == _outcomes(lambda f: f, step, starts)


def test_a_branch_that_raises_in_a_body_is_told_at_once() -> None:
    def body(c: aj.Tensor, x: aj.Tensor) -> Any:
        y = aj.cond(c.sum() > 0, lambda z: z * {}["none"], lambda z: z * 2, (x,))
        return c, y

    step = aj.jit(lambda x: aj.scan(body, aj.ones(3), x)[1])
    with pytest.raises(KeyError, match="none"):
        step(aj.ones(2, 3))


def test_the_step_is_one_for_each_choice() -> None:
    step = aj.jit(lambda x: aj.cond(x.sum() > 0, lambda z: z * 2, RAISING["its own"], (x,)))
    for k in range(1, 5):
        assert step(aj.ones(2) * k).tolist() == [2 * k] * 2
    assert step.stats()["captures"] == 1
