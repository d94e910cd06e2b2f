"""Functions of nn.functional against NumPy formulas, their derivatives against finite differences, their errors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import special

import autojit as aj
from autojit.nn import functional as F

X = np.linspace(-4.0313, 4.1177, 23)  # no kink of any activation
SIGMOID = special.expit(X)
SOFTPLUS = np.logaddexp(X, 0)
SELU = 1.0507009873554805 * np.where(X > 0, X, 1.6732632423543772 * np.expm1(X))

ACTIVATIONS: dict[str, tuple[Callable[[aj.Tensor], aj.Tensor], Any]] = {
    "relu": (F.relu, np.maximum(X, 0)),
    "leaky_relu": (lambda x: F.leaky_relu(x, 0.1), np.where(X > 0, X, 0.1 * X)),
    "elu": (lambda x: F.elu(x, 0.7), np.where(X > 0, X, 0.7 * np.expm1(X))),
    "selu": (F.selu, SELU),
    "celu": (lambda x: F.celu(x, 0.5), np.where(X > 0, X, 0.5 * np.expm1(X / 0.5))),
    "gelu": (F.gelu, X * special.ndtr(X)),
    "gelu_tanh": (
        lambda x: F.gelu(x, approximate="tanh"),
        0.5 * X * (1 + np.tanh(math.sqrt(2 / math.pi) * (X + 0.044715 * X**3))),
    ),
    "silu": (F.silu, X * SIGMOID),
    "mish": (F.mish, X * np.tanh(SOFTPLUS)),
    "softplus": (lambda x: F.softplus(x, 2.0), np.logaddexp(2 * X, 0) / 2),
    "logsigmoid": (F.logsigmoid, -np.logaddexp(-X, 0)),
    "softsign": (F.softsign, X / (1 + np.abs(X))),
    "tanhshrink": (F.tanhshrink, X - np.tanh(X)),
    "softshrink": (F.softshrink, np.sign(X) * np.maximum(np.abs(X) - 0.5, 0)),
    "hardshrink": (F.hardshrink, np.where(np.abs(X) > 0.5, X, 0)),
    "hardtanh": (F.hardtanh, np.clip(X, -1, 1)),
    "relu6": (lambda x: F.relu6(2 * x), np.clip(2 * X, 0, 6)),
    "hardsigmoid": (F.hardsigmoid, np.clip(X + 3, 0, 6) / 6),
    "hardswish": (F.hardswish, X * np.clip(X + 3, 0, 6) / 6),
    "threshold": (lambda x: F.threshold(x, 0.3, -2.0), np.where(X > 0.3, X, -2.0)),
    "softmax": (lambda x: F.softmax(x, 0), special.softmax(X)),
    "log_softmax": (lambda x: F.log_softmax(x, 0), special.log_softmax(X)),
    "softmin": (lambda x: F.softmin(x, 0), special.softmax(-X)),
}


def _slope(function: Callable[[aj.Tensor], aj.Tensor], x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Central differences of ``sum(weights * function(x))``."""
    h = 1e-6
    found = np.zeros_like(x)
    for place in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[place] = h
        up, down = (function(aj.tensor(x + s)).numpy() for s in (step, -step))
        found[place] = float(((up - down) * weights).sum()) / (2 * h)
    return found


def _agrees_with_slopes(function: Callable[[aj.Tensor], aj.Tensor], x: np.ndarray) -> None:
    leaf = aj.tensor(x, requires_grad=True)
    result = function(leaf)
    weights = np.cos(np.arange(result.numel(), dtype=np.float64)).reshape(tuple(result.shape))
    (gradient,) = aj.autograd.grad((result * aj.tensor(weights)).sum(), leaf)
    np.testing.assert_allclose(gradient.numpy(), _slope(function, x, weights), rtol=2e-6, atol=2e-8)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation_follows_its_formula_and_slope(name: str) -> None:
    function, expected = ACTIVATIONS[name]
    np.testing.assert_allclose(function(aj.tensor(X)).numpy(), expected, rtol=1e-12, atol=1e-14)
    _agrees_with_slopes(function, X)


