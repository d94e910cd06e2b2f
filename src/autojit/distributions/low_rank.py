"""Normal vectors whose covariance is a diagonal plus a matrix of low rank; all work is with matrices of that rank.

With C = I + W^T D^-1 W (the capacitance): det(W W^T + D) = det C det D, and (W W^T + D)^-1 = D^-1 - A^T A where
A = L^-1 W^T D^-1, L the Cholesky factor of C. Source: the Woodbury identity.
"""

from __future__ import annotations

from math import log as log_of
from math import pi
from typing import Any, ClassVar

from autojit.core.errors import ArgumentError
from autojit.distributions import constraints
from autojit.distributions.distribution import Constraints, _Located
from autojit.distributions.parameters import derived
from autojit.functions.elementwise import log, sqrt
from autojit.functions.factories import eye
from autojit.functions.random import randn
from autojit.functions.shape import broadcast_shapes, diag_embed
from autojit.linalg import cholesky, solve_triangular
from autojit.tensor.tensor import Tensor


class LowRankMultivariateNormal(_Located):
    """Normal vectors with covariance ``cov_factor @ cov_factor.T + diag(cov_diag)``.

    Shapes: ``loc`` f[..., n], ``cov_factor`` f[..., n, rank], ``cov_diag`` f[..., n].

    Raises:
        ValueError: shapes do not fit.

    Example:
        >>> import autojit as aj
        >>> d = aj.distributions.LowRankMultivariateNormal(aj.zeros(2), aj.tensor([[1.0], [0.0]]), aj.ones(2))
        >>> d.variance
        tensor([2., 1.])
    """

    arg_constraints: ClassVar[Constraints] = {
        "loc": constraints.real_vector,
        "cov_factor": constraints.independent(constraints.real, 2),
        "cov_diag": constraints.independent(constraints.positive, 1),
    }
    support = constraints.real_vector
    has_rsample = True

    def __init__(self, loc: Tensor, cov_factor: Tensor, cov_diag: Tensor, validate_args: bool | None = None) -> None:
        if loc.ndim < 1:
            raise ArgumentError("loc must be at least one-dimensional.")
        n = loc.shape[-1]
        if cov_factor.ndim < 2:
            raise ArgumentError("cov_factor must be at least two-dimensional, with optional leading batch dimensions")
        if cov_factor.shape[-2] != n:
            raise ArgumentError(f"cov_factor must be a batch of matrices with shape {n} x m")
        if cov_diag.ndim < 1 or cov_diag.shape[-1] != n:
            raise ArgumentError(f"cov_diag must be a batch of vectors with shape {(n,)}")
        batches = [tuple(loc.shape[:-1]), tuple(cov_factor.shape[:-2]), tuple(cov_diag.shape[:-1])]
        try:
            batch = broadcast_shapes(*batches)
        except RuntimeError as error:
            raise ArgumentError(
                f"Incompatible batch shapes: loc {loc.shape}, cov_factor {cov_factor.shape}, cov_diag {cov_diag.shape}"
            ) from error
        self.loc = loc.expand((*batch, n))
        self.cov_factor = cov_factor.expand((*batch, *cov_factor.shape[-2:]))
        self.cov_diag = cov_diag.expand((*batch, n))
        super().__init__(batch, (n,), validate_args=validate_args)

    def _scaled(self) -> Tensor:
        """W^T D^-1."""
        return self.cov_factor.mT / self.cov_diag.unsqueeze(-2)

    @property
    def _capacitance_tril(self) -> Tensor:
        """The Cholesky factor of the capacitance."""
        rank = self.cov_factor.shape[-1]
        return cholesky(self._scaled() @ self.cov_factor + eye(rank, dtype=self.loc.dtype, device=self.loc.device))

    def _log_det(self) -> Tensor:
        diagonal = self._capacitance_tril.diagonal(dim1=-2, dim2=-1)
        return 2 * log(diagonal).sum(-1) + log(self.cov_diag).sum(-1)

    def _whitened(self) -> Tensor:
        """A = L^-1 W^T D^-1."""
        return solve_triangular(self._capacitance_tril, self._scaled(), upper=False)

    def _columns(self) -> tuple[Tensor, ...]:
        """Of matrices whose products with their transposes add up to the covariance."""
        return self.cov_factor, sqrt(self.cov_diag).diag_embed()

    def _squared_length(self, columns: Tensor) -> Tensor:
        """Of vectors together, by the inverse of the covariance."""
        scaled = (columns**2 / self.cov_diag.unsqueeze(-1)).sum((-2, -1))
        return scaled - ((self._whitened() @ columns) ** 2).sum((-2, -1))

    @property
    def variance(self) -> Tensor:
        return (self.cov_factor**2).sum(-1) + self.cov_diag

    @derived
    def scale_tril(self) -> Tensor:
        """The Cholesky factor of the covariance, by way of a matrix whose eigenvalues are at least 1."""
        root = sqrt(self.cov_diag).unsqueeze(-1)
        scaled = self.cov_factor / root
        identity = eye(self._event_shape[0], dtype=self.loc.dtype, device=self.loc.device)
        return root * cholesky(scaled @ scaled.mT + identity)

    @derived
    def covariance_matrix(self) -> Tensor:
        """The covariance."""
        return self.cov_factor @ self.cov_factor.mT + diag_embed(self.cov_diag)

    @derived
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance."""
        a = self._whitened()
        return diag_embed(1 / self.cov_diag) - a.mT @ a

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        shared = randn((*shape[:-1], self.cov_factor.shape[-1]), dtype=self.loc.dtype, device=self.loc.device)
        own = randn(shape, dtype=self.loc.dtype, device=self.loc.device)
        return self.loc + (self.cov_factor @ shared.unsqueeze(-1)).squeeze(-1) + sqrt(self.cov_diag) * own

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        distance = self._squared_length((value - self.loc).unsqueeze(-1))
        return -0.5 * (self._event_shape[0] * log_of(2 * pi) + self._log_det() + distance)

    def entropy(self) -> Tensor:
        return 0.5 * (self._event_shape[0] * (1 + log_of(2 * pi)) + self._log_det())
