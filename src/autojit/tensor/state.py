"""What holds for the running thread: gradient mode, the active trace; and for the process: the guard epoch."""

from __future__ import annotations

import abc
import contextvars
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from autojit.core.config import config
from autojit.core.device import is_cpu_alone
from autojit.core.dtypes import DType
from autojit.core.epoch import bump_guard_epoch, guard_epoch, no_epoch
from autojit.core.errors import out_of_memory

if TYPE_CHECKING:
    from autojit.core.source import SourceLocation
    from autojit.ir import Value
    from autojit.ir.op import Op
    from autojit.tensor.tensor import Tensor
    from autojit.tensor.trace import Trace


R = TypeVar("R")


class Precision(Protocol):
    """What a mode of mixed precision does to a function's operands."""

    @property
    def dtypes(self) -> tuple[tuple[str, DType], ...]: ...

    def lower(self, function: Callable[..., R], *arguments: object, **options: object) -> R: ...

    def full(self, function: Callable[..., R], *arguments: object, **options: object) -> R: ...

    def is_on_device(self, *arguments: object) -> bool: ...


RemovedHook = tuple[dict[Any, Any], int, dict[Any, Any]]
"""A table of hooks, the number of one that was removed from it, and what the table held before."""


class HookChanges:
    """What a capture does to hooks, on its own thread: tables of all modules are there for all threads."""

    def __init__(self) -> None:
        self.removed: list[RemovedHook] = []
        self.added: set[int] = set()  # numbers of hooks that it registers


class _Switches:
    """With what every thread begins, in a dictionary of its own."""

    grad_enabled: bool = True  # whether ops record history; never in inference mode
    inference: int = 0  # whether the thread is in inference mode: 0, 1, or 2 where gradients are switched on within it
    transforming: bool = False  # whether history is recorded for a transform, which alone reads it
    trace: Trace | None = None
    anomaly: bool = False
    anomaly_check_nan: bool = True
    rounds: tuple[tuple[Any, int], ...] = ()  # under anomaly mode, of loops that Python walks: the capture, the number
    drawn: int = 0  # how often the thread has moved a generator of random numbers on, in eager mode
    recording_hooks: Any = None  # the stack of saved-tensor hooks, or None
    hook_changes: HookChanges | None = None  # of the capture that goes on
    mutation: Any = None  # is told before a tensor is changed in place (``before_change``), or None
    layers: tuple[Layer, ...] = ()  # what ops pass through, innermost last: forward-mode levels, batches
    forward_enabled: bool = True  # whether forward-mode levels carry tangents along
    observer: Any = None  # what is notified of what runs (the profiler's), or None
    view_replay: bool = False  # whether the history of a changed base's view names the function that made the view
    autocast: Precision | None = None  # the mode of mixed precision (``functions/autocast.py``)
    detour: str | None = None  # why calls of jitted functions go through Python: "eager", "observed", ...
    pieces: Any = None  # what compiles modules, while a call of a jitted function runs line by line


LINE_BY_LINE = "line by line"  # the detour of a call that no step serves
BY_PYTHON = frozenset(("eager", LINE_BY_LINE))  # detours by which jitted functions run as they are written


class State(_Switches, threading.local):
    """Thread-local switches.

    ``quiet`` is a context in which NumPy keeps silent about floating-point events; running an eager rule in it costs
    30 ns where ``np.errstate`` costs 1000, and leaves the user's own error state alone. Each thread's switches are in
    ``state.__dict__`` of that thread, which the eager path fetches once per op.
    """

    divert: Callable[..., Any] | None  # takes (op, operands) of every op; None while ops compute at once
    elsewhere: Callable[..., Any] | None = None  # ``apply_elsewhere`` while a second device exists: ``meet_devices``
    apply_elsewhere: Callable[..., Any]  # how ops on several devices are computed: set by ``on_device``
    capture: Callable[..., Any] | None = None  # how ops enter the active trace: set by ``dispatch``
    infer: Callable[..., Any] | None = None  # how ops are computed in inference mode: set by ``dispatch``
    reference: bool  # whether eager ops are NumPy and nothing else (``fast_paths.reference_only``)

    def __init__(self) -> None:
        self.__dict__.update({name: value for name, value in vars(_Switches).items() if not name.startswith("__")})
        self.divert = State.elsewhere
        self.reference = config.reference
        _dicts[threading.current_thread()] = self.__dict__
        self.quiet: Any = contextvars.Context()
        self.quiet.run(np.seterr, all="ignore")
        self.run: Any = self.quiet.run


_dicts: weakref.WeakKeyDictionary[threading.Thread, dict[str, Any]] = weakref.WeakKeyDictionary()
"""The switches of every thread that has any, for what all threads must be told at once."""

state = State()


