"""``import functorch``: modules without state compute what the modules compute, and their transforms are ours."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

import autojit as aj
from autojit.compat import functorch
from autojit.core.errors import UsageError


class Tied(aj.nn.Module):
    """Two layers with one weight and one buffer under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.first = aj.nn.Linear(3, 3)
        self.second = aj.nn.Linear(3, 3)
        self.second.weight = self.first.weight
        self.register_buffer("shift", aj.rand(3))
        self.register_buffer("other", self.shift)

    def forward(self, x: Any) -> Any:
        return self.second(self.first(x) + self.shift) + self.other


def test_the_package_is_there_under_its_own_name() -> None:
    with aj.torch_names():
        package: Any = importlib.import_module("functorch")
        assert package.vmap is aj.vmap and package.make_functional is functorch.make_functional
        assert importlib.import_module("functorch.experimental").functionalize is aj.func.functionalize
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("functorch")


def test_a_function_of_the_state_is_the_module() -> None:
    model, x = Tied(), aj.randn(4, 3)
    function, parameters, buffers = functorch.make_functional_with_buffers(model)
    assert len(parameters) == 3 and len(buffers) == 1  # what is tied is there once
    assert aj.equal(function(parameters, buffers, x), model(x))
    doubled = [2 * p for p in parameters]
    with aj.no_grad():
        for p in model.parameters():
            p.mul_(2)
    assert aj.equal(function(doubled, buffers, x), model(x))  # the copies did not change with the module
    assert not any(p.requires_grad for p in functorch.make_functional_with_buffers(model, True)[1])
    with pytest.raises(UsageError, match=r"has buffers\. Please use make_functional_with_buffers"):
        functorch.make_functional(model)


def test_gradients_by_the_state() -> None:
    layer, x = aj.nn.Linear(3, 2), aj.randn(4, 3)
    function, parameters = functorch.make_functional(layer)
    slopes = functorch.grad(lambda ps: function(ps, x).square().sum())(parameters)
    layer(x).square().sum().backward()
    assert all(aj.allclose(g, p.grad) for g, p in zip(slopes, layer.parameters(), strict=True))


def test_an_ensemble_is_each_of_its_models() -> None:
    models, x = [Tied() for _ in range(3)], aj.randn(4, 3)
    function, parameters, buffers = functorch.combine_state_for_ensemble(models)
    found = aj.vmap(function, in_dims=(0, 0, None))(parameters, buffers, x)
    assert aj.allclose(found, aj.stack([model(x) for model in models]))
