"""Where a tensor's elements are: strides, storages, contiguity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from autojit.core.device import META, Device, DeviceLike, is_cpu_alone, require_available, with_index
from autojit.core.device_array import DeviceArray, first_address, layout_in_memory
from autojit.core.dtypes import DType, default_dtype
from autojit.core.errors import DeviceError, TraceError, UsageError, too_large
from autojit.core.package_name import full_name
from autojit.core.ports import ports
from autojit.core.sizes import is_symbolic, seems_equal, size_max
from autojit.core.strided_views import as_strided as strided
from autojit.dispatch.composite_nodes import in_one_node
from autojit.dispatch.declared import declared
from autojit.dispatch.dispatch import value_of
from autojit.dispatch.on_device import placed, where_to
from autojit.dispatch.promotion import cast_to
from autojit.functions import elementwise
from autojit.history.op_node import rename_node
from autojit.history.recording import shows_grad, wants_grad
from autojit.ir.op import bind
from autojit.ops.loop_orders import in_order_of
from autojit.ops.shape import Reshape
from autojit.tensor.memory_orders import has_steps, order_of, outermost_first, places_of, seen_through
from autojit.tensor.refused_dispatch import checked_subclass
from autojit.tensor.state import computes_at_once, quietly, state
from autojit.tensor.storage import ElsewhereArray
from autojit.tensor.tensor import T, Tensor, alias, layout_of, storage_chain, storage_of, type_of, wrap

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from autojit.ir.graph import Value


class MemoryFormat:
    """An order of the axes in memory: ``contiguous_format``, ``channels_last``, ``preserve_format``, ..."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return full_name(self.name)

    def __reduce__(self) -> str:
        return self.name


contiguous_format = MemoryFormat("contiguous_format")
preserve_format = MemoryFormat("preserve_format")
channels_last = MemoryFormat("channels_last")
channels_last_3d = MemoryFormat("channels_last_3d")
_CHANNELS_LAST_RANK = {channels_last: 4, channels_last_3d: 5}


def rank_of(memory_format: MemoryFormat) -> int | None:
    """How many axes a tensor has in a format; None: any number."""
    return _CHANNELS_LAST_RANK.get(memory_format)


def order_in(x: Tensor, memory_format: MemoryFormat) -> list[int]:
    """The axes from the outermost in memory to the innermost."""
    return axes_in(type_of(x).ndim, memory_format)


def axes_in(ndim: int, memory_format: MemoryFormat) -> list[int]:
    """``order_in`` for a number of axes."""
    rank = rank_of(memory_format)
    if rank is None:
        return list(range(ndim))
    if ndim != rank:
        raise UsageError(f"required rank {rank} tensor to use {memory_format.name} format", {"rank": ndim})
    return [0, *range(2, ndim), 1]


def suggested_format(x: Tensor) -> MemoryFormat:
    """The format that a tensor has: row-major unless its channels are last."""
    if not is_contiguous(x):
        for memory_format in _CHANNELS_LAST_RANK:
            if is_contiguous(x, memory_format=memory_format):
                return memory_format
    return contiguous_format


def contiguous(self: Tensor, *, memory_format: MemoryFormat = contiguous_format) -> Tensor:
    """In row-major memory (or in another format); the tensor itself if it already is."""
    if is_contiguous(self, memory_format=memory_format):
        return self
    array = self._array
    if memory_format is contiguous_format and type(array) is np.ndarray and computes_at_once():
        copied = in_one_node(cast_to(type_of(self).dtype), (self,), lambda: wrap(quietly(array.copy)))
        return rename_node(copied, "CloneBackward0")
    return laid_out(elementwise.clone(self), order_in(self, memory_format))


def laid_out(fresh: Tensor, order: Sequence[int]) -> Tensor:
    """A tensor nobody else looks at, with its elements moved so that the axes are in memory in this order."""
    array = fresh._array if fresh._array is not None else layout_of(fresh)
    if array.transpose(order).flags.c_contiguous:
        return fresh
    if fresh._array is None:
        if state.trace is not None and fresh._value is not None:
            memory = np.empty([array.shape[axis] for axis in order], array.dtype)
            state.trace.set_order(fresh._value, memory.transpose(places_of(order)))
        return fresh
    fresh._array = array.transpose(order).copy(order="C").transpose(places_of(order))
    if fresh._storage is not None:
        fresh._storage.array = fresh._array
    return fresh


def in_format(fresh: Tensor, memory_format: MemoryFormat | None, like: Tensor) -> Tensor:
    """A tensor nobody else looks at in a format; None and ``preserve_format``: its axes as those of ``like``.

    If ``like`` is sparse so is what is made.

    Raises:
        RuntimeError: the format is for another number of axes.
    """
    if type(like._array) is ElsewhereArray:
        axes: Any = like.dense_dim()
        made: Tensor = ports.sparse.to_sparse(fresh, layout=like.layout, blocksize=like._blocksize, dense_dim=axes)
        return made
    if memory_format is None or memory_format is preserve_format:
        layout = layout_of(like)
        if layout.flags.c_contiguous:
            return fresh
        return laid_out(fresh, outermost_first(in_order_of([layout], layout.dtype)))
    return laid_out(fresh, order_in(fresh, memory_format))