def meet_devices() -> None:
    """After a device has come or gone: if there is another than the CPU, every op looks where its operands are."""
    before, now = State.elsewhere, None if is_cpu_alone() else State.apply_elsewhere
    State.elsewhere = None if now is None else staticmethod(now)
    for switches in list(_dicts.values()):
        if switches["divert"] is before:
            switches["divert"] = now


def computes_at_once() -> bool:
    """Whether ops of this thread compute at once: nothing but the look at where operands are comes before."""
    divert = state.divert
    return divert is None or divert is State.elsewhere


class Layer(abc.ABC):
    """Something between the user's ops and their computation: it gives tensors a second part (a tangent, a batch axis).

    Its methods run with the layer itself taken off, so that what they apply goes to the layers below. Those that a
    layer does not define say that tensors have nothing of their own in it.
    """

    what: str
    """What messages call it."""
    is_body = False  # whether it only lets tensors into a body, and gives them nothing

    @abc.abstractmethod
    def apply(self, op: Op, operands: Sequence[Tensor]) -> Any:
        """Apply one op to operands some of which may have a part in this layer."""

    @abc.abstractmethod
    def carry(self, source: Tensor, made: Tensor, with_history: bool) -> None:
        """``made`` is another tensor object for the same value (``detach``: without history)."""

    @abc.abstractmethod
    def replace(self, x: Tensor, new: Tensor, method: str, old: Tensor | None, mark: int) -> None:
        """Write ``new`` into ``x`` (``inplace.replace``)."""

    def like(self, source: Tensor, made: Tensor) -> Tensor:
        """A fresh tensor in the likeness of ``source``: ``made``, or what stands for it in this layer and below."""
        with below(self):
            return made_like(source, made)

    def holder(self, x: Tensor) -> Tensor:
        """The tensor below this layer that has the history of ``x``: often ``x`` itself."""
        return x

    def detached(self, x: Tensor) -> None:  # noqa: B027  (nothing to do is a meaning)
        """``x`` was cut off its history in place."""

    def base_of(self, x: Tensor, base: Tensor) -> Tensor:
        """What ``x`` is a view of where its part in this layer is concerned: ``base`` if it has none."""
        return base

    def restrided(
        self, restride: Callable[..., Tensor], x: Tensor, size: Sequence[int], stride: Sequence[int], offset: int | None
    ) -> Tensor | None:
        """``restride(x, size, stride, offset)`` where ``x`` is in this layer's own memory; None if it is not."""
        return None

    def become(self, x: Tensor, seen: Tensor) -> None:  # noqa: B027
        """``x`` turns into the view ``seen`` of itself in place (``transpose_``)."""

    def full(self, t: Tensor) -> Tensor | None:
        """The values of a whole batch, of which ``t`` stands for one element; None where it stands for itself."""
        return None

    def shown(self, x: Tensor) -> list[str]:
        """What ``repr`` says of the tensor's part in this layer."""
        return []

    def call_function(
        self, cls: type[Any], arguments: Sequence[Any], options: dict[str, Any], call: Callable[..., object]
    ) -> Any:
        """Call a custom function; None: as without the layer, which is there for the ops inside the function only."""
        return None

    def around_compiled(self, compiled: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Call a compiled function: its ops pass through the layer one by one, unless only its ends need to."""
        compiled.counts.note(f"called inside {self.what}: ops ran one by one; jit the outer function")
        return compiled.function(*args, **kwargs)


def detour_of_modes() -> str | None:
    """Why calls of jitted functions go through Python while nobody observes them: a mode that steps are kept by."""
    return "anomaly" if state.anomaly else "autocast" if state.autocast is not None else None


def as_given(function: Callable[..., R], *arguments: Any, **options: Any) -> R:
    """Call a function without mixed precision: what writes into a tensor computes in the dtypes that it is given."""
    if state.autocast is None:
        return function(*arguments, **options)
    before, state.autocast = state.autocast, None
    try:
        return function(*arguments, **options)
    finally:
        state.autocast = before


def set_trace(trace: Trace | None) -> None:
    """From now on the thread's ops are captured by ``trace``, or computed when it is None."""
    _switch(trace=trace)


def set_layers(layers: tuple[Layer, ...]) -> None:
    """From now on the thread's ops pass through these layers, the last one first."""
    _switch(layers=layers)


def set_inference(inference: int) -> None:
    """From now on the thread is in inference mode, or is not."""
    _switch(inference=inference)


def set_grad(enabled: bool) -> None:
    """The user switches gradients on or off; in inference mode that is remembered, and nothing is recorded."""
    if state.inference:
        state.inference = 1 + enabled
    else:
        state.grad_enabled = enabled


def is_grad_on() -> bool:
    """Whether the user has gradients switched on."""
    return state.grad_enabled or state.inference == 2


def _switch(**changed: Any) -> None:
    """Change switches, and with them where ops go: both at once, as a signal or a collection may come at any line."""
    now = state.__dict__
    layers = changed.get("layers", now["layers"])
    if layers:
        way = layers[-1].apply
    elif changed.get("trace", now["trace"]) is not None:
        way = State.capture
    else:
        way = State.infer if changed.get("inference", now["inference"]) else State.elsewhere
    now.update(changed, divert=way)


def below(layer: Layer) -> AbstractContextManager[None]:
    """Ops inside pass only through the layers that were entered before ``layer``: all, if it has left just now."""
    layers = state.layers
    return with_layers(layers[: layers.index(layer)] if layer in layers else layers)


@contextmanager
def with_layers(layers: tuple[Layer, ...]) -> Iterator[None]:
    """Ops inside pass through these layers, the last one first."""
    before = state.layers
    try:
        set_layers(layers)
        yield
    finally:
        set_layers(before)


def holders(x: Tensor) -> list[Tensor]:
    """The tensors below the layers, one after the other, that have the history of ``x``; without ``x`` itself."""
    found = []
    for layer in reversed(state.layers):
        below_it = layer.holder(x)
        if below_it is not x:
            found.append(below_it)
            x = below_it
    return found


def made_like(source: Tensor, made: Tensor) -> Tensor:
    """``made``, fresh and concrete, which gets the batch axes that ``source`` has."""
    layers = state.layers
    return layers[-1].like(source, made) if layers else made


def carry(source: Tensor, made: Tensor, with_history: bool = True) -> None:
    """``made`` stands for the same value as ``source``: it keeps its batch axes and, with its history, its tangents."""
    layers = state.layers
    if layers:
        layer = layers[-1]
        layer.carry(source, made, with_history)
        with below(layer):
            carry(source, made, with_history)


def become(x: Tensor, seen: Tensor) -> None:
    """``x`` turns into the view ``seen`` of itself in place: in every layer, what belongs to it follows."""
    for layer in reversed(state.layers):
        with below(layer):
            layer.become(x, seen)


def is_tracing() -> bool:
    """Whether this thread is capturing a step."""
    return state.trace is not None


@contextmanager
def with_trace(trace: Trace | None) -> Iterator[None]:
    """Ops inside are recorded by this capture; None: by none."""
    before = state.trace
    try:
        set_trace(trace)
        yield
    finally:
        set_trace(before)


def outside_trace() -> AbstractContextManager[None]:
    """Suspend the active capture: ops compute at once, factories give concrete tensors."""
    return with_trace(None)


@contextmanager
def grad_mode(enabled: bool) -> Iterator[None]:
    """Record (or do not record) the history of ops inside."""
    before, state.grad_enabled = state.grad_enabled, enabled
    try:
        yield
    finally:
        state.grad_enabled = before


@contextmanager
def outside_inference() -> Iterator[None]:
    """Ordinary mode inside, also within inference mode: transforms need what that mode leaves out."""
    before = state.inference
    try:
        set_inference(0)
        yield
    finally:
        set_inference(before)


@contextmanager
def transform_mode() -> Iterator[bool]:
    """The mode in which a reverse-mode transform works: history is recorded. Gives whether the caller records, too.

    Tensors that were made in inference mode may be saved: nobody but the transform asks for the history.
    """
    is_recording = state.grad_enabled
    before, state.transforming = state.transforming, True
    try:
        with outside_inference(), grad_mode(True):
            yield is_recording
    finally:
        state.transforming = before


@contextmanager
def reference_only() -> Iterator[None]:
    """Eager ops inside are computed by NumPy and nothing else, whatever their size: what compiled code is judged by."""
    before, state.reference = state.reference, True
    try:
        yield
    finally:
        state.reference = before


def quietly(function: Callable[..., Any], *arguments: object) -> Any:
    """Call with NumPy's floating-point warnings off, also from within an eager rule."""
    try:
        return state.quiet.run(function, *arguments)
    except MemoryError as error:
        raise out_of_memory(error) from None
    except RuntimeError as error:
        if "cannot enter context" not in str(error):
            raise
    with np.errstate(all="ignore"):
        return function(*arguments)


__all__ = [
    "BY_PYTHON", "LINE_BY_LINE",
    "Layer", "State", "become", "below", "bump_guard_epoch", "carry", "detour_of_modes", "grad_mode", "guard_epoch",
    "holders", "is_tracing", "made_like", "no_epoch", "outside_inference", "outside_trace", "quietly", "set_inference",
    "set_layers", "set_trace", "state", "transform_mode", "with_layers",
    "with_trace",
]  # fmt: skip


finished: weakref.WeakSet[Trace] = weakref.WeakSet()
"""Captures that have ended and whose steps still exist."""


def source_of(value: Value) -> SourceLocation | None:
    """Where a value of a finished capture was made, if its step still exists."""
    for trace in filter(None, (state.trace, *tuple(finished))):  # nearly always it is of the step being captured
        for node in reversed(trace.builder.nodes):
            if value in node.outputs:
                return node.source if trace in finished else None
        if value in trace.builder.inputs:
            return None
    return None
