"""Observer: tells a sink (``Recorder``, ``Ranges``) what runs in this thread while a profiler's block is open.

It takes the place of three switches, and nothing is asked per op while it is away:

- ``state.quiet``/``state.run``, through which every eager op computes;
- ``state.observer``, which the engine asks once per backward pass, ``Function.apply`` and jitted functions once per
  call;
- ``runtime.kernel_timing``, which a compiled step asks when it is run from Python: it then runs kernel by kernel.

``state.detour`` sends calls of jitted functions through Python meanwhile. What happens while a step is being captured
is not reported: nothing is computed then.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextvars import Context
from functools import cache, partial
from types import MethodType
from typing import TYPE_CHECKING, Any

import numpy as np

from autojit.core.device_array import write_array
from autojit.core.errors import UsageError
from autojit.core.source import UNKNOWN
from autojit.ir.op import Op
from autojit.ops.elementwise_arithmetic import Cast
from autojit.runtime.kernel_timing import KernelRow, watching
from autojit.tensor.node import LAST, Node, backward_name, next_number
from autojit.tensor.state import BY_PYTHON, detour_of_modes, state

if TYPE_CHECKING:
    from autojit.autograd.profiler.ranges import Ranges
    from autojit.autograd.profiler.recorder import Recorder

OP, NODE, USER, STEP, KERNEL = "cpu_op", "derivative", "user_annotation", "compiled_step", "kernel"
ENGINE = "engine"
OPS = "aten::"
"""Before the names of ops, as torch has it."""
_OWN = frozenset({"compiled_call", "random_bits"})  # ops that torch has none of
NO_NUMBER = -1


class Observer:
    """Installs itself in the running thread; ``run`` stands in for the context that eager rules run in."""

    def __init__(self, sink: Recorder | Ranges, what: str) -> None:
        self.sink = sink
        self.what = what
        self.context: Context = state.quiet
        self._inside: Callable[..., Any] | None = None

    def install(self) -> None:
        """Begin to observe this thread.

        Raises:
            UsageError: something observes it already, or a step is being captured.
        """
        if state.observer is not None:
            raise UsageError(
                f"{self.what}: the profiler is already running in this thread",
                {"running": state.observer.what},
                "leave its block first; one profile() or emit_nvtx() is open at a time",
            )
        if state.trace is not None:
            raise UsageError(
                f"{self.what}: a compiled function is being captured", {}, "open the block around the function's call"
            )
        self.detour = state.detour
        state.observer, watching.observer = self, self
        quick = self.sink.quick_run(self.context.run)
        if quick is not None:
            self.run = quick  # type: ignore[method-assign]
        state.quiet, state.run = self, self.run
        state.detour = self.detour or "observed"

    def remove(self) -> None:
        """Put everything back."""
        state.observer, watching.observer = None, None
        state.quiet, state.run = self.context, self.context.run
        if self.detour not in BY_PYTHON:
            state.detour = detour_of_modes()

    # -- what happens

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """An eager rule computes."""
        now = state.__dict__
        name = None if now["trace"] is not None else op_name(function, arguments)
        if name is None:
            return self.context.run(function, *arguments)
        number = next_number() if now["grad_enabled"] and is_recordable(function, arguments) else NO_NUMBER
        self.sink.push(name, OP, number, arguments[: function.nin] if type(function) is np.ufunc else arguments)
        result = None
        try:
            result = self.context.run(function, *arguments)
        finally:
            self.sink.pop(result)
        return result

    def call(self, name: str, kind: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Something that is not an op runs: a jitted function, a user's Function, the start of a backward pass."""
        if state.trace is not None:
            return function(*arguments)
        return self._told(function, arguments, name, kind, NO_NUMBER)

    def function(self, name: str, number: int, forward: Callable[..., Any]) -> Callable[..., Any]:
        """A user's Function that will be the node ``number``: its ``forward``, which tells when it is called."""
        if state.trace is not None:
            return forward

        def observed(*arguments: Any, **options: Any) -> Any:
            return self._told(partial(forward, **options), arguments, name, OP, number, arguments)

        return observed

    def made(self, node: Node) -> None:
        """A node was made by no op of its own (for views and writes into memory): a row without duration tells."""
        if state.trace is None:
            self.sink.push(OPS + forward_name(node.name()), OP, node.sequence)
            self.sink.pop()

    def node(self, node: Node, grads: Sequence[Any], function: Callable[..., Any], *arguments: Any) -> Any:
        """A node of the history runs for the cotangents ``grads`` of its outputs."""
        if state.trace is not None:
            return function(*arguments)
        number = NO_NUMBER if node.sequence == LAST else node.sequence
        places = () if node.source is UNKNOWN else (node.source,)
        name = type(node).__name__
        name = f"torch::autograd::{name}" if name == "AccumulateGrad" else name
        if not self.sink.tells_engine:
            return self._told(function, arguments, name, NODE, number, grads, places)
        self.sink.push(f"autograd::engine::evaluate_function: {name}", ENGINE, number)
        try:
            return self._told(function, arguments, name, NODE, number, grads, places)
        finally:
            self.sink.pop()

    def whole(self, function: Callable[..., Any], *operands: Any) -> tuple[Any] | None:
        """What a function of several ops gives, in a row of its own above theirs; None: it is being called here."""
        if state.trace is not None or self._inside is function:
            self._inside = None
            return None
        self._inside = function
        number = next_number() if state.grad_enabled else NO_NUMBER
        return (self._told(function, operands, f"{OPS}{function.__name__}", OP, number, operands),)

    def kernel(self, row: KernelRow, function: Callable[..., Any], *arguments: Any) -> None:
        """A kernel of a compiled step runs."""
        self._told(function, arguments, row.name, KERNEL, NO_NUMBER, (), row.places, row.ops)

    def _told(self, function: Callable[..., Any], arguments: Sequence[Any], *row: Any) -> Any:
        """Call a function between ``push`` of a row and ``pop``."""
        self.sink.push(*row)
        try:
            return function(*arguments)
        finally:
            self.sink.pop()


