"""ctc_loss, interpolate, and in-place activations that cannot be differentiated."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import pytest

import autojit as aj
import autojit.nn.functional as F
from autojit.autograd import gradcheck, gradgradcheck


def collapsed(path: tuple[int, ...]) -> list[int]:
    """A path without repetitions and blanks."""
    return [label for label, _ in itertools.groupby(path) if label]


def test_ctc_loss_sums_over_all_paths_that_spell_the_labels() -> None:
    frames, classes, labels = 5, 3, [1, 1, 2]
    log_probs = aj.randn(frames, classes, dtype=aj.float64).log_softmax(1)
    total = 0.0
    for path in itertools.product(range(classes), repeat=frames):
        if collapsed(path) == labels:
            total += math.exp(sum(log_probs[t, c].item() for t, c in enumerate(path)))
    found = F.ctc_loss(log_probs, aj.tensor(labels), [frames], [3], reduction="none")
    assert found.item() == pytest.approx(-math.log(total))


def test_ctc_loss_takes_labels_in_rows_or_in_one_vector() -> None:
    log_probs = aj.randn(6, 3, 4, dtype=aj.float64).log_softmax(2)
    rows = aj.tensor([[1, 2], [3, 0], [0, 0]])
    lengths = ([6, 5, 4], [2, 1, 0])
    for reduction in ("none", "sum", "mean"):
        a = F.ctc_loss(log_probs, rows, *lengths, reduction=reduction)
        assert aj.allclose(a, F.ctc_loss(log_probs, aj.tensor([1, 2, 3]), *lengths, reduction=reduction))


def test_an_impossible_sequence_costs_infinity_or_nothing() -> None:
    x = aj.randn(2, 1, 3, dtype=aj.float64).requires_grad_()
    labels = aj.tensor([[1, 1, 2]])
    assert F.ctc_loss(x.log_softmax(2), labels, [2], [3]).item() == math.inf
    loss = F.ctc_loss(x.log_softmax(2), labels, [2], [3], zero_infinity=True)
    loss.backward()
    assert loss.item() == 0.0
    assert x.grad is not None
    assert not x.grad.any()


def test_ctc_loss_is_differentiable_twice_and_compiles() -> None:
    x = aj.randn(5, 2, 3, dtype=aj.float64).requires_grad_()

    def loss(x: aj.Tensor) -> aj.Tensor:
        return F.ctc_loss(x.log_softmax(2), aj.tensor([[1, 2], [2, 0]]), [5, 3], [2, 1])

    assert gradcheck(loss, x)
    assert gradgradcheck(loss, x)
    compiled = aj.jit(loss)
    for _ in range(3):
        assert aj.allclose(compiled(x), loss(x))
    assert compiled.stats()["fallbacks"] == 0


@pytest.mark.parametrize(
    ("mode", "axes"),
    [
        ("nearest", 1),
        ("nearest-exact", 2),
        ("linear", 1),
        ("bilinear", 2),
        ("trilinear", 3),
        ("bicubic", 2),
        ("area", 2),
    ],
)
def test_interpolating_a_constant_keeps_it_and_is_linear(mode: str, axes: int) -> None:
    constant = aj.full((1, 2, *(3, 4, 5)[:axes]), 2.5, dtype=aj.float64)
    for size, scale in ((6, None), (2, None), (None, 1.5)):
        assert aj.allclose(F.interpolate(constant, size, scale, mode), aj.tensor(2.5, dtype=aj.float64))
    x = aj.randn(1, 1, *(3, 4, 2)[:axes], dtype=aj.float64).requires_grad_()
    assert gradcheck(lambda x: F.interpolate(x, scale_factor=1.5, mode=mode), x)
    compiled = aj.jit(lambda x: F.interpolate(x, scale_factor=1.5, mode=mode))
    for _ in range(3):
        assert aj.allclose(compiled(x), F.interpolate(x, scale_factor=1.5, mode=mode))
    assert compiled.stats()["fallbacks"] == 0


def test_linear_interpolation_reproduces_a_line() -> None:
    line = aj.arange(5.0).reshape(1, 1, 5)
    found = F.interpolate(line, 9, mode="linear", align_corners=True)
    assert aj.allclose(found.reshape(-1), aj.arange(9.0) / 2)


def test_interpolate_refuses_what_does_not_fit() -> None:
    x = aj.ones(1, 1, 4)
    with pytest.raises(ValueError, match="align_corners"):
        F.interpolate(x, 2, align_corners=True)
    with pytest.raises(ValueError, match="size or scale_factor"):
        F.interpolate(x)
    with pytest.raises(NotImplementedError, match="bilinear"):
        F.interpolate(x, 2, mode="bilinear")


@pytest.mark.parametrize(
    "f",
    [
        lambda x: F.leaky_relu_(x, -2),
        lambda x: F.rrelu_(x, -5.0, 1.0),
        lambda x: F.elu_(x, -2.0),
        lambda x: F.celu_(x, -2.0),
    ],
)
def test_an_in_place_activation_with_a_negative_slope_has_no_backward(f: Callable[[aj.Tensor], aj.Tensor]) -> None:
    y = f(aj.tensor([-1.0, 1.0], requires_grad=True).clone())
    with pytest.raises(RuntimeError, match="call out-of-place version"):
        y.sum().backward()


def test_embedding_bag_takes_the_operands_in_the_old_order_with_a_warning() -> None:
    weight, index, offsets = aj.randn(5, 2), aj.tensor([0, 1, 4]), aj.tensor([0, 1])
    with pytest.warns(UserWarning, match="Argument order"):
        found = F.embedding_bag(weight, index, offsets)
    assert aj.equal(found, F.embedding_bag(index, weight, offsets))


def test_network_functions_stand_at_the_top_level_too() -> None:
    x = aj.randn(3)
    assert aj.equal(aj.threshold(x, 0.1, 20.0), F.threshold(x, 0.1, 20.0))
    assert aj.equal(aj.celu(x), F.celu(x))


def test_ignored_classes_do_not_count_in_the_mean() -> None:
    scores, target = aj.randn(3, 4), aj.tensor([0, 1, 2])
    kept = aj.tensor([0, 2])
    found = F.cross_entropy(scores, target, ignore_index=1)
    assert aj.allclose(found, F.cross_entropy(scores[kept], target[kept]))
