"""Random counts: elementwise draws from Poisson and binomial distributions. Their derivative is zero."""

from __future__ import annotations

from autojit.core.device_array import host_copy
from autojit.core.errors import ArgumentError, UnsupportedError
from autojit.dispatch.declared import declared
from autojit.dispatch.requirements import is_known, require
from autojit.distributions.count_sampling import binomial_counts, poisson_counts
from autojit.functions.random import Generator
from autojit.functions.shape import broadcast_tensors
from autojit.tensor import Tensor
from autojit.tensor.tensor import type_of


@declared(method=False)
def binomial(count: Tensor, prob: Tensor, generator: Generator | None = None) -> Tensor:
    """How many of ``count`` trials succeed, each with probability ``prob``; operands broadcast.

    Raises:
        ValueError: an operand is not a float.

    Example:
        >>> import autojit as aj
        >>> aj.binomial(aj.tensor([10.0, 4.0]), aj.tensor([1.0, 0.0]))
        tensor([10.,  0.])
    """
    for name, operand in (("count", count), ("prob", prob)):
        if type_of(operand).dtype.kind != "float":
            raise ArgumentError(
                f"binomial only supports floating-point dtypes for {name}, got: {type_of(operand).dtype}"
            )
    n, p = broadcast_tensors(count.detach(), prob.detach())
    return binomial_counts(n, p, generator).to(type_of(count).dtype)


@declared(method=False)
def poisson(input: Tensor, generator: Generator | None = None) -> Tensor:
    """Counts of events that come at the rates of the elements.

    Raises:
        RuntimeError: a rate is negative, or the dtype is not a float.

    Example:
        >>> import autojit as aj
        >>> aj.poisson(aj.zeros(2))
        tensor([0., 0.])
    """
    if type_of(input).dtype.kind != "float":
        raise UnsupportedError(f'"poisson_cpu" not implemented for {type_of(input).dtype}', {"input": input})
    if not is_known(input) or (host_copy(input._array) < 0).any():
        require(input, lambda r: ~(r < 0), "invalid Poisson rate, expected rate to be non-negative", "0 and more")
    drawn = poisson_counts(input.detach(), generator)
    return drawn + input * 0 if input.requires_grad else drawn
