"""Parametrisations ready for use: orthogonal weights, weight normalisation and spectral normalisation."""

from __future__ import annotations

from enum import Enum, auto
from typing import Any

import autojit as aj
from autojit import ops
from autojit.autograd import no_grad
from autojit.core.errors import ArgumentError, UnsupportedError
from autojit.nn import functional as F
from autojit.nn.module import Module
from autojit.nn.utils.parametrize import register_parametrization
from autojit.nn.utils.spectral_norm import as_matrix, check_steps, default_dim, unit_vector
from autojit.nn.utils.weight_norm import norm_except, normalized
from autojit.tensor import Tensor

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]


class _Maps(Enum):
    matrix_exp = auto()
    cayley = auto()
    householder = auto()


def _is_orthogonal(q: Tensor) -> bool:
    n, k = q.shape[-2:]
    tolerance = 10.0 * n * aj.finfo(q.dtype).eps
    return bool(aj.allclose(q.mH @ q, aj.eye(k, dtype=q.dtype, device=q.device), atol=tolerance))


def _with_positive_diagonal(a: Tensor) -> Tensor:
    """The orthogonal factor of a tall matrix whose triangular factor has a positive diagonal."""
    q, r = aj.linalg.qr(a)
    return q * r.diagonal(dim1=-2, dim2=-1).sgn().unsqueeze(-2)


class _Orthogonal(Module):
    """A matrix with orthonormal columns (rows, if it is wide) from any matrix of its shape.

    ``base`` is the orthogonal matrix at which the map starts. Source: Lezcano-Casado, arXiv:1909.09501.
    """

    base: Tensor

    def __init__(self, weight: Tensor, orthogonal_map: _Maps, *, use_trivialization: bool = True) -> None:
        super().__init__()
        if weight.is_complex() and orthogonal_map is _Maps.householder:
            raise ArgumentError("The householder parametrization does not support complex tensors.")
        self.shape = tuple(weight.shape)
        self.orthogonal_map = orthogonal_map
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, X: Tensor) -> Tensor:
        is_wide = X.shape[-2] < X.shape[-1]
        x = X.mT if is_wide else X
        q = self._reflected(x) if self.orthogonal_map is _Maps.householder else self._rotated(x)
        if "base" in self._buffers:
            q = self.base @ q
        return q.mT if is_wide else q

    def _rotated(self, x: Tensor) -> Tensor:
        """The exponential, or Cayley's map, of the skew matrix made of the lower triangle."""
        n, k = x.shape[-2:]
        x = x.tril()
        if n != k:
            x = aj.cat([x, x.new_zeros((*x.shape[:-2], n, n - k))], -1)
        skew = x - x.mH
        if self.orthogonal_map is _Maps.matrix_exp:
            q = aj.matrix_exp(skew)
        else:
            one = aj.eye(n, dtype=skew.dtype, device=skew.device)
            q = aj.linalg.solve(one - 0.5 * skew, one + 0.5 * skew)
        return q[..., :k]

    def _reflected(self, x: Tensor) -> Tensor:
        """The product of reflections along the columns below the diagonal; the diagonal gives signs."""
        vectors = x.tril(-1)
        tau = 2.0 / (1.0 + (vectors * vectors).sum(-2))
        q = aj.linalg.householder_product(vectors, tau)
        return q * x.diagonal(dim1=-2, dim2=-1).to(aj.int32).unsqueeze(-2)

    @no_grad()
    def right_inverse(self, Q: Tensor) -> Tensor:
        """A matrix that is mapped to ``Q``, which is made orthogonal first."""
        if tuple(Q.shape) != self.shape:
            raise ArgumentError(
                f"Expected a matrix or batch of matrices of shape {self.shape}. Got a tensor of shape {Q.shape}."
            )
        is_wide = Q.shape[-2] < Q.shape[-1]
        q = Q.mT if is_wide else Q
        if "base" not in self._buffers:
            found = self._reflections(q)
            return found.mT if is_wide else found
        n, k = q.shape[-2:]
        if n == k:
            self.base = q.clone() if _is_orthogonal(q) else _with_positive_diagonal(q)
        else:
            drawn = aj.randn(*q.shape[:-2], n, n - k, dtype=q.dtype, device=q.device)
            self.base = _with_positive_diagonal(aj.cat([q, drawn], -1))
        start = aj.zeros_like(Q)
        start.diagonal(dim1=-2, dim2=-1).fill_(-1.0)
        return start

    def _reflections(self, q: Tensor) -> Tensor:
        """The vectors below the diagonal and the signs on it whose product is ``q``."""
        if self.orthogonal_map is not _Maps.householder:
            raise UnsupportedError(
                "It is not possible to assign to the matrix exponential or the Cayley parametrizations when "
                "use_trivialization=False."
            )
        a, tau = ops.geqrf(q)
        signs = a.diagonal(dim1=-2, dim2=-1).sign()
        signs = aj.where(tau.eq(0.0), -signs, signs)
        found: Tensor = a.tril(-1) + a.triu(1)
        return found + F.pad(aj.diag_embed(signs), (0, 0, 0, q.shape[-2] - q.shape[-1]))


