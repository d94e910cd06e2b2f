"""Look-ups by an index that a body is given, or finds outside, in every body that is captured.

Found beside seed 93035900: what stands for an index whose negative entries are outside shares its storage, and was
taken for memory from outside of the body: ``index_select`` and ``gather`` by an argument were refused there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj

Body = Callable[[Any, Any], Any]

LOOKS: dict[str, Body] = {
    "index_select": lambda x, i: x.index_select(0, i),
    "gather": lambda x, i: x.gather(0, i.unsqueeze(1).expand(-1, 3)),
    "subscript": lambda x, i: x[i],
    "index_add": lambda x, i: aj.zeros(2, 3).index_add(0, i, x[:2]),
    "index_copy": lambda x, i: aj.zeros(2, 3).index_copy(0, i, x[:2]),
    "index_fill": lambda x, i: (x[:2] * 1).index_fill(0, i[:1], 0.5),
    "scatter_add": lambda x, i: aj.zeros(2, 3).scatter_add(0, i.unsqueeze(1).expand(-1, 3), x[:2]),
    "take_along_dim": lambda x, i: aj.take_along_dim(x, i.unsqueeze(1).expand(-1, 3), 0),
    "embedding": lambda x, i: aj.nn.functional.embedding(i, x),
}


def in_branches(look: Body, x: Any, i: Any) -> Any:
    return aj.cond(x.sum() > 0, lambda x, i: look(x, i) * 2, lambda x, i: look(x, i) * 3, (x, i))


def from_outside(look: Body, x: Any, i: Any) -> Any:
    return aj.cond(x.sum() > 0, lambda x: look(x, i) * 2, lambda x: look(x, i) * 3, (x,))


def in_turns(look: Body, x: Any, i: Any) -> Any:
    return aj.scan(lambda carry, row: (carry + look(x, i).sum(), row + look(x, i)[0]), x.sum() * 0, x)[1]


def carried(look: Body, x: Any, i: Any) -> Any:
    def turn(n: Any, y: Any, i: Any) -> tuple[Any, Any, Any]:
        return n + 1, y + look(y, i).sum(), i

    return aj.while_loop(lambda n, y, i: n < 3, turn, (i.sum() * 0, x, i))[1]


def batched(look: Body, x: Any, i: Any) -> Any:
    return aj.func.vmap(lambda x: look(x, i))(aj.stack([x, x * 2]))


WAYS = {way.__name__: way for way in (in_branches, from_outside, in_turns, carried, batched)}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_values_and_gradients_are_those_of_eager_mode(look: Body, way: Callable[..., Any]) -> None:
    def step(x: Any, i: Any) -> Any:
        found = way(look, x, i)
        return found.detach(), aj.autograd.grad((found * found).sum(), (x,))[0]

    for sign in (1.0, -1.0):
        x = (aj.arange(9.0).reshape(3, 3) * sign).requires_grad_()
        i = aj.tensor([1, 0])
        for made, expected in zip(aj.jit(step)(x, i), step(x, i), strict=True):
            np.testing.assert_allclose(made.numpy(), expected.numpy(), rtol=1e-6)


SHOWN: dict[str, Callable[[Any], Any]] = {
    "row": lambda w: w[0],
    "rows": lambda w: w[1:].sum(0),
    "column": lambda w: w[:, 1].sum(),
    "new axis": lambda w: w[None, 2].squeeze(0),
    "turned": lambda w: w.t()[:, 0],
}


def shown_in_turns(shown: Callable[[Any], Any], x: Any, w: Any) -> Any:
    return aj.scan(lambda c, k: ((c * shown(w)).sin(), c), x, aj.arange(3))[0].sum()


def shown_while(shown: Callable[[Any], Any], x: Any, w: Any) -> Any:
    return aj.while_loop(lambda n, c: n < 3, lambda n, c: (n + 1, (c * shown(w)).sin()), (aj.tensor(0), x))[1].sum()


def shown_in_a_branch(shown: Callable[[Any], Any], x: Any, w: Any) -> Any:
    return aj.cond(x.sum() > 0, lambda x: (x * shown(w)).sin(), lambda x: x * 2, (x,)).sum()


@pytest.mark.parametrize("way", [shown_in_turns, shown_while, shown_in_a_branch], ids=lambda f: f.__name__)
@pytest.mark.parametrize("shown", SHOWN.values(), ids=SHOWN)
def test_views_of_what_is_outside_have_second_derivatives(shown: Callable[[Any], Any], way: Callable[..., Any]) -> None:
    """Those of the loop written out, eager and compiled; compiled they raised `ShapeError` (``w[0]`` in a loop)."""

    def plainly(x: Any, w: Any) -> Any:
        for _ in range(1 if way is shown_in_a_branch else 3):
            x = (x * shown(w)).sin()
        return x.sum()

    def second(f: Callable[..., Any]) -> Callable[[Any], Any]:
        return aj.func.grad(lambda w: aj.func.grad(f, argnums=1)(x, w).square().sum())

    x, w = aj.linspace(0.5, 1, 3), aj.linspace(0.1, 1, 9).reshape(3, 3)
    expected = second(plainly)(w).numpy()
    looped = second(lambda x, w: way(shown, x, w))
    for f in (looped, aj.jit(looped)):
        np.testing.assert_allclose(f(w).numpy(), expected, rtol=1e-4, atol=1e-5)
