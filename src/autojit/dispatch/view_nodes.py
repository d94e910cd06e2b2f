"""One node of the history per view function, as users see it: ``x[0]`` is a SelectBackward0 whatever ops made it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autojit.core.layout import strided
from autojit.dispatch.dispatch import apply_single, value_of
from autojit.dispatch.view_memo import keep_several, recall_several, remembered
from autojit.history.op_node import OpNode, rename_node
from autojit.history.recording import edge_of, require_unchanged, shows_grad, symbolic_node
from autojit.history.view_history import Parts, Restrided, ViewChain
from autojit.ir.op import Op
from autojit.ops.shape import reshape
from autojit.tensor.state import state
from autojit.tensor.storage import INFERENCE, INFERENCE_VIEW, MULTIPLE_VIEWS, SameMemory
from autojit.tensor.tensor import Tensor, made_in_inference, relative_chain, storage_of, type_of


def one_node(found: Tensor, input: Tensor, name: str) -> Tensor:
    """Let ``found``, a view of ``input`` made by one or several ops, have one node called ``name``."""
    view = found._view
    if found is input or view is None or view.base is None or found._grad_fn is None or not state.grad_enabled:
        return found
    # in the body of a loop ``found`` may show what stands there for ``input``, whose own base is outside
    shares_base = input._view is not None and input._view.base is view.base
    chain = view.chain[len(input._view.chain) :] if input._view is not None and shares_base else view.chain
    edge = edge_of(input)
    if edge is not None and chain:
        op: Op = chain[0] if len(chain) == 1 else ViewChain(chain)
        found._grad_fn = symbolic_node(op, [edge], [type_of(input)], name, instead_of=found._grad_fn)
        found._output_nr = 0
        return found
    return rename_node(found, name)


def no_view(t: Tensor, input: Tensor) -> Tensor:
    """A result which is computed as a view of a tensor that nobody else sees (``keepdim``): no view to users."""
    view = t._view
    if t is input or view is None or view.base is None or t._storage is input._storage or state.layers:
        return t
    if t._array is None:
        t._value = value_of(t)
    counter = t._storage
    t._storage, t._view = None, INFERENCE_VIEW if made_in_inference(t) else None
    if _is_kept(view.base):  # by its node, for which a write to this tensor changes it
        t._storage = SameMemory(storage_of(t), counter)
    return t


def _is_kept(result: Tensor) -> bool:
    """Whether the node that made a tensor keeps it for its rule."""
    node = result._grad_fn
    return isinstance(node, OpNode) and any([isinstance(kept, Tensor) for kept in node.results])  # noqa: C419


def reduced(op: Any, x: Tensor, keepdim: bool) -> Tensor:
    """A reduction of a tensor; ``keepdim`` leaves the axes with extent 1: how that is done is found out once."""
    found = apply_single(op, x)
    return no_view(_with_axes(found, op.axes), x) if keepdim and op.axes else found


@remembered
def _with_axes(input: Tensor, axes: tuple[int, ...]) -> Tensor:
    shape = [*type_of(input).shape]
    for axis in axes:
        shape.insert(axis, 1)
    return reshape(input, shape)


def _apart(pieces: tuple[Tensor, ...], input: Tensor) -> tuple[Tensor, ...]:
    """The pieces, none of which is the input itself."""
    if any(piece is input for piece in pieces):  # the only one, or all others are empty
        return tuple([input.view(type_of(input).shape) if piece is input else piece for piece in pieces])
    return pieces


def several_views(
    input: Tensor, make: Callable[[], tuple[Tensor, ...]], part: tuple[int, bool], name: str, what: object
) -> tuple[Tensor, ...]:
    """The views that ``make`` gives, as outputs of one node; ``part`` is (axis, whether it is dropped).

    ``what`` tells with ``name`` and the axis which pieces these are. Where it is ints and names, the pieces are found
    out once for all tensors of a kind.
    """
    given = tuple(what) if isinstance(what, list | tuple) else (what,)
    if not _CONSTANTS.issuperset(map(type, given)):  # not a truth value, which is equal to an int
        if input.layout is not strided:  # no views: pieces of a sparse tensor have histories of their own
            return make()
        return _several_views(input, make, part, name)
    key, known = recall_several((name, part[0], given), input)
    if known is None:
        if input.layout is not strided:
            return make()
        known = _several_views(input, make, part, name)
        keep_several(key, input, known)
    return known


_CONSTANTS = frozenset((int, str))


def _several_views(
    input: Tensor, make: Callable[[], tuple[Tensor, ...]], part: tuple[int, bool], name: str
) -> tuple[Tensor, ...]:
    recorded = state.grad_enabled and not made_in_inference(input)
    edge = None
    if recorded:
        require_unchanged(input)
        edge = edge_of(input)
    if recorded and not state.layers:
        state.grad_enabled = False
        try:
            pieces = _apart(make(), input)
        finally:
            state.grad_enabled = True
    else:
        pieces = _apart(make(), input)
    if not recorded:
        return pieces
    axis, drop = part
    node = None
    if pieces and (edge is not None or shows_grad(input)):
        sizes = (1,) * len(pieces) if drop else tuple(type_of(p).shape[axis] for p in pieces)
        node = symbolic_node(Parts(axis, sizes, drop), [edge], [type_of(input)], name)
    for number, piece in enumerate(pieces):
        if piece._view is not None and piece._view.creation != INFERENCE:
            piece._view.creation = MULTIPLE_VIEWS
        if node is not None:
            piece._requires_grad, piece._grad_fn, piece._output_nr = True, node, number
    return pieces


def restrided_node(found: Tensor, input: Tensor, chain: tuple[Op, ...]) -> Tensor:
    """Let ``found``, which shows memory of the base of the view ``input`` by ``chain``, be recorded as made from
    ``input``: elements that ``input`` does not show have no gradient.
    """
    view = input._view
    if view is None or view.base is None or not state.grad_enabled:
        return found
    require_unchanged(input)
    edge = edge_of(input)
    if edge is None:
        found._requires_grad, found._grad_fn = False, None
        return found
    shown = relative_chain(input)
    if all(op.name != "broadcast_to" for op in shown):  # an element shown twice would be counted twice
        op = Restrided(shown, chain, type_of(view.base))
        node = symbolic_node(op, [edge], [type_of(input)], "AsStridedBackward0")
        found._requires_grad, found._grad_fn, found._output_nr = True, node, 0
    return found
