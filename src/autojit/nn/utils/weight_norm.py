"""Weights as a magnitude times a direction. Source: Salimans and Kingma, arXiv:1602.07868."""

from __future__ import annotations

from typing import Any, TypeVar

import autojit as aj
from autojit.core.errors import ArgumentError, UsageError
from autojit.core.user_warnings import warn
from autojit.nn.hooks import pre_hook_of
from autojit.nn.module import Module
from autojit.nn.parameter import Parameter, is_lazy
from autojit.tensor import Tensor

AnyModule = TypeVar("AnyModule", bound=Module)


def norm_except(v: Tensor, dim: int | None) -> Tensor:
    """Norms over all axes but ``dim``, which are kept with extent 1; over all axes (a number) for None and -1."""
    if dim is None or dim == -1:
        return aj.linalg.vector_norm(v)
    others = tuple(axis for axis in range(v.ndim) if axis != dim % v.ndim)
    return aj.linalg.vector_norm(v, 2, others, True) if others else v.abs()


def normalized(v: Tensor, g: Tensor, dim: int | None) -> Tensor:
    """``g`` in the direction of ``v``."""
    return v * (g / norm_except(v, dim))


class WeightNorm:
    """The forward pre-hook that computes ``name`` from ``name_g`` and ``name_v``."""

    def __init__(self, name: str, dim: int | None) -> None:
        self.name = name
        self.dim = -1 if dim is None else dim

    def compute_weight(self, module: Module) -> Tensor:
        """The weight of the present magnitude and direction."""
        return normalized(getattr(module, self.name + "_v"), getattr(module, self.name + "_g"), self.dim)

    @staticmethod
    def apply(module: Module, name: str, dim: int | None) -> WeightNorm:
        """Replace the parameter ``name`` of the module.

        Raises:
            RuntimeError: it is normalised already.
            ValueError: it has no shape yet.
        """
        warn(
            "`torch.nn.utils.weight_norm` is deprecated in favor of `torch.nn.utils.parametrizations.weight_norm`.",
            FutureWarning,
        )
        if pre_hook_of(module, WeightNorm, name=name) is not None:
            raise UsageError(f"Cannot register two weight_norm hooks on the same parameter {name}")
        made = WeightNorm(name, dim)
        weight = getattr(module, name)
        if is_lazy(weight):
            raise ArgumentError(
                "The module passed to `WeightNorm` can't have uninitialized parameters. Make sure to run the dummy "
                "forward before applying weight normalization"
            )
        delattr(module, name)
        module.register_parameter(name + "_g", Parameter(norm_except(weight, made.dim).data))
        module.register_parameter(name + "_v", Parameter(weight.data))
        setattr(module, name, made.compute_weight(module))
        module.register_forward_pre_hook(made)
        return made

    def remove(self, module: Module) -> None:
        """Make the weight a parameter again."""
        weight = self.compute_weight(module)
        for name in (self.name, self.name + "_g", self.name + "_v"):
            delattr(module, name)
        setattr(module, self.name, Parameter(weight.data))

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module))


def weight_norm(module: AnyModule, name: str = "weight", dim: int = 0) -> AnyModule:
    """Replace a parameter by a magnitude ``name_g`` and a direction ``name_v``, joined before every call.

    Deprecated in torch in favour of ``parametrizations.weight_norm``; warns so.

    Args:
        dim: the axis that keeps a magnitude per index; None for one magnitude.
    """
    WeightNorm.apply(module, name, dim)
    return module


def remove_weight_norm(module: AnyModule, name: str = "weight") -> AnyModule:
    """Undo ``weight_norm``: the weight as it is becomes a parameter.

    Raises:
        ValueError: it is not normalised.
    """
    found = pre_hook_of(module, WeightNorm, name=name)
    if found is None:
        raise ValueError(f"weight_norm of '{name}' not found in {module}")
    key, hook = found
    hook.remove(module)
    del module._forward_pre_hooks[key]
    return module
