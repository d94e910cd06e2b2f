"""Weights divided by their largest singular value. Source: Miyato et al., arXiv:1802.05957.

The singular vectors follow by one step of the power method per call in training.
"""

from __future__ import annotations

from typing import Any, TypeVar

import autojit as aj
from autojit.core.errors import ArgumentError, UsageError
from autojit.nn import functional as F
from autojit.nn.convolution import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from autojit.nn.hooks import pre_hook_of
from autojit.nn.module import Module
from autojit.nn.parameter import Parameter, is_lazy
from autojit.tensor import Tensor

AnyModule = TypeVar("AnyModule", bound=Module)


def default_dim(module: Module, dim: int | None) -> int:
    """The axis of a weight's outputs: 1 for transposed convolutions, else 0."""
    if dim is not None:
        return dim
    return 1 if isinstance(module, ConvTranspose1d | ConvTranspose2d | ConvTranspose3d) else 0


def as_matrix(weight: Tensor, dim: int) -> Tensor:
    """The weight with ``dim`` first and all other axes as one."""
    moved = weight if dim == 0 else weight.movedim(dim, 0)
    return moved.reshape(moved.shape[0], -1)


def unit_vector(matrix: Tensor, size: int, eps: float) -> Tensor:
    """A drawn vector of norm 1, with which the power method starts."""
    return F.normalize(matrix.new_empty(size).normal_(0, 1), dim=0, eps=eps)


def check_steps(n_power_iterations: int) -> None:
    """ValueError unless the power method takes a step."""
    if n_power_iterations <= 0:
        raise ArgumentError(
            f"Expected n_power_iterations to be positive, but got n_power_iterations={n_power_iterations}"
        )


class SpectralNorm:
    """The forward pre-hook that computes ``name`` from ``name_orig`` and the vectors ``name_u`` and ``name_v``."""

    _version = 1

    def __init__(self, name: str = "weight", n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12) -> None:
        check_steps(n_power_iterations)
        self.name = name
        self.dim = dim
        self.n_power_iterations = n_power_iterations
        self.eps = eps

    def compute_weight(self, module: Module, do_power_iteration: bool) -> Tensor:
        """The weight over its largest singular value, as far as ``u`` and ``v`` know it."""
        weight, u, v = (getattr(module, self.name + suffix) for suffix in ("_orig", "_u", "_v"))
        matrix = as_matrix(weight, self.dim)
        if do_power_iteration:
            with aj.no_grad():
                for _ in range(self.n_power_iterations):
                    v.copy_(F.normalize(aj.mv(matrix.t(), u), dim=0, eps=self.eps))
                    u.copy_(F.normalize(aj.mv(matrix, v), dim=0, eps=self.eps))
                u, v = u.clone(), v.clone()  # a second call before backward changes the buffers again
        found: Tensor = weight / aj.dot(u, aj.mv(matrix, v))
        return found

    def remove(self, module: Module) -> None:
        """Make the weight a parameter again."""
        with aj.no_grad():
            weight = self.compute_weight(module, False)
        for name in (self.name, self.name + "_u", self.name + "_v", self.name + "_orig"):
            delattr(module, name)
        module.register_parameter(self.name, Parameter(weight.detach()))

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module, module.training))

    @staticmethod
    def apply(module: Module, name: str, n_power_iterations: int, dim: int, eps: float) -> SpectralNorm:
        """Replace the parameter ``name`` of the module.

        Raises:
            RuntimeError: it is normalised already.
            ValueError: it is None or has no shape yet.
        """
        if pre_hook_of(module, SpectralNorm, name=name) is not None:
            raise UsageError(f"Cannot register two spectral_norm hooks on the same parameter {name}")
        made = SpectralNorm(name, n_power_iterations, dim, eps)
        weight = module._parameters[name]
        if weight is None:
            raise ArgumentError(f"`SpectralNorm` cannot be applied as parameter `{name}` is None")
        if is_lazy(weight):
            raise ArgumentError(
                "The module passed to `SpectralNorm` can't have uninitialized parameters. Make sure to run the dummy "
                "forward before applying spectral normalization"
            )
        with aj.no_grad():
            rows, columns = as_matrix(weight, dim).shape
            u, v = unit_vector(weight, rows, eps), unit_vector(weight, columns, eps)
        delattr(module, name)
        module.register_parameter(name + "_orig", weight)
        setattr(module, name, weight.data)
        module.register_buffer(name + "_u", u)
        module.register_buffer(name + "_v", v)
        module.register_forward_pre_hook(made)
        module.register_state_dict_post_hook(made._mark_version)
        module.register_load_state_dict_pre_hook(made._take_older)
        return made

    def _take_older(
        self, module: Module, state_dict: Any, prefix: str, local_metadata: dict[str, Any], strict: bool,
        missing_keys: list[str], unexpected_keys: Any, error_msgs: Any,
    ) -> None:  # fmt: skip
        """States of before version 1 have the weight and no ``v``, which follows from it: W v = sigma u."""
        version, key = local_metadata.get("spectral_norm", {}).get(self.name + ".version"), prefix + self.name
        if version is not None and version >= 1:
            return
        if version is None and key not in state_dict and all(key + end in state_dict for end in ("_orig", "_u", "_v")):
            return  # of now, without its metadata
        missing = [key + end for end in ("_orig", "", "_u") if key + end not in state_dict]
        if missing:
            missing_keys.extend(missing if strict else ())
            return
        with aj.no_grad():
            original, u = state_dict[key + "_orig"], state_dict[key + "_u"]
            sigma = (original / state_dict.pop(key)).mean()
            matrix = as_matrix(original, self.dim)
            v = aj.linalg.multi_dot([matrix.t().mm(matrix).pinverse(), matrix.t(), u.unsqueeze(1)]).squeeze(1)
            state_dict[key + "_v"] = v.mul_(sigma / aj.dot(u, aj.mv(matrix, v)))

    def _mark_version(self, module: Module, state_dict: Any, prefix: str, local_metadata: dict[str, Any]) -> None:
        local_metadata.setdefault("spectral_norm", {})[self.name + ".version"] = self._version


def spectral_norm(
    module: AnyModule, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> AnyModule:
    """Divide a parameter by its largest singular value before every call; returns the module.

    Args:
        n_power_iterations: steps of the power method per call in training.
        eps: keeps norms off zero.
        dim: the axis of outputs; 0, for transposed convolutions 1.

    Example:
        >>> from autojit import nn
        >>> sorted(nn.utils.spectral_norm(nn.Linear(3, 2)).state_dict())
        ['bias', 'weight_orig', 'weight_u', 'weight_v']
    """
    SpectralNorm.apply(module, name, n_power_iterations, default_dim(module, dim), eps)
    return module


def remove_spectral_norm(module: AnyModule, name: str = "weight") -> AnyModule:
    """Undo ``spectral_norm``: the weight as it is becomes a parameter.

    Raises:
        ValueError: it is not normalised.
    """
    found = pre_hook_of(module, SpectralNorm, name=name)
    if found is None:
        raise ValueError(f"spectral_norm of '{name}' not found in {module}")
    key, hook = found
    hook.remove(module)
    del module._forward_pre_hooks[key]
    for hooks in (module._state_dict_hooks, module._load_state_dict_pre_hooks):
        for number, kept in list(hooks.items()):
            if getattr(kept, "__self__", None) is hook:
                del hooks[number]
    return module
