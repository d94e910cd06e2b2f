"""Attributes of tensors that old versions of PyTorch had: reading them says what replaced them."""

from __future__ import annotations

from typing import Any

from autojit.core.errors import UsageError
from autojit.core.user_warnings import warn
from autojit.tensor.tensor import Tensor


def get_volatile(self: Tensor) -> bool:
    """Always False; warns."""
    warn("volatile was removed (Variable.volatile is always False)", UserWarning)
    return False


def set_volatile(self: Tensor, value: bool) -> None:
    """Nothing; warns."""
    warn_volatile()


def warn_volatile() -> None:
    """Say what replaces ``volatile``."""
    warn("volatile was removed and now has no effect. Use `with no_grad():` instead.", UserWarning)


def reinforce(self: Tensor, reward: object = None) -> None:
    """Say what replaces it.

    Raises:
        RuntimeError: always.
    """
    raise UsageError(
        "reinforce() was removed",
        {"tensor": self},
        "differentiate the loss -distribution.log_prob(sample) * reward, with autojit.distributions or a log_prob of "
        "your own; autojit.compat.v0_3 still has stochastic nodes",
    )


METHODS: dict[str, Any] = {"volatile": property(get_volatile, set_volatile), "reinforce": reinforce}
