"""An error says by its path which module it came up in: eagerly, in a capture and from a compiled step."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

import autojit as aj
from autojit import nn
from autojit.core.errors import ShapeError


class Tower(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 4)
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)) for _ in range(2)])

    def forward(self, index: Any) -> Any:
        x = self.embed(index)
        for block in self.blocks:
            x = block(x)
        return x


def noted(error: BaseException) -> list[str]:
    return [note.split(maxsplit=1)[1] for note in getattr(error, "__notes__", []) if note.startswith("  module")]


@pytest.mark.parametrize("wrap", [lambda f: f, aj.jit], ids=["eager", "compiled"])
def test_a_shape_that_does_not_fit_names_the_layer(wrap: Any) -> None:
    model = Tower()
    model.blocks[1][0] = nn.Linear(3, 4)
    run = wrap(lambda index: model(index))
    with pytest.raises(ShapeError) as told:
        run(aj.tensor([1]))
    assert noted(told.value) == ["blocks.1.0 (Linear)"]


@pytest.mark.parametrize("wrap", [lambda f: f, aj.jit], ids=["eager", "compiled"])
def test_a_value_that_is_refused_names_the_layer(wrap: Any) -> None:
    model = Tower()
    run = wrap(lambda index: model(index))
    run(aj.tensor([1]))
    with pytest.raises(IndexError) as told:
        run(aj.tensor([7]))
    assert noted(told.value) == ["embed (Embedding)"]


def test_a_module_alone_is_named_by_its_class_and_code_outside_by_none() -> None:
    with pytest.raises(ShapeError) as told:
        nn.Linear(3, 2)(aj.ones(4))
    assert noted(told.value) == ["Linear"]
    with pytest.raises(ShapeError) as told:
        aj.ones(3) @ aj.ones(4)
    assert noted(told.value) == []


def test_errors_of_users_are_left_as_they_are() -> None:
    class Refusing(nn.Module):
        def forward(self, x: Any) -> Any:
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine") as told:
        nn.Sequential(Refusing())(1)
    assert noted(told.value) == []


def test_an_error_with_its_module_is_pickled_without_it() -> None:
    with pytest.raises(ShapeError) as told:
        nn.Sequential(nn.Linear(3, 2))(aj.ones(4))
    again = pickle.loads(pickle.dumps(told.value))
    assert noted(again) == noted(told.value) == ["0 (Linear)"]
    assert len(pickle.dumps(told.value)) < 4000
