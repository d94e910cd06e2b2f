"""Parameters of distributions: made tensors, broadcast together, changed between probabilities and log-odds."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Number
from typing import Any, overload

from autojit.core.dtypes import DType
from autojit.core.errors import ArgumentError
from autojit.functions.comparison import clamp
from autojit.functions.elementwise import log, log1p, sigmoid
from autojit.functions.factories import tensor
from autojit.functions.namespace import finfo, get_default_dtype
from autojit.functions.random import randn
from autojit.functions.reduction import log_softmax, softmax
from autojit.functions.shape import broadcast_tensors
from autojit.tensor.state import grad_mode, state
from autojit.tensor.tensor import Tensor

EULER_CONSTANT = 0.57721566490153286060  # OEIS A001620


def broadcast_all(*values: Any) -> tuple[Tensor, ...]:
    """Numbers and tensors as tensors of one shape; numbers take dtype and device of the first tensor, else the
    default ones.

    Raises:
        ValueError: something is neither a number nor a tensor.

    Example:
        >>> import autojit as aj
        >>> from autojit.distributions.parameters import broadcast_all
        >>> [t.shape for t in broadcast_all(0.0, aj.ones(3))]
        [autojit.Size([3]), autojit.Size([3])]
    """
    if not all(isinstance(value, (Tensor, Number)) for value in values):
        raise ArgumentError("Input arguments must all be instances of Number, Tensor or objects implementing them.")
    first = next((value for value in values if isinstance(value, Tensor)), None)
    dtype, place = (get_default_dtype(), None) if first is None else (first.dtype, first.device)
    tensors = [value if isinstance(value, Tensor) else tensor(value, dtype=dtype, device=place) for value in values]
    return tuple(broadcast_tensors(*tensors))


def is_known(value: Tensor) -> bool:
    """Whether the numbers can be looked at: not while a step is captured, nor along a batch of ``vmap``."""
    return state.trace is None and value._array is not None


def clamp_probs(probs: Tensor) -> Tensor:
    """Probabilities kept away from 0 and 1 by one unit of rounding."""
    eps = finfo(probs.dtype).eps
    return clamp(probs, min=eps, max=1 - eps)


def probs_to_logits(probs: Tensor, is_binary: bool = False) -> Tensor:
    """Logarithms of probabilities, or log-odds of binary ones.

    Example:
        >>> import autojit as aj
        >>> from autojit.distributions.parameters import probs_to_logits
        >>> probs_to_logits(aj.tensor(0.5), is_binary=True)
        tensor(0.)
    """
    kept = clamp_probs(probs)
    return log(kept) - log1p(-kept) if is_binary else log(kept)


def logits_to_probs(logits: Tensor, is_binary: bool = False) -> Tensor:
    """Probabilities of (unnormalised) logarithms along the last axis, or of log-odds.

    Example:
        >>> import autojit as aj
        >>> from autojit.distributions.parameters import logits_to_probs
        >>> logits_to_probs(aj.tensor([0.0, 0.0]))
        tensor([0.5000, 0.5000])
    """
    return sigmoid(logits) if is_binary else softmax(logits, dim=-1)


def normalize_logits(logits: Tensor) -> Tensor:
    """Logarithms shifted so that their exponentials add up to 1 along the last axis."""
    return log_softmax(logits, dim=-1)


def one_of(probs: Any, logits: Any) -> None:
    """ValueError unless exactly one of the two is given."""
    if (probs is None) == (logits is None):
        raise ArgumentError("Either `probs` or `logits` must be specified, but not both.")


def sum_rightmost(value: Tensor, count: int) -> Tensor:
    """The sum over the last ``count`` axes.

    Example:
        >>> import autojit as aj
        >>> from autojit.distributions.parameters import sum_rightmost
        >>> sum_rightmost(aj.ones(2, 3), 1)
        tensor([3., 3.])
    """
    return value if count == 0 else value.sum(dim=tuple(range(-count, 0)))


class derived:
    """A parameter computed from the one given, unless it is the one given (then the instance's own attribute is read).

    It is recorded for gradients under ``no_grad``, too. Nothing is kept, so that a value computed while a step is
    captured stays inside that step.
    """

    def __init__(self, compute: Callable[[Any], Tensor]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> derived: ...
    @overload
    def __get__(self, instance: object, owner: type | None = None) -> Tensor: ...
    def __get__(self, instance: object, owner: type | None = None) -> derived | Tensor:
        if instance is None:
            return self
        with grad_mode(True):
            return self._compute(instance)


def standard_normal(shape: Any, dtype: DType, device: Any) -> Tensor:
    """Standard normal numbers."""
    return randn(shape, dtype=dtype, device=device)
