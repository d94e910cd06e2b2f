"""Residual plans: which operands and results the VJP rule of an op reads, and so which a node keeps.

Found once per op and kind of operands by a dry run of the rule with tracers.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import copysign
from typing import Any, NamedTuple

from autojit.core.sizes import is_symbolic
from autojit.core.structure import structure
from autojit.core.types import TensorType
from autojit.history.op_node import NotImplementedNode, OpNode
from autojit.ir.builder import GraphBuilder, Tracer
from autojit.ir.op import Op
from autojit.ir.result_types import is_plain, placed_types
from autojit.tensor.node import Meta, backward_name, node_type
from autojit.tensor.state import state
from autojit.tensor.tensor import Tensor, type_of
from autojit.transforms.adjoint import accumulate

_PLANS: dict[Any, dict[Any, ResidualPlan | None]] = {}  # by an op's class and parameters
_PLAN_LIMIT = 4096
UNKNOWN: Any = object()  # a plan that is not made yet


class ResidualPlan(NamedTuple):
    """Which operands and results the VJP rule reads, per position, and the class of the node that runs it."""

    primals: tuple[bool, ...]
    results: tuple[bool, ...]
    node: type[OpNode]
    rules: dict[Any, Any] | None = None  # what the engine finds out about the rule for operands of just these types
    # what nodes of operands of just these types have alike, which nobody writes to: what stands for operands that are
    # not kept, and in a list of one item the shape of the last node's result and what stands for that
    metas: list[Meta] | None = None
    made: list[Any] | None = None


def residual_plan(op: Op, operands: Sequence[Tensor], mask: int) -> ResidualPlan | None:
    """What the rule of ``op`` reads for the operands in ``mask``; None when nothing can be differentiated.

    Kept per op, mask, dtype and shapes. A rule may choose what it reads by which extents are 0, 1 or more, not by their
    exact sizes, so a dry run is needed only once per such pattern.
    """
    first = operands[0]._array
    if first is not None and state.trace is None:  # in a capture some operands may hold no array
        key: Any = (mask, first.dtype, *[t._array.shape for t in operands])
    else:
        key = (mask, *[type_of(t) for t in operands])
    plans = op.__dict__.get("_plans")
    if plans is None:
        plans = plans_of(op)
    try:
        return plans[key]
    except KeyError:  # another thread may empty them at any time
        return new_plan(op, operands, mask, plans, key)


def plans_of(op: Op) -> dict[Any, ResidualPlan | None]:
    """The plans of an op by what it was applied to, kept on the op itself.

    Equal ops share them, unless their parameters hold what users made (graphs of captures with their tensors,
    functions): nobody here keeps such an op alive.
    """
    parameters = [getattr(op, name) for name in op.__match_args__]
    plans = None
    if float not in map(type, parameters) or not _has_negative_zero(parameters):
        key = (type(op), structure(tuple(parameters)))  # ops with plain parameters are equal where these are
        try:
            plans = _PLANS.get(key)
            if plans is None and is_plain(op):
                if len(_PLANS) >= _PLAN_LIMIT:
                    _PLANS.clear()
                plans = _PLANS[key] = {}
        except TypeError:  # a parameter has no hash
            plans = None
    if plans is None:
        plans = {}
    object.__setattr__(op, "_plans", plans)
    return plans


def rules_of(op: Op, types: Sequence[TensorType]) -> dict[Any, Any]:
    """What is known of the rule of an op that is recorded without a plan."""
    plans: Any = op.__dict__.get("_plans")
    if plans is None:
        plans = plans_of(op)
    key = ("rules", *types)
    found: dict[Any, Any] | None = plans.get(key)
    if found is None:
        if len(plans) >= _PLAN_LIMIT:
            plans.clear()
        found = plans[key] = {}
    return found


def _has_negative_zero(parameters: Sequence[object]) -> bool:
    """Whether a parameter is -0.0: the op counts as equal to one with 0.0, and computes something else."""
    return any(type(x) is float and not x and copysign(1.0, x) < 0 for x in parameters)


def new_plan(
    op: Op, operands: Sequence[Tensor], mask: int, plans: dict[Any, ResidualPlan | None], key: Any
) -> ResidualPlan | None:
    """The plan under a key that ``plans`` does not have yet."""
    types = [type_of(t) for t in operands]
    extents = [tuple([2 if is_symbolic(n) else min(n, 2) for n in t.shape]) for t in types]
    pattern = (mask, types[0].dtype, "pattern", *extents)
    if len(plans) >= _PLAN_LIMIT:
        plans.clear()
    try:
        plan = plans[pattern]
    except KeyError:
        plan = plans[pattern] = plan_of_types(op, types, mask)
    if plan is not None:
        rules: dict[Any, Any] | None = {} if plan.node is not NotImplementedNode and not op.is_call else None
        metas: list[Meta] = [
            kind if t._array is None else (t._array.shape, t._array.dtype) for t, kind in zip(operands, types)
        ]
        plan = plan._replace(rules=rules, metas=metas, made=[(None, (), [])])
    plans[key] = plan
    return plan


def plan_of_types(op: Op, types: Sequence[TensorType], mask: int) -> ResidualPlan | None:
    """The plan for operands of these types, by a dry run of the rule."""
    if not op.is_differentiable:
        rule: Any = type(op).vjp
        is_missing = rule.is_missing
        return ResidualPlan((False,) * len(types), (False,) * op.n_outputs, NotImplementedNode) if is_missing else None
    builder = GraphBuilder()
    found = placed_types(op, *types)
    result_types = (found,) if op.n_outputs == 1 else tuple(found)
    if not any(t.dtype.is_differentiable for t in result_types):
        return None
    if op.reads_operands:
        read = tuple(op.read_by_rule(types))
        return ResidualPlan(read, (False,) * len(result_types), node_type(OpNode, backward_name(op.name)))
    primals = [builder.tracer(builder.input(t)) for t in types]
    results = [builder.tracer(builder.input(t)) for t in result_types]
    bars = [builder.tracer(builder.input(t)) if t.dtype.is_differentiable else None for t in result_types]
    wanted = tuple(bool(mask >> i & 1) for i in range(len(types)))
    try:
        cotangents = accumulate(op, primals, results, bars, wanted)
    except NotImplementedError:  # of one operand: the backward pass says so, if it is asked for that one
        return ResidualPlan(
            (True,) * len(types), (True,) * len(result_types), node_type(OpNode, backward_name(op.name))
        )
    used = {v for node in builder.nodes for v in node.inputs}
    used.update(c.value for c in cotangents if isinstance(c, Tracer))
    return ResidualPlan(
        tuple(p.value in used for p in primals),
        tuple(r.value in used for r in results),
        node_type(OpNode, backward_name(op.name)),
    )
