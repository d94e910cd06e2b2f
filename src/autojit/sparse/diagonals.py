"""Matrices of diagonals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autojit.core.device_array import host_copy
from autojit.core.errors import ShapeError, UsageError
from autojit.core.layout import Layout
from autojit.functions.factories import tensor
from autojit.functions.shape import stack
from autojit.sparse.tensor import make
from autojit.tensor import Tensor
from autojit.tensor.tensor import type_of


def spdiags(diagonals: Tensor, offsets: Tensor, shape: Sequence[int], layout: Layout | None = None) -> Tensor:
    """A sparse matrix whose diagonals are the rows of a tensor; element j of a row goes to column j.

    Args:
        offsets: of the diagonals: 0 of the main one, above it positive.
        layout: COO by default.

    Raises:
        RuntimeError: two offsets are equal, or there is not one for each row.

    Example:
        >>> import autojit as aj
        >>> aj.sparse.spdiags(aj.tensor([[1, 2], [3, 4]]), aj.tensor([0, 1]), (2, 2)).to_dense()
        tensor([[1, 4],
                [0, 2]])
    """
    rows = diagonals.reshape(1, -1) if type_of(diagonals).ndim == 1 else diagonals
    if offsets._array is None:
        raise UsageError("spdiags: the offsets are not known inside a captured step", fix="make the matrix outside")
    begins = host_copy(offsets._array).reshape(-1)
    count, length = type_of(rows).shape
    if count != len(begins):
        raise ShapeError(
            f"Number of diagonals ({count}) does not match the number of offsets ({len(begins)})",
            {"diagonals": diagonals, "offsets": offsets},
        )
    if len(set(begins.tolist())) != count:
        raise UsageError("Offset tensor contains duplicate values", {"offsets": offsets})
    which, column = (part.reshape(-1) for part in np.indices((count, length)))
    row = column - begins[which]
    kept = np.flatnonzero((row >= 0) & (row < shape[0]) & (column < shape[1]))
    places = [tensor(part[kept], device=diagonals.device) for part in (row, column)]
    values = rows.reshape(-1).index_select(0, tensor(kept, device=diagonals.device))
    found = make(stack(places), values, tuple(shape))
    return found if layout is None else found.to_sparse(layout=layout)
