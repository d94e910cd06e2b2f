"""Methods that treat a gradient as a matrix: Adafactor with factored second moments, Muon with orthogonal steps."""

from __future__ import annotations

import math
from typing import Any

import autojit as aj
from autojit.core.errors import UsageError
from autojit.optim.arithmetic import advance, axpy_, has, lasting, lerp_, step_counter, zeros_like
from autojit.optim.given import options, refuse
from autojit.optim.optimizer import Optimizer, Params
from autojit.optim.param_group import ParamGroup, hyper
from autojit.tensor import Tensor
from autojit.tensor.state import is_tracing


def _require_rate(lr: Any) -> None:
    if isinstance(lr, Tensor):
        refuse(lr.numel() != 1, "Tensor lr must be 1-element")
    elif not lr >= 0.0:
        raise ValueError(f"Learning rate should be >= 0 but is: {lr}")


def _require_real(name: str, p: Tensor) -> None:
    if p.is_complex():
        raise UsageError(f"{name} does not support complex parameters", {"parameter": p})


def _number(x: Any) -> Any:
    """A 0-d tensor as a float, unless a step is being captured."""
    return x if is_tracing() else float(x)


def _greater(x: Any, y: Any) -> Any:
    """The greater of two numbers; of tensors while a step is being captured."""
    if not isinstance(x, Tensor) and not isinstance(y, Tensor):
        return max(x, y)
    return aj.maximum(*(t if isinstance(t, Tensor) else aj.tensor(t, dtype=aj.float64, device="cpu") for t in (x, y)))


class Adafactor(Optimizer):
    """p -= a g / sqrt(v), v the product of the mean squares of rows and columns of g over their own mean.

    ``a`` is the smaller of ``lr`` and 1/sqrt(t), relative to the root mean square of p; an update whose root mean
    square exceeds ``d`` is scaled down to it. Source: Shazeer and Stern, arXiv:1804.04235.

    Args:
        beta2_decay: the weight of a step's squares is t to this power.
        eps: added to second moments (None: the dtype's), and the least root mean square of p.
        d: the clipping threshold of an update.

    Raises:
        ValueError: a number is out of its range.

    Example:
        >>> import autojit as aj
        >>> p = aj.nn.Parameter(aj.ones(2, 3))
        >>> optimizer = aj.optim.Adafactor([p], lr=0.1)
        >>> (p**2).sum().backward()
        >>> optimizer.step()
        >>> sorted(optimizer.state[p])
        ['col_var', 'row_var', 'step']
    """

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        _require_rate(lr)
        refuse(not beta2_decay <= 0.0, "beta2_decay should be <= 0 but is: {}", beta2_decay)
        refuse(eps[0] is not None and not eps[0] >= 0.0, "epsilon1 should be >= 0 but is: {}", eps[0])
        refuse(not eps[1] >= 0.0, "epsilon2 should be >= 0 but is: {}", eps[1])
        refuse(not d >= 1.0, "Clipping threshold d should be >= 1 but is: {}", d)
        refuse(not weight_decay >= 0.0, "weight_decay should be >= 0 but is: {}", weight_decay)
        defaults = options("lr beta2_decay eps d weight_decay foreach maximize", locals())
        super().__init__(params, defaults)

    def _begin(self, p: Tensor, grad: Tensor, state: dict[str, Any], group: ParamGroup) -> None:
        _require_real("Adafactor", p)
        if state:
            return
        state["step"] = step_counter()
        if grad.ndim > 1:
            *lead, rows, columns = grad.shape
            options: dict[str, Any] = {"dtype": grad.dtype, "device": grad.device}
            state["row_var"] = lasting(lambda: aj.zeros((*lead, rows, 1), **options))
            state["col_var"] = lasting(lambda: aj.zeros((*lead, 1, columns), **options))
        else:
            state["variance"] = zeros_like(grad)

    def _update(self, p: Tensor, grad: Tensor, state: dict[str, Any], group: ParamGroup) -> None:
        grad = -grad if group.plain("maximize") else grad
        lr, least = hyper(group, "lr"), group.plain("eps")[0]
        least = aj.finfo(p.dtype).eps if least is None else least
        t = advance(state["step"])
        share = t ** hyper(group, "beta2_decay")
        size = _greater(_number(p.norm(2)) / math.sqrt(p.numel()), hyper(group, "eps", 1))
        step_size = size * -_greater(-lr, -(t**-0.5))
        if has(group, "weight_decay"):
            p.mul_(1 - lr * hyper(group, "weight_decay"))
        if grad.ndim > 1:
            row = lerp_(state["row_var"], (grad * grad).mean(-1, keepdim=True), share)
            column = lerp_(state["col_var"], (grad * grad).mean(-2, keepdim=True), share)
            moment = row @ column / row.mean(-2, keepdim=True).clamp(min=least)
        else:
            moment = lerp_(state["variance"], grad * grad, share)
        update = moment.clamp(min=least * least).rsqrt() * grad
        excess = _greater(_number(update.norm(2)) / (math.sqrt(update.numel()) * hyper(group, "d")), 1.0)
        axpy_(p, update, -step_size / excess)


