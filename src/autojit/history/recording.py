"""Recording: from an op applied to tensors that require gradients to a node of the history.

Only the operands and results that the op's rule reads are kept (``residual_plans.py``), of the others only shape and
dtype. The rules run later, eagerly or traced, when the engine reaches the node (``op_node.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from autojit.core.source import SourceLocation, here, place_in_history
from autojit.core.types import TensorType
from autojit.history.op_node import OpNode
from autojit.history.residual_plans import UNKNOWN, new_plan, plans_of, residual_plan, rules_of
from autojit.history.saved import Packed, accumulator_of, is_number
from autojit.history.view_history import ViewChain
from autojit.history.view_rules import forbidden_view, inference_saved
from autojit.ir.op import Op
from autojit.tensor.node import Edge, Meta, Node, backward_name, move_retained, next_sequence, node_type
from autojit.tensor.state import state
from autojit.tensor.storage import INFERENCE_VIEW, Storage, View
from autojit.tensor.tensor import Tensor, relative_chain, storage_of, type_of, wrap

new_node: Any = object.__new__  # a node whose fields are set one by one: calling its class takes as long as all of them
_UNCHANGED = tuple([(0,) * (count + 1) for count in range(16)])
"""Versions of operands that have no storage, by how many there are, and of the result."""


def wants_grad(t: Tensor) -> bool:
    """Whether gradients flow into ``t``, also through writes to the base it looks at."""
    view = t._view
    if view is not None and view.base is not None and view.base._grad_fn is not view.base_fn:
        refresh_view(t)
    return t._requires_grad


def shows_grad(t: Tensor) -> bool:
    """What ``t.requires_grad`` says: also True for a view that was not recorded but whose base requires gradients."""
    base = t._view.base if t._view is not None else None
    if base is not None and base._requires_grad and type_of(t).dtype.is_differentiable:
        return True  # before its history is brought up to date: the question is allowed where the history is not
    return wants_grad(t)


def wants_any(operands: Sequence[Tensor]) -> bool:
    """Whether any operand says that it requires gradients; every view among them is brought up to date."""
    found = False
    for t in operands:
        view = t._view
        if view is None:
            found = t._requires_grad or found
            continue
        base = view.base
        if not view.creation and (base is None or base._grad_fn is view.base_fn):  # most often: what is below, at once
            if t._requires_grad:
                found = True
                continue
            if base is None or not base._requires_grad:
                continue
        found = wants_grad(t) or shows_grad(t) or found
        if view.creation:
            require_unchanged(t)
    return found


def require_unchanged(t: Tensor) -> None:
    """Raise torch's error when a view whose writes are not recorded shows memory that has changed since it was made."""
    view, storage = t._view, t._storage
    if view is None or view.base is None or storage is None or view.version == storage.version:
        return
    if view.creation and view.base._requires_grad:
        raise forbidden_view(t, "", indirectly=True)


def lacks_history(t: Tensor) -> bool:
    """Whether ``t`` is a view whose base requires gradients and that has no history of its own to say so: none was
    recorded when it was made, or memory that it shows, or its base's history, has changed since.
    """
    view, storage = t._view, t._storage
    base = None if view is None else view.base
    if base is None or storage is None or not base._requires_grad:
        return False
    assert view is not None
    if view.creation and (view.base_fn is not base._grad_fn or view.version != storage.version):
        return True
    return not wants_grad(t) and type_of(t).dtype.is_differentiable


def has_history_of_today(t: Tensor, view: View) -> bool:
    """Whether a view requires gradients, may be recorded, and has a history that is as its base's is now."""
    base = view.base
    return t._requires_grad and not view.creation and base is not None and base._grad_fn is view.base_fn


def edge_of(t: Tensor) -> Edge | None:
    """Where the gradient of ``t`` goes: its node, or its accumulator; None when it needs none."""
    if not wants_grad(t):
        return None
    node = t._grad_fn
    if node is None:
        node = accumulator_of(t)
    return node, t._output_nr


