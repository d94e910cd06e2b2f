"""Methods that scale by a history of gradients without Adam's moments: RMSprop, Adagrad, Adadelta, Rprop, ASGD."""

from __future__ import annotations

from typing import Any

import autojit as aj
from autojit.core.errors import UsageError
from autojit.core.layout import strided
from autojit.optim.arithmetic import (
    addcdiv_,
    addcmul_,
    advance,
    axpy_,
    full_like,
    has,
    lasting,
    lerp_,
    root,
    scalar_dtype,
    step_counter,
    with_decay,
    zeros_like,
)  # fmt: skip
from autojit.optim.given import check, check_common, options, refuse
from autojit.optim.optimizer import Optimizer, Params
from autojit.optim.param_group import ParamGroup, hyper
from autojit.tensor import Tensor
from autojit.tensor.state import is_tracing


class RMSprop(Optimizer):
    """p -= lr g / (sqrt(v) + eps) with v a running mean of g^2 (``centered``: of the variance of g).

    Source: Hinton, Neural Networks for Machine Learning, lecture 6.5; centred form: arXiv:1308.0850.
    """

    _zeros = ("square_avg",)

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        defaults = options(
            "lr momentum alpha eps centered weight_decay capturable foreach differentiable maximize",
            locals(),
        )
        check_common(defaults, "eps", "momentum", "weight_decay", "alpha")
        super().__init__(params, defaults)

    def _begin(self, p: Tensor, grad: Tensor, state: dict[str, Any], group: ParamGroup) -> None:
        if not state:
            super()._begin(p, grad, state, group)
            if has(group, "momentum"):
                state["momentum_buffer"] = zeros_like(p)
            if group.plain("centered"):
                state["grad_avg"] = zeros_like(p)

    def _update(self, p: Tensor, grad: Tensor, state: dict[str, Any], group: ParamGroup) -> None:
        advance(state["step"])
        grad = with_decay(grad, p, group, hyper(group, "weight_decay"))
        alpha = hyper(group, "alpha")
        v = addcmul_(state["square_avg"].mul_(alpha), grad, grad, 1 - alpha)
        if group.plain("centered"):
            mean = lerp_(state["grad_avg"], grad, 1 - alpha)
            v = v - mean * mean
        denominator = root(v, 1, hyper(group, "eps"))
        if has(group, "momentum"):
            buffer = addcdiv_(state["momentum_buffer"].mul_(hyper(group, "momentum")), grad, denominator, 1)
            axpy_(p, buffer, -hyper(group, "lr"))
        else:
            addcdiv_(p, grad, denominator, -hyper(group, "lr"))


class Adagrad(Optimizer):
    """p -= lr g / (sqrt(sum of g^2) + eps), lr falling as lr / (1 + (t - 1) lr_decay). Source: JMLR 12 (2011)."""

    takes_sparse = True

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        defaults = options(
            "lr lr_decay eps weight_decay initial_accumulator_value foreach differentiable fused maximize",
            locals(),
        )
        check_common(defaults, "lr_decay", "weight_decay", "initial_accumulator_value", "eps")
        super().__init__(params, defaults)
        self._begin_at_once()

    def _begin(self, p: Tensor, grad: Tensor, state: dict[str, Any], group: ParamGroup) -> None:
        if not state:
            state["step"] = step_counter()
            first = full_like(p, group.plain("initial_accumulator_value"))
            state["sum"] = first * (1 + 1j) if p.is_complex() else first  # both parts, which are adapted one by one

    def _update(self, p: Tensor, grad: Tensor, state: dict[str, Any], group: ParamGroup) -> None:
        t = advance(state["step"])
        if grad.layout is not strided and has(group, "weight_decay"):
            raise UsageError("weight_decay option is not compatible with sparse gradients", {"gradient": grad})
        grad = with_decay(grad.to_dense(), p, group, hyper(group, "weight_decay"))
        lr = hyper(group, "lr") / (1 + (t - 1) * hyper(group, "lr_decay"))
        total = addcmul_(state["sum"], grad, grad, 1)
        addcdiv_(p, grad, root(total, 1, hyper(group, "eps")), -lr)


