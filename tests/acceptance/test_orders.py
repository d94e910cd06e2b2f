"""Derivatives of high order: compiled code gives what eager mode gives, for every op of the registry.

Order 1 to 4 for elementwise ops, 1 to 3 for all others, in float64 and complex128, on the ops' own samples. Each order
is the gradient of a weighted sum of the gradients of the order before, so every rule meets every other one. Every run
takes one sample per op; ``--slow`` takes all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.dispatch.dispatch import apply
from autojit.ir import Op
from autojit.ops.base import Elementwise
from tests.autograd.registry import Sample, first_samples, samples

TOLERANCE = 1e-10  # relative to the largest element
DTYPES = (aj.float64, aj.complex128)


def weights(like: Any, seed: int) -> Any:
    """Fixed numbers of either sign around 1 in the type of a tensor."""
    generator = np.random.default_rng(seed)
    draw = generator.uniform(0.5, 1.5, like.shape) * generator.choice([-1.0, 1.0], like.shape)
    if like.is_complex():
        draw = draw + 1j * generator.uniform(-1, 1, like.shape)
    return aj.tensor(draw, dtype=like.dtype)


def total(tensors: Sequence[Any], seed: int) -> Any:
    """A real number that every element counts in."""
    found = aj.zeros((), dtype=aj.float64)
    for k, t in enumerate(tensors):
        product = t * weights(t, seed + k)
        found = found + (product.real if t.is_complex() else product).sum()
    return found


def derivatives(op: Op, order: int) -> Callable[..., list[Any]]:
    """The function that gives the gradients of every order, one after the other."""

    def gradients(*given: Any) -> list[Any]:
        xs = [x.detach().requires_grad_() if x.is_floating_point() or x.is_complex() else x for x in given]
        leaves = [x for x in xs if x.requires_grad]
        result = apply(op, *xs)
        outputs = [y for y in (result if isinstance(result, tuple) else (result,)) if y.requires_grad]
        found: list[Any] = []
        for k in range(order):
            if not outputs:
                break
            value = total(outputs, 10 * k)
            grads = aj.autograd.grad(value, leaves, create_graph=True, allow_unused=True)
            present = [g for g in grads if g is not None]
            found += present
            outputs = [g for g in present if g.requires_grad]
        return [g.detach() for g in found]

    return gradients


def one_per_op() -> list[Sample]:
    """A sample per op and dtype."""
    return [(f"{name}-{dtype.name}", op, arrays) for dtype in DTYPES for name, op, arrays in first_samples(dtype)]


def check(op: Op, arrays: Sequence[Any]) -> None:
    order = 4 if isinstance(op, Elementwise) else 3
    function = derivatives(op, order)
    given = [aj.tensor(np.array(a)) for a in arrays]
    eager = function(*given)
    jitted = aj.jit(function)
    for _ in range(2):
        compiled = jitted(*given)
    assert len(compiled) == len(eager)
    scale = 0.0  # of the largest derivative so far: where one vanishes, rounding is all there is to compare
    for k, (found, expected) in enumerate(zip(compiled, eager, strict=True)):
        a, b = found.numpy(), expected.numpy()
        scale = max(scale, float(np.max(np.abs(b), initial=0.0, where=np.isfinite(b))))
        np.testing.assert_allclose(a, b, rtol=TOLERANCE, atol=TOLERANCE * scale, err_msg=f"derivative {k} of {op}")


@pytest.mark.parametrize(("op", "arrays"), [pytest.param(op, arrays, id=name) for name, op, arrays in one_per_op()])
def test_derivatives_of_all_orders_are_the_same_compiled(op: Op, arrays: tuple[Any, ...]) -> None:
    check(op, arrays)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
def test_derivatives_of_all_orders_are_the_same_compiled_on_every_sample(dtype: Any) -> None:
    wrong = []
    for name, op, arrays in samples(dtype, largest=1 << 20, smallest=0):
        try:
            check(op, arrays)
        except AssertionError as error:
            wrong.append(f"{name}: {error}")
    assert not wrong, "\n".join(wrong)
