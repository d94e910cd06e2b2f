"""Gradients that compiled steps lend: their memory is written again once nobody holds what readers got of it.

A step owns a ``StepGradient``. Who reads ``.grad`` gets a plain tensor, which takes its place in the leaf's slot. When
the step runs again and nobody else holds that tensor, its array, or anything made of it, the memory is the step's own
again. Native code sees the same by itself (``runtime/entry_gradients_ir.py``).
"""

from __future__ import annotations

import ctypes
import weakref
from functools import cache
from sys import getrefcount
from typing import TYPE_CHECKING, Any

import numpy as np

from autojit.core.reference_counts import ARGUMENTS_ARE_COUNTED
from autojit.tensor.storage import Storage
from autojit.tensor.tensor import StepGradient, Tensor, alias, wrap

if TYPE_CHECKING:
    from numpy.typing import NDArray


@cache
def _counts_are_known() -> bool:
    from autojit.runtime.object_layout import layout_is_known  # the native half, which importing autojit does without

    return ARGUMENTS_ARE_COUNTED and layout_is_known()


_IN_SLOT = 2  # references to an object in one slot, when they are counted
UNTOUCHED_READER = (
    ("_requires_grad", False), ("_grad_fn", None), ("_grad", None), ("_accumulator", None), ("_leaf_hooks", None),
    ("_retains_grad", False), ("_view", None),
)  # fmt: skip
"""What the slots of a lent gradient hold as long as nobody has made more of it than an array's elements."""


def is_lent(own: StepGradient) -> bool:
    """Whether somebody may hold the memory of a step's gradient, or a leaf's slot shows it to readers."""
    return own.reader is not None and not (_counts_are_known() and getrefcount(own.reader) == _IN_SLOT)


def step_gradient(array: NDArray[Any]) -> StepGradient:
    """A gradient that belongs to a compiled step."""
    made = alias(wrap(array), StepGradient)
    made._storage = None
    made.reader = None
    return made


def lent_gradient(leaf: Tensor) -> Tensor | None:
    """``leaf._grad`` for a reader, who may keep it: in the place of a step's own gradient comes a plain tensor. The
    step sees at its next call whether somebody holds that, or what was made of it (``taken_back``, or native code).
    """
    grad = leaf._grad
    if type(grad) is StepGradient:
        if grad.reader is None:
            grad.reader = _reader_of(grad._array)
        made = wrap(grad.reader)
        made.__dict__  # noqa: B018  (from now on there is a dictionary, of which native code sees that it is empty)
        grad = leaf._grad = made
    return grad


def _reader_of(array: Any) -> Any:
    """Another array of the same memory, to which the views that are made of it refer; on a device the same one.

    NumPy lets a view refer to the last array behind it. So there must be none behind this one: its base is of ctypes.
    """
    if type(array) is not np.ndarray:
        return array
    flat: Any = array.reshape(-1).view(np.uint8)
    memory: Any = (ctypes.c_char * array.nbytes).from_buffer(flat) if array.nbytes else bytearray()
    return np.ndarray(array.shape, array.dtype, memory)


def taken_back(leaf: Tensor, own: StepGradient) -> bool:
    """Let a leaf's slot hold a step's own gradient again where nobody holds what readers got; whether it does."""
    made = leaf._grad
    if made is own:
        return True
    if own.reader is None or type(made) is not Tensor or made._array is not own.reader or not _counts_are_known():
        return False
    storage = made._storage
    is_alone = getrefcount(made) == _IN_SLOT + 1 and getrefcount(own.reader) == _IN_SLOT + 1 + (storage is not None)
    is_alone = is_alone and (storage is None or (getrefcount(storage) == _IN_SLOT + 1 and type(storage) is Storage))
    is_plain = all(getattr(made, name) is value for name, value in UNTOUCHED_READER)
    if not is_alone or not is_plain or made.__dict__ or weakref.getweakrefcount(made):
        return False
    leaf._grad = own
    return True
