"""Effects: what a step changes besides returning results, and how it becomes visible outside.

State is written by the native code itself. Here: gradients of outside leaves, changes of arguments and of their
gradients, version counters. ``commit`` may run twice (after an interrupt) and then changes nothing more.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from autojit.core.ports import ports
from autojit.core.source import here
from autojit.ir.graph import Value
from autojit.jit.arguments import ArgumentLeaf, ArgumentNode
from autojit.jit.pytree import LEAF, TreeSpec, flatten
from autojit.jit.results import has_history
from autojit.jit.segment import Segment, allocate
from autojit.jit.trace import GradEntry, StateEntry, Trace
from autojit.tensor.dispatch import value_of
from autojit.tensor.recording import edge_of
from autojit.tensor.saved import connected
from autojit.tensor.state import grad_mode, set_trace, state
from autojit.tensor.tensor import Tensor, lent_gradient, step_gradient, storage_of, type_of, wrap


@dataclass(eq=False)
class GradResult:
    """A leaf's ``.grad`` after the step.

    ``value`` None: it is ``tensor`` (None, or a concrete tensor). Otherwise ``tensor`` belongs to the step, which
    writes it at every call; ``entry`` knows what the step read before.
    """

    leaf: Tensor
    entry: GradEntry
    tensor: Tensor | None
    value: Value | None = None

    def failure(self, state: dict[int, StateEntry]) -> str | None:
        """Why the gradient the step reads no longer fits; another tensor of the same type is followed."""
        entry = self.entry
        now = lent_gradient(self.leaf) if entry.is_kept else self.leaf._grad
        before = entry.initial
        if not entry.was_read or now is before:
            return None
        read = state.get(id(before._array)) if before is not None else None
        if read is None or before is None or now is None or now._view is not None or type_of(now) != type_of(before):
            return f".grad of a tensor {type_of(self.leaf)} that the step reads: {_shown(before)} -> {_shown(now)}"
        read.owner, read.storage, read.requires_grad = now, storage_of(now), now._requires_grad
        state[id(now._array)] = state.pop(id(before._array))
        entry.initial = now
        if self.tensor is before:
            self.tensor = now
        return None

    @property
    def is_stable(self) -> bool:
        """Whether the gradient is the same object before and after the step, so that native code need not set it."""
        return not self.entry.was_read or self.entry.initial is self.tensor

    @property
    def before(self) -> Tensor | None:
        """What the leaf's ``.grad`` is when a step begins that native code may run."""
        return self.leaf._grad if self.is_stable else self.entry.initial

    @property
    def is_at_hand(self) -> bool:
        """Whether the step may write the gradient's memory as it is: nobody has read what it left there."""
        return self.value is None or not getattr(self.tensor, "is_lent", True)

    def is_free(self) -> bool:
        """Whether nobody but the step and the leaf holds the gradient's memory."""
        own, shown = self.tensor, self.leaf._grad
        assert own is not None
        if shown is own or self.is_at_hand:
            return True  # nobody has read it: readers get ``lent_gradient``
        held = 2  # own._array and the argument of getrefcount
        if shown is not None and shown._array is own._array:
            if sys.getrefcount(shown) > 3 or shown._requires_grad:  # the leaf's slot, `shown`, the argument
                return False
            held += 1 + (shown._storage is not None and shown._storage.array is own._array)
        return sys.getrefcount(own) <= 3 and sys.getrefcount(own._array) <= held  # the step's slot, `own`, the argument


def _shown(grad: Tensor | None) -> str:
    return "None" if grad is None else f"a tensor at {id(grad):#x}"


@dataclass(eq=False)
class ArgumentWrite:
    """A change of an argument: its memory ("array"), its ``.grad`` in place ("grad") or replaced ("new grad").

    "detached": it has lost its history. ``history`` is the traced tensor whose history the argument takes over.
    """

    index: int
    what: str
    value: Value | None  # None: ``.grad`` becomes None
    history: Tensor | None = None


