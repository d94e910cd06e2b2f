"""Hooks of saved tensors around compiled calls: they get what a call saves, the same at the first call as at others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj
from autojit.autograd.graph import saved_tensors_hooks
from autojit.utils.checkpoint import checkpoint

FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "a product": lambda x, w: (x * w).exp(),
    "several": lambda x, w: ((x * w).sin() * x, x.exp() * w),
    "decided": lambda x, w: (x * w).exp() if x.sum() > 0 else x - w,
    "a gradient inside": lambda x, w: aj.autograd.grad((x * w).exp().sum(), (w,), create_graph=True)[0] * x,
    "hooks inside": lambda x, w: _packed(x, w),
    "a checkpoint inside": lambda x, w: checkpoint(lambda a: (a * w).exp(), x, use_reentrant=False),
    "one that runs line by line": lambda x, w: (x * w).exp() * len(str(x)[:3]),
}


def _packed(x: Any, w: Any) -> Any:
    with saved_tensors_hooks(lambda t: t * 1, lambda t: t):
        return (x * w).exp() * x


def _sum(found: Any) -> Any:
    return sum(part.sum() for part in (found if isinstance(found, tuple) else (found,)))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_checkpoints_of_compiled_functions(name: str) -> None:
    def seen(jit: Callable[[Any], Any]) -> list[Any]:
        w = aj.tensor([0.5, 2.0], requires_grad=True)
        step = jit(lambda x: FUNCTIONS[name](x, w))
        found = []
        for k in range(3):
            x = aj.tensor([1.0, 0.5 + k], requires_grad=True)
            _sum(checkpoint(step, x, use_reentrant=False)).backward()
            found.append([[round(v, 4) for v in t.grad.tolist()] for t in (w, x)])
        return found

    assert seen(aj.jit) == seen(lambda f: f)


@pytest.mark.parametrize("name", [n for n in FUNCTIONS if n != "one that runs line by line"])
def test_hooks_see_no_tensor_of_a_capture(name: str) -> None:
    w = aj.tensor([0.5, 2.0], requires_grad=True)
    step = aj.jit(lambda x: FUNCTIONS[name](x, w))
    counts = []
    for _ in range(3):
        packed: list[Any] = []

        def pack(t: Any, kept: list[Any] = packed) -> Any:
            kept.append(t.tolist())  # a tensor of a capture has no elements
            return t

        with saved_tensors_hooks(pack, lambda t: t):
            _sum(step(aj.tensor([1.0, 0.5], requires_grad=True))).backward()
        counts.append(len(packed))
    assert len(set(counts)) == 1, counts