@pytest.mark.parametrize("name", ["relu", "leaky_relu", "elu", "selu", "celu", "silu", "mish", "hardtanh", "relu6"])
def test_in_place_activation_equals_the_other_and_keeps_gradients(name: str) -> None:
    function = getattr(F, name)
    leaf = aj.tensor(X, requires_grad=True)
    plain = function(leaf * 1.0)
    (expected,) = aj.autograd.grad(plain.sum(), leaf)
    x = leaf * 1.0
    result = function(x, inplace=True)
    assert result is x
    assert aj.equal(result, plain)
    (gradient,) = aj.autograd.grad(result.sum(), leaf)
    np.testing.assert_allclose(gradient.numpy(), expected.numpy(), rtol=1e-14)


def test_logsigmoid_and_softplus_stay_finite_and_exact_at_both_ends() -> None:
    x = aj.tensor([-800.0, -30.0, 0.0, 30.0, 800.0], dtype=aj.float64, requires_grad=True)
    y = F.logsigmoid(x)
    np.testing.assert_allclose(y.detach().numpy(), -np.logaddexp(-x.detach().numpy(), 0), rtol=1e-15)
    (first,) = aj.autograd.grad(y.sum(), x, create_graph=True)
    (second,) = aj.autograd.grad(first.sum(), x)
    assert np.isfinite(second.numpy()).all()
    assert second.numpy()[2] == -0.25


RNG = np.random.default_rng(7)
LOGITS = RNG.normal(size=(5, 4))
TARGET = np.array([0, 3, -100, 1, 3])
WEIGHT = np.array([0.5, 1.0, 2.0, 1.5])


def _cross_entropy(weight: np.ndarray, smoothing: float, reduction: str) -> np.ndarray:
    log_probs = special.log_softmax(LOGITS, axis=1)
    losses, weights = np.zeros(5), np.zeros(5)
    for row, target in enumerate(TARGET):
        if target != -100:
            hard = -weight[target] * log_probs[row, target]
            even = -(weight * log_probs[row]).sum() / 4
            losses[row] = (1 - smoothing) * hard + smoothing * even
            weights[row] = weight[target]
    return {"none": losses, "sum": losses.sum(), "mean": losses.sum() / weights.sum()}[reduction]


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("weighted", [False, True])
def test_cross_entropy_follows_its_formula(weighted: bool, smoothing: float, reduction: str) -> None:
    weight = aj.tensor(WEIGHT) if weighted else None

    def loss(x: aj.Tensor) -> aj.Tensor:
        return F.cross_entropy(x, aj.tensor(TARGET), weight, reduction=reduction, label_smoothing=smoothing)

    expected = _cross_entropy(WEIGHT if weighted else np.ones(4), smoothing, reduction)
    np.testing.assert_allclose(loss(aj.tensor(LOGITS)).numpy(), expected, rtol=1e-12)
    _agrees_with_slopes(loss, LOGITS)


def test_cross_entropy_of_probabilities_equals_that_of_indices_when_they_are_one_hot() -> None:
    logits, target = aj.tensor(LOGITS), aj.tensor([0, 3, 2, 1, 3])
    hot = F.one_hot(target, 4).to(aj.float64)
    for smoothing in (0.0, 0.3):
        a = F.cross_entropy(logits, target, label_smoothing=smoothing)
        b = F.cross_entropy(logits, hot, label_smoothing=smoothing)
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-12)
    nll = F.nll_loss(F.log_softmax(logits, 1), target)
    np.testing.assert_allclose(nll.numpy(), F.cross_entropy(logits, target).numpy(), rtol=1e-12)


def test_cross_entropy_over_images_equals_that_over_pixels() -> None:
    images = RNG.normal(size=(2, 4, 3, 2))
    target = aj.tensor(RNG.integers(0, 4, (2, 3, 2)))
    pixels = aj.tensor(np.moveaxis(images, 1, -1).reshape(-1, 4))
    a = F.cross_entropy(aj.tensor(images), target)
    np.testing.assert_allclose(a.numpy(), F.cross_entropy(pixels, target.reshape(-1)).numpy(), rtol=1e-12)


