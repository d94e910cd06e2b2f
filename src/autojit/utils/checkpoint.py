"""Checkpoints: what a function saves for backward is forgotten and computed again when the backward pass needs it.

How to read: without ``use_reentrant`` a ``_Region`` is behind the saved-tensor hooks of one call. Its pack hook
keeps a ``_Ticket`` instead of a tensor; the first ticket that is handed in again runs the function once more, up to the
last tensor that was saved, and fills all tickets of the region. Regions nest: the arguments of an inner one are saved
through the hooks of the outer one. With ``use_reentrant`` a custom function runs a backward pass in its own.
"""

from __future__ import annotations

import functools
import itertools
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Self

from autojit.autograd import backward
from autojit.autograd.engine import ExecutionEngine
from autojit.autograd.function import Function
from autojit.autograd.grad_mode import enable_grad
from autojit.autograd.graph import saved_tensors_hooks
from autojit.autograd.running import current_walk
from autojit.core.errors import DifferentiationError, UsageError
from autojit.core.source import here
from autojit.core.types import TensorType
from autojit.core.user_warnings import warn
from autojit.functions.random import get_rng_state
from autojit.history.saved import Packed
from autojit.tensor import Tensor
from autojit.tensor.state import state
from autojit.tensor.tensor import storage_of, type_of
from autojit.utils.second_runs import apart_from_the_first, random_numbers, same_precision
from autojit.utils.selective_checkpoint import (
    SAC_IGNORED_OPS,
    CheckpointPolicy,
    SelectiveCheckpointContext,
    create_selective_checkpoint_contexts,
)  # fmt: skip


class CheckpointError(RuntimeError):
    """The second run of a checkpointed function did not save what the first one did."""


class _Finished(Exception):
    """The second run has saved everything that its region, the argument, needs."""


class _Ticket(dict[int, Tensor | None]):
    """Stands for a saved tensor; holds it again, by backward pass, after the second run."""

    __slots__ = ("__weakref__",)


_outside = itertools.count(-1, -1)
_entered = threading.local()


class GraphExecGroup:
    """Context manager: backward passes over separate parts of one checkpointed call share a single second run.

    Raises:
        RuntimeError: two passes inside need the same saved tensor, or groups are nested.

    Example:
        >>> import autojit as aj
        >>> x = aj.tensor(2.0, requires_grad=True)
        >>> def both(t):
        ...     y = t * t
        ...     return y, y * y
        >>> y, z = checkpoint(both, x, use_reentrant=False)
        >>> with GraphExecGroup():
        ...     (y_bar,) = aj.autograd.grad(z, y)
        ...     (x_bar,) = aj.autograd.grad(y, x, y_bar)
        >>> x_bar
        tensor(32.)
    """

    def __init__(self) -> None:
        self.number = next(_outside)

    def __enter__(self) -> Self:
        if getattr(_entered, "group", None) is not None:
            raise RuntimeError("GraphExecGroup contexts cannot be nested.")
        _entered.group = self
        return self

    def __exit__(self, *exception: object) -> None:
        _entered.group = None


