"""A masked branch gives derivative 0: of every elementwise op, at operands where its slope is infinite or NaN.

The mask is ``where(mask, op(x), 0)`` with the op evaluated at all of x; first and second derivatives at masked elements
are 0 by the interpreter, compiled, and by the engine that walks recorded history. Where nothing is masked, 0 times
infinity stays NaN.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import autojit as aj
import autojit.ops
from autojit.compiler import compile
from autojit.core.dtypes import float64
from autojit.ir import Graph, GraphBuilder, Op, evaluate
from autojit.ir.op import bind
from autojit.ops.elementwise_base import Pointwise
from autojit.transforms.adjoint import adjoint
from tests.ops.laws import eager, type_of

HARD = [0.0, -0.0, 1.0, -1.0, 2.0, -2.5, math.inf, -math.inf, math.nan, 1e308, -1e308, 5e-324, 800.0, -800.0]
F64 = np.float64


def _is_case(op: type[Op]) -> bool:
    if not issubclass(op, Pointwise) or not op.__module__.startswith("autojit.ops.") or not op.is_differentiable:
        return False
    return bool(_of_doubles(op))


def _of_doubles(op: type[Pointwise]) -> list[Op]:
    """The sampled forms of the op from doubles to doubles."""
    return [one for one, x in op.samples(float64) if all(a.dtype == F64 for a in (*x, *eager(one, x)))]


OPS = [op for op in Op.registry.load().values() if _is_case(op)]


def masked_graph(op: Op, inputs: list[NDArray[Any]]) -> Graph:
    """``where(mask, op(*x), 0)``; the mask comes first."""
    builder = GraphBuilder()
    mask, *xs = [builder.tracer(builder.input(type_of(x))) for x in inputs]
    return builder.finish([autojit.ops.where(mask, bind(op, *xs), 0.0).value])


@pytest.mark.parametrize("op_class", OPS, ids=lambda op: op.name)
def test_derivatives_behind_a_mask_are_zero_wherever_the_slope_is_not_finite(op_class: type[Pointwise]) -> None:
    op = _of_doubles(op_class)[-1]
    points = np.array(list(itertools.product(HARD, repeat=op_class.arity)))
    inputs = [np.zeros(len(points), bool), *points.T.copy()]
    first = adjoint(masked_graph(op, inputs))
    second = adjoint(first)
    given = [*inputs, np.ones(len(points))]
    for graph, values in ((first, given), (second, [*given, *[np.ones(len(points))] * op_class.arity])):
        by_numpy = evaluate(graph, values)[: op_class.arity]
        by_kernel = compile(graph).executable.run(values)[: op_class.arity]
        for k, found in enumerate((*by_numpy, *by_kernel)):
            wrong = found != 0
            assert not wrong.any(), (k, points[wrong][:3], found[wrong][:3])


BRANCHES: dict[str, Callable[[Any], Any]] = {
    "x log x": lambda x: x * x.log(),
    "x / x": lambda x: x * (1 / x),
    "sqrt x log x": lambda x: x.sqrt() * x.log(),
    "power": lambda x: x**-1.5 * x,
    "exp overflows": lambda x: x * (1 / x).exp(),
    "square of log": lambda x: x.log().square(),
    "sine of 1/x": lambda x: (1 / x).sin(),
    "sigmoid of NaN": lambda x: (1 / x - 1 / x).sigmoid(),
    "rsqrt": lambda x: x * x.rsqrt(),
    "product": lambda x: aj.stack([x, x.log()]).prod(0),
    "softmax": lambda x: aj.stack([1 / x, x.log()]).softmax(0)[0],
    "log_softmax": lambda x: aj.stack([1 / x, x.log()]).log_softmax(0)[0],
    "gelu": lambda x: aj.nn.functional.gelu(1 / x),
    "softplus": lambda x: aj.nn.functional.softplus(1 / x) * x,
    "variance": lambda x: aj.stack([1 / x, x.log()]).var(0),
    "norm": lambda x: aj.stack([1 / x, x.log()]).norm(dim=0),
    "logaddexp": lambda x: aj.logaddexp(x.log(), x.log()),
    "lgamma": lambda x: x.lgamma() * x,
    "layer norm": lambda x: aj.nn.functional.layer_norm(aj.stack([1 / x, x.log()], 1), (2,)).sum(1),
}
MASKS: dict[str, Callable[[Any, Any], Any]] = {
    "where": lambda x, y: aj.where(x > 0, y, 0 * x),
    "masked_fill": lambda x, y: y.masked_fill(x <= 0, 0.0),
    "index": lambda x, y: y[x > 0],
    "slice": lambda x, y: y[1:],
    "given cotangent": lambda x, y: y,
}


def derivatives(branch: str, mask: str, x: Any) -> tuple[Any, Any]:
    """Gradient and a Hessian-vector product of a masked branch."""
    y = MASKS[mask](x, BRANCHES[branch](x))
    weights = aj.tensor([0.0, 1.0, 1.0], dtype=aj.float64) if mask == "given cotangent" else None
    (slope,) = aj.autograd.grad(y if weights is not None else y.sum(), x, weights, create_graph=True)
    if not slope.requires_grad:
        return slope, aj.zeros_like(slope)
    (curvature,) = aj.autograd.grad((slope * aj.tensor([1.0, 2.0, 3.0], dtype=aj.float64)).sum(), x)
    return slope.detach(), curvature


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("branch", BRANCHES)
def test_the_engine_keeps_a_masked_zero_eagerly_and_compiled(branch: str, mask: str) -> None:
    x = aj.tensor([0.0, 1.5, 2.0], dtype=aj.float64).requires_grad_()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        found = derivatives(branch, mask, x)
        compiled = aj.jit(lambda t: derivatives(branch, mask, t))(x)
        alone = x.detach()[1:].requires_grad_()
        (slope,) = aj.autograd.grad(BRANCHES[branch](alone).sum(), alone)
    for a, b in zip(found, compiled, strict=True):
        assert a[0].item() == 0
        np.testing.assert_allclose(b.detach().numpy(), a.detach().numpy(), rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(found[0][1:].numpy(), slope.numpy(), rtol=1e-13)


@pytest.mark.parametrize("branch", BRANCHES)
def test_what_no_mask_hides_is_the_same_eagerly_and_compiled(branch: str) -> None:
    """Zeros and NaN included: both take the same products at every order."""

    def all_derivatives(x: Any) -> list[Any]:
        y = BRANCHES[branch](x)
        (slope,) = aj.autograd.grad(y.sum(), x, create_graph=True)
        (curvature,) = aj.autograd.grad(slope.sum(), x, create_graph=True)
        (third,) = aj.autograd.grad(curvature.sum(), x)
        return [slope.detach(), curvature.detach(), third]

    x = aj.tensor([0.0, -0.0, 1.5, math.inf, 2.0, 5e-324, -1.0], dtype=aj.float64).requires_grad_()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for eagerly, compiled in zip(all_derivatives(x), aj.jit(all_derivatives)(x), strict=True):
            np.testing.assert_allclose(compiled.numpy(), eagerly.numpy(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("wrap", [lambda f: f, aj.jit], ids=["eager", "compiled"])
def test_a_nan_that_no_mask_hides_stays(wrap: Callable[..., Any]) -> None:
    def gradient(x: Any) -> Any:
        return aj.autograd.grad((x * x.log() * x).sum(), x)[0]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        assert wrap(gradient)(aj.tensor([0.0, 1.0]).requires_grad_()).isnan().tolist() == [True, False]