@declared()
def clone(input: Tensor, *, memory_format: MemoryFormat | None = None) -> Tensor:
    """A differentiable copy; in memory as it is, or in a format."""
    copied = elementwise.clone(input)
    if memory_format is None or memory_format is preserve_format:
        return copied
    return laid_out(copied, order_in(copied, memory_format))


def is_contiguous(self: Tensor, *, memory_format: MemoryFormat = contiguous_format) -> bool:
    """Whether the elements are row by row in memory (or in another format) without gaps."""
    if memory_format is contiguous_format:
        return bool(layout_of(self).flags.c_contiguous)
    rank = _CHANNELS_LAST_RANK.get(memory_format, type_of(self).ndim)
    if rank != type_of(self).ndim:
        return False
    return bool(layout_of(self).transpose(order_in(self, memory_format)).flags.c_contiguous)


@overload
def stride(self: Tensor, dim: None = None) -> tuple[int, ...]: ...
@overload
def stride(self: Tensor, dim: int) -> int: ...
def stride(self: Tensor, dim: int | None = None) -> Any:
    """Steps between neighbours per axis, in elements."""
    layout = layout_of(self)
    if self._array is None and state.trace is not None:
        state.trace.note_steps(self)
    if self._array is None and any(map(is_symbolic, type_of(self).shape)):
        steps = _open_steps(layout, type_of(self).shape)
        return steps if dim is None else steps[dim]
    steps = tuple(s // layout.itemsize for s in layout.strides)
    if not layout.size and not any(steps):  # NumPy gives steps to empty views alone, not to empty arrays
        steps = row_major_steps(layout.shape)
    return steps if dim is None else steps[dim]


def _open_steps(layout: NDArray[Any], shape: Sequence[int]) -> tuple[int, ...]:
    """The steps of a tensor with open sizes: they are open too where it has no gaps; else its sizes are asked for."""
    order = order_of(layout)
    if order is None or order[:1] != ("strides",):
        axes = tuple(range(len(shape))) if order is None else order
        steps = row_major_steps([shape[axis] for axis in axes])
        found = tuple(steps[place] for place in places_of(axes))
        if has_steps(layout, found):
            return found
    for n in shape:
        int(n)
    return tuple(s // layout.itemsize for s in layout.strides)  # with gaps, or steps of axes of size 1


def row_major_steps(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides, in elements, of a shape in row-major order."""
    steps, step = [], 1
    for n in reversed(shape):
        steps.append(step)
        step *= size_max(n, 1)
    return tuple(reversed(steps))


def storage_offset(self: Tensor) -> int:
    """Where the first element is in the storage, in elements."""
    storage = self._storage
    if storage is None and (self._array is not None or state.trace is None):
        return 0
    storage = storage_of(self)
    before = 0 if state.trace is None or storage.array is not None else state.trace.offset_of(storage)
    if self._array is not None and storage.array is not None:
        return (first_address(self._array) - first_address(storage.array)) // int(self._array.itemsize)
    if self._view is None:
        return before
    root = storage.array if storage.value is None else _lying_as(storage.value)
    assert root is not None
    seen = seen_through(layout_in_memory(root), storage_chain(self))
    return before + (first_address(seen) - first_address(root)) // int(root.itemsize)


def _lying_as(value: Value) -> NDArray[Any]:
    """An array that is laid out like a traced value."""
    shape = tuple(int(n) for n in value.type.shape)
    assert state.trace is not None
    found: NDArray[Any] | None = state.trace.order_of(value)
    return np.empty(shape, np.bool_) if found is None else found


def _concrete(t: Tensor) -> NDArray[Any]:
    if state.trace is not None:
        return state.trace.concretize(value_of(t))
    if t._array is None:
        raise without_memory(t)
    array: NDArray[Any] = t._array
    return array


def without_memory(t: Tensor) -> TraceError:
    """The error of a tensor that a step has left behind."""
    return TraceError("a tensor of a captured step has no memory outside the capture", {"tensor": t})


def data_ptr(self: Tensor) -> int:
    """The address of the first element, 0 without elements; in a capture, one that tells alike which tensors share
    memory.
    """
    if seems_equal(type_of(self).size, 0):
        return 0
    if self._array is not None:
        return 0 if type_of(self).device == META else first_address(self._array)
    if state.trace is None:
        return first_address(_concrete(self))
    storage = storage_of(self)
    root = storage.array if storage.array is not None else state.trace.memory_of(storage)
    return first_address(seen_through(layout_in_memory(root), storage_chain(self)))


def is_set_to(self: Tensor, tensor: Tensor) -> bool:
    """Whether both look at the same elements of the same memory in the same way."""
    a, b = (_concrete(t) if t._array is None else t._array for t in (self, tensor))
    return self is tensor or bool(
        first_address(a) == first_address(b) and a.shape == b.shape and a.strides == b.strides
    )


def is_pinned(self: Tensor) -> bool:
    """Whether the memory is page-locked for a GPU; never on the CPU alone."""
    if is_cpu_alone() or type(self._array) is not np.ndarray:
        return False
    from autojit.runtime.gpu import pinned  # of CUDA nothing is imported before it is used

    return pinned.is_pinned(self._array)


def pinned(x: Tensor) -> Tensor:
    """A copy of a tensor on the CPU in memory that a GPU reads directly; the tensor itself if it is there.

    Raises:
        RuntimeError: there is no GPU to read it, or the tensor is not on the CPU.
    """
    try:
        place = with_index(require_available(Device("cuda")))
    except DeviceError:
        raise UsageError("Cannot access accelerator device when none is available.", {"tensor": x}) from None
    if type(x._array) is not np.ndarray:
        raise UsageError(f"cannot pin '{x.type()}' only dense CPU tensors can be pinned", {"tensor": x})
    if is_pinned(x):
        return x
    from autojit.runtime.gpu.pinned import pinned_copy  # of CUDA nothing is imported before it is used

    return wrap(pinned_copy(x._array, place.index or 0))


def memory_base(x: Tensor) -> Tensor:
    """What a tensor is a view of; of a detached view, which does not say, the elements of the memory that it is in."""
    base = x if x._view is None or x._view.base is None else x._view.base
    if type_of(base).dtype is not type_of(x).dtype:  # parts of complex numbers: their own elements, in their dtype
        base = x
    array = base._array
    has_memory = type(array) is np.ndarray or type(array) is DeviceArray
    memory: NDArray[Any] | None = storage_of(base).array if has_memory and not shows_grad(base) else None
    if (
        memory is None
        or type(memory) is not type(array)
        or memory.size <= array.size
        or memory.dtype is not array.dtype
    ):
        return base
    whole = wrap(memory)
    whole._storage = storage_of(base)
    return whole


def nbytes(self: Tensor) -> int:
    """Bytes of all elements."""
    return type_of(self).size_bytes


def itemsize(self: Tensor) -> int:
    """Bytes per element."""
    return type_of(self).dtype.size_bytes


def as_subclass(self: Tensor, cls: type[T]) -> T:
    """The same tensor, history included, as an object of a subclass; gradients of it reach a leaf that it shows."""
    checked_subclass(cls)
    if self._grad_fn is None and state.grad_enabled and shows_grad(self):
        shown: Any = rename_node(bind(Reshape(type_of(self).shape), self), "AliasBackward0")
        shown.__class__ = cls
        found: T = shown
        return found
    made = alias(self, cls)
    made._requires_grad = wants_grad(self)
    made._grad_fn, made._output_nr, made._accumulator = self._grad_fn, self._output_nr, self._accumulator
    return made


@declared(function=False, factory=True)
def new_empty_strided(
    self: Tensor,
    size: Sequence[int],
    stride: Sequence[int],
    *,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """``empty_strided`` in this tensor's dtype."""
    t = type_of(self)
    place = t.device if device is None else device
    return empty_strided(size, stride, dtype=dtype or t.dtype, device=place, requires_grad=requires_grad)


def _never(what: str) -> property:
    return property(lambda self: False, doc=f"Whether the tensor is {what}; never.")


def _is_on(kind: str) -> property:
    return property(lambda self: type_of(self).device.type == kind, doc=f"Whether the tensor is on a {kind} device.")


def empty_strided(
    size: Sequence[int],
    stride: Sequence[int],
    *,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor of a shape with given strides (in elements) and unspecified elements (zeros, so that results repeat)."""
    wanted, place = dtype or default_dtype(), where_to(device)
    span = 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True)) if all(size) else 0
    try:
        flat = quietly(np.zeros, span if place.type != "meta" else min(span, 1), wanted.numpy)  # meta reads none
    except ValueError as error:
        raise too_large(size, error) from None
    steps = [step * wanted.size_bytes for step in stride]
    made = placed(wrap(strided(flat, tuple(size), steps)), place)
    made.requires_grad = requires_grad
    return made


_PLAIN = (
    contiguous, is_contiguous, stride, storage_offset, data_ptr, is_set_to, is_pinned,
    as_subclass,
)  # fmt: skip
METHODS: dict[str, Any] = {
    **{method.__name__: method for method in _PLAIN},
    "nbytes": property(nbytes),
    "itemsize": property(itemsize),
    "name": property(lambda self: None, doc="Tensors have no name."),
    **{f"is_{kind}": _is_on(kind) for kind in ("cpu", "cuda", "meta", "mps", "xpu", "xla", "ipu", "vulkan")},
    **{f"is_{what}": _never(what) for what in ("quantized", "mkldnn", "nested")},
}