def test_class_losses_refuse_what_does_not_fit() -> None:
    logits = aj.tensor(LOGITS)
    with pytest.raises(IndexError, match="Target 4 is out of bounds"):
        F.cross_entropy(logits, aj.tensor([0, 4, 0, 0, 0]))
    with pytest.raises(ValueError, match=r"Expected input batch_size \(5\) to match target batch_size \(3\)"):
        F.cross_entropy(logits, aj.tensor([0, 1, 2]))
    with pytest.raises(RuntimeError, match="expected scalar type Long"):
        F.cross_entropy(logits, aj.ones(5))
    with pytest.raises(ValueError, match="sometimes is not a valid value for reduction"):
        F.mse_loss(logits, logits, reduction="sometimes")
    with pytest.raises(RuntimeError, match="label_smoothing must be between"):
        F.cross_entropy(logits, aj.tensor([0] * 5), label_smoothing=2.0)


A, B = RNG.normal(size=(4, 3)) * 2, RNG.normal(size=(4, 3))
SIGNS = np.sign(RNG.normal(size=(4, 3)))
P = RNG.uniform(0.05, 0.95, (4, 3))
LOSSES: dict[str, tuple[Callable[[aj.Tensor], aj.Tensor], np.ndarray, np.ndarray]] = {
    "mse": (lambda x: F.mse_loss(x, aj.tensor(B), reduction="none"), A, (A - B) ** 2),
    "l1": (lambda x: F.l1_loss(x, aj.tensor(B), reduction="none"), A, np.abs(A - B)),
    "smooth_l1": (
        lambda x: F.smooth_l1_loss(x, aj.tensor(B), reduction="none", beta=0.8),
        A,
        np.where(np.abs(A - B) < 0.8, (A - B) ** 2 / 1.6, np.abs(A - B) - 0.4),
    ),
    "huber": (
        lambda x: F.huber_loss(x, aj.tensor(B), reduction="none", delta=0.8),
        A,
        np.where(np.abs(A - B) < 0.8, (A - B) ** 2 / 2, 0.8 * (np.abs(A - B) - 0.4)),
    ),
    "bce": (
        lambda x: F.binary_cross_entropy(x, aj.tensor(P), reduction="none"),
        P[::-1].copy(),
        -(P * np.log(P[::-1]) + (1 - P) * np.log1p(-P[::-1])),
    ),
    "bce_with_logits": (
        lambda x: F.binary_cross_entropy_with_logits(x, aj.tensor(P), reduction="none", pos_weight=aj.tensor(2.0)),
        A,
        -(2.0 * P * special.log_expit(A) + (1 - P) * special.log_expit(-A)),
    ),
    "kl_div": (lambda x: F.kl_div(x, aj.tensor(P), reduction="none"), A, P * (np.log(P) - A)),
    "poisson": (lambda x: F.poisson_nll_loss(x, aj.tensor(P), reduction="none"), A, np.exp(A) - P * A),
    "gaussian": (
        lambda x: F.gaussian_nll_loss(x, aj.tensor(B), aj.tensor(P), full=True, reduction="none"),
        A,
        0.5 * (np.log(P) + (A - B) ** 2 / P + np.log(2 * np.pi)),
    ),
    "hinge": (
        lambda x: F.hinge_embedding_loss(x, aj.tensor(SIGNS), reduction="none"),
        A,
        np.where(SIGNS == 1, A, np.maximum(0, 1 - A)),
    ),
    "ranking": (
        lambda x: F.margin_ranking_loss(x, aj.tensor(B), aj.tensor(SIGNS), 0.2, reduction="none"),
        A,
        np.maximum(0, -SIGNS * (A - B) + 0.2),
    ),
    "soft_margin": (
        lambda x: F.soft_margin_loss(x, aj.tensor(SIGNS), reduction="none"),
        A,
        np.log1p(np.exp(-SIGNS * A)),
    ),
    "cosine": (
        lambda x: F.cosine_similarity(x, aj.tensor(B), 1),
        A,
        (A * B).sum(1) / np.linalg.norm(A, axis=1) / np.linalg.norm(B, axis=1),
    ),
    "normalize": (F.normalize, A, A / np.linalg.norm(A, axis=1, keepdims=True)),
    "pairwise": (
        lambda x: F.pairwise_distance(x, aj.tensor(B), 3.0),
        A,
        (np.abs(A - B + 1e-6) ** 3).sum(1) ** (1 / 3),
    ),
}


