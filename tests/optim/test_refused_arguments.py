"""What an optimiser refuses it refuses with torch's type and words, the user's line, and what to do instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj
from autojit import nn

MODEL = nn.Linear(3, 2)
REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str, str]] = {
    "a negative rate": (
        lambda: aj.optim.SGD(MODEL.parameters(), lr=-1),
        ValueError,
        "Invalid learning rate: -1",
        "negative",
    ),
    "a beta": (
        lambda: aj.optim.Adam(MODEL.parameters(), betas=(2, 0)),
        ValueError,
        "beta parameter at index 0: 2",
        "less",
    ),
    "a text": (
        lambda: aj.optim.SGD(MODEL.parameters(), lr="0.1"),
        TypeError,
        "lr must be a number, not str",
        "lr=0.001",
    ),  # type: ignore[arg-type]
    "a method": (lambda: aj.optim.SGD(MODEL.parameters, lr=1), TypeError, "an iterable of Tensors", "call it"),  # type: ignore[arg-type]
    "a module": (lambda: aj.optim.SGD(MODEL, lr=1), TypeError, "but got Linear", "model.parameters()"),  # type: ignore[arg-type]
    "a tensor": (lambda: aj.optim.SGD(MODEL.weight, lr=1), TypeError, "an iterable of Tensors", "[parameter]"),
    "numbers": (lambda: aj.optim.SGD([1, 2], lr=1), TypeError, "one of the params is int", "model.parameters()"),
    "a result": (lambda: aj.optim.SGD([MODEL.weight * 2], lr=1), ValueError, "can't optimize a non-leaf", "detach()"),
    "nothing": (lambda: aj.optim.SGD([], lr=1), ValueError, "empty parameter list", "again"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_refusal_has_torchs_words_the_line_and_a_way_out(what: str) -> None:
    call, kind, words, fix = REFUSED[what]
    with pytest.raises(kind) as told:
        call()
    text = str(told.value)
    assert words in text
    assert "test_refused_arguments.py:" in text
    assert fix in text[text.index("fix") :]


def test_a_state_dict_of_other_groups_is_refused_with_both() -> None:
    optimizer = aj.optim.SGD(MODEL.parameters(), lr=1)
    with pytest.raises(ValueError, match="doesn't match the size") as told:
        optimizer.load_state_dict(aj.optim.SGD([MODEL.weight], lr=1).state_dict())
    assert "[2]" in str(told.value) and "[1]" in str(told.value)
    groups = [{"params": [p]} for p in MODEL.parameters()]
    with pytest.raises(ValueError, match="different number of parameter groups"):
        optimizer.load_state_dict(aj.optim.SGD(groups, lr=1).state_dict())


def test_a_rate_that_changes_from_step_to_step_is_a_number_to_a_step() -> None:
    weight = aj.ones(2, requires_grad=True)

    @aj.jit
    def step(lr: float) -> Any:
        weight.grad = None
        (weight * weight).sum().backward()
        aj.optim.SGD([weight], lr=lr).step()
        return weight.sum()

    with aj.no_grad():
        expected = weight.clone()
    for lr in (0.1, 0.2, 0.3):
        expected = expected - lr * 2 * expected
        assert step(lr).item() == pytest.approx(expected.sum().item())


def test_an_option_without_a_default_must_be_set_by_every_group() -> None:
    required = aj.optim.optimizer.required
    weight, bias = aj.nn.Parameter(aj.ones(2)), aj.nn.Parameter(aj.ones(1))
    optimizer = aj.optim.Optimizer([{"params": [weight], "lr": 0.1}], {"lr": required})
    with pytest.raises(ValueError, match="required optimization parameter lr"):
        optimizer.add_param_group({"params": [bias]})
    assert len(optimizer.param_groups) == 1