@dataclass(eq=False)
class GradInParts:
    """A ``.grad`` that is made of several tensors (a sparse one): a new one of new parts after every call."""

    leaf: Tensor
    entry: GradEntry
    tree: TreeSpec
    values: list[Value]

    def failure(self) -> str | None:
        """Why the gradient the step reads no longer fits, or None."""
        before, now = self.entry.initial, self.leaf._grad
        if not self.entry.was_read or now is before:
            return None
        return f".grad of a tensor {type_of(self.leaf)} that the step reads: {_shown(before)} -> {_shown(now)}"


class Effects:
    """All effects of one capture, collected from its trace."""

    def __init__(self, trace: Trace, arguments: Sequence[ArgumentLeaf], outputs: Sequence[Any]) -> None:
        self.trace = trace
        returned = {id(t) for t in outputs}
        self.modified: list[StateEntry] = [e for e in trace.state.values() if e.is_modified]
        for entry in self.modified:
            _note_history(trace, entry)
        before = state.trace
        set_trace(trace)
        try:
            self.writes = [w for k, leaf in enumerate(arguments) for w in _argument_writes(k, leaf)]
            shown = [
                g
                for g in trace.grads.values()
                if (g.is_written or g.was_read) and (id(g.leaf) in returned or not trace.has_begun(g.leaf))
            ]
            in_parts = [g for g in shown if g.is_written and _is_in_parts(g.current)]
            self.in_parts = [_grad_in_parts(g) for g in in_parts]
            self.grads = [_grad_result(g) for g in shown if g not in in_parts]
        finally:
            set_trace(before)
        _note_kept(self.grads, [t for t in outputs if isinstance(t, Tensor)])
        self.moving = [g for g in self.grads if g.value is not None]
        self.free = [w.value for w in self.writes if w.value is not None]
        self.free += [v for g in self.in_parts for v in g.values]

    @property
    def is_plain(self) -> bool:
        """Whether native code can do everything but to give leaves other gradients."""
        return not self.writes and not self.in_parts and all(g.is_stable or g.entry.is_written for g in self.grads)

    def failure(self) -> str | None:
        """Why the gradients no longer fit, or None."""
        reasons = (
            *(grad.failure(self.trace.state) for grad in self.grads),
            *(made.failure() for made in self.in_parts),
        )
        return next((reason for reason in reasons if reason is not None), None)

    def prepare(self, segment: Segment) -> None:
        """Before a call: gradients that somebody holds get new memory."""
        for index, grad in enumerate(self.moving):
            if not grad.is_free():
                assert grad.tensor is not None
                grad.tensor = step_gradient(allocate(type_of(grad.tensor)))
                segment.move(index, grad.tensor._array)

    def bind(self, segment: Segment) -> None:
        """Tell a segment where the gradients lie."""
        for index, grad in enumerate(self.moving):
            assert grad.tensor is not None
            segment.move(index, grad.tensor._array)

    def commit(self, leaves: Sequence[Any], arrays: Sequence[Any]) -> None:
        """Show everything outside; ``arrays`` are the free outputs of ``self.free``."""
        place = iter(arrays)
        for write in self.writes:
            _commit_write(write, leaves[write.index], next(place) if write.value is not None else None)
        for made in self.in_parts:
            made.leaf._grad = made.tree.unflatten([wrap(next(place)) for _ in made.values])
        for grad in self.grads:
            if grad.entry.is_written and grad.leaf._grad is not grad.tensor:
                grad.leaf._grad = grad.tensor

    def count_versions(self, leaves: Sequence[Any]) -> None:
        """Version counters grow by one per written storage."""
        for entry in self.modified:
            entry.storage.version += 1
        for write in self.writes:
            if write.what == "array" and isinstance(leaves[write.index], Tensor):
                storage_of(leaves[write.index]).bump("a compiled step", here())


