"""Stochastic gradient descent with momentum."""

from __future__ import annotations

from typing import Any

import autojit as aj
from autojit.optim.arithmetic import axpy_, has, lasting, stepping, with_decay, zeros_like
from autojit.optim.given import check, check_common, options
from autojit.optim.optimizer import Optimizer, Params
from autojit.optim.param_group import ParamGroup, hyper
from autojit.tensor import Tensor


class SGD(Optimizer):
    """p -= lr v with v = momentum v + (1 - dampening) g, or with ``nesterov`` along g + momentum v.

    The first step sets v = g. Source: Sutskever et al., ICML 2013 (torch's form of it).

    Example:
        >>> import autojit as aj
        >>> p = aj.nn.Parameter(aj.tensor([1.0]))
        >>> p.grad = aj.tensor([2.0])
        >>> aj.optim.SGD([p], lr=0.25).step()
        >>> p.item()
        0.5
    """

    takes_sparse = True

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float | Tensor = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        defaults = options(
            "lr momentum dampening weight_decay nesterov maximize foreach differentiable fused",
            locals(),
        )
        check_common(defaults)
        check(momentum >= 0.0, "momentum value", momentum)
        check(isinstance(weight_decay, Tensor) or weight_decay >= 0.0, "weight_decay value", weight_decay)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        self._undamped: dict[Tensor, Tensor] = {}  # per parameter 1 before its first step, then 0
        super().__init__(params, defaults)

    def _begin(self, p: Tensor, grad: Tensor, state: dict[str, Any], group: ParamGroup) -> None:
        if has(group, "momentum") and state.get("momentum_buffer") is None:
            state["momentum_buffer"] = zeros_like(p)
            self._undamped[_whole(p)] = _one()

    def followed(self) -> tuple[dict[Any, Tensor], dict[Any, Any]]:
        tensors, others = super().followed()
        params = [p for group in self.param_groups for p in group["params"]]
        tensors.update({("undamped", str(k)): self._undamped[p] for k, p in enumerate(params) if p in self._undamped})
        return tensors, others

    def _update(self, p: Tensor, grad: Tensor, state: dict[str, Any], group: ParamGroup) -> None:
        direction = with_decay(grad, p, group, hyper(group, "weight_decay"))
        if has(group, "momentum"):
            direction = self._with_momentum(direction, p, state, group)
        axpy_(p, direction, -hyper(group, "lr"))

    def _with_momentum(self, direction: Tensor, p: Tensor, state: dict[str, Any], group: ParamGroup) -> Tensor:
        momentum = hyper(group, "momentum")
        velocity: Tensor = state["momentum_buffer"]
        share = 1 - hyper(group, "dampening") if has(group, "dampening") else 1
        first = self._undamped.get(_whole(p))
        if first is not None and has(group, "dampening"):
            # the first direction enters undamped; a tensor says so, since a compiled step serves first and later calls
            share = share + (1 - share) * first
            first.zero_()
        axpy_(velocity.mul_(momentum), direction, share)
        return direction + velocity * momentum if group.plain("nesterov") else velocity


def _whole(p: Tensor) -> Tensor:
    """The parameter whose turn it is: of a complex one ``p`` is a view made for this step."""
    call = stepping.call
    return p if call is None or call.parameter is None else call.parameter


def _one() -> Tensor:
    return lasting(lambda: aj.ones((), dtype=aj.float64, device="cpu"))