def record(op: Op, operands: Sequence[Tensor], results: Sequence[Tensor], line: SourceLocation | None = None) -> None:
    """Make the results' node if the op can be differentiated with respect to an operand that requires gradients.

    ``line`` is the user's, where it is known already.
    """
    mask = 0
    edges: list[Edge | None] = []
    for place, t in enumerate(operands):
        if t._requires_grad:
            fn = t._grad_fn
            edges.append((accumulator_of(t) if fn is None else fn, t._output_nr))
            mask |= 1 << place
        else:
            edges.append(None)
    plan = residual_plan(op, operands, mask)
    if plan is None:
        return
    node: OpNode = new_node(plan.node)
    node.sequence = next_sequence()
    node.op = op
    node.rules = plan.rules
    node.mask = mask
    node.edges = edges
    node.place = line or (place_in_history(3) if state.trace is None else here(True, is_inside=True))
    hooks = state.__dict__["recording_hooks"]
    versions: list[int] = []
    primals: list[Any] = []
    for t, keep in zip(operands, plan.primals):
        if keep:
            storage = t._storage
            made_in_inference = (t._view is INFERENCE_VIEW) if storage is None else storage.inference
            if made_in_inference and not (state.transforming or op.is_call):
                raise inference_saved(t, op.name)
            primals.append(t if hooks is None or is_number(t) else Packed(t, hooks[-1], False))
            versions.append(0 if storage is None else storage.version)
        else:
            primals.append(t._type or meta_of(t))
            versions.append(0)
    kept: list[Any] = []
    metas: list[Meta] = []
    for number, t in enumerate(results):
        meta = t._type or meta_of(t)
        metas.append(meta)
        if len(results) == 1 or type_of(t).dtype.is_differentiable:
            t._requires_grad = True
            t._grad_fn = node
            t._output_nr = number
        if plan.results[number]:
            kept.append(shell_of(t) if hooks is None else Packed(t, hooks[-1], True))
            versions.append(storage_of(t).version)
        else:
            kept.append(meta)
            versions.append(0)
    node.primals = primals
    node.results = kept
    node.versions = versions
    node.out_metas = metas


def record_pair(op: Op, x: Tensor, y: Tensor, result: Tensor) -> None:
    """``record`` for two concrete operands and one result, written out: this is what small eager ops pay."""
    x_fn, y_fn = x._grad_fn, y._grad_fn
    x_edge = y_edge = None
    mask = 0
    if x._requires_grad:
        x_edge = (accumulator_of(x) if x_fn is None else x_fn, x._output_nr)
        mask = 1
    if y._requires_grad:
        y_edge = (accumulator_of(y) if y_fn is None else y_fn, y._output_nr)
        mask += 2
    a, b = x._array, y._array
    plans = op.__dict__.get("_plans")
    if plans is None:
        plans = plans_of(op)
    key = (mask, a.shape, a.dtype, b.shape, b.dtype)
    plan = plans.get(key, UNKNOWN)
    if plan is UNKNOWN:
        plan = new_plan(op, (x, y), mask, plans, key)
    if plan is None:
        return
    (keep_x, keep_y), (keep_result,), make, rules, metas, made = plan
    x_storage, y_storage = x._storage, y._storage
    node = new_node(make)
    node.op = op
    node.mask = mask
    node.rules = rules
    node.edges = (x_edge, y_edge)
    if keep_x or keep_y:
        node.primals = [x if keep_x else metas[0], y if keep_y else metas[1]]
    else:
        node.primals = metas
    if x_storage is y_storage is None:
        node.versions = _UNCHANGED[2]
    else:
        node.versions = (
            0 if x_storage is None else x_storage.version, 0 if y_storage is None else y_storage.version, 0
        )  # fmt: skip
    _connect(node, result, keep_result, made)


def record_several(op: Op, operands: Sequence[Tensor], result: Tensor) -> None:
    """``record`` for concrete operands, none made in inference mode, and one result."""
    mask, bit, is_unchanged = 0, 1, True
    edges: list[Edge | None] = []
    kinds: list[Any] = []
    for t in operands:
        array = t._array
        kinds += array.shape, array.dtype
        if t._requires_grad:
            fn = t._grad_fn
            edges.append((accumulator_of(t) if fn is None else fn, t._output_nr))
            mask += bit
        else:
            edges.append(None)
        bit += bit
        if t._storage is not None:
            is_unchanged = False
    plans = op.__dict__.get("_plans")
    if plans is None:
        plans = plans_of(op)
    key = (mask, *kinds)
    plan = plans.get(key, UNKNOWN)
    if plan is UNKNOWN:
        plan = new_plan(op, operands, mask, plans, key)
    if plan is None:
        return
    keeps, (keep_result,), make, rules, metas, made = plan
    node = new_node(make)
    node.op = op
    node.rules = rules
    node.mask = mask
    node.edges = edges
    node.primals = [t if keep else meta for t, keep, meta in zip(operands, keeps, metas)] if True in keeps else metas
    if is_unchanged and bit < 1 << len(_UNCHANGED):
        node.versions = _UNCHANGED[len(edges)]
    else:
        node.versions = [0 if t._storage is None else t._storage.version for t in operands]
        node.versions.append(0)
    _connect(node, result, keep_result, made)


