"""Layers under torch's top-level names are those of nn.functional and nn, with the arguments in another order."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit import nn
from autojit.nn import functional as F


def draws(*shape: int, seed: int = 0) -> aj.Tensor:
    return aj.from_numpy(np.random.default_rng(seed).standard_normal(shape))


def same(found: aj.Tensor, expected: aj.Tensor) -> None:
    np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), atol=1e-12)


def test_norms() -> None:
    x, w, b = draws(2, 4, 5), draws(4, seed=1), draws(4, seed=2)
    mean, var = aj.zeros(4, dtype=aj.float64), aj.ones(4, dtype=aj.float64)
    same(aj.batch_norm(x, w, b, mean, var, False, 0.1, 1e-5, True), F.batch_norm(x, mean, var, w, b))
    same(aj.instance_norm(x, w, b, None, None, True, 0.1, 1e-5, True), F.instance_norm(x, None, None, w, b))
    same(aj.group_norm(x, 2, w, b, 1e-5, True), F.group_norm(x, 2, w, b))
    same(aj.layer_norm(x, (5,), cudnn_enable=False), F.layer_norm(x, (5,)))
    normed, means, scales = aj.native_layer_norm(x, (5,), None, None, 1e-5)
    same((x - means) * scales, normed)
    normed, means, scales = aj.native_batch_norm(x, None, None, None, None, True, 0.1, 1e-5)
    same((x - means[:, None]) * scales[:, None], normed)
    assert aj.native_batch_norm(x, None, None, mean, var, False, 0.1, 1e-5)[1].numel() == 0
    normed, means, scales = aj.native_group_norm(x, None, None, 2, 4, 5, 2, 1e-5)
    same(((x.reshape(2, 2, 10) - means[..., None]) * scales[..., None]).reshape(x.shape), normed)


def test_losses_take_the_reduction_as_a_number_and_do_not_reduce_by_default() -> None:
    x, y = draws(6), draws(6, seed=1).sigmoid()
    sign = aj.tensor([1.0, -1.0, 1.0, -1.0, 1.0, -1.0], dtype=aj.float64)
    same(aj.kl_div(x, y), F.kl_div(x, y, reduction="none"))
    for number, name in ((0, "none"), (1, "mean"), (2, "sum")):
        same(
            aj.binary_cross_entropy_with_logits(x, y, reduction=number),
            F.binary_cross_entropy_with_logits(x, y, reduction=name),
        )
        same(aj.hinge_embedding_loss(x, sign, 1.0, number), F.hinge_embedding_loss(x, sign, reduction=name))
        same(aj.margin_ranking_loss(x, y, sign, 0.1, number), F.margin_ranking_loss(x, y, sign, 0.1, reduction=name))
        same(aj.poisson_nll_loss(x, y, True, True, 1e-8, number), F.poisson_nll_loss(x, y, full=True, reduction=name))
        a, b, c = draws(3, 4), draws(3, 4, seed=1), draws(3, 4, seed=2)
        same(aj.triplet_margin_loss(a, b, c, reduction=number), F.triplet_margin_loss(a, b, c, reduction=name))
        same(
            aj.cosine_embedding_loss(a, b, sign[:3], 0.1, number),
            F.cosine_embedding_loss(a, b, sign[:3], 0.1, reduction=name),
        )
        logits = draws(5, 2, 3).log_softmax(-1)
        labels = (aj.tensor([[1, 2], [2, 1]]), [5, 5], [2, 1])
        same(aj.ctc_loss(logits, *labels, 0, number), F.ctc_loss(logits, *labels, reduction=name))
    with pytest.raises(TypeError, match="reduction"):
        aj.kl_div(x, y, "mean")
    with pytest.raises(ValueError, match="reduction"):
        aj.kl_div(x, y, 3)


def test_convolution_and_padding() -> None:
    x, w = draws(2, 4, 9), draws(6, 2, 3)
    same(aj.convolution(x, w, None, [2], [1], [1], False, [0], 2), F.conv1d(x, w, None, 2, 1, 1, 2))
    v = draws(4, 3, 3)
    same(aj.convolution(x, v, None, [2], [1], [1], True, [1], 2), F.conv_transpose1d(x, v, None, 2, 1, 1, 2))
    same(aj.constant_pad_nd(x, (1, 2), 3.0), F.pad(x, (1, 2), value=3.0))
    with pytest.raises(ValueError, match="axes"):
        aj.convolution(x, w[..., 0], None, [1], [0], [1], False, [0], 1)


def test_sampling_and_pooling() -> None:
    image, grid = draws(1, 2, 4, 4), draws(1, 3, 3, 2).tanh()
    same(aj.grid_sampler(image, grid, 1, 1, True), F.grid_sample(image, grid, "nearest", "border", True))
    theta = draws(1, 2, 3)
    same(aj.affine_grid_generator(theta, (1, 1, 2, 2), False), F.affine_grid(theta, (1, 1, 2, 2), False))
    values, places = aj.adaptive_max_pool1d(draws(1, 2, 8), 2)
    same(values, F.adaptive_max_pool1d(draws(1, 2, 8), 2))
    assert places.shape == values.shape
    same(aj.native_channel_shuffle(image, 2), F.channel_shuffle(image, 2))
    same(aj.rrelu(image), F.rrelu(image))


def test_tables() -> None:
    table, index = draws(5, 3), aj.tensor([1, 3, 2])
    same(aj.embedding(table, index), table[index])
    for mode, name in enumerate(("sum", "mean", "max")):
        found, bags, sizes, best = aj.embedding_bag(table, index, aj.tensor([0, 2]), mode=mode)
        same(found, F.embedding_bag(index, table, aj.tensor([0, 2]), mode=name))
        if mode:
            assert bags.tolist() == [0, 0, 1]
            assert sizes.tolist() == [2, 1]
    rows = table.numpy()[[1, 3]]
    np.testing.assert_array_equal(best[0].numpy(), np.array([1, 3])[rows.argmax(0)])
    assert best[1].tolist() == [2, 2, 2]


@pytest.mark.parametrize("name", ["dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout"])
def test_dropout_needs_all_its_arguments(name: str) -> None:
    x = aj.ones(4, 100)
    assert getattr(aj, name)(x, 0.5, False).eq(1).all()
    aj.manual_seed(0)
    found = getattr(aj, name)(x, 0.5, train=True)
    assert 1 < found.unique().numel() <= 3
    aj.manual_seed(0)
    y = aj.ones(4, 100)
    assert getattr(aj, f"{name}_")(y, 0.5, True) is y
    same(y, found)
    with pytest.raises(TypeError, match="train"):
        getattr(aj, name)(x, 0.5)


def test_dropout_says_what_it_kept() -> None:
    found, kept = aj.native_dropout(aj.ones(1000), 0.25, True)
    np.testing.assert_allclose(found.numpy(), kept.numpy() / 0.75, rtol=1e-6)
    assert 600 < kept.sum().item() < 900


CELLS: list[tuple[str, Any, dict[str, Any]]] = [
    ("lstm", nn.LSTM, {}), ("gru", nn.GRU, {}), ("rnn_tanh", nn.RNN, {}),
    ("rnn_relu", nn.RNN, {"nonlinearity": "relu"}), ("lstm", nn.LSTM, {"proj_size": 2}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "layer", "options"), CELLS)
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_recurrent_functions_are_the_layers(
    name: str, layer: Any, options: dict[str, Any], bidirectional: bool, bias: bool
) -> None:
    aj.manual_seed(0)
    net = layer(3, 4, 2, bias=bias, bidirectional=bidirectional, **options).double()
    x, count = draws(5, 2, 3), 2 * (1 + bidirectional)
    sizes = (options.get("proj_size", 4), 4) if name == "lstm" else (4,)
    states = tuple(draws(count, 2, size, seed=size) for size in sizes)
    hx: Any = states if name == "lstm" else states[0]
    run = getattr(aj, name)
    output, *finals = run(x, hx, list(net.parameters()), bias, 2, 0.0, False, bidirectional, False)
    expected, final = net(x, hx)
    same(output, expected)
    for a, b in zip(finals, final if name == "lstm" else (final,), strict=True):
        same(a, b)
    packed = nn.utils.rnn.pack_padded_sequence(x, aj.tensor([5, 3]))
    output, *_ = run(packed.data, packed.batch_sizes, hx, list(net.parameters()), bias, 2, 0.0, False, bidirectional)
    same(output, net(packed, hx)[0].data)
    with pytest.raises(RuntimeError, match="parameters"):
        run(x, hx, list(net.parameters())[1:], bias, 2, 0.0, False, bidirectional, False)


@pytest.mark.parametrize(
    ("name", "cell"),
    [
        ("lstm_cell", nn.LSTMCell),
        ("gru_cell", nn.GRUCell),
        ("rnn_tanh_cell", nn.RNNCell),
        ("rnn_relu_cell", nn.RNNCell),
    ],
)
def test_cells_are_the_layers_and_differentiate(name: str, cell: Any) -> None:
    options = {"nonlinearity": "relu"} if "relu" in name else {}
    net = cell(3, 4, **options).double()
    x, h = draws(2, 3).requires_grad_(), draws(2, 4).requires_grad_()
    hx: Any = (h, h * 2) if "lstm" in name else h
    found, expected = getattr(aj, name)(x, hx, *net.parameters()), net(x, hx)
    for a, b in zip(*((v if isinstance(v, tuple) else (v,)) for v in (found, expected)), strict=True):
        same(a, b)
    aj.autograd.gradcheck(lambda x: getattr(aj, name)(x, hx, *net.parameters()), (x,))


def test_older_norms() -> None:
    x = draws(2, 3)
    with pytest.warns(DeprecationWarning):
        same(aj.frobenius_norm(x, 1), x.norm(dim=1))
    same(aj.norm_except_dim(x, 2, 1), x.norm(dim=0, keepdim=True))
    same(aj.norm_except_dim(x, 2, -1), x.norm())
    assert aj.hash_tensor(aj.tensor([[1, 2], [7, 2]]), 0).tolist() == [6, 0]
    assert aj.hash_tensor(aj.tensor([1.0, math.inf])).dtype is aj.uint64
