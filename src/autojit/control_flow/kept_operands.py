"""Which operands of a loop or branch a change spoils: those whose memory the history of its body keeps.

The op of a captured loop reads all its operands again in its derivative, as they were: they are values of the capture,
which nobody can change. Eager mode keeps tensors instead, step by step, and raises when one of these was changed in
place before the backward pass. So the op gets operands that no version counts, and its node watches those tensors.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from typing import Any

from autojit.control_flow.body import Body
from autojit.dispatch.composite_nodes import Entered, Left
from autojit.dispatch.dispatch import apply, value_of
from autojit.history.op_node import OpNode, Rule
from autojit.history.recording import edge_of
from autojit.history.residual_plans import plan_of_types
from autojit.history.saved import Packed, changed_error
from autojit.ir.op import Op
from autojit.jit.histories import history_of, nodes_from
from autojit.ops.graph_op import as_tuple
from autojit.tensor.node import AccumulateGrad, Edge, Node, node_type, type_of_meta
from autojit.tensor.state import state
from autojit.tensor.tensor import Tensor, made_in_inference, type_of, wrap_value
from autojit.transforms.adjoint import accumulate


def apply_body(op: Op, operands: Sequence[Tensor], kept: Sequence[int]) -> tuple[Any, ...]:
    """The results of an op that holds graphs; a change of the operands numbered ``kept`` spoils its history."""
    if state.trace is None or state.layers or not state.grad_enabled:
        return as_tuple(apply(op, *operands), op.n_outputs)
    versions = [0 if t._storage is None else t._storage.version for t in operands]
    edges = [None if made_in_inference(t) else edge_of(t) for t in operands]  # leaves hold their accumulators weakly
    given = [_uncounted(t, edge) for t, edge in zip(operands, edges, strict=True)]
    results = as_tuple(apply(op, *given), op.n_outputs)
    node = next((t._grad_fn for t in results if t._requires_grad), None)
    if isinstance(node, OpNode):
        node.__class__ = node_type(WatchfulNode, type(node).__name__)
        node.watched = [(operands[k], versions[k]) for k in kept]  # type: ignore[attr-defined]
    return results


class WatchfulNode(OpNode):
    """The node of a loop or branch, which watches tensors that the nodes of eager mode would keep."""

    __slots__ = ()
    watched: Sequence[tuple[Tensor, int]]  # with its version then

    def run(self, grads: list[Any], wanted: tuple[bool, ...], accumulate: Rule = accumulate) -> Sequence[Any]:
        for t, version in self.watched:
            if t._storage is not None and t._storage.version != version:
                raise changed_error(self, t, version, -1)
        return super().run(grads, wanted, accumulate)

    def release(self) -> None:
        super().release()
        self.watched = ()


def _uncounted(t: Tensor, edge: Edge | None) -> Tensor:
    """A tensor with the present value and the history of ``t``."""
    if made_in_inference(t):
        return t
    made = wrap_value(value_of(t))
    if edge is not None:
        node, made._output_nr = edge
        made._requires_grad = True
        if isinstance(node, AccumulateGrad):
            made._accumulator = weakref.ref(node)
        else:
            made._grad_fn = node
    return made


def kept_inputs(body: Body, wants: Sequence[bool]) -> list[int]:
    """The inputs of a closed body whose memory its history keeps, where only those in ``wants`` require gradients."""
    places = {value: k for k, (value, _) in enumerate(body.inputs)}
    ends = {edge_of(leaf) for (_, leaf), want in zip(body.inputs, wants, strict=True) if want and leaf is not None}
    found: set[int] = set()
    leading: set[Node] = set()  # nodes that eager mode makes
    history = history_of([t for _, t in body.outputs if t is not None])
    composites = [edge[0] for node in history if isinstance(node, Left) for edge in node.edges if edge is not None]
    entered = {node for node in history if isinstance(node, Entered)}
    inside = set(nodes_from(composites, entered))  # they keep tensors: what changes spoil them is known to their `Left`
    for node in sorted(history, key=lambda node: node.sequence):
        mask = sum(1 << k for k, e in enumerate(node.edges) if e is not None and (e in ends or e[0] in leading))
        if not mask or isinstance(node, AccumulateGrad):
            continue
        leading.add(node)
        if not isinstance(node, OpNode | Left | Entered):
            return list(range(len(body.inputs)))  # a user's function, say: nobody knows what it keeps
        if node in inside:
            continue
        for t in _kept_by(node, mask):
            storage = t._storage
            value = t._value if storage is None else storage.value
            if storage is not None and storage.array is not None:
                entry = body.trace.state.get(id(storage.array))
                value = None if entry is None else entry.input
            if value in places:
                found.add(places[value])
    return sorted(found)


def _kept_by(node: Node, mask: int) -> Iterator[Tensor]:
    """What the node keeps of tensors where only the operands in ``mask`` require gradients."""
    if isinstance(node, Left):
        yield from (t for t, *_ in node.kept)
    if isinstance(node, WatchfulNode):
        yield from (t for t, _ in node.watched)  # its operands stand for these
    elif isinstance(node, OpNode):
        plan = None
        is_packed = any(isinstance(entry, Packed) for entry in node.primals)  # hooks have it, whatever its type
        if mask != node.mask and not is_packed:
            types = [type_of(entry) if isinstance(entry, Tensor) else type_of_meta(entry) for entry in node.primals]
            plan = plan_of_types(node.op, types, mask)
        for number, t in enumerate((*node.primals, *node.results)):
            if isinstance(t, Tensor) and (plan is None or (*plan.primals, *plan.results)[number]):
                yield t
