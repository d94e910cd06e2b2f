"""Shapes, joining, matrix products. The views that pick parts of a tensor are in ``functions_views``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, SupportsIndex, overload

from autojit import ops
from autojit.core.device_array import is_concrete
from autojit.core.dtypes import int64, result_type
from autojit.core.errors import ArgumentError, ArgumentKindError, ShapeError, UsageError, tensors_expected
from autojit.core.sizes import agree, as_extent, as_size, seems_equal
from autojit.dispatch.declared import EXACT_OUT, Out, declared
from autojit.dispatch.dispatch import apply
from autojit.dispatch.kernels import in_one_step
from autojit.dispatch.promotion import cast
from autojit.dispatch.view_memo import remembered
from autojit.dispatch.view_nodes import one_node
from autojit.functions.elementwise import clone
from autojit.functions.formats import in_their_format
from autojit.functions.matrix_ranks import counted_extents, require_lines, require_matrices
from autojit.functions.own_memory import own_memory
from autojit.history.op_node import rename_node
from autojit.ir.op import Op, bind
from autojit.ops.base import broadcast_shapes as broadcast
from autojit.ops.base import normalize_axis, sum_to
from autojit.tensor.size import Size
from autojit.tensor.state import computes_at_once, state
from autojit.tensor.tensor import Tensor, type_of

Dims = int | Sequence[int]
Sizes = SupportsIndex | Sequence[SupportsIndex]
"""Extents or axes, one of several or all."""
Tensors = Tensor | Sequence[Tensor]


def sizes_of(sizes: tuple[Any, ...]) -> tuple[int, ...]:
    """Extents given one by one or as one sequence."""
    if len(sizes) == 1 and isinstance(sizes[0], tuple | list):
        sizes = tuple(sizes[0])
    found = tuple([as_size(n) for n in sizes])
    for n in found:
        if type(n) is int and n < -1:
            raise ShapeError(f"invalid shape dimension {n} at index {found.index(n)} of shape {list(found)}")
    return found


def axes_of(axes: tuple[Any, ...]) -> tuple[int, ...]:
    """Axes given one by one or as one sequence."""
    if len(axes) == 1 and isinstance(axes[0], tuple | list):
        axes = tuple(axes[0])
    return tuple([as_extent(n) for n in axes])


@declared()
@remembered
def reshape(input: Tensor, *args: Sizes, shape: Sizes | None = None) -> Tensor:
    """The same elements under another shape; one extent may be -1. A view where strides allow it."""
    sizes = sizes_of(args) if shape is None else sizes_of((shape,))
    return _another(ops.reshape(input, sizes), input)


def _another(found: Tensor, input: Tensor, node: str = "") -> Tensor:
    """A view that is a tensor of its own, with its own shape and history, also where there was nothing to do."""
    if found is not input:
        return found
    seen = input.clone() if input.is_sparse else bind(ops.Reshape(type_of(input).shape), input)
    return one_node(seen, input, node) if node else seen


@declared()
@remembered
def permute(input: Tensor, *args: Sizes, dims: Sizes | None = None) -> Tensor:
    """Reorder the axes."""
    return _another(ops.permute(input, axes_of(args) if dims is None else axes_of((dims,))), input, "PermuteBackward0")


@declared(aliases="swapdims", in_place="shape")
@remembered
def transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """Exchange two axes."""
    return one_node(_another(ops.transpose(input, dim0, dim1), input), input, "TransposeBackward0")


@declared(in_place="shape")
@remembered
def swapaxes(input: Tensor, axis0: int, axis1: int) -> Tensor:
    """``transpose`` under NumPy's name."""
    return transpose(input, axis0, axis1)


@declared(in_place="shape")
@remembered
def t(input: Tensor) -> Tensor:
    """The transpose of a matrix; tensors of rank 0 and 1 as they are."""
    ndim = type_of(input).ndim
    if ndim > 2:
        raise UsageError(f"t() expects a tensor with <= 2 dimensions, but self is {ndim}D")
    return one_node(_another(input, input) if ndim < 2 else ops.transpose(input, 0, 1), input, "TBackward0")


@declared()
def adjoint(input: Tensor) -> Tensor:
    """The conjugate transpose of the last two axes."""
    require_matrices("adjoint()", input)
    return transpose(input, -2, -1).conj()


@declared(in_place="shape", reads_numbers=True)
@remembered
def squeeze(input: Tensor, dim: Dims | None = None) -> Tensor:
    """Drop axes of extent 1."""
    if isinstance(dim, list):
        dim = tuple(dim)
    found: Tensor = ops.squeeze(input, dim)
    number = 0 if dim is None else 2 if isinstance(dim, tuple) else 1
    return one_node(_another(found, input), input, f"SqueezeBackward{number}")


