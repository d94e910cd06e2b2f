"""What losses and layers ask of the dtypes of their operands: the refusals of torch's kernels that do not promote."""

from __future__ import annotations

import autojit as aj
from autojit.core.errors import DTypeError, UnsupportedDTypeError, UsageError
from autojit.tensor import Tensor

__all__ = ["require_constant", "require_differentiable", "require_dtype_of", "require_float_result"]


def require_dtype_of(function: str, input: Tensor, name: str, other: Tensor | None) -> None:
    """DTypeError unless an operand is absent or has the dtype of ``input``."""
    if other is not None and other.dtype is not input.dtype:
        raise DTypeError(
            f"{function}: expected scalar type {input.dtype.scalar_type} but found {other.dtype.scalar_type}",
            {"input": input, name: other},
            f"convert it: {name}.to(input.dtype)",
        )


def require_constant(function: str, name: str, other: Tensor | None) -> None:
    """RuntimeError where an operand for which ``function`` has no derivative is to get a gradient."""
    if other is not None and other.requires_grad and aj.is_grad_enabled():
        raise UsageError(
            f"The function '{function}' is not differentiable with respect to argument '{name}'. "
            "This input cannot have requires_grad True.",
            {name: other},
            f"give {name}.detach()",
        )


def require_differentiable(function: str, x: Tensor) -> None:
    """NotImplementedError for integers and truth values, of which there are no losses."""
    if not x.dtype.is_differentiable:
        raise UnsupportedDTypeError(f'"{function}" not implemented for {x.dtype}', {"x": x}, "give one as floats")


def require_float_result(function: str, input: Tensor, target: Tensor) -> None:
    """RuntimeError for a target of integers or truth values, in whose dtype torch would write the losses."""
    if target.dtype.is_floating_point or target.dtype.is_complex:
        return
    if target.dtype is aj.bool:
        refusal = "Subtraction, the `-` operator, with two bool tensors is not supported."
    else:
        found = target.dtype.scalar_type
        refusal = f"result type {input.dtype.scalar_type} can't be cast to the desired output type {found}"
    raise DTypeError(
        f"{function}: {refusal}", {"input": input, "target": target}, "convert the target: target.to(input.dtype)"
    )
