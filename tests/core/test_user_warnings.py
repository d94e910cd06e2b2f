"""Warnings are about the user's line, however the user's call came in."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import pytest

import autojit as aj
from autojit import nn

F = nn.functional


def _jitted_softmax() -> object:
    return aj.jit(nn.Softmax())(aj.ones(2, 3))


WAYS: list[Callable[[], object]] = [
    lambda: F.softmax(aj.ones(2, 3)),
    lambda: nn.Softmax()(aj.ones(2, 3)),
    lambda: nn.Sequential(nn.Sequential(nn.Softmax()))(aj.ones(2, 3)),
    lambda: F.mse_loss(aj.ones(3), aj.ones(2, 3)),
    lambda: nn.MSELoss()(aj.ones(3), aj.ones(2, 3)),
    lambda: nn.MSELoss(size_average=True),
    lambda: aj.amp.GradScaler("cuda"),
    lambda: aj.amp.autocast("cuda"),
    lambda: nn.init.uniform(aj.ones(2)),
    lambda: aj.ones(2).resize(2),
    lambda: aj.autograd.detect_anomaly(),
    lambda: aj.optim.lr_scheduler.StepLR(aj.optim.SGD([aj.ones(2)], lr=0.1), 1).step(),
    _jitted_softmax,
    lambda: np.vectorize(lambda _: F.softmax(aj.ones(2)).sum().item())(np.ones(1)),
]


@pytest.mark.parametrize("way", WAYS)
def test_a_warning_is_about_the_line_of_the_user(way: Callable[[], object]) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        way()
    assert caught
    assert {one.filename for one in caught} == {__file__}


def test_python_shows_a_warning_for_each_line_it_is_about() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            F.softmax(aj.ones(2, 3))
        F.softmax(aj.ones(2, 3))
    assert len(caught) == 2
