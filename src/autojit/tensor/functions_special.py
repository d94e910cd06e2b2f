"""Special functions: the error function and the gamma family."""

from __future__ import annotations

from typing import Any

from autojit import ops
from autojit.tensor.promotion import floating
from autojit.tensor.tensor import Tensor


def erf(input: Any) -> Tensor:
    """The error function."""
    return ops.erf(floating(input, "erf"))  # type: ignore[no-any-return]


def erfc(input: Any) -> Tensor:
    """``1 - erf(x)``, accurate for large ``x``."""
    return ops.erfc(floating(input, "erfc"))  # type: ignore[no-any-return]


def erfinv(input: Any) -> Tensor:
    """The inverse of ``erf``."""
    return ops.erfinv(floating(input, "erfinv"))  # type: ignore[no-any-return]


def lgamma(input: Any) -> Tensor:
    """Logarithm of the absolute value of the gamma function."""
    return ops.lgamma(floating(input, "lgamma"))  # type: ignore[no-any-return]


def digamma(input: Any) -> Tensor:
    """Derivative of ``lgamma``."""
    return ops.digamma(floating(input, "digamma"))  # type: ignore[no-any-return]


def polygamma(n: int, input: Any) -> Tensor:
    """The n-th derivative of ``digamma``."""
    return ops.polygamma(n, floating(input, "polygamma"))  # type: ignore[no-any-return]
