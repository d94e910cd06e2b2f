"""Concatenations that are stored by the nest which computes their parts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import autojit as aj
from tests.schedule.shown import expected, kernels, machine, scheduled

WHOLE = machine(bands=None)


def test_a_nest_stores_the_concatenation_of_what_it_computes() -> None:
    found = scheduled(
        """
        (x: f32[8, 6], y: f32[8, 6], w: f32[12, 4]) {
          a: f32[8, 6] = exp(x);
          b: f32[8, 6] = mul(a, y);
          c: f32[8, 6] = add(a, y);
          d: f32[8, 12] = concatenate[axis=1](b, c);
          e: f32[8, 4] = matmul(d, w);
          return e
        }""",
        WHOLE,
    )
    assert kernels(found) == expected("""
        loops 8x6, 0 accumulators (x, y) -> d {exp mul add concatenate}
        matmul f32[8, 12] @ f32[12, 4] (d, w) -> e {matmul}""")


@pytest.mark.parametrize("read", ["b", "x"])
def test_parts_that_others_read_or_nobody_computes_are_copied(read: str) -> None:
    found = scheduled(
        f"""
        (x: f32[8, 6], y: f32[8, 6]) {{
          a: f32[8, 6] = exp(x);
          b: f32[8, 6] = mul(a, y);
          d: f32[8, 12] = concatenate[axis=1](a, {"x" if read == "x" else "b"});
          return d, {"b" if read == "b" else "a"}
        }}""",
        WHOLE,
    )
    assert "concatenate" in kernels(found).splitlines()[-1]


CELLS: dict[str, Callable[[aj.Tensor, aj.Tensor], aj.Tensor]] = {
    "last axis": lambda x, y: aj.cat([aj.exp(x), x * y, x - y], -1),
    "first axis": lambda x, y: aj.cat([aj.exp(x), x * y, x - y], 0),
    "middle": lambda x, y: aj.cat([aj.exp(x), x * y], 1),
    "stacked": lambda x, y: aj.stack([aj.sin(x), x * y, aj.cos(y)], 1),
    "stacked last": lambda x, y: aj.stack([aj.sin(x), x * y], -1),
    "rows": lambda x, y: aj.cat([aj.softmax(x, -1), x.softmax(-1) * y], -1),
    "columns": lambda x, y: aj.cat([x - x.sum((0, 1)), (x * y) * x.sum((0, 1))], 0),
    "flat": lambda x, y: aj.cat([(x * 2).reshape(-1), (x + y).reshape(-1)]),
    "whole twice": lambda x, y: aj.cat([aj.cat([x * y, x + y], 1), aj.cat([x - y, x * 3], 1)], 0),
}


@pytest.mark.parametrize("shape", [(4, 6, 8), (3, 5, 7), (1, 2, 300), (5, 64, 64)], ids=str)
@pytest.mark.parametrize("name", CELLS)
def test_what_is_joined_is_what_eager_ops_join(name: str, shape: tuple[int, ...]) -> None:
    cell = CELLS[name]

    def program(x: aj.Tensor, y: aj.Tensor) -> tuple[aj.Tensor, ...]:
        x, y = x.detach().requires_grad_(), y.detach().requires_grad_()
        joined = cell(x, y)
        return (joined * 2, *aj.autograd.grad(joined.square().sum(), (x, y)))

    generator = np.random.default_rng(0)
    x, y = (aj.tensor(generator.normal(size=shape).astype(np.float32)) for _ in range(2))
    for found, reference in zip(aj.jit(program)(x, y), program(x, y), strict=True):
        np.testing.assert_allclose(found.detach().numpy(), reference.detach().numpy(), rtol=1e-4, atol=1e-4)
