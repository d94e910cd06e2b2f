"""Products that only torch.sparse has: reduced by other than sums, and sampled at the places of a pattern."""

from __future__ import annotations

from typing import Any

from autojit.core.errors import ShapeError, UsageError
from autojit.core.layout import sparse_csr
from autojit.functions import products as functions_products
from autojit.sparse.rules import once
from autojit.sparse.tensor import SparseTensor
from autojit.tensor import Tensor
from autojit.tensor.tensor import type_of

_REDUCTIONS = {"sum": "sum", "mean": "mean", "amax": "amax", "amin": "amin"}


def mm(mat1: Tensor, mat2: Tensor, reduce: str = "sum") -> Tensor:
    """Product of two matrices of which at least one is sparse; differentiable by both.

    Args:
        reduce: how the products of a row are joined: ``"sum"``, ``"mean"``, ``"amax"`` or ``"amin"``, over the elements
            that the sparse ``mat1`` keeps; rows without any give 0.

    Raises:
        RuntimeError: shapes do not fit, or ``reduce`` is unknown.

    Example:
        >>> import autojit as aj
        >>> s = aj.sparse_coo_tensor([[0, 1], [1, 0]], [2.0, 3.0], (2, 2))
        >>> aj.sparse.mm(s, aj.eye(2))
        tensor([[0., 2.],
                [3., 0.]])
    """
    if reduce not in _REDUCTIONS:
        raise UsageError(
            f"reduce argument must be either sum, mean, amax or amin, got {reduce}", {"mat1": mat1, "mat2": mat2}
        )
    if reduce == "sum":
        return functions_products.mm(mat1, mat2)
    if not isinstance(mat1, SparseTensor) or isinstance(mat2, SparseTensor):
        raise UsageError(f"sparse.mm: reduce={reduce!r} needs a sparse mat1 and a dense mat2")
    (rows, inner), extents = type_of(mat1).shape, type_of(mat2).shape
    if len(extents) != 2 or extents[0] != inner:
        raise ShapeError(
            f"Expected a tensor of dimension 2 and tensor.size[0] == {inner} but got: dimension {len(extents)}",
            {"mat1": mat1, "mat2": mat2},
        )
    s = once(mat1)
    terms = s._values_part.unsqueeze(1) * mat2.index_select(0, s._index_part[1])
    place = s._index_part[0].unsqueeze(1).expand(type_of(terms).shape)
    base = terms.new_zeros((rows, extents[1]))
    return base.scatter_reduce(0, place, terms, reduce, include_self=False)


def sampled_addmm(
    input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1.0, alpha: Any = 1.0, out: Any = None
) -> Tensor:
    """``alpha * (mat1 @ mat2)`` at the places that ``input`` keeps, plus ``beta * input``.

    Shapes: ``f[m, n]`` (CSR), ``f[m, k], f[k, n] -> f[m, n]`` (CSR); differentiable by all three.

    Raises:
        RuntimeError: ``input`` is not a CSR matrix, or shapes and dtypes do not fit.

    Example:
        >>> import autojit as aj
        >>> s = aj.eye(2).to_sparse_csr()
        >>> aj.sparse.sampled_addmm(s, aj.ones(2, 3), aj.ones(3, 2)).values()
        tensor([4., 4.])
    """
    if not isinstance(input, SparseTensor) or input.layout is not sparse_csr:
        raise UsageError("sampled_addmm: Expected input to have sparse csr layout", {"input": input})
    shapes = [type_of(t).shape for t in (input, mat1, mat2)]
    (m, n), left, right = shapes[0], shapes[1], shapes[2]
    if len(left) != 2 or len(right) != 2 or left[1] != right[0] or (left[0], right[1]) != (m, n):
        raise ShapeError(
            "sampled_addmm: mat1 and mat2 shapes cannot be multiplied to the shape of input",
            dict(zip(("input", "mat1", "mat2"), (input, mat1, mat2), strict=True)),
        )
    if len({type_of(t).dtype for t in (input, mat1, mat2)}) > 1:
        raise UsageError("sampled_addmm: Expected mat1 and mat2 to have the dtype of input")
    rows, columns = input._index_part[0], input._index_part[1]
    products = (mat1.index_select(0, rows) * mat2.transpose(0, 1).index_select(0, columns)).sum(1)
    found = input.with_values(products * alpha + input._values_part * beta)
    if out is None:
        return found
    out._become(found)
    return out  # type: ignore[no-any-return]
