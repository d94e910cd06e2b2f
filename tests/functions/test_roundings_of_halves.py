"""Where torch rounds what it computes of halves: functions of one kernel once, those of several kernels at each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
import autojit.nn.functional as F

Rounded = Callable[[Any], Any]

# by function: what is called, and the same in float32, where ``h`` rounds to the half
CASES: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any, Any, Rounded], Any]]] = {
    "add": (lambda x, y: aj.add(x, y, alpha=0.3), lambda x, y, h: x + h(aj.tensor(0.3)) * y),
    "sub": (lambda x, y: aj.sub(x, y, alpha=0.3), lambda x, y, h: x - h(aj.tensor(0.3)) * y),
    "rsub": (lambda x, y: aj.rsub(x, y, alpha=0.3), lambda x, y, h: y - h(aj.tensor(0.3)) * x),
    "add_": (lambda x, y: x.clone().add_(y, alpha=0.3), lambda x, y, h: x + h(aj.tensor(0.3)) * y),
    "addcmul": (lambda x, y: aj.addcmul(x, x, y, value=0.7), lambda x, y, h: x + 0.7 * x * y),
    "number times": (lambda x, _: 0.3 * x, lambda x, _, h: 0.3 * x),
    "number over": (lambda x, _: 0.3 / x, lambda x, _, h: 0.3 * h(1 / x)),
    "over number": (lambda x, _: x / 0.3, lambda x, _, h: x / 0.3),
    "trunc": (lambda x, y: aj.div(x, y, rounding_mode="trunc"), lambda x, y, h: h(x / y).trunc()),
    "hardswish": (lambda x, _: F.hardswish(x), lambda x, _, h: x * (x + 3).clamp(0, 6) / 6),
    "logits": (
        lambda x, y: F.binary_cross_entropy_with_logits(x, y.sigmoid(), reduction="none"),
        lambda x, y, h: h(h(1 - h(y.sigmoid())) * x) - h(F.logsigmoid(x)),
    ),
}


@pytest.mark.parametrize("jit", [lambda f: f, aj.jit], ids=["eager", "compiled"])
@pytest.mark.parametrize("dtype", [aj.float16, aj.bfloat16], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_results_are_rounded_as_those_of_torch(name: str, dtype: aj.dtype, jit: Any) -> None:
    function, wide = CASES[name]
    numbers = np.random.default_rng(0).standard_normal((2, 2000))
    x, y = (aj.tensor(row * 3).to(dtype) for row in numbers)
    expected = wide(x.float(), y.float(), lambda t: t.to(dtype).float()).to(dtype)
    found = jit(function)(x, y)
    assert found.dtype is dtype
    differing = int(found.ne(expected).sum())
    assert differing <= 4, (
        found[found.ne(expected)][:3],
        expected[found.ne(expected)][:3],
    )  # exp is not that of eager mode
