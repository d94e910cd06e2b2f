"""Attention in steps on a GPU: what the CPU computes, by few kernels, of which none has a table of all weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit import nn
from autojit.runtime.gpu.emulator.driver import EmulatedDriver

F = nn.functional


def arrays(*shapes: tuple[int, ...]) -> list[np.ndarray[Any, Any]]:
    generator = np.random.default_rng(1)
    return [generator.normal(size=shape).astype(np.float32) for shape in shapes]


def attend(q: aj.Tensor, k: aj.Tensor, v: aj.Tensor, **how: Any) -> tuple[aj.Tensor, ...]:
    """Attention to views of which none is contiguous, and its derivatives."""
    heads = [x.transpose(1, 2) for x in (q, k, v)]
    y = F.scaled_dot_product_attention(*heads, **how)
    return (y.detach(), *aj.autograd.grad((y * y).sum(), (q, k, v)))


def on(device: str, values: list[np.ndarray[Any, Any]]) -> list[aj.Tensor]:
    return [aj.tensor(x, device=device, requires_grad=True) for x in values]


def assert_alike(found: Any, expected: Any) -> None:
    for one, other in zip(found, expected, strict=True):
        one, other = one.detach().cpu().numpy(), other.detach().numpy()
        np.testing.assert_allclose(one, other, rtol=0, atol=2e-5 * max(float(np.abs(other).max()), 1e-2))


@pytest.mark.parametrize("how", [{"is_causal": True}, {"dropout_p": 0.3}], ids=["causal", "dropout"])
def test_a_step_computes_what_the_cpu_does_with_three_kernels(how: dict[str, Any], driver: EmulatedDriver) -> None:
    values = arrays((2, 18, 2, 12), (2, 20, 2, 12), (2, 20, 2, 10))
    results = []
    for device in ("cpu", "cuda"):
        aj.manual_seed(6)
        step = aj.jit(lambda *x: attend(*x, **how))
        results.append([step(*on(device, values)) for _ in range(2)])
    for expected, found in zip(*results, strict=True):
        assert_alike(found, expected)
    text = step.show("schedule")
    assert (text.count("attention: "), text.count("attention_adjoint: ")) == (1, 2)
    assert "matmul" not in text and "call-back" not in str(step.explain())


def test_two_draws_of_a_step_are_two() -> None:
    """The second key is computed by the host in every call, and goes to the kernel by value."""
    (value,) = arrays((1, 2, 17, 9))

    def twice(x: aj.Tensor) -> tuple[aj.Tensor, ...]:
        return tuple([F.scaled_dot_product_attention(x, x, x, dropout_p=0.5) for _ in range(2)])

    results = []
    for device in ("cpu", "cuda"):
        aj.manual_seed(8)
        results.append(aj.jit(twice)(aj.tensor(value, device=device)))
    assert_alike(results[1], results[0])
    assert not np.allclose(results[0][0].numpy(), results[0][1].numpy())


def test_a_mask_of_one_matrix_is_read_by_all_of_them() -> None:
    values = arrays((2, 17, 2, 8), (2, 19, 2, 8), (2, 19, 2, 8))
    keep = np.random.default_rng(2).random((17, 19)) < 0.6
    keep[3] = False
    results = [
        aj.jit(attend)(*on(device, values), attn_mask=aj.tensor(keep, device=device)) for device in ("cpu", "cuda")
    ]
    assert_alike(results[1], results[0])


def test_products_with_second_derivatives_are_those_of_the_cpu() -> None:
    values = arrays((1, 5, 6), (1, 7, 6), (1, 7, 4))

    def second(q: aj.Tensor, k: aj.Tensor, v: aj.Tensor) -> tuple[aj.Tensor, ...]:
        y = F.scaled_dot_product_attention(q, k, v)
        bars = aj.autograd.grad((y * y).sum(), (q, k, v), create_graph=True)
        return aj.autograd.grad(sum((x * x).sum() for x in bars), (q, k, v))

    assert_alike(aj.jit(second)(*on("cuda", values)), second(*on("cpu", values)))


def test_heads_that_share_keys_read_them_where_they_are() -> None:
    values = arrays((1, 17, 4, 8), (1, 18, 2, 8), (1, 18, 2, 8))
    steps = [aj.jit(lambda *x: attend(*x, enable_gqa=True)) for _ in range(2)]
    found, expected = (step(*on(device, values)) for step, device in zip(steps, ("cuda", "cpu"), strict=True))
    assert_alike(found, expected)
    assert "concatenate" not in steps[0].show("schedule") and "gather" not in steps[0].show("schedule")


def trained(device: str, value: np.ndarray[Any, Any]) -> list[float]:
    """Losses of a layer of a transformer."""
    aj.manual_seed(3)
    layer = nn.TransformerEncoderLayer(16, 2, 24, dropout=0.0, batch_first=True).to(device)
    optimizer = aj.optim.SGD(layer.parameters(), lr=0.1)
    x = aj.tensor(value, device=device)

    @aj.jit
    def step() -> aj.Tensor:
        optimizer.zero_grad()
        loss = (layer(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return [step().item() for _ in range(3)]


def test_a_layer_of_a_transformer_trains_as_on_the_cpu() -> None:
    (value,) = arrays((2, 17, 16))
    np.testing.assert_allclose(trained("cuda", value), trained("cpu", value), rtol=1e-4)
