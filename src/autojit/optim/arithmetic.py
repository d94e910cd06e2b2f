"""Arithmetic shared by the optimisers, right for plain numbers (eager) and for 0-d tensors (traced) alike.

Eager in-place ops take numbers (``alpha=``, ``value=``) and make few passes over memory; a trace gets the same formula
as elementwise expressions, which the compiler fuses.
"""

from __future__ import annotations

import math
from typing import Any

import autojit as aj
from autojit.optim.param_group import ParamGroup
from autojit.tensor import Tensor
from autojit.tensor.state import is_tracing, outside_trace

Number = Any  # float, or a 0-d float64 Tensor while tracing


def sqrt(x: Number) -> Number:
    """Square root."""
    return x.sqrt() if isinstance(x, Tensor) else math.sqrt(x)


def axpy_(y: Tensor, x: Tensor, a: Number) -> Tensor:
    """y += a x."""
    return y.add_(x * a) if isinstance(a, Tensor) else y.add_(x, alpha=a)


def addcmul_(y: Tensor, x1: Tensor, x2: Tensor, a: Number) -> Tensor:
    """y += a x1 x2."""
    return y.add_(x1 * x2 * a) if isinstance(a, Tensor) else y.addcmul_(x1, x2, value=a)


def addcdiv_(y: Tensor, x1: Tensor, x2: Tensor, a: Number) -> Tensor:
    """y += a x1 / x2."""
    return y.add_(x1 / x2 * a) if isinstance(a, Tensor) else y.addcdiv_(x1, x2, value=a)


def lerp_(y: Tensor, x: Tensor, weight: Number) -> Tensor:
    """y += weight (x - y)."""
    return y.add_((x - y) * weight) if isinstance(weight, Tensor) else y.lerp_(x, weight)


def advance(step: Tensor) -> Number:
    """Count one step in place; the new count as a float, or while tracing as a 0-d float64 tensor."""
    step.add_(1)
    return step.to(aj.float64) if is_tracing() else float(step.item())


def with_decay(grad: Tensor, p: Tensor, group: ParamGroup, weight_decay: Number) -> Tensor:
    """The gradient (negated under ``maximize``) plus ``weight_decay * p``; never changes the gradient itself."""
    if group.plain("maximize"):
        grad = -grad
    if not has(group, "weight_decay"):
        return grad
    return grad + p * weight_decay if isinstance(weight_decay, Tensor) else grad.add(p, alpha=weight_decay)


def has(group: ParamGroup, name: str) -> bool:
    """Whether a hyper-parameter differs from zero: a branch a trace bakes in (ParamGroup guards it)."""
    value = group.plain(name)
    return isinstance(value, Tensor) or value != 0


def zeros_like(p: Tensor) -> Tensor:
    """State that outlives the step: a concrete tensor of zeros, also when the first step is being traced."""
    with outside_trace():
        return aj.zeros(tuple(p.shape), dtype=p.dtype, device=p.device)


def full_like(p: Tensor, value: float) -> Tensor:
    """State filled with ``value``; concrete as in ``zeros_like``."""
    with outside_trace():
        return aj.full(tuple(p.shape), value, dtype=p.dtype, device=p.device)


def step_counter() -> Tensor:
    """torch's ``state["step"]``: a 0-d float32 tensor."""
    with outside_trace():
        return aj.zeros((), dtype=aj.float32)