@declared(in_place="shape")
@remembered
def unsqueeze(input: Tensor, dim: int) -> Tensor:
    """Insert an axis of extent 1."""
    return one_node(ops.unsqueeze(input, dim), input, "UnsqueezeBackward0")


@declared()
@remembered
def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Merge axes into one."""
    return ops.flatten(input, start_dim, end_dim)


@declared()
def ravel(input: Tensor) -> Tensor:
    """All elements in one axis."""
    return reshape(input.contiguous(), -1)


@declared()
@remembered
def unflatten(input: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
    """Split one axis into several."""
    return _another(ops.unflatten(input, dim, sizes), input)


@declared(aliases="moveaxis", reads_numbers=True)
@remembered
def movedim(input: Tensor, source: Dims, destination: Dims) -> Tensor:
    """Move axes to new places."""
    return _another(ops.moveaxis(input, source, destination), input)


@declared(function=False)
@remembered
def expand(input: Tensor, *args: Sizes, size: Sizes | None = None, implicit: bool = False) -> Tensor:
    """Broadcast to ``sizes``; -1 keeps an extent. A view."""
    return _another(ops.expand(input, sizes_of(args) if size is None else sizes_of((size,))), input, "ExpandBackward0")


@declared(function=False)
def expand_as(input: Tensor, other: Tensor) -> Tensor:
    """``expand`` to the shape of another tensor."""
    return expand(input, type_of(other).shape)


@declared()
def broadcast_to(input: Tensor, size: Sequence[int]) -> Tensor:
    """``expand`` as a function."""
    return expand(input, size)


@declared(method=False)
def broadcast_tensors(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The tensors broadcast against each other."""
    shape = broadcast_shapes(*[type_of(x).shape for x in tensors])
    return tuple(expand(x, shape) for x in tensors)


@declared(method=False)
def broadcast_shapes(*shapes: int | Sequence[int]) -> Size:
    """The shape that tensors of the given shapes broadcast to."""
    given = [(s,) if isinstance(s, int) else tuple(s) for s in shapes]
    return Size(broadcast(*map(counted_extents, given), op="broadcast_shapes") if given else ())


@declared(function=False)
def sum_to_size(input: Tensor, *size: Sizes) -> Tensor:
    """Sum to a shape that broadcasts to the operand's; sums of integers and bools are int64."""
    shape, wanted = type_of(input).shape, sizes_of(size)
    added = len(shape) - len(wanted)
    if added < 0 or not all(n == 1 or agree(n, m) for n, m in zip(wanted, shape[added:], strict=True)):
        raise ShapeError(f"size {{{list(wanted)}}} is not expandable to size {{{list(shape)}}}.")
    is_whole = type_of(input).dtype.category < 2 and (not wanted or wanted != shape)
    made = sum_to(cast(input, int64) if is_whole else input, wanted)
    return input if wanted and wanted == shape else _in_memory_of_its_own(made, input)


@declared(function=False)
def repeat(input: Tensor, *args: Sizes, repeats: Sizes | None = None) -> Tensor:
    """The whole tensor repeated along each axis."""
    return _in_memory_of_its_own(ops.repeat(input, sizes_of(args) if repeats is None else sizes_of((repeats,))), input)


@declared()
def tile(input: Tensor, *args: Sizes, dims: Sizes | None = None) -> Tensor:
    """NumPy's tile."""
    if not args and dims is None:
        raise ArgumentKindError('tile() missing 1 required positional arguments: "dims"', {"input": input})
    return _in_memory_of_its_own(ops.tile(input, sizes_of(args) if dims is None else sizes_of((dims,))), input)


def _in_memory_of_its_own(found: Tensor, input: Tensor) -> Tensor:
    """``found``, copied where it is a broadcast view: torch's results of these names may be written to."""
    return clone(found) if found is input or found._is_view() else found


@declared()
@own_memory
def roll(input: Tensor, shifts: Dims, dims: Dims | None = ()) -> Tensor:
    """Rotate along axes."""
    return ops.roll(input, shifts, dims)


@declared()
@own_memory
def flip(input: Tensor, *args: Sizes, dims: Sizes | None = None) -> Tensor:
    """Reverse the order along axes; a copy."""
    if not args and dims is None:
        raise ArgumentKindError('flip() missing 1 required positional arguments: "dims"', {"input": input})
    axes = axes_of(args) if dims is None else axes_of((dims,))
    return ops.flip(input, axes) if axes else clone(input)


@declared()
def fliplr(input: Tensor) -> Tensor:
    """Reverse axis 1."""
    if type_of(input).ndim < 2:
        raise UsageError("Input must be >= 2-d.")
    return flip(input, 1)


