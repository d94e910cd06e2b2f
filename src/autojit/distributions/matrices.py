"""Distributions of matrices: covariance matrices (Wishart) and Cholesky factors of correlation matrices (LKJ)."""

from __future__ import annotations

from math import log as log_of
from math import pi
from typing import Any

from autojit.core.errors import ArgumentError
from autojit.core.user_warnings import warn
from autojit.dispatch.requirements import require
from autojit.distributions import constraints
from autojit.distributions.distribution import Distribution, ExponentialFamily
from autojit.distributions.gamma_family import Beta, Chi2
from autojit.distributions.multivariate import _OfCovariance, only_one
from autojit.distributions.parameters import broadcast_all, is_known
from autojit.functions.comparison import clamp, where
from autojit.functions.elementwise import log, sqrt
from autojit.functions.factories import arange, tensor
from autojit.functions.namespace import finfo
from autojit.functions.random import randn
from autojit.functions.shape import broadcast_shapes, cat, diag_embed
from autojit.functions.special import digamma, lgamma
from autojit.linalg import slogdet
from autojit.tensor.state import grad_mode
from autojit.tensor.tensor import Tensor


def multivariate_lgamma(x: Tensor, order: int) -> Tensor:
    """The logarithm of the multivariate gamma function. Shapes: equal."""
    constant = order * (order - 1) / 4 * log_of(pi)
    return lgamma(_shifted(x, order)).sum(-1) + constant


def multivariate_digamma(x: Tensor, order: int) -> Tensor:
    """The derivative of ``multivariate_lgamma``. Shapes: equal."""
    return digamma(_shifted(x, order)).sum(-1)


def _shifted(x: Tensor, order: int) -> Tensor:
    return x.unsqueeze(-1) - arange(order, dtype=x.dtype, device=x.device) / 2


class Wishart(_OfCovariance, ExponentialFamily):
    """Sums of ``df`` outer products of normal vectors with a covariance matrix, its inverse or its Cholesky factor.

    Args:
        df: degrees of freedom, above the number of rows less 1; need not be whole.

    Raises:
        ValueError: ``df`` is too small, or a matrix has fewer than two axes.
        AssertionError: not exactly one of the three matrices is given.

    Example:
        >>> import autojit as aj
        >>> aj.distributions.Wishart(3.0, aj.eye(2)).mean
        tensor([[3., 0.],
                [0., 3.]])
    """

    support = constraints.positive_definite
    has_rsample = True

    def __init__(
        self,
        df: Any,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        name, matrix = only_one(
            AssertionError,
            covariance_matrix=covariance_matrix,
            precision_matrix=precision_matrix,
            scale_tril=scale_tril,
        )
        if matrix.ndim < 2:
            raise ArgumentError(f"{name} must be at least two-dimensional, with optional leading batch dimensions")
        freedom = df if isinstance(df, Tensor) else tensor(df, dtype=matrix.dtype, device=matrix.device)
        batch = broadcast_shapes(tuple(matrix.shape[:-2]), tuple(freedom.shape))
        self.df = freedom.expand(batch)
        rows = matrix.shape[-1]
        if not is_known(self.df):
            refusal, valid = "Value of df expected to be greater than ndim - 1.", "above ndim - 1"
            require(self.df, lambda df: df > rows - 1, refusal, valid, named="df", kind="argument")
        else:
            if bool((self.df <= rows - 1).any()):
                raise ArgumentError(f"Value of df={df} expected to be greater than ndim - 1 = {rows - 1}.")
            if bool((self.df < rows).any()):
                warn(
                    "Low df values detected. Singular samples are highly likely to occur for ndim - 1 < df < ndim.",
                )
        self.__dict__["arg_constraints"] = {
            "covariance_matrix": constraints.positive_definite,
            "precision_matrix": constraints.positive_definite,
            "scale_tril": constraints.lower_cholesky,
            "df": constraints.greater_than(rows - 1),
        }
        self.__dict__[name] = matrix.expand((*batch, -1, -1))
        super().__init__(batch, matrix.shape[-2:], validate_args=validate_args)
        self._unbroadcasted_scale_tril = self._factor()
        self._chi2 = Chi2(self.df.unsqueeze(-1) - arange(rows, dtype=matrix.dtype, device=matrix.device))

    @property
    def _freedom(self) -> Tensor:
        return self.df.reshape(*self._batch_shape, 1, 1)

    @property
    def mean(self) -> Tensor:
        return self._freedom * self.covariance_matrix

    @property
    def mode(self) -> Tensor:
        factor = self._freedom - self._event_shape[-1] - 1
        return where(factor > 0, factor, float("nan")) * self.covariance_matrix

    @property
    def variance(self) -> Tensor:
        matrix = self.covariance_matrix
        diagonal = matrix.diagonal(dim1=-2, dim2=-1)
        return self._freedom * (matrix**2 + diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2))

    def rsample(self, sample_shape: Any = (), max_try_correction: int | None = None) -> Tensor:
        """By Bartlett's decomposition: a triangle of normal numbers with roots of chi-squared ones on its diagonal.

        Args:
            max_try_correction: accepted for torch's sake; a singular matrix is not drawn again.
        """
        factor = self._unbroadcasted_scale_tril
        diagonal = clamp(sqrt(self._chi2.rsample(sample_shape)), min=finfo(factor.dtype).eps)
        below = randn(self._extended_shape(sample_shape), dtype=factor.dtype, device=factor.device).tril(-1)
        triangle = factor @ (below + diag_embed(diagonal))
        return triangle @ triangle.mT

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        n, rows = self.df, self._event_shape[-1]
        inside = self._whitened(value)
        trace = self._whitened(inside.mT).diagonal(dim1=-2, dim2=-1).sum(-1)
        scale = n * (rows * log_of(2) + self._log_det()) / 2
        return (n - rows - 1) / 2 * slogdet(value)[1] - trace / 2 - scale - multivariate_lgamma(n / 2, rows)

    def entropy(self) -> Tensor:
        n, rows = self.df, self._event_shape[-1]
        scale = (rows + 1) * (rows * log_of(2) + self._log_det()) / 2
        shape = multivariate_lgamma(n / 2, rows) - (n - rows - 1) / 2 * multivariate_digamma(n / 2, rows)
        return scale + shape + n * rows / 2