class _Region:
    """One call of a checkpointed function."""

    def __init__(self, early_stop: bool, checks_types: bool, debug: bool, again: Callable[[], Any]) -> None:
        self.again = again
        self.early_stop = early_stop
        self.checks_types = checks_types
        self.lines: list[str] | None = [] if debug else None  # what the first run saved, and where
        self.tickets: list[weakref.ref[_Ticket]] = []
        self.types: list[TensorType] = []
        self.known: set[int] = set()  # the passes that the function was run again for
        self.is_complete = False  # whether the first run has ended: it may start backward passes itself

    def pack(self, t: Tensor) -> _Ticket:
        """The pack hook of the first run."""
        ticket = _Ticket()
        self.tickets.append(weakref.ref(ticket))
        self.types.append(type_of(t))
        if self.lines is not None:
            self.lines.append(f"{type_of(t)}  {here()}")
        return ticket

    def unpack(self, ticket: _Ticket) -> Tensor:
        """The unpack hook of the first run."""
        walk, group = current_walk(), getattr(_entered, "group", None)
        number = group.number if group is not None else next(_outside) if walk is None else walk.number
        if number not in self.known:
            self.known.add(number)
            self._run_again(number)
        found = ticket.get(number)
        if found is None and group is not None:
            raise CheckpointError(
                "checkpoint: Performing two backward calls that overlap (both need the same saved tensor) in one "
                "GraphExecGroup is not supported; use a group for each, or none."
            )
        if found is None:
            raise CheckpointError(
                "checkpoint: Unpack is being triggered for a tensor that was already unpacked once. If you are calling "
                "ctx.saved_tensors in backward, make sure to do so only once. Otherwise please open an issue with "
                "details on your use case."
            )
        ticket[number] = None
        return found

    def _run_again(self, number: int) -> None:
        lines: list[str] | None = None if self.lines is None else []
        try:
            self._run_and_compare(number, lines)
        except CheckpointError as error:
            if self.lines is None or lines is None:
                raise
            of_runs = [[f"  {line}" for line in run] for run in (self.lines, lines)]
            raise CheckpointError(
                f"{error}\n\nYou are seeing this error because you passed `debug=True` to checkpoint. What both runs "
                "saved, in order:\n" + "\n".join(["first run", *of_runs[0], "second run", *of_runs[1]])
            ) from error

    def _run_and_compare(self, number: int, lines: list[str] | None) -> None:
        count = 0

        def pack(t: Tensor) -> Tensor:
            nonlocal count
            if lines is not None:
                lines.append(f"{type_of(t)}  {here()}")
            if count >= len(self.tickets):
                if not self.is_complete:
                    count += 1  # the first run will get there, too
                    return t.detach()
                raise CheckpointError(
                    "checkpoint: trying to save more tensors during recomputation than during the original forward "
                    f"pass, which saved {count}. The function must do the same every time it is called."
                )
            kept: Tensor = t.detach() if t.requires_grad else t
            ticket = self.tickets[count]()
            if ticket is not None:
                ticket[number] = kept
            count += 1
            if self.early_stop and count == len(self.tickets):
                raise _Finished(self)
            return kept

        try:
            with saved_tensors_hooks(pack, lambda t: t), enable_grad(), apart_from_the_first():
                self.again()
        except _Finished as finished:
            if finished.args[0] is not self:
                raise
        if count != len(self.tickets) and (self.is_complete or count < len(self.tickets)):
            raise CheckpointError(
                "checkpoint: A different number of tensors was saved during the original forward and recomputation.\n"
                f"Number of tensors saved during forward: {len(self.tickets)}\n"
                f"Number of tensors saved during recomputation: {count}"
            )
        if self.checks_types:
            self._check_types(number)

    def _check_types(self, number: int) -> None:
        tickets = [reference() for reference in self.tickets]
        values = [None if ticket is None else ticket[number] for ticket in tickets]
        differing = [
            f"tensor at position {place}:\nsaved metadata: {before}\nrecomputed metadata: {type_of(found)}"
            for place, (found, before) in enumerate(zip(values, self.types, strict=True))
            if found is not None and type_of(found) != before
        ]
        if differing:
            raise CheckpointError(
                "checkpoint: Recomputed values for the following tensors have different metadata than during the "
                "forward pass.\n" + "\n".join(differing)
            )


def noop_context_fn() -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    """Two contexts that do nothing: for the first run and for the second."""
    return nullcontext(), nullcontext()


_early_stop: bool | None = None
_debug: bool | None = None


@contextmanager
def set_checkpoint_debug_enabled(enabled: bool | None) -> Iterator[None]:
    """Context manager: whether checkpoints made inside explain how two runs differ; None: their ``debug``."""
    global _debug
    before, _debug = _debug, enabled
    try:
        yield
    finally:
        _debug = before


