"""The history that a write leaves: of the tensor that was written to, and of the base whose memory it shows.

A write through a view gives the base the history ``view_update(old base, new piece)``; the view's own is made again
from that.
"""

from __future__ import annotations

from typing import NamedTuple

from autojit.core.types import TensorType
from autojit.history.op_node import OpNode
from autojit.history.recording import become_result, edge_of, symbolic_node, take_view_node, wants_grad
from autojit.history.view_history import ViewChain
from autojit.ir.op import Op
from autojit.ops.views import ViewUpdate
from autojit.tensor.node import Edge
from autojit.tensor.tensor import Tensor, relative_chain, type_of


def rebase(x: Tensor, new: Tensor) -> None:
    """Give ``x`` (and its base) the history of ``new``."""
    view = x._view
    base = view.base if view is not None else None
    if base is None:
        take_history(x, new)
        return
    piece = edge_of(new)
    if piece is None and not wants_grad(base):
        return
    become_result(base, _base_change(x, relative_chain(x), piece, type_of(x)))
    wants_grad(x)  # makes the view's own history again


def _base_change(x: Tensor, chain: tuple[Op, ...], piece: Edge | None, shown: TensorType) -> OpNode:
    assert x._view is not None and x._view.base is not None
    base = x._view.base
    return symbolic_node(ViewUpdate(chain), [edge_of(base), piece], [type_of(base), shown])


class Change(NamedTuple):
    """What ``rebase`` is going to do to a view and its base, for those who need the histories before."""

    node: OpNode  # of the base
    view_node: OpNode

    @classmethod
    def of(cls, x: Tensor, new: Tensor, form: tuple[Op, ...] = ()) -> Change:
        """``x``, which also becomes the views ``form`` of itself, is going to have the history of ``new``."""
        assert x._view is not None and x._view.base is not None
        chain = (*relative_chain(x), *form)
        node = _base_change(x, chain, edge_of(new), type_of(new))
        shown = type_of(x._view.base)
        return cls(node, symbolic_node(ViewChain(chain), [(node, 0)], [shown], "AsStridedBackward0"))

    def take(self, x: Tensor) -> None:
        """Now they have them."""
        assert x._view is not None and x._view.base is not None
        become_result(x._view.base, self.node)
        take_view_node(x, self.view_node)


def take_history(x: Tensor, new: Tensor) -> None:
    """Give ``x`` alone the history of ``new``."""
    edge = edge_of(new)
    if edge is None:
        if not x._requires_grad:
            return
        node = symbolic_node(ViewUpdate(()), [edge_of(x), None], [type_of(x), type_of(new)], "FillBackward0")
        edge = (node, 0)
    if edge[0] is not x._grad_fn:
        become_result(x, *edge)
