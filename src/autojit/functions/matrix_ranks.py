"""What is said of matrices is refused to vectors, and what is said of vectors to matrices."""

from __future__ import annotations

from collections.abc import Sequence

from autojit.core.errors import DTypeError, ShapeError
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


def require_lines(name: str, given: Sequence[Tensor]) -> None:
    """Error for what has more than one axis, or another dtype than the first."""
    for x in given:
        if type_of(x).ndim > 1:
            raise ShapeError(f"torch.{name}: Expected 0D or 1D tensor in the tensor list", {"operand": x})
        if type_of(x).dtype is not type_of(given[0]).dtype:
            raise DTypeError(f"{name} expects all tensors to have the same dtype", {"first": given[0], "operand": x})


def counted_extents(shape: Sequence[int]) -> tuple[int, ...]:
    """The extents; ShapeError for one that counts nothing."""
    if any(n < 0 for n in shape):
        raise ShapeError(f"Trying to create tensor with negative dimension: {list(shape)}", {"shape": list(shape)})
    return tuple(shape)
