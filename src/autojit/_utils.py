"""torch's module of this name: one vector for many dense tensors and back, which libraries that communicate call."""

from __future__ import annotations

from collections.abc import Sequence

from autojit.core.errors import UsageError
from autojit.functions.shape import cat
from autojit.tensor.tensor import Tensor


def _flatten_dense_tensors(tensors: Sequence[Tensor]) -> Tensor:
    """All elements in one vector, tensor after tensor.

    Example:
        >>> import autojit as aj
        >>> _flatten_dense_tensors([aj.ones(2, 2), aj.zeros(1)])
        tensor([1., 1., 1., 1., 0.])
    """
    return cat([t.reshape(-1) for t in tensors])


def _unflatten_dense_tensors(flat: Tensor, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Views of a vector in the shapes of tensors, one after another.

    Raises:
        UsageError: the vector has another number of elements than these have together.

    Example:
        >>> import autojit as aj
        >>> [t.shape for t in _unflatten_dense_tensors(aj.arange(5), [aj.ones(2, 2), aj.zeros(1)])]
        [autojit.Size([2, 2]), autojit.Size([1])]
    """
    sizes = [t.numel() for t in tensors]
    if sum(sizes) != flat.numel():
        raise UsageError(f"_unflatten_dense_tensors: {flat.numel()} elements for tensors of {sum(sizes)}")
    return tuple(part.view(t.shape) for part, t in zip(flat.split(sizes), tensors, strict=True))
