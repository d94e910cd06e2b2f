"""What a workload hands to a system: a training problem or a pure function, its data, and the work in one step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

Namespace: TypeAlias = Any  # torch or autojit: one interface, so workloads are written once
Array: TypeAlias = npt.NDArray[Any]
Check: TypeAlias = Callable[[Any], dict[str, float]]


@dataclass(frozen=True)
class Optimizer:
    """Which optimiser, with torch's hyper-parameter names and defaults."""

    kind: Literal["SGD", "Adam", "AdamW"]
    lr: float
    momentum: float = 0.0
    weight_decay: float = 0.0

    def options(self) -> dict[str, float]:
        """Keyword arguments of the torch-like constructor."""
        if self.kind == "SGD":
            return {"lr": self.lr, "momentum": self.momentum}
        return {"lr": self.lr, "weight_decay": self.weight_decay}


@dataclass(frozen=True)
class Training:
    """``loss(*args)`` reads ``parameters`` from outside (torch-like) or takes them first (JAX)."""

    loss: Callable[..., Any]
    parameters: Sequence[Any]
    optimizer: Optimizer
    args: tuple[Any, ...]


@dataclass(frozen=True)
class Function:
    """A pure function of constant arguments; ``check(outputs)`` condenses them to named numbers."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    check: Check
    x64: bool = False  # JAX needs to be told


@dataclass(frozen=True)
class Program:
    """Compiled functions with the Python that a user writes around them; ``check`` condenses what a call returns.

    ``make(compile)`` is given what the system compiles functions by, and returns a call without arguments: a cycle of
    the program (all its batches, a whole sequence), so that all calls do the same work.
    """

    make: Callable[[Callable[..., Any]], Callable[[], Any]]
    check: Check


Problem: TypeAlias = Training | Function | Program


@dataclass(frozen=True)
class Work:
    """Least work of one step: multiply-add flops of matrix products, bytes to and from memory beyond the caches."""

    flops: float = 0.0
    bytes: float = 0.0
    dtype: str = "float32"


@dataclass(frozen=True)
class Workload:
    """One row of the tables."""

    build: Callable[[Namespace], Problem]
    build_jax: Callable[[], Problem]
    work: Callable[[], Work]


def linear_parameters(rng: np.random.Generator, fan_in: int, fan_out: int, dtype: str = "float32") -> list[Array]:
    """Weight ``(fan_out, fan_in)`` and bias ``(fan_out,)``, uniform in +-1/sqrt(fan_in): torch.nn.Linear's default."""
    bound = fan_in**-0.5
    weight = rng.uniform(-bound, bound, (fan_out, fan_in)).astype(dtype)
    return [weight, rng.uniform(-bound, bound, fan_out).astype(dtype)]


def leaf(T: Namespace, array: Array) -> Any:
    """A tensor that asks for its gradient."""
    return T.tensor(array).requires_grad_(True)


def set_parameters(T: Namespace, module: Any, arrays: Sequence[Array]) -> Any:
    """Copy ``arrays`` into the module's parameters, in their order; returns the module."""
    with T.no_grad():
        for parameter, array in zip(module.parameters(), arrays, strict=True):
            parameter.copy_(T.tensor(array))
    return module


def on_host(array: Any) -> Array:
    """The elements of a tensor or an array of any system, wherever they are."""
    return np.asarray(array.cpu() if hasattr(array, "cpu") else array)


def norm(array: Any) -> float:
    """Euclidean norm in float64."""
    return float(np.linalg.norm(on_host(array).astype(np.float64)))


def loss_check(loss: Any) -> dict[str, float]:
    return {"loss": float(loss)}
