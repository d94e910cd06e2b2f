"""A view made where nothing is recorded, whose memory has changed since, has no history to ask for: eager and compiled.

Whatever would ask says so, whether or not views of the same shape have been made before.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj
from autojit import func

USES: dict[str, Callable[[aj.Tensor], Any]] = {
    "view": lambda v: v.view(3, 1),
    "view_as": lambda v: v.view_as(v),
    "unsqueeze": lambda v: v.unsqueeze(0),
    "row": lambda v: v[1],
    "slice": lambda v: v[1:],
    "expand": lambda v: v.expand(2, 3),
    "chunk": lambda v: v.chunk(3),
    "split": lambda v: v.split(2),
    "unbind": lambda v: v.unbind(),
    "as_strided": lambda v: v.as_strided((2,), (1,)),
    "mul": lambda v: v * 2,
    "written": lambda v: aj.ones(3).mul_(v),
    "written to a view": lambda v: aj.ones(4)[1:].add_(v),
    "copied": lambda v: aj.zeros(3).copy_(v),
    "assigned": lambda v: aj.zeros(3).__setitem__(slice(None), v),
    "vmap": lambda v: func.vmap(lambda e: e * 2)(v),
}
UNRECORDED: dict[str, Callable[[aj.Tensor], Any]] = {
    "detach": lambda v: v.detach(),
    "bytes": lambda v: v.view(aj.int32),
    "requires_grad": lambda v: v.requires_grad,
}


def stale(w: aj.Tensor, mode: Any = aj.no_grad) -> aj.Tensor:
    with mode():
        v = w.view(w.shape)
        v.mul_(0.5)
    return v


def said(use: Callable[[aj.Tensor], Any]) -> list[str]:
    """What the use of a stale view raises: made outside, inside; before and after other views; eager and compiled."""

    def used(v: aj.Tensor) -> None:
        use(v)

    w, found = aj.ones(3, requires_grad=True), []
    outside = stale(w)
    for _ in range(2):
        for jit in (lambda f: f, aj.jit):
            for run in (jit(lambda x: used(outside)), jit(lambda x: used(stale(w)))):
                try:
                    run(aj.ones(2))
                    found.append("")
                except RuntimeError as error:
                    found.append(str(error).splitlines()[0])
        used(aj.ones(3, requires_grad=True).view(3))
    return found


@pytest.mark.parametrize("use", USES)
def test_every_recorded_use_of_a_stale_view_is_refused(use: str) -> None:
    found = said(USES[use])
    assert found[0].startswith("A view was created in no_grad mode")
    assert found == found[:1] * 8


@pytest.mark.parametrize("use", UNRECORDED)
def test_uses_without_a_history_are_not(use: str) -> None:
    assert said(UNRECORDED[use]) == [""] * 8


def cubes(z: aj.Tensor) -> aj.Tensor:
    return (z * z * z).sum()


TRANSFORMS: dict[str, Callable[[aj.Tensor], aj.Tensor]] = {
    "grad": func.grad(cubes),
    "grad_and_value": lambda x: func.grad_and_value(cubes)(x)[1],
    "grad of grad": func.grad(lambda x: func.grad(cubes)(x).sum()),
    "grad of vmap": func.grad(lambda x: func.vmap(cubes)(x).sum()),
    "vjp": lambda x: func.vjp(cubes, x)[1](aj.ones(()))[0],
    "linearize": lambda x: func.linearize(cubes, x)[1](aj.ones_like(x)),
    "jvp of grad": lambda x: func.jvp(func.grad(cubes), (x,), (aj.ones_like(x),))[1],
    "jacrev": func.jacrev(cubes),
    "jacfwd": func.jacfwd(cubes),
    "hessian": func.hessian(cubes),
    "vmap of grad": func.vmap(func.grad(cubes)),
    "vmap of hessian": func.vmap(func.hessian(cubes)),
    "the same for a batch": lambda x: func.vmap(lambda k: func.grad(lambda z: cubes(z) * k)(x))(aj.ones(2)),
}
CALLERS = {"no_grad": aj.no_grad, "inference": aj.inference_mode, "ordinary": contextlib.nullcontext}


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("made", (aj.no_grad, aj.inference_mode))
@pytest.mark.parametrize("is_leaf", (True, False))
def test_transforms_ask_for_the_history_of_callers_who_record(transform: str, made: Any, is_leaf: bool) -> None:
    leaf = aj.arange(6.0).reshape(2, 3).clone().requires_grad_()
    w = leaf if is_leaf else leaf * 1.5
    for jit in (lambda f: f, aj.jit):
        run = jit(lambda x: TRANSFORMS[transform](stale(w, made)))
        for caller, enter in CALLERS.items():
            for _ in range(2):
                expected = TRANSFORMS[transform](w.detach() * 0.5)
                with enter():
                    if caller == "ordinary":
                        with pytest.raises(
                            RuntimeError, match="its base or another view of its base has been modified"
                        ):
                            run(aj.ones(2))
                        continue
                    found = run(aj.ones(2))
                assert aj.allclose(found, expected)
                assert not found.requires_grad