class Muon(Optimizer):
    """p -= lr O with O near the orthogonal matrix closest to the momentum of g; for matrices only.

    O comes of a few Newton-Schulz iterations in bfloat16. Sources: K. Jordan et al., Muon (2024); arXiv:2502.16982 for
    ``adjust_lr_fn="match_rms_adamw"``.

    Args:
        ns_coefficients: a, b, c of the iteration X <- a X + (b A + c A A) X, A = X X^T.
        ns_steps: how many iterations, below 100.
        adjust_lr_fn: how ``lr`` depends on the shape: ``"original"`` (also None) or ``"match_rms_adamw"``.

    Raises:
        ValueError: a parameter is not a matrix, or a number is out of its range.

    Example:
        >>> import autojit as aj
        >>> p = aj.nn.Parameter(aj.eye(2))
        >>> optimizer = aj.optim.Muon([p], lr=0.1)
        >>> (p**2).sum().backward()
        >>> optimizer.step()
        >>> bool((p.diagonal() < 1).all())
        True
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        _require_rate(lr)
        refuse(not momentum >= 0.0, "momentum should be >= 0 but is: {}", momentum)
        refuse(not weight_decay >= 0.0, "weight decay should be >= 0 but is: {}", weight_decay)
        if adjust_lr_fn not in (None, "original", "match_rms_adamw"):
            raise ValueError(f"Adjust learning rate function {adjust_lr_fn} is not supported")
        defaults = options("lr weight_decay momentum nesterov ns_coefficients eps ns_steps adjust_lr_fn", locals())
        super().__init__(params, defaults)
        for group in self.param_groups:
            for p in group["params"]:
                if p.ndim != 2:
                    raise ValueError(
                        f"Muon only supports 2D parameters whereas we found a parameter with size: {p.shape}"
                    )

    def _begin(self, p: Tensor, grad: Tensor, state: dict[str, Any], group: ParamGroup) -> None:
        _require_real("Muon", p)
        if not state:
            state["momentum_buffer"] = zeros_like(grad)

    def _update(self, p: Tensor, grad: Tensor, state: dict[str, Any], group: ParamGroup) -> None:
        momentum, lr = hyper(group, "momentum"), hyper(group, "lr")
        buffer = lerp_(state["momentum_buffer"], grad, 1 - momentum)
        direction = grad + (buffer - grad) * momentum if group["nesterov"] else buffer
        steps, coefficients = group["ns_steps"], group["ns_coefficients"]
        refuse(steps >= 100, "Number of steps must be less than 100 for computational efficiency")
        refuse(len(coefficients) != 3, "Coefficients must be a tuple of exactly 3 values")
        update = _orthogonalized(direction, coefficients, steps, group["eps"])
        p.mul_(1 - lr * hyper(group, "weight_decay"))
        axpy_(p, update.to(p.dtype), -lr * _ratio(group["adjust_lr_fn"], *p.shape))


def _rounded(x: Tensor) -> Tensor:
    """Float32 with the digits of bfloat16."""
    return x.to(aj.bfloat16).to(aj.float32)


def _orthogonalized(x: Tensor, coefficients: tuple[float, float, float], steps: int, eps: float) -> Tensor:
    """Singular values near 1, by a quintic iteration whose every step is rounded to bfloat16."""
    a, b, c = coefficients
    is_tall = x.shape[0] > x.shape[1]
    x = _rounded(x.T if is_tall else x)
    x = _rounded(x / _rounded(x.norm()).clamp(min=eps))
    for _ in range(steps):
        gram = _rounded(x @ x.T)
        change = _rounded(b * gram + c * (gram @ gram))
        x = _rounded(a * x + change @ x)
    return x.T if is_tall else x


def _ratio(adjust: str | None, rows: int, columns: int) -> float:
    """By how much the learning rate is scaled for a matrix of this shape."""
    if adjust == "match_rms_adamw":
        return 0.2 * math.sqrt(max(rows, columns))
    return math.sqrt(max(1, rows / columns))
