"""Operands of a call that the caller differentiates, as they were: a derivative does not read what the step writes."""

from __future__ import annotations

from autojit.history.recording import wants_grad
from autojit.history.saved import accumulator_of
from autojit.ir.op import Ndarray
from autojit.tensor.storage import SameMemory
from autojit.tensor.tensor import Tensor, storage_of, wrap


def copied_operand(array: Ndarray, owner: Tensor, is_counted: bool) -> Tensor:
    """The values in an array now. ``is_counted``: eager mode would keep ``owner``, which must not change later."""
    made = wrap(array.copy())
    if is_counted:
        made._storage = SameMemory(storage_of(made), storage_of(owner))
    return made


def kept_operand(t: Tensor, is_counted: bool = False) -> Tensor:
    """The values and the history that a tensor has now, whatever is written to it later."""
    made = copied_operand(t._array, t, is_counted)
    made._requires_grad, made._output_nr = wants_grad(t), t._output_nr
    if made._requires_grad and t._grad_fn is None:
        made.__dict__["gathers"] = accumulator_of(t)  # gradients go to the leaf itself, which must have its node by now
    made._grad_fn, made._accumulator = t._grad_fn, t._accumulator
    return made
