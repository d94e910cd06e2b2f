"""Steps with branches and loops, called with several sizes, are differentiated outside as in eager mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import autojit as aj
from tests.covering import covering

A = np.random.default_rng(7).normal(size=(9, 4)) / 2

ON_TRUE: dict[str, Callable[[Any], Any]] = {
    "product": lambda z: (aj.tanh(z) + z * z) * 3.0,
    "detached": lambda z: z.detach() * z + z * 0,
}
ON_FALSE: dict[str, Callable[[Any], Any]] = {
    "detached": lambda z: z.detach() + z * 0,
    "sizes": lambda z: z.sin() * z.shape[0] + aj.arange(z.shape[0], dtype=z.dtype)[:, None] * z,
    "flattened": lambda z: z.t().reshape(-1).cumsum(0).reshape(4, z.shape[0]).t(),
}
BEFORE: dict[str, Callable[[Any], Any]] = {
    "nothing": lambda x: x * 1,
    "while": lambda x: aj.while_loop(
        lambda i, z: i < 3, lambda i, z: (i + 1, (z * 0.5 - 0.75).sin()), (aj.tensor(0), x)
    )[1],
    "scan": lambda x: aj.scan(lambda c, r: (c * r.tanh() + 1, c + r.detach() * r), aj.ones(4, dtype=x.dtype), x)[1],
}


def _derivatives(step: Any, x: Any, order: int) -> list[Any]:
    found = [step(x)]
    for _ in range(order):
        (slope,) = aj.autograd.grad((found[-1] * found[-1]).sum(), x, create_graph=True)
        found.append(slope)
    return found


def _forward(step: Any, x: Any) -> list[Any]:
    return [aj.func.jvp(step, (x,), (x * x,))[1], aj.func.jvp(lambda z: aj.func.vjp(step, z)[1](z)[0], (x,), (x,))[1]]


def _batched(step: Any, x: Any) -> list[Any]:
    rows = aj.stack([x, x * 2, -x])
    return [aj.func.vmap(step)(rows), aj.func.vmap(aj.func.grad(lambda z: (step(z) ** 2).sum()))(rows)]


USES: dict[str, Callable[[Any, Any], list[Any]]] = {
    "reverse": lambda step, x: _derivatives(step, x, 3),
    "forward": _forward,
    "batched": _batched,
}


@covering("on_true, on_false, before, use", ON_TRUE, ON_FALSE, BEFORE, USES, every=2)
def test_every_size_is_differentiated_as_in_eager_mode(on_true: str, on_false: str, before: str, use: str) -> None:
    def step(x: Any) -> Any:
        z = BEFORE[before](x)
        return aj.cond(z.sum() > 0.5, ON_TRUE[on_true], ON_FALSE[on_false], (z,))

    jitted = aj.jit(step)
    for rows in (2, 3, 7):
        for sign in (1, -1):
            x = aj.tensor(A[:rows] * sign).requires_grad_()
            wanted, found = USES[use](step, x), USES[use](jitted, x)
            for a, b in zip(wanted, found, strict=True):
                np.testing.assert_allclose(b.detach().numpy(), a.detach().numpy(), rtol=1e-11, atol=1e-11)
