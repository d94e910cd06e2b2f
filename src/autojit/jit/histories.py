"""The history of a traced tensor: the nodes it leads to, whether it can still be differentiated, and its derivative."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any

from autojit.autograd.engine import Walk
from autojit.autograd.function_context import BackwardCFunction
from autojit.core.types import TensorType
from autojit.history.op_node import OpNode
from autojit.history.recording import edge_of, wants_grad
from autojit.jit.spent_results import InnerNode, SpentNode
from autojit.tensor.node import FREED, Edge, Node
from autojit.tensor.tensor import Tensor, wrap_value
from autojit.tensor.trace import Trace


def has_history(t: Tensor) -> bool:
    """Whether a traced tensor can still be differentiated: it requires gradients and ``backward`` has not freed it."""
    if not wants_grad(t) or t._grad_fn is None:
        return bool(t._requires_grad)
    return freed_node(t) is None


def freed_node(t: Tensor) -> Node | None:
    """A node of a tensor's history that has forgotten what its derivative needs, or None."""
    for node in history_of([t]):
        is_spent = isinstance(node, SpentNode) and not isinstance(node, InnerNode)
        if is_spent or any(kept is FREED for kept in _kept_by(node)):
            return node
    return None


def _kept_by(node: Node) -> Sequence[Any]:
    if isinstance(node, OpNode):
        return (*node.primals, *node.results)
    return node._saved if isinstance(node, BackwardCFunction) else ()


def history_of(tensors: Iterable[Tensor]) -> set[Node]:
    """The nodes that gradients of tensors flow through, those that gather the gradients of leaves included."""
    return set(nodes_from([t._grad_fn for t in tensors if t._grad_fn is not None]))


def nodes_from(starts: Iterable[Node], ends: Container[Node] = ()) -> Iterator[Node]:
    """The nodes from some on as far as ``ends``, which are left out; each before its edges are followed."""
    stack = list(starts)
    seen = set(stack)
    while stack:
        node = stack.pop()
        if node in ends:
            continue
        yield node
        for edge in node.edges:
            if edge is not None and edge[0] not in seen:
                seen.add(edge[0])
                stack.append(edge[0])


def new_cotangent(trace: Trace, kind: TensorType) -> Tensor:
    """A new input of a trace, by which what is computed from it can be differentiated."""
    made = wrap_value(trace.builder.input(kind))
    made._requires_grad = True
    return made


def pulled_back(
    outputs: Sequence[Tensor], bars: Sequence[Tensor], leaves: Sequence[Tensor], is_masked: bool | Sequence[bool] = True
) -> list[tuple[Edge, Any]]:
    """What the histories of outputs do with their cotangents, recorded with a history of its own.

    Per leaf where its gradient goes, and the gradient; None if the histories do not lead there.
    """
    roots: list[Any] = [(edge_of(t), bar) for t, bar in zip(outputs, bars, strict=True)]
    targets: list[Any] = [edge_of(leaf) for leaf in leaves]
    found = Walk(True, targets, False, closed=True, is_masked=is_masked).start(roots, True)
    return [(edge, found.get(edge)) for edge in targets]