def _argument_writes(k: int, leaf: ArgumentLeaf) -> list[ArgumentWrite]:
    shell = leaf.shell
    if shell is None:
        return []
    found: list[ArgumentWrite] = []
    if shell._storage is not None and shell._storage.value is not leaf.value:
        history = shell if _has_new_history(leaf, shell) else None
        found.append(ArgumentWrite(k, "array", shell._storage.value, history))
    if leaf.entry is not None and isinstance(leaf.entry._grad_fn, ArgumentNode):
        pending = leaf.entry._grad_fn.pending
        if pending is not None:
            found.append(ArgumentWrite(k, "new grad", value_of(pending)))
        if not shell._requires_grad:
            found.append(ArgumentWrite(k, "detached", None))
        return found
    grad = shell._grad
    if grad is not leaf.grad_shell:
        found.append(ArgumentWrite(k, "new grad", None if grad is None else value_of(grad)))
    elif grad is not None and grad._storage is not None and grad._storage.value is not leaf.grad_value:
        found.append(ArgumentWrite(k, "grad", grad._storage.value))
    return found


def _note_history(trace: Trace, entry: StateEntry) -> None:
    """Remember the history that in-place operations gave to a tensor outside; the capture takes it back."""
    root = entry.root_owner()
    edge, before = edge_of(root), trace.history_before(root)
    if edge is not None and edge != before and has_history(root):
        entry.left = connected(root, edge)
        entry.entered = None if before is None else connected(root, before)


def _has_new_history(leaf: ArgumentLeaf, shell: Tensor) -> bool:
    """Whether in-place operations gave an argument a history that the caller can differentiate."""
    before = None if leaf.entry is None else leaf.entry._grad_fn
    return shell._requires_grad and shell._grad_fn is not before and has_history(shell)


def _note_kept(grads: Sequence[GradResult], results: Sequence[Tensor]) -> None:
    """Mark gradients whose memory a result shows, or that became another leaf's gradient. Time O(all of them)."""
    shown = {id(t) for t in results} | {id(t._storage) for t in results if t._storage is not None}
    shown |= {id(g.tensor) for g in grads if g.tensor is not None and g.tensor is not g.entry.initial}
    for g in grads:
        read = g.entry.initial
        g.entry.is_kept = read is not None and (id(read) in shown or id(read._storage) in shown)


def _is_in_parts(grad: Tensor | None) -> bool:
    return grad is not None and flatten(grad)[1] is not LEAF


def _grad_in_parts(grad: GradEntry) -> GradInParts:
    parts, tree = flatten(grad.current)
    return GradInParts(grad.leaf, grad, tree, [value_of(p) for p in parts])


def _grad_result(grad: GradEntry) -> GradResult:
    current = grad.current
    if current is None or current._array is not None:  # concrete: changed in place, its storage is state
        return GradResult(grad.leaf, grad, current)
    value = value_of(current)
    return GradResult(grad.leaf, grad, step_gradient(allocate(value.type)), value)


def _commit_write(write: ArgumentWrite, given: Any, array: Any) -> None:
    if write.what == "array":
        target = given._array if isinstance(given, Tensor) else given
        target[...] = array
    elif write.what == "grad":
        given._grad._array[...] = array
    elif write.what == "detached":
        given.detach_()
    elif given._grad_fn is None:
        given._grad = None if array is None else wrap(array)
    elif array is not None:  # the argument has a history of its own: the gradient goes on through it
        assert ports.backward is not None
        with grad_mode(False):
            ports.backward(given, wrap(array))


class _Interrupt:
    """Holds back Ctrl-C between the native call and the end of ``commit``."""

    def __init__(self) -> None:
        self.noted: tuple[Any, ...] | None = None

    def note(self, *arguments: Any) -> None:
        self.noted = arguments


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ctrl-C arrives before or after the body, not within (main thread; elsewhere Python delivers none)."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler):
        yield
        return
    waiting = _Interrupt()
    signal.signal(signal.SIGINT, waiting.note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if waiting.noted is not None:
            handler(*waiting.noted)


__all__ = ["ArgumentWrite", "Effects", "GradResult", "uninterrupted"]