def orthogonal(
    module: Module, name: str = "weight", orthogonal_map: str | None = None, *, use_trivialization: bool = True
) -> Module:
    """Keep a matrix (or batch of matrices) of the module orthogonal, or unitary; returns the module.

    Args:
        orthogonal_map: ``"matrix_exp"`` (for square and complex matrices), ``"cayley"`` or ``"householder"`` (for
            others).
        use_trivialization: keep the matrix at which the map starts as a buffer ``base``.

    Raises:
        ValueError: no such tensor, fewer than two axes, or an unknown map.

    Example:
        >>> import autojit as aj
        >>> from autojit import nn
        >>> layer = nn.utils.parametrizations.orthogonal(nn.Linear(2, 3))
        >>> bool(aj.allclose(layer.weight.T @ layer.weight, aj.eye(2), atol=1e-6))
        True
    """
    weight = _tensor(module, name)
    if weight.ndim < 2:
        raise ArgumentError(f"Expected a matrix or batch of matrices. Got a tensor of {weight.ndim} dimensions.")
    if orthogonal_map is None:
        is_square = weight.shape[-2] == weight.shape[-1]
        orthogonal_map = "matrix_exp" if is_square or weight.is_complex() else "householder"
    if orthogonal_map not in _Maps.__members__:
        raise ArgumentError(
            f'orthogonal_map has to be one of "matrix_exp", "cayley", "householder". Got: {orthogonal_map}'
        )
    made = _Orthogonal(weight, _Maps[orthogonal_map], use_trivialization=use_trivialization)
    return register_parametrization(module, name, made, unsafe=True)


def _tensor(module: Module, name: str) -> Tensor:
    found = getattr(module, name, None)
    if not isinstance(found, Tensor):
        raise ArgumentError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    return found


class _WeightNorm(Module):
    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        return normalized(weight_v, weight_g, self.dim)

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Magnitude and direction."""
        return norm_except(weight, self.dim), weight


def weight_norm(module: Module, name: str = "weight", dim: int = 0) -> Module:
    """Compute a parameter from a magnitude (``original0``) and a direction (``original1``); returns the module.

    State dicts of the older ``nn.utils.weight_norm`` load, too.

    Args:
        dim: the axis that keeps a magnitude per index; None for one magnitude.

    Example:
        >>> from autojit import nn
        >>> sorted(nn.utils.parametrizations.weight_norm(nn.Linear(3, 2)).state_dict())
        ['bias', 'parametrizations.weight.original0', 'parametrizations.weight.original1']
    """
    register_parametrization(module, name, _WeightNorm(dim), unsafe=True)

    def rename(module: Module, state_dict: Any, prefix: str, *_: Any) -> None:
        keys = (f"{prefix}{name}_g", f"{prefix}{name}_v")
        if all(key in state_dict for key in keys):
            for k, key in enumerate(keys):
                state_dict[f"{prefix}parametrizations.{name}.original{k}"] = state_dict.pop(key)

    module.register_load_state_dict_pre_hook(rename)
    return module


class _SpectralNorm(Module):
    _u: Tensor
    _v: Tensor

    def __init__(self, weight: Tensor, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12) -> None:
        super().__init__()
        ndim = weight.ndim
        if not -ndim <= dim < ndim:
            raise IndexError(f"Dimension out of range (expected to be in range of [-{ndim}, {ndim - 1}] but got {dim})")
        check_steps(n_power_iterations)
        self.dim = dim % ndim
        self.eps = eps
        if ndim > 1:
            self.n_power_iterations = n_power_iterations
            matrix = as_matrix(weight, self.dim)
            rows, columns = matrix.shape
            self.register_buffer("_u", unit_vector(matrix, rows, eps))
            self.register_buffer("_v", unit_vector(matrix, columns, eps))
            self._power_method(matrix, 15)

    @no_grad()
    def _power_method(self, matrix: Tensor, steps: int) -> None:
        for _ in range(steps):
            self._u.copy_(F.normalize(aj.mv(matrix, self._v), dim=0, eps=self.eps))
            self._v.copy_(F.normalize(aj.mv(matrix.mH, self._u), dim=0, eps=self.eps))

    def forward(self, weight: Tensor) -> Tensor:
        if weight.ndim == 1:
            return F.normalize(weight, dim=0, eps=self.eps)
        matrix = as_matrix(weight, self.dim)
        if self.training:
            self._power_method(matrix, self.n_power_iterations)
        u, v = self._u.clone(), self._v.clone()  # a second call before backward changes the buffers again
        return weight / aj.vdot(u, aj.mv(matrix, v))

    def right_inverse(self, value: Tensor) -> Tensor:
        """The value itself, which may have any norm."""
        return value


def spectral_norm(
    module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Module:
    """Divide a parameter by its largest singular value whenever it is read; returns the module.

    Args:
        n_power_iterations: steps of the power method per reading in training.
        eps: keeps norms off zero.
        dim: the axis of outputs; 0, for transposed convolutions 1.

    Raises:
        ValueError: no such tensor, or the number of steps is not positive.
        IndexError: ``dim`` is out of range.

    Example:
        >>> import autojit as aj
        >>> from autojit import nn
        >>> _ = aj.manual_seed(0)
        >>> layer = nn.utils.parametrizations.spectral_norm(nn.Linear(3, 2), n_power_iterations=20)
        >>> round(aj.linalg.matrix_norm(layer.weight, 2).item(), 3)
        1.0
    """
    weight = _tensor(module, name)
    made = _SpectralNorm(weight, n_power_iterations, default_dim(module, dim), eps)
    return register_parametrization(module, name, made)
