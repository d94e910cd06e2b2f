"""Reverse mode for functions that may run inside batches and forward-mode levels.

How to read: layers are in the order levels, then batches (``forward_level.new_level`` keeps it so), and history is
always that of the tensors below all batches. ``autograd.grad`` goes there by itself; ``fresh`` and ``own`` go below one
batch at a time and do their work at the bottom.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autojit.autograd.derivatives import grad
from autojit.autograd.forward_level import levels
from autojit.dispatch.batch_layer import BatchLayer
from autojit.functions.factories import zeros_like
from autojit.history.recording import edge_of
from autojit.tensor import Tensor
from autojit.tensor.node import AccumulateGrad, Node
from autojit.tensor.state import below, grad_mode, state
from autojit.tensor.tensor import alias, made_in_inference

Tensors = Sequence[Tensor]


def _batch() -> BatchLayer | None:
    """The innermost batch, if there is one."""
    layers = state.layers
    layer = layers[-1] if layers else None
    return layer if isinstance(layer, BatchLayer) else None


def fresh(x: Any, is_recording: bool) -> Tensor:
    """A tensor to differentiate by: its history begins here, or goes on to that of a caller who is recording.

    Inside a batch every element has its own, also of an input that all elements share. The history of a caller who is
    not recording is not asked for: a view of theirs that shows changed memory may have none to give.

    Raises:
        RuntimeError: ``x`` is not a Tensor.
    """
    if not isinstance(x, Tensor):
        raise RuntimeError(f"expected tensors to differentiate by, got {type(x).__name__}")
    batch = _batch()
    if batch is not None:
        with below(batch):
            with grad_mode(is_recording):
                full = batch.repeated(x)
            full = fresh(full, is_recording)
        return batch.element(full, batch.is_alike(x))
    if made_in_inference(x):
        return x.clone().requires_grad_()
    if is_recording and x.requires_grad:
        return x.view_as(x)
    made: Tensor = x.detach()
    for level in levels():  # tangents are not history: they stay
        with below(level):
            x_dot = level.tangent(x)
            if x_dot is not None:
                level.set(made, x_dot)
    made.requires_grad_()
    return made


def pull_back(outputs: Tensors, inputs: Tensors, bars: Tensors) -> list[Tensor]:
    """The vector-Jacobian product, with a history; zeros where nothing connects."""
    live = [(y, bar) for y, bar in zip(outputs, bars, strict=True) if y.requires_grad]
    if not live:
        return [zeros_like(x) for x in inputs]
    found = grad([y for y, _ in live], list(inputs), [b for _, b in live], create_graph=True, allow_unused=True)
    return [zeros_like(x) if g is None else g for g, x in zip(found, inputs, strict=True)]


def own(t: Tensor, inputs: Tensors, is_recording: bool) -> Tensor:
    """A result without history if all of it ends in fresh inputs, these or those of transforms inside that have
    returned: then nobody outside can ask for it.

    Nor can a caller who is not recording.
    """
    batch = _batch()
    if batch is not None:
        with below(batch):
            fulls = [x if batch.full(x) is None else batch.repeated(x) for x in inputs]
            full = batch.full(t)
            found = own(t if full is None else full, fulls, is_recording)
        return found if full is None else batch.element(found, batch.is_alike(t))
    edges = [edge_of(x) for x in inputs]
    mine: set[Node] = set()
    for edge in edges:
        if edge is not None and isinstance(edge[0], AccumulateGrad):
            edge[0].is_private = True
            mine.add(edge[0])
    return _pruned(t, mine, is_recording)


def _pruned(t: Tensor, mine: set[Node], is_recording: bool) -> Tensor:
    """``t`` without a history that ends in ``mine`` only; its tangents likewise."""
    ends_here = _ends_in(t, mine) or not (is_recording or edge_of(t) is None)
    entered = levels()
    if not entered:
        return alias(t) if ends_here else t
    made: Tensor = alias(t) if ends_here else t.view_as(t)
    for level in entered:
        with below(level):
            x_dot = level.tangent(t)
            if x_dot is not None:
                level.set(made, _pruned(x_dot, mine, is_recording))
    return made


def _ends_in(t: Tensor, mine: set[Node]) -> bool:
    """Whether ``t`` has a history, and all of it ends in these leaves or in such as are private."""
    edge = edge_of(t)
    if edge is None:
        return False
    seen: set[Node] = set()
    stack = [edge[0]]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if node not in mine and not node.edges and not (isinstance(node, AccumulateGrad) and node.is_private):
            return False  # an argument's history goes on there
        stack.extend(e[0] for e in node.edges if e is not None)
    return True