@declared()
def flipud(input: Tensor) -> Tensor:
    """Reverse axis 0."""
    if type_of(input).ndim < 1:
        raise UsageError("Input must be >= 1-d.")
    return flip(input, 0)


@declared()
def rot90(input: Tensor, k: int = 1, dims: Sequence[int] = (0, 1)) -> Tensor:
    """Rotate by ``k`` quarter turns in the plane of two axes."""
    if len(dims) != 2:
        raise UsageError(f"expected total rotation dims == 2, but got dims = {len(dims)}")
    ndim = type_of(input).ndim
    if ndim < 2:
        raise UsageError(f"expected total dims >= 2, but got total dims = {ndim}")
    a, b = (normalize_axis(axis, ndim, "rot90") for axis in dims)
    if a == b:
        raise UsageError(f"expected rotation dims to be different, but got dim0 = {dims[0]} and dim1 = {dims[1]}")
    turns = k % 4
    if turns == 0:
        return clone(input)
    if turns == 2:
        return flip(input, (a, b))
    return flip(transpose(input, a, b), a if turns == 1 else b)


@declared(aliases="concat concatenate", method=False, out=Out(is_apart=True))
def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Join along an axis; dtypes are promoted; empty vectors are skipped."""
    given: object = tensors
    if isinstance(given, Tensor):
        raise tensors_expected("cat")
    if (op := _concatenation(tensors, dim)) is not None:
        return in_their_format(apply(op, *tensors), tensors)
    if not tensors:
        raise ArgumentError("cat(): expected a non-empty list of Tensors")
    dtype = result_type([(type_of(x).dtype, type_of(x).ndim) for x in tensors])
    if any(type_of(x).ndim == 0 for x in tensors):
        raise UsageError("zero-dimensional tensor (at position 0) cannot be concatenated")
    axis = 0 if all(map(_is_empty_vector, tensors)) else dim  # what is skipped has no axes of its own
    found: Tensor = ops.concatenate([cast(x, dtype) for x in _fitting_empty(tensors, axis)], axis)
    return in_their_format(clone(found) if any(found is x for x in tensors) else found, tensors)  # always a copy


def _fitting_empty(tensors: Sequence[Tensor], dim: int) -> Sequence[Tensor]:
    """The operands, empty vectors beside operands of another rank in a shape that joins them."""
    shape = next((type_of(x).shape for x in tensors if not _is_empty_vector(x)), (0,))
    if len(shape) == 1:
        return tensors
    axis = normalize_axis(dim, len(shape), "cat")
    nothing = (*shape[:axis], 0, *shape[axis + 1 :])
    return [reshape(x, nothing) if _is_empty_vector(x) else x for x in tensors]


def _is_empty_vector(x: Tensor) -> bool:
    shape = type_of(x).shape
    return len(shape) == 1 and seems_equal(shape[0], 0)


def _concatenation(tensors: Sequence[Tensor], dim: int) -> Op | None:
    """The op when the tensors are several concrete ones of one dtype and rank, none of them empty, as most often."""
    first = tensors[0]._array if len(tensors) > 1 else None
    if first is None or not first.ndim or type(dim) is not int:
        return None
    dtype, ndim = first.dtype, first.ndim
    for x in tensors:
        array = x._array
        if not is_concrete(array) or array.dtype is not dtype or array.ndim != ndim or not array.size:
            return None
    return _concatenation_along(dim, ndim)


@lru_cache(maxsize=256)
def _concatenation_along(dim: int, ndim: int) -> Op:
    return ops.Concatenate(normalize_axis(dim, ndim, "cat"))


@declared(method=False, out=True)
def stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Join along a new axis."""
    if not tensors:
        raise UsageError("stack expects a non-empty TensorList")
    if (op := _stacking(tensors, dim)) is not None:
        return in_their_format(apply(op, *tensors), tensors, dim)
    dtype = result_type([(type_of(x).dtype, type_of(x).ndim) for x in tensors])
    found = rename_node(ops.stack([cast(x, dtype) for x in tensors], dim), "StackBackward0")
    return in_their_format(found, tensors, dim)


def _stacking(tensors: Sequence[Tensor], dim: int) -> Op | None:
    """The op when the tensors are concrete ones of one dtype and shape, as most often."""
    first = tensors[0]._array
    if not is_concrete(first) or type(dim) is not int or not computes_at_once():
        return None
    dtype, shape = first.dtype, first.shape
    for x in tensors:
        array = x._array
        if type(array) is not type(first) or array.dtype is not dtype or array.shape != shape:
            return None
    return _stacking_along(dim, len(shape))


