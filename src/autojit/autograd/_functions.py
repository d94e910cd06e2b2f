"""Functions of older programs that tensors have methods for."""

from __future__ import annotations

import math
from typing import Any

from autojit.autograd.function import Function
from autojit.core.errors import UsageError
from autojit.tensor import Tensor


class Resize(Function):
    """``Resize.apply(x, sizes)``: the elements of ``x`` in another shape, as a tensor of its own.

    Raises:
        RuntimeError: the shape has another number of elements.

    Example:
        >>> import autojit as aj
        >>> x = aj.ones(6, requires_grad=True)
        >>> Resize.apply(x, (2, 3)).sum().backward()
        >>> x.grad.shape
        autojit.Size([6])
    """

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, sizes: tuple[int, ...]) -> Tensor:
        """The elements in the new shape."""
        if math.prod(sizes) != tensor.numel():
            raise UsageError(
                f"requested resize to {'x'.join(map(str, sizes))} ({math.prod(sizes)} elements in total), but the "
                f"given tensor has a size of {'x'.join(map(str, tensor.shape))} ({tensor.numel()} elements). "
                "autograd's resize can only change the shape of a given tensor, while preserving the number of "
                "elements.",
                {"tensor": tensor},
            )
        ctx.before = tensor.shape
        found: Tensor = tensor.clone().view(sizes)
        return found

    @staticmethod
    def backward(ctx: Any, y_bar: Tensor) -> Any:
        """The gradient in the old shape."""
        return y_bar.reshape(ctx.before), None


__all__ = ["Resize"]
