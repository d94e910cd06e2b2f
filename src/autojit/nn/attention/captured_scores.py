"""Functions of scores and masks as one graph of one place, which the op `flex_attention` holds."""

from __future__ import annotations

from typing import Any

from autojit.control_flow.body import Body, takes_grad
from autojit.control_flow.captured_call import body_graph
from autojit.core.dtypes import int64
from autojit.core.sizes import is_symbolic
from autojit.core.types import TensorType
from autojit.dispatch.dispatch import apply
from autojit.ir.graph import Graph
from autojit.jit.stepped_bodies import runs_turn_by_turn
from autojit.ops.flex_attention import FlexAttention
from autojit.tensor import Tensor
from autojit.tensor.state import state
from autojit.tensor.tensor import type_of


def attended_by_op(
    query: Tensor, key: Tensor, value: Tensor, modified: Any, scale: float, table: Tensor | None, block: tuple[int, ...]
) -> tuple[Tensor, Tensor] | None:
    """Attended values and the logarithms of sums, of operands in the type of the scores; None: the op does not take it.

    Args:
        modified: takes a score and the numbers of its place, and gives what becomes of it.
        table: which blocks, of the sizes ``block``, are looked at.
    """
    if state.trace is None or state.layers:
        return None  # eager mode has all places at once, and a batch's random numbers are its layer's business
    if any(is_symbolic(n) or not n for x in (query, key, value) for n in type_of(x).shape):
        return None
    found = None if runs_turn_by_turn("flex_attention") else _captured(modified, type_of(query))
    if found is None:
        return None
    graph, read = found
    heads, shared = query.shape[1], key.shape[1]
    batch = (query.shape[0], shared, heads // shared)
    grouped = query.unflatten(1, batch[1:])
    keys, values = (x.unsqueeze(2).expand(*batch, *x.shape[2:]) for x in (key, value))
    op = FlexAttention(float(scale), False, False, 0.0, graph, heads, block if table is not None else ())
    tables = [] if table is None else [table]
    y, lse = apply(op, grouped, keys, values, *tables, *read)
    return y.flatten(1, 2), lse.flatten(1, 2)


def _captured(modified: Any, query: TensorType) -> tuple[Graph, list[Tensor]] | None:
    """The graph, and the tensors that it reads besides."""
    body = Body("flex_attention")
    number = TensorType((), int64, query.device)
    score = body.input(TensorType((), query.dtype, query.device))
    found = body.call(modified, [score, *[body.input(number) for _ in range(4)]])
    if not isinstance(found, Tensor):
        return None
    kind = body.output(found)
    read = body.close()
    learns = any(takes_grad(t) for t in read)  # the derivative by what learns is as large as all scores
    if body.written or learns or kind.shape or kind.dtype is not query.dtype:
        return None
    return body_graph(body), read
