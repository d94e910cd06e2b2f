"""One node of the history for a function that several ops compute.

Users see one node (its hooks, its name, its several outputs) where the function they called is one step to them: its op
is a ``GraphOp`` whose results come from other ops, and of which only the VJP rule runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from autojit.ir.op import Op
from autojit.tensor.recording import record, wants_grad
from autojit.tensor.state import state
from autojit.tensor.storage import ElsewhereArray
from autojit.tensor.tensor import Tensor, made_in_inference


def in_one_node(op: Op, operands: Sequence[Tensor], compute: Callable[[], Any]) -> Any:
    """What ``compute()`` gives, a fresh tensor or a tuple of them, recorded as results of ``op``."""
    if not state.grad_enabled or state.layers:
        return compute()
    is_wanted = False
    for t in operands:
        if wants_grad(t):
            is_wanted = True
        if type(t._array) is ElsewhereArray or made_in_inference(t):
            return compute()
    if not is_wanted:
        return compute()
    state.grad_enabled = False
    try:
        found = compute()
    finally:
        state.grad_enabled = True
    results = found if isinstance(found, tuple) else (found,)
    record(op, operands, results)
    if state.observer is not None and results[0]._grad_fn is not None:
        state.observer.made(results[0]._grad_fn)
    return found
