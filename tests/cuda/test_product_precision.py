"""Which precision products of float32 have on a device: by either of torch's names, eager and compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import autojit as aj
from tests.emulated import emulated_cuda

WAYS: dict[str, Callable[[bool], None]] = {
    "precision": lambda on: aj.set_float32_matmul_precision("high" if on else "highest"),
    "tf32": lambda on: setattr(aj.backends.cuda.matmul, "allow_tf32", on),
}


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    with emulated_cuda():
        yield
        aj.set_float32_matmul_precision("highest")


def _error(multiply: Callable[[Any, Any], Any], x: Any, y: Any) -> float:
    exact = x.astype("f8") @ y.astype("f8")
    found = multiply(aj.tensor(x, device="cuda"), aj.tensor(y, device="cuda"))
    return float(np.abs(found.cpu().numpy() - exact).max())


@pytest.mark.parametrize("way", WAYS)
def test_operands_are_rounded_while_it_is_allowed(way: str) -> None:
    generator = np.random.default_rng(4)
    x, y = (generator.normal(size=shape).astype("f4") for shape in ((20, 40), (40, 20)))
    compiled = aj.jit(lambda x, y: x @ y)
    for multiply in (aj.matmul, compiled):
        before = _error(multiply, x, y)
        WAYS[way](True)
        assert aj.backends.cuda.matmul.allow_tf32 and aj.get_float32_matmul_precision() == "high"
        assert 1e-4 < _error(multiply, x, y) < 1e-1
        WAYS[way](False)
        assert _error(multiply, x, y) == before < 1e-5
    assert compiled.stats()["fallbacks"] == 0


def test_gradients_are_rounded_too_and_the_cpu_never_is() -> None:
    generator = np.random.default_rng(5)
    x, y = (generator.normal(size=shape).astype("f4") for shape in ((20, 40), (40, 20)))

    def gradient(device: str) -> Any:
        w = aj.tensor(y, device=device, requires_grad=True)
        (aj.tensor(x, device=device) @ w).square().sum().backward()
        return w.grad.cpu().numpy()

    exact = gradient("cpu")
    aj.set_float32_matmul_precision("medium")
    assert np.array_equal(gradient("cpu"), exact)
    assert 1e-3 < np.abs(gradient("cuda") - exact).max() < 1.0
