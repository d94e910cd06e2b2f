"""``@aj.jit``: a function whose calls run as compiled steps.

A call goes to the native entry point of the step that ran last. If one of its guards fails, ``_slow`` looks for another
step with the same argument signature whose guards hold, and captures a new one otherwise; ``explain`` says why.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from autojit.core.config import config
from autojit.core.dtypes import float64
from autojit.core.errors import TraceError
from autojit.core.types import TensorType
from autojit.jit.call import CompiledCall
from autojit.jit.guards import collect
from autojit.jit.pytree import TreeSpec, flatten
from autojit.jit.report import explain_function, show_stage
from autojit.jit.step import ArgumentLeaf, Capture, CompiledStep
from autojit.jit.trace import Trace
from autojit.runtime.entry import make_entry
from autojit.tensor.dispatch import apply
from autojit.tensor.state import state
from autojit.tensor.tensor import Tensor, type_of, wrap, wrap_value

RECAPTURE_LIMIT = 64


@dataclass
class JitStats:
    """Counters of one jitted function."""

    captures: int = 0
    calls: int = 0
    slow_calls: int = 0
    fallbacks: int = 0
    capture_s: float = 0.0
    compile_s: float = 0.0
    reasons: list[str] = field(default_factory=list)


_eager_depth = threading.local()


@contextmanager
def eager() -> Any:
    """Run jitted functions line by line inside (this thread)."""
    before = getattr(_eager_depth, "on", False)
    _eager_depth.on = True
    try:
        yield
    finally:
        _eager_depth.on = before


class JitFunction:
    """What ``@aj.jit`` returns: call it like the function.

    ``explain()`` tells what was captured and why; ``stats()`` counts; ``show(stage)`` prints "graph", "adjoint",
    "schedule", "llvm" or "asm"; ``memory()`` gives bytes.
    """

    def __init__(self, function: Callable[..., Any], verify: str | None = None) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.verify = verify
        self.steps: dict[Any, list[CompiledStep]] = {}
        self.dynamic_floats: set[int] = set()
        self.counts = JitStats()
        self._entry: Callable[..., Any] | None = None
        self._lock = threading.RLock()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        entry = self._entry
        if entry is not None and state.trace is None and state.grad_enabled and not kwargs:
            return entry(*args)
        if config.disable or state.trace is not None or getattr(_eager_depth, "on", False):
            return self.function(*args, **kwargs)
        return self._slow(*args, **kwargs)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        bound = instance.__dict__.setdefault("_jit_methods", {})
        if self not in bound:
            bound[self] = JitFunction(self.function.__get__(instance, owner), self.verify)
        return bound[self]

    # -- finding or making a step

    def _slow(self, *args: Any, **kwargs: Any) -> Any:
        if config.disable or state.trace is not None or getattr(_eager_depth, "on", False):
            return self.function(*args, **kwargs)
        with self._lock:
            self.counts.slow_calls += 1
            leaves, tree = flatten((args, kwargs))
            step = self._find(leaves, tree)
            if step is None:
                step = self._capture(args, kwargs, leaves, tree)
        return self._run(step, leaves)

    def _signature(self, leaves: list[Any], tree: TreeSpec) -> Any:
        parts = [_leaf_signature(leaf, k in self.dynamic_floats) for k, leaf in enumerate(leaves)]
        return tree, tuple(parts), state.grad_enabled, state.inference

    def _find(self, leaves: list[Any], tree: TreeSpec) -> CompiledStep | None:
        for step in self.steps.get(self._signature(leaves, tree), ()):
            reason = step_failure(step, leaves)
            if reason is None:
                return step
            self.counts.reasons.append(reason)
            del self.counts.reasons[:-20]
        return None

    def _capture(self, args: Any, kwargs: Any, leaves: list[Any], tree: TreeSpec) -> CompiledStep:
        self._notice_changing_floats(leaves, tree)
        signature = self._signature(leaves, tree)
        known = self.steps.setdefault(signature, [])
        if len(known) >= RECAPTURE_LIMIT:
            raise TraceError(
                f"jit: {self.__name__} was captured {len(known)} times for one argument signature",  # type: ignore[attr-defined]
                {"last reasons": "; ".join(self.counts.reasons[-3:])},
                "keep values that change in tensors, or use aj.cond / aj.while_loop for control flow on data",
            )
        start = time.perf_counter()
        capture = self._trace(leaves, tree)
        traced = time.perf_counter()
        step = CompiledStep(capture)
        self.counts.captures += 1
        self.counts.capture_s += traced - start
        self.counts.compile_s += time.perf_counter() - traced
        self.counts.fallbacks += len(step.compiled.lowered.fallbacks)
        known.append(step)
        return step

    def _notice_changing_floats(self, leaves: list[Any], tree: TreeSpec) -> None:
        """A float argument seen with a second value becomes an input."""
        for (other, _, _, _), steps in ((key, found) for key, found in self.steps.items()):
            if other != tree:
                continue
            for step in steps:
                for k, (leaf, seen) in enumerate(zip(leaves, step.capture.arguments, strict=True)):
                    if type(leaf) is float and type(seen.original) is float and leaf != seen.original:
                        self.dynamic_floats.add(k)

    def _trace(self, leaves: list[Any], tree: TreeSpec) -> Capture:
        trace = Trace()
        shells = [self._shell(trace, k, leaf) for k, leaf in enumerate(leaves)]
        replaced = [s.original if s.shell is None else s.shell for s in shells]
        args, kwargs = tree.unflatten(replaced)
        collector = collect(self.function)
        state.trace = trace
        try:
            result = self.function(*args, **kwargs)
        finally:
            state.trace = None
        outputs, output_tree = flatten(result)
        return Capture(trace, shells, tree, outputs, output_tree, collector.guards, collector.kept)

    def _shell(self, trace: Trace, position: int, leaf: Any) -> ArgumentLeaf:
        if isinstance(leaf, np.ndarray):
            leaf = wrap(leaf)
            found = self._tensor_shell(trace, leaf)
            found.original = leaf._array
            return found
        if isinstance(leaf, Tensor):
            return self._tensor_shell(trace, leaf)
        if type(leaf) is float and position in self.dynamic_floats:
            value = trace.builder.input(TensorType((), float64))
            cell = np.array(leaf)
            trace.known[value] = cell
            return ArgumentLeaf(leaf, value, wrap_value(value), cell)
        return ArgumentLeaf(leaf)

    def _tensor_shell(self, trace: Trace, leaf: Tensor) -> ArgumentLeaf:
        value = trace.builder.input(type_of(leaf))
        trace.known[value] = leaf._array
        shell = wrap_value(value)
        shell._requires_grad = leaf._requires_grad
        shell._grad = None
        return ArgumentLeaf(leaf, value, shell)

    # -- running

    def _run(self, step: CompiledStep, leaves: list[Any]) -> Any:
        self.counts.calls += 1
        if step.is_differentiable:
            return self._run_differentiable(step, leaves)
        if self.verify is not None and step.calls == 0:
            from autojit.jit.verify import run_verified

            return run_verified(self.function, step, leaves)
        result = step.run(leaves)
        self._install(step)
        return result

    def _install(self, step: CompiledStep) -> None:
        if step.entry is None:
            spec = step.native_spec(self._slow)
            if spec is None:
                self._entry = None
                return
            step.entry = make_entry(spec)
        else:
            step.refresh_entry()
        self._entry = step.entry.call

    def _run_differentiable(self, step: CompiledStep, leaves: list[Any]) -> Any:
        """Results that need gradients: the whole graph is one op of the eager history."""
        operands: list[Tensor] = []
        for given, leaf in zip(leaves, step.capture.arguments, strict=True):
            if leaf.value is not None:
                operands.append(given if isinstance(given, Tensor) else wrap(np.asarray(given)))
        operands += [e.root_owner() for e in step.entries]
        if step.call is None:
            step.call = CompiledCall(step.graph)
        found = apply(step.call, *operands)
        step.calls += 1
        return step.package_tensors(found if isinstance(found, tuple) else (found,))

    # -- telling

    def stats(self) -> dict[str, Any]:
        """Counters: captures, calls through Python, native calls, fallbacks (ops called back from the step), seconds."""
        native = sum(s.entry.calls() for found in self.steps.values() for s in found if s.entry is not None)
        counts = self.counts
        return {
            "captures": counts.captures,
            "python_calls": counts.calls,
            "native_calls": native,
            "fallbacks": counts.fallbacks,
            "capture_s": counts.capture_s,
            "compile_s": counts.compile_s,
            "kernels": sum(len(s.compiled.lowered.entries) for found in self.steps.values() for s in found),
        }

    def explain(self) -> str:
        """What was captured, the state it updates, guards, fallbacks, and why it was captured again."""
        return explain_function(self)

    def show(self, stage: str = "graph") -> str:
        """The text of a stage of the last captured step: "graph", "adjoint", "schedule", "llvm" or "asm"."""
        return show_stage(self, stage)

    def memory(self) -> dict[str, int]:
        """Bytes of the last captured step: arena (temporaries), state, results."""
        step = self.last_step()
        return {
            "arena_bytes": step.compiled.schedule.memory.arena_bytes,
            "state_bytes": sum(e.array.nbytes for e in step.entries),
            "result_bytes": sum(v.type.size_bytes for v in step.results),
        }

    def last_step(self) -> CompiledStep:
        """The step captured last."""
        found = [s for steps in self.steps.values() for s in steps]
        if not found:
            raise TraceError(f"jit: {self.function.__name__} has not been called yet")
        return found[-1]


def _leaf_signature(leaf: Any, dynamic: bool) -> Any:
    if isinstance(leaf, Tensor):
        kind = type_of(leaf)
        return kind.shape, kind.dtype.name, leaf._requires_grad
    if isinstance(leaf, np.ndarray):
        return "array", leaf.shape, str(leaf.dtype)
    if dynamic and type(leaf) is float:
        return "float"
    if isinstance(leaf, bool | int | str | bytes | None | complex):
        return type(leaf).__name__, leaf
    if isinstance(leaf, float):
        return "float", repr(leaf)
    return "object", id(leaf)


def step_failure(step: CompiledStep, leaves: list[Any]) -> str | None:
    """Why a step cannot be used for this call, or None when every guard holds."""
    for guard in step.capture.guards:
        if not guard.holds():
            return guard.describe()
    return step.state_failure(leaves)


def jit(function: Callable[..., Any] | None = None, *, verify: str | None = None) -> Any:
    """Compile a function of tensors: the whole step, with ``backward`` and optimiser, becomes one native call.

    Args:
        function: any Python function over Tensors, arrays, numbers and nests of them; state it reaches (parameters,
            buffers, optimiser state) is updated in place.
        verify: "first" compares outputs and updated state with eager execution after each compile.

    Raises:
        TraceError: the function does something a capture cannot hold; the message says what to write instead.

    Example:
        >>> import autojit as aj
        >>> @aj.jit
        ... def double(x):
        ...     return x * 2
        >>> double(aj.tensor([1.0, 2.0]))
        tensor([2., 4.])
    """
    if verify not in (None, "first"):
        raise ValueError(f'jit: verify must be None or "first", not {verify!r}')
    if function is None:
        return lambda f: JitFunction(f, verify)
    return JitFunction(function, verify)
