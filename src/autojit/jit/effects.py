"""Effects: what a step changes besides returning results, and how it becomes visible outside.

State is written by the native code itself. Here: changes of arguments and of their gradients, version counters; those
of gradients of outside leaves are in ``step_gradients``. ``commit`` may run twice (after an interrupt) and then changes
nothing more.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from autojit.autograd.engine import Walk
from autojit.core.device_array import write_array
from autojit.core.errors import TraceError
from autojit.core.late_interrupts import late_interrupts
from autojit.core.records import record
from autojit.core.source import here
from autojit.dispatch.dispatch import value_of
from autojit.functions.methods import take_form
from autojit.history.recording import edge_of, wants_grad
from autojit.history.saved import connected
from autojit.history.writes import Change, take_history
from autojit.ir.concrete import concrete
from autojit.ir.graph import Value
from autojit.ir.op import Ndarray, Op
from autojit.jit.arguments import ArgumentLeaf, ArgumentNode
from autojit.jit.histories import has_history, history_of
from autojit.jit.line_by_line import OutOfHistory, UnrecordedForm, ViewsOfView
from autojit.jit.outside_gradients import AskedOutside, check_onward, storages_of
from autojit.jit.results import Results
from autojit.jit.segment import Segment
from autojit.jit.spent_results import SpentNode
from autojit.jit.step_gradients import StepGradients
from autojit.jit.trace import Trace
from autojit.jit.trace_entries import StateEntry
from autojit.ops.shape import Reshape
from autojit.runtime.interrupts import is_asked
from autojit.tensor.node import AccumulateGrad
from autojit.tensor.state import grad_mode, state, with_trace
from autojit.tensor.storage import SameMemory, Storage
from autojit.tensor.tensor import Tensor, layout_of, storage_of, wrap

_STEP = "a compiled step"  # what has changed a tensor, for messages


@record(eq=False, frozen=False)
class ArgumentWrite:
    """A change of an argument: its memory ("array"), its ``.grad`` in place ("grad") or replaced ("new grad").

    "reward": the reward of a sample of 0.3. "spent": it has taken over a history that the step has used up. "version":
    its memory has counted changes that leave the same values. "detached": it has lost its history, "rejoins": and is a
    leaf that requires gradients. "retains": it keeps its gradient from now on. "form": it shows its memory by the views
    ``form`` (``t_``). ``history`` is the traced tensor whose history the argument takes over, and ``value`` then its
    value in the new form; ``result``: the graph output that is the new ``.grad``.
    """

    index: int
    what: str
    value: Value | None  # None: ``.grad`` becomes None
    history: Tensor | None = None
    form: tuple[Op, ...] = ()
    is_recorded: bool = True  # whether the caller's history is to show it
    bumps: int = 1  # how often the function changed the memory
    result: int | None = None
    spent: SpentNode | None = None
    is_masked: bool = True  # that gradient may hold zeros of masked branches
    keeps_graph: bool = False  # a gradient goes on through the argument's history, which is needed again
    is_rewritten: bool = False  # a form, where the memory is written with a history too

    def change_of(self, given: object, made: Tensor, sizes: Mapping[str, int]) -> Change | None:
        """How the base of an argument that is a view changes its history; None for other arguments."""
        if not isinstance(given, Tensor) or given._view is None or given._view.base is None:
            return None
        if self.what == "form" and not self.is_rewritten:
            return None
        return Change.of(given, made, concrete(self.form, sizes))


Histories = Sequence[tuple[ArgumentWrite, Tensor, Change | None]]
"""What arguments take over, the tensors that have it, and where they are views how their bases change."""


class Effects:
    """All effects of one capture, collected from its trace."""

    def __init__(
        self, trace: Trace, arguments: Sequence[ArgumentLeaf], outputs: Sequence[Any], results: Results
    ) -> None:
        self.trace = trace
        self._arguments = arguments
        self.asked = AskedOutside(trace, arguments)
        with with_trace(trace):
            leaves = enumerate(arguments)
            self.writes = [w for k, leaf in leaves for w in _argument_writes(k, leaf, results)]
            for entry in trace.state.values():
                if entry.is_modified:
                    _note_history(trace, entry)
            self.views = _views_with_history(trace)
            detached = {id(t) for t in trace.detached_in_place}
            self._detached = [k for k, leaf in enumerate(arguments) if id(leaf.shell) in detached]
            _check_aliases(trace)
            for t in outputs:
                if isinstance(t, Tensor):
                    wants_grad(t)  # views among them know of the histories that their bases have by now
            unsettled = {id(t) for t in (*trace.unrecorded, *trace.refreshed.values())}
            shells = [(k, leaf.shell) for k, leaf in enumerate(arguments) if leaf.kind == "tensor"]
            self._unsettled = [(k, shell) for k, shell in shells if id(shell) in unsettled]
            self.gradients = StepGradients(trace, results, outputs)
            left = any(e.left is not None for e in trace.state.values() if e.is_modified)
            if left or results.live or any(w.history is not None for w in self.writes):
                self._record_forms()
        replaced = {id(grad.state): grad for grad in self.gradients.replaced}
        self.modified: list[StateEntry] = [e for e in trace.state.values() if e.is_modified and id(e) not in replaced]
        self.written: list[tuple[StateEntry, Value]] = [
            (grad.state, grad.value) for grad in replaced.values() if grad.state is not None and grad.value is not None
        ]
        self.written += [(e, e.value) for e in self.modified]  # last, which those who look for histories rely on
        moved, self.changed_unseen = trace.moved(), trace.changed_unseen()
        by_storage = {id(storage): n for storage, n in moved}
        counted = [(e, by_storage.get(id(e.storage.counter))) for e in trace.state.values()]
        self._counted = [(e, n) for e, n in counted if n is not None]
        of_state = {id(e.storage.counter) for e, _ in self._counted}
        self._counted_besides = [(s, n) for s, n in moved if id(s) not in of_state]
        self.moving = [value for value, _ in self.gradients.moving()]
        self.free = [w.value for w in self.writes if w.value is not None]
        self.free += [v for made in self.gradients.in_parts for v in made.values]

    def _record_forms(self) -> None:
        """Forms with a history become outputs of the call: what depends on such an argument leads to its new history.

        Where nothing that the caller can differentiate leaves the step, the form is recorded when it is taken.
        """
        forms = {w.index: w for w in self.writes if w.what == "form"}
        written = {w.index for w in self.writes if w.what == "array" and w.history is not None}
        for k, write in forms.items():
            leaf = self._arguments[k]
            shell = leaf.shell
            if shell is None or not _has_new_history(leaf, shell):
                continue
            write.value = _as_its_own(value_of(shell))
            self.trace.set_order(write.value, layout_of(shell))
            write.history, write.is_rewritten = shell, k in written
        self.writes = [replace(w, history=None) if w.what == "array" and w.index in forms else w for w in self.writes]

    @property
    def is_plain(self) -> bool:
        """Whether native code can do everything but to give leaves, arguments among them, other gradients."""
        grads = self.gradients
        given = all(w.what == "new grad" and self._arguments[w.index].is_leaf for w in self.writes)
        is_bare = given and not grads.in_parts and all(e.spent is None for e in self.modified)
        return is_bare and all(g.is_stable or g.entry.is_written for g in grads.all)

    @property
    def changes_anything(self) -> bool:
        """Whether a call leaves more than results."""
        return bool(self.written or self.gradients.all or self.writes or self.gradients.in_parts or self._counted)

    def counted(self) -> list[tuple[Storage, int]]:
        """Storages outside, those that are there now where others were followed, and how often a call changes them."""
        return [*((entry.storage, n) for entry, n in self._counted), *self._counted_besides]

    def check_histories(self, leaves: Sequence[Any]) -> None:
        """Before a call: gradients will go on through the histories of arguments, which must still be there.

        Raises:
            Onward: they go on to a leaf whose ``.grad`` the function has looked at or replaced since, or still has, or
                whose gradient it asks for, or through nodes that keep what the step changes.
            UnrecordedForm, ViewsOfView: see there.
        """
        self.asked.check(leaves)
        onward = []
        for write in self.writes:
            given = leaves[write.index]
            is_made = write.value is not None or write.result is not None
            if write.what == "new grad" and is_made and isinstance(given, Tensor) and given._grad_fn is not None:
                onward.append(given)
        if any(isinstance(leaves[k], Tensor) and leaves[k]._view and leaves[k]._view.base for k in self._detached):
            raise OutOfHistory(leaves[self._detached[0]], "as a view, which the step detaches in place")
        for write in self.writes:
            of_one = [w for w in self.writes if w.index == write.index]
            others = [w for w in of_one if w.what not in ("retains", "new grad", "version")]
            if write.what == "rejoins" or (write.what == "retains" and others):
                raise OutOfHistory(leaves[write.index], "gets another one, and is asked for its gradient")
        for k, shell in self._unsettled:
            if any(shell is t for t in self.trace.unrecorded):
                raise UnrecordedForm("an argument", leaves[k])
            if leaves[k]._view is not None and leaves[k]._view.base is not None:
                raise ViewsOfView(leaves[k])
        if onward:
            touched = {id(self._given(leaf, leaves)) for leaf in self.trace.leaves_used()}
            changed = {w.index for w in self.writes if w.what in ("array", "version", "form")}
            written = [entry.storage for entry, _ in self.written] + [storage for storage, _ in self.counted()]
            check_onward(onward, touched, {id(s) for s in (*written, *storages_of(leaves, changed))})

    def _given(self, leaf: Tensor, leaves: Sequence[Any]) -> Any:
        """The tensor of this call that a leaf stands for: an argument, or one outside."""
        return next((leaves[k] for k, a in enumerate(self._arguments) if a.shell is leaf), leaf)

    def commit(self, segment: Segment, leaves: Sequence[Any], arrays: Sequence[Any], tensors: Sequence[Tensor]) -> None:
        """Show everything outside; ``arrays`` are the free outputs of ``self.free``, ``tensors`` the results."""
        place = iter(arrays)
        onward = []  # gradients that go on through an argument's own history, and add to those that the step leaves
        before = {w.index: _with_its_history(leaves[w.index]) for w in self.writes if w.what == "new grad"}
        for write in self.writes:
            if write.what == "spent" and isinstance(leaves[write.index], Tensor):
                _leave_spent(leaves[write.index], write.spent)
            made = next(place) if write.value is not None else None
            if write.what == "retains":
                leaves[write.index].retain_grad()
            if write.what in ("form", "version", "spent", "retains"):
                continue  # when nobody needs the old one any more
            given = leaves[write.index]
            shown = None if write.result is None else tensors[write.result]
            start = before.get(write.index)
            if write.what == "new grad" and start is not None:
                onward.append((start, shown if made is None else wrap(made), write))
            else:
                _commit_write(write, given, made, shown)
        for entry in self.modified:
            if entry.spent is not None:
                _leave_spent(entry.root_owner(), entry.spent)
        self.gradients.commit(tensors, list(place))
        for given, grad, write in onward:
            edge = edge_of(given)
            if grad is not None and edge is not None:
                walk = Walk(write.keeps_graph, None, True, is_masked=write.is_masked)
                walk.start([(edge, grad)], grad._requires_grad)
        self.gradients.leave(segment)

    def take_forms(self, leaves: Sequence[Any], sizes: Mapping[str, int]) -> None:
        """Give arguments the shapes that the function gave them in place."""
        for write in self.writes:
            if write.what == "form" and isinstance(leaves[write.index], Tensor):
                if write.history is None:
                    with grad_mode(write.is_recorded):
                        take_form(leaves[write.index], concrete(write.form, sizes), _STEP)
                storage_of(leaves[write.index]).version += write.bumps - 1

    def take_histories(self, leaves: Sequence[Any], found: Histories, sizes: Mapping[str, int]) -> None:
        """Give arguments the histories that the call has recorded for them, and the forms that these are for."""
        for write, made, change in found:
            given = leaves[write.index]
            if write.what == "form":
                with grad_mode(False):
                    take_form(given, concrete(write.form, sizes), _STEP, is_followed=True)
            if change is None:
                take_history(given, made)
            else:
                change.take(given)

    def count_versions(self, leaves: Sequence[Any]) -> None:
        """Version counters grow by the changes that the function made."""
        for storage, changes in self.counted():
            storage.version += changes
        for storage, changes in self.changed_unseen:
            storage.changes += changes
        for write in self.writes:
            if write.what in ("array", "version") and write.bumps and isinstance(leaves[write.index], Tensor):
                storage = storage_of(leaves[write.index])
                storage.bump(_STEP, here())
                storage.version += write.bumps - 1


def _argument_writes(k: int, leaf: ArgumentLeaf, results: Results) -> list[ArgumentWrite]:
    found = _written_memory(k, leaf) + _other_writes(k, leaf, results)
    shell = leaf.shell
    if shell is None or shell._view is None or shell._view.base is not None or not shell._view.chain:
        return found
    is_recorded = leaf.entry is not None and shell._grad_fn is not leaf.entry._grad_fn
    version = storage_of(shell).version  # one at least is the form's: a write through .data is not counted
    found = [replace(w, bumps=max(0, min(w.bumps, version - 1))) if w.what == "array" else w for w in found]
    bumps = max(1, version - sum(write.bumps for write in found if write.what == "array"))
    return [*found, ArgumentWrite(k, "form", None, form=shell._view.chain, is_recorded=is_recorded, bumps=bumps)]


def _written_memory(k: int, leaf: ArgumentLeaf) -> list[ArgumentWrite]:
    shell, storage = leaf.shell, None if leaf.shell is None else leaf.shell._storage
    if shell is None or storage is None:
        return []
    bumps = storage.version
    history, value = shell if _has_new_history(leaf, shell) else None, storage.value
    if leaf.value is not None and value is leaf.value:
        if history is None or shell._view is not None:
            return [ArgumentWrite(k, "version", None, bumps=bumps)] if bumps and shell._view is None else []
        value = _as_its_own(leaf.value)
    spent: list[ArgumentWrite] = []
    node, before = shell._grad_fn, None if leaf.entry is None else leaf.entry._grad_fn
    if history is None and shell._requires_grad and node is not None and node is not before:
        spent.append(ArgumentWrite(k, "spent", None, spent=_spent_history(shell)))
    if storage.changes <= bumps and not isinstance(storage, SameMemory):  # else some are not counted
        bumps = 1 if shell._view is not None else max(1, bumps)
    return [ArgumentWrite(k, "array", value, history, bumps=bumps), *spent]


def _as_its_own(value: Value) -> Value:
    """The same numbers as an output that nothing else is: what depends on it leads to its history."""
    assert state.trace is not None
    made: tuple[Value, ...] = state.trace.apply(Reshape(value.type.shape), (value,))
    return made[0]


def _other_writes(k: int, leaf: ArgumentLeaf, results: Results) -> list[ArgumentWrite]:
    shell = leaf.shell
    if shell is None:
        return []
    found: list[ArgumentWrite] = []
    node = None if leaf.entry is None else leaf.entry._grad_fn
    if isinstance(node, ArgumentNode):
        if node.reward is not None:
            found.append(ArgumentWrite(k, "reward", value_of(node.reward)))
        if node.pending is not None:
            write = _new_gradient(k, node.pending, results)
            found.append(replace(write, keeps_graph=not node.is_spent, is_masked=node.is_masked))
        if not shell._requires_grad:
            found.append(ArgumentWrite(k, "detached", None))
        elif shell._grad_fn is None:
            found.append(ArgumentWrite(k, "rejoins", None))
        if shell._retains_grad:
            found.append(ArgumentWrite(k, "retains", None))
        return found
    grad, old = shell._grad, leaf.grad_entry
    if old is not None and isinstance(old._grad_fn, ArgumentNode) and old._grad_fn.pending is not None:
        raise TraceError(
            "backward in a step goes on through the history of an argument's .grad",
            {"argument": leaf.value.type if leaf.value is not None else None},
            "give the gradient to the function as an argument of its own, or take it with autograd.grad",
        )
    if grad is not leaf.grad_shell:
        found.append(ArgumentWrite(k, "new grad", None) if grad is None else _new_gradient(k, grad, results))
    elif grad is not None and grad._storage is not None and grad._storage.value is not leaf.grad_value:
        found.append(ArgumentWrite(k, "grad", grad._storage.value))
    return found


def _new_gradient(k: int, grad: Tensor, results: Results) -> ArgumentWrite:
    index = results.of_gradient(grad)
    return ArgumentWrite(k, "new grad", value_of(grad) if index is None else None, result=index)


def _note_history(trace: Trace, entry: StateEntry) -> None:
    """Remember the history that in-place operations gave to a tensor outside; the capture takes it back."""
    root = entry.root_owner()
    edge, before = edge_of(root), trace.history_before(root)
    if edge is None or edge == before or root._grad_fn is None:  # the last: only its flag is another one
        return
    if has_history(root):
        entry.left = connected(root, edge)
        entry.entered = None if before is None else connected(root, before)
    elif root._grad_fn is not None:
        entry.spent = _spent_history(root)


def _leave_spent(t: Tensor, node: SpentNode | None) -> None:
    t._requires_grad, t._grad_fn, t._output_nr = True, node, 0


def _spent_history(t: Tensor) -> SpentNode:
    """What is left outside of a traced history that the step has used up."""
    assert t._grad_fn is not None
    nodes = history_of([t])
    return SpentNode(
        t._grad_fn, [(n, 0) for n in nodes if isinstance(n, AccumulateGrad) and n.variable._array is not None]
    )


def _views_with_history(trace: Trace) -> list[tuple[Tensor, StateEntry, Tensor]]:
    """Views outside of tensors that in-place operations gave a history: the view, its base, the view with its own."""
    bases = {id(e.root_owner()): e for e in trace.state.values() if e.left is not None}
    found = []
    for t in trace.reached:
        is_made = t._array is None or t._view is None or t._view.creation
        base = None if is_made else bases.get(id(t._view.base))  # type: ignore[union-attr]
        edge = None if base is None else edge_of(t)
        if base is not None and edge is not None:
            found.append((t, base, connected(t, edge)))
    return found


def _check_aliases(trace: Trace) -> None:
    """TraceError if another tensor than the one that owns the memory has got a history by in-place operations."""
    owners = {id(entry.root_owner()) for entry in trace.state.values()}
    for t in trace.reached:
        is_alias = id(t) not in owners and (t._view is None or t._view.base is None)
        if is_alias and t._grad_fn is not None and edge_of(t) != trace.history_before(t) and has_history(t):
            raise TraceError(
                "jit: a step gives a detached tensor a history in place, and also uses the tensor it was detached from",
                {"tensor": t._array.shape if t._array is not None else None, "at": here()},
                "change a clone: detach().clone()",
            )


def _has_new_history(leaf: ArgumentLeaf, shell: Tensor) -> bool:
    """Whether in-place operations gave an argument a history that the caller can differentiate."""
    before = None if leaf.entry is None else leaf.entry._grad_fn
    return shell._requires_grad and shell._grad_fn is not before and has_history(shell)


def _with_its_history(given: object) -> Tensor | None:
    """What stands for an argument that is no leaf, with the history that it has now, whatever the step makes of it."""
    if not isinstance(given, Tensor) or given._grad_fn is None:
        return None
    edge = edge_of(given)
    return None if edge is None else connected(given, edge)


def _commit_write(write: ArgumentWrite, given: Any, array: Ndarray | None, shown: Tensor | None) -> None:
    if write.what == "array":
        write_array(given._array if isinstance(given, Tensor) else given, array)
    elif write.what == "grad":
        write_array(given._grad._array, array)
    elif write.what == "detached":
        given.detach_()
    elif write.what == "reward":
        given._grad_fn.reward = wrap(array)
    else:
        given._grad = shown if array is None else wrap(array)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ctrl-C arrives before or after the body, not within (main thread; elsewhere Python delivers none).

    The body is a native call up to the end of ``commit``; the call may say that it may end.
    """
    if threading.current_thread() is not threading.main_thread() or not callable(signal.getsignal(signal.SIGINT)):
        yield
        return
    with late_interrupts:
        handler = signal.getsignal(signal.SIGINT)
        assert callable(handler)
        noted: list[tuple[Any, ...]] = []

        def note(*arguments: Any) -> None:
            if is_asked():
                handler(*arguments)
            else:
                noted[:] = [arguments]

        signal.signal(signal.SIGINT, note)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, handler)
            if noted:
                handler(*noted[0])
