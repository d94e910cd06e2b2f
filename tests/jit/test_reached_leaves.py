"""A result of a compiled step leads to what its own computation leads to, and to nothing else that the step reads:
other leaves keep a ``.grad`` of None, their hooks are not called, and gradients lie in memory as in eager mode.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj
from autojit.tensor.state import reference_only
from tests.jit.agreement import check_equal, plain

Make = Callable[[Any, Any], Any]

WAYS: dict[str, Make] = {
    "both": lambda a, b: a * b,
    "the first": lambda a, b: a.sin(),
    "the second as a number": lambda a, b: a * b.detach().sum(),
    "a mask of the second": lambda a, b: aj.where(b > 0, a, a * 0.5),
    "indices of the second": lambda a, b: a[b.argmax(0) % 3],
    "zeros of the second": lambda a, b: a + b.floor(),
    "a view": lambda a, b: a.T.T if a.shape[0] == a.shape[1] else a.T,
    "a part of a view": lambda a, b: a.T[1:],
    "in a new shape": lambda a, b: a.T.reshape(3, 4),
    "no gradient": lambda a, b: (a * b).detach(),
    "one element": lambda a, b: a[0] + 0 * a[0],
}


@pytest.mark.parametrize("seed", range(24))
def test_a_result_leads_to_the_leaves_that_eager_mode_leads_to(seed: int) -> None:
    draw = random.Random(seed)
    names = ["argument", "weight", "bias", "made"]
    chosen = [(draw.choice(list(WAYS)), *draw.sample(names, 2)) for _ in range(draw.randint(2, 4))]
    picks = [draw.randrange(len(chosen)) for _ in range(4)]
    ends = [draw.choice([lambda t: t.sum(), lambda t: (t * t).sum(), lambda t: t.floor().sum()]) for _ in picks]

    def seen(jit: Callable[..., Any]) -> list[Any]:
        aj.manual_seed(seed)
        leaves = {name: aj.randn(3, 4, dtype=aj.float64).requires_grad_() for name in names}
        called: list[Any] = []
        for name, leaf in leaves.items():
            leaf.register_hook(lambda g, name=name: called.append([name, "hook", plain(g)]))
            leaf.register_post_accumulate_grad_hook(lambda p, name=name: called.append([name, "post hook"]))
        made = leaves["made"] * 2
        made.retain_grad()

        @jit
        def step(x: Any, y: Any) -> Any:
            given = {"argument": x, "weight": leaves["weight"], "bias": leaves["bias"], "made": y}
            return tuple(WAYS[way](given[a], given[b]) for way, a, b in chosen)

        results = step(leaves["argument"], made)
        found: list[Any] = []
        for pick, end in zip(picks, ends, strict=True):
            if results[pick].requires_grad:
                end(results[pick]).backward(retain_graph=True)
            found.append(sorted(called, key=lambda call: call[:2]))  # a step hands all its gradients on at once
            called.clear()
            found.append([plain(leaf.grad) for leaf in (*leaves.values(), made)])
        smooth = [(1 + k) * (r.sin() ** 2).sum() for k, r in enumerate(results) if r.requires_grad]
        inputs = [*leaves.values(), made]
        for order in (1, 2):
            if smooth:
                slopes = aj.autograd.grad(smooth, inputs, create_graph=True, allow_unused=True)
                shown = [g if g is None or order == 1 else g.detach().contiguous() for g in slopes]
                found.append([plain(g) for g in shown])  # parts of zeros decide how second derivatives lie
                smooth = [g.sin().sum() for g in slopes if g is not None and g.requires_grad]
        return found

    with reference_only():
        eager = seen(lambda f: f)
    check_equal(eager, seen(aj.jit))
