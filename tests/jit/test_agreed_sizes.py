"""Sizes that a step counts beside sizes of its arguments: passes take them to agree, as the capture has found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj


def chosen(x: Any, mask: Any) -> Any:
    return aj.masked_select(x, mask)


def assigned(x: Any, mask: Any, v: Any) -> Any:
    x = x.clone()
    x[mask] = v
    return x


STEPS: dict[str, Callable[..., Any]] = {
    "elementwise": lambda x, mask, v: chosen(x, mask) * v + v,
    "where": lambda x, mask, v: aj.where(chosen(x, mask).abs() > 0.5, chosen(x, mask), v),
    "product": lambda x, mask, v: chosen(x, mask)[None] @ v[:, None],
    "joined": lambda x, mask, v: aj.cat([chosen(x, mask), v]) * aj.cat([v, chosen(x, mask)]),
    "assigned": assigned,
}


@pytest.mark.parametrize(("name", "dtype"), [*((name, "complex64") for name in STEPS), ("elementwise", "bfloat16")])
def test_values_and_gradients_are_those_of_eager_mode(name: str, dtype: str) -> None:
    function, kind = STEPS[name], getattr(aj, dtype)

    def step(x: Any, mask: Any, v: Any) -> Any:
        y = function(x, mask, v)
        return y, *aj.autograd.grad(y.abs().sum(), (x, v))

    jitted = aj.jit(step)
    for seed in range(2):
        aj.manual_seed(seed)
        mask = aj.rand(3, 4) > 0.4
        x, v = (aj.randn(n, dtype=kind).requires_grad_() for n in ((3, 4), (int(mask.sum()),)))
        for found, wanted in zip(jitted(x, mask, v), step(x, mask, v), strict=True):
            aj.testing.assert_close(found, wanted)
    if name != "joined":  # any lengths can be joined
        with pytest.raises((RuntimeError, IndexError)):
            jitted(x, mask, aj.ones(13, dtype=kind).requires_grad_())