class LKJCholesky(Distribution):
    """Cholesky factors of correlation matrices: density of the matrix its determinant to ``concentration - 1``.

    Args:
        dim: the number of rows, at least 2.
        concentration: 1 for all correlation matrices equally; more favours weak correlations.

    Raises:
        ValueError: ``dim`` is below 2.

    Example:
        >>> import autojit as aj
        >>> aj.distributions.LKJCholesky(2, 1.0).log_prob(aj.eye(2))
        tensor(-0.6931)

    Source: Lewandowski, Kurowicka and Joe, Journal of Multivariate Analysis 100(9), 2009.
    """

    arg_constraints = {"concentration": constraints.positive}  # noqa: RUF012
    support = constraints.corr_cholesky

    def __init__(self, dim: int, concentration: Any = 1.0, validate_args: bool | None = None) -> None:
        if dim < 2:
            raise ArgumentError(f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}.")
        self.dim = dim
        (self.concentration,) = broadcast_all(concentration)
        order = arange(dim - 1, dtype=self.concentration.dtype, device=self.concentration.device)
        order = cat([order.new_zeros((1,)), order])
        first = (order + 0.5).expand((*self.concentration.shape, dim))
        self._beta = Beta(first, (self.concentration + 0.5 * (dim - 2)).unsqueeze(-1) - 0.5 * order)
        super().__init__(self.concentration.shape, (dim, dim), validate_args=validate_args)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """By the onion method: each row a point of a sphere, its length drawn by a beta distribution."""
        with grad_mode(False):
            share = self._beta.sample(sample_shape).unsqueeze(-1)
            drawn = randn(self._extended_shape(sample_shape), dtype=share.dtype, device=share.device).tril(-1)
            length = sqrt((drawn**2).sum(-1, keepdim=True))
            rows = sqrt(share) * drawn / where(length.eq(0), 1.0, length)
            rest = clamp(1 - (rows**2).sum(-1), min=finfo(rows.dtype).tiny)
            return rows + diag_embed(sqrt(rest))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        diagonal = value.diagonal(dim1=-1, dim2=-2)[..., 1:]
        order = arange(2, self.dim + 1, dtype=value.dtype, device=value.device)
        order = 2 * (self.concentration - 1).unsqueeze(-1) + self.dim - order
        less = self.dim - 1
        alpha = self.concentration + 0.5 * less
        constant = 0.5 * less * log_of(pi) + multivariate_lgamma(alpha - 0.5, less) - less * lgamma(alpha)
        return (order * log(diagonal)).sum(-1) - constant
