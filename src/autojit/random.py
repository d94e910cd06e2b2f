"""The default source of random numbers: seeds, its state, and blocks that leave it as it was.

Example:
    >>> import autojit as aj
    >>> with aj.random.fork_rng():
    ...     inside = aj.rand(2)
    >>> aj.equal(aj.rand(2), inside)
    True
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from autojit.functions.random import default_generator, get_rng_state, initial_seed, manual_seed, seed, set_rng_state


@contextmanager
def fork_rng(
    devices: Any = None,
    enabled: bool = True,
    _caller: str = "fork_rng",
    _devices_kw: str = "devices",
    device_type: str | None = None,
) -> Iterator[None]:
    """A block after which the default generator goes on from where it was before.

    Args:
        enabled: without it the block changes nothing.
        devices, device_type: accepted, like torch's names for its messages; there is one generator for all devices.
    """
    state = get_rng_state() if enabled else None
    try:
        yield
    finally:
        if state is not None:
            set_rng_state(state)


__all__ = [
    "default_generator", "fork_rng", "get_rng_state", "initial_seed", "manual_seed", "seed", "set_rng_state",
]  # fmt: skip
