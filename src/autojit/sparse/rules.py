"""What each op does with sparse operands, written with dense ops on places and values.

``apply`` is where the dispatcher sends an op that has a sparse operand. A rule works on the parts with ordinary tensor
functions, so history, derivatives of any order and captures follow from those.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from autojit.core.device_array import host_copy
from autojit.core.errors import ShapeError, UnsupportedError, UsageError
from autojit.core.layout import sparse_coo
from autojit.dispatch.dispatch import apply as apply_dense
from autojit.functions.shape import cat, stack
from autojit.history.op_node import rename_node
from autojit.ir.op import Op
from autojit.ops.base import Elementwise
from autojit.sparse.places import RULES_OF_PLACES, flat_places
from autojit.sparse.tensor import SparseTensor, beside, concrete_indices, make
from autojit.tensor import Tensor
from autojit.tensor.tensor import type_of

Rule = Callable[[Op, Sequence[Tensor]], Tensor]


def apply(op: Op, operands: Sequence[Tensor]) -> Any:
    """Apply an op some of whose operands are sparse.

    Raises:
        the type rule's error when the operands do not fit; NotImplementedError when the op has no sparse form.
    """
    result = op.result_type(*[type_of(t) for t in operands])
    rule = _RULES.get(op.name)
    if rule is not None:
        return rule(op, operands)
    if isinstance(op, Elementwise) and len(operands) == 1 and _keeps_zero(op, operands[0]):
        s = once(operands[0])
        return s.with_values(apply_dense(op, s._values_part))
    layouts = ", ".join(f"{t.layout!r} {type_of(t)}" for t in operands)
    raise UnsupportedError(
        f"{op.name} is not implemented for sparse operands",
        {"operands": layouts, "result": result},
        "convert to dense first: x.to_dense()",
    )


def _keeps_zero(op: Op, x: Tensor) -> bool:
    with np.errstate(all="ignore"):
        at_zero = op.eager(np.zeros((), type_of(x).dtype.numpy))
    return bool(at_zero == 0)


def once(s: Tensor) -> SparseTensor:
    """A sparse tensor with each place once, as functions that are not linear need it."""
    assert isinstance(s, SparseTensor)
    return s if s._is_coalesced or s._layout is not sparse_coo else s.coalesce()


# -------------------------------------------------------------------------------------------- places, in one number


def places(s: SparseTensor) -> Tensor:
    """Each element's place in the flattened sparse axes: ``i64[n]``."""
    return flat_places(s._index_part, type_of(s).shape)


def gathered(x: Tensor, indices: Tensor) -> Tensor:
    """The elements of a dense tensor at places ``i64[k, n]`` of its first k axes: ``f[n, *other axes]``."""
    shape = type_of(x).shape
    axes = type_of(indices).shape[0]
    rows = x.reshape((prod(shape[:axes]), *shape[axes:]))
    return rows.index_select(0, flat_places(indices, shape))


def dense(s: SparseTensor) -> Tensor:
    """All elements, in memory."""
    shape = type_of(s).shape
    axes = s.sparse_dim()
    base = s._values_part.new_zeros((prod(shape[:axes]), *shape[axes:]))
    return base.index_add(0, places(s), s._values_part).reshape(shape)


def values_at(x: Tensor, pattern: SparseTensor) -> Tensor:
    """The values of ``x`` at the places of ``pattern``; zero where a sparse ``x`` keeps none."""
    if isinstance(x, SparseTensor):
        if x._index_part is pattern._index_part:
            return x._values_part
        if x._index_part._array is not None and np.array_equal(
            host_copy(x._index_part._array), host_copy(pattern._index_part._array)
        ):
            return x._values_part
        x = dense(x)
    return gathered(x, pattern._index_part)


# ------------------------------------------------------------------------------------------------------------ rules


def _linear(op: Op, operands: Sequence[Tensor]) -> Tensor:
    (s,) = operands
    assert isinstance(s, SparseTensor)
    return s.with_values(apply_dense(op, s._values_part))


def _add(op: Op, operands: Sequence[Tensor]) -> Tensor:
    x, y = operands
    sign = -1 if op.name == "sub" else 1
    if isinstance(x, SparseTensor) and isinstance(y, SparseTensor):
        if type_of(x).shape != type_of(y).shape:
            raise ShapeError(
                f"{op.name}: expected sizes of 'self' and 'other' to match, but {list(x.shape)} != {list(y.shape)}",
                {"self": type_of(x), "other": type_of(y)},
            )
        right = y._values_part if sign == 1 else -y._values_part
        if x._index_part is y._index_part:
            return x.with_values(x._values_part + right)
        both = make(
            cat([x._index_part, y._index_part], 1), cat([x._values_part, right], 0), type_of(x).shape, sparse_coo
        )
        if x._layout is not sparse_coo:
            return _in_layout(both.coalesce(), x)
        if both._index_part._array is None:
            return both
        return both.coalesce() if x._is_coalesced and y._is_coalesced else _merged(x, y, right, both)
    if isinstance(y, SparseTensor):
        return _added(x, y, sign)
    assert isinstance(x, SparseTensor)
    if not type_of(y).shape:
        raise UsageError(
            f"{op.name}: a number cannot be added to a sparse tensor, whose zeros are not kept",
            {"self": type_of(x), "other": y}, "convert it first: x.to_dense() + number",
        )  # fmt: skip
    return _added(y if sign == 1 else -y, x, 1)


