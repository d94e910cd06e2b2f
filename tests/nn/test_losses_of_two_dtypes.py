"""Losses whose operands differ in dtype: promoted as sums are, or refused, as in torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.nn import functional as F

LOSSES: dict[str, Callable[..., Any]] = {
    "mse": F.mse_loss,
    "l1": F.l1_loss,
    "smooth_l1": F.smooth_l1_loss,
    "huber": F.huber_loss,
    "logits": F.binary_cross_entropy_with_logits,
}
PAIRS = [("float32", "float64"), ("float64", "float32"), ("bfloat16", "float32"), ("float32", "int64")]


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize(("first", "second"), PAIRS)
@pytest.mark.parametrize("size", [6, 40_000])
def test_operands_of_a_loss_are_promoted(name: str, first: str, second: str, size: int) -> None:
    """What is computed of them has the common dtype, or the one that torch's kernel writes to."""
    if name == "logits" and second == "int64":
        return  # refused: `test_mixed_losses`
    x = aj.linspace(-1, 1, size).to(getattr(aj, first)).requires_grad_()
    y = (aj.arange(size) % 2).to(getattr(aj, second))
    common = aj.result_type(x, y)
    twin = x.detach().to(common).requires_grad_()
    expected = LOSSES[name](twin, y.to(common))
    expected.backward()
    for compute in (LOSSES[name], aj.jit(LOSSES[name])):
        x.grad = None
        found = compute(x, y)
        assert found.dtype is {"huber": x.dtype, "logits": y.dtype}.get(name, common)
        found.backward()
        assert x.grad is not None
        assert x.grad.dtype is x.dtype
        np.testing.assert_allclose(found.item(), expected.item(), rtol=1e-2 if x.dtype is aj.bfloat16 else 1e-5)
        np.testing.assert_allclose(x.grad.double().numpy(), twin.grad.double().numpy(), rtol=1e-2, atol=1e-7)


def test_similarity_of_two_dtypes_has_their_common_one() -> None:
    x, n = aj.tensor([[1.0, 0.0, 2.0]]), aj.tensor([[1, 2, 3]])
    found = F.cosine_similarity(x, n)
    assert found.dtype is aj.float32
    np.testing.assert_allclose(found.numpy(), [7 / np.sqrt(5 * 14)], rtol=1e-6)
    assert F.cosine_similarity(x.double(), x).dtype is aj.float64
    with pytest.raises(RuntimeError, match="common dtype to be floating point"):
        F.cosine_similarity(n, n)


def test_probabilities_and_targets_of_two_dtypes_are_refused() -> None:
    with pytest.raises(RuntimeError, match="found dtype"):
        F.binary_cross_entropy(aj.full((3,), 0.5), aj.zeros(3, dtype=aj.float64))