@cache
def torch_name(op_name: str) -> str:
    """torch's name of an op: that of its node without the ending, so that both rows are easily seen to belong together.

    Example:
        >>> torch_name("square"), torch_name("mul")
        ('aten::pow', 'aten::mul')
    """
    return op_name if op_name in _OWN else OPS + forward_name(backward_name(op_name))


def forward_name(name: str) -> str:
    """What the op of a node may be called: ``copy_slices`` for ``CopySlices``, ``select`` for ``SelectBackward0``."""
    plain = re.sub(r"(Backward\d*|Backwards)$", "", name)
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", plain).lower()


_names: dict[Any, str] = {}
_known = 0
_WRITING: dict[Any, str] = {
    np.copyto: f"{OPS}copy_", write_array: f"{OPS}copy_", np.full: f"{OPS}full",
}  # fmt: skip


def op_name(function: Any, arguments: Sequence[Any]) -> str | None:
    """The name of the op whose eager rule ``function`` is; None for a helper. Writing into an operand appends ``_``."""
    kind = type(function)
    if kind is MethodType:
        owner = function.__self__
        if type(owner) is Cast and arguments[0].dtype == owner.dtype.numpy:
            return f"{OPS}clone"  # a conversion to the dtype that is there already
        return torch_name(owner.shown_name) if isinstance(owner, Op) else None
    name = _names.get(function)
    if name is None and len(Op.registry) != _known:
        _learn_names()
        name = _names.get(function)
    if kind is np.ufunc and name is not None and len(arguments) > function.nin:
        return f"{name}_"
    return name


def is_recordable(function: Any, arguments: Sequence[Any]) -> bool:
    """Whether the call is an op's that a node may be made for: not if it fills, copies or writes into an operand.

    Nor if it has none: what is made of nothing has no history, on a device either.
    """
    if type(function) is np.ufunc:
        return len(arguments) == function.nin
    return bool(arguments) and (type(function) is MethodType or function not in _WRITING)


def _learn_names() -> None:
    global _known
    _names.update(_WRITING)
    for name, kind in Op.registry.items():
        compute = vars(kind).get("ufunc")
        if compute is not None:
            _names.setdefault(getattr(compute, "__func__", compute), torch_name(name))
    _known = len(Op.registry)
