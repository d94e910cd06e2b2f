"""Layers against the functions and formulas they stand for: recurrent networks, attention, transformers, norms."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import expit

import autojit as aj
from autojit import nn
from autojit.nn import functional as F

RNG = np.random.default_rng(11)


def _numpy(module: nn.Module) -> dict[str, np.ndarray]:
    return {name: p.detach().numpy() for name, p in module.named_parameters()}


def _x(*shape: int) -> aj.Tensor:
    return aj.tensor(RNG.normal(size=shape).astype(np.float32))


def _lstm_step(
    w: dict[str, np.ndarray], s: str, x: np.ndarray, h: np.ndarray, c: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    gates = x @ w[f"weight_ih{s}"].T + w[f"bias_ih{s}"] + h @ w[f"weight_hh{s}"].T + w[f"bias_hh{s}"]
    i, f, g, o = np.split(gates, 4, -1)
    c = expit(f) * c + expit(i) * np.tanh(g)
    return expit(o) * np.tanh(c), c


def _gru_step(w: dict[str, np.ndarray], s: str, x: np.ndarray, h: np.ndarray) -> np.ndarray:
    r_x, z_x, n_x = np.split(x @ w[f"weight_ih{s}"].T + w[f"bias_ih{s}"], 3, -1)
    r_h, z_h, n_h = np.split(h @ w[f"weight_hh{s}"].T + w[f"bias_hh{s}"], 3, -1)
    z = expit(z_x + z_h)
    return (1 - z) * np.tanh(n_x + expit(r_x + r_h) * n_h) + z * h


def test_cells_follow_their_formulas() -> None:
    x, h, c = _x(2, 3), _x(2, 4), _x(2, 4)
    lstm = nn.LSTMCell(3, 4)
    expected = _lstm_step(_numpy(lstm), "", x.numpy(), h.numpy(), c.numpy())
    for found, wanted in zip(lstm(x, (h, c)), expected, strict=True):
        np.testing.assert_allclose(found.detach().numpy(), wanted, rtol=1e-5, atol=1e-6)
    gru = nn.GRUCell(3, 4)
    np.testing.assert_allclose(
        gru(x, h).detach().numpy(), _gru_step(_numpy(gru), "", x.numpy(), h.numpy()), rtol=1e-5, atol=1e-6
    )
    rnn = nn.RNNCell(3, 4)
    w = _numpy(rnn)
    total = x.numpy() @ w["weight_ih"].T + w["bias_ih"] + h.numpy() @ w["weight_hh"].T + w["bias_hh"]
    np.testing.assert_allclose(rnn(x, h).detach().numpy(), np.tanh(total), rtol=1e-5, atol=1e-6)
    with pytest.raises(RuntimeError, match="expected 3"):
        rnn(_x(2, 5))


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_layer_equals_its_cell_run_over_time_in_both_directions(kind: str) -> None:
    layer = getattr(nn, kind)(3, 4, bidirectional=True)
    x = _x(5, 2, 3)
    output, final = layer(x)
    for suffix, order in (("", range(5)), ("_reverse", range(4, -1, -1))):
        cell = getattr(nn, f"{kind}Cell")(3, 4)
        cell.load_state_dict({name: getattr(layer, f"{name}_l0{suffix}") for name in cell.state_dict()})
        state = None
        for time in order:
            state = cell(x[time], state)
            h = state[0] if kind == "LSTM" else state
            part = output[time, :, :4] if suffix == "" else output[time, :, 4:]
            np.testing.assert_allclose(part.detach().numpy(), h.detach().numpy(), rtol=1e-5, atol=1e-6)
        last = (final[0] if kind == "LSTM" else final)[0 if suffix == "" else 1]
        np.testing.assert_allclose(last.detach().numpy(), h.detach().numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_recurrent_layouts_agree(kind: str) -> None:
    first = getattr(nn, kind)(3, 4, 2, batch_first=True)
    other = getattr(nn, kind)(3, 4, 2)
    other.load_state_dict(first.state_dict())
    x = _x(2, 5, 3)
    a, b = first(x)[0], other(x.transpose(0, 1))[0].transpose(0, 1)
    np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-6)
    single = other(x[0])[0]
    np.testing.assert_allclose(single.detach().numpy(), a[0].detach().numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_packed_sequences_give_what_each_sequence_gives_alone(kind: str) -> None:
    layer = getattr(nn, kind)(3, 4, 2, bidirectional=True)
    sequences = [_x(n, 3) for n in (3, 5, 2)]
    packed = nn.utils.rnn.pack_sequence(sequences, enforce_sorted=False)
    output, final = layer(packed)
    padded, lengths = nn.utils.rnn.pad_packed_sequence(output, batch_first=True)
    assert lengths.tolist() == [3, 5, 2]
    for place, sequence in enumerate(sequences):
        alone, last = layer(sequence)
        np.testing.assert_allclose(
            padded[place, : len(sequence)].detach().numpy(), alone.detach().numpy(), rtol=1e-5, atol=1e-6
        )
        together = (final[0] if kind == "LSTM" else final)[:, place]
        last = last[0] if kind == "LSTM" else last
        np.testing.assert_allclose(together.detach().numpy(), last.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_multihead_attention_is_attention_per_head() -> None:
    layer = nn.MultiheadAttention(6, 2, batch_first=True)
    x, memory = _x(3, 4, 6), _x(3, 5, 6)
    output, weights = layer(x, memory, memory)
    w, b = layer.in_proj_weight, layer.in_proj_bias
    q, k, v = (
        F.linear(source, w[6 * i : 6 * i + 6], b[6 * i : 6 * i + 6]).reshape(3, -1, 2, 3).transpose(1, 2)
        for i, source in enumerate((x, memory, memory))
    )
    joined = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(3, 4, 6)
    np.testing.assert_allclose(output.detach().numpy(), layer.out_proj(joined).detach().numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(weights.detach().numpy().sum(-1), 1.0, rtol=1e-6)
    assert layer(x, memory, memory, need_weights=False)[1] is None


def test_attention_masks_remove_keys() -> None:
    layer = nn.MultiheadAttention(6, 2, batch_first=True, add_bias_kv=True, add_zero_attn=True)
    x = _x(2, 4, 6)
    padding = aj.tensor([[False, False, True, True], [False, True, False, False]])
    changed = x.clone()
    changed[0, 2:] = 7.0
    changed[1, 1] = -7.0
    a, b = (layer(x, memory, memory, key_padding_mask=padding)[0] for memory in (x, changed))
    np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-6, atol=1e-7)
    causal = nn.Transformer.generate_square_subsequent_mask(4)
    later = x.clone()
    later[:, 3] = 5.0
    a, b = (layer(memory, memory, memory, attn_mask=causal, is_causal=True)[0] for memory in (x, later))
    np.testing.assert_allclose(a[:, :3].detach().numpy(), b[:, :3].detach().numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("norm_first", [False, True])
def test_encoder_layer_is_its_parts_in_order(norm_first: bool) -> None:
    layer = nn.TransformerEncoderLayer(6, 2, 8, 0.0, "gelu", batch_first=True, norm_first=norm_first)
    x = _x(2, 4, 6)

    def feed(v: aj.Tensor) -> aj.Tensor:
        return layer.linear2(F.gelu(layer.linear1(v)))

    def attend(v: aj.Tensor) -> aj.Tensor:
        return layer.self_attn(v, v, v)[0]

    if norm_first:
        y = x + attend(layer.norm1(x))
        expected = y + feed(layer.norm2(y))
    else:
        y = layer.norm1(x + attend(x))
        expected = layer.norm2(y + feed(y))
    np.testing.assert_allclose(layer(x).detach().numpy(), expected.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_transformer_runs_and_trains_every_parameter() -> None:
    model = nn.Transformer(6, 2, 1, 2, 8, 0.0)
    mask = nn.Transformer.generate_square_subsequent_mask(3)
    output = model(_x(4, 2, 6), _x(3, 2, 6), tgt_mask=mask)
    assert output.shape == (3, 2, 6)
    (output * _x(3, 2, 6)).sum().backward()
    assert all(p.grad is not None and bool(aj.isfinite(p.grad).all()) for p in model.parameters())


def test_batch_norm_layer_uses_batch_statistics_in_training_and_running_ones_in_evaluation() -> None:
    layer = nn.BatchNorm1d(3, momentum=None)
    batches = [_x(8, 3) for _ in range(3)]
    for batch in batches:
        found = layer(batch).detach().numpy()
        np.testing.assert_allclose(found.mean(0), 0, atol=1e-6)
    assert int(layer.num_batches_tracked) == 3
    mean = np.mean([batch.numpy().mean(0) for batch in batches], axis=0)
    np.testing.assert_allclose(layer.running_mean.numpy(), mean, rtol=1e-5, atol=1e-6)
    layer.eval()
    expected = (batches[0].numpy() - mean) / np.sqrt(layer.running_var.numpy() + 1e-5)
    np.testing.assert_allclose(layer(batches[0]).detach().numpy(), expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="expected 2D or 3D input"):
        layer(_x(2, 3, 4, 5))


def test_initialisers_have_the_spread_they_promise() -> None:
    aj.manual_seed(3)
    w = aj.empty(200, 300)
    fan_in, fan_out = 300, 200
    for function, std in (
        (lambda: nn.init.xavier_uniform_(w), math.sqrt(2 / (fan_in + fan_out))),
        (lambda: nn.init.xavier_normal_(w, gain=2.0), 2 * math.sqrt(2 / (fan_in + fan_out))),
        (lambda: nn.init.kaiming_uniform_(w, nonlinearity="relu"), math.sqrt(2 / fan_in)),
        (lambda: nn.init.kaiming_normal_(w, 0.1, "fan_out"), math.sqrt(2 / 1.01 / fan_out)),
        (lambda: nn.init.normal_(w, 1.0, 0.5), 0.5),
        (lambda: nn.init.uniform_(w, -3.0, 3.0), math.sqrt(3.0)),
    ):
        assert abs(float(function().std()) / std - 1) < 0.02
    assert float(nn.init.trunc_normal_(w, a=-1.0, b=1.5).max()) <= 1.5
    q = nn.init.orthogonal_(aj.empty(5, 8), gain=2.0).numpy()
    np.testing.assert_allclose(q @ q.T, 4 * np.eye(5), atol=1e-5)
    assert nn.init.eye_(aj.empty(2, 3)).tolist() == [[1, 0, 0], [0, 1, 0]]
    assert float(nn.init.dirac_(aj.empty(4, 2, 3), 2)[:, :, 1].sum()) == 4.0
    with pytest.raises(ValueError, match="Unsupported nonlinearity nothing"):
        nn.init.calculate_gain("nothing")


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.PReLU(4), (2, 4, 3)), (nn.GLU(), (2, 6)), (nn.Softmax2d(), (2, 3, 2, 2)), (nn.Bilinear(3, 3, 2), (2, 3)),
        (nn.GroupNorm(2, 4), (2, 4, 3)), (nn.InstanceNorm1d(4), (2, 4, 3)), (nn.RMSNorm(3), (2, 3)),
        (nn.Flatten(), (2, 3, 4)), (nn.Unflatten(1, (2, 2)), (3, 4)), (nn.ReflectionPad1d(1), (2, 3)),
        (nn.ZeroPad2d((1, 0, 2, 0)), (2, 3, 3)), (nn.ConstantPad1d(2, 3.0), (2, 3)), (nn.RReLU(), (2, 3)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)  # fmt: skip
def test_layer_runs_and_passes_gradients_to_its_input(layer: nn.Module, shape: tuple[int, ...]) -> None:
    x = _x(*shape).requires_grad_(True)
    output = layer(x, x) if isinstance(layer, nn.Bilinear) else layer(x)
    (output * output).sum().backward()
    assert x.grad is not None
    assert x.grad.shape == shape
