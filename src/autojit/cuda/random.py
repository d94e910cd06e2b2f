"""Seeds under torch.cuda's names.

There is one generator for all devices, whose key is on the host: so the same seed gives the same numbers on the CPU
and on CUDA, at once and compiled. Without a device these calls leave it alone, as a seed of no device's generator.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from autojit.cuda.devices import device_count, is_available, require
from autojit.functions.random import default_generator
from autojit.tensor.tensor import Tensor

__all__ = [
    "get_rng_state", "get_rng_state_all", "initial_seed", "manual_seed", "manual_seed_all", "seed", "seed_all",
    "set_rng_state", "set_rng_state_all",
]  # fmt: skip


def manual_seed(seed: int) -> None:
    """Seed the generator, if there is a device.

    Example:
        >>> import autojit as aj
        >>> aj.cuda.manual_seed_all(0)
    """
    value = int(seed)
    if is_available():
        default_generator.manual_seed(value)


def manual_seed_all(seed: int) -> None:
    """The same: all devices draw from one generator."""
    manual_seed(seed)


def seed() -> None:
    """Seed the generator unpredictably, if there is a device."""
    if is_available():
        default_generator.seed()


def seed_all() -> None:
    """The same: all devices draw from one generator."""
    seed()


def initial_seed() -> int:
    """The seed that the generator started from.

    Raises:
        NoCudaError: there is no device.
    """
    require("initial_seed")
    return default_generator.initial_seed()


def get_rng_state(device: Any = "cuda") -> Tensor:
    """A copy of the generator's state.

    Raises:
        NoCudaError: there is no device.
    """
    require("get_rng_state")
    return default_generator.get_state()


def set_rng_state(new_state: Tensor, device: Any = "cuda") -> None:
    """Continue from a state that ``get_rng_state`` gave.

    Raises:
        NoCudaError: there is no device.
    """
    require("set_rng_state")
    default_generator.set_state(new_state)


def get_rng_state_all() -> list[Tensor]:
    """The state, once per device."""
    return [default_generator.get_state() for _ in range(device_count())]


def set_rng_state_all(new_states: Iterable[Tensor]) -> None:
    """Continue from states that ``get_rng_state_all`` gave.

    Raises:
        NoCudaError: there is no device.
    """
    for new_state in new_states:
        set_rng_state(new_state)
