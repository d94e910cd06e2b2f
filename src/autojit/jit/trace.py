"""Trace: the capture of one step.

The function runs once with traced arguments. Every op on a tensor is recorded in one graph; ``backward`` and optimisers
are plain Python whose ops are recorded like any other. Tensors reached from outside are *state*: their storage becomes
a graph input on first use; an in-place change replaces the storage's present value, and what differs at the end is
written back by the compiled step. The capture itself changes nothing outside: ``restore`` takes back version counters
and histories that in-place ops moved on.

Python control flow on values (``bool``, ``int``, ``float``) asks ``concretize``: the interpreter computes the value
from the actual inputs, and the answer becomes a *split* of the trace: what is recorded after it holds for that outcome
only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from autojit.core.device_array import Array, host_copy
from autojit.core.dtypes import bool_, float64, int64
from autojit.core.errors import TraceError
from autojit.core.late_interrupts import late_interrupts
from autojit.core.size_expressions import Expression, symbol
from autojit.core.sizes import is_symbolic
from autojit.core.source import SourceLocation, here
from autojit.core.types import TensorType
from autojit.history.saved import accumulator_of
from autojit.ir.builder import GraphBuilder
from autojit.ir.concrete import symbols_of
from autojit.ir.graph import Node, Value
from autojit.ir.op import Op
from autojit.jit.assigned_options import TraceOptions
from autojit.jit.caught_errors import may_raise, raise_where_caught
from autojit.jit.exact_numbers import TraceExact
from autojit.jit.failed_calls import may_change
from autojit.jit.number_guards import TraceNumbers
from autojit.jit.number_ranges import ANY, range_of_dtype
from autojit.jit.outcomes import BeginsAgain, Turned
from autojit.jit.stepped_bodies import SteppedBodies
from autojit.jit.taken_arrays import TraceTaken
from autojit.jit.trace_again import TraceAgain
from autojit.jit.trace_arguments import TraceArguments
from autojit.jit.trace_entries import Before, GradEntry, Split, StateEntry
from autojit.jit.trace_memory import TraceMemory
from autojit.jit.trace_orders import TraceOrders
from autojit.jit.trace_passes import TracePasses
from autojit.jit.trace_sizes import TraceSizes
from autojit.jit.trace_texts import TraceTexts
from autojit.jit.traced_number import TracedNumber
from autojit.tensor.lent_gradients import lent_gradient
from autojit.tensor.node import Edge
from autojit.tensor.state import finished, grad_mode, source_of, state, with_trace
from autojit.tensor.storage import Storage
from autojit.tensor.tensor import Tensor, array_type, storage_of, wrap_value

FLOATS_IN_A_LIST, INTS_IN_A_LIST = 16, 4
"""Of a tensor that a step computes: so many stay numbers of the step, each by an op or two of its own. Of longer lists
Python gets the digits at once: whoever has many sorts them, or decides on them, and ints are often places or keys.
"""


class Trace(
    TraceSizes, TraceOrders, TraceArguments, TraceOptions, TraceMemory, TraceTexts, TracePasses, TraceTaken, TraceExact,
    TraceAgain, TraceNumbers,
):  # fmt: skip
    """What ``tensor`` talks to while a step is captured (``tensor.trace.Trace``).

    ``forced`` holds the first splits whose outcomes are known already: a compiled prefix has computed them.
    For the others see ``TraceSizes``; layouts, ``TraceOrders``; what it is given, ``TraceArguments``; options of
    optimisers, ``TraceOptions``; memory it makes, ``TraceMemory``; texts, ``TraceTexts``; backward, ``TracePasses``;
    its arrays, ``TraceTaken``; ints, ``TraceExact``; checkpoints, ``TraceAgain``; decisions, ``TraceNumbers``.
    """

    runs_often = False
    stepped: SteppedBodies | None = None  # where loops and branches run as Python runs them

    def __init__(
        self,
        forced: Sequence[Split] = (),
        sizes: Mapping[str, int] | None = None,
        are_counts_fixed: bool = False,
        shift: int = 0,
    ) -> None:
        TraceSizes.__init__(self, sizes or {}, are_counts_fixed, shift)
        TraceOrders.__init__(self)
        TraceArguments.__init__(self)
        TraceMemory.__init__(self)
        TraceTexts.__init__(self)
        TracePasses.__init__(self)
        TraceTaken.__init__(self)
        TraceExact.__init__(self)
        TraceAgain.__init__(self)
        TraceNumbers.__init__(self)
        self.builder = GraphBuilder()
        self.state: dict[int, StateEntry] = {}
        self.grads: dict[int, GradEntry] = {}
        self.splits: list[Split] = []
        self.recordings: dict[Any, Any] = {}
        self.writes = 0  # in-place changes of memory from outside
        self.forced = forced
        self.known: dict[Value, Any] = {}  # values the interpreter has computed
        self.definition: dict[Value, Node] = {}
        self.indexed = 0
        self.asked: dict[Value, Any] = {}  # outcomes given once are given again
        self.holders: dict[int, tuple[Any, dict[frozenset[int], None]]] = {}  # optimisers, what their steps update
        self.reached: list[Tensor] = []  # outside tensors through which state was read or written
        self.has_numbers = False  # whether there are any that change from call to call
        self.has_passes = False  # whether the step differentiates
        self.asks_attributes = False  # of arguments
        self.arrays: list[Any] = []  # those of NumPy's
        self.looks_at_arrays = False  # whether the function does something with NumPy's arrays that NumPy does
        self.is_whole = False  # whether the function has come to its end, and what it left can be done at every call
        self._before: dict[int, Before] = {}
        self._after: list[Before] = []
        self._resumptions: list[slice] = []  # of the builder's nodes

    # -- the protocol

    def apply(self, op: Op, values: Sequence[Value], place: SourceLocation | None = None) -> tuple[Value, ...]:
        if late_interrupts.kept is not None:
            late_interrupts.poll()  # a function that loops for ever is stopped here
        place = here(is_inside=True) if place is None else place
        if self.taken:
            self.look_at_taken()
        if may_raise(op, values):
            raise_where_caught(self, op, values, place)
        return self.recorded(op, values, place)

    def lifted(self, array: Array | None, is_first: bool = False) -> Value | None:
        found = self.state.get(id(array))
        return None if found is None else found.input if is_first else found.value

    def lift(self, storage: Storage, owner: Tensor | None = None) -> Value:
        array, way = storage.array, storage
        assert array is not None
        if owner is not None and (of := self.origin(owner)) is not owner:
            self._remember(storage, owner)
            owner, storage = of, storage_of(of)
        found = self.state.get(id(array))  # tensors that share memory without sharing a version share their state
        if found is None:
            value = self.builder.input(array_type(array))
            self.known[value] = array
            wanted = owner is not None and owner._requires_grad
            found = self.state[id(array)] = StateEntry(
                storage, array, value, value, here(is_inside=True), owner, wanted
            )
        elif owner is not None and owner._array is array and self._was_met_by_alias(found, owner):
            found.owner, found.storage, found.requires_grad = owner, storage, owner._requires_grad
        found.meet(way)
        self._remember(storage, owner)
        return found.value

    def _was_met_by_alias(self, entry: StateEntry, owner: Tensor) -> bool:
        """Whether memory was met before by a tensor without the history that it has: detached, or ``.data``."""
        is_made = entry.owner is None or self.has_begun(entry.owner)
        return not entry.requires_grad and not self.has_begun(owner) and (is_made or owner._grad_fn is not None)

    def in_place(self, storage: Storage, value: Value) -> None:
        self.note_taken_changed(storage)
        self.note_given_changed(storage)
        self.lift(storage)
        entry = self.state[id(storage.array)]
        entry.value = value
        entry.note_change(storage)
        self.writes += 1

    def forget(self, since: int) -> bool:
        """Drop the nodes recorded from a position on, which nothing refers to any more; not what was computed."""
        if self.indexed > since or any(split.position > since for split in self.splits):
            return False
        del self.builder.nodes[since:]
        return True

    def item(self, value: Value) -> Any:
        """The number in a value of one element: a TracedNumber when it can change from call to call."""
        dtype = value.type.dtype
        if dtype is bool_ or dtype.is_complex or not any(self._sources(value)):
            found = self.concretize(value)
            return found.item() if dtype.numpy.isbuiltin else float(found.reshape(())[()])
        kind = float if dtype.is_floating_point else int
        with grad_mode(False):
            number = wrap_value(value).reshape(()).to(float64 if kind is float else int64)
        return TracedNumber(self, number, kind, range_of_dtype(dtype.numpy) if kind is int else ANY)

    def stays_in_a_list(self, kind: TensorType) -> bool:
        """Whether the numbers of a tensor stay numbers of the step when Python gets a list of them."""
        if is_symbolic(kind.size) or kind.dtype.category not in (1, 2):
            return False
        return 0 < kind.size <= (FLOATS_IN_A_LIST if kind.dtype.is_floating_point else INTS_IN_A_LIST)

    def follow(self, holder: Any, moved: frozenset[int] | None = None) -> None:
        if holder.is_made_in(self):
            return  # it may be gone when the capture ends, and begins again at every call
        may_change(holder)
        self.check_not_later(holder)
        moves = self.holders.setdefault(id(holder), (holder, {}))[1]
        if moved is not None:
            moves[moved] = None

    def begin_again(self) -> None:
        raise Turned(BeginsAgain())

    def read_grad(self, leaf: Tensor) -> Tensor | None:
        entry = self._grad_entry(leaf)
        if not entry.is_written and not entry.was_read:
            entry.was_read = True
            entry.initial = entry.current = lent_gradient(leaf)
        self.note_touch(leaf, entry.current)
        return entry.current

    def write_grad(self, leaf: Tensor, grad: Tensor | None) -> None:
        entry = self._grad_entry(leaf)
        self.note_touch(leaf, grad)
        entry.current = grad
        entry.is_written = True

    def _grad_entry(self, leaf: Tensor) -> GradEntry:
        found = self.grads.get(id(leaf))
        if found is None:
            found = self.grads[id(leaf)] = GradEntry(leaf, leaf._grad, False, leaf._grad)
        return found

    def would_split(self, value: Value) -> bool:
        """Whether a decision on a value is one on what the step computes: not on sizes, or on numbers, alone."""
        return self._sources(value)[0] and not self.is_of_numbers(value)

    def concretize(self, value: Value) -> Any:
        """The value's array for the actual inputs; recorded as a split unless it cannot change.

        What Python gets to see of open sizes fixes them: how many elements there are, and numbers made of sizes alone.

        Raises:
            Turned: a decision that is known was about something else.
        """
        self.look_at_taken()
        self.look_at_exact()
        given = self.asked.get(value)
        if given is not None:
            return given
        for extent in value.type.shape:
            int(extent)
        is_given, sizes = self._sources(value)
        if not is_given and (not sizes or value.type.dtype is not bool_):
            for size in sizes:
                self.size_digits(size)
            return self.evaluate(value)
        if (decided := self.decided_by_numbers(value)) is not None:
            return decided
        place = len(self.splits)
        split = Split(value, None, here(), len(self.builder.nodes), self._question(value))
        if place < len(self.forced):
            if self.forced[place].question != split.question:
                raise Turned(BeginsAgain(is_lost=True))
            array = self.forced[place].outcome
        else:
            array = np.array(self.evaluate(value))
        self.splits.append(replace(split, outcome=array))
        self.asked[value] = array
        return array

    def _question(self, value: Value) -> tuple[object, ...]:
        """What is asked, and where: the same in every capture that took the same way up to here."""
        source, nodes = here(), self.builder.nodes
        node = self.definition.get(value)
        if node is None:
            made = -1 - self.builder.inputs.index(value) if value in self.builder.inputs else None
        else:
            made = next(place for place in range(len(nodes) - 1, -1, -1) if nodes[place] is node)
        return source.code, source.instruction, len(nodes), made, value.type.dtype, value.type.ndim

    # -- leaving no trace

    def history_before(self, t: Tensor) -> Edge | None:
        """Where the gradient of an outside tensor went when the capture began; None when it needed none."""
        before = self._before.get(id(t), Before.of_tensor(t))
        requires_grad, node, number = before.slots
        if not requires_grad:
            return None
        return (accumulator_of(t), 0) if node is None else (node, number)

    def _remember(self, storage: Storage, owner: Tensor | None) -> None:
        storage = storage.counter
        if id(storage) not in self._before:
            self._before[id(storage)] = Before.of_storage(storage)
        while owner is not None and id(owner) not in self._before:
            self._before[id(owner)] = Before.of_tensor(owner)
            if owner._array is not None:  # else a view that the step has made
                self.reached.append(owner)
            if owner._grad_fn is None:
                self.flags.append((owner, owner._requires_grad))
            owner = owner._view.base if owner._view is not None else None

    def restore(self) -> None:
        """Take back what recording changed on tensors outside: memory, version counters and histories."""
        self.put_slots_back()
        self._after = [before.exchange() for before in self._before.values()]
        self._before.clear()
        if not (self.is_whole or self.runs_often):
            self.attach_again()

    @contextmanager
    def resumed(self) -> Iterator[None]:
        """Continue a finished capture, to record derivatives of what it recorded."""
        first, hooks = len(self.builder.nodes), state.recording_hooks
        state.recording_hooks = None
        outside = [after.exchange() for after in self._after]
        try:
            with with_trace(self), grad_mode(True):
                yield
        finally:
            state.recording_hooks = hooks
            self._resumptions.append(slice(first, len(self.builder.nodes)))
            self.restore_new()  # to what it was in the capture, if it had a part in that
            for slots in outside:
                slots.exchange()

    @property
    def own_nodes(self) -> list[Node]:
        """The nodes of the step: without those of derivatives, which may refuse what a step does not compute."""
        found = self.builder.nodes[:]
        for part in reversed(self._resumptions):
            del found[part]
        return found

    def restore_new(self) -> None:
        """Take back what recording changed on tensors first met after ``restore``."""
        for before in self._before.values():
            before.exchange()
        self._before.clear()

    def finish(self) -> None:
        """Forget the actual inputs; from now on the trace answers only where a value was made."""
        self.known = {}
        self.asked = {}
        self.recordings = {}
        self.taken = []
        self.arrays_met = None
        self.is_over = True
        finished.add(self)

    # -- evaluation of what Python asks for

    def evaluate(self, value: Value) -> Any:
        """Compute a value with NumPy from the actual inputs; intermediate results are kept for later questions."""
        found = self.known.get(value)
        if found is not None:
            return host_copy(found)
        self._index()
        for node in self._needed(value):
            op = self.concrete_op(node.op)
            arrays = [host_copy(self.known[v]) for v in node.inputs]
            with np.errstate(all="ignore"):
                results = op.eager(*arrays)
            results = (results,) if node.op.n_outputs == 1 else results
            for output, result in zip(node.outputs, results, strict=True):
                self.known[output] = np.asarray(result, dtype=output.type.dtype.numpy)
        return host_copy(self.known[value])

    def _index(self) -> None:
        for node in self.builder.nodes[self.indexed :]:
            self.definition.update((v, node) for v in node.outputs)
        self.indexed = len(self.builder.nodes)

    def _needed(self, value: Value) -> list[Node]:
        """Nodes to run for a value, operands first."""
        order: list[Node] = []
        done: set[Node] = set()
        stack: list[tuple[Value, bool]] = [(value, False)]
        while stack:
            current, is_ready = stack.pop()
            if current in self.known:
                continue
            node = self.definition.get(current)
            if node is None:
                raise foreign_error(current, self)
            if is_ready:
                if node not in done:
                    done.add(node)
                    order.append(node)
            elif node not in done:
                stack.append((current, True))
                stack.extend((v, False) for v in node.inputs)
        return order

    def _sources(self, value: Value) -> tuple[bool, set[Expression]]:
        """(whether a value depends on inputs, the open sizes that it depends on if it does not)."""
        self._index()
        inputs = set(self.builder.inputs) - self.constants
        seen: set[Value] = set()
        sizes: set[Expression] = set()
        stack = [value]
        while stack:
            current = stack.pop()
            if current in inputs:
                return True, sizes
            if current in seen:
                continue
            seen.add(current)
            node = self.definition.get(current)
            if node is None:
                continue
            stack.extend(node.inputs)
            if self.sizes or self.counted:
                names = symbols_of(node.op)
                stack.extend(self.counted[name][0] for name in names & self.counted.keys())
                sizes.update(symbol(name) for name in names - self.counted.keys())
        return False, sizes

    def note_change(self, storage: Storage) -> None:
        self.note_written(storage)
        self.note_taken_changed(storage)
        self.note_given_changed(storage)

    def check(self) -> None:
        """TraceError if a node reads a value of another capture, or an array that a tensor shows was changed."""
        self.check_shared()
        nodes = self.builder.nodes
        known = set(self.builder.inputs).union(*[node.outputs for node in nodes])
        if known.issuperset(set().union(*[node.inputs for node in nodes])):
            return
        known = set(self.builder.inputs)
        for node in self.builder.nodes:
            for value in node.inputs:
                if value not in known:
                    raise foreign_error(value, self, node)
            known.update(node.outputs)


def foreign_error(value: Value, trace: Trace, node: Node | None = None) -> TraceError:
    """The error for a traced tensor that left its capture and came back in another."""
    facts: dict[str, object] = {"tensor": value.type, "made": source_of(value) or "in an earlier capture"}
    if node is not None:
        facts["used"] = f"{node.op.name}  {node.source}"
    return TraceError(
        "a tensor of one captured step is used in another capture",
        facts,
        "return it from the step that makes it, or assign it to an attribute or a variable; "
        "a list is appended to once only",
    )
