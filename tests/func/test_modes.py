"""Transforms give the same derivatives in every gradient mode, eager and compiled, and what torch says of results."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

import autojit as aj

F = aj.func
X, W = aj.tensor([0.5, -1.5]), aj.tensor([3.0, 4.0], requires_grad=True)


def wave(z: Any) -> Any:
    return (z * W).sin()


TRANSFORMS = {
    "grad": lambda x: F.grad(lambda z: wave(z).sum())(x),
    "grad_and_value": lambda x: F.grad_and_value(lambda z: wave(z).sum())(x)[1],
    "of a parameter": lambda x: F.grad(lambda w: (w * x).sin().sum())(W),
    "vmap of grad": lambda x: F.vmap(F.grad(lambda z: wave(z).sum()))(aj.stack([x, 2 * x])),
    "vjp": lambda x: F.vjp(wave, x)[1](x)[0],
    "vjp's value": lambda x: F.vjp(wave, x)[0],
    "jvp": lambda x: F.jvp(wave, (x,), (x,))[1],
    "linearize": lambda x: F.linearize(wave, x)[1](x),
    "jacrev": lambda x: F.jacrev(wave)(x),
    "jacfwd": lambda x: F.jacfwd(wave)(x),
    "hessian": lambda x: F.hessian(lambda z: wave(z).sum())(x),
    "grad of grad": lambda x: F.grad(lambda y: F.grad(lambda z: wave(z).sum())(y).sum())(x),
}
MODES = {"ordinary": contextlib.nullcontext, "no_grad": aj.no_grad, "inference": aj.inference_mode}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_transform_does_not_ask_for_the_mode_of_its_caller(name: str) -> None:
    transform = TRANSFORMS[name]
    expected = transform(X)
    assert expected.abs().sum() > 0
    for mode, enter in MODES.items():
        for function in (transform, aj.jit(transform)):
            with enter():
                found = function(X)
            assert aj.allclose(found, expected), mode
            assert found.requires_grad is (mode == "ordinary")
            assert not found.is_inference()


@pytest.mark.parametrize("name", TRANSFORMS)
def test_tensors_made_in_inference_mode_are_differentiated_by_and_saved(name: str) -> None:
    transform = TRANSFORMS[name]
    expected = transform(X)
    with aj.inference_mode():
        x = X * 1
    with aj.no_grad():  # the caller's own history would have to save them
        assert aj.allclose(transform(x), expected)
        assert aj.allclose(aj.jit(transform)(x), expected)


def test_what_a_function_reads_may_have_been_made_in_inference_mode() -> None:
    with aj.inference_mode():
        x = X * 1
    gradient = F.grad(lambda z: (z * x).sum())
    assert aj.allclose(gradient(X), X)
    assert aj.allclose(aj.jit(gradient)(X), X)


def test_the_function_runs_in_ordinary_mode_inside() -> None:
    seen = []

    def function(z: Any) -> Any:
        seen.append((aj.is_inference_mode_enabled(), aj.is_grad_enabled(), (z * 1).is_inference()))
        return z.sum()

    with aj.inference_mode():
        F.grad(function)(X)
        assert aj.is_inference_mode_enabled()
    assert seen == [(False, True, False)]
