"""Adam and its kin: first and second moments of the gradient with bias correction."""

from __future__ import annotations

from typing import Any

import autojit as aj
from autojit.optim.arithmetic import (
    addcdiv_,
    addcmul_,
    advance,
    axpy_,
    has,
    lasting,
    lerp_,
    root,
    scalar_dtype,
    shared,
    sqrt,
    with_decay,
    zeros_like,
)  # fmt: skip
from autojit.optim.given import check, check_common, options, refuse
from autojit.optim.optimizer import Optimizer, Params
from autojit.optim.param_group import ParamGroup, hyper
from autojit.tensor import Tensor
from autojit.tensor.state import is_tracing


def _moments(p: Tensor, grad: Tensor, state: dict[str, Any], group: ParamGroup) -> tuple[Any, Any, Any]:
    """Count the step and update the first moment: (t, beta1, beta2)."""
    t = advance(state["step"])
    beta1, beta2 = hyper(group, "betas", 0), hyper(group, "betas", 1)
    lerp_(state["exp_avg"], grad, shared(p, group, t, "1 - beta1", lambda: 1 - beta1))
    return t, beta1, beta2


def _decayed(p: Tensor, grad: Tensor, group: ParamGroup, decoupled: bool) -> Tensor:
    """Weight decay: on the parameter at once (decoupled), or added to the gradient, which is returned."""
    weight_decay = hyper(group, "weight_decay")
    if not decoupled:
        return with_decay(grad, p, group, weight_decay)
    if has(group, "weight_decay"):
        p.mul_(1 - hyper(group, "lr") * weight_decay)
    return -grad if group.plain("maximize") else grad


def _check_tensors(lr: Any, betas: Any, refused: bool) -> None:
    """torch's rules about hyper-parameters that are tensors; ``refused``: where there may be none."""
    refuse(len({isinstance(beta, Tensor) for beta in betas}) > 1, "betas must be either both floats or both Tensors")
    for name, value in (("lr", lr), ("betas[0]", betas[0]), ("betas[1]", betas[1])):
        if not isinstance(value, Tensor):
            continue
        refuse(refused, "{} as a Tensor is not supported for capturable=False and foreach=True", name)
        refuse(value.numel() != 1, "Tensor {} must be 1-element", name)


class Adam(Optimizer):
    """p -= lr m^ / (sqrt(v^) + eps) with bias-corrected moments m^ of g and v^ of g^2. Source: arXiv:1412.6980.

    ``amsgrad`` divides by the greatest v so far (Reddi et al., ICLR 2018); ``decoupled_weight_decay`` makes it AdamW.
    """

    _zeros = ("exp_avg", "exp_avg_sq")

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        defaults = options(
            "lr betas eps weight_decay amsgrad maximize foreach capturable differentiable fused decoupled_weight_decay",
            locals(),
        )
        check_common(defaults, "eps", "betas", "weight_decay")
        _check_tensors(lr, betas, bool(foreach) and not capturable)
        super().__init__(params, defaults)

    def _begin(self, p: Tensor, grad: Tensor, state: dict[str, Any], group: ParamGroup) -> None:
        super()._begin(p, grad, state, group)
        if group.plain("amsgrad") and "max_exp_avg_sq" not in state:
            state["max_exp_avg_sq"] = zeros_like(p)

    def _update(self, p: Tensor, grad: Tensor, state: dict[str, Any], group: ParamGroup) -> None:
        grad = _decayed(p, grad, group, group.plain("decoupled_weight_decay"))
        t, beta1, beta2 = _moments(p, grad, state, group)
        decay = shared(p, group, t, "beta2", lambda: beta2)
        gain = shared(p, group, t, "1 - beta2", lambda: 1 - beta2)
        v = addcmul_(state["exp_avg_sq"].mul_(decay), grad, grad, gain)
        if group.plain("amsgrad"):
            greatest = state["max_exp_avg_sq"]
            before = greatest.clone() if group.plain("differentiable") else greatest  # which backward reads
            v = greatest.copy_(aj.maximum(before, v))
        step = shared(p, group, t, "step", lambda: -(hyper(group, "lr") / (1 - beta1**t)))
        scale = shared(p, group, t, "scale", lambda: sqrt(1 - beta2**t))
        eps = shared(p, group, t, "eps", lambda: hyper(group, "eps"))
        addcdiv_(p, state["exp_avg"], root(v, scale, eps), step)


class AdamW(Adam):
    """Adam with decoupled weight decay: p *= 1 - lr weight_decay before the step. Source: arXiv:1711.05101."""

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        given = options("lr betas eps weight_decay amsgrad maximize foreach capturable differentiable fused", locals())
        super().__init__(params, **given, decoupled_weight_decay=True)


