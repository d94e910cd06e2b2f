"""A change of what a loop or branch has read spoils its history exactly where it does in eager mode, step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj

F64 = aj.float64
BODIES: dict[str, Callable[[Any, Any], Any]] = {
    "added": lambda z, v: z * 0.5 + v,
    "multiplied": lambda z, v: z * v,
    "squared": lambda z, v: (z + v).square(),
    "an element": lambda z, v: z.sin() + v[0],
    "an element, multiplied": lambda z, v: z * v[0],
    "a number": lambda z, v: z * v.sum().item(),
    "a maximum": lambda z, v: aj.maximum(z, v),
    "normalised": lambda z, v: aj.nn.functional.layer_norm(z + v, (4,)),
    "a custom function": lambda z, v: _Doubled.apply(z) + v,
}


class _Doubled(aj.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * 2


def _scanned(body: Any, x: Any, v: Any, w: Any) -> Any:
    return aj.scan(lambda c, z: (body(c, v) + z * w, c), aj.ones(4, dtype=F64), x)[0]


def _scanned_alone(body: Any, x: Any, v: Any, w: Any) -> Any:
    return aj.scan(lambda c, z: (c + body(z, v), c), w, x)[0]


def _repeated(body: Any, x: Any, v: Any, w: Any) -> Any:
    return aj.while_loop(lambda k, z: k < 2, lambda k, z: (k + 1, body(z, v)), (aj.tensor(0), w))[1]


def _chosen(body: Any, x: Any, v: Any, w: Any) -> Any:
    return aj.cond(x.sum() > -100, lambda z: body(z, v), lambda z: body(z, v) * 2, (w,))


LOOPS = [_scanned, _scanned_alone, _repeated, _chosen]
CHANGED = ["outside", "a leaf outside", "an intermediate", "what is walked over"]


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("loop", LOOPS, ids=lambda f: f.__name__)
def test_a_change_spoils_the_history_of_a_body_as_in_eager_mode(loop: Any, name: str) -> None:
    if name == "a custom function" and loop is not _scanned:
        return  # what such a function keeps is not known: every change spoils it
    for changed in CHANGED:
        eager, compiled = (_run(jit, loop, name, changed) for jit in (lambda f: f, aj.jit))
        if isinstance(eager, str) or isinstance(compiled, str):
            assert compiled == eager or name == "a custom function", changed
        else:
            for a, b in zip(eager, compiled, strict=True):
                aj.testing.assert_close(aj.tensor(b, dtype=F64), aj.tensor(a, dtype=F64))


def _run(jit: Any, loop: Any, name: str, changed: str) -> Any:
    """What a step leaves, or the beginning of its error."""
    outside = aj.linspace(1, 2, 4, dtype=F64).requires_grad_(changed == "a leaf outside")
    weight = aj.linspace(0.5, 1, 4, dtype=F64).requires_grad_()

    @jit
    def step(x: Any) -> Any:
        v = outside * 1.0 if changed == "an intermediate" else outside
        loss = loop(BODIES[name], x, v, weight).sum()
        with aj.no_grad():
            (x if changed == "what is walked over" else v)[1:].add_(0.25)
        loss.backward()
        return loss.detach()

    try:
        value = step(aj.linspace(-1, 1, 12, dtype=F64).reshape(3, 4))
    except RuntimeError as error:
        return str(error)[:80]
    return value.tolist(), weight.grad.tolist(), outside.tolist()
