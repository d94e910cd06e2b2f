"""A tangent lies in memory as its primal does, in a step as in eager mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "mul": lambda z: z * z,
    "pow": lambda z: (-0.75 * z * 2.0).pow(2),
    "tanh": lambda z: z.tanh(),
    "silu": aj.nn.functional.silu,
    "softmax": lambda z: z.softmax(-1),
    "a view": lambda z: z[1:].exp(),
    "matmul": lambda z: z @ z.T,
    "written": lambda z: z.sin().mul_(2.0),
}
ARGUMENTS: dict[str, Callable[[], Any]] = {
    "row-major": lambda: aj.ones(3, 4),
    "transposed": lambda: aj.ones(4, 3).T,
    "gaps": lambda: aj.ones(3, 8)[:, ::2],
    "transposed gaps": lambda: aj.ones(4, 6)[:, ::2].T,
}


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS.keys())
@pytest.mark.parametrize("primal", ARGUMENTS)
@pytest.mark.parametrize("tangent", ARGUMENTS)
def test_a_tangent_lies_as_its_primal(function: Callable[[Any], Any], primal: str, tangent: str) -> None:
    def run(x: Any, x_dot: Any) -> tuple[Any, Any]:
        _, y_dot = aj.func.jvp(function, (x,), (x_dot,))
        return y_dot, y_dot.mul_(1.5)

    step = aj.jit(run)
    for _ in range(2):
        wanted, got = (f(ARGUMENTS[primal](), ARGUMENTS[tangent]() * 2) for f in (run, step))
        assert [t.stride() for t in got] == [t.stride() for t in wanted]
        assert all(aj.allclose(a, b) for a, b in zip(got, wanted, strict=True))
