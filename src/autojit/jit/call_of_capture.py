"""The op that a capture is in its caller's history, if the caller can differentiate its results."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from autojit.compiler import Compiled, Options
from autojit.dispatch.dispatch import apply
from autojit.history.lasting import make_lasting
from autojit.history.op_node import OpNode
from autojit.history.recording import edge_of, shell_of, view_node
from autojit.ir.concrete import symbols_of, take_sizes
from autojit.ir.graph import Value
from autojit.jit.call import CompiledCall
from autojit.jit.call_layouts import in_orders
from autojit.jit.histories import history_of
from autojit.jit.lasting_histories import identity, keeps_nothing, memory_kept
from autojit.jit.trace import Trace
from autojit.jit.trace_entries import StateEntry
from autojit.tensor.storage import SameMemory
from autojit.tensor.tensor import Tensor, storage_of, type_of, wrap

if TYPE_CHECKING:
    from autojit.history.writes import Change
    from autojit.jit.effects import Histories
    from autojit.jit.step import Capture


class CallOfCapture:
    """A capture whose results the caller differentiates: its graph as ops, whose outputs are results, then effects.

    One op, unless results depend on what the step has changed in place: a caller may ask for the gradient with respect
    to such a tensor, whose history is from then on an output of the step. So what depends on it is an op of its own,
    with that output as an operand (``stages``).
    """

    def __init__(self, capture: Capture) -> None:
        results, effects, trace = capture.results, capture.effects, capture.trace
        given = {leaf.value: leaf.entry for leaf in capture.arguments if leaf.value is not None}
        given |= {leaf.grad_value: leaf.grad_entry for leaf in capture.arguments if leaf.grad_value is not None}
        inputs: list[tuple[Value, Tensor | None]] = [(v, given.get(v)) for v in capture.inputs]
        self.entries = list(trace.state.values())
        self.moving_on = {id(e) for e in self.entries if "moves_on" in e.root_owner().__dict__}
        switched_on = {id(t) for t in trace.switched_on}
        for entry in self.entries:
            owner = entry.root_owner()
            if entry.left is not None:
                inputs.append((entry.input, entry.entered))
            else:
                inputs.append((entry.input, owner if owner._requires_grad or id(owner) in switched_on else None))
        roots = {id(t) for _, t in inputs} | {id(entry.root_owner()) for entry in self.entries}
        changed = {id(e.root_owner()) for e in self.entries if e.left is not None}  # their views get other histories
        # that show the memory of a root with a history of their own: they take gradients, the root gives the values
        others = [t for t in trace.reached if (t._requires_grad or id(t) in switched_on) and id(t) not in roots]
        self.others = [t for t in others if t._view is None or id(t._view.base) not in changed]
        inputs += [(Value(type_of(t)), t) for t in self.others]
        self.live = live = results.live
        outputs: list[tuple[Value, Tensor | None]] = [
            (v, results.tensors[k] if k in live else None) for k, v in enumerate(results.values)
        ]
        written = [w for w in effects.writes if w.value is not None]
        outputs += [(w.value, w.history) for w in written if w.value is not None]
        outputs += [(v, None) for v in effects.free[len(written) :]]
        self.new_histories = [(len(results.values) + k, w) for k, w in enumerate(written) if w.history is not None]
        outputs += [(v, None) for v in effects.moving]
        outputs += [(v, e.left if v is e.value else None) for e, v in effects.written]
        self.n_read = len(outputs)  # the others only tell sizes that a result shows
        shown = set().union(*(symbols_of((place.what, place.chain)) for place in results.places))
        outputs += [(trace.counted[name][0], None) for name in sorted(shown & trace.counted.keys())]
        self.values = [v for v, _ in outputs]
        left = [k for k, _ in self.new_histories]
        left += [k for k, (_, t) in enumerate(outputs) if t is not None and any(t is e.left for e in self.entries)]
        lefts = {id(e.left): e for e in self.entries if e.left is not None}
        changed_at = {id(lefts[id(t)]): k for k, (_, t) in enumerate(outputs) if id(t) in lefts}
        self.views = [  # of changed roots; whoever asks for a gradient with respect to one has it end there
            _View(t, changed_at[id(e)], Value(type_of(t)), with_history)
            for t, e, with_history in effects.views
            if id(e) in changed_at
        ]
        self.stages = _stages(trace, inputs, outputs, left, self.views)
        for stage in self.stages:  # what a step writes to memory that there is, it copies from row-major results
            orders = [results.orders[k] if k < len(results.values) else None for k in stage.places]
            stage.op.layouts = in_orders(stage.op.graph, orders)
        self.owners: dict[int, Any] = {k: (capture.arguments[w.index].value, w.index) for k, w in self.new_histories}
        self.owners |= {changed_at[id(e)]: (e.input, e.root_owner()) for e in lefts.values() if id(e) in changed_at}
        self._note_read(capture, inputs, outputs)

    def _note_read(
        self, capture: Capture, inputs: list[tuple[Value, Tensor | None]], outputs: list[tuple[Value, Tensor | None]]
    ) -> None:
        """Which inputs the results depend on, and which of these eager mode keeps."""
        graphs = [stage.op.graph for stage in self.stages]
        self.read = set(self.values).union(*(node.inputs for graph in graphs for node in graph.nodes))
        nodes = history_of([t for _, t in outputs if t is not None])
        edges = [(v, None if t is None else edge_of(t)) for v, t in inputs]
        self.read |= {v for v, edge in edges if edge is not None and edge[0] in nodes}  # gradients of zeros too
        starts = [edge_of(t) for _, t in outputs if t is not None]
        ends = {edge[0] for _, edge in edges if edge is not None}
        self.is_lasting = keeps_nothing(starts, ends)
        self.kept = self._memory_kept(capture, memory_kept(starts, ends))
        for value in capture.inputs:
            if value in self.read:
                capture.trace.order_of(value)  # gradients may be laid out like it: the capture holds for such arguments

    def _memory_kept(self, capture: Capture, kept: Collection[int]) -> set[Value | None]:
        """The inputs that eager mode keeps for backward; every op is told whose memory is whose, and which results it
        keeps.
        """
        results = {k: identity(t) for k, t in enumerate(capture.results.tensors)}
        memory = {leaf.value: identity(leaf.shell) for leaf in capture.arguments if leaf.shell is not None}
        memory |= {entry.input: id(entry.storage.counter) for entry in self.entries}
        memory |= {self.values[place]: memory[value] for place, (value, _) in self.owners.items()}
        for stage in self.stages:
            stage.op.memory = memory
            stage.op.shown = {n: results[k] for n, k in enumerate(stage.places) if results.get(k) in kept}
        return {v for v, known in memory.items() if known in kept}

    def are_plain(self, entries: Sequence[StateEntry]) -> bool:
        """Whether no history is of these, and eager mode keeps none of them for backward."""
        return all(e.left is None and not e.root_owner()._requires_grad and e.input not in self.kept for e in entries)

    @cached_property
    def behind_results(self) -> set[Value]:
        """What the results that can be differentiated are computed from, where that is one op."""
        op = self.stages[0].op
        made = {value: node for node in op.graph.nodes for value in node.outputs}
        behind: set[Value] = set()
        stack = [op.graph.outputs[n] for n, k in enumerate(self.stages[0].places) if k in self.live]
        while stack:
            value = stack.pop()
            if value not in behind:
                behind.add(value)
                stack += made[value].inputs if value in made else ()
        return behind

    def compiled(self, options: Options) -> list[Compiled]:
        """Every stage of the native code of the ops."""
        for stage in self.stages:
            stage.op.options = options
        return [stage.op.compiled for stage in self.stages]

    def apply(
        self, operands: Sequence[Tensor], leaves: Sequence[Any], sizes: Mapping[str, int]
    ) -> tuple[tuple[Tensor, ...], dict[int, OpNode], Histories]:
        """The outputs, recorded in the caller's history; the histories that ``views`` are going to have, by number, and
        those of arguments.
        """
        found: list[Any] = [None] * len(self.values)
        nodes: dict[int, OpNode] = {}
        changes: dict[int, Change | None] = {}
        writes = dict(self.new_histories)
        for stage in self.stages:
            given = [self._changed(k, found[k], changes.get(k), leaves) for k in stage.given]
            views = [self._view(k, found, nodes) for k in stage.views]
            made: Any = apply(stage.op, *operands, *given, *views)
            made = made if isinstance(made, tuple) else (made,)
            if self.is_lasting:
                make_lasting(made)
            for place, t in zip(stage.places, made, strict=True):
                found[place] = t
                if place in writes:
                    changes[place] = writes[place].change_of(leaves[writes[place].index], t, sizes)
        return tuple(found), nodes, [(w, found[k], changes[k]) for k, w in self.new_histories]

    def _changed(self, place: int, t: Tensor, change: Change | None, leaves: Sequence[Any]) -> Tensor:
        """An output that a tensor is going to have, with the history that this is going to have."""
        value, owner = self.owners.get(place, (None, None))
        if change is None and value not in self.kept:
            return t
        made = wrap(t._array)
        made._requires_grad, made._grad_fn, made._output_nr = t._requires_grad, t._grad_fn, t._output_nr
        if change is not None:
            made._grad_fn, made._output_nr = change.view_node, 0
        if value in self.kept:  # eager mode keeps the tensor, which must not change later
            counter = storage_of(owner if isinstance(owner, Tensor) else leaves[owner])
            made._storage = SameMemory(storage_of(made), counter)
        return made

    def _view(self, k: int, found: Sequence[Any], nodes: dict[int, OpNode]) -> Tensor:
        """What stands for a view outside, whose base is going to have the history of one of the outputs."""
        view = self.views[k]
        if k not in nodes:
            nodes[k] = view_node(view.tensor, found[view.base], edge_of(found[view.base]))
        made = wrap(view.tensor._array)
        made._requires_grad, made._grad_fn = True, nodes[k]
        return made

    def count_anew(self, found: Sequence[Tensor]) -> None:
        """When the step's own changes are counted: what was recorded keeps its operands as they are now.

        Where eager mode's nodes keep them as they were before a change, the derivative is refused when it is recorded.
        """
        nodes = {id(t._grad_fn): t._grad_fn for t in found if t._requires_grad}
        for stage in self.stages:
            made = [found[k] for k in stage.places if k < len(found)]
            node = next((t._grad_fn for t in made if t._requires_grad), None)
            if isinstance(node, OpNode) and node.op is stage.op:
                shells = {number: shell_of(made[number]) for number in stage.op.shown}
                if shells:  # what nodes of one plan have said of their results they share
                    node.results = [shells.get(number, kept) for number, kept in enumerate(node.results)]
        for node in nodes.values():
            if isinstance(node, OpNode):
                kept = [t if isinstance(t, Tensor) else None for t in (*node.primals, *node.results)]
                pairs = zip(kept, node.versions, strict=True)
                node.versions = [v if t is None or t._storage is None else t._storage.version for t, v in pairs]
                node.changes = [0 if t is None or t._storage is None else t._storage.changes for t in kept]

    def sizes_of(self, found: Sequence[Tensor]) -> dict[str, int]:
        """The sizes that a call has counted, from its outputs."""
        sizes: dict[str, int] = {}
        for value, t in zip(self.values, found, strict=True):
            take_sizes(value.type, type_of(t).shape, sizes)
        return sizes


class _View(NamedTuple):
    """A view outside whose base the step changes: the output that the base becomes, and the view as the step left it.

    It takes gradients; the values come from the base. ``value`` is what it is called among the operands.
    """

    tensor: Tensor
    base: int
    value: Value
    left: Tensor


class _Stage(NamedTuple):
    """One op: the outputs it makes, those of earlier stages that it is given, and views of these."""

    op: CompiledCall
    places: list[int]
    given: list[int]
    views: list[int]


def _stages(
    trace: Trace,
    inputs: list[tuple[Value, Tensor | None]],
    outputs: list[tuple[Value, Any]],
    changed: Sequence[int],
    views: Sequence[_View],
) -> list[_Stage]:
    """The ops in order: each output is made by the first that is given all of ``changed`` that its history leads to."""
    known = {v for v, _ in inputs}
    nodes: dict[int, Any] = {}  # of the history, by output that a tensor outside takes it over from
    for k in changed:
        value, t = outputs[k]
        if value not in known and value not in (outputs[j][0] for j in nodes):
            edge = edge_of(t)
            assert edge is not None
            nodes[k] = edge[0]
    levels: dict[int, int] = {}

    def level(k: int) -> int:
        if k not in levels:
            t = outputs[k][1]
            behind = set() if t is None or not nodes else history_of([t])
            own = nodes.get(k)
            before = [j for j, node in nodes.items() if j != k and node in behind and node is not own]
            levels[k] = 1 + max((level(j) for j in before), default=-1)
        return levels[k]

    last = max((level(k) for k in range(len(outputs))), default=0)
    found = []
    for stage in range(last + 1):
        places = [k for k in range(len(outputs)) if levels[k] == stage]
        given = [k for k in nodes if levels[k] < stage]
        seen = [j for j, view in enumerate(views) if view.base in given]
        operands = [*inputs, *(outputs[k] for k in given), *((views[j].value, views[j].left) for j in seen)]
        call = CompiledCall(trace, operands, [outputs[k] for k in places], calls_out=stage == 0)
        found.append(_Stage(call, places, given, seen))
    return found