@pytest.mark.parametrize("name", LOSSES)
def test_loss_follows_its_formula_and_slope(name: str) -> None:
    function, x, expected = LOSSES[name]
    np.testing.assert_allclose(function(aj.tensor(x)).numpy(), expected, rtol=1e-10, atol=1e-13)
    _agrees_with_slopes(function, x)


def test_binary_cross_entropy_is_bounded_at_certainty() -> None:
    p = aj.tensor([0.0, 1.0, 0.0], dtype=aj.float64, requires_grad=True)
    loss = F.binary_cross_entropy(p, aj.tensor([1.0, 0.0, 0.0], dtype=aj.float64), reduction="none")
    assert loss.tolist() == [100.0, 100.0, 0.0]
    (gradient,) = aj.autograd.grad(loss.sum(), p)
    assert np.isfinite(gradient.numpy()).all()


def _standardized(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + 1e-5)


def test_normalisations_follow_their_formulas() -> None:
    x = RNG.normal(size=(3, 4, 5))
    w, b = RNG.normal(size=5), RNG.normal(size=5)
    t = aj.tensor(x)
    layer = F.layer_norm(t, (5,), aj.tensor(w), aj.tensor(b))
    np.testing.assert_allclose(layer.numpy(), _standardized(x, (2,)) * w + b, rtol=1e-10)
    np.testing.assert_allclose(F.instance_norm(t).numpy(), _standardized(x, (2,)), rtol=1e-10)
    groups = _standardized(x.reshape(3, 2, 10), (2,)).reshape(x.shape)
    np.testing.assert_allclose(F.group_norm(t, 2).numpy(), groups, rtol=1e-10)
    batch = F.batch_norm(t, None, None, training=True)
    np.testing.assert_allclose(batch.numpy(), _standardized(x, (0, 2)), rtol=1e-10)
    rms = F.rms_norm(t, (5,), aj.tensor(w), 1e-3)
    np.testing.assert_allclose(rms.numpy(), x / np.sqrt((x**2).mean(2, keepdims=True) + 1e-3) * w, rtol=1e-10)
    for function in (lambda v: F.layer_norm(v, (5,)), lambda v: F.batch_norm(v, None, None, training=True)):
        _agrees_with_slopes(function, x)
    with pytest.raises(RuntimeError, match=r"expected input with shape \[\*, 4\]"):
        F.layer_norm(t, (4,))


def test_batch_norm_tracks_unbiased_statistics_in_place() -> None:
    x = RNG.normal(size=(6, 2)) * 3 + 1
    mean, var = aj.zeros(2, dtype=aj.float64), aj.ones(2, dtype=aj.float64)
    F.batch_norm(aj.tensor(x), mean, var, training=True, momentum=0.25)
    np.testing.assert_allclose(mean.numpy(), 0.25 * x.mean(0), rtol=1e-12)
    np.testing.assert_allclose(var.numpy(), 0.75 + 0.25 * x.var(0, ddof=1), rtol=1e-12)
    with pytest.raises(ValueError, match="Expected more than 1 value per channel"):
        F.batch_norm(aj.ones(1, 2), None, None, training=True)


