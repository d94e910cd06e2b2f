"""Results of transforms belong to the history of what their functions close over, wherever that history begins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit import func

Transform = Callable[[Callable[[aj.Tensor], aj.Tensor], aj.Tensor], aj.Tensor]
TRANSFORMS: dict[str, Transform] = {
    "grad": lambda f, x: func.grad(lambda z: f(z).sum())(x),
    "grad of grad": lambda f, x: func.grad(lambda z: func.grad(lambda y: f(y).sum())(z).sum())(x),
    "vjp": lambda f, x: func.vjp(f, x)[1](aj.ones_like(x))[0],
    "jvp": lambda f, x: func.jvp(f, (x,), (aj.ones_like(x),))[1],
    "jacrev": lambda f, x: func.jacrev(f)(x),
    "jacfwd": lambda f, x: func.jacfwd(f)(x),
    "hessian": lambda f, x: func.hessian(lambda z: f(z).sum())(x),
    "vmap of grad": lambda f, x: func.vmap(func.grad(lambda z: f(z).sum()))(x),
}
MADE: dict[str, Callable[[aj.Tensor], aj.Tensor]] = {
    "a leaf": lambda w: w,
    "computed": lambda w: w * 1.5,
    "a view": lambda w: w.reshape(1, 1)[0, 0],
    "cut off": lambda w: (w * 1.5).detach(),
}


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("is_argument", (True, False))
def test_compiled_results_have_the_history_of_eager_mode(transform: str, made: str, is_argument: bool) -> None:
    def shown(jit: Callable[[Any], Any]) -> list[Any]:
        held: list[Any] = [None]

        def step(x: aj.Tensor, w: Any) -> aj.Tensor:
            v = held[0] if w is None else w
            return TRANSFORMS[transform](lambda z: (z * v).sin() * z, x)

        run, found = jit(step), []
        for k in range(3):
            leaf = aj.tensor(0.5 + k, dtype=aj.float64, requires_grad=True)
            held[0] = w = MADE[made](leaf)
            y = run(aj.arange(3.0, dtype=aj.float64), w if is_argument else None)
            if y.requires_grad:
                y.sin().sum().backward()
            found.append((y.requires_grad, y.tolist(), None if leaf.grad is None else leaf.grad.item()))
        return found

    for (wants, value, grad), (found_wants, found, found_grad) in zip(shown(lambda f: f), shown(aj.jit), strict=True):
        assert found_wants is wants
        np.testing.assert_allclose(found, value, rtol=1e-9)
        assert (found_grad is None) is (grad is None)
        assert grad is None or found_grad == pytest.approx(grad, rel=1e-9)


Two = Callable[[aj.Tensor, aj.Tensor], aj.Tensor]
OF_TWO: dict[str, Callable[[Two], Two]] = {
    "grad 0": lambda f: func.grad(lambda x, y: (f(x, y) ** 2).sum(), 0),
    "grad 1": lambda f: func.grad(lambda x, y: (f(x, y) ** 2).sum(), 1),
    "vjp": lambda f: lambda x, y: func.vjp(f, x, y)[1](x * y)[1],
    "vjp of one": lambda f: lambda x, y: func.vjp(lambda z: f(x, z), y)[1](x)[0],
    "jvp": lambda f: lambda x, y: func.jvp(lambda z: f(x, z), (y,), (x,))[1],
    "jacrev": lambda f: lambda x, y: func.jacrev(f, 1)(x, y).sum(0),
    "jacfwd": lambda f: lambda x, y: func.jacfwd(f, 0)(x, y).sum(0),
    "vmap": lambda f: lambda x, y: func.vmap(f, (None, 0))(x, aj.stack([y, x])).sum(0),
    "value": lambda f: lambda x, y: func.vjp(f, x, y)[0],
}


@pytest.mark.parametrize("inner", OF_TWO)
@pytest.mark.parametrize("outer", OF_TWO)
def test_results_have_no_history_where_no_argument_has_one(outer: str, inner: str) -> None:
    x, y = aj.tensor([0.5, -1.0]), aj.tensor([1.5, 0.3])
    nest = OF_TWO[outer](OF_TWO[inner](lambda x, y: aj.sin(x * y) * x))
    assert not nest(x, y).requires_grad
    w = aj.tensor(2.0, requires_grad=True)  # what the caller can ask for stays
    assert OF_TWO[outer](OF_TWO[inner](lambda x, y: aj.sin(x * y) * x * w))(x, y).requires_grad
