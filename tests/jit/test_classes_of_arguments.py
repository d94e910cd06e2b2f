"""What stands for an argument is of the argument's class: it has its methods, ``isinstance`` and ``type`` tell it."""

from __future__ import annotations

from typing import Any

import pytest

import autojit as aj
from autojit import nn


class Measured(aj.Tensor):
    def in_metres(self) -> aj.Tensor:
        return self * 1000.0


def _tensors() -> list[Any]:
    return [aj.ones(2), aj.ones(2).as_subclass(Measured), nn.Parameter(aj.ones(2)), nn.Buffer(aj.ones(2))]


def _told(x: Any) -> tuple[Any, ...]:
    kinds = isinstance(x, nn.Parameter), isinstance(x, nn.Buffer), isinstance(x, Measured), type(x).__name__
    made = x.in_metres() if isinstance(x, Measured) else x * 2
    return (*kinds, made, type(made).__name__, type(x.detach()).__name__)


@pytest.mark.parametrize("place", range(4))
def test_a_step_asks_for_the_class_of_what_it_is_given(place: int) -> None:
    compiled = aj.jit(_told)
    for _ in range(2):
        for x in (_tensors()[place], *_tensors()):
            found, expected = compiled(x), _told(x)
            assert found[:4] == expected[:4]
            assert found[5:] == expected[5:]
            assert aj.equal(found[4], expected[4])
            assert type(found[4]) is type(expected[4])


def test_a_parameter_that_is_given_can_be_kept_by_a_module() -> None:
    def step(weight: aj.Tensor, x: aj.Tensor) -> aj.Tensor:
        layer = nn.Linear(2, 1, bias=False)
        layer.weight = weight  # type: ignore[assignment]
        return layer(x)

    weight = nn.Parameter(aj.tensor([[1.0, 2.0]]))
    assert aj.equal(aj.jit(step)(weight, aj.ones(2)), step(weight, aj.ones(2)))
