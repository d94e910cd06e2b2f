"""What a composite that a trace records op by op would have saved: changes of it spoil the history, as in eager mode.

Eager mode computes the composite at once and records one node, which keeps operands or results. The ops of the
composite keep tensors of their own instead, which nobody can change. So the last of their nodes watches those that the
one node would keep: whether a backward pass raises does not depend on who computes.
"""

from __future__ import annotations

from collections.abc import Sequence

from autojit.ir.op import Op
from autojit.tensor.op_node import OpNode, watch
from autojit.tensor.recording import shell_of, wants_grad
from autojit.tensor.residual_plans import residual_plan
from autojit.tensor.state import state
from autojit.tensor.tensor import Tensor, made_in_inference, type_of


def watch_composite(op: Op, operands: Sequence[Tensor], results: Sequence[Tensor]) -> None:
    """Let the node of a composite's fresh results watch what ``op``, which eager mode computes, would keep."""
    if state.trace is None or not state.grad_enabled or state.layers or not _are_common(operands):
        return
    node = next((t._grad_fn for t in results if t._requires_grad), None)
    if not isinstance(node, OpNode) or any(t._grad_fn is node for t in operands):
        return
    mask = sum(1 << place for place, t in enumerate(operands) if wants_grad(t))
    plan = residual_plan(op, operands, mask) if mask else None
    if plan is None:
        return
    kept = [(t, -1) for t, keep in zip(operands, plan.primals, strict=True) if keep]
    kept += [(shell_of(t), k) for k, (t, keep) in enumerate(zip(results, plan.results, strict=True)) if keep]
    watch(node, [(t, 0 if t._storage is None else t._storage.version, number) for t, number in kept])


def _are_common(operands: Sequence[Tensor]) -> bool:
    """Whether eager mode would take them to one op: float32 or float64 all alike but for indices and masks."""
    first = type_of(operands[0])
    if first.dtype.numpy.char not in "fdl":
        return False
    for t in operands:
        one = type_of(t)
        if one.dtype is not first.dtype and one.dtype.numpy.kind not in "bi":
            return False
        if 0 in one.shape or made_in_inference(t):
            return False
    return True


__all__ = ["watch_composite"]