def test_dropout_keeps_the_mean_and_is_the_identity_in_evaluation() -> None:
    aj.manual_seed(0)
    x = aj.ones(400, 50)
    assert F.dropout(x, 0.3, training=False) is x
    y = F.dropout(x, 0.3).numpy()
    assert set(np.unique(y)) == {np.float32(0.0), np.float32(1 / 0.7)}
    assert abs(float(y.mean()) - 1.0) < 0.02
    channels = F.dropout2d(aj.ones(30, 20, 3, 3), 0.5).numpy()
    assert (channels == channels[:, :, :1, :1]).all()
    assert float(F.dropout(x, 1.0).sum()) == 0.0
    with pytest.raises(ValueError, match="dropout probability has to be between 0 and 1"):
        F.dropout(x, 1.5)


def test_alpha_dropout_keeps_mean_and_variance() -> None:
    aj.manual_seed(0)
    y = F.alpha_dropout(aj.randn(200, 200), 0.2, training=True).numpy()
    assert abs(float(y.mean())) < 0.02
    assert abs(float(y.var()) - 1.0) < 0.02


def test_embedding_gathers_rows_and_leaves_the_padding_row_without_gradient() -> None:
    table = aj.tensor(RNG.normal(size=(4, 2)), requires_grad=True)
    index = aj.tensor([[1, 2], [1, 0]])
    found = F.embedding(index, table, padding_idx=1)
    np.testing.assert_array_equal(found.detach().numpy(), table.detach().numpy()[index.numpy()])
    (gradient,) = aj.autograd.grad(found.sum(), table)
    assert gradient.numpy().tolist() == [[1, 1], [0, 0], [1, 1], [0, 0]]
    (scaled,) = aj.autograd.grad(F.embedding(index, table, scale_grad_by_freq=True).sum(), table)
    assert scaled.numpy().tolist() == [[1, 1], [1, 1], [1, 1], [0, 0]]
    (sparse,) = aj.autograd.grad(F.embedding(index, table, sparse=True).sum(), table)
    assert sparse.is_sparse
    assert sparse.to_dense().tolist() == [[1, 1], [2, 2], [1, 1], [0, 0]]
    with pytest.raises(RuntimeError, match="scale_grad_by_freq not supported with sparse"):
        F.embedding(index, table, scale_grad_by_freq=True, sparse=True).sum().backward()


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_embedding_bag_reduces_each_bag(mode: str) -> None:
    table, index = RNG.normal(size=(6, 3)), np.array([0, 3, 3, 5, 1])
    bags = [index[:2], index[2:2], index[2:]]
    reduce = {"sum": np.sum, "mean": np.mean, "max": np.max}[mode]
    expected = [reduce(table[bag], axis=0) if len(bag) else np.zeros(3) for bag in bags]
    found = F.embedding_bag(aj.tensor(index), aj.tensor(table), aj.tensor([0, 2, 2]), mode=mode)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
def test_pad_equals_numpys(mode: str) -> None:
    x = RNG.normal(size=(2, 4, 5))
    numpy_mode = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}[mode]
    expected = np.pad(x, ((0, 0), (2, 1), (3, 0)), mode=numpy_mode)  # type: ignore[call-overload]
    assert F.pad(aj.tensor(x), (3, 0, 2, 1), mode).tolist() == expected.tolist()
    if mode == "constant":
        assert F.pad(aj.tensor(x), (-1, -2)).tolist() == x[..., 1:-2].tolist()


def _attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
    scores = q @ np.swapaxes(k, -1, -2) / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    with np.errstate(invalid="ignore"):
        weights = np.nan_to_num(np.exp(scores - scores.max(-1, keepdims=True)))
        weights = np.nan_to_num(weights / weights.sum(-1, keepdims=True))
    return weights @ v