class Adamax(Optimizer):
    """Adam with the infinity norm in place of the second moment. Source: arXiv:1412.6980, section 7."""

    _zeros = ("exp_avg", "exp_inf")

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        defaults = options("lr betas eps weight_decay maximize foreach differentiable capturable", locals())
        check_common(defaults, "eps", "betas", "weight_decay")
        super().__init__(params, defaults)

    def _update(self, p: Tensor, grad: Tensor, state: dict[str, Any], group: ParamGroup) -> None:
        grad = _decayed(p, grad, group, False)
        t, beta1, beta2 = _moments(p, grad, state, group)
        norm = state["exp_inf"]
        norm.copy_(aj.maximum(norm * beta2, grad.abs().add_(hyper(group, "eps"))))
        addcdiv_(p, state["exp_avg"], norm, -hyper(group, "lr") / (1 - beta1**t))


class NAdam(Optimizer):
    """Adam with Nesterov momentum and a momentum schedule. Source: Dozat, ICLR workshop 2016."""

    _zeros = ("exp_avg", "exp_avg_sq")

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        defaults = options(
            "lr betas eps weight_decay momentum_decay decoupled_weight_decay maximize foreach capturable "
            "differentiable",
            locals(),
        )
        check_common(defaults, "eps", "betas", "weight_decay")
        check(momentum_decay >= 0.0, "momentum_decay value", momentum_decay)
        super().__init__(params, defaults)

    def _begin(self, p: Tensor, grad: Tensor, state: dict[str, Any], group: ParamGroup) -> None:
        super()._begin(p, grad, state, group)
        if "mu_product" not in state:
            state["mu_product"] = lasting(lambda: aj.ones((), dtype=scalar_dtype(), device="cpu"))

    def _update(self, p: Tensor, grad: Tensor, state: dict[str, Any], group: ParamGroup) -> None:
        grad = _decayed(p, grad, group, group.plain("decoupled_weight_decay"))
        t, beta1, beta2 = _moments(p, grad, state, group)
        product = state["mu_product"]
        v = addcmul_(state["exp_avg_sq"].mul_(beta2), grad, grad, 1 - beta2)
        decay = hyper(group, "momentum_decay")
        mu = beta1 * (1.0 - 0.5 * (0.96 ** (t * decay)))
        mu_next = beta1 * (1.0 - 0.5 * (0.96 ** ((t + 1) * decay)))
        product.mul_(mu.to(product.dtype) if isinstance(mu, Tensor) else mu)  # a number is rounded to float32 first
        is_kept = is_tracing() or group.plain("differentiable")
        done = product.to(aj.float64) if is_kept else product.item()
        lr = hyper(group, "lr")
        denominator = root(v / (1 - beta2**t), 1, hyper(group, "eps"))
        addcdiv_(p, grad, denominator, -lr * (1.0 - mu) / (1.0 - done))
        addcdiv_(p, state["exp_avg"], denominator, -lr * mu_next / (1.0 - done * mu_next))


class RAdam(Optimizer):
    """Adam whose adaptive part waits until its variance is tractable. Source: arXiv:1908.03265."""

    _zeros = ("exp_avg", "exp_avg_sq")

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        defaults = options(
            "lr betas eps weight_decay maximize foreach capturable differentiable decoupled_weight_decay",
            locals(),
        )
        check_common(defaults, "eps", "betas", "weight_decay")
        super().__init__(params, defaults)

    def _update(self, p: Tensor, grad: Tensor, state: dict[str, Any], group: ParamGroup) -> None:
        grad = _decayed(p, grad, group, group.plain("decoupled_weight_decay"))
        t, beta1, beta2 = _moments(p, grad, state, group)
        v = addcmul_(state["exp_avg_sq"].mul_(beta2), grad, grad, 1 - beta2)
        correction2 = 1 - beta2**t
        limit = 2 / (1 - beta2) - 1
        rho = limit - 2 * t * (beta2**t) / correction2
        step_size = hyper(group, "lr") / (1 - beta1**t)
        if not isinstance(rho, Tensor):
            if rho > 5.0:
                scale = _rectification(rho, limit) * sqrt(correction2)
                addcdiv_(p, state["exp_avg"], root(v, 1, hyper(group, "eps")), -step_size * scale)
            else:
                axpy_(p, state["exp_avg"], -step_size)
            return
        scale = _rectification(rho.clamp(min=5.0), limit) * sqrt(correction2)
        adaptive = scale / root(v, 1, hyper(group, "eps"))
        p.sub_(state["exp_avg"] * step_size * aj.where(rho > 5.0, adaptive, 1.0))


def _rectification(rho: Any, limit: Any) -> Any:
    """The variance rectification term, for rho > 4."""
    return sqrt((rho - 4) * (rho - 2) * limit / ((limit - 4) * (limit - 2) * rho))
