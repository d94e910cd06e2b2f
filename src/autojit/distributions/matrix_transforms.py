"""Transforms onto sets of matrices: Cholesky factors of correlation matrices, positive definite matrices."""

from __future__ import annotations

from math import isqrt
from math import log as log_of
from typing import Any

import numpy as np

from autojit.distributions import constraints
from autojit.distributions.transform import Transform
from autojit.functions.comparison import clamp
from autojit.functions.elementwise import exp, log, log1p, sqrt, tanh
from autojit.functions.factories import eye, tensor
from autojit.functions.namespace import finfo
from autojit.functions.order import cumprod, cumsum
from autojit.functions.shape import diag_embed
from autojit.linalg import cholesky
from autojit.nn.functional import pad, softplus
from autojit.tensor.size import Size
from autojit.tensor.tensor import Tensor


def _places(rows: int, diag: int) -> np.ndarray[Any, Any]:
    """The places of a flat square matrix on and below a diagonal, row by row."""
    row, column = np.tril_indices(rows, diag, rows)
    return row * rows + column


def tril_matrix_to_vec(mat: Tensor, diag: int = 0) -> Tensor:
    """The elements of square matrices on and below a diagonal, row by row. Shapes: ``f[..., n, n] -> f[..., m]``.

    Raises:
        ValueError: the diagonal is outside the matrix.

    Example:
        >>> import autojit as aj
        >>> from autojit.distributions.utils import tril_matrix_to_vec
        >>> tril_matrix_to_vec(aj.tensor([[1.0, 0.0], [2.0, 3.0]]))
        tensor([1., 2., 3.])
    """
    rows = mat.shape[-1]
    if not -rows <= diag < rows:
        raise ValueError(f"diag ({diag}) provided is outside [{-rows}, {rows - 1}].")
    return mat.flatten(-2).index_select(-1, tensor(_places(rows, diag), device=mat.device))


def vec_to_tril_matrix(vec: Tensor, diag: int = 0) -> Tensor:
    """The inverse of ``tril_matrix_to_vec``, zero above the diagonal.

    Raises:
        ValueError: no matrix has as many elements there.
    """
    count = vec.shape[-1]
    shift = 1 + 2 * diag
    root = isqrt(shift * shift + 8 * count + 4 * abs(diag) * (diag + 1)) if diag else isqrt(1 + 8 * count)
    rows = (root - shift) // 2
    if len(_places(max(rows, 0), diag)) != count:
        raise ValueError(f"The size of last dimension is {count} which cannot be expressed as the lower triangular "
                         "part of a square D x D matrix.")  # fmt: skip
    back = np.full(rows * rows, count)
    back[_places(rows, diag)] = np.arange(count)
    padded = pad(vec, [0, 1], value=0.0)  # what is above the diagonal is taken from the zero at the end
    return padded.index_select(-1, tensor(back, device=vec.device)).reshape(*vec.shape[:-1], rows, rows)


class CorrCholeskyTransform(Transform):
    """n (n - 1) / 2 numbers to a lower triangle with rows of length 1 and a positive diagonal.

    Each row breaks a stick: tanh of a number is the share, with a sign, that it takes of the length left.

    Example:
        >>> import autojit as aj
        >>> from autojit.distributions.transforms import CorrCholeskyTransform
        >>> CorrCholeskyTransform()(aj.tensor([0.0]))
        tensor([[1., 0.],
                [0., 1.]])
    """

    domain = constraints.real_vector
    codomain = constraints.corr_cholesky
    bijective = True
    _distinct_by = ()

    def _call(self, x: Tensor) -> Tensor:
        eps = finfo(x.dtype).eps
        r = vec_to_tril_matrix(clamp(tanh(x), min=-1 + eps, max=1 - eps), -1)
        left = cumprod(sqrt(1 - r**2), -1)
        return (r + eye(r.shape[-1], dtype=r.dtype, device=r.device)) * pad(left[..., :-1], [1, 0], value=1.0)

    def _inverse(self, y: Tensor) -> Tensor:
        left = pad((1 - cumsum(y * y, -1))[..., :-1], [1, 0], value=1.0)
        share = tril_matrix_to_vec(y, -1) / sqrt(tril_matrix_to_vec(left, -1))
        return (log1p(share) - log1p(-share)) / 2

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Of the map to the elements below the diagonal."""
        left = tril_matrix_to_vec(1 - cumsum(y * y, -1), -2)
        by_tanh = -2 * (x + softplus(-2 * x) - log_of(2.0)).sum(-1)
        return 0.5 * log(left).sum(-1) + by_tanh

    def forward_shape(self, shape: Any) -> Size:
        if len(shape) < 1:
            raise ValueError("Too few dimensions on input")
        count = shape[-1]
        rows = round((0.25 + 2 * count) ** 0.5 + 0.5)
        if rows * (rows - 1) // 2 != count:
            raise ValueError("Input is not a flattened lower-diagonal number")
        return Size((*shape[:-1], rows, rows))

    def inverse_shape(self, shape: Any) -> Size:
        if len(shape) < 2:
            raise ValueError("Too few dimensions on input")
        if shape[-2] != shape[-1]:
            raise ValueError("Input is not square")
        return Size((*shape[:-2], shape[-1] * (shape[-1] - 1) // 2))


class PositiveDefiniteTransform(Transform):
    """Any matrices to positive definite ones: L L^T of the lower triangle with an exponential diagonal."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.positive_definite
    _distinct_by = ()

    def _call(self, x: Tensor) -> Tensor:
        factor = x.tril(-1) + diag_embed(exp(x.diagonal(dim1=-2, dim2=-1)))
        return factor @ factor.mT

    def _inverse(self, y: Tensor) -> Tensor:
        factor = cholesky(y)
        return factor.tril(-1) + diag_embed(log(factor.diagonal(dim1=-2, dim2=-1)))
