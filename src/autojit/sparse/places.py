"""What ops do to COO tensors that only give elements other places: shapes, slices, chosen positions, joining.

How many elements a slice keeps depends on the places, so slices and choices are made outside of captured steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autojit.core.device_array import host_copy
from autojit.core.errors import UnsupportedError
from autojit.core.layout import sparse_coo, sparse_csr
from autojit.functions.factories import tensor
from autojit.functions.shape import cat, stack
from autojit.sparse.tensor import SparseTensor, concrete_indices, make
from autojit.tensor import Tensor
from autojit.tensor.tensor import type_of


def flat_places(indices: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Places in the flattened axes: ``i64[k, n] -> i64[n]``."""
    axes = type_of(indices).shape[0]
    if not axes:
        return indices.new_zeros((type_of(indices).shape[1],))
    found = indices[0]
    for axis in range(1, axes):
        found = found * shape[axis] + indices[axis]
    return found


def _coo(op: Any, x: Tensor) -> SparseTensor:
    """The operand as a COO tensor: of a compressed one, too, whose elements are at the same places."""
    if not isinstance(x, SparseTensor) or x._blocksize is not None:
        raise UnsupportedError(
            f"{op.name} is not implemented for {x.layout!r} tensors", {"operand": type_of(x)}, "x.to_sparse() is COO"
        )
    if x.layout is sparse_coo:
        return x
    return make(x._index_part, x._values_part, type_of(x).shape, sparse_coo, x.layout is sparse_csr)


def _reshape(op: Any, operands: Sequence[Tensor]) -> Tensor:
    """Other sparse axes; those that are kept whole stay as they are. A number is dense, as in torch."""
    s = _coo(op, operands[0])
    kept = s.dense_dim()
    shape, before = tuple(op.shape), type_of(s).shape
    axes = len(shape) - kept
    if axes < 0 or shape[axes:] != before[len(before) - kept :]:
        raise UnsupportedError(
            "reshape: the axes of a sparse tensor that are kept whole stay", {"operand": type_of(s), "shape": shape}
        )
    if not axes:
        return s._values_part.sum(0)
    place = flat_places(s._index_part, before)
    found = []
    for extent in reversed(shape[:axes]):
        found.append(place % extent if extent else place)
        place = place // extent if extent else place
    return make(stack(found[::-1]), s._values_part, shape, sparse_coo, s._is_coalesced)


def _slice(op: Any, operands: Sequence[Tensor]) -> Tensor:
    s = _coo(op, operands[0])
    places, axes = concrete_indices(s, "slice"), s.sparse_dim()
    starts, stops, steps = (np.array(given[:axes])[:, None] for given in (op.starts, op.stops, op.steps))
    inside = (places >= starts) & (places < stops) & ((places - starts) % steps == 0)
    kept = tensor(np.flatnonzero(inside.all(0)), device=s.device)
    indices = stack([(s._index_part[a] - op.starts[a]) // op.steps[a] for a in range(axes)]).index_select(1, kept)
    whole = tuple(slice(*span) for span in list(zip(op.starts, op.stops, op.steps, strict=True))[axes:])
    values = s._values_part.index_select(0, kept)[(slice(None), *whole)]
    return make(indices, values, op.extents, sparse_coo, s._is_coalesced)


def _index_select(op: Any, operands: Sequence[Tensor]) -> Tensor:
    """Positions along an axis, however often each."""
    s, chosen = _coo(op, operands[0]), operands[1]
    shape, axes = op.result_type(type_of(s), type_of(chosen)).shape, s.sparse_dim()
    if op.axis >= axes:
        values = s._values_part.index_select(op.axis - axes + 1, chosen)
        return make(s._index_part, values, shape, sparse_coo, s._is_coalesced)
    line = concrete_indices(s, "index_select")[op.axis]
    if chosen._array is None:
        raise UnsupportedError("index_select: which elements are chosen is not known inside a captured step")
    wanted = host_copy(chosen._array)
    type(op)(0).eager(np.zeros(type_of(s).shape[op.axis]), wanted)  # says what is out of range
    order = np.argsort(line, kind="stable")
    begins, ends = (np.searchsorted(line[order], wanted, side) for side in ("left", "right"))
    kept = [order[begin:end] for begin, end in zip(begins, ends, strict=True)]
    from_ = tensor(np.concatenate([*kept, np.zeros(0, np.int64)]).astype(np.int64), device=s.device)
    to = tensor(np.repeat(np.arange(len(wanted)), ends - begins), device=s.device)
    indices = [to if a == op.axis else s._index_part[a].index_select(0, from_) for a in range(axes)]
    return make(
        stack(indices), s._values_part.index_select(0, from_), shape, sparse_coo, s._is_coalesced and not op.axis
    )


def _concatenate(op: Any, operands: Sequence[Tensor]) -> Tensor:
    """Places one after another along a sparse axis; along one that is kept whole each has zeros beside its values.

    Raises:
        UnsupportedError: a dense operand, another layout, or operands that keep other axes whole.
    """
    given = [t for t in operands if isinstance(t, SparseTensor) and t.layout is sparse_coo]
    axes = {t.sparse_dim() for t in given}
    if len(given) != len(operands) or len(axes) != 1:
        raise UnsupportedError(
            "cat: only COO tensors are joined, and those with as many sparse axes",
            {"operands": ", ".join(f"{t.layout!r} {type_of(t)}" for t in operands), "axis": op.axis},
            "convert to dense first: x.to_dense()",
        )
    shape = op.result_type(*[type_of(t) for t in operands]).shape
    whole = op.axis - axes.pop()
    if whole >= 0:
        indices, values = [t._index_part for t in given], _beside_zeros(given, op.axis, 1 + whole)
        return make(cat(indices, 1), cat(values), shape)
    found, begin = [], 0
    for t in given:
        step = t._index_part.new_zeros((type_of(t._index_part).shape[0], 1))
        step[op.axis] = begin
        found.append(t._index_part + step)
        begin += type_of(t).shape[op.axis]
    return make(cat(found, 1), cat([t._values_part for t in given]), shape)


def _beside_zeros(given: Sequence[SparseTensor], axis: int, of_values: int) -> list[Tensor]:
    """The values along an axis that is kept whole: zeros where the other tensors are."""
    extents = [type_of(t).shape[axis] for t in given]
    found = []
    for k, t in enumerate(given):
        shape = list(type_of(t._values_part).shape)
        blocks = [t._values_part.new_zeros((*shape[:of_values], n, *shape[of_values + 1 :])) for n in extents]
        found.append(cat([*blocks[:k], t._values_part, *blocks[k + 1 :]], of_values))
    return found


RULES_OF_PLACES: dict[str, Callable[[Any, Sequence[Tensor]], Tensor]] = {
    "reshape": _reshape, "slice": _slice, "index_select": _index_select, "concatenate": _concatenate,
}  # fmt: skip
