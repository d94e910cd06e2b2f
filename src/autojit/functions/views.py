"""Views that pick or reinterpret memory, and their out-of-place counterparts (``select_scatter`` and its like).

Each is one node of the history under torch's name; functions that return several views return outputs of one node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, SupportsIndex

import numpy as np

from autojit import ops
from autojit.core.device_array import share_memory
from autojit.core.dtypes import DType, dtype_of, float16, float32, float64
from autojit.core.errors import DTypeError, UsageError
from autojit.core.sizes import as_extent
from autojit.dispatch.declared import declared
from autojit.dispatch.dispatch import apply
from autojit.dispatch.promotion import as_operand, cast
from autojit.dispatch.view_memo import remembered
from autojit.dispatch.view_nodes import one_node, restrided_node, several_views
from autojit.functions.comparison import where
from autojit.functions.cuts import cuts_of
from autojit.functions.elementwise import clone
from autojit.functions.memory import memory_base
from autojit.functions.shape import Sizes, reshape
from autojit.history.op_node import rename_node
from autojit.ir.op import Op, bind
from autojit.ops.base import normalize_axis
from autojit.ops.views import ViewUpdate
from autojit.tensor.state import grad_mode, holders, outside_trace, set_layers, state
from autojit.tensor.storage import INFERENCE_VIEW, View
from autojit.tensor.tensor import Tensor, layout_of, memory_of, storage_chain, storage_of, type_of, wrap

Pieces = int | Sequence[int]  # how long pieces are, or each of them
Sections = Tensor | Pieces  # how many pieces, or where they end


@declared(function=False)
@remembered
def view(input: Tensor, *shape: Any, dtype: DType | None = None, size: Sizes | None = None) -> Tensor:
    """``reshape`` that must be a view; with a dtype, the same bytes as numbers of that dtype.

    Raises:
        RuntimeError: the strides do not allow the shape, or the last extent cannot be divided into the new dtype.

    Example:
        >>> import autojit as aj
        >>> aj.tensor([1.0]).view(aj.int32)
        tensor([1065353216], dtype=autojit.int32)
    """
    if size is not None:
        shape = (size,)
    if len(shape) == 1 and isinstance(shape[0], DType | type):
        (dtype,) = shape
    if dtype is not None:
        return _as_dtype(input, dtype_of(dtype))
    found = reshape(input, *shape)
    array = input._array
    if array is None or (state.layers and holders(input)):
        apart = input._storage is None or found._storage is not input._storage
        is_copy = apart and state.trace is not None and not state.layers
    else:
        is_copy = found._view is None
        if found._view is INFERENCE_VIEW and found._array is not None and found._array.size:
            is_copy = not share_memory(found._array, array)
    if is_copy:
        raise UsageError(
            "view size is not compatible with input tensor's size and stride (at least one dimension spans across two "
            "contiguous subspaces). Use .reshape(...) instead.",
            fix="use .reshape(...), which copies where a view cannot be",
        )
    return found


def _as_dtype(input: Tensor, dtype: DType) -> Tensor:
    """The bytes under another dtype: shares memory and version, has no derivative."""
    if dtype is type_of(input).dtype:
        return input.detach()
    op = ops.Bitcast(dtype)
    op.require_view(type_of(input), *memory_of(input))
    with grad_mode(False):
        found: Tensor = apply(op, input)
    found._view = View(None, (*storage_chain(input), op), None, storage_of(input))
    return found


@declared(function=False)
def view_as(input: Tensor, other: Tensor) -> Tensor:
    """``view`` with the shape of another tensor."""
    return view(input, other.shape)


@declared(function=False)
def reshape_as(input: Tensor, other: Tensor) -> Tensor:
    """``reshape`` with the shape of another tensor."""
    return reshape(input, other.shape)


@declared(method=False)
def view_as_real(input: Tensor) -> Tensor:
    """Complex numbers as pairs ``[..., 2]`` of their real and imaginary parts; a view.

    Example:
        >>> import autojit as aj
        >>> aj.view_as_real(aj.tensor([1 + 2j]))
        tensor([[1., 2.]])
    """
    if not type_of(input).dtype.is_complex:
        raise DTypeError("view_as_real is only supported for complex tensors", {"input": input})
    return apply(ops.ViewAsReal(), input)


@declared(method=False)
def view_as_complex(input: Tensor) -> Tensor:
    """Pairs ``[..., 2]`` as complex numbers; a view.

    Raises:
        RuntimeError: the last axis does not hold adjacent pairs.
    """
    if state.autocast is not None:
        return state.autocast.full(view_as_complex, input)
    t = type_of(input)
    if t.dtype not in (float16, float32, float64):
        raise DTypeError(
            "view_as_complex is only supported for half, float and double tensors, but got a tensor of scalar type: "
            f"{t.dtype.scalar_type}",
            {"input": input},
        )
    if t.ndim and t.shape[-1] == 2 and t.size:
        layout = layout_of(input)
        steps = [step // layout.itemsize for step in layout.strides]
        if steps[-1] != 1:
            raise UsageError("Tensor must have a last dimension with stride 1", {"x": input}, "use contiguous()")
        if any(step % 2 for step in steps[:-1]):
            raise UsageError(
                "Tensor must have a stride divisible by 2 for all but last dimension", {"x": input}, "use contiguous()"
            )
    return apply(ops.ViewAsComplex(), input)


@declared(in_place="shape")
def as_strided(input: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None) -> Tensor:
    """The memory of the tensor's storage under any shape and strides (in elements); a view.

    ``storage_offset`` counts from the start of the storage; by default it is the tensor's own. Gradients of elements
    that are shown several times add up.

    Raises:
        RuntimeError: the view would reach outside the storage.

    Example:
        >>> import autojit as aj
        >>> aj.arange(5.0).as_strided((3, 2), (1, 1))
        tensor([[0., 1.],
                [1., 2.],
                [2., 3.]])
    """
    size, stride = tuple(map(as_extent, size)), tuple(map(as_extent, stride))
    if len(size) != len(stride):
        raise UsageError("mismatch in length of strides and shape", {"size": size, "stride": stride})
    if any(n < 0 for n in size):
        raise UsageError(f"as_strided: Storage size calculation overflowed with sizes={list(size)}", {"input": input})
    if any(n < 0 for n in stride):
        raise UsageError(
            f"as_strided: Negative strides are not supported at the moment, got strides: {list(stride)}",
            {"input": input},
        )
    if layers := state.layers:
        made: Tensor | None = layers[-1].restrided(as_strided, input, size, stride, storage_offset)
        if made is not None:
            return made
        _require_dense_elements(input)
    offset = input.storage_offset() if storage_offset is None else int(storage_offset)
    base = memory_base(input)
    for layer in state.layers:
        base = layer.base_of(input, base)
    ops_from_base = _restriding(base, size, stride, offset)
    found: Any = base
    for op in ops_from_base:
        found = bind(op, found)
    if base is input:
        found = one_node(found, input, "AsStridedBackward0")
    else:
        found = restrided_node(found, input, ops_from_base)
    return rename_node(found, "AsStridedBackward0", size=size, stride=stride, storage_offset=storage_offset)


def _require_dense_elements(x: Tensor) -> None:
    """Below the last layer, elements of a batch must fill their memory: their strides are not known above it."""
    for layer in state.layers[:-1]:
        kept = layer.holder(x)
        if kept is not x and (not kept.is_contiguous() or kept.storage_offset()):
            raise UsageError(
                "as_strided: the elements of a batch do not fill its memory", {"input": x}, "clone() the tensor first"
            )


def _restriding(base: Tensor, size: tuple[int, ...], stride: tuple[int, ...], offset: int) -> tuple[Op, ...]:
    """The view ops from a tensor whose elements fill their memory to the strided view of that memory."""
    for extent in type_of(base).shape:
        int(extent)  # the strides of other sizes are others: it cannot stay open
    layout = layout_of(base)
    order = sorted(range(layout.ndim), key=lambda axis: (-layout.strides[axis], axis))
    fills = layout.transpose(order).flags.c_contiguous
    restride = ops.AsStrided(size, stride, offset - base.storage_offset(), layout.size)
    if state.trace is not None and not (fills and restride.is_within):
        state.trace.asked_memory(base, "memory around the elements", always=not fills)
    if not fills:
        facts: dict[str, object] = {"strides": [step // layout.itemsize for step in layout.strides]}
        raise UsageError("as_strided: the tensor's own elements do not fill its memory", facts, "clone() it first")
    restride.result_type(type_of(base).with_shape((layout.size,)))  # before memory outside is touched
    return (restride,) if order == list(range(layout.ndim)) else (ops.Permute(tuple(order)), restride)


@declared()
@remembered
def select(input: Tensor, dim: int, index: int) -> Tensor:
    """One position of an axis, which goes away; a view."""
    return one_node(ops.select(input, dim, as_extent(index)), input, "SelectBackward0")


@declared()
@remembered
def narrow(input: Tensor, dim: int, start: Tensor | SupportsIndex, length: int) -> Tensor:
    """``length`` positions from ``start`` on; a view."""
    if isinstance(start, Tensor):
        if type_of(start).ndim or type_of(start).dtype.category != 1:
            raise UsageError("start must be an 0-dim integral Tensor.", {"start": start})
        start = start.item()
    if state.trace is not None and any(hasattr(type(n), "as_size") for n in (start, length)):
        return _counted_narrow(input, normalize_axis(dim, type_of(input).ndim, "narrow"), start, length)
    found: Tensor = ops.narrow(input, dim, as_extent(start), length)
    return found if found is not input else one_node(view(input, type_of(input).shape), input, "SliceBackward0")


def _counted_narrow(input: Tensor, axis: int, start: Tensor | SupportsIndex, length: Tensor | SupportsIndex) -> Tensor:
    """``narrow`` by numbers that a step computes: they are checked when it runs."""
    extent = type_of(input).shape[axis]
    first, size = as_operand(start), as_operand(length)
    first = where(first < 0, first + extent, first)
    holds = (first >= 0) & (size >= 0) & (first + size <= extent)
    refusal = f"start + length exceeds dimension size ({extent})."
    low = where(holds, first, -1).item().as_size(extent, refusal)
    wide = where(holds, size, -1).item().as_size(extent - low, refusal)
    return ops.slice_axis(input, axis, low, low + wide)


@declared(out=True)
def narrow_copy(input: Tensor, dim: int, start: Tensor | SupportsIndex, length: int) -> Tensor:
    """``narrow`` as a copy."""
    return clone(narrow(input, dim, start, length))


@declared()
@remembered
def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """The diagonal of two axes as a new last axis; a view."""
    return ops.diagonal(input, offset, dim1, dim2)


@declared()
def unfold(input: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """Windows along an axis as a new last axis; a view."""
    if step <= 0:
        raise UsageError(f"step is {step} but must be > 0", {"input": input})
    t = type_of(input)
    ops.Unfold(normalize_axis(dimension, t.ndim, "unfold") if t.ndim else 0, size, step).result_type(t)
    found: Tensor = ops.unfold(input, dimension, size, step)
    return found.select(0, 0) if type_of(input).ndim == 0 else found


def _split_method(self: Tensor, split_size: Pieces, dim: int = 0) -> tuple[Tensor, ...]:
    """Views of consecutive pieces."""
    return split(self, split_size, dim)


@declared(method=_split_method)
def split(tensor: Tensor, split_size_or_sections: Pieces, dim: int = 0) -> tuple[Tensor, ...]:
    """Views of consecutive pieces."""
    name = "SplitBackward0" if isinstance(split_size_or_sections, int) else "SplitWithSizesBackward0"
    axis = normalize_axis(dim, type_of(tensor).ndim, "split")
    make = lambda: ops.split(tensor, split_size_or_sections, axis)
    return several_views(tensor, make, (axis, False), name, split_size_or_sections)


@declared()
def split_with_sizes(input: Tensor, split_sizes: Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """Views of consecutive pieces of the given sizes."""
    return split(input, list(split_sizes), dim)


@declared()
def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """At most ``chunks`` views of equal pieces, the last of which may be smaller."""
    axis = normalize_axis(dim, type_of(input).ndim, "chunk")
    make = lambda: ops.chunk(input, chunks, axis)
    return several_views(input, make, (axis, False), "SplitBackward0", (chunks, "chunk"))


@declared()
def unsafe_split(tensor: Tensor, split_size: Pieces, dim: int = 0) -> tuple[Tensor, ...]:
    """``split`` as copies, which may be changed in place."""
    return tuple(clone(piece) for piece in ops.split(tensor, split_size, dim))


@declared()
def unsafe_split_with_sizes(input: Tensor, split_sizes: Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """``split_with_sizes`` as copies, which may be changed in place."""
    return unsafe_split(input, list(split_sizes), dim)


@declared()
def unsafe_chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """``chunk`` as copies, which may be changed in place."""
    return tuple(clone(piece) for piece in ops.chunk(input, chunks, dim))


@declared()
def tensor_split(
    input: Tensor,
    sections: Sections | None = None,
    dim: int = 0,
    *,
    indices: Sections | None = None,
    tensor_indices_or_sections: Sections | None = None,
) -> tuple[Tensor, ...]:
    """Views whose sizes differ by at most one, or cut at given positions; each may be changed in place.

    The number of pieces or the positions may be given under any of the three names.

    Raises:
        TypeError: none of them is given, or several.
    """
    wanted = _pieces("tensor_split", sections, indices, tensor_indices_or_sections)
    if isinstance(wanted, Tensor) and state.trace is not None and type_of(wanted).ndim == 1:
        cuts = [None, *(place.item() for place in wanted.unbind()), None]
        index = (slice(None),) * normalize_axis(dim, type_of(input).ndim, "tensor_split")
        return tuple(input[(*index, slice(start, stop))] for start, stop in pairwise(cuts))
    pieces = ops.tensor_split(input, cuts_of(wanted) if isinstance(wanted, Tensor) else wanted, dim)
    return tuple(piece if piece is not input else view(input, type_of(input).shape) for piece in pieces)


def _pieces(name: str, *given: Sections | None) -> Any:
    chosen = [value for value in given if value is not None]
    if len(chosen) != 1:
        raise TypeError(f"{name}() takes either sections or indices, but {len(chosen)} of them are given")
    return chosen[0]


@declared()
def hsplit(input: Tensor, sections: Sections | None = None, *, indices: Sections | None = None) -> tuple[Tensor, ...]:
    """``tensor_split`` along axis 1 (axis 0 of a vector)."""
    return _split_along(input, _pieces("hsplit", sections, indices), "hsplit", 1, 0 if type_of(input).ndim == 1 else 1)


@declared()
def vsplit(input: Tensor, sections: Sections | None = None, *, indices: Sections | None = None) -> tuple[Tensor, ...]:
    """``tensor_split`` along axis 0 of a tensor of rank 2 or more."""
    return _split_along(input, _pieces("vsplit", sections, indices), "vsplit", 2, 0)


@declared()
def dsplit(input: Tensor, sections: Sections | None = None, *, indices: Sections | None = None) -> tuple[Tensor, ...]:
    """``tensor_split`` along axis 2 of a tensor of rank 3 or more."""
    return _split_along(input, _pieces("dsplit", sections, indices), "dsplit", 3, 2)


def _split_along(input: Tensor, sections: Sections | None, name: str, least: int, axis: int) -> tuple[Tensor, ...]:
    shape = type_of(input).shape
    if len(shape) < least:
        raise UsageError(
            f"torch.{name} requires a tensor with at least {least} dimension, but got a tensor with {len(shape)} "
            "dimensions!"
        )
    if isinstance(sections, int) and (sections < 1 or shape[axis] % sections):
        raise UsageError(
            f"torch.{name} attempted to split along dimension {axis}, but the size of the dimension {shape[axis]} is "
            f"not divisible by the split_size {sections}!"
        )
    return tensor_split(input, sections, axis)


@declared()
def unbind(input: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """A view for every position of an axis."""
    axis = normalize_axis(dim, type_of(input).ndim, "unbind")
    rows = (lambda: tuple(input[k] for k in range(type_of(input).shape[0]))) if axis == 0 else None
    return several_views(input, rows or (lambda: ops.unbind(input, axis)), (axis, True), "UnbindBackward0", ())


def _scattered(input: Tensor, src: Tensor, show: Callable[[Tensor], Tensor]) -> Tensor:
    """``input`` with the elements that the view ``show(input)`` shows replaced by ``src``, as a new tensor."""
    with grad_mode(False):
        seen = _shown_without_layers(input, show) if state.layers else show(input)
    view_of = seen._view
    assert view_of is not None
    base = view_of.base
    skip = len(input._view.chain) if input._view is not None and base is not input and not state.layers else 0
    if type_of(src).shape != type_of(seen).shape:
        raise UsageError(
            "expected src to have a size equal to the slice of self. src size = "
            f"{list(type_of(src).shape)}, slice size = {list(type_of(seen).shape)}"
        )
    return apply(ViewUpdate(view_of.chain[skip:]), input, cast(src, type_of(input).dtype))


def _shown_without_layers(input: Tensor, show: Callable[[Tensor], Tensor]) -> Tensor:
    """The view of a tensor like an element of a batch: what the layers hold shows no views."""
    before, like = state.layers, type_of(input)
    with outside_trace():
        set_layers(())
        try:
            return show(wrap(np.empty(like.shape, like.dtype.numpy)))
        finally:
            set_layers(before)


@declared()
def select_scatter(input: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """A copy of ``input`` with ``src`` at one position of an axis."""
    return _scattered(input, src, lambda x: select(x, dim, index))


@declared()
def slice_scatter(
    input: Tensor, src: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor:
    """A copy of ``input`` with ``src`` at ``start:end:step`` of an axis."""
    index = [slice(None)] * type_of(input).ndim
    index[normalize_axis(dim, len(index), "slice_scatter")] = slice(start, end, step)
    return _scattered(input, src, lambda x: x[tuple(index)])


@declared()
def diagonal_scatter(input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """A copy of ``input`` with ``src`` on a diagonal."""
    return _scattered(input, src, lambda x: diagonal(x, offset, dim1, dim2))


@declared()
def as_strided_scatter(
    input: Tensor, src: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Tensor:
    """A copy of ``input`` with ``src`` where ``as_strided`` shows its elements."""
    whole = clone(input) if input._view is not None else input
    return _scattered(whole, src, lambda x: as_strided(x, size, stride, storage_offset))