class Adadelta(Optimizer):
    """Steps in the units of the parameter: p -= lr rms(past steps) / rms(g) g. Source: arXiv:1212.5701."""

    _zeros = ("square_avg", "acc_delta")

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        defaults = options("lr rho eps weight_decay maximize capturable foreach differentiable", locals())
        check_common(defaults, "eps", "weight_decay")
        check(0.0 <= rho <= 1.0, "rho value", rho)
        super().__init__(params, defaults)

    def _update(self, p: Tensor, grad: Tensor, state: dict[str, Any], group: ParamGroup) -> None:
        advance(state["step"])
        grad = with_decay(grad, p, group, hyper(group, "weight_decay"))
        rho, eps = hyper(group, "rho"), hyper(group, "eps")
        v = addcmul_(state["square_avg"].mul_(rho), grad, grad, 1 - rho)
        steps = state["acc_delta"]
        delta = (steps + eps).sqrt() / (v + eps).sqrt() * grad
        addcmul_(steps.mul_(rho), delta, delta, 1 - rho)
        axpy_(p, delta, -hyper(group, "lr"))


class Rprop(Optimizer):
    """Steps by the sign of the gradient, each with a size that grows or shrinks. Source: Riedmiller, ICNN 1993."""

    _zeros = ("prev",)

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        defaults = options("lr etas step_sizes foreach differentiable capturable maximize", locals())
        check_common(defaults)
        refuse(not 0.0 < etas[0] < 1.0 < etas[1], "Invalid eta values: {}, {}", etas[0], etas[1])
        super().__init__(params, defaults)

    def _begin(self, p: Tensor, grad: Tensor, state: dict[str, Any], group: ParamGroup) -> None:
        if not state:
            super()._begin(p, grad, state, group)
            state["step_size"] = full_like(p, float(group.plain("lr")))

    def _update(self, p: Tensor, grad: Tensor, state: dict[str, Any], group: ParamGroup) -> None:
        advance(state["step"])
        if group.plain("maximize"):
            grad = -grad
        shrink, grow = group["etas"]
        smallest, greatest = group["step_sizes"]
        agreement = grad * state["prev"]
        turned = agreement < 0
        factor = aj.where(agreement > 0, grow, aj.where(turned, shrink, aj.ones_like(p)))
        size = state["step_size"].mul_(factor).clamp_(min=smallest, max=greatest)
        kept = aj.where(turned, 0.0, grad)  # after a sign change the parameter rests for one step
        p.sub_(kept.sign() * size)
        state["prev"].copy_(kept)


class ASGD(Optimizer):
    """SGD that averages the parameters (``state["ax"]``) from step ``t0`` on. Source: Polyak and Juditsky, 1992."""

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        defaults = options("lr lambd alpha t0 weight_decay foreach differentiable capturable maximize", locals())
        check_common(defaults, "weight_decay")
        super().__init__(params, defaults)

    def _begin(self, p: Tensor, grad: Tensor, state: dict[str, Any], group: ParamGroup) -> None:
        if not state:
            state["step"] = step_counter()
            state["eta"] = lasting(lambda: aj.tensor(float(group.plain("lr")), dtype=scalar_dtype(), device="cpu"))
            state["mu"] = lasting(lambda: aj.ones((), dtype=scalar_dtype(), device="cpu"))
            state["ax"] = zeros_like(p)

    def _update(self, p: Tensor, grad: Tensor, state: dict[str, Any], group: ParamGroup) -> None:
        t = advance(state["step"])
        grad = with_decay(grad, p, group, hyper(group, "weight_decay"))
        eta, mu = state["eta"], state["mu"]
        step = eta.to(aj.float64) if is_tracing() else eta.item()
        share = mu.to(aj.float64) if is_tracing() else mu.item()
        lr, lambd = hyper(group, "lr"), hyper(group, "lambd")
        axpy_(p.mul_(1 - lambd * step), grad, -step)
        lerp_(state["ax"], p, share)
        eta.fill_(lr / (1 + lambd * lr * t) ** hyper(group, "alpha"))
        late = t - hyper(group, "t0")
        mu.fill_(1 / late.clamp(min=1.0) if isinstance(late, Tensor) else 1 / max(1.0, late))
