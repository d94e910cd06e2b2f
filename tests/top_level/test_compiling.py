"""``compile`` is ``jit`` under torch's arguments; a compiled layer is a layer."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import autojit as aj
from autojit import nn


def net() -> nn.Sequential:
    aj.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Dropout(0.5), nn.Linear(4, 2))


def test_functions_compile_with_and_without_arguments() -> None:
    @aj.compile
    def double(x: aj.Tensor) -> aj.Tensor:
        return x * 2

    @aj.compile(fullgraph=True, dynamic=False, mode="max-autotune", backend="inductor", name="tripled")
    def triple(x: aj.Tensor) -> aj.Tensor:
        return x * 3

    for _ in range(3):
        assert double(aj.ones(2)).tolist() == [2.0, 2.0]
        assert triple(aj.ones(2)).tolist() == [3.0, 3.0]
    assert double.stats()["captures"] == 1
    assert triple.__name__ == "tripled"


def test_a_compiled_layer_trains_saves_and_switches_like_its_own() -> None:
    model = net()
    compiled = aj.compile(model)
    assert isinstance(compiled, nn.Module)
    assert list(compiled.state_dict()) == [f"_orig_mod.{key}" for key in model.state_dict()]
    assert [id(p) for p in compiled.parameters()] == [id(p) for p in model.parameters()]
    compiled.eval()
    assert not model.training
    x = aj.ones(5, 3)
    np.testing.assert_allclose(compiled(x).detach().numpy(), model(x).detach().numpy(), atol=1e-6)
    compiled.train()
    compiled(x).square().sum().backward()
    assert model[0].weight.grad is not None
    other = copy.deepcopy(compiled)
    other.eval()
    compiled.eval()
    with aj.no_grad():
        model[0].weight.zero_()
    assert not np.allclose(other(x).detach().numpy(), compiled(x).detach().numpy())


def test_a_disabled_compiler_gives_the_model_back() -> None:
    model = net()
    assert aj.compile(model, disable=True) is model
    assert aj.compile(model, backend="eager") is model


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(RuntimeError, match="mode=fast"):
        aj.compile(net(), mode="fast")
    with pytest.raises(RuntimeError, match="backend"):
        aj.compile(net(), backend="nothing")
    with pytest.raises(RuntimeError, match="both"):
        aj.compile(net(), mode="default", options={})

    @aj.compile(fullgraph=True)
    def branching(x: aj.Tensor) -> aj.Tensor:
        return x + 1 if x.sum() > 0 else x - 1

    with pytest.raises(RuntimeError, match="fullgraph"):
        branching(aj.ones(2))
