"""Arguments that torch's layers refuse, with torch's exception types."""

from __future__ import annotations

from typing import Any

import pytest

import autojit as aj
import autojit.nn.functional as F
from autojit import nn


@pytest.mark.parametrize("layer", [nn.RNN, nn.GRU, nn.LSTM])
@pytest.mark.parametrize(
    ("sizes", "options", "error"),
    [
        ((3, 5), {"bias": 1}, TypeError),
        ((3, 5), {"batch_first": "no"}, TypeError),
        ((3.0, 5), {}, TypeError),
        ((0, 5), {}, ValueError),
        ((-1, 5), {}, ValueError),
        ((3, 0), {}, ValueError),
        ((3, 5), {"dropout": True}, ValueError),
    ],
)
def test_recurrent_layers_check_their_options(layer: Any, sizes: Any, options: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        layer(*sizes, **options)


def test_inputs_of_another_dtype_than_the_weights_are_refused() -> None:
    with pytest.raises(ValueError, match="does not match weight dtype"):
        nn.LSTM(3, 5)(aj.ones(2, 1, 3, dtype=aj.float64))


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_circular_padding_takes_one_image_or_a_stack(axes: int) -> None:
    layer = (nn.CircularPad1d, nn.CircularPad2d, nn.CircularPad3d)[axes - 1](1)
    assert layer(aj.ones(*[3] * (axes + 1))).shape == (3, *[5] * axes)
    with pytest.raises(ValueError, match=f"expected {axes + 1}D or {axes + 2}D"):
        layer(aj.ones(*[3] * (axes + 3)))


def test_normalisation_needs_a_positive_eps_in_training() -> None:
    x = aj.randn(4, 3)
    for eps, training in ((0.0, True), (-1.0, True), (-1.0, False)):
        with pytest.raises(ValueError, match="eps must be"):
            F.batch_norm(x, aj.zeros(3), aj.ones(3), training=training, eps=eps)
    F.batch_norm(x, aj.zeros(3), aj.ones(3), eps=0.0)


def test_losses_check_targets_before_their_types() -> None:
    with pytest.raises(TypeError, match="delta"):
        nn.HuberLoss(delta=1j)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="batch_size"):
        F.cross_entropy(aj.ones(4, 3), aj.ones(2))
    with pytest.raises(RuntimeError, match="Long"):
        F.cross_entropy(aj.ones(4, 3), aj.ones(4))


def test_norms_of_infinite_order_pool_extremes() -> None:
    x = aj.tensor([[-3.0, 1.0, 2.0, -0.5]])
    assert F.lp_pool1d(x, float("inf"), 2).tolist() == [[3.0, 2.0]]
    assert F.lp_pool1d(x, -float("inf"), 2).tolist() == [[1.0, 0.5]]


def test_layers_for_other_numbers_of_channels_say_so_and_stay_as_they_are() -> None:
    for layer, x in (
        (nn.BatchNorm1d(3), aj.randn(2, 4)),
        (nn.BatchNorm2d(3, affine=False), aj.randn(2, 4, 2, 2)),
        (nn.BatchNorm2d(3).eval(), aj.randn(2, 4, 2, 2)),
        (nn.GroupNorm(2, 4), aj.randn(2, 6)),
    ):
        before = [t.clone() for name, t in layer.state_dict().items() if name != "num_batches_tracked"]
        with pytest.raises(RuntimeError, match=r"(running_mean|weight) should contain \d elements not \d"):
            layer(x)
        after = [t for name, t in layer.state_dict().items() if name != "num_batches_tracked"]
        assert all(aj.equal(a, b) for a, b in zip(before, after, strict=True))
