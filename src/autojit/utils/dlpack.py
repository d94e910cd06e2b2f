"""DLPack capsules, under torch's old names; ``autojit.from_dlpack`` takes the arrays themselves."""

from __future__ import annotations

from typing import Any

from autojit.tensor import Tensor
from autojit.tensor.exchange import from_dlpack

__all__ = ["from_dlpack", "to_dlpack"]


def to_dlpack(tensor: Tensor) -> Any:
    """A DLPack capsule that lends the tensor's memory to another library, once.

    Raises:
        BufferError: the tensor requires gradients.

    Example:
        >>> import autojit as aj
        >>> capsule = aj.utils.dlpack.to_dlpack(aj.ones(2))
        >>> aj.from_dlpack(capsule)
        tensor([1., 1.])
    """
    return tensor.__dlpack__()
