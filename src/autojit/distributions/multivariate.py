"""Normal vectors with a covariance matrix, kept as its Cholesky factor."""

from __future__ import annotations

from math import log as log_of
from math import pi
from typing import Any, ClassVar

from autojit.core.errors import ArgumentError
from autojit.distributions import constraints
from autojit.distributions.distribution import Constraints, Distribution, _Located
from autojit.distributions.parameters import derived
from autojit.functions.elementwise import log
from autojit.functions.factories import eye
from autojit.functions.random import randn
from autojit.functions.shape import broadcast_shapes
from autojit.linalg import cholesky, solve_triangular
from autojit.tensor.tensor import Tensor


def factor_of_precision(precision: Tensor) -> Tensor:
    """The Cholesky factor of the inverse of a matrix: its reversed factor is the transposed inverse of a triangle."""
    lower = cholesky(precision.flip((-2, -1))).flip((-2, -1)).mT
    identity = eye(precision.shape[-1], dtype=precision.dtype, device=precision.device)
    return solve_triangular(lower, identity, upper=False)


def only_one(refusal: type[Exception], **matrices: Tensor | None) -> tuple[str, Tensor]:
    """The name and the matrix that is given, where exactly one is."""
    present = [(name, matrix) for name, matrix in matrices.items() if matrix is not None]
    if len(present) != 1:
        raise refusal("Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.")
    return present[0]


class _OfCovariance(Distribution):
    """A distribution given by a covariance matrix, its inverse or its Cholesky factor; the others follow."""

    _unbroadcasted_scale_tril: Tensor

    def _factor(self) -> Tensor:
        if "scale_tril" in self.__dict__:
            return self.scale_tril
        if "covariance_matrix" in self.__dict__:
            return cholesky(self.covariance_matrix)
        return factor_of_precision(self.precision_matrix)

    @derived
    def scale_tril(self) -> Tensor:
        """The Cholesky factor of the covariance."""
        return self._unbroadcasted_scale_tril

    @derived
    def covariance_matrix(self) -> Tensor:
        """The covariance."""
        return self._unbroadcasted_scale_tril @ self._unbroadcasted_scale_tril.mT

    @derived
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance."""
        factor = self._unbroadcasted_scale_tril
        inverse = self._whitened(eye(self._event_shape[-1], dtype=factor.dtype, device=factor.device))
        return inverse.mT @ inverse

    def _whitened(self, columns: Tensor) -> Tensor:
        return solve_triangular(self._unbroadcasted_scale_tril, columns, upper=False)

    def _log_det(self) -> Tensor:
        return 2 * log(self._unbroadcasted_scale_tril.diagonal(dim1=-2, dim2=-1)).sum(-1)


class MultivariateNormal(_OfCovariance, _Located):
    """Normal vectors of a mean and a covariance matrix, its inverse or its Cholesky factor.

    Example:
        >>> import autojit as aj
        >>> aj.distributions.MultivariateNormal(aj.zeros(2), aj.eye(2)).log_prob(aj.zeros(2))
        tensor(-1.8379)
    """

    arg_constraints: ClassVar[Constraints] = {
        "loc": constraints.real_vector,
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
    }
    support = constraints.real_vector
    has_rsample = True

    def __init__(
        self,
        loc: Tensor,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        if loc.ndim < 1:
            raise ValueError("loc must be at least one-dimensional.")
        name, matrix = only_one(
            ArgumentError, covariance_matrix=covariance_matrix, precision_matrix=precision_matrix, scale_tril=scale_tril
        )
        if matrix.ndim < 2:
            raise ValueError(f"{name} must be at least two-dimensional, with optional leading batch dimensions")
        batch = broadcast_shapes(tuple(matrix.shape[:-2]), tuple(loc.shape[:-1]))
        self.loc = loc.expand((*batch, -1))
        self.__dict__[name] = matrix.expand((*batch, -1, -1))
        super().__init__(batch, self.loc.shape[-1:], validate_args=validate_args)
        self._unbroadcasted_scale_tril = self._factor().expand((*batch, *matrix.shape[-2:]))

    @property
    def variance(self) -> Tensor:
        return (self._unbroadcasted_scale_tril**2).sum(-1)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        drawn = randn(self._extended_shape(sample_shape), dtype=self.loc.dtype, device=self.loc.device)
        return self.loc + (self._unbroadcasted_scale_tril @ drawn.unsqueeze(-1)).squeeze(-1)

    def _columns(self) -> tuple[Tensor, ...]:
        """Of matrices whose products with their transposes add up to the covariance."""
        return (self._unbroadcasted_scale_tril,)

    def _squared_length(self, columns: Tensor) -> Tensor:
        """Of vectors together, by the inverse of the covariance."""
        return (self._whitened(columns) ** 2).sum((-2, -1))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        distance = self._squared_length((value - self.loc).unsqueeze(-1))
        return -0.5 * (self._event_shape[0] * log_of(2 * pi) + distance + self._log_det())

    def entropy(self) -> Tensor:
        return 0.5 * (self._event_shape[0] * (1 + log_of(2 * pi)) + self._log_det())
