"""The second device for tests: custom functions run on it, and what they return stays there."""

from __future__ import annotations

import autojit as aj
from autojit.testing import second_device
from tests.autograd.functions import Exp


def test_a_custom_function_runs_on_the_second_device() -> None:
    x = aj.zeros(2, requires_grad=True)
    with second_device() as fake:
        y = Exp.apply(x.to(fake))
        assert y.device.type == fake
        y.sum().backward()
    assert x.grad.device.type == "cpu"
    assert x.grad.tolist() == [1.0, 1.0]
