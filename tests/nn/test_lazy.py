"""Lazy modules and parameters without a shape."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

import autojit as aj
from autojit import nn

LAYERS: list[tuple[nn.Module, tuple[int, ...], str]] = [
    (nn.LazyLinear(3), (2, 5), "Linear"),
    (nn.LazyConv1d(4, 3), (2, 5, 6), "Conv1d"),
    (nn.LazyConv2d(4, 3, groups=2), (2, 4, 6, 6), "Conv2d"),
    (nn.LazyConv3d(4, 2), (2, 3, 3, 3, 3), "Conv3d"),
    (nn.LazyConvTranspose1d(4, 3), (2, 5, 6), "ConvTranspose1d"),
    (nn.LazyConvTranspose2d(4, 3), (2, 5, 6, 6), "ConvTranspose2d"),
    (nn.LazyConvTranspose3d(4, 2), (2, 3, 3, 3, 3), "ConvTranspose3d"),
    (nn.LazyBatchNorm1d(), (4, 5), "BatchNorm1d"),
    (nn.LazyBatchNorm2d(), (4, 5, 2, 2), "BatchNorm2d"),
    (nn.LazyBatchNorm3d(), (4, 5, 2, 2, 2), "BatchNorm3d"),
    (nn.LazyInstanceNorm1d(), (4, 5, 3), "InstanceNorm1d"),
    (nn.LazyInstanceNorm2d(), (4, 5, 2, 2), "InstanceNorm2d"),
    (nn.LazyInstanceNorm3d(), (4, 5, 2, 2, 2), "InstanceNorm3d"),
]


@pytest.mark.parametrize(("layer", "shape", "name"), LAYERS, ids=[name for _, _, name in LAYERS])
def test_the_first_call_makes_the_parameters_and_the_ordinary_class(layer: Any, shape: Any, name: str) -> None:
    layer = copy.deepcopy(layer)
    assert layer.has_uninitialized_params()
    layer(aj.ones(shape))
    assert type(layer).__name__ == name
    assert not layer._forward_pre_hooks
    assert all(p.isfinite().all() for p in layer.parameters())
    assert layer(aj.ones(shape)).shape[0] == shape[0]


def test_parameters_keep_their_identity_for_the_optimiser() -> None:
    model = nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyLinear(1))
    optimizer = aj.optim.SGD(model.parameters(), 0.1)
    before = list(model.parameters())
    for _ in range(2):
        optimizer.zero_grad()
        model(aj.ones(3, 2)).sum().backward()
        optimizer.step()
    assert all(a is b for a, b in zip(before, model.parameters(), strict=True))
    assert model[0].in_features == 2


def test_a_compiled_step_makes_them_while_it_is_captured() -> None:
    model = nn.Sequential(nn.LazyLinear(4), nn.Tanh(), nn.LazyLinear(1))
    step = aj.jit(lambda x: model(x).sum())
    x = aj.ones(3, 2)
    step(x)
    step(x)
    assert aj.allclose(step(x), model(x).sum())
    assert step.stats()["fallbacks"] == 0


def test_state_dicts_travel_between_lazy_and_ordinary_modules() -> None:
    ordinary = nn.Linear(5, 3)
    lazy = nn.LazyLinear(3)
    lazy.load_state_dict(ordinary.state_dict())
    assert aj.equal(lazy.weight, ordinary.weight)
    lazy(aj.ones(1, 5))
    assert type(lazy) is nn.Linear
    nn.LazyLinear(3).load_state_dict(nn.LazyLinear(3).state_dict())
    with pytest.raises(RuntimeError, match="shape of an uninitialized"):
        ordinary.load_state_dict(nn.LazyLinear(3).state_dict())


def test_an_uninitialised_parameter_refuses_to_be_computed_with() -> None:
    p = nn.UninitializedParameter(dtype=aj.float64)
    assert repr(p) == "<UninitializedParameter>"
    for use in (lambda: p + 1, lambda: aj.sin(p), lambda: p.sum()):
        with pytest.raises(ValueError, match="uninitialized parameter"):
            use()
    with pytest.raises(RuntimeError, match="shape"):
        _ = p.shape
    for other in (copy.deepcopy(p), pickle.loads(pickle.dumps(p))):
        assert other.dtype is aj.float64
        assert isinstance(other, nn.UninitializedParameter)
    p.materialize((2, 3))
    assert (type(p), p.shape, p.dtype, p.requires_grad) == (nn.Parameter, (2, 3), aj.float64, True)


def test_casting_reaches_what_has_no_shape_yet() -> None:
    layer = nn.LazyBatchNorm1d().double()
    layer(aj.ones(2, 3, dtype=aj.float64))
    assert layer.weight.dtype is layer.running_mean.dtype is aj.float64


def test_inputs_that_do_not_fit_are_refused() -> None:
    with pytest.raises(RuntimeError, match="unbatched"):
        nn.LazyConv2d(4, 3)(aj.ones(5, 6))
    with pytest.raises(ValueError, match="divisible by groups"):
        nn.LazyConv2d(4, 3, groups=2)(aj.ones(1, 3, 5, 6))