def _merged(x: SparseTensor, y: SparseTensor, right: Tensor, both: SparseTensor) -> Tensor:
    """The sum of operands that may have a place twice, as torch walks through both: equal places that it meets at once
    are one, of others ``both`` has each as often as they do. The result never says that it is coalesced.
    """
    if not (x._values_part.is_contiguous() and y._values_part.is_contiguous()):
        return both
    a, b = host_copy(x._index_part._array), host_copy(y._index_part._array)
    shape = type_of(x).shape
    if np.array_equal(a, b):
        return make(x._index_part, x._values_part + right, shape, sparse_coo)
    if all(_ascends(indices, shape) for indices in (a, b)):
        once_each = both.coalesce()
        return make(once_each._index_part, once_each._values_part, shape, sparse_coo)
    return both


def _ascends(indices: Any, shape: tuple[int, ...]) -> bool:
    """Whether places follow each other in the order of memory, each once."""
    return bool(np.all(np.diff(np.ravel_multi_index(tuple(indices), shape[: len(indices)])) > 0))


def _added(base: Tensor, s: SparseTensor, sign: int) -> Tensor:
    shape = type_of(s).shape
    if type_of(base).shape != shape:
        raise ShapeError("add: a dense and a sparse operand must have the same shape", {"dense": base, "sparse": shape})
    axes = s.sparse_dim()
    rows = base.reshape((prod(shape[:axes]), *shape[axes:]))
    return rows.index_add(0, places(s), s._values_part, alpha=sign).reshape(shape)


def _mul(op: Op, operands: Sequence[Tensor]) -> Tensor:
    x, y = operands
    if not isinstance(x, SparseTensor):
        x, y = y, x
    assert isinstance(x, SparseTensor)
    found = _product_of_both(x, y) if isinstance(y, SparseTensor) else x.with_values(x._values_part * _beside(x, y))
    if isinstance(found, SparseTensor):  # its history shows the factors, not their values
        rename_node(found._values_part, "MulBackward0", self=operands[0], other=operands[1])
    return found


def _div(op: Op, operands: Sequence[Tensor]) -> Tensor:
    x, y = operands
    if not isinstance(x, SparseTensor) or isinstance(y, SparseTensor):
        raise UsageError(
            "Sparse division requires a dense divisor: zeros that are not kept would give NaN",
            {"dividend": type_of(x), "divisor": type_of(y)}, "convert it first: y.to_dense()",
        )  # fmt: skip
    return x.with_values(apply_dense(op, x._values_part, _beside(x, y)))


def _beside(s: SparseTensor, x: Tensor) -> Tensor:
    """What of a dense operand goes with the values of ``s``: itself when it is one number."""
    if type_of(x).size == 1:
        return x.reshape(())
    if type_of(x).shape != type_of(s).shape:
        x = x.expand(type_of(s).shape)
    return gathered(x, s._index_part)


def _product_of_both(x: SparseTensor, y: SparseTensor) -> Tensor:
    if type_of(x).shape != type_of(y).shape:
        raise ShapeError("mul: sparse operands must have the same shape", {"self": type_of(x), "other": type_of(y)})
    if x._index_part is y._index_part and x._is_coalesced:
        return x.with_values(x._values_part * y._values_part)
    x, y = once(x), once(y)
    extents = type_of(x).shape[: x.sparse_dim()]
    of_x, of_y = (np.ravel_multi_index(tuple(concrete_indices(s, "mul")), extents) for s in (x, y))
    _, left, right = np.intersect1d(of_x, of_y, assume_unique=True, return_indices=True)
    first, second = beside(x, left), beside(x, right)
    values = x._values_part.index_select(0, first) * y._values_part.index_select(0, second)
    return _in_layout(make(x._index_part[:, first], values, type_of(x).shape, sparse_coo, True), x)


def _in_layout(made: SparseTensor, like: SparseTensor) -> Tensor:
    return made if like._layout is sparse_coo else made.to_sparse(layout=like._layout, blocksize=like._blocksize)


