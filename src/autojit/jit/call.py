"""CompiledCall: a captured function as one op, so that its results can be differentiated to any order.

Its eager rule runs compiled code. Its VJP is another CompiledCall, recorded by running the engine over the history that
the capture left, inside the same trace: ``detach``, hooks and custom ``Function``s count as they do in eager mode, and
because that pass is recorded with its own history, the next order works the same way.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from autojit.autograd import anomaly
from autojit.autograd.engine import Walk
from autojit.core.device_array import Array, has_layout, host_copy
from autojit.core.locks import new_lock
from autojit.core.size_recorder import recording
from autojit.dispatch.dispatch import value_of
from autojit.history.recording import edge_of
from autojit.ir.calls_out import silent_nodes
from autojit.ir.concrete import concrete
from autojit.ir.graph import Graph, Value
from autojit.ir.interpreter import evaluate
from autojit.ir.op import Operands, bind
from autojit.jit.call_layouts import Layouts, layouts_of
from autojit.jit.graph_call import CompiledGraph, contiguous
from autojit.jit.histories import has_history, new_cotangent, nodes_from, pulled_back
from autojit.jit.lasting_histories import keepers, memory_kept
from autojit.jit.segment import needed_nodes
from autojit.jit.trace import Trace
from autojit.jit.trace_entries import StateEntry
from autojit.ops.cotangent_masks import masking
from autojit.tensor.memory_orders import LayoutKind, kind_of, of_kind, row_major
from autojit.tensor.node import ZERO, Edge
from autojit.tensor.node import Node as HistoryNode
from autojit.tensor.tensor import Tensor, type_of

if TYPE_CHECKING:
    from autojit.jit.users_backward import Reads, Watching

_recording = new_lock()  # of passes that are recorded in a finished trace, whichever thread differentiates a result


class CompiledCall(CompiledGraph):
    """``outputs = graph(*inputs)`` by native code. Compared by identity of the graph.

    Args:
        trace: the finished capture.
        inputs: (graph input, the tensor behind it in the capture or None).
        outputs: (value, the traced tensor behind it or None when it has no history).
        first: the number of the trace's node from which on the call's own were recorded.
        calls_out: whether it calls users' functions; else another call of the same nodes does.
    """

    keeps_order = True  # it lays out its results itself
    is_call = True
    reached: Sequence[int] = ()  # of an adjoint: the positions of the inputs that its outputs are the gradients of
    watch: Watching | None = None  # where users' code has a part in the derivatives
    reads: Reads | None = None  # of a derivative: what users' code has read when it was recorded

    def __init__(
        self,
        trace: Trace,
        inputs: Sequence[tuple[Value, Tensor | None]],
        outputs: Sequence[tuple[Value, Any]],
        first: int = 0,
        calls_out: bool = True,
    ) -> None:
        self.trace = trace
        self._inputs = list(inputs)
        self._outputs = list(outputs)
        values = [v for v, _ in inputs]
        known = dict.fromkeys(values)
        wanted = [v for v, _ in outputs]
        nodes = needed_nodes(trace.builder.nodes, wanted, known, first)
        if not calls_out:
            nodes = silent_nodes(nodes)
        read = {v for node in nodes for v in node.inputs} | set(wanted)
        self.extra: list[StateEntry] = [e for e in trace.state.values() if e.input in read and e.input not in known]
        self.graph = Graph((*values, *(e.input for e in self.extra)), nodes, tuple(wanted))
        self.n_outputs = len(wanted)
        self.memory: Mapping[Value | None, int] = {}  # of inputs, as ``lasting_histories.identity`` knows it
        self.shown: Mapping[int, int] = {}  # the same of the outputs that eager mode keeps for some derivative
        self._kept: dict[tuple[int, ...], set[int]] = {}  # by outputs: the inputs that eager mode keeps for them
        self._adjoints: dict[Any, CompiledCall] = {}  # by what ``_kinds`` says, and the outputs unless they are all
        self._masked: dict[tuple[frozenset[int], frozenset[int], int], frozenset[int]] = {}
        self.layouts: Layouts | None = None  # of the results; None: in row-major order

    def eager(self, *arrays: Array) -> Any:
        return self._run([*arrays, *(e.storage.array for e in self.extra)])

    def _run(self, arrays: Sequence[Any]) -> Any:
        layouts = self.layouts
        if layouts is None:
            return super()._run(arrays)
        given = [contiguous(a) for a in arrays]
        made = self.executable(given).run(given)
        return self.one_or_all(layouts.show(made, arrays, self.sizes_of(arrays)))

    def _laid_out_graph(self) -> Graph:
        return self.graph if self.layouts is None else self.layouts.graph

    def laid_out(self, operands: Sequence[Any]) -> Sequence[Any]:
        arrays = [*operands, *(e.storage.array for e in self.extra)]
        sizes, layouts = self.sizes_of(arrays), self.layouts
        made = [row_major(concrete(v.type, sizes)) for v in self._laid_out_graph().outputs]
        return made if layouts is None else layouts.show(made, arrays, sizes)

    def node_name(self, number: int) -> str | None:
        t = self._outputs[number][1]
        return None if t is None or t._grad_fn is None else t._grad_fn.name_of(t._output_nr)

    # -- derivatives

    def wanted(self) -> list[int]:
        """Positions of the inputs that a derivative can be asked for."""
        asked = [t is not None and t._requires_grad and v.type.dtype.is_differentiable for v, t in self._inputs]
        return [k for k, is_asked in enumerate(asked) if is_asked]

    def _leaves(self, places: Iterable[int]) -> list[Tensor]:
        """The operands at places where gradients are wanted."""
        return [t for k in places if (t := self._inputs[k][1]) is not None]

    def ends(self) -> tuple[list[Edge | None], set[HistoryNode]]:
        """Where derivatives begin, and the nodes where they end."""
        starts = [edge_of(t) for _, t in self._outputs if t is not None]
        edges = [edge_of(t) for t in self._leaves(self.wanted())]
        return starts, {edge[0] for edge in edges if edge is not None}

    def _with_history(self) -> list[int]:
        return [k for k, (_, t) in enumerate(self._outputs) if t is not None]

    def _masked_among(self, outputs: Sequence[int]) -> tuple[bool, ...]:
        """Which cotangents of the outputs may hold zeros of masked branches, in the rule that runs."""
        known = masking.outputs
        return tuple([masking.is_on and (known is None or k in known) for k in outputs])

    def masked_operands(self, reached: frozenset[int], masked: frozenset[int]) -> frozenset[int]:
        """Which operands' cotangents may hold zeros of masked branches: those of the outputs ``masked`` do, or what the
        captured function does between an operand and an output that is ``reached`` may make some.
        """
        key = reached, masked, len(self.wanted())
        found = self._masked.get(key)
        if found is None:
            wanted, some = self.wanted(), [k for k in self._with_history() if k in reached]
            with _recording, self.trace.resumed():
                targets: list[Any] = [edge_of(t) for t in self._leaves(wanted)]
                roots: list[Any] = [edge_of(self._outputs[k][1]) for k in some]
                walk = Walk(True, targets, False, closed=True, is_masked=[k in masked for k in some])
                walk.plan(roots)
            found = frozenset(k for k, edge in zip(wanted, targets, strict=True) if edge[0] in walk.masked)
            self._masked[key] = found
        return found

    def adjoint_call(
        self, wanted: Sequence[int], kinds: Sequence[LayoutKind] = (), some: tuple[int, ...] = ()
    ) -> CompiledCall:
        """``record_adjoint``, done once for cotangents that are laid out alike, and once more under anomaly mode.

        Of all outputs unless ``some`` are given.
        """
        some = some or tuple(self._with_history())
        masked = self._masked_among(some)
        # a leaf may have been told meanwhile that it requires no gradients
        key = anomaly.is_watching(), tuple(wanted), some, masked, tuple(kinds) if any(kinds) else ()
        found = self._adjoints.get(key)
        if found is None or not (found.reads is None or found.reads.hold()):
            with _recording:
                found = self._adjoints.get(key)
                if found is None or not (found.reads is None or found.reads.hold()):
                    with anomaly.collected([]):
                        found = self._adjoints[key] = self._watched(wanted, some, kinds, masked)
        return found

    def _watched(self, *arguments: Any) -> CompiledCall:
        """``record_adjoint``, whose users' code is observed."""
        make = partial(self.record_adjoint, *arguments)
        return make() if self.watch is None else self.watch.record(make)

    def vjp(self, primals: Operands, result: Any, y_bar: Any) -> Sequence[Any]:
        placed: list[Any] = [None] * len(primals)
        wanted = self.wanted()
        if not wanted:
            return tuple(placed)
        bars = (y_bar,) if self.n_outputs == 1 else y_bar
        taken = tuple([k for k in self._with_history() if bars[k] is not None])  # the others take no part, as in eager
        if not taken:
            return tuple(placed)
        given = [bars[k] for k in taken]
        call = self.adjoint_call(wanted, [_kind_of(bar) for bar in given], taken)
        found = bind(call, *primals, *given) if call.reached else ()
        found = (found,) if call.n_outputs == 1 else found
        for k, bar, (_, t) in zip(call.reached, found, call._outputs, strict=True):
            placed[k] = bar
            if t is None and isinstance(bar, Tensor):  # an op's results all have a history
                bar._requires_grad, bar._grad_fn = False, None
        return tuple(placed)

    def operands_read(self, bars: Sequence[Any]) -> Collection[int]:
        """The numbers of the operands that must not have changed before the derivative for these cotangents: it reads
        them, or eager mode keeps them for it. And those of such outputs, from the number of operands on.
        """
        taken = tuple([k for k in self._with_history() if bars[k] is not None])
        wanted = self.wanted()
        if not taken or not wanted:
            return ()
        found = self._kept.get(taken)
        if found is None:
            kept = memory_kept([edge_of(self._outputs[k][1]) for k in taken], self.ends()[1])
            found = self._kept[taken] = {k for k, (v, _) in enumerate(self._inputs) if self.memory.get(v) in kept}
            found |= {len(self._inputs) + k for k, memory in self.shown.items() if memory in kept}
        return self.adjoint_call(wanted, [_kind_of(bars[k]) for k in taken], taken).read | found

    def leading_to(self, k: int) -> frozenset[int]:
        """The outputs whose history leads to another one's."""
        return self._leading_to[k]

    @cached_property
    def _leading_to(self) -> list[frozenset[int]]:
        edges = [None if t is None else edge_of(t) for _, t in self._outputs]
        behind = [set() if edge is None else set(nodes_from([edge[0]])) - {edge[0]} for edge in edges]
        return [
            frozenset(j for j, nodes in enumerate(behind) if edge is not None and edge[0] in nodes) for edge in edges
        ]

    def inner_cotangent(self, primals: Operands, bars: Sequence[Any], k: int) -> Any:
        """What cotangents of other outputs give to output ``k``, from which these were computed; None: nothing."""
        taken = tuple([j for j in sorted(self.leading_to(k)) if bars[j] is not None])
        given = [bars[j] for j in taken]
        masked, kinds = self._masked_among(taken), [_kind_of(bar) for bar in given]
        key = anomaly.is_watching(), ("inner", k), taken, masked, tuple(kinds)
        call = self._adjoints.get(key)
        if call is None or not (call.reads is None or call.reads.hold()):
            with _recording, anomaly.collected([]):
                call = self._adjoints[key] = self._watched((), taken, kinds, masked, k)
        return bind(call, *primals, *given) if call.n_outputs else None

    def spent_with(self, taken: Iterable[int]) -> frozenset[int]:
        """The outputs that cannot be differentiated any more when a pass has gone through the history of some: eager
        mode has freed what they need, too.
        """
        used = frozenset[HistoryNode]().union(*(self._keepers[k] for k in taken))
        return frozenset(k for k, nodes in enumerate(self._keepers) if not used.isdisjoint(nodes))

    @cached_property
    def _keepers(self) -> list[frozenset[HistoryNode]]:
        ends, edges = self.ends()[1], [None if t is None else edge_of(t) for _, t in self._outputs]
        return [frozenset() if edge is None else keepers(edge, ends) for edge in edges]

    def last_of(self, spent: frozenset[int]) -> bool:
        """Whether nothing is left to differentiate when the outputs in ``spent`` are not."""
        return spent.issuperset(self._with_history())

    @cached_property
    def read(self) -> frozenset[int]:
        """The numbers of the inputs that the graph reads."""
        found = set(self.graph.outputs).union(*(node.inputs for node in self.graph.nodes))
        return frozenset(k for k, (v, _) in enumerate(self._inputs) if v in found)

    def record_adjoint(
        self,
        wanted: Sequence[int],
        outputs: Sequence[int],
        kinds: Sequence[LayoutKind] = (),
        masked: bool | Sequence[bool] = True,
        inner: int | None = None,
    ) -> CompiledCall:
        """The derivative by some inputs: what their history does with cotangents of some outputs that have one.

        Inputs that the history does not lead to have no gradient, as in eager mode: zeros are a ``.grad`` that is not
        None, and optimisers decay what has one.

        ``kinds`` is how cotangents are laid out: all in row-major order without it; ``masked``, which may hold zeros of
        masked branches. ``inner``: by that output instead, from which the others were computed.
        """
        first = len(self.trace.builder.nodes)
        with self.trace.resumed(), recording(self.trace):
            bars = [new_cotangent(self.trace, self._outputs[k][0].type) for k in outputs]
            for bar, kind in zip(bars, kinds, strict=False):
                if kind is not None:
                    self.trace.set_order(value_of(bar), of_kind(kind, type_of(bar)))
            places = wanted if inner is None else [inner]
            leaves = [
                t for t in ((self._inputs if inner is None else self._outputs)[k][1] for k in places) if t is not None
            ]
            found = pulled_back([self._outputs[k][1] for k in outputs], bars, leaves, masked)
            grads = {k: g for k, (_, g) in zip(places, found, strict=True)}
            made = [(value_of(g), g if has_history(g) else None) for g in grads.values() if g is not None]
            call = CompiledCall(self.trace, [*self._inputs, *((value_of(b), b) for b in bars)], made, first)
            call.reached = [k for k, g in grads.items() if g is not None]
            call.layouts = layouts_of(self.trace, call.graph)
            call.options = self.options
        return call

    def culprit(self, primals: Sequence[Tensor], bars: Sequence[Any]) -> tuple[HistoryNode, int] | None:
        """The node of the captured function, and its output, where the backward pass for these values has its first
        NaN; computed with NumPy, for anomaly mode. None if there is none.
        """
        with _recording, anomaly.collected([]) as checks:
            some = self._with_history()
            call = self._watched(self.wanted(), some, (), self._masked_among(some))
        first = len(self.trace.builder.nodes)  # what nodes may refuse is not asked again
        probe = CompiledCall(self.trace, call._inputs, [(c.is_nan._value, None) for c in checks], first)  # type: ignore[misc]
        arrays = [host_copy(t._array) for t in primals]
        for k in self._with_history():
            bar, wanted = bars[k], concrete(self.graph.outputs[k].type, self.sizes_of(t.spec for t in primals))
            is_zero = bar is None or bar is ZERO
            arrays.append(np.zeros(wanted.shape, wanted.dtype.numpy) if is_zero else host_copy(bar._array))
        arrays += [host_copy(e.storage.array) for e in probe.extra]
        for check, is_nan in zip(checks, evaluate(probe.graph, arrays), strict=True):
            if is_nan:
                return check.node, check.number
        return None


def _kind_of(bar: object) -> LayoutKind:
    """How a cotangent is laid out; one that is recorded is laid out where it is recorded."""
    return kind_of(bar._array) if isinstance(bar, Tensor) and has_layout(bar._array) else None
