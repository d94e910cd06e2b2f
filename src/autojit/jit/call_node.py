"""CallNode: the node that a native call leaves in its caller's history, made in some three microseconds.

What does not depend on the call is known beforehand (``Recording``): which operands lead on, which tensors of the
step's state these are. The node keeps the operands and counts of their changes, and leads on when it is asked where.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from autojit.core.source import here_calling
from autojit.history.op_node import OpNode, Rule
from autojit.history.recording import edge_of, shell_of
from autojit.history.saved import accumulator_of
from autojit.jit.outside_passes import OutsidePasses
from autojit.runtime.entry_spec import SlotGuard
from autojit.tensor.node import FREED, AccumulateGrad, Edge, Meta, backward_name, next_sequence, node_type
from autojit.tensor.state import state
from autojit.tensor.tensor import Tensor, made_in_inference, storage_of, wrap
from autojit.transforms.adjoint import accumulate as accumulate_in_order

if TYPE_CHECKING:
    from autojit.jit.step import CompiledStep

_DEPTH = 5  # calls from the user's, by way of the jitted function and its native step, to where the line is asked for


class CallNode(OpNode):
    """The node of a native call. ``given`` are the edges of arguments that lead on, by place; None without any."""

    __slots__ = ("_edges", "given", "passes")
    _edges: Sequence[Edge | None] | None
    given: dict[int, Edge] | None
    passes: OutsidePasses
    rules = None  # its rule is the step's

    @property
    def edges(self) -> Sequence[Edge | None]:
        """Made when somebody asks: a pass that is a compiled step goes to the leaves without them."""
        found = self._edges
        if found is None:
            given, owners = self.given or {}, self.passes.leaves
            found = self._edges = [
                given.get(place, (accumulator_of(owners[place]), 0) if place in owners else None)
                for place in range(len(self.primals))
            ]
        return found

    @edges.setter
    def edges(self, edges: Sequence[Edge | None]) -> None:
        self._edges = edges

    def run(self, grads: list[Any], wanted: tuple[bool, ...], accumulate: Rule = accumulate_in_order) -> Sequence[Any]:
        found = None if accumulate is not accumulate_in_order else self.passes.pulled(self, grads)
        if found is None:
            return super().run(grads, wanted, accumulate)
        return [g if is_wanted else None for g, is_wanted in zip(found, wanted, strict=True)]

    def backward_alone(self, number: int, gradient: Any, keep: bool) -> bool:
        return self.passes.backward(self, number, gradient, keep)

    def grad_alone(self, number: int, gradient: Any, inputs: Any, keep: bool) -> tuple[Tensor, ...] | None:
        return self.passes.asked(self, number, gradient, inputs, keep)

    def is_ready(self) -> bool:
        """Whether its derivative is a graph of the operands, and these are there and as they were."""
        if self.spent or not self.passes.is_graph_of(self):
            return False
        given, primals = self.given or {}, self.primals  # of which none is to have been detached since
        return all([primals[k]._requires_grad or type(edge[0]) is AccumulateGrad for k, edge in given.items()])  # noqa: C419

    def release(self) -> None:
        if self.passes.is_single:
            self.primals = [FREED] * len(self.primals)
            self.results = [FREED if isinstance(kept, Tensor) else kept for kept in self.results]
        else:
            super().release()


class Recording:
    """How the results of one native step are recorded, as long as ``is_current``."""

    def __init__(self, step: CompiledStep, name: str, jitted: Any) -> None:
        call = step.call
        assert call is not None
        self.name, self.op = name, call.stages[0].op
        arguments = [(k, leaf) for k, leaf in enumerate(step.capture.arguments) if leaf.value is not None]
        self.given = [
            (k, leaf.value in call.read, leaf.value in call.read and leaf.requires_grad) for k, leaf in arguments
        ]
        written = {id(entry) for entry, _ in step.effects.written}  # of which no derivative is
        self.owners = [wrap(e.array) if id(e) in written else e.root_owner() for e in call.entries]
        kept = {id(entry): len(step.results.values) + k for k, entry in enumerate(step.kept)}
        places = enumerate(call.entries, len(arguments))
        self.kept = [(place, kept[id(e)]) for place, e in places if id(e) in kept]  # and which of the native results
        self.count = len(step.results.values)
        self.more = [(entry.array.shape, entry.array.dtype) for entry, _ in step.effects.written]
        for owner in self.owners:
            storage_of(owner)
        first = len(arguments)
        self.leaves = {first + k: t for k, t in enumerate(self.owners) if t._requires_grad}
        self.shown = tuple(self.op.shown)
        self.no_counts = [0] * (first + len(self.owners) + self.op.n_outputs)
        plain = [leaf.kind == "tensor" and leaf.value is not None for leaf in step.capture.arguments]
        self.is_simple = all(plain) and all(is_read and not leads_on for _, is_read, leads_on in self.given)
        differentiable = (v.type.dtype.is_differentiable for v in step.results.values)
        self.live = [k for k, is_live in enumerate(differentiable) if is_live and k in call.live]
        self.kind: Any = node_type(CallNode, backward_name(self.op.name))
        self.passes = OutsidePasses(self.op, self.leaves, self.owners, len(arguments), jitted)
        self.passes.kept = [place for place, _ in self.kept]

    @staticmethod
    def is_possible(step: CompiledStep) -> bool:
        """Whether nothing of the history depends on the call, but its arguments."""
        call = step.call
        if call is None or call.is_lasting or step.capture.strided:
            return False
        owners = [entry.root_owner() for entry in call.entries]
        if any(t._view is not None or made_in_inference(t) or type(t._array) is not np.ndarray for t in owners):
            return False
        if any(t._requires_grad and t._grad_fn is not None for t in owners):
            return False
        read = [leaf for leaf in step.capture.arguments if leaf.value in call.read]
        return any(t._requires_grad for t in owners) or any(leaf.requires_grad for leaf in read)

    @property
    def is_current(self) -> bool:
        """Whether the tensors outside are what they were: leaves that are no views."""
        return all(t._grad_fn is None for t in self.leaves.values()) and all(t._view is None for t in self.owners)

    def guards(self) -> list[SlotGuard]:
        """The same, for native code to look at."""
        return [
            *(SlotGuard(t, "_grad_fn", None) for t in self.leaves.values()),
            *(SlotGuard(t, "_view", None) for t in self.owners),
        ]

    def results(self, native: Sequence[Tensor], leaves: Sequence[Any]) -> list[Tensor] | None:
        """The results of a call, from the tensors that native code has filled; None where it has to be looked at."""
        if state.__dict__["recording_hooks"] is not None:
            return None
        node: CallNode = _new(self.kind)
        node.given = node._edges = None
        if self.is_simple:
            primals = [*leaves, *self.owners]
        else:
            operands = self._operands(leaves, node)
            if operands is None:
                return None
            primals = operands
        for k, number in self.kept:
            primals[k] = wrap(native[number]._array)
        made: list[Tensor] = []
        metas: list[Meta] = []
        for t in native[: self.count] if self.kept else native:
            array = t._array
            if type(array) is not np.ndarray:
                return None
            made.append(wrap(array))  # rings see by the arrays that these are in use
            metas.append((array.shape, array.dtype))
        metas += self.more
        node.sequence = next_sequence()
        node.op, node.passes = self.op, self.passes
        node.primals, node.results, node.out_metas = primals, metas, metas
        for k in self.live:
            t = made[k]
            t._requires_grad, t._grad_fn, t._output_nr = True, node, k
        versions, changes = self.no_counts.copy(), self.no_counts.copy()
        place = 0
        for t in primals:
            storage = t._storage
            if storage is not None:
                versions[place], changes[place] = storage.version, storage.changes
            place += 1
        if self.shown:
            node.results = [shell_of(made[k]) if k in self.shown else meta for k, meta in enumerate(metas)]
            for k in self.shown:
                storage = storage_of(made[k])
                versions[place + k], changes[place + k] = storage.version, storage.changes
        node.versions, node.changes = versions, changes
        node.source = here_calling(self.name, _DEPTH)
        return made

    def _operands(self, leaves: Sequence[Any], node: CallNode) -> list[Any] | None:
        """The operands of a call; the node is told where arguments lead on."""
        found: list[Any] = []
        edges: dict[int, Edge] = {}
        for k, is_read, leads_on in self.given:
            t = leaves[k]
            if not isinstance(t, Tensor):
                t = wrap(np.asarray(t))
            elif leads_on:
                edge = edge_of(t)
                if edge is None or t._view is not None:
                    return None
                edges[len(found)] = edge
            elif not is_read:
                t = wrap(t._array)  # results do not depend on it: its history may be gone
            found.append(t)
        node.given = edges or None
        return found + self.owners


_new = object.__new__
