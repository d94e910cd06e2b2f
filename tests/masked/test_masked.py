"""Masked reductions against NumPy's masked arrays, eager and compiled; the mask cuts values and derivatives off."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj

draw = np.random.default_rng(5)
X, KEEP = draw.normal(size=(4, 5, 3)), draw.uniform(size=(4, 5, 3)) < 0.6
KEEP[:, :2] = True  # every line keeps something
MASKED = np.ma.masked_array(X, ~KEEP)
EXPECTED: dict[str, Callable[..., Any]] = {
    "sum": lambda axis: MASKED.sum(axis), "prod": lambda axis: MASKED.prod(axis),
    "mean": lambda axis: MASKED.mean(axis),
    "amax": lambda axis: MASKED.max(axis), "amin": lambda axis: MASKED.min(axis), "var": lambda axis: MASKED.var(
    axis, ddof=1), "std": lambda axis: MASKED.std(axis, ddof=1), "argmax": lambda axis: MASKED.argmax(axis),
    "argmin": lambda axis: MASKED.argmin(axis), "cumsum": lambda axis: MASKED.filled(0).cumsum(axis), "cumprod":
    lambda axis: MASKED.filled(1).cumprod(axis), "logsumexp": lambda axis: np.log(np.exp(MASKED).sum(axis)),
    "softmax": lambda axis: (np.exp(MASKED) / np.exp(MASKED).sum(axis, keepdims=True)).filled(0),
    "softmin": lambda axis: (np.exp(-MASKED) / np.exp(-MASKED).sum(axis, keepdims=True)).filled(0),
}  # fmt: skip


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize("name", EXPECTED)
def test_a_reduction_counts_what_the_mask_keeps(name: str, compiled: bool) -> None:
    function = getattr(aj.masked, name)
    call = (lambda x, keep: function(x, 1, mask=keep)) if not compiled else aj.jit(lambda x, k: function(x, 1, mask=k))
    found = call(aj.tensor(X), aj.tensor(KEEP))
    np.testing.assert_allclose(found.numpy(), np.asarray(EXPECTED[name](1)), rtol=1e-12)


def test_median_ignores_what_is_left_out() -> None:
    x, keep = aj.tensor([[5.0, 1.0, 3.0, 9.0]]), aj.tensor([[True, False, True, True]])
    assert aj.masked.median(x, 1, mask=keep).tolist() == [5.0]
    assert np.isnan(aj.masked.median(x, 1, mask=~(keep | True)).item())


@pytest.mark.parametrize("name", ["sum", "mean", "var", "amax", "logsumexp", "norm"])
def test_nothing_flows_to_what_is_left_out(name: str) -> None:
    x = aj.tensor([1.0, float("inf"), 3.0, float("nan")], requires_grad=True)
    keep = aj.tensor([True, False, True, False])
    options = {"dim": 0, "mask": keep}
    found = getattr(aj.masked, name)(x, **options)
    found.backward()
    assert bool(found.isfinite())
    assert x.grad[[1, 3]].tolist() == [0.0, 0.0]
    assert bool(x.grad.isfinite().all())


def test_an_empty_line_gives_the_identity() -> None:
    x, none = aj.tensor([2.0, 3.0]), aj.tensor([False, False])
    found = [getattr(aj.masked, name)(x, 0, mask=none).item() for name in ("sum", "prod", "amax", "amin", "logsumexp")]
    assert found == [0.0, 1.0, -np.inf, np.inf, -np.inf]
    assert np.isnan(aj.masked.mean(x, 0, mask=none).item())


def test_a_mask_of_numbers_is_refused() -> None:
    with pytest.raises(ValueError, match="bool"):
        aj.masked.sum(aj.ones(2), mask=aj.ones(2))
