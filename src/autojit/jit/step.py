"""A compiled step: the last segment of a captured path, with its results and effects.

How to read: ``Capture`` is what tracing leaves; ``CompiledStep`` compiles it and runs it from Python; ``decision.py``
has earlier segments, which compute what Python decides on; ``native.py`` describes a step to the native entry point.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import field
from typing import Any

import numpy as np

from autojit.compiler import PLAIN, Options
from autojit.core.config import config
from autojit.core.device_array import packed, write_array
from autojit.core.errors import TraceError
from autojit.core.own_references import OwnTuple
from autojit.core.records import record
from autojit.core.size_recorder import recording
from autojit.core.sizes import is_symbolic
from autojit.core.source import UNKNOWN
from autojit.dispatch.dispatch import mark_inference
from autojit.dispatch.inplace import check_writable
from autojit.functions.memory import storage_offset
from autojit.history.recording import take_view_node
from autojit.history.writes import rebase
from autojit.ir.graph import Node, Value
from autojit.jit.arguments import ArgumentLeaf, switched_on
from autojit.jit.call_of_capture import CallOfCapture
from autojit.jit.decision import Decision
from autojit.jit.effects import Effects, uninterrupted
from autojit.jit.failed_calls import has_run
from autojit.jit.followed_tensors import Following, root_array
from autojit.jit.given_memory import prepare
from autojit.jit.guards import Guard
from autojit.jit.kept_operands import copied_operand, kept_operand
from autojit.jit.made_objects import check_outputs
from autojit.jit.memory_check import check_memory
from autojit.jit.outside_arrays import OutsideArrays
from autojit.jit.overlaps import Overlaps
from autojit.jit.pytree import TreeSpec
from autojit.jit.recorded_results import kept_before
from autojit.jit.results import Results
from autojit.jit.segment import Segment, Write, overlapping
from autojit.jit.trace import Trace
from autojit.ops.elementwise_arithmetic import Cast
from autojit.ops.shape import Permute
from autojit.tensor.memory_orders import Order, order_of, places_of
from autojit.tensor.state import grad_mode
from autojit.tensor.tensor import Tensor, type_of, wrap


@record(eq=False, frozen=False)
class Capture:
    """Everything one run with traced arguments produced."""

    trace: Trace
    arguments: list[ArgumentLeaf]
    argument_tree: TreeSpec
    outputs: list[Any]  # leaves: traced Tensors, concrete Tensors, or Python objects
    output_tree: TreeSpec
    guards: list[Guard]
    inputs: list[Value] = field(init=False)  # of arguments: values, then gradients
    switched_on: list[int] = field(init=False)  # arguments that require gradients from somewhere in the step on
    results: Results = field(init=False)
    effects: Effects = field(init=False)
    call: CallOfCapture | None = field(init=False, default=None)  # of results that the caller can differentiate
    apart: list[tuple[int, Any]] = field(init=False, default_factory=list)  # arguments that are asked not to be these
    modes_left: tuple[bool, int] | None = field(init=False, default=None)  # (grad, inference), if they were set
    following: Following = field(init=False)
    outside_arrays: OutsideArrays = field(init=False)
    options: Options = field(init=False, default=PLAIN)
    unguarded: list[str] = field(init=False, default_factory=list)  # what was read and is not compared, for `explain`

    def __post_init__(self) -> None:
        """Read off what the function left, while version counters stand where it left them."""
        self.trace.settle()
        self.trace.settle_given(self.outputs)
        check_outputs(self.outputs, self.trace)
        self.switched_on = switched_on(self.arguments)
        self.results = Results(self.trace, self.outputs, self.output_tree, self.arguments)
        self.effects = Effects(self.trace, self.arguments, self.outputs, self.results)
        self.following = Following(self.trace, self.effects.gradients, self.results)
        self.outside_arrays = OutsideArrays(self.trace.arrays_met, self.trace, self.effects, self.arguments)
        self.trace.check()
        self.inputs = [leaf.value for leaf in self.arguments if leaf.value is not None]
        self.inputs += [leaf.grad_value for leaf in self.arguments if leaf.grad_value is not None]
        self.rebased = [w for w in self.effects.writes if w.history is not None]
        has_left = any(e.left is not None for e in self.effects.modified)
        self.is_differentiable = bool(self.results.live or self.rebased or has_left)
        self.trace.check_given(self.is_differentiable)
        self.trace.is_whole = True

    def as_op(self) -> CallOfCapture:
        """The capture as one op of the caller's history."""
        if self.call is None:
            self.call = CallOfCapture(self)
        return self.call

    def sizes_of(self, leaves: Sequence[Any]) -> dict[str, int]:
        """The values of the open sizes for a call."""
        found: dict[str, int] = {}
        if self.trace.sizes:
            for leaf, given in zip(self.arguments, leaves, strict=True):
                if leaf.value is not None and leaf.kind != "number":
                    pairs = zip(leaf.value.type.shape, given.shape, strict=True)
                    found.update((str(n), extent) for n, extent in pairs if is_symbolic(n))
        return found

    def broken_size(self, sizes: Mapping[str, int]) -> str | None:
        """Which condition on open sizes does not hold for a call, or None."""
        guards = self.trace.size_guards
        return next((f"{guard} at {source}" for guard, source in guards if not guard.holds(sizes)), None)

    def other_order(self, leaves: Sequence[Any]) -> str | None:
        """Which argument is laid out in memory in another way than the capture depends on, or None."""
        relied_on, offsets = self.trace.relied_on, self.trace.offsets_asked
        if not relied_on and not offsets:
            return None
        for leaf, given in zip(self.arguments, leaves, strict=True):
            if leaf.value in relied_on:
                order = order_of(given._array if isinstance(given, Tensor) else given)
                if order != relied_on[leaf.value]:
                    return f"argument {leaf.value.type}: strides changed, on which the step depends"
            if leaf.value in offsets and isinstance(given, Tensor) and storage_offset(given) != offsets[leaf.value]:
                return f"argument {leaf.value.type}: where it begins in its storage changed, which the step asks"
            if leaf.grad_value in relied_on and order_of(given._grad._array) != relied_on[leaf.grad_value]:
                return f".grad of an argument {leaf.grad_value.type}: strides changed, on which the step depends"
        return None

    @property
    def strided(self) -> dict[int, Order]:
        """Arguments not in row-major order, for which alone the capture holds, and how they are laid out."""
        relied_on = self.trace.relied_on
        orders = {k: relied_on.get(leaf.value) for k, leaf in enumerate(self.arguments) if leaf.value is not None}
        return {k: order for k, order in orders.items() if order is not None}

    def arrays(self, leaves: Sequence[Any]) -> list[Any]:
        """The arrays of a call's arguments, in the order of ``inputs``."""
        pairs = list(zip(self.arguments, leaves, strict=True))
        found = [leaf.array(given) for leaf, given in pairs if leaf.value is not None]
        found += [packed(given._grad._array) for leaf, given in pairs if leaf.grad_value is not None]
        return found