def test_attention_follows_its_formula_with_every_kind_of_mask() -> None:
    q, k, v = (RNG.normal(size=shape) for shape in ((2, 3, 4, 6), (2, 3, 5, 6), (2, 3, 5, 7)))
    tensors = [aj.tensor(x) for x in (q, k, v)]
    keep = RNG.uniform(size=(4, 5)) > 0.5
    keep[1] = False
    np.testing.assert_allclose(F.scaled_dot_product_attention(*tensors).numpy(), _attention(q, k, v, None), rtol=1e-10)
    causal = F.scaled_dot_product_attention(*tensors, is_causal=True)
    np.testing.assert_allclose(causal.numpy(), _attention(q, k, v, np.tri(4, 5, dtype=bool)), rtol=1e-10)
    masked = F.scaled_dot_product_attention(*tensors, attn_mask=aj.tensor(keep))
    np.testing.assert_allclose(masked.numpy(), _attention(q, k, v, keep), rtol=1e-10, atol=1e-14)
    additive = aj.tensor(np.where(keep, 0.0, -np.inf))
    np.testing.assert_allclose(F.scaled_dot_product_attention(*tensors, attn_mask=additive).numpy(), masked.numpy())
    leaf = aj.tensor(q, requires_grad=True)
    result = F.scaled_dot_product_attention(leaf, *tensors[1:], attn_mask=aj.tensor(keep))
    (gradient,) = aj.autograd.grad(result.sum(), leaf)
    assert np.isfinite(gradient.numpy()).all()
    assert (gradient.numpy()[:, :, 1] == 0).all(), "a query that sees no key"


def test_pixel_shuffles_undo_each_other() -> None:
    x = aj.tensor(RNG.normal(size=(2, 8, 3, 4)))
    assert aj.equal(F.pixel_unshuffle(F.pixel_shuffle(x, 2), 2), x)
    assert F.pixel_shuffle(x, 2).shape == (2, 2, 6, 8)


@pytest.mark.parametrize("loss", [F.cross_entropy, F.nll_loss])
@pytest.mark.parametrize("bad", [-1, 3, 40])
def test_a_class_out_of_range_is_an_index_error_also_in_a_compiled_step(loss: Callable[..., Any], bad: int) -> None:
    scores, good = aj.tensor(RNG.normal(size=(4, 3))), aj.tensor([0, 2, -100, 1])
    wrong = aj.tensor([0, bad, -100, 1])
    step = aj.jit(lambda x, target: loss(x, target))
    np.testing.assert_allclose(step(scores, good).item(), loss(scores, good).item(), rtol=1e-12)
    for call in (loss, step):
        with pytest.raises(IndexError, match="out of bounds"):
            call(scores, wrong)
    np.testing.assert_allclose(step(scores, good).item(), loss(scores, good).item(), rtol=1e-12)


def test_negative_circular_padding_crops_before_it_wraps() -> None:
    x = aj.arange(5).reshape(1, 1, 5)
    assert F.pad(x, (-1, 2), "circular").reshape(-1).tolist() == [1, 2, 3, 4, 1, 2]


def test_normalisations_of_no_elements_keep_the_shape() -> None:
    assert F.batch_norm(aj.zeros(0), aj.zeros(0), aj.zeros(0)).shape == (0,)
    assert F.group_norm(aj.zeros(0, 2), 1).shape == (0, 2)
    for shape, said in (((2, 0), "channels"), ((2, 4, 0, 3), "HxW")):
        with pytest.raises(RuntimeError, match=f"Expected .*{said} to be greater than 0"):
            F.group_norm(aj.zeros(shape), 1)


def test_attention_in_half_precision_has_only_its_roundings() -> None:
    q, k, v = (RNG.normal(size=(2, 6, 8)) * 5 for _ in range(3))
    halves = [aj.tensor(x, dtype=aj.bfloat16) for x in (q, k, v)]
    exact = F.scaled_dot_product_attention(*[x.double() for x in halves])
    found = F.scaled_dot_product_attention(*halves)
    atol: Any = 1e-3
    if found.device.type == "cuda":  # weights are rounded, too, on their way to the second product, as in torch
        q, k, v = (x.double() for x in halves)
        atol = atol + 2.0**-9 * F.scaled_dot_product_attention(q, k, v.abs()).numpy()
    error = np.abs(found.double().numpy() - exact.numpy())
    assert (error <= 2.0**-8 * np.abs(exact.numpy()) + atol).all()