def record_single(op: Op, x: Tensor, result: Tensor) -> None:
    """``record`` for one concrete operand that requires gradients and one result."""
    fn, a, storage = x._grad_fn, x._array, x._storage
    plans = op.__dict__.get("_plans")
    if plans is None:
        plans = plans_of(op)
    key = (1, a.shape, a.dtype)
    plan = plans.get(key, UNKNOWN)
    if plan is UNKNOWN:
        plan = new_plan(op, (x,), 1, plans, key)
    if plan is None:
        return
    (keep,), (keep_result,), make, rules, metas, made = plan
    node = new_node(make)
    node.op = op
    node.rules = rules
    node.mask = 1
    node.edges = ((accumulator_of(x) if fn is None else fn, x._output_nr),)
    node.primals = [x] if keep else metas
    node.versions = _UNCHANGED[1] if storage is None else (storage.version, 0)
    _connect(node, result, keep_result, made)


def _connect(node: OpNode, result: Tensor, keep_result: bool, made: list[Any]) -> None:
    """Let a fresh result follow its node; ``made`` holds what nodes of a plan have said of theirs, which they share."""
    out = result._array
    known = made[0]
    if out.shape != known[0]:  # the first, or of an op whose results are as long as elements say
        meta = (out.shape, out.dtype)
        known = made[0] = (out.shape, (meta,), [meta])
    node.sequence = next_sequence()
    node.place = place_in_history(4)
    node.out_metas = known[1]
    if keep_result:
        shell = wrap(out)
        storage = result._storage
        if storage is None:
            storage = result._storage = Storage(out, None)  # nobody else knows the result yet
        shell._storage = storage
        node.results = [shell]
    else:
        node.results = known[2]
    result._requires_grad = True
    result._grad_fn = node


def shell_of(t: Tensor) -> Tensor:
    """A fresh result without its history, sharing its storage: what a node may keep of its own results."""
    made = wrap(t._array)
    made._value, made._type, made._storage = t._value, t._type, storage_of(t)
    return made


def meta_of(t: Tensor) -> Meta:
    """The tensor's type, as cheaply as possible."""
    found = t._type
    if found is not None:
        return found
    array = t._array
    return (array.shape, array.dtype) if type(array) is np.ndarray else type_of(t)


def symbolic_node(
    op: Op,
    edges: list[Edge | None],
    metas: Sequence[TensorType],
    label: str | None = None,
    instead_of: Node | None = None,
) -> OpNode:
    """A node for an op that was not computed and whose rule reads types only (views, view_update).

    It takes the number of the node that it is made ``instead_of``.
    """
    node = node_type(OpNode, label or backward_name(op.name))(None if instead_of is None else instead_of.sequence)
    node.op = op
    node.mask = sum(1 << i for i, e in enumerate(edges) if e is not None)
    node.edges = edges
    node.place = place_in_history(2) if state.trace is None else here(True, is_inside=True)
    result = op.result_type(*metas)
    results = [result] if op.n_outputs == 1 else list(result)
    node.primals = list(metas)
    node.results = list(results)
    node.rules = rules_of(op, metas)
    node.versions = [0] * (len(metas) + len(results))
    node.out_metas = results
    if instead_of is None and state.observer is not None:
        state.observer.made(node)
    return node


def refresh_view(t: Tensor) -> None:
    """Make the history of a view again after its base's history changed."""
    view = t._view
    assert view is not None and view.base is not None
    base = view.base
    if state.trace is not None:
        state.trace.note_refreshed(base)
    edge = edge_of(base)
    if edge is None:  # the base was cut off its history: what was written before counts, and leads nowhere
        view.base_fn = base._grad_fn
        if t._requires_grad and not view.creation and view.version != storage_of(t).version:
            take_view_node(t, view_node(t, base, None))
        return
    if view.creation:
        raise forbidden_view(t, "", indirectly=True)
    take_view_node(t, view_node(t, base, edge))


def view_node(t: Tensor, base: Tensor, edge: Edge | None) -> OpNode:
    """The history of a view whose base has the history ``edge``, or none."""
    chain = relative_chain(t)
    name = backward_name(chain[-1].name) if state.view_replay and chain else "AsStridedBackward0"
    return symbolic_node(ViewChain(chain), [edge], [type_of(base)], name)


def take_view_node(t: Tensor, node: OpNode) -> None:
    """Give a view the history that goes with its base's present one."""
    assert t._view is not None and t._view.base is not None
    t._view.base_fn = t._view.base._grad_fn
    if not t._view.creation:
        t._view.version = storage_of(t).version
    become_result(t, node)


def become_result(t: Tensor, node: Node, number: int = 0) -> None:
    """From now on ``t`` is a result of ``node``."""
    move_retained(t, node)
    t._requires_grad, t._grad_fn, t._output_nr, t._accumulator = True, node, number, None
