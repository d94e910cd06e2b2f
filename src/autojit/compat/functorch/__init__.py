"""The package ``functorch`` that stood beside PyTorch before ``torch.func``: for programs that import it.

Its transforms are those of `autojit.func`; what is made here are its modules without state, by `functional_call`.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from autojit.core.errors import UsageError
from autojit.func import (
    functional_call,
    functionalize,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    stack_module_state,
    vjp,
    vmap,
)
from autojit.functions.factories import empty_like
from autojit.nn import Module, Parameter
from autojit.tensor import Tensor

__all__ = [
    "FunctionalModule", "FunctionalModuleWithBuffers", "combine_state_for_ensemble", "functionalize", "grad",
    "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "make_functional", "make_functional_with_buffers", "vjp",
    "vmap",
]  # fmt: skip


class FunctionalModuleWithBuffers(Module):
    """A module as a function ``(parameters, buffers, *arguments)``; both are tuples in the order of their names."""

    def __init__(self, model: Module) -> None:
        super().__init__()
        self.param_names = tuple(name for name, _ in model.named_parameters())
        self.buffer_names = tuple(name for name, _ in model.named_buffers())
        self.stateless_model = _without_data(model)

    def forward(self, *input: Any, **kwargs: Any) -> Any:
        """What the module computes with these tensors; buffers that it assigns are forgotten."""
        params, buffers, *args = input
        given = dict(zip(self.param_names, params, strict=True)) | dict(zip(self.buffer_names, buffers, strict=True))
        return functional_call(self.stateless_model, given, tuple(args), kwargs)


class FunctionalModule(FunctionalModuleWithBuffers):
    """A module without buffers as a function ``(parameters, *arguments)``."""

    def forward(self, *input: Any, **kwargs: Any) -> Any:
        """What the module computes with these parameters."""
        params, *args = input
        return super().forward(params, (), *args, **kwargs)


def _without_data(model: Module) -> Module:
    """A copy whose tensors are on the device ``meta``, so that it keeps no memory; those that are tied stay so."""
    empty: dict[int, Any] = {id(x): empty_like(x, device="meta") for x in model.buffers()}
    for x in model.parameters():
        empty[id(x)] = Parameter(empty_like(x, device="meta"), x.requires_grad)
    return copy.deepcopy(model, empty)


def _state(model: Module, disable_autograd_tracking: bool) -> tuple[tuple[Parameter, ...], tuple[Tensor, ...]]:
    """Copies of the module's parameters and buffers, which train apart from it."""
    copied = copy.deepcopy(model)
    params = tuple(copied.parameters())
    if disable_autograd_tracking:
        for param in params:
            param.requires_grad_(False)
    return params, tuple(copied.buffers())


def make_functional(
    model: Module, disable_autograd_tracking: bool = False
) -> tuple[FunctionalModule, tuple[Parameter, ...]]:
    """(function of parameters and arguments, copies of the parameters) of a module.

    Args:
        disable_autograd_tracking: the copies require no gradients; transforms such as `grad` do not need it.

    Raises:
        RuntimeError: the module has buffers.

    Example:
        >>> import autojit as aj
        >>> from autojit.compat.functorch import make_functional
        >>> function, parameters = make_functional(aj.nn.Linear(2, 1))
        >>> function(parameters, aj.ones(3, 2)).shape
        autojit.Size([3, 1])
    """
    if next(model.buffers(), None) is not None:
        raise UsageError(
            "make_functional(model): `model` has buffers. Please use make_functional_with_buffers(model) instead.",
            {"model": type(model).__name__, "buffers": [name for name, _ in model.named_buffers()]},
        )
    return FunctionalModule(model), _state(model, disable_autograd_tracking)[0]


def make_functional_with_buffers(
    model: Module, disable_autograd_tracking: bool = False
) -> tuple[FunctionalModuleWithBuffers, tuple[Parameter, ...], tuple[Tensor, ...]]:
    """(function of parameters, buffers and arguments, copies of the parameters, copies of the buffers) of a module.

    Args:
        disable_autograd_tracking: the copies require no gradients; transforms such as `grad` do not need it.
    """
    return FunctionalModuleWithBuffers(model), *_state(model, disable_autograd_tracking)


def combine_state_for_ensemble(
    models: Sequence[Module],
) -> tuple[FunctionalModuleWithBuffers, tuple[Tensor, ...], tuple[Tensor, ...]]:
    """(function, stacked parameters, stacked buffers) of modules that differ in their state only; for ``vmap``.

    Raises:
        RuntimeError: no models, models of several classes, or some training and some not.
    """
    parameters, buffers = stack_module_state(models)
    stacked = tuple(parameter.detach() for parameter in parameters.values())
    return FunctionalModuleWithBuffers(models[0]), stacked, tuple(buffers.values())
