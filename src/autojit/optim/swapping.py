"""An optimiser on other parameters and state for a while."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from autojit.core.errors import UsageError
from autojit.optim.optimizer import Optimizer
from autojit.tensor import Tensor
from autojit.tensor.state import bump_guard_epoch


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise UsageError(f"swap_in_optimizer_params_and_state: {message}")


@contextmanager
def swap_in_optimizer_params_and_state(
    optimizer: Optimizer, swapin_parameters: dict[str, Tensor], swapin_optim_state: dict[str, Any]
) -> Iterator[None]:
    """Inside, the optimiser works on the given parameters and state; afterwards on its own again.

    Args:
        swapin_parameters: in the order of the optimiser's own.
        swapin_optim_state: as ``optimizer.state_dict()`` returns it; its tensors are changed in place.

    Raises:
        RuntimeError: the state does not fit the optimiser, or the optimiser has none yet.
    """
    _require(bool(optimizer.state), "requires initialized optimizer state")
    _require(isinstance(swapin_optim_state.get("state"), dict), "requires a state as state_dict() returns it")
    state, groups = swapin_optim_state["state"], swapin_optim_state.get("param_groups")
    _require(
        isinstance(groups, list) and len(groups) == len(optimizer.param_groups),
        "the state has a different number of parameter groups than the live optimizer",
    )
    given = list(swapin_parameters.values())
    parts: list[tuple[dict[str, Any], list[Tensor]]] = []
    start = 0
    for k, (live, new) in enumerate(zip(optimizer.param_groups, groups or [], strict=True)):
        _require(isinstance(new, dict) and new.keys() == live.keys(), f"keys of parameter group {k} differ")
        count = len(new["params"])
        _require(count == len(live["params"]), f"parameter group {k} has a different number of parameters")
        _require(start + count <= len(given), "there are fewer parameters than the optimizer has")
        parts.append((new, given[start : start + count]))
        start += count
    known = {number for new, _ in parts for number in new["params"]}
    _require(known >= state.keys(), f"state of unknown parameters {sorted(state.keys() - known, key=str)}")
    own_state, own_groups = optimizer.state, [dict(group) for group in optimizer.param_groups]
    swapped: defaultdict[Any, dict[str, Any]] = defaultdict(dict)
    try:
        for live, (new, params) in zip(optimizer.param_groups, parts, strict=True):
            live.update({**new, "params": params})
            for p, number in zip(params, new["params"], strict=True):
                swapped[p] = dict(state.get(number, {}))
        optimizer.state = swapped
        bump_guard_epoch()
        yield
    finally:
        for live, own in zip(optimizer.param_groups, own_groups, strict=True):
            live.clear()
            live.update(own)
        optimizer.state = own_state
        bump_guard_epoch()
