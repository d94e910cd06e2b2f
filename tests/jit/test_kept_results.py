"""Who keeps what a step gives, in whatever form, has tensors made in batches: other Python runs once for many calls."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj
from autojit.core.config import config

WAYS: dict[str, Callable[[aj.Tensor], Any]] = {
    "itself": lambda r: r,
    "detached": lambda r: r.detach(),
    "detached and let go": lambda r: [r.detach()].clear(),
    "as an array": lambda r: r.numpy(),
    "a view": lambda r: r[:1],
    "with an attribute": lambda r: setattr(r, "note", 1) or r,
    "in a gradient": lambda r: setattr(r, "grad", aj.ones(2)) or r,
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_kept_results_are_right_and_python_is_entered_once_for_many(
    way: Callable[[aj.Tensor], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "check", False)  # checks are made by Python
    step, entered = aj.jit(lambda x: x * 2), []

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_name == "_recover":
            entered.append(frame.f_lineno)

    kept = []
    for k in range(260):
        result = step(aj.full((2,), float(k)))
        kept.append((k, result.tolist(), way(result)))
        del result
        if k == 99:
            sys.setprofile(note)
    sys.setprofile(None)
    assert len(entered) <= 8
    for k, value, held in kept:
        assert value == [2.0 * k, 2.0 * k]
        if held is not None:
            assert held.tolist() == value[: len(held)]