class CompiledStep:
    """One capture, compiled. Runs from Python here; ``native.py`` gives it a native entry point."""

    def __init__(self, capture: Capture, carried: Mapping[Value, Any]) -> None:
        self.capture = capture
        self.trace = capture.trace
        self.is_whole = not self.trace.splits
        self.results = capture.results
        self.effects = capture.effects
        self._check_state()
        self.calls = 0
        self.earlier_calls = 0  # by native entries that are gone
        self.entry: Any = None
        self.counts_results: bool | None = None  # once asked for, by ``needed_python``
        self.is_differentiable = capture.is_differentiable
        self.call = capture.as_op() if capture.is_differentiable else None
        orders = self.results.orders
        self.packed = [  # results as native code writes them: in the order of memory
            v if order is None or self.call is not None else _in_memory(self.trace, v, order)
            for v, order in zip(self.results.values, orders, strict=True)
        ]
        entries = list(self.trace.state.values())
        self.kept = [] if self.call is None else kept_before(self)
        copies = [Node(Cast(e.input.type.dtype), (e.input,), (Value(e.input.type),), UNKNOWN) for e in self.kept]
        self.segment = Segment(
            [*self.trace.own_nodes, *copies],
            capture.inputs,
            carried if self.call is None else {},  # an op of the caller's history begins with the arguments
            entries,
            [*self.packed, *self.effects.free, *(node.outputs[0] for node in copies)],
            self.effects.moving,
            [Write(v, entry=e) for e, v in self.effects.written],
            runs=self.call is None,
            options=capture.options,
        )
        self.parts = [self.segment.compiled] if self.call is None else self.call.compiled(capture.options)
        self.entries = self.segment.entries
        # arguments that a later call may give as the very tensor that the function reads or gives a gradient outside
        outside = [(e.array, e.input.type) for e in entries if e.requires_grad]
        outside += [(g.leaf._array, type_of(g.leaf)) for g in self.trace.grads.values()]
        tensors = [
            (k, leaf.value) for k, leaf in enumerate(capture.arguments) if leaf.kind == "tensor" and leaf.requires_grad
        ]
        self.twins: list[tuple[int, Any]] = [
            OwnTuple((k, a)) for k, v in tensors for a, kind in outside if v is not None and kind == v.type
        ]
        self.twins += capture.apart
        with self.segment.gate.held():
            self.effects.gradients.bind(self.segment)
        self.overlaps = Overlaps(self)

    def _check_state(self) -> None:
        entries = list(self.trace.state.values())
        shared = overlapping([(e.array, e.is_modified) for e in entries])
        if shared is not None:
            a, b = (entries[k] for k in shared)
            raise TraceError(
                "two tensors of the step share memory in a way that only NumPy knows, and one of them is changed",
                {"first": f"{a.input.type}  {a.source}", "second": f"{b.input.type}  {b.source}"},
                "make one a view of the other with tensor indexing (base[2:]), or clone() one of them",
            )

    @property
    def n_nodes(self) -> int:
        """How many nodes were recorded for it, with decisions before it and derivatives inside."""
        return len(self.trace.own_nodes)

    def failure(self, leaves: Sequence[Any]) -> str | None:
        """Why the step cannot be used for this call, or None when state and gradients are as captured."""
        order = self.capture.other_order(leaves)
        if order is not None:
            return order
        for leaf, given in zip(self.capture.arguments, leaves, strict=True):
            if leaf.kind == "bound" and leaf.original is not given:
                return "an argument that shares memory with the step's state was replaced"
        return self.capture.following.failure(self.segment)

    def failure_after_another(self, leaves: Sequence[Any]) -> str | None:
        """The same after a decision of the capture: what lasts is written next, so all is looked at again."""
        return self.failure(leaves)

    # -- running from Python

    def run(self, leaves: Sequence[Any], arrays: Sequence[Any], given: object) -> Any:
        """Run with the leaves of the call's arguments ``given`` (and their ``arrays``)."""
        self.calls += 1
        self.effects.check_histories(leaves)
        prepare(self)
        if self.call is not None:
            with self._requiring(leaves):
                return self._run_differentiable(leaves, given)
        count = len(self.results.values)
        gate = self.segment.gate
        sizes = self.capture.sizes_of(leaves)
        if not self.effects.changes_anything:
            with gate.held():
                tensors = self._shown(self.segment.run(arrays))
                sizes |= self.segment.sizes()
            return self.package(tensors, leaves, sizes, given)
        with gate.held(), uninterrupted():
            self.effects.gradients.prepare(self.segment)
            if config.check:
                check_memory(self, arrays)
            try:
                found = self.segment.run(arrays)
            except BaseException:
                self.effects.gradients.abandon(self.segment)
                raise
            has_run()
            self.segment.commit()
            tensors = self._shown(found[:count])
            self.effects.commit(self.segment, leaves, found[count:], tensors)
            self.effects.count_versions(leaves)
            sizes |= self.segment.sizes()
            self.effects.take_forms(leaves, sizes)
        return self.package(tensors, leaves, sizes, given)

    def package(self, tensors: Sequence[Tensor], leaves: Sequence[Any], sizes: Mapping[str, int], given: object) -> Any:
        """The call's result; views of arguments that the step lets require gradients have histories."""
        with self._requiring(leaves):
            return self.results.package(tensors, leaves, sizes, given)

    def _requiring(self, leaves: Sequence[Any]) -> AbstractContextManager[None]:
        """Leaves that the step lets require gradients do so while it records what its results lead to."""
        switched = [*self.capture.trace.switched_on, *(leaves[k] for k in self.capture.switched_on)]
        return _requiring(switched) if switched else nullcontext()

    def _shown(self, arrays: Sequence[Any]) -> Sequence[Tensor]:
        """The results, their axes in the function's order."""
        orders = self.results.orders
        shown = (a if o is None else a.transpose(places_of(o)) for a, o in zip(arrays, orders, strict=True))
        return self._marked([wrap(array) for array in shown])

    def _marked(self, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        """The results, those marked that the function made in inference mode."""
        for k in self.results.made_in_inference:
            mark_inference(tensors[k])
        return tensors

    # -- results that the caller differentiates

    def _run_differentiable(self, leaves: Sequence[Any], of_call: object) -> Any:
        call = self.call
        assert call is not None
        operands: list[Tensor] = []
        changed = {w.index for w in self.effects.writes if w.what in ("array", "form")}
        for write in self.capture.rebased:
            check_writable(leaves[write.index], "in-place change by a compiled step")
        for k, (given, leaf) in enumerate(zip(leaves, self.capture.arguments, strict=True)):
            if leaf.value is not None:
                t = given if isinstance(given, Tensor) else wrap(np.asarray(given))
                if leaf.value not in call.read:
                    t = wrap(t._array)  # results do not depend on it: its history may be gone
                # what the step changes below is read by the derivative as it was before
                operands.append(kept_operand(t, leaf.value in call.kept) if k in changed else t)
        pairs = zip(leaves, self.capture.arguments, strict=True)
        added_to = {w.index for w in self.effects.writes if w.what == "grad"}
        gradients = [(k, given._grad) for k, (given, leaf) in enumerate(pairs) if leaf.grad_value is not None]
        operands += [kept_operand(grad) if k in added_to else grad for k, grad in gradients]
        written = {id(e) for e, _ in self.effects.written}
        modified = call.moving_on | written
        for entry in call.entries:
            owner = entry.root_owner()
            if entry.left is not None or (id(entry) in written and owner._requires_grad):
                operands.append(kept_operand(owner, entry.input in call.kept))
            elif id(entry) in modified:
                operands.append(copied_operand(entry.array, owner, entry.input in call.kept))
            else:
                operands.append(owner)
        arrays = {id(e.array) for e, _ in self.effects.written}
        operands += [kept_operand(t) if id(root_array(t)) in arrays else t for t in call.others]
        with grad_mode(True):  # of the body, whatever the caller's is
            found, view_nodes, histories = call.apply(operands, leaves, self.capture.sizes_of(leaves))
        sizes = {**self.capture.sizes_of(leaves), **call.sizes_of(found)}
        found = found[: call.n_read]
        count = len(self.results.values)
        for k in {*range(count)} - call.live:  # an op's results all have a history
            found[k]._requires_grad, found[k]._grad_fn = False, None
        self._marked(found[:count])
        with self.segment.gate.held(), uninterrupted():
            has_run()
            self._commit_differentiable(leaves, found, count)
            self.effects.take_histories(leaves, histories, sizes)
            for entry, t in zip(reversed(self.effects.modified), reversed(found), strict=False):
                if entry.left is not None:
                    rebase(entry.root_owner(), t)
            for k, node in view_nodes.items():  # now that the bases have their histories
                take_view_node(call.views[k].tensor, node)
            self.effects.take_forms(leaves, sizes)
            call.count_anew(found)
        return self.results.package(found[:count], leaves, sizes, of_call)

    def _commit_differentiable(self, leaves: Sequence[Any], found: Sequence[Tensor], count: int) -> None:
        effects = self.effects
        arrays = [t._array for t in found[count:]]
        free, rest = arrays[: len(effects.free)], arrays[len(effects.free) :]
        effects.gradients.prepare(self.segment)
        for (_, target), array in zip(effects.gradients.moving(), rest, strict=False):
            write_array(target, array)
        for (entry, _), array in zip(effects.written, rest[len(effects.moving) :], strict=True):
            write_array(entry.array, array)
        effects.commit(self.segment, leaves, free, found[:count])
        effects.count_versions(leaves)

    @property
    def compiled(self) -> Any:
        """Every stage of the step's last segment; a step that the caller differentiates runs its ``parts`` instead."""
        return self.segment.compiled


@contextmanager
def _requiring(leaves: Sequence[Tensor]) -> Iterator[None]:
    """Leaves that the step lets require gradients do so while it records what its results lead to."""
    before = [t._requires_grad for t in leaves]
    try:
        for t in leaves:
            t._requires_grad = True
        yield
    finally:
        for t, flag in zip(leaves, before, strict=True):
            t._requires_grad = flag


def _in_memory(trace: Trace, value: Value, order: tuple[int, ...]) -> Value:
    """A value with its axes as they are in memory."""
    with recording(trace):
        return trace.builder.apply(Permute(order), (value,), UNKNOWN)[0]


def build_path(
    capture: Capture, branch: list[Decision | CompiledStep], path: Sequence[Decision], options: Options = PLAIN
) -> list[Decision | CompiledStep]:
    """Compile what follows ``path`` (the decisions this call has passed) and add it to ``branch``; the new nodes."""
    trace = capture.trace
    capture.options = options
    capture.guards += capture.outside_arrays.guards()
    carried: dict[Value, Any] = {}
    for decision in path:
        carried.update(_matching_exports(decision, capture))
    results, effects = capture.results, capture.effects
    step_values = [*results.values, *effects.free, *effects.moving, *(v for _, v in effects.written)]
    made: list[Decision | CompiledStep] = []
    for place in range(len(path), len(trace.splits)):
        split = trace.splits[place]
        later = [s.value for s in trace.splits[place + 1 :]] + step_values
        decision = Decision(capture, split, carried, later)
        carried.update(decision.exports)
        carried[split.value] = decision.outcome
        branch.append(decision)
        made.append(decision)
        branch = decision.children.setdefault(split.key, [])
        decision.taken[split.key] = split
    step = CompiledStep(capture, carried)
    branch.append(step)
    return [*made, step]


def _matching_exports(decision: Decision, capture: Capture) -> dict[Value, Any]:
    """What an existing decision computed, as values of a new capture of the same prefix; nothing where they differ."""
    old, trace = decision.capture.trace, capture.trace
    stop = decision.split.position
    same = dict(zip(decision.capture.inputs, capture.inputs, strict=True))
    by_array = {id(e.array): e.input for e in trace.state.values()}
    for entry in old.state.values():
        if id(entry.array) in by_array:
            same[entry.input] = by_array[id(entry.array)]
    for a, b in zip(old.builder.nodes[:stop], trace.builder.nodes[:stop], strict=False):
        if a.op != b.op or [same.get(v) for v in a.inputs] != list(b.inputs):
            break
        same.update(zip(a.outputs, b.outputs, strict=True))
    found = {same[v]: array for v, array in decision.exports.items() if v in same}
    if decision.split.value in same:
        found[same[decision.split.value]] = decision.outcome
    return found
