"""Memory that other processes see: ``share_memory_`` and ``is_shared``.

A tensor is moved into a mapping of a nameless file. Forked processes inherit it; through a queue, or as an argument of
a process that is started, its descriptor goes instead of the elements (`ForkingPickler`). Compiled steps write such
memory in place, as they do all memory that a tensor has from outside.
"""

from __future__ import annotations

import gc
import sys
from multiprocessing.reduction import DupFd, ForkingPickler
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from autojit.core.device import CPU
from autojit.core.errors import UsageError
from autojit.core.layout import strided
from autojit.core.nameless_files import SharedMapping, nameless_file
from autojit.functions.other_memory import look_at
from autojit.history.recording import shows_grad
from autojit.tensor.state import state
from autojit.tensor.tensor import Tensor, type_of, wrap

if TYPE_CHECKING:
    from numpy.typing import NDArray

_known: set[type] = set()
"""The classes of tensors that have been shared, which `ForkingPickler` has been told of."""


def is_shared(self: Tensor) -> bool:
    """Whether other processes can see the memory: that of `share_memory_`; a GPU's counts as such, as in torch.

    Example:
        >>> import autojit as aj
        >>> aj.zeros(2).is_shared(), aj.zeros(2).share_memory_().is_shared()
        (False, True)
    """
    return type_of(self).device.type == "cuda" or _mapping_of(self._array) is not None


def share_memory_(self: Tensor) -> Tensor:
    """Move the elements to memory that processes share; every process then sees what any of them writes.

    A process that is forked has the tensor; one that is spawned is given it as an argument, or receives it from a queue
    of ``autojit.multiprocessing``. A GPU's memory counts as shared, as in torch.

    Raises:
        RuntimeError: other tensors show the memory, which would not move with this one.

    Example:
        >>> import autojit as aj
        >>> w = aj.zeros(3, requires_grad=True)
        >>> w.share_memory_() is w
        True
    """
    if is_shared(self):
        return self
    if self.layout is not strided or type_of(self).device != CPU:
        raise UsageError("share_memory_: only dense tensors of the CPU can be shared", {"tensor": self}, "x.to_dense()")
    if state.trace is not None:
        state.trace.cannot("the step moves a tensor to memory that processes share")
    _require_alone(self)
    look_at(self, wrap(_shared_copy(self._array)))
    kind: type = type(self)
    if kind not in _known:
        _known.add(kind)
        ForkingPickler.register(kind, _reduced)
    return self


def _require_alone(x: Tensor) -> None:
    """UsageError where other tensors show the memory: they would keep the old one."""
    fix = "share it before views of it are made"
    if x._view is not None and x._view.base is not None:
        raise UsageError("share_memory_: the tensor is a view", {"tensor": x}, "share the tensor that it is a view of")
    if x._grad_fn is not None and shows_grad(x):
        raise UsageError("share_memory_: the tensor has been computed", {"tensor": x}, "share x.detach().clone()")
    memory = x._storage
    if memory is None or sys.getrefcount(memory) <= 3:  # that of the tensor, of the name and of the question
        return
    for other in gc.get_referrers(memory):
        if isinstance(other, Tensor) and other is not x:
            raise UsageError("share_memory_: another tensor shows the memory", {"tensor": x, "other": other}, fix)


def _shared_copy(array: NDArray[Any]) -> NDArray[Any]:
    """The elements in memory that processes share, in the same order."""
    size = max(array.nbytes, 1)
    made = _on_mapping(SharedMapping.of(nameless_file(size, "autojit-tensor"), size), array)
    made[...] = array
    return made


def _on_mapping(mapping: SharedMapping, like: NDArray[Any]) -> NDArray[Any]:
    order = sorted(range(like.ndim), key=lambda axis: -abs(like.strides[axis]))
    flat = np.frombuffer(mapping, like.dtype, like.size)
    laid = flat.reshape([like.shape[axis] for axis in order])
    return laid.transpose([order.index(axis) for axis in range(like.ndim)])


def _mapping_of(array: Any) -> SharedMapping | None:
    """The shared mapping whose memory an array shows."""
    while type(array) is np.ndarray:
        array = array.base
    while type(array) is memoryview:
        array = array.obj
    return array if isinstance(array, SharedMapping) else None


def _reduced(x: Tensor) -> tuple[Any, ...]:
    """How a tensor goes to another process: shared memory by its descriptor, all other memory as a copy."""
    array = x._array
    mapping = _mapping_of(array)
    if mapping is None:
        return cast("tuple[Any, ...]", x.__reduce_ex__(2))
    begin = array.__array_interface__["data"][0] - np.frombuffer(mapping, np.uint8).__array_interface__["data"][0]
    shown = (begin, array.dtype, array.shape, array.strides)
    return _received, (type(x), DupFd(mapping.descriptor), len(mapping), shown, x._requires_grad)


def _received(kind: type[Tensor], sent: Any, size: int, shown: tuple[Any, ...], requires_grad: bool) -> Tensor:
    """The tensor in the process that has been given it."""
    begin, dtype, shape, steps = shown
    mapping = SharedMapping.of(sent.detach(), size)
    array: Any = np.ndarray(shape, dtype, mapping, begin, steps)
    if kind not in _known:
        _known.add(kind)
        ForkingPickler.register(kind, _reduced)
    return Tensor._make_subclass(kind, wrap(array), requires_grad)


METHODS: dict[str, Any] = {"is_shared": is_shared, "share_memory_": share_memory_}
