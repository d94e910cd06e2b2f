"""Public functions are found by pickles, as torch's are: in arguments of processes, in modules, in transforms."""

from __future__ import annotations

import inspect
import pickle
from types import ModuleType

import pytest

import autojit as aj
from autojit import nn

PLACES: dict[str, ModuleType] = {
    "autojit": aj, "functional": nn.functional, "linalg": aj.linalg, "special": aj.special, "fft": aj.fft,
}  # fmt: skip
OTHERS = {
    "segment_reduce", "spmm", "dsmm", "hsmm", "grid_sampler", "grid_sampler_2d", "grid_sampler_3d", "matmul", "exp2",
    "expit", "expm1", "log1p", "psi",
}  # fmt: skip
"""Names of functions that are made of those of the same name, or of another, in a place of their own."""


@pytest.mark.parametrize("place", PLACES)
def test_a_function_comes_back_as_itself(place: str) -> None:
    lost = []
    for name in dir(PLACES[place]):
        function = getattr(PLACES[place], name)
        if name.startswith("_") or not inspect.isfunction(function):
            continue
        try:
            same = pickle.loads(pickle.dumps(function))
        except pickle.PicklingError:
            same = None
        if same is not function and getattr(aj, name, None) is not same:
            lost.append(name)
    assert set(lost) <= OTHERS


def test_modules_keep_functions_as_attributes() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.TransformerEncoderLayer(2, 1, 4, activation=aj.relu))
    model.act = aj.tanh
    again = pickle.loads(pickle.dumps(model))
    assert again.act is aj.tanh and again[1].activation is aj.relu