def _power(op: Op, operands: Sequence[Tensor]) -> Tensor:
    x, exponent = operands
    if not isinstance(x, SparseTensor) or type_of(exponent).size != 1:
        raise UsageError("pow: only a sparse base with one number as exponent", {"exponent": type_of(exponent)})
    s = once(x)
    return s.with_values(apply_dense(op, s._values_part, exponent.reshape(())))


def _sum(op: Any, operands: Sequence[Tensor]) -> Tensor:
    (s,) = operands
    assert isinstance(s, SparseTensor)
    axes = tuple(op.axes)
    if axes == tuple(range(type_of(s).ndim)):
        return s._values_part.sum()
    return summed(s, axes)


def summed(s: SparseTensor, axes: tuple[int, ...]) -> Tensor:
    """The sum over some axes: sparse while a sparse axis is left, else dense."""
    n = s.sparse_dim()
    kept = [a for a in range(n) if a not in axes]
    values = s._values_part
    inner = tuple(a - n + 1 for a in axes if a >= n)
    if inner:
        values = values.sum(inner)
    shape = tuple(extent for a, extent in enumerate(type_of(s).shape) if a not in axes)
    if not kept:
        return values.sum(0)
    if len(kept) == n:
        return make(s._index_part, values, shape, s._layout, s._is_coalesced, s._row_starts, s._blocksize)
    return make(stack([s._index_part[a] for a in kept]), values, shape, sparse_coo).coalesce()


def _matmul(op: Op, operands: Sequence[Tensor]) -> Tensor:
    x, y = operands
    if isinstance(x, SparseTensor):
        _require_matrix(x)
        if isinstance(y, SparseTensor):
            return _sparse_product(x, y)
        rows, columns = x._index_part[0], x._index_part[1]
        terms = x._values_part.unsqueeze(1) * y.index_select(0, columns)
        base = terms.new_zeros((type_of(x).shape[0], type_of(y).shape[1]))
        return base.index_add(0, rows, terms)
    assert isinstance(y, SparseTensor)
    _require_matrix(y)
    return _matmul(op, (transposed(y), x.transpose(0, 1))).transpose(0, 1)


def _require_matrix(s: SparseTensor) -> None:
    if s.sparse_dim() != 2 or type_of(s).ndim != 2:
        raise UsageError("matmul: a sparse operand must be a matrix with two sparse axes", {"operand": type_of(s)})


def _sparse_product(x: SparseTensor, y: SparseTensor) -> Tensor:
    """Every pair of an element (i, k) of x and an element (k, j) of y adds to place (i, j)."""
    y = once(y)
    of_x, of_y = concrete_indices(x, "matmul"), concrete_indices(y, "matmul")
    starts = np.searchsorted(of_y[0], np.arange(type_of(y).shape[0] + 1))
    counts = np.diff(starts)[of_x[1]]
    left = np.repeat(np.arange(of_x.shape[1]), counts)
    offsets = np.arange(len(left)) - np.repeat(np.cumsum(counts) - counts, counts)
    right = starts[of_x[1][left]] + offsets
    found = np.stack([of_x[0][left], of_y[1][right]])
    values = x._values_part.index_select(0, beside(x, left)) * y._values_part.index_select(0, beside(x, right))
    shape = (type_of(x).shape[0], type_of(y).shape[1])
    return _in_layout(make(beside(x, found), values, shape, sparse_coo).coalesce(), x)


def transposed(s: SparseTensor) -> SparseTensor:
    """A sparse matrix with its two axes exchanged (COO)."""
    return _permuted(s, (1, 0))


def _permute(op: Any, operands: Sequence[Tensor]) -> Tensor:
    (s,) = operands
    assert isinstance(s, SparseTensor)
    return _permuted(s, tuple(op.axes))


def _permuted(s: SparseTensor, axes: tuple[int, ...]) -> SparseTensor:
    n = s.sparse_dim()
    if any((a < n) is not (k < n) for k, a in enumerate(axes)):
        raise UsageError("permute: sparse and dense axes cannot be exchanged", {"input": type_of(s), "axes": axes})
    shape = tuple(type_of(s).shape[a] for a in axes)
    if axes == tuple(range(len(axes))):
        return s
    indices = stack([s._index_part[a] for a in axes[:n]])
    values = s._values_part.permute((0, *(a - n + 1 for a in axes[n:])))
    return make(indices, values, shape, sparse_coo)


_RULES: dict[str, Rule] = {
    "add": _add, "sub": _add, "mul": _mul, "guarded_mul": _mul, "masked_mul": _mul, "div": _div, "pow": _power,
    "sum": _sum, "matmul": _matmul, "permute": _permute, "neg": _linear, "cast": _linear, "conj": _linear,
    "real": _linear, "imag": _linear, **RULES_OF_PLACES,
}  # fmt: skip
