"""What functions ask of their operands' elements, also where these cannot be looked at yet.

A captured step records the condition and raises when it runs, with the error of eager mode; so does a batch.
"""

from __future__ import annotations

from collections.abc import Callable

from autojit.core.device_array import DeviceArray, host_copy, is_concrete
from autojit.core.dtypes import int64
from autojit.core.sizes import is_counted
from autojit.dispatch.dispatch import apply, number
from autojit.ops.requirements import KINDS, Require, Witness
from autojit.tensor.state import computes_at_once
from autojit.tensor.tensor import Tensor

_PARTS = {1: "rows", 2: "matrices"}


def is_known(x: Tensor) -> bool:
    """Whether the elements can be looked at: outside of captured steps and of layers, of what is not on ``meta``.

    A device is waited for.
    """
    array = x._array
    return is_concrete(array) and computes_at_once() and not (type(array) is DeviceArray and array.has_no_elements)


def require(
    value: Tensor,
    holds: Callable[[Tensor], Tensor],
    refusal: str,
    valid: str,
    *,
    named: str = "input",
    kind: str = "usage",
) -> None:
    """The error ``KINDS[kind](refusal)`` unless ``holds(value)`` is true everywhere: now, or when the step runs.

    The error tells the first value for which it is not, its position, and what is ``valid``. Functions on a fast path
    look at operands that they know themselves, and come here when they have found one that is refused.

    Args:
        value: what is looked at; the condition has its shape.
        holds: the condition of each of its elements, or of each row or matrix of them.
        refusal: the message, torch's.
        valid: the values that are not refused.
        named: what the user knows the value by.
        kind: which error it is, of ``KINDS``.
    """
    value = value.detach()
    condition = holds(value)
    parts = value.ndim - condition.ndim  # one condition is about a row or a matrix, whose position is given
    if parts > 0:
        value, named = condition, f"the {_PARTS[parts]} of {named}"
    found = told(condition, value, refusal, valid, named=named, kind=kind, is_told_only=False)
    if not is_known(condition):
        apply(Require(refusal, kind), found.all())


def told(
    holds: Tensor, value: Tensor, refusal: str, valid: str, *, named: str, kind: str, is_told_only: bool = True
) -> Tensor:
    """True, in a step that something else makes fail where ``holds`` is false: with it the error tells the ``value``.

    Eager mode refuses here. For the arguments see `require`; ``{value}`` in the refusal is the value.
    """
    witness = Witness(refusal, kind, named, valid, is_told_only)
    if not is_known(holds):
        return apply(witness, holds, value)
    if not holds.all():
        raise witness.refused(host_copy(holds._array), host_copy(value._array))
    return holds


def require_some(n: int, what: str, refusal: str, kind: str) -> None:
    """An error of ``KINDS[kind]`` if a size is 0, which ``what`` refuses; of one that the step counts when it has."""
    if is_counted(n):
        require_bare(lambda: number(n, int64) > 0, f"{what}(): {refusal}", kind)
    elif n == 0:
        raise KINDS[kind](f"{what}(): {refusal}")


def require_bare(holds: Callable[[], Tensor], refusal: str, kind: str) -> None:
    """`require`, of something that has no value to tell, or whose message is not autojit's to choose."""
    condition = holds()
    if not is_known(condition):
        apply(Require(refusal, kind), condition.all())
    elif not condition.all():
        raise KINDS[kind](refusal)
