"""Picking and scattering by index: gather, index_select, take, scatter, index_add, masked forms, searching."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from autojit import ops
from autojit.core.device_array import host_copy
from autojit.core.dtypes import bool_, int32, int64
from autojit.core.errors import DTypeError, IndexingError, ShapeError, UsageError
from autojit.core.sizes import seems_equal
from autojit.dispatch.call_programs import by_calls
from autojit.dispatch.declared import EXACT_OUT, Out, declared
from autojit.dispatch.dispatch import number
from autojit.dispatch.on_device import beside, placed
from autojit.dispatch.promotion import NUMBERS, Number, Operand, as_operand, cast, together
from autojit.dispatch.requirements import is_known, require
from autojit.dispatch.view_nodes import no_view
from autojit.functions.comparison import clamp, lt, where
from autojit.functions.elementwise import add, sub, times
from autojit.functions.indexing import put as put_at
from autojit.functions.own_memory import no_view_of_parts
from autojit.functions.refused_dtypes import refuses
from autojit.ops.base import broadcast_shapes, normalize_axis
from autojit.ops.indexing import FROM_THE_FRONT
from autojit.tensor.state import state
from autojit.tensor.tensor import Tensor, counted_with, type_of, wrap

_FEW_TESTS = 16  # of isin: more are searched in order


def _index(index: Tensor, what: str) -> Tensor:
    dtype = type_of(index).dtype
    if dtype is int64:
        return index
    if dtype is int32 or type_of(index).size == 0:
        return cast(index, int64)
    raise DTypeError(f"{what}(): Expected dtype int64 for index", {"index": index}, "convert it: index.long()")


def _long(index: Tensor, what: str) -> Tensor:
    """The index of a function that takes no int32."""
    if type_of(index).dtype is not int64:
        raise DTypeError(f"{what}(): Expected a long tensor for index", {"index": index}, "convert it: index.long()")
    return index


def _line(index: Tensor, what: str) -> Tensor:
    """The index of a function that takes a vector of positions, or one."""
    if type_of(index).ndim > 1:
        raise IndexingError(f"{what}(): Index is supposed to be a vector or scalar", {"index": index}, "index.ravel()")
    return _index(index, what)


def from_the_front(index: Tensor) -> Tensor:
    """An index whose negative entries are outside: only ``x[index]``, ``take`` and their kin count from the end.

    They become a place that the look-up refuses. What layers do not change is looked at itself: a history that keeps it
    then sees its changes.
    """
    array = index._array
    if type(array) is np.ndarray and state.trace is None and not (array.size and array.min() < 0):
        return index
    return counted_with(where(lt(index, 0), sub(index, number(FROM_THE_FRONT, int64)), index), index)


@declared(out=Out(is_apart=True, is_exact=True))
def gather(input: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Tensor:
    """``y[i][j] = x[index[i][j]][j]`` for ``dim`` 0: picks along one axis, one index per result element."""
    places = from_the_front(_index(index, "gather"))
    found: Tensor = by_calls(("gather", dim), lambda x, index: ops.gather(x, dim, index), input, places)
    return no_view(found, input)


@declared(out=Out(is_apart=True))
def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """``gather`` with broadcasting; without ``dim`` on the flattened tensor."""
    if type_of(indices).dtype is not int64:
        kind = type_of(indices).dtype.name
        raise DTypeError(
            f"take_along_dim(): dtype of indices should be Long but got {kind}", {"indices": indices}, "indices.long()"
        )
    if dim is not None and type_of(input).ndim != type_of(indices).ndim:
        raise ShapeError(
            f"take_along_dim(): input and indices should have the same number of dimensions, but got "
            f"{type_of(input).ndim} dimensions for input, and {type_of(indices).ndim} dimensions for indices"
        )
    return ops.take_along_axis(input, indices, dim)


@declared(out=Out(is_apart=True, is_exact=True))
def index_select(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """The slices along ``dim`` at a vector of positions."""
    places = from_the_front(_line(index, "index_select"))
    found: Tensor = by_calls(("index_select", dim), lambda x, index: ops.index_select(x, dim, index), input, places)
    return no_view(found, input)


@declared(out=Out(is_apart=True, is_exact=True))
def take(input: Tensor, index: Tensor) -> Tensor:
    """Elements of the flattened tensor."""
    return no_view(ops.take(input, _long(index, "take")), input)


@declared(in_place="values")
@no_view_of_parts
def put(input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """A copy with elements of the flattened tensor replaced by those of ``source`` (or increased by them)."""
    places = _long(index, "put_")
    if type_of(source).size != type_of(places).size:
        raise UsageError(
            "put_(): Expected source and index to have the same number of elements, but got source.numel() = "
            f"{type_of(source).size}, index.numel() = {type_of(places).size}"
        )
    if type_of(source).dtype is not type_of(input).dtype:
        raise DTypeError("put_(): self and source expected to have the same dtype", {"input": input, "source": source})
    flat = ops.index_put(input.reshape(-1), [places.reshape(-1)], source.reshape(-1), accumulate)
    return flat.reshape(type_of(input).shape)


def _source(input: Tensor, index: Tensor, src: Tensor | complex) -> Tensor:
    t = type_of(input)
    if isinstance(src, NUMBERS):
        return number(src, t.dtype, t.device).expand(type_of(index).shape)
    if type_of(src).dtype is not t.dtype:
        raise DTypeError("scatter(): Expected self.dtype to be equal to src.dtype", {"input": input, "src": src})
    return src


@declared(in_place="values", out=True)
def scatter(
    input: Tensor, dim: int, index: Tensor, src: Any = None, *, reduce: str | None = None, value: Any = None
) -> Tensor:
    """``input`` with ``src`` (a tensor or a number) written along ``dim`` at ``index``; ``reduce="add"`` adds,
    ``"multiply"`` multiplies.
    """
    places = from_the_front(_index(index, "scatter"))
    source = _source(input, places, value if src is None else src)
    if reduce == "add":
        return ops.scatter_add(input, dim, places, source)
    if reduce == "multiply":
        return ops.scatter_fold(input, dim, places, source, "mul")
    if reduce is not None:
        raise UsageError(f"reduce argument must be either add or multiply, got {reduce}.")
    return ops.scatter(input, dim, places, source)


@declared(in_place="values", out=True)
def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """``input`` with ``src`` added along ``dim`` at ``index``; equal places add up."""
    places = from_the_front(_index(index, "scatter_add"))
    return ops.scatter_add(input, dim, places, _source(input, places, src))


def require_slices(name: str, input: Tensor, source: Tensor) -> None:
    """Raise where ``source`` has more or fewer axes than the tensor whose slices it changes."""
    if type_of(source).ndim != type_of(input).ndim:
        raise ShapeError(
            f"{name}: source tensor shape must match self tensor shape, excluding the specified dimension. Got "
            f"self.shape = {list(input.shape)} source.shape = {list(source.shape)}",
            {"input": input, "source": source},
        )


@declared(in_place="values", out=True)
@no_view_of_parts
def index_add(input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Number = 1) -> Tensor:
    """``input`` with the slices of ``source`` added at positions along ``dim``."""
    normalize_axis(dim, type_of(input).ndim, "index_add")
    require_slices("index_add", input, source)
    addends = times(source, alpha)
    if type_of(input).ndim == 0:
        return index_add(input.reshape(1), 0, index.reshape(-1), addends.reshape(-1)).reshape(())
    return ops.index_add(input, dim, from_the_front(_line(index, "index_add")), addends)


@declared(in_place="values", out=True)
@no_view_of_parts
def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """``input`` with the slices of ``source`` written at positions along ``dim``."""
    if type_of(source).ndim == 0 and type_of(input).ndim == 1:
        source = source.reshape(1)
    if type_of(input).ndim == 0:
        normalize_axis(dim, 0, "index_copy")
        if type_of(source).ndim > 1:
            require_slices("index_copy", input, source)
        return index_copy(input.reshape(1), 0, index.reshape(-1), source.reshape(1)).reshape(())
    places = from_the_front(_line(_long(index, "index_copy"), "index_copy"))
    return ops.index_copy(input, dim, places, source)


@declared(in_place="values")
def index_fill(input: Tensor, dim: int, index: Tensor, value: Tensor | Number) -> Tensor:
    """``input`` with a value at positions along ``dim``; positions may repeat."""
    t = type_of(input)
    axis = normalize_axis(dim, t.ndim, "index_fill")
    _require_number("index_fill_", value)
    places = _line(index, "index_fill").reshape(-1)
    extent = t.shape[axis] if t.ndim else 1
    none = number(False, bool_, t.device).expand(extent)
    all_ = number(True, bool_, t.device).expand(type_of(places).shape)
    chosen = ops.index_copy(none, 0, places, all_)
    aligned = chosen.reshape([extent if a == axis else 1 for a in range(t.ndim)])
    filling = number(value, t.dtype) if isinstance(value, NUMBERS) else cast(as_operand(value), t.dtype)
    return where(aligned, filling, input)


def _require_number(name: str, value: object) -> None:
    if isinstance(value, Tensor) and type_of(value).ndim:
        raise UsageError(
            f"{name} only supports a 0-dimensional value tensor, but got tensor with {type_of(value).ndim} "
            "dimension(s)."
        )


@declared(in_place="values")
def index_put(input: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> Tensor:
    """``input`` with ``values`` written (or added) at ``input[indices]``."""
    written = put_at(
        input, tuple(slice(None) if i is None else i for i in indices), values, accumulate
    )  # says first, as torch does, that the shapes do not fit
    if type_of(values).dtype is not type_of(input).dtype:  # said after what does not fit in shape, as in torch
        raise DTypeError(
            "Index put requires the source and destination dtypes match, got "
            f"{type_of(input).dtype.scalar_type} for the destination and {type_of(values).dtype.scalar_type} for the "
            "source.",
            {"input": input, "values": values},
        )
    return written


@declared(in_place="values")
def masked_fill(input: Tensor, mask: Tensor, value: Tensor | Number) -> Tensor:
    """``value`` where the mask holds."""
    if type_of(mask).dtype is not bool_:
        raise UsageError(f"masked_fill_ only supports boolean masks, but got mask with dtype {mask.dtype}")
    t = type_of(input)
    if isinstance(value, Tensor) and type_of(value).dtype.is_complex and not t.dtype.is_complex:
        raise UsageError(f"value cannot be converted to type {t.dtype.name} without overflow", {"value": value})
    if isinstance(value, Tensor):
        _require_number("masked_fill", value)
        return where(mask, cast(value, t.dtype), input)
    return where(mask, number(value, t.dtype), input)


@declared(in_place="values")
def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """``input`` with consecutive elements of ``source`` where the mask holds."""
    if type_of(mask).dtype is not bool_:
        raise UsageError(f"masked_scatter_ only supports boolean masks, but got mask with dtype {type_of(mask).dtype}")
    if type_of(source).dtype is not type_of(input).dtype:
        raise UsageError(
            f"masked_scatter: expected self and source to have same dtypes but got {type_of(input).dtype} and "
            f"{type_of(source).dtype}",
            {"source": source},
        )
    shape = broadcast_shapes(type_of(input).shape, type_of(mask).shape, op="masked_scatter")
    input = input if type_of(input).shape == shape else input.expand(shape)
    mask = mask.expand(shape)
    t = type_of(input)
    wide = cast(mask, int64).reshape(-1)
    place = add(wide.cumsum(0), -1)
    flat = source.reshape(-1)
    if not is_known(mask) or int(host_copy(mask._array).sum()) > type_of(flat).size:
        valid, named = "the number of elements of source at most", "the true elements of mask"
        refusal = "masked_scatter: Number of elements of source is less than the number of ones in mask"
        require(wide.sum(), lambda count: count <= type_of(flat).size, refusal, valid, named=named)
    if seems_equal(type_of(flat).size, 0):
        return where(mask, input, input)
    picked = ops.gather(flat, 0, clamp(place, 0, type_of(flat).size - 1)).reshape(t.shape)
    return where(mask, picked, input)


@declared(out=EXACT_OUT)
def searchsorted(
    sorted_sequence: Tensor,
    input: Operand,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    """Where to insert values to keep a sequence in order, before equal elements or (``right``) after them.

    ``sorter`` holds the positions that sort ``sorted_sequence`` along its last axis, if it is not sorted itself.
    """
    if side not in (None, "left", "right"):
        raise UsageError(f"torch.searchsorted(): side can only be 'left' or 'right' but got {side}")
    if right and side == "left":
        raise UsageError("torch.searchsorted(): side and right can't be set to opposites, got side of left while "
                         "right was True")  # fmt: skip
    if sorter is not None:
        if type_of(sorter).shape != type_of(sorted_sequence).shape:
            raise UsageError("torch.searchsorted(): boundary and sorter must have the same size")
        sorted_sequence = gather(sorted_sequence, -1, sorter)
    a, b = together(sorted_sequence, beside(input, sorted_sequence), "searchsorted")
    if type_of(a).ndim != 1 and type_of(b).ndim == 0:
        raise ShapeError(
            "torch.searchsorted(): input value can be a scalar only when boundaries tensor dimension is 1, but we got "
            f"boundaries tensor dim({type_of(a).ndim})",
            {"boundaries": a, "input value": b},
        )
    if type_of(a).ndim != 1 and type_of(a).shape[:-1] != type_of(b).shape[:-1]:
        raise ShapeError(
            "torch.searchsorted(): boundaries tensor should be 1 dimension or the first N-1 dimensions of boundaries "
            "tensor and input value tensor must match",
            {"boundaries": a, "input value": b},
        )
    found = ops.searchsorted(a, b, right or side == "right")
    return cast(found, int32) if out_int32 else found


@declared(out=EXACT_OUT)
@no_view_of_parts
def bucketize(input: Operand, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> Tensor:
    """Which bucket between boundaries each element falls in."""
    if type_of(boundaries).ndim != 1:
        raise ShapeError(
            f"torch.bucketize(): boundaries tensor must be 1 dimension, but got dim({type_of(boundaries).ndim})",
            {"boundaries": boundaries},
        )
    return searchsorted(boundaries, input, out_int32=out_int32, right=right)


@declared(out=True)
@refuses("bool complex")
def isin(elements: Operand, test_elements: Operand, *, assume_unique: bool = False, invert: bool = False) -> Tensor:
    """Whether each element is among the test elements."""
    near = elements if isinstance(elements, Tensor) else test_elements
    x, pool = (beside(each, as_operand(near)) for each in (elements, test_elements))
    if type_of(pool).size > _FEW_TESTS:
        a, b = together(x, pool, "isin")
        line = b.reshape(-1).sort().values
        place = clamp(ops.searchsorted(line, a), 0, type_of(line).size - 1)
        found = ops.take(line, place) == a
    else:
        found = (x.unsqueeze(-1) == pool.reshape(-1)).any(-1)
    return found.logical_not() if invert else found


def one_hot_like(index: Tensor, classes: int) -> Tensor:
    """int64 rows with a 1 at each index."""
    if classes <= 0:
        raise ShapeError("Class values must be smaller than num_classes.", {"index": index})
    line = placed(ops.reshape(wrap(np.arange(classes)), (classes,)), type_of(index).device)
    return cast(index.unsqueeze(-1) == line, int64)
