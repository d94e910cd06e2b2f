"""Collectives inside of a captured step."""

from __future__ import annotations

from typing import Any

from autojit.core.errors import UnsupportedError
from autojit.tensor.state import state


def refuse(name: str) -> None:
    """What cannot be part of a step.

    Raises:
        UnsupportedError: a step is being captured.
    """
    if state.trace is not None:
        raise UnsupportedError(f"{name} is no part of a compiled step", {}, "call it outside of the step")


def _refused(name: str) -> Any:
    def call(*arguments: Any) -> None:
        refuse(name)

    return call


all_reduce, broadcast, reduce = _refused("all_reduce"), _refused("broadcast"), _refused("reduce")
all_gather = all_gather_list = _refused("all_gather")
reduce_scatter = reduce_scatter_list = _refused("reduce_scatter")
all_to_all = all_to_all_list = _refused("all_to_all")
