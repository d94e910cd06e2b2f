"""``verify="first"``: the first compiled call is compared with eager execution, outputs and state."""

from __future__ import annotations

from typing import Any

import numpy as np

from autojit.core.errors import TraceError
from autojit.jit.pytree import flatten
from autojit.jit.step import CompiledStep
from autojit.tensor.tensor import Tensor

RELATIVE = {"float64": 1e-9, "float32": 1e-4, "float16": 2e-2, "bfloat16": 5e-2}


def run_verified(function: Any, step: CompiledStep, leaves: list[Any]) -> Any:
    """Run eagerly, undo, run compiled, compare; TraceError names the first tensor that differs."""
    before = [e.array.copy() for e in step.entries]
    grads = [(g.leaf, g.leaf._grad) for g in step.grad_results]
    given = [leaf._array.copy() if isinstance(leaf, Tensor) else None for leaf in leaves]
    args, kwargs = step.capture.argument_tree.unflatten(list(leaves))
    eager_outputs, _ = flatten(function(*args, **kwargs))
    eager_state = [e.array.copy() for e in step.entries]
    for entry, array in zip(step.entries, before, strict=True):
        entry.array[...] = array
    for leaf, grad in grads:
        leaf._grad = grad
    for leaf, array in zip(leaves, given, strict=True):
        if array is not None and leaf._array.flags.writeable:
            leaf._array[...] = array
    result = step.run(leaves)
    outputs, _ = flatten(result)
    for k, (eager, compiled) in enumerate(zip(eager_outputs, outputs, strict=True)):
        if isinstance(eager, Tensor):
            _compare(f"output {k}", eager._array, compiled._array)
    for k, (entry, array) in enumerate(zip(step.entries, eager_state, strict=True)):
        _compare(f"state {k} (first used at {entry.source})", array, entry.array)
    return result


def _compare(what: str, eager: Any, compiled: Any) -> None:
    tolerance = RELATIVE.get(str(eager.dtype), 0.0)
    wide = np.complex128 if eager.dtype.kind == "c" else np.float64
    a, b = eager.astype(wide), compiled.astype(wide)
    scale = max(float(np.max(np.abs(a), initial=0.0, where=np.isfinite(a))), 1e-30)
    if not np.allclose(a, b, rtol=tolerance, atol=tolerance * scale, equal_nan=True):
        worst = float(np.nanmax(np.abs(a - b)))
        raise TraceError(f"jit(verify='first'): {what} differs from eager", {"largest difference": worst})
