"""PyTorch 1.0's creation functions: import this module in place of ``torch``.

``requires_grad=True`` with integers gives float32, as the examples of that time expect. Every other name is autojit's.

Example:
    >>> from autojit.compat import v1_0 as torch
    >>> x = torch.tensor([1], requires_grad=True)
    >>> x.dtype
    autojit.float32
    >>> (x * 2).backward()
    >>> x.grad
    tensor([2.])
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import autojit as aj
from autojit.autograd.variable import Variable
from autojit.core.lazy_modules import LazyNames as _LazyNames


def _floating(factory: Callable[..., Any]) -> Callable[..., Any]:
    """A creation function that turns integers into float32 where gradients are asked for."""

    @functools.wraps(factory)
    def make(*args: Any, requires_grad: bool = False, **options: Any) -> Any:
        made = factory(*args, **options)
        if not requires_grad:
            return made
        if not (made.dtype.is_floating_point or made.dtype.is_complex):
            made = made.to(aj.float32)
        return made.requires_grad_(True)

    return make


arange = _floating(aj.arange)
empty = _floating(aj.empty)
empty_like = _floating(aj.empty_like)
eye = _floating(aj.eye)
full = _floating(aj.full)
full_like = _floating(aj.full_like)
linspace = _floating(aj.linspace)
logspace = _floating(aj.logspace)
ones = _floating(aj.ones)
ones_like = _floating(aj.ones_like)
rand = _floating(aj.rand)
rand_like = _floating(aj.rand_like)
randint = _floating(aj.randint)
randint_like = _floating(aj.randint_like)
randn = _floating(aj.randn)
randn_like = _floating(aj.randn_like)
randperm = _floating(aj.randperm)
range = _floating(aj.range)
tensor = _floating(aj.tensor)
zeros = _floating(aj.zeros)
zeros_like = _floating(aj.zeros_like)

__getattr__ = _LazyNames(__name__, others="autojit")

__all__ = [
    "Variable", "arange", "empty", "empty_like", "eye", "full", "full_like", "linspace", "logspace", "ones",
    "ones_like", "rand", "rand_like", "randint", "randint_like", "randn", "randn_like", "randperm", "range", "tensor",
    "zeros", "zeros_like",
]  # fmt: skip
