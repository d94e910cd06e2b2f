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


def _agree(outer: str, inner: str, bodies: dict[str, tuple[Body, Body]]) -> None:
    """Each body in the nest has the value and the gradients of the other, eager and compiled."""
    x, y = aj.tensor([0.3, -0.7, 1.1], dtype=aj.float64), aj.tensor([0.5, 1.2, -1.3], dtype=aj.float64)

    def nested(body: Body) -> Callable[[Tensor, Tensor], tuple[Tensor, ...]]:
        return _used(TRANSFORMS[outer](TRANSFORMS[inner](body)))

    written = {name: nested(body) for name, (body, _) in bodies.items()}
    wanted = {name: nested(form)(x, y) for name, (_, form) in bodies.items()}
    compiled = aj.jit(lambda x, y: {name: step(x, y) for name, step in written.items()})(x, y)
    for mode, found in (("eager", {name: step(x, y) for name, step in written.items()}), ("compiled", compiled)):
        for name, results in found.items():
            for a, b in zip(results, wanted[name], strict=True):
                np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-9, atol=1e-12, err_msg=f"{name}, {mode}")


@pytest.mark.usefixtures("lightly_compiled")
@pytest.mark.parametrize("inner", ("vmap", "grad 1", "jvp"))
@pytest.mark.parametrize("outer", ("vmap of one", "grad 1", "jvp"))
def test_a_write_in_a_nest_is_its_out_of_place_form(inner: str, outer: str) -> None:
    def out_of_place(form: Body) -> Body:
        return lambda x, y: aj.sin(form(x * 1, y))

    _agree(outer, inner, {name: (_at(write), out_of_place(form)) for name, (write, form) in WRITES.items()})


VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "expand": lambda z: z.expand(2, 3),
    "unsqueezed and expanded": lambda z: z[None].expand(2, 3),
    "a slice": lambda z: z[1:],
    "a column": lambda z: z.view(3, 1),
    "turned": lambda z: z[:, None].mT,
    "windows": lambda z: z.unfold(0, 2, 1),
    "strided": lambda z: z.as_strided((2, 2), (1, 1)),
    "a diagonal": lambda z: z.view(1, 3).diagonal(),
}


@pytest.mark.usefixtures("lightly_compiled")
@pytest.mark.parametrize("inner", ("jvp", "grad 1"))
@pytest.mark.parametrize("outer", ("jvp", "vjp"))
def test_a_view_in_a_nest_sees_what_is_written_to_its_base(inner: str, outer: str) -> None:
    def written(view: Callable[[Tensor], Tensor]) -> Body:
        def body(x: Tensor, y: Tensor) -> Tensor:
            z = x * 1
            seen = view(z)
            z.mul_(y)
            z[:1] = 2.0
            return seen.sin().sum() * x

        return body

    def formed(view: Callable[[Tensor], Tensor]) -> Body:
        return lambda x, y: view(aj.cat([(x * y)[:1] * 0 + 2.0, (x * y)[1:]])).sin().sum() * x

    _agree(outer, inner, {name: (written(view), formed(view)) for name, view in VIEWS.items()})
