"""A write in place inside any nest of transforms is its out-of-place form, eager and compiled: what histories and
tangents keep of the value before the write does not follow it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit import Tensor, func

Body = Callable[[Tensor, Tensor], Tensor]


def _at(write: Callable[[Tensor, Tensor], Any]) -> Body:
    """The write to a copy of x, after which the copy is read."""

    def changed(x: Tensor, y: Tensor) -> Tensor:
        z = x * 1
        write(z, y)
        return aj.sin(z)

    return changed


WRITES: dict[str, tuple[Callable[[Tensor, Tensor], Any], Body]] = {
    "mul_": (lambda z, y: z.mul_(y), lambda x, y: x * y),
    "pow_": (lambda z, y: z.abs_().pow_(y), lambda x, y: x.abs().pow(y)),
    "a row": (lambda z, y: z[0].mul_(y[1]), lambda x, y: aj.cat([(x[0] * y[1])[None], x[1:]])),
    "setitem": (lambda z, y: z.__setitem__(0, y[0] * y[1]), lambda x, y: aj.cat([(y[0] * y[1])[None], x[1:]])),
    "a view": (lambda z, y: z.view(3, 1).mul_(y[:, None]), lambda x, y: x * y),
    "cumprod_": (lambda z, y: z.mul_(y).cumprod_(0), lambda x, y: aj.cumprod(x * y, 0)),
    "masked": (lambda z, y: z.masked_fill_(y > 0, 2.0).mul_(y), lambda x, y: x.masked_fill(y > 0, 2.0) * y),
}


def _squared(body: Body) -> Body:
    return lambda x, y: (body(x, y) ** 2).sum()


def _rows(body: Body) -> Body:
    return lambda x, y: func.vmap(body)(aj.stack([x, x * 2]), aj.stack([y, y * 0.5])).sum(0)


def _columns(body: Body) -> Body:
    return lambda x, y: func.vmap(body, (1, None), 1)(aj.stack([x, y], 1), y).sum(1)


TRANSFORMS: dict[str, Callable[[Body], Body]] = {
    "vmap": _rows,
    "vmap of one": _columns,
    "grad 0": lambda body: func.grad(_squared(body), 0),
    "grad 1": lambda body: func.grad(_squared(body), 1),
    "jvp": lambda body: lambda x, y: func.jvp(body, (x, y), (y, x))[1],
    "vjp": lambda body: lambda x, y: func.vjp(body, x, y)[1](x * y)[1],
}


def _used(body: Body) -> Callable[[Tensor, Tensor], tuple[Tensor, ...]]:
    """The value and the gradients by both operands."""

    def step(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        x, y = x.clone().requires_grad_(), y.clone().requires_grad_()
        found = body(x, y)
        total = (found**2).sum() + 0 * (x * y).sum()  # of what depends on neither, too
        return found.detach(), *aj.autograd.grad(total, (x, y))

    return step


@pytest.mark.usefixtures("lightly_compiled")
@pytest.mark.parametrize("inner", TRANSFORMS)
@pytest.mark.parametrize("outer", TRANSFORMS)
def test_a_write_in_a_nest_is_its_out_of_place_form(inner: str, outer: str) -> None:
    x, y = aj.tensor([0.3, -0.7, 1.1], dtype=aj.float64), aj.tensor([0.5, 1.2, -1.3], dtype=aj.float64)

    def nested(body: Body) -> Callable[[Tensor, Tensor], tuple[Tensor, ...]]:
        return _used(TRANSFORMS[outer](TRANSFORMS[inner](body)))

    written = {name: nested(_at(write)) for name, (write, _) in WRITES.items()}
    wanted = {name: nested(lambda x, y, form=form: aj.sin(form(x * 1, y)))(x, y) for name, (_, form) in WRITES.items()}
    compiled = aj.jit(lambda x, y: {name: step(x, y) for name, step in written.items()})(x, y)
    for mode, found in (("eager", {name: step(x, y) for name, step in written.items()}), ("compiled", compiled)):
        for name, results in found.items():
            for a, b in zip(results, wanted[name], strict=True):
                np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-9, atol=1e-12, err_msg=f"{name}, {mode}")
