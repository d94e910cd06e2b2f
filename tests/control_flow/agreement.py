"""Eager execution is the reference: what the compiled function gives must equal it, at every call, natively."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import autojit as aj
from autojit.utils import _pytree

F = aj.float64


def leaves(found: Any) -> list[Any]:
    return [x.detach().numpy() if isinstance(x, aj.Tensor) else x for x in _pytree.tree_leaves(found)]


def agree(function: Callable[..., Any], *arguments: Any, rtol: float = 1e-9) -> Any:
    """The compiled function, after calls that agreed with eager ones and ran no Python op and no fallback."""
    compiled = aj.jit(function)
    for _ in range(3):
        expected = leaves(function(*arguments))
        found = leaves(compiled(*arguments))
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol)
    stats = compiled.stats()
    assert (stats["captures"], stats["fallbacks"], stats["splits"]) == (1, 0, 0), stats
    return compiled


def derivatives(loss: Any, *inputs: Any) -> tuple[Any, ...]:
    """A loss, its gradients, and the gradients of the sum of their squares (None where eager mode has none)."""
    first = aj.autograd.grad(loss, inputs, create_graph=True)
    return (loss, *first, *aj.autograd.grad(sum((g**2).sum() for g in first), inputs))
