"""The elements of tensors, as the engine reads and writes them: contiguous arrays of the host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from autojit.autograd.grad_mode import no_grad
from autojit.core.device_array import host_copy, layout_in_memory
from autojit.core.errors import tensor_expected
from autojit.core.source import here
from autojit.dispatch.inplace import copy_into
from autojit.functions.conversion import detach
from autojit.tensor.state import state
from autojit.tensor.tensor import Tensor, storage_of, wrap

if TYPE_CHECKING:
    from autojit.core.communicator import Ndarray


def elements(t: Any) -> Ndarray:
    """The elements of a tensor to read: its memory if that is contiguous, else a copy.

    Raises:
        TypeError: it is no tensor.
    """
    if not isinstance(t, Tensor):
        raise tensor_expected(t)
    return np.ascontiguousarray(host_copy(t._array)).reshape(np.shape(layout_in_memory(t._array)))


class Target:
    """A tensor whose elements are replaced; no history is left, as in torch.

    ``array`` is where the engine may write: the tensor's own memory if it can be written as it is, else memory beside.
    """

    def __init__(self, t: Any, is_read: bool = True) -> None:
        if not isinstance(t, Tensor):
            raise tensor_expected(t)
        self.tensor = t
        own = t._array
        is_plain = type(own) is np.ndarray and own.flags.carray and own.dtype.isnative
        self.is_own = is_plain and state.mutation is None and not state.layers
        if self.is_own:
            self.array: Ndarray = own
        else:
            self.array = np.array(elements(t)) if is_read else np.empty(own.shape, own.dtype)

    def put(self, found: Ndarray, name: str) -> None:
        """Let the tensor have these elements."""
        if self.is_own:
            if found is not self.array and found.base is not self.array:
                self.array[...] = found
            storage_of(self.tensor).bump(name, here())
            return
        with no_grad():
            copy_into(detach(self.tensor), wrap(found), name)
