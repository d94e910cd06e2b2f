"""Keys of a state dict that do not fit come with what is probably meant: a wrapper's prefix, a letter."""

from __future__ import annotations

from typing import Any

import pytest

import autojit as aj
from autojit import nn


def notes(model: Any, state: Any) -> str:
    with pytest.raises(RuntimeError, match="Error\\(s\\) in loading state_dict") as told:
        model.load_state_dict(state)
    return "\n".join(getattr(told.value, "__notes__", []))


def test_what_a_wrapper_put_in_front_is_named_and_the_way_out_works() -> None:
    model = nn.Sequential(nn.Linear(3, 2))
    state = {f"module.{key}": value for key, value in model.state_dict().items()}
    told = notes(model, state)
    assert '"module."' in told
    model.load_state_dict(eval(told.partition(": load ")[2], {"state": state}))


def test_a_wrapped_model_is_told_to_load_inside() -> None:
    inner = nn.Linear(3, 2)
    wrapped = nn.ModuleDict({"encoder": inner})
    assert "model.encoder.load_state_dict(state)" in notes(wrapped, inner.state_dict())


def test_names_that_are_nearly_the_same_are_put_together_and_others_are_not() -> None:
    model = nn.Linear(3, 2)
    told = notes(model, {"weigth": aj.ones(2, 3), "bias": aj.ones(2)})
    assert '"weight" may be saved as "weigth"' in told
    assert notes(model, {"other": aj.ones(2, 3), "bias": aj.ones(2)}) == ""
    assert notes(model, {"bias": aj.ones(2)}) == ""
