"""Anomaly mode in loops and branches: compiled steps tell op, line, order and round as eager mode does.

The law, over programs: for every input the error, its facts and the warnings before it agree, or there is none.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj
from autojit.autograd import set_detect_anomaly

F64 = aj.float64


def scanned(x: aj.Tensor) -> aj.Tensor:
    def step(c: aj.Tensor, z: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
        return c * z, (c * z).sqrt()

    return aj.scan(step, aj.ones((), dtype=F64), x)[1].sum()


def scanned_backwards(x: aj.Tensor) -> aj.Tensor:
    def step(c: aj.Tensor, z: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
        return c + z, (c + z).log()

    return aj.scan(step, aj.ones((), dtype=F64), x, reverse=True)[1].sum()


def repeated(x: aj.Tensor) -> aj.Tensor:
    def body(k: aj.Tensor, c: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
        return k + 1, (c - 1.5).sqrt().sum() * x

    return aj.while_loop(lambda k, c: k < 3, body, (aj.tensor(0), x))[1].sum()


def scan_in_a_loop(x: aj.Tensor) -> aj.Tensor:
    def body(k: aj.Tensor, c: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
        last, ys = aj.scan(lambda s, z: (s + z, (s * z).sqrt()), c, x)
        return k + 1, last * 0.5 + ys.sum()

    return aj.while_loop(lambda k, c: k < 2, body, (aj.tensor(0), aj.ones((), dtype=F64)))[1]


def scan_in_a_scan(x: aj.Tensor) -> aj.Tensor:
    def outer(c: aj.Tensor, z: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
        last, _ = aj.scan(lambda s, y: ((s + y * z).rsqrt() + y, ()), c, x)
        return c * 0.5, last

    return aj.scan(outer, aj.ones((), dtype=F64), x)[1].sum()


def branch_in_a_scan(x: aj.Tensor) -> aj.Tensor:
    def step(c: aj.Tensor, z: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
        return c, aj.cond(z > 1.0, lambda: z.sin(), lambda: z.pow(0.5))

    return aj.scan(step, aj.ones((), dtype=F64), x)[1].sum()


def hidden_in_a_branch_not_taken(x: aj.Tensor) -> aj.Tensor:
    """The carry's gradient is masked: nothing of the NaN leaves the loop."""

    def step(c: aj.Tensor, z: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
        return c, aj.where(z > 0, Root.apply(z), z)

    return aj.scan(step, aj.ones((), dtype=F64), x)[1].sum()


class Root(aj.autograd.Function):
    """A root whose derivative is NaN for negative numbers, whatever its cotangent."""

    @staticmethod
    def forward(ctx: Any, x: aj.Tensor) -> aj.Tensor:
        ctx.save_for_backward(x)
        return x.sqrt().nan_to_num()

    @staticmethod
    def backward(ctx: Any, bar: aj.Tensor) -> aj.Tensor:
        (x,) = ctx.saved_tensors
        return (bar / x.sqrt()).clamp(max=5.0)


def before_the_loop(x: aj.Tensor) -> aj.Tensor:
    return scanned(x.sqrt() + 0.5)


def after_the_loop(x: aj.Tensor) -> aj.Tensor:
    return scanned(x.abs() + 0.5) * x.sum().log()


PROGRAMS = [
    scanned, scanned_backwards, repeated, scan_in_a_loop, scan_in_a_scan, branch_in_a_scan,
    hidden_in_a_branch_not_taken, before_the_loop, after_the_loop,
]  # fmt: skip
INPUTS = [
    [2.0, 2.5, 3.0, 3.5],
    [2.0, 3.0, -1.0, 2.0],
    [2.5, 2.0, 3.0, 3.5],
    [-2.0, 3.0, 2.0, 2.0],
    [2.0, 2.0, 2.0, -9.0],
]


def first_order(function: Callable[..., Any]) -> Callable[..., Any]:
    def step(x: aj.Tensor) -> aj.Tensor:
        (slope,) = aj.autograd.grad(function(x), (x,))
        return slope

    return step


def second_order(function: Callable[..., Any]) -> Callable[..., Any]:
    def step(x: aj.Tensor) -> aj.Tensor:
        (slope,) = aj.autograd.grad(function(x), (x,), create_graph=True)
        if not slope.requires_grad:
            return slope
        (curvature,) = aj.autograd.grad((slope * slope).sum(), (x,))
        return curvature

    return step


def told(step: Callable[..., Any], values: list[float]) -> Any:
    """The result, or what the error and the warnings before it say (but not the calls around the step)."""
    x = aj.tensor(values, dtype=F64, requires_grad=True)
    with warnings.catch_warnings(record=True) as heard, set_detect_anomaly(True):
        warnings.simplefilter("always")
        try:
            return [round(y, 9) for y in step(x).tolist()]
        except RuntimeError as error:
            assert isinstance(error, aj.core.errors.DifferentiationError), error
            facts = {name: str(text) for name, text in error.facts.items() if name != "at"}
            return error.what, facts, [str(w.message).split("\n")[0] for w in heard]


@pytest.mark.parametrize("order", [first_order, second_order])
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_compiled_loop_tells_of_a_nan_as_eager_mode_does(program: Any, order: Any) -> None:
    step, compiled = order(program), aj.jit(order(program))
    for values in INPUTS:
        assert told(compiled, values) == told(step, values)


@pytest.mark.parametrize("program", PROGRAMS)
def test_so_does_a_compiled_function_that_is_differentiated_outside(program: Any) -> None:
    compiled = aj.jit(program)
    for values in INPUTS:
        found, expected = told(first_order(compiled), values), told(first_order(program), values)
        assert found == expected


def test_a_gradient_taken_inside_of_a_body_is_watched() -> None:
    def newton(x: aj.Tensor) -> aj.Tensor:
        def step(c: aj.Tensor, z: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
            inner = z.detach().requires_grad_()
            (slope,) = aj.autograd.grad((inner - 1.0).sqrt(), (inner,))
            return c - slope, c

        return aj.scan(step, aj.ones((), dtype=F64), x)[1]

    compiled = aj.jit(newton)
    for values in INPUTS:
        assert told(compiled, values) == told(newton, values)


def test_the_round_is_named_with_those_of_the_loops_around_it() -> None:
    _, facts, _ = told(aj.jit(first_order(scan_in_a_loop)), [2.0, 3.0, -1.0, 2.0])
    assert facts["round"] == "1, in it 3"
    assert facts["forward op"].startswith("sqrt at ")