@lru_cache(maxsize=256)
def _stacking_along(dim: int, ndim: int) -> Op:
    return ops.Stack(normalize_axis(dim, ndim + 1, "stack"))


@declared(method=False, out=True)
def hstack(tensors: Sequence[Tensor]) -> Tensor:
    """Join along axis 1 (0 for vectors)."""
    if not tensors:
        raise UsageError("hstack expects a non-empty TensorList")
    wide = [atleast_1d(x) for x in tensors]
    return cat(wide, 0 if type_of(wide[0]).ndim == 1 else 1)


@declared(aliases="row_stack", method=False, out=True)
def vstack(tensors: Sequence[Tensor]) -> Tensor:
    """Join along axis 0; vectors are rows."""
    if not tensors:
        raise UsageError("vstack expects a non-empty TensorList")
    return cat([atleast_2d(x) for x in tensors], 0)


@overload
def atleast_1d(tensor: Tensor, /) -> Tensor: ...
@overload
def atleast_1d(*tensors: Tensors) -> Any: ...
@declared(method=False)
def atleast_1d(*tensors: Tensors) -> Any:
    """With rank at least 1; of several tensors (or a sequence) a tuple."""
    return each(lambda x: x if type_of(x).ndim else reshape(x, 1), tensors)


@overload
def atleast_2d(tensor: Tensor, /) -> Tensor: ...
@overload
def atleast_2d(*tensors: Tensors) -> Any: ...
@declared(method=False)
def atleast_2d(*tensors: Tensors) -> Any:
    """With rank at least 2, new axes in front; of several tensors (or a sequence) a tuple."""
    return each(lambda x: x if type_of(x).ndim >= 2 else reshape(x, (1, -1)), tensors)


def each(function: Callable[[Tensor], Tensor], tensors: tuple[Any, ...]) -> Any:
    """A function of a tensor, or of every one of several or of a sequence: then a tuple."""
    if len(tensors) == 1 and isinstance(tensors[0], Tensor):
        return function(tensors[0])
    return tuple(function(x) for x in (tensors[0] if len(tensors) == 1 else tensors))


@declared(method=False)
def meshgrid(*tensors: Tensors, indexing: str | None = None) -> tuple[Tensor, ...]:
    """Coordinate grids of vectors; ``indexing`` is "ij" (the default) or "xy"."""
    given: list[Any] = list(tensors[0]) if len(tensors) == 1 and not isinstance(tensors[0], Tensor) else list(tensors)
    if indexing not in (None, "ij", "xy"):
        raise UsageError(f'meshgrid: indexing must be one of "xy" or "ij", but received: {indexing}')
    if not given:
        raise UsageError("meshgrid expects a non-empty TensorList")
    require_lines("meshgrid", given)
    swap = indexing == "xy" and len(given) > 1
    if swap:
        given[0], given[1] = given[1], given[0]
    shape = tuple(type_of(x).size for x in given)
    grids = [expand(reshape(x, (*(1,) * k, -1, *(1,) * (len(given) - k - 1))), shape) for k, x in enumerate(given)]
    if swap:
        grids[0], grids[1] = grids[1], grids[0]
    return tuple(grids)


@declared(in_place="values", out=EXACT_OUT, reads_numbers=True)
def tril(input: Tensor, diagonal: int = 0) -> Tensor:
    """The part on and below a diagonal, the rest 0."""
    return in_one_step("tril", (diagonal,), input, node="TrilBackward0", keeps=False)


@declared(in_place="values", out=EXACT_OUT, reads_numbers=True)
def triu(input: Tensor, diagonal: int = 0) -> Tensor:
    """The part on and above a diagonal, the rest 0."""
    return in_one_step("triu", (diagonal,), input, node="TriuBackward0", keeps=False)


@declared(out=EXACT_OUT)
@own_memory
def diag(input: Tensor, diagonal: int = 0) -> Tensor:
    """The diagonal of a matrix, or the matrix with a given diagonal."""
    if type_of(input).ndim == 1:
        return diag_embed(input, diagonal)
    return ops.diag(input, diagonal)


@declared()
def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Matrices with the last axis as diagonal."""
    options = (offset, dim1, dim2)
    return in_one_step("diag_embed", options, input, node="DiagEmbedBackward0", keeps=False)


@declared()
def trace(input: Tensor) -> Tensor:
    """The sum of a matrix's diagonal."""
    if state.autocast is not None:
        return state.autocast.full(trace, input)
    if type_of(input).ndim != 2:
        raise UsageError(f"trace: expected a matrix, but got tensor with dim {type_of(input).ndim}")
    return ops.diagonal(input).sum()
