"""What is said of matrices is refused to vectors."""

from __future__ import annotations

from autojit.core.errors import ShapeError
from autojit.core.user_warnings import warn
from autojit.tensor.tensor import Tensor, type_of


def require_matrices(name: str, x: Tensor, most: int | None = None) -> None:
    """ShapeError for what has one axis, or more than ``most``; numbers pass, as in torch."""
    ndim = type_of(x).ndim
    if ndim == 1 or (most is not None and ndim > most):
        kinds = "matrices (2-D tensors)" if most == 2 else "matrices or batches of matrices"
        fix = "x.unsqueeze(-1) is a column" if ndim == 1 else "x.mH is that of each matrix"
        raise ShapeError(f"tensor.{name} is only supported on {kinds}. Got {ndim}-D tensor.", {"x": x}, fix)


def is_number(name: str, x: Tensor, advice: str) -> bool:
    """Whether a property of matrices is asked of a tensor without axes, which torch warns of."""
    if type_of(x).ndim:
        return False
    warn(f"Tensor.{name} is deprecated on 0-D tensors. {advice}", UserWarning)
    return True
