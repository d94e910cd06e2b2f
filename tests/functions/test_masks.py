"""Boolean masks: what keeps its shape works inside a capture as outside; what does not is a named error there."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import autojit as aj

Program = Callable[[aj.Tensor, aj.Tensor], aj.Tensor]


def _number(x: aj.Tensor, row: aj.Tensor) -> aj.Tensor:
    y = x.clone()
    y[y > 0] = 2.0
    return y


def _row(x: aj.Tensor, row: aj.Tensor) -> aj.Tensor:
    y = x.clone()
    y[x[:, :, 0] > 0] = row
    return y


def _row_with_leading_axis(x: aj.Tensor, row: aj.Tensor) -> aj.Tensor:
    y = x.clone()
    y[x[:, :, 0] > 0] = row.reshape(1, -1)
    return y


def _accumulated(x: aj.Tensor, row: aj.Tensor) -> aj.Tensor:
    return x.index_put((x[:, 0, 0] < 0,), row, accumulate=True)


def _known_mask(x: aj.Tensor, row: aj.Tensor) -> aj.Tensor:
    return x[[True, False, True, True]] * row


@pytest.mark.parametrize("program", [_number, _row, _row_with_leading_axis, _accumulated, _known_mask])
def test_writes_through_masks_are_the_same_compiled(program: Program) -> None:
    values = np.random.default_rng(0).standard_normal((4, 3, 2))

    def step(x: aj.Tensor, row: aj.Tensor) -> list[aj.Tensor]:
        y = program(x, row)
        return [y, *aj.autograd.grad((y * y).sum(), [x, row], allow_unused=True)]

    inputs = [aj.tensor(values, requires_grad=True), aj.tensor([3.0, -1.0], dtype=aj.float64, requires_grad=True)]
    for found, expected in zip(aj.jit(step)(*inputs), step(*inputs), strict=True):
        assert (found is None) == (expected is None)
        if expected is not None:
            np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), rtol=1e-14)


def test_a_row_written_through_a_mask_is_numpys() -> None:
    values = np.random.default_rng(1).standard_normal((4, 3, 2))
    expected = values.copy()
    expected[values[:, :, 0] > 0] = [5.0, 6.0]
    found = _row(aj.tensor(values), aj.tensor([5.0, 6.0], dtype=aj.float64))
    np.testing.assert_array_equal(found.numpy(), expected)


def test_a_mask_must_fit_the_tensor_it_writes_to() -> None:
    x = aj.zeros(4, 3)
    with pytest.raises(IndexError, match="mask"):
        x[aj.ones(3, dtype=aj.bool)] = aj.ones(3)


def test_reading_through_a_mask_in_a_step_follows_the_mask() -> None:
    step = aj.jit(lambda x: x[x > 0].sum())
    for values in ([1.0, -2.0, 3.0], [-1.0, -2.0, -3.0], [1.0, 2.0, 3.0]):
        assert step(aj.tensor(values)).item() == sum(v for v in values if v > 0)
    assert step.stats()["captures"] == 1