@contextmanager
def set_checkpoint_early_stop(enable: bool) -> Iterator[None]:
    """Context manager: whether the second runs of checkpoints made inside end as soon as they can."""
    global _early_stop
    before, _early_stop = _early_stop, enable
    try:
        yield
    finally:
        _early_stop = before


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    context_fn: Callable[[], tuple[AbstractContextManager[Any], AbstractContextManager[Any]]] = noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    preserve_rng_state: bool = True,
    **kwargs: Any,
) -> Any:
    """``function(*args, **kwargs)`` that saves nothing for backward: what is needed there is computed again.

    Args:
        use_reentrant: False is the recommended way; True (and None, with a warning) runs a backward pass within the
            backward pass, which excludes ``grad``, ``inputs=`` and keyword arguments.
        context_fn: makes two contexts, for the first run and for the second.
        determinism_check: "default" compares the types of what both runs save, "none" does not.
        debug: let the error of two runs that differ tell what each saved, and on which line.
        early_stop: whether the second run ends with the last tensor that is needed.
        preserve_rng_state: whether both runs draw the same random numbers.

    Raises:
        CheckpointError: in backward: the second run saves other tensors than the first.
        ValueError: arguments that do not go together.

    Example:
        >>> import autojit as aj
        >>> x = aj.tensor([1.0, 2.0], requires_grad=True)
        >>> y = checkpoint(lambda t: (t * t).exp(), x, use_reentrant=False)
        >>> y.sum().backward()
        >>> x.grad
        tensor([  5.4366, 218.3926])
    """
    if use_reentrant is None:
        warn(
            "checkpoint: the use_reentrant parameter should be passed explicitly. use_reentrant=False is recommended; "
            "use_reentrant=True keeps the old behaviour.",
            UserWarning,
        )
        use_reentrant = True
    if not use_reentrant:
        if determinism_check not in ("default", "none"):
            raise ValueError(f"determinism_check should be one of ['default', 'none'] but got {determinism_check}")
        early_stop = early_stop if _early_stop is None else _early_stop
        debug = debug if _debug is None else _debug
        region = functools.partial(_Region, early_stop, determinism_check == "default", debug)
        return _recomputed(function, args, kwargs, preserve_rng_state, *context_fn(), region)
    if kwargs:
        raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
    if context_fn is not noop_context_fn or debug:
        raise ValueError("Passing `context_fn` or `debug` is only supported when use_reentrant=False.")
    return CheckpointFunction.apply(function, preserve_rng_state, *args)


def _recomputed(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], preserve: bool,
    first: AbstractContextManager[Any], second: AbstractContextManager[Any], region_of: Callable[..., _Region],
) -> Any:  # fmt: skip
    if not state.grad_enabled:
        with first:
            return function(*args, **kwargs)
    numbers, precision = get_rng_state() if preserve else None, state.autocast
    kept = [_kept(a) for a in args]
    kept_by_name = {name: _kept(a) for name, a in kwargs.items()}

    def again() -> None:
        with random_numbers(numbers), same_precision(precision), second:
            function(*[given() for given in kept], **{name: given() for name, given in kept_by_name.items()})

    region = region_of(again)
    with first, saved_tensors_hooks(region.pack, region.unpack):
        found = function(*args, **kwargs)
    region.is_complete = True
    return found


def _kept(given: Any) -> Callable[[], Any]:
    """An argument for the second run; a tensor is saved as ops save theirs, through the hooks of an outer region."""
    if not isinstance(given, Tensor):
        return lambda: given
    if state.recording_hooks is not None:
        return Packed(given, state.recording_hooks[-1], False).unpack_operand
    storage = storage_of(given)
    before = storage.version

    def unchanged() -> Tensor:
        if storage.version != before:
            raise DifferentiationError(
                "one of the variables needed for gradient computation has been modified by an inplace operation: an "
                f"argument of checkpoint is at version {storage.version}; expected version {before} instead.",
                {"argument": given, "changed by": f"{storage.changed_by}  {storage.changed_at}"},
                "use the out-of-place form, or clone() the argument before changing it",
            )
        return given

    return unchanged


