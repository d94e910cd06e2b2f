"""``swap_tensors``: two tensors exchange all that they hold, and stay the objects that they are."""

from __future__ import annotations

import copyreg
import gc
import sys
import weakref
from typing import Any, NoReturn

from autojit.autograd.derivatives import get_gradient_edge
from autojit.core.errors import UsageError
from autojit.tensor import Tensor
from autojit.tensor.state import bump_guard_epoch, state
from autojit.tensor.storage import View

__all__ = ["swap_tensors"]

_FIX = "swap before anything is computed of them"


def swap_tensors(t1: Tensor, t2: Tensor) -> None:
    """Exchange class, elements, gradient, hooks and attributes of two tensors: whoever holds ``t1`` then has ``t2``'s.

    Raises:
        RuntimeError: weak references or views follow one of them, or their classes have different slots. A backward
            pass over what was computed of a leaf before raises it as well.

    Example:
        >>> import autojit as aj
        >>> a, b = aj.zeros(2), aj.nn.Parameter(aj.ones(3))
        >>> aj.utils.swap_tensors(a, b)
        >>> a
        Parameter containing:
        tensor([1., 1., 1.], requires_grad=True)
    """
    for name, t, other in (("t1", t1, t2), ("t2", t2, t1)):
        if _has_views(t, other):
            raise UsageError(f"Cannot swap {name} because views of it would follow the other tensor", {name: t}, _FIX)
    exchange(t1, t2)


def exchange(t1: Tensor, t2: Tensor) -> None:
    """``swap_tensors`` where it need not be asked whether there are views: that looks through all objects."""
    if state.trace is not None:
        state.trace.cannot("the step swaps tensors")
    slots: list[set[str]] = []
    for name, t in (("t1", t1), ("t2", t2)):
        if weakref.getweakrefs(t):
            raise UsageError(f"Cannot swap {name} because it has weakref associated with it", {name: t})
        slots.append(set(_slot_names(type(t))))
    if slots[0] != slots[1]:
        raise UsageError("Cannot swap t1 and t2 if they have different slots", {"t1": t1, "t2": t2})
    for t in (t1, t2):
        if t._accumulator is not None and t._accumulator() is not None:
            get_gradient_edge(t).node.register_prehook(_poisoned)
            t._accumulator = None  # the tensor that comes has not been computed with
    for name in slots[0]:
        _exchange(t1, t2, name)
    t1.__dict__, t2.__dict__ = t2.__dict__, t1.__dict__
    t1.__class__, t2.__class__ = t2.__class__, t1.__class__
    bump_guard_epoch()


def _slot_names(kind: type) -> list[str]:
    names: list[str] = vars(copyreg)["_slotnames"](kind)
    return names


def _exchange(t1: Tensor, t2: Tensor, name: str) -> None:
    """Exchange what two slots hold; one may be empty."""
    missing: Any = object()
    first, second = getattr(t1, name, missing), getattr(t2, name, missing)
    for t, value in ((t1, second), (t2, first)):
        if value is not missing:
            setattr(t, name, value)
        elif hasattr(t, name):
            delattr(t, name)


def _has_views(t: Tensor, other: Tensor) -> bool:
    """Whether views refer to a tensor: they share its storage, so none does if only the two tensors have it.

    What captured steps keep of their views has no elements: it only says what the step has read.
    """
    holders = 1 + (other._storage is t._storage)
    if t._storage is None or sys.getrefcount(t._storage) <= 1 + holders:  # one of the question
        return False
    views = [found for found in gc.get_referrers(t) if isinstance(found, View) and found.base is t]
    return any(isinstance(x, Tensor) and x._array is not None for view in views for x in gc.get_referrers(view))


def _poisoned(gradients: object) -> NoReturn:
    raise UsageError(
        "Trying to execute AccumulateGrad node that was poisoned by swap_tensors: the tensor has been swapped between "
        "forward and backward",
        fix="swap before the forward pass, or after the backward pass",
    )
