"""Activations, elementwise and softmax-like.

Every formula keeps to branches whose derivative is finite wherever the branch is not taken (clamp before exp), so that
gradients of any order hold no ``0 * inf``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import autojit as aj
from autojit.core.dtypes import DType
from autojit.core.errors import ArgumentError, DTypeError, ShapeError, UsageError
from autojit.core.top_level import top_level
from autojit.core.user_warnings import warn
from autojit.dispatch.kernels import in_one_pass
from autojit.functions.autocast import in_full_precision_on_devices, in_lower_precision
from autojit.functions.out_arguments import with_out
from autojit.functions.refused_dtypes import refuses
from autojit.ops.elementwise_exponential import logaddexp
from autojit.tensor import Tensor

__all__ = [
    "celu", "celu_", "elu", "elu_", "gelu", "glu", "gumbel_softmax", "hardshrink", "hardsigmoid", "hardswish",
    "hardtanh", "hardtanh_", "leaky_relu", "leaky_relu_", "log_softmax", "logsigmoid", "mish", "prelu", "relu", "relu6",
    "relu_", "rrelu", "rrelu_", "selu", "selu_", "sigmoid", "silu", "softmax", "softmin", "softplus", "softshrink",
    "softsign", "tanh", "tanhshrink", "threshold", "threshold_",
]  # fmt: skip


def _maybe_in_place(function: Callable[[Tensor], Tensor], input: Tensor, inplace: bool) -> Tensor:
    """``function(input)``; with ``inplace`` written back, computed from a copy where the backward pass needs it."""
    if not inplace:
        return function(input)
    source = input.clone() if input.requires_grad and aj.is_grad_enabled() else input
    return input.copy_(function(source))


def _without_backward(result: Tensor, name: str, what: str) -> Tensor:
    """The result of an in-place form whose operand cannot be told from it: reaching it in backward is an error."""
    if result.grad_fn is not None:

        def refuse(grads: object) -> None:
            raise UsageError(
                f"{name}: the gradient of the in-place form with a negative {what} cannot be computed",
                fix="call out-of-place version",
            )

        result.grad_fn.register_prehook(refuse)
    return result


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """max(x, 0), elementwise."""
    return input.relu_() if inplace else input.relu()


def relu_(input: Tensor) -> Tensor:
    """In-place ``relu``."""
    return input.relu_()


def sigmoid(input: Tensor) -> Tensor:
    """1 / (1 + exp(-x)), elementwise."""
    return input.sigmoid()


def tanh(input: Tensor) -> Tensor:
    """Hyperbolic tangent, elementwise."""
    return input.tanh()


@top_level
@refuses("bool complex")
def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """x where x > threshold, else ``value``; both may be given as complex numbers without an imaginary part."""
    return _maybe_in_place(lambda x: _thresholded(x, threshold, value), input, inplace)


def _thresholded(x: Tensor, threshold: complex | Tensor, value: complex | Tensor) -> Tensor:
    limit, other = (_real_number(v) for v in (threshold, value))
    given = threshold.item() if isinstance(threshold, Tensor) else threshold
    return in_one_pass("threshold", (limit, other), x, node="ThresholdBackward0", threshold=given)


def _real_number(value: Any) -> Any:
    number = value.item() if isinstance(value, Tensor) else value
    if not isinstance(number, complex):
        return number
    if number.imag:
        raise UsageError("threshold: a complex number with an imaginary part cannot be compared", {"value": number})
    return number.real


@top_level
def threshold_(input: Tensor, threshold: float, value: float) -> Tensor:
    """In-place ``threshold``."""
    return _maybe_in_place(lambda x: _thresholded(x, threshold, value), input, True)


@refuses("bool int complex")
def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """x where x > 0, else ``negative_slope * x``."""
    found = _maybe_in_place(
        lambda x: in_one_pass("leaky_relu", (negative_slope,), x, node="LeakyReluBackward0"), input, inplace
    )
    return _without_backward(found, "leaky_relu", "slope") if inplace and negative_slope < 0 else found


def leaky_relu_(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    """In-place ``leaky_relu``."""
    return leaky_relu(input, negative_slope, True)


@refuses("bool int complex")
@in_lower_precision
def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """x where x > 0, else ``weight * x``; one weight, or one per channel (axis 1)."""
    if weight.dtype is not input.dtype:
        raise DTypeError(
            f"prelu: Type promoting not supported. Got {input.dtype.scalar_type} and {weight.dtype.scalar_type}",
            {"input": input, "weight": weight},
            "convert the weight: weight.to(input.dtype)",
        )
    if weight.numel() != 1:
        channels = input.shape[1] if input.ndim >= 2 else 1
        if weight.ndim != 1 or weight.numel() != channels:
            raise ShapeError(
                "Mismatch of parameter numbers and input channel size. "
                f"Found parameter numbers = {weight.numel()} and channel size = {channels}."
            )
        weight = weight.reshape([1, channels] + [1] * (input.ndim - 2))
    elif weight.ndim > 0:
        weight = weight.reshape([1] * input.ndim)
    return aj.where(input > 0, input, weight * input)


@refuses("complex")
def rrelu(
    input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False, inplace: bool = False
) -> Tensor:
    """Leaky ReLU whose slope is drawn from [lower, upper) per element in training, else their mean."""
    if lower > upper:
        raise UsageError("Lower bound should be less than or equal to the upper bound")
    if not training:
        return leaky_relu(input, (lower + upper) / 2, inplace)
    slope = aj.rand_like(input) * (upper - lower) + lower
    return _maybe_in_place(lambda x: aj.where(x > 0, x, x * slope), input, inplace)


def rrelu_(input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False) -> Tensor:
    """In-place ``rrelu``."""
    return rrelu(input, lower, upper, training, True)


@refuses("bool int complex")
def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """x where x > 0, else alpha (exp(x) - 1)."""
    found = _maybe_in_place(lambda x: in_one_pass("elu", (alpha,), x, node="EluBackward0"), input, inplace)
    return _without_backward(found, "elu", "alpha") if inplace and alpha < 0 else found


def elu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """In-place ``elu``."""
    return elu(input, alpha, True)


@top_level
@refuses("bool int complex")
def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """Scaled ELU with the self-normalising constants."""
    return _maybe_in_place(lambda x: in_one_pass("selu", (), x, node="EluBackward0"), input, inplace)


@top_level
def selu_(input: Tensor) -> Tensor:
    """In-place ``selu``."""
    return selu(input, True)


@top_level
@refuses("bool int complex")
def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """max(0, x) + min(0, alpha (exp(x / alpha) - 1))."""
    if alpha == 0:
        raise UsageError("ZeroDivisionError: alpha cannot be 0 for CELU")
    found = _maybe_in_place(lambda x: in_one_pass("celu", (alpha,), x, node="CeluBackward0"), input, inplace)
    return _without_backward(found, "celu", "alpha") if inplace and alpha < 0 else found


@top_level
def celu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """In-place ``celu``."""
    return celu(input, alpha, True)


@with_out
@refuses("bool int complex")
def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """x Phi(x), exact or with ``approximate="tanh"`` by tanh. Source: arXiv:1606.08415."""
    if approximate not in ("none", "tanh"):
        raise UsageError("approximate argument must be either none or tanh.")
    return in_one_pass("gelu", (approximate,), input, node="GeluBackward0")


@refuses("int")
def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """x sigmoid(x)."""
    return _maybe_in_place(lambda x: in_one_pass("silu", (), x, node="SiluBackward0"), input, inplace)


@refuses("bool int")
def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """x tanh(softplus(x)). Source: arXiv:1908.08681."""
    return _maybe_in_place(lambda x: in_one_pass("mish", (), x, node="MishBackward0"), input, inplace)


def softplus_of(x: Tensor) -> Tensor:
    """log(1 + exp(x)) to full precision, with derivatives of every order exact everywhere."""
    return logaddexp(x, 0)


@with_out
@refuses("bool int")
@in_full_precision_on_devices
def softplus(input: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    """log(1 + exp(beta x)) / beta; the identity where beta x > threshold."""
    return in_one_pass("softplus", (beta, threshold), input, node="SoftplusBackward0")


@with_out
@refuses("int")
def logsigmoid(input: Tensor) -> Tensor:
    """log(sigmoid(x)), accurate at both ends."""
    return in_one_pass("logsigmoid", (), input, node="LogSigmoidBackward0")


def softsign(input: Tensor) -> Tensor:
    """x / (1 + |x|)."""
    if not input.is_floating_point():
        return input / (input.abs() + 1)
    return in_one_pass("softsign", (), input, node="DivBackward0")


def tanhshrink(input: Tensor) -> Tensor:
    """x - tanh(x)."""
    if not input.is_floating_point():
        return input - input.tanh()
    return in_one_pass("tanhshrink", (), input, node="SubBackward0", keeps=False)


@with_out
@refuses("int complex")
def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """x shrunk towards zero by ``lambd``."""
    if lambd < 0:
        raise UsageError(f"lambda must be greater or equal to 0, but found to be {lambd}.")
    return in_one_pass("softshrink", (lambd,), input, node="SoftshrinkBackward0")


@top_level
@refuses("bool int complex")
def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """x where |x| > lambd, else 0."""
    return in_one_pass("hardshrink", (lambd,), input, node="HardshrinkBackward0")


@refuses("bool complex")
def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    """x clamped to [min_val, max_val]; the gradient at the bounds is zero."""
    if min_val > max_val:
        raise ArgumentError("min_val cannot be greater than max_val")
    if input.dtype.category < 2:  # integers stay integers, as in torch
        min_val, max_val = int(min_val), int(max_val)
    return _maybe_in_place(
        lambda x: in_one_pass("hardtanh", (min_val, max_val), x, node="HardtanhBackward0"), input, inplace
    )


def hardtanh_(input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """In-place ``hardtanh``."""
    return hardtanh(input, min_val, max_val, True)


@refuses("bool complex")
def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """min(max(x, 0), 6)."""
    return hardtanh(input, 0, 6, inplace)  # whole bounds, so that integers stay integers


@refuses("bool int complex")
def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """relu6(x + 3) / 6."""
    return _maybe_in_place(lambda x: in_one_pass("hardsigmoid", (), x, node="HardsigmoidBackward0"), input, inplace)


@refuses("bool int complex")
def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """x relu6(x + 3) / 6."""
    return _maybe_in_place(lambda x: in_one_pass("hardswish", (), x, node="HardswishBackward0"), input, inplace)


@refuses("bool int complex")
def glu(input: Tensor, dim: int = -1) -> Tensor:
    """a sigmoid(b) of the two halves a, b along ``dim``."""
    if input.ndim == 0:
        raise ShapeError("glu does not support scalars because halving size must be even")
    size = input.shape[dim]
    if size % 2:
        raise ShapeError(f"Halving dimension must be even, but dimension {dim} is size {size}")
    a, b = input.narrow(dim, 0, size // 2), input.narrow(dim, size // 2, size // 2)
    return in_one_pass("gated", (), a, b, node="GluBackward0")


def _softmax_dim(name: str, ndim: int) -> int:
    warn(
        f"Implicit dimension choice for {name} has been deprecated. Change the call to include dim=X as an argument.",
    )
    return 0 if ndim in (0, 1, 3) else 1


def softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DType | None = None) -> Tensor:
    """exp(x) / sum(exp(x)) along ``dim``."""
    dim = _softmax_dim("softmax", input.ndim) if dim is None else dim
    return input.softmax(dim) if dtype is None else input.softmax(dim, dtype=dtype)


def softmin(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DType | None = None) -> Tensor:
    """Softmax of -x."""
    dim = _softmax_dim("softmin", input.ndim) if dim is None else dim
    return softmax(-input, dim, dtype=dtype)


def log_softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DType | None = None) -> Tensor:
    """x - logsumexp(x) along ``dim``."""
    dim = _softmax_dim("log_softmax", input.ndim) if dim is None else dim
    return input.log_softmax(dim) if dtype is None else input.log_softmax(dim, dtype=dtype)


def gumbel_softmax(logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Tensor:
    """A sample of the Gumbel-softmax distribution; ``hard`` makes it one-hot with the soft sample's gradient."""
    if eps != 1e-10:
        warn("`eps` parameter is deprecated and has no effect.")
    uniform = aj.rand_like(logits).clamp(min=aj.finfo(logits.dtype).tiny)
    gumbels = (logits - aj.log(-aj.log(uniform))) / tau
    soft = gumbels.softmax(dim)
    if not hard:
        return soft
    index = soft.argmax(dim, keepdim=True)
    one_hot = aj.zeros_like(logits).scatter(dim, index, 1.0)
    return one_hot - soft.detach() + soft
