"""``verify="first"``: the first compiled call is compared with eager execution, outputs and state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from autojit.core.errors import TraceError
from autojit.jit.pytree import flatten
from autojit.jit.step import CompiledStep
from autojit.tensor.state import reference_only
from autojit.tensor.tensor import Tensor

RELATIVE = {"float64": 1e-9, "float32": 1e-4, "float16": 2e-2, "bfloat16": 5e-2, "complex64": 1e-4, "complex128": 1e-9}


def run_verified(function: Any, step: CompiledStep, leaves: list[Any], arrays: Sequence[Any]) -> Any:
    """Run eagerly, undo, run compiled, compare; TraceError names the first tensor that differs."""
    before = _State(step, leaves)
    args, kwargs = step.capture.argument_tree.unflatten(list(leaves))
    with reference_only():  # NumPy alone: the fast paths of large arrays are the compiler that is judged
        eager_outputs, _ = flatten(function(*args, **kwargs))
    expected = [o._array.copy() if isinstance(o, Tensor) else o for o in eager_outputs]
    after = _State(step, leaves)
    before.restore()
    result = step.run(leaves, arrays)
    outputs, _ = flatten(result)
    for k, (eager, compiled) in enumerate(zip(expected, outputs, strict=True)):
        if isinstance(compiled, Tensor):
            _compare(f"output {k}", eager, compiled._array)
        elif isinstance(compiled, float):
            _compare(f"output {k}", np.array(eager), np.array(compiled))
    after.compare(_State(step, leaves))
    return result


class _State:
    """Copies of everything a step may change."""

    def __init__(self, step: CompiledStep, leaves: list[Any]) -> None:
        self.entries = [(e, e.array.copy()) for e in step.trace.state.values()]
        grads = [(g.leaf, g.leaf._grad) for g in step.effects.gradients.all]
        grads += [(leaf, leaf._grad) for leaf in leaves if isinstance(leaf, Tensor)]
        self.grads = [(leaf, grad, None if grad is None else grad._array.copy()) for leaf, grad in grads]
        arrays = [leaf._array if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        self.given = [(a, a.copy()) for a in arrays if isinstance(a, np.ndarray)]

    def restore(self) -> None:
        for entry, copy in self.entries:
            entry.array[...] = copy
        for array, copy in self.given:
            if array.flags.writeable:
                array[...] = copy
        for leaf, grad, copy in self.grads:
            leaf._grad = grad
            if grad is not None:
                grad._array[...] = copy

    def compare(self, compiled: _State) -> None:
        for k, ((entry, a), (_, b)) in enumerate(zip(self.entries, compiled.entries, strict=True)):
            _compare(f"state {k} (first used at {entry.source})", a, b)
        for k, ((_, a), (_, b)) in enumerate(zip(self.given, compiled.given, strict=True)):
            _compare(f"argument {k}", a, b)
        for k, ((leaf, _, a), (_, _, b)) in enumerate(zip(self.grads, compiled.grads, strict=True)):
            if (a is None) != (b is None):
                raise TraceError(f"jit(verify='first'): gradient {k} is None in one mode", {"leaf": leaf})
            if a is not None:
                _compare(f"gradient {k}", a, b)


def _compare(what: str, eager: Any, compiled: Any) -> None:
    if eager.shape != compiled.shape or eager.dtype != compiled.dtype:
        raise TraceError(
            f"jit(verify='first'): {what} has another type than in eager mode",
            {"eager": f"{eager.dtype}{list(eager.shape)}", "compiled": f"{compiled.dtype}{list(compiled.shape)}"},
        )
    tolerance = RELATIVE.get(str(eager.dtype), 0.0)
    wide = np.complex128 if eager.dtype.kind == "c" else np.float64
    a, b = eager.astype(wide), compiled.astype(wide)
    scale = max(float(np.max(np.abs(a), initial=0.0, where=np.isfinite(a))), 1e-30)
    if not np.allclose(a, b, rtol=tolerance, atol=tolerance * scale, equal_nan=True):
        worst = float(np.nanmax(np.abs(a - b)))
        raise TraceError(f"jit(verify='first'): {what} differs from eager", {"largest difference": worst})
