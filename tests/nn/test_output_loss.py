"""Losses with their own last layer, and layers that torch still has under older names."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import autojit as aj
import autojit.nn.functional as F
from autojit import nn


def adaptive(**options: Any) -> nn.AdaptiveLogSoftmaxWithLoss:
    aj.manual_seed(0)
    return nn.AdaptiveLogSoftmaxWithLoss(8, 12, [3, 7], div_value=2.0, dtype=aj.float64, **options)


def test_the_loss_is_that_of_all_log_probabilities() -> None:
    layer, x = adaptive(head_bias=True), aj.randn(6, 8, dtype=aj.float64)
    target = aj.tensor([0, 2, 5, 11, 7, 3])
    output, loss = layer(x, target)
    every = layer.log_prob(x)
    assert aj.allclose(every.exp().sum(1), aj.ones(6, dtype=aj.float64))
    assert aj.allclose(output, every.gather(1, target[:, None]).squeeze(1))
    assert aj.allclose(loss, F.nll_loss(every, target))
    assert aj.equal(layer.predict(x), every.argmax(1))
    alone = layer(x[3], target[3])
    assert aj.allclose(alone.output, output[3])


def test_a_compiled_step_trains_it() -> None:
    eager, compiled = adaptive(), adaptive()
    x, target = aj.randn(6, 8, dtype=aj.float64), aj.tensor([0, 2, 5, 11, 7, 3])

    def steps(layer: Any, run: Any) -> list[float]:
        optimizer = aj.optim.SGD(layer.parameters(), 0.5)

        def step(x: aj.Tensor, target: aj.Tensor) -> aj.Tensor:
            optimizer.zero_grad()
            loss = layer(x, target).loss
            loss.backward()
            optimizer.step()
            return loss

        step = run(step)
        return [float(step(x, target)) for _ in range(3)]

    np.testing.assert_allclose(steps(compiled, aj.jit), steps(eager, lambda f: f))


def test_clusters_without_rows_get_no_gradient_and_stay_as_they_are() -> None:
    eager, compiled = adaptive(), adaptive()
    x = aj.randn(4, 8, dtype=aj.float64)
    batches = [aj.tensor(rows) for rows in ([0, 5, 8, 2], [0, 1, 2, 1], [0, 4, 3, 6], [9, 8, 0, 1], [0, 5, 8, 2])]

    def told(layer: Any, run: Any) -> list[Any]:
        optimizer = aj.optim.Adam(layer.parameters(), 0.1)

        def step(x: aj.Tensor, target: aj.Tensor) -> None:
            optimizer.zero_grad()
            layer(x, target).loss.backward()
            optimizer.step()

        step, found = run(step), []
        for target in batches:
            step(x, target)
            found.append([p.grad is None for p in layer.parameters()])
        return [found, [p.detach().numpy() for p in layer.parameters()]]

    (none, values), (expected_none, expected) = told(compiled, aj.jit), told(eager, lambda f: f)
    assert none == expected_none
    assert any(map(any, none))
    for a, b in zip(values, expected, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)


def test_bad_cutoffs_and_targets_are_refused() -> None:
    for cutoffs in ([], [3, 2], [0, 2], [2, 12], [2, 2]):
        with pytest.raises(ValueError, match="cutoffs"):
            nn.AdaptiveLogSoftmaxWithLoss(8, 12, cutoffs)
    with pytest.raises(RuntimeError, match="Target values"):
        adaptive()(aj.ones(1, 8, dtype=aj.float64), aj.tensor([12]))
    with pytest.raises(RuntimeError, match="batch dimension"):
        adaptive()(aj.ones(2, 8, dtype=aj.float64), aj.tensor([1]))
    with pytest.raises(RuntimeError, match="multi-target"):
        adaptive()(aj.ones(2, 8, dtype=aj.float64), aj.tensor([[1]]))


def test_the_cross_entropy_of_a_linear_layer_is_its_two_parts() -> None:
    loss = nn.LinearCrossEntropyLoss(3, 4, out_features=(2,), bias=True)
    x, target = aj.randn(5, 3), aj.randint(0, 4, (5, 2))
    scores = loss.linear(x).reshape(5, 4, 2)
    assert aj.allclose(loss(x, target), F.cross_entropy(scores, target))
    assert "num_classes=4" in repr(loss)


def test_cross_map_normalisation_counts_the_first_channel_everywhere() -> None:
    x = aj.ones(1, 6, 1, 1)
    found = nn.CrossMapLRN2d(3, alpha=3.0, beta=1.0, k=0.0)(x).flatten()
    np.testing.assert_allclose(found.tolist(), [1 / 2, 1 / 3, 1 / 4, 1 / 4, 1 / 4, 1 / 3], rtol=1e-6)


def test_names_of_older_versions_warn() -> None:
    with pytest.warns(FutureWarning, match="NLLLoss"):
        nn.NLLLoss2d()
    with pytest.warns(FutureWarning, match="Container"):
        assert isinstance(nn.Container(a=nn.ReLU()).a, nn.ReLU)
    with pytest.warns(FutureWarning, match="constant_"):
        assert nn.init.constant(aj.zeros(2), 3.0).tolist() == [3.0, 3.0]
    with pytest.warns(FutureWarning, match="clip_grad_norm_"):
        nn.utils.clip_grad_norm([nn.Parameter(aj.ones(1))], 1.0)


def test_batch_norms_become_synchronised_ones_on_the_same_tensors() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.BatchNorm1d(3)))
    found = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    assert isinstance(found[1][0], nn.SyncBatchNorm)
    x = aj.randn(4, 3)
    assert aj.equal(found[1][0](x), nn.BatchNorm1d(3)(x))
    assert found[1][0].weight is model[1][0].weight


def test_a_module_compiles_its_own_calls() -> None:
    layer = nn.Linear(2, 2)
    x = aj.ones(1, 2)
    expected = layer(x)
    layer.compile()
    for _ in range(3):
        assert aj.allclose(layer(x), expected)
    stats = layer._compiled_call_impl.stats()
    assert (stats["captures"], stats["fallbacks"]) == (1, 0)


def test_arguments_go_on_to_the_next_class_where_a_module_asks_for_it() -> None:
    class Named:
        def __init__(self, name: str) -> None:
            self.name = name

    class Part(nn.Module, Named):
        call_super_init = True

    assert Part("a").name == "a"
    with pytest.raises(TypeError):
        nn.Module(1)


def test_factory_arguments_are_found_and_checked() -> None:
    assert nn.factory_kwargs({"dtype": aj.float64, "factory_kwargs": {"device": "cpu"}}) == {
        "dtype": aj.float64,
        "device": "cpu",
    }
    with pytest.raises(TypeError, match="twice"):
        nn.factory_kwargs({"dtype": aj.float64, "factory_kwargs": {"dtype": aj.float32}})
    with pytest.raises(TypeError, match="unexpected"):
        nn.factory_kwargs({"size": 3})


def test_upsampling_layers_resample() -> None:
    x = aj.tensor([[[[1.0, 2.0], [3.0, 4.0]]]])
    assert nn.UpsamplingNearest2d(scale_factor=2)(x).shape == (1, 1, 4, 4)
    assert nn.UpsamplingBilinear2d(size=(3, 3))(x)[0, 0, 1, 1] == 2.5
    assert repr(nn.Upsample(scale_factor=2, mode="bicubic")) == "Upsample(scale_factor=2.0, mode='bicubic')"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nn.Upsample(size=3)(x)


@pytest.mark.parametrize("scale", [1.0, 1e-6, 0.0])
def test_cosines_of_short_vectors_go_to_zero(scale: float) -> None:
    """1e-12 is added to the squares of lengths, in values and gradients: torch's formula, by hand."""
    a = (scale * aj.tensor([[1.0, -2.0, 0.5], [0.3, 1.0, 2.0]], dtype=aj.float64)).requires_grad_()
    b = scale * aj.tensor([[0.5, 1.0, -1.0], [1.0, 0.5, 2.0]], dtype=aj.float64)
    cosine = (a * b).sum(1) / ((a.square().sum(1) + 1e-12) * (b.square().sum(1) + 1e-12)).sqrt()
    expected = aj.stack([1 - cosine[0], (cosine[1] - 0.1).clamp(min=0)]).sum()
    found = aj.nn.functional.cosine_embedding_loss(a, b, aj.tensor([1.0, -1.0]), margin=0.1, reduction="sum")
    assert aj.allclose(found, expected, rtol=1e-12)
    (slope,), (by_hand,) = aj.autograd.grad(found, [a]), aj.autograd.grad(expected, [a])
    assert aj.allclose(slope, by_hand, rtol=1e-9)