class CheckpointFunction(Function):
    """The call as one node, whose backward runs the function again and a backward pass through it."""

    @staticmethod
    def forward(ctx: Any, function: Callable[..., Any], preserve: bool, *args: Any) -> Any:
        """Run without recording."""
        check_backward_validity(args)
        ctx.function = function
        ctx.numbers, ctx.precision = get_rng_state() if preserve else None, state.autocast
        ctx.places = [k for k, a in enumerate(args) if isinstance(a, Tensor)]
        ctx.others = [None if isinstance(a, Tensor) else a for a in args]
        ctx.save_for_backward(*[args[k] for k in ctx.places])
        return function(*args)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Run again, with recording, and differentiate that."""
        if not ExecutionEngine().is_checkpoint_valid():
            raise UsageError(
                "When use_reentrant=True, torch.utils.checkpoint is incompatible with .grad() or passing an `inputs` "
                "parameter to .backward(). Checkpointing is not compatible with .grad() in this form.",
                fix="use_reentrant=False",
            )
        inputs = list(ctx.others)
        for place, t in zip(ctx.places, ctx.saved_tensors, strict=True):
            inputs[place] = t.detach().requires_grad_(t.requires_grad)
        precision = same_precision(ctx.precision)
        with random_numbers(ctx.numbers), precision, enable_grad(), apart_from_the_first(grads):
            outputs = ctx.function(*inputs)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        pairs = [(y, g) for y, g in zip(outputs, grads, strict=True) if isinstance(y, Tensor) and y.requires_grad]
        if not pairs:
            raise UsageError("none of output has requires_grad=True, this checkpoint() is not necessary")
        backward([y for y, _ in pairs], [g for _, g in pairs])
        return None, None, *[a.grad if isinstance(a, Tensor) else None for a in inputs]


def checkpoint_sequential(
    functions: Any, segments: int, input: Any, use_reentrant: bool | None = None, **kwargs: Any
) -> Any:
    """A chain of functions (or a Sequential) with checkpoints between ``segments`` parts; the last part saves as usual.

    Raises:
        ValueError: unknown keyword arguments.

    Example:
        >>> import autojit as aj
        >>> x = aj.tensor(2.0, requires_grad=True)
        >>> steps = [lambda t: t * t, lambda t: t + 1, lambda t: t * t]
        >>> checkpoint_sequential(steps, 2, x, use_reentrant=False).backward()
        >>> x.grad
        tensor(40.)
    """
    if use_reentrant is None:
        warn("checkpoint_sequential: the use_reentrant parameter should be passed explicitly.", UserWarning)
        use_reentrant = True
    preserve = kwargs.pop("preserve_rng_state", True)
    if kwargs:
        raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
    steps = list(functions)
    size = len(steps) // segments
    for part in range(segments - 1):
        run = functools.partial(_run_all, steps[part * size : (part + 1) * size])
        input = checkpoint(run, input, use_reentrant=use_reentrant, preserve_rng_state=preserve)
    return _run_all(steps[(segments - 1) * size :], input)


def _run_all(steps: Sequence[Callable[[Any], Any]], value: Any) -> Any:
    for step in steps:
        value = step(value)
    return value


def detach_variable(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The tensors of a tuple without their histories, requiring gradients as before; RuntimeError for no tuple."""
    if not isinstance(inputs, tuple):
        raise UsageError(f"Only tuple of tensors is supported. Got Unsupported input type: {type(inputs).__name__}")
    return tuple(x.detach().requires_grad_(x.requires_grad) if isinstance(x, Tensor) else x for x in inputs)


def check_backward_validity(inputs: Iterable[Any]) -> None:
    """Warn when none of the tensors requires a gradient."""
    if not any(x.requires_grad for x in inputs if isinstance(x, Tensor)):
        warn("None of the inputs have requires_grad=True. Gradients will be None")


def get_device_states(*args: Any) -> tuple[list[int], list[Tensor]]:
    """The random states of accelerators that the tensors are on: the CPU's one state serves them all, so none."""
    return [], []


def set_device_states(devices: Sequence[int], states: Sequence[Tensor], *, device_type: str | None = None) -> None:
    """Set what ``get_device_states`` returned; RuntimeError for anything else."""
    if devices or states:
        raise UsageError("set_device_states: there are no random states beside the CPU's", {"devices": devices})


__all__ = [
    "SAC_IGNORED_OPS", "CheckpointError", "CheckpointFunction", "CheckpointPolicy", "GraphExecGroup",
    "SelectiveCheckpointContext", "check_backward_validity", "checkpoint", "checkpoint_sequential",
    "create_selective_checkpoint_contexts", "detach_variable", "get_device_states", "noop_context_fn",
    "set_checkpoint_debug_enabled", "set_checkpoint_early_stop", "set_device_states",
]  # fmt: skip
