"""Steps that pad what they compute for the inner cells give what eager mode gives, with derivatives."""

from __future__ import annotations

import pytest

import autojit as aj
from autojit.nn.functional import pad

SIDE = 72  # more cells than a small domain has


@pytest.mark.parametrize("widths", [(1, 1, 1, 1), (0, 2, 2, 0), (2, 0, 1, 1)])
@pytest.mark.parametrize("value", [0.0, 1.5])
def test_rounds_of_a_stencil_are_as_in_eager_mode(widths: tuple[int, ...], value: float) -> None:
    aj.manual_seed(0)
    start, conductivity = aj.randn(SIDE, SIDE), aj.rand(SIDE - 2, SIDE - 2) / 8

    def rounds(u: aj.Tensor, c: aj.Tensor) -> tuple[aj.Tensor, ...]:
        u, c = u.detach().requires_grad_(), c.detach().requires_grad_()
        v = u
        for _ in range(3):
            flow = v[2:, 1:-1] + v[:-2, 1:-1] + v[1:-1, 2:] * v[1:-1, :-2] - 4 * v[1:-1, 1:-1]
            v = v + pad(c * flow, widths, value=value)
        return v.detach(), *aj.autograd.grad((v * v).mean(), (u, c))

    for found, expected in zip(aj.jit(rounds)(start, conductivity), rounds(start, conductivity), strict=True):
        aj.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_values_that_lead_to_a_padding_in_many_ways_are_computed_once_each() -> None:
    def grown(u: aj.Tensor) -> aj.Tensor:
        inner = u[1:-1, 1:-1]
        for _ in range(40):  # 2 to the 40 ways from the padding to the cells
            inner = inner * inner - inner
        return u + pad(inner, (1, 1, 1, 1))

    cells = aj.rand(SIDE, SIDE) / 2
    aj.testing.assert_close(aj.jit(grown)(cells), grown(cells), rtol=1e-5, atol=1e-6)
