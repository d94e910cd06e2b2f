"""Parametrised tensors, normalised weights, fused layers and pruning."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit import nn
from autojit.nn.utils import parametrizations, parametrize, prune


class Symmetric(nn.Module):
    def forward(self, x: aj.Tensor) -> aj.Tensor:
        return x.triu() + x.triu(1).mT

    def right_inverse(self, a: aj.Tensor) -> aj.Tensor:
        return a.triu()


class Doubled(nn.Module):
    def forward(self, x: aj.Tensor) -> aj.Tensor:
        return x * 2

    def right_inverse(self, x: aj.Tensor) -> aj.Tensor:
        return x / 2


class RankOne(nn.Module):
    def forward(self, x: aj.Tensor, y: aj.Tensor) -> aj.Tensor:
        return x.unsqueeze(-1) @ y.unsqueeze(-2)

    def right_inverse(self, z: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
        return z[:, 0].clone(), z[0] / z[0, 0]


def trained(module: nn.Module, run: Any = lambda step: step, steps: int = 4) -> list[float]:
    """Losses of a few steps of gradient descent."""
    aj.manual_seed(3)
    x = aj.randn(5, 4)
    optimizer = aj.optim.SGD(module.parameters(), 0.05)

    def step(x: aj.Tensor) -> aj.Tensor:
        optimizer.zero_grad()
        loss = module(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    step = run(step)
    return [float(step(x)) for _ in range(steps)]


def test_a_parametrised_weight_is_computed_from_its_original() -> None:
    layer: Any = nn.Linear(3, 3)
    upper = layer.weight.detach().triu()
    parametrize.register_parametrization(layer, "weight", Symmetric())
    assert type(layer).__name__ == "ParametrizedLinear"
    assert aj.equal(layer.weight, upper + upper.triu(1).T)
    assert [name for name, _ in layer.named_parameters()] == ["bias", "parametrizations.weight.original"]
    parametrize.register_parametrization(layer, "weight", Doubled())
    with aj.no_grad():
        layer.weight = aj.eye(3) * 6
    assert aj.equal(layer.parametrizations.weight.original, aj.eye(3) * 3)
    assert aj.equal(copy.deepcopy(layer).weight, layer.weight)
    parametrize.remove_parametrizations(layer, "weight")
    assert type(layer) is nn.Linear
    assert aj.equal(layer.weight, aj.eye(3) * 6)


def test_a_weight_of_several_originals() -> None:
    layer: Any = nn.Linear(2, 3, bias=False)
    with aj.no_grad():
        layer.weight.copy_(aj.tensor([[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]]))
    parametrize.register_parametrization(layer, "weight", RankOne())
    assert sorted(layer.state_dict()) == [f"parametrizations.weight.original{k}" for k in (0, 1)]
    assert aj.allclose(layer.weight, aj.tensor([[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]]))
    with pytest.raises(ValueError, match="leave_parametrized=False"):
        parametrize.remove_parametrizations(layer, "weight", leave_parametrized=False)
    parametrize.remove_parametrizations(layer, "weight")
    assert isinstance(layer.weight, nn.Parameter)


def test_a_cache_computes_a_weight_once() -> None:
    layer: Any = parametrizations.weight_norm(nn.Linear(2, 2))
    assert layer.weight is not layer.weight
    with parametrize.cached():
        assert layer.weight is layer.weight
    other: Any = parametrize.transfer_parametrizations_and_params(layer, nn.Linear(2, 2))
    assert aj.equal(other.weight, layer.weight)
    assert other.parametrizations.weight.original0 is layer.parametrizations.weight.original0


def test_what_changes_shape_or_type_is_refused() -> None:
    layer = nn.Linear(2, 2)
    for part, match in ((nn.Flatten(0), "shape"), (nn.Identity().double(), None)):
        if match is not None:
            with pytest.raises(ValueError, match=match):
                parametrize.register_parametrization(copy.deepcopy(layer), "weight", part)
    with pytest.raises(ValueError, match="does not have a parameter"):
        parametrize.register_parametrization(layer, "wait", Doubled())
    with pytest.raises(ValueError, match="does not have a parametrization"):
        parametrize.remove_parametrizations(layer, "weight")
    with pytest.raises(RuntimeError, match="state_dict"):
        parametrize.register_parametrization(layer, "weight", Doubled()).__getstate__()


@pytest.mark.parametrize("how", ["matrix_exp", "cayley", "householder"])
@pytest.mark.parametrize("shape", [(4, 4), (4, 3), (4, 6)])
@pytest.mark.parametrize("start", [True, False])
def test_an_orthogonal_weight_stays_so_while_it_trains(how: str, shape: tuple[int, int], start: bool) -> None:
    layer: Any = parametrizations.orthogonal(nn.Linear(*shape), orthogonal_map=how, use_trivialization=start)
    twin = copy.deepcopy(layer)
    np.testing.assert_allclose(trained(twin, aj.jit), trained(layer), rtol=1e-4)
    w = layer.weight.detach()
    product = w.T @ w if w.shape[0] >= w.shape[1] else w @ w.T
    assert aj.allclose(product, aj.eye(product.shape[0]), atol=1e-5)


def test_orthogonal_keeps_a_matrix_that_already_is() -> None:
    layer: Any = nn.Linear(2, 2)
    turn = aj.tensor([[0.6, -0.8], [0.8, 0.6]])
    with aj.no_grad():
        layer.weight.copy_(turn)
    parametrizations.orthogonal(layer)
    assert aj.allclose(layer.weight, turn)
    with pytest.raises(ValueError, match="orthogonal_map"):
        parametrizations.orthogonal(nn.Linear(2, 2), orthogonal_map="qr")
    with pytest.raises(ValueError, match="matrix or batch"):
        parametrizations.orthogonal(nn.Linear(2, 2), "bias")


@pytest.mark.parametrize("dim", [0, 1, None])
def test_weight_norm_splits_magnitude_and_direction(dim: Any) -> None:
    layer = nn.Linear(4, 3)
    plain = layer.weight.detach().numpy().copy()
    new: Any = parametrizations.weight_norm(copy.deepcopy(layer), dim=dim)
    with pytest.warns(FutureWarning, match="weight_norm"):
        old: Any = nn.utils.weight_norm(copy.deepcopy(layer), dim=dim)
    axis = None if dim is None else 1 - dim
    norms = np.linalg.norm(plain, axis=axis, keepdims=dim is not None)
    np.testing.assert_allclose(old.weight_g.detach().numpy(), norms, rtol=1e-6)
    np.testing.assert_allclose(new.weight.detach().numpy(), plain, rtol=1e-6)
    other: Any = parametrizations.weight_norm(nn.Linear(4, 3), dim=dim)
    other.load_state_dict(old.state_dict())
    assert aj.equal(other.weight, new.weight)
    compiled = copy.deepcopy(new)
    losses = trained(new)
    np.testing.assert_allclose(trained(compiled, aj.jit), losses, rtol=1e-4)
    np.testing.assert_allclose(trained(old), losses, rtol=1e-4)
    restored: Any = nn.utils.remove_weight_norm(old)
    assert sorted(restored.state_dict()) == ["bias", "weight"]
    assert not restored._forward_pre_hooks


def test_spectral_norm_divides_by_the_largest_singular_value() -> None:
    layer = nn.Linear(4, 3)
    largest = np.linalg.svd(layer.weight.detach().numpy(), compute_uv=False)[0]
    expected = layer.weight.detach().numpy() / largest
    new: Any = parametrizations.spectral_norm(copy.deepcopy(layer), n_power_iterations=30)
    np.testing.assert_allclose(new.weight.detach().numpy(), expected, rtol=1e-4)
    old: Any = nn.utils.spectral_norm(copy.deepcopy(layer), n_power_iterations=30)
    old(aj.ones(1, 4))
    np.testing.assert_allclose(old.weight.detach().numpy(), expected, rtol=1e-4)
    assert np.isfinite(trained(old, aj.jit)).all()
    assert sorted(nn.utils.remove_spectral_norm(old).state_dict()) == ["bias", "weight"]
    with pytest.raises(RuntimeError, match="two spectral_norm"):
        nn.utils.spectral_norm(nn.utils.spectral_norm(nn.Linear(2, 2)))
    with pytest.raises(ValueError, match="n_power_iterations"):
        parametrizations.spectral_norm(nn.Linear(2, 2), n_power_iterations=0)
    vector: Any = parametrizations.spectral_norm(nn.Linear(2, 3), "bias")
    assert float(vector.bias.norm()) == pytest.approx(1.0)


@pytest.mark.parametrize("kind", ["conv", "transposed", "linear"])
def test_fused_layers_compute_what_both_did(kind: str) -> None:
    layers = {
        "conv": (nn.Conv2d(3, 4, 2, bias=False), nn.BatchNorm2d(4)),
        "transposed": (nn.ConvTranspose2d(3, 4, 2), nn.BatchNorm2d(4)),
        "linear": (nn.Linear(3, 4), nn.BatchNorm1d(4)),
    }
    first, bn = layers[kind]
    x = aj.randn(6, 3) if kind == "linear" else aj.randn(6, 3, 5, 5)
    bn(first(x))
    nn.init.normal_(bn.weight)
    with pytest.raises(AssertionError, match="eval"):
        nn.utils.fuse_conv_bn_eval(first, bn)
    first.eval()
    bn.eval()
    if kind == "linear":
        fused = nn.utils.fuse_linear_bn_eval(first, bn)
    else:
        fused = nn.utils.fuse_conv_bn_eval(first, bn, transpose=kind == "transposed")
    assert aj.allclose(fused(x), bn(first(x)), atol=1e-5)


def test_pruned_weights_stay_zero_while_they_train() -> None:
    layer: Any = nn.Linear(4, 3)
    with aj.no_grad():
        layer.weight.copy_(aj.arange(12.0).reshape(3, 4) - 5.3)
    prune.l1_unstructured(layer, "weight", 3)
    prune.ln_structured(layer, "weight", 1, n=2, dim=0)
    prune.l1_unstructured(layer, "weight", 0.5)
    assert layer.weight_mask.tolist() == [[1, 1, 0, 0], [0, 0, 0, 0], [0, 0, 1, 1]]
    assert prune.is_pruned(layer)
    trained(layer)
    assert ((layer.weight == 0) == (layer.weight_mask == 0)).all()
    prune.remove(layer, "weight")
    assert not prune.is_pruned(layer)
    assert sorted(layer.state_dict()) == ["bias", "weight"]


def test_global_pruning_compares_all_parameters() -> None:
    layer: Any = nn.Linear(2, 3)
    with aj.no_grad():
        layer.weight.copy_(aj.arange(6.0).reshape(3, 2) - 2.2)
        layer.bias.fill_(0.01)
    prune.global_unstructured([(layer, "weight"), (layer, "bias")], prune.L1Unstructured, amount=4)
    assert int((layer.weight == 0).sum()) == 1
    assert not layer.bias.any()
    with pytest.raises(TypeError, match="unstructured"):
        prune.global_unstructured([(layer, "weight")], prune.RandomStructured, amount=1)
    for amount, error in ((-1, ValueError), (1.5, ValueError), ("a", TypeError)):
        with pytest.raises(error):
            prune.random_unstructured(nn.Linear(2, 2), "weight", amount)
    with pytest.raises(ValueError, match="has to be pruned"):
        prune.remove(nn.Linear(2, 2), "weight")


def test_a_module_made_without_drawing_leaves_the_random_state_alone() -> None:
    aj.manual_seed(1)
    expected = aj.rand(2)
    aj.manual_seed(1)
    layer = nn.utils.skip_init(nn.Linear, 5, 2)
    assert (layer.weight.shape, aj.equal(aj.rand(2), expected)) == ((2, 5), True)
    with pytest.raises(RuntimeError, match="device"):
        nn.utils.skip_init(nn.ReLU)
    with pytest.warns(FutureWarning, match="functional_call"):
        nn.utils.stateless.functional_call(layer, {"bias": aj.zeros(2)}, aj.ones(1, 5))
