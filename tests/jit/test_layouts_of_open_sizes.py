"""Steps of open sizes on arguments of every layout: values, strides and gradients as in eager mode, at two captures.

Sizes that a step's later calls change are open once a second capture with other sizes agrees with the first. Whatever
order in memory the operands have, that capture must find the layouts which operands of *its* sizes would have; where
it does not, the sizes are fixed, and every size costs a capture of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import autojit as aj
import autojit.nn.functional as F
from tests.covering import covering
from tests.jit.agreement import check_equal

LAYOUTS: dict[str, Callable[[int], aj.Tensor]] = {
    "row-major": lambda n: aj.randn(n, 4),
    "transposed": lambda n: aj.randn(4, n).T,
    "gaps between rows": lambda n: aj.randn(n, 9)[:, 2:6],
    "gaps in rows": lambda n: aj.randn(n, 8)[:, ::2],
    "expanded": lambda n: aj.randn(n, 1).expand(n, 4),
    "a row for all": lambda n: aj.randn(4).expand(n, 4),
}
PROGRAMS: dict[str, Callable[[aj.Tensor, aj.Tensor], Any]] = {
    "and zeros of its shape": lambda x, y: x + aj.zeros(x.shape),
    "and zeros alike": lambda x, y: x * 2 + aj.zeros_like(x),
    "by the other": lambda x, y: x * y,
    "the other by it": lambda x, y: y - x.tanh(),
    "running sums and itself": lambda x, y: x.cumsum(1) + x,
    "running sums down": lambda x, y: x.cumsum(0) * x,
    "sorted by gathering": lambda x, y: x.gather(-1, x.argsort(-1)) + x.exp(),
    "rows that another picks": lambda x, y: x[y[:, 0].argsort()] * x,
    "softmax and itself": lambda x, y: x.softmax(-1) * x + y,
    "made whole": lambda x, y: (x.contiguous() + x, x.reshape(-1) * 2),
    "turned": lambda x, y: (x.T @ y, x.T + y.T),
    "stacked": lambda x, y: (aj.stack([x, y]) * 2, aj.cat([x, y]), x + y),
    "chosen": lambda x, y: aj.where(x > y, x, y),
    "normalised": lambda x, y: F.layer_norm(x, x.shape[-1:]) + x,
    "flipped": lambda x, y: x.flip(0) + x,
    "by its own strides": lambda x, y: x.clone() * (x.clone().stride()[1] + 1),
}  # fmt: skip
SIZES = (12, 7, 9, 30, 11)


def _slopes(program: Callable[..., Any], x: aj.Tensor, y: aj.Tensor) -> Any:
    results = program(x, y)
    loss = sum(((r * 1).tanh().mean() for r in (results if isinstance(results, tuple) else (results,))), aj.zeros(()))
    loss.backward()
    return loss


def _seen(step: Callable[..., Any], layout: str, other: str, is_leaf: bool) -> list[Any]:
    aj.manual_seed(3)
    found = []
    for n in SIZES:
        x, y = LAYOUTS[layout](n).detach().requires_grad_(is_leaf), LAYOUTS[other](n)
        results = step(x, y)
        tensors = results if isinstance(results, tuple) else (results,)
        found.append([[t.detach().numpy().copy(), list(t.stride())] for t in tensors])
        if x.grad is not None:
            found.append([x.grad.numpy().copy(), list(x.grad.stride())])
    return found


@covering("name, layout, is_leaf", PROGRAMS, LAYOUTS, [False, True], every=3)
def test_open_sizes_stay_open_whatever_the_layout(name: str, layout: str, is_leaf: bool) -> None:
    program = PROGRAMS[name]

    def step(x: aj.Tensor, y: aj.Tensor) -> Any:
        return _slopes(program, x, y) if is_leaf else program(x, y)

    for other in LAYOUTS:
        compiled = aj.jit(step)
        check_equal(_seen(step, layout, other, is_leaf), _seen(compiled, layout, other, is_leaf), f"beside {other}")
        assert compiled.stats()["captures"] <= 2, (other, compiled.explain())
