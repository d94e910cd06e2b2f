"""``verify`` sees an error of one per cent in any kernel, at any size: it never asks a kernel what is right."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.dispatch import kernels
from autojit.ir.op import Op

F = aj.nn.functional
Call = Callable[[aj.Tensor], aj.Tensor]
PROGRAMS: dict[str, Call] = {  # by the op whose lowering is spoilt
    "sigmoid": lambda x: x.sigmoid(),
    "tanh": lambda x: x.tanh(),
    "exp": lambda x: x.exp(),
    "log": lambda x: x.log(),
    "sqrt": lambda x: x.sqrt(),
    "rsqrt": lambda x: x.rsqrt(),
    "erf": lambda x: x.erf(),
    "lgamma": lambda x: x.lgamma(),
    "digamma": lambda x: x.digamma(),
    "relu": lambda x: x.relu(),
    "abs": lambda x: x.abs(),
    "mul": lambda x: F.gelu(x),
    "div": lambda x: F.layer_norm(x, (x.shape[-1],)),
    "add": lambda x: F.silu(x) + 1,
    "sub": lambda x: F.mse_loss(x, x * 0.5),
    "remainder": lambda x: x % 0.3,
    "pow_number": lambda x: x**2.5,
    "where": lambda x: aj.where(x > 1, x, 2.0),
    "sum": lambda x: x.std(),
    "prod": lambda x: aj.where(x > 0, 1.0, x).prod(),
    "amax": lambda x: x.amax(),
    "sin": lambda x: x.sin(),
}


@pytest.fixture(autouse=True)
def fresh_kernels() -> Iterator[None]:
    """Kernels of eager mode that were compiled from spoilt rules do not outlive the test."""
    yield
    kernels._calls.clear()
    kernels._elementwise_kernel.cache_clear()
    kernels._kernel.cache_clear()


def spoil(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the op's kernels give one per cent too much."""
    kind = Op.registry[name]
    right = kind.lower  # type: ignore[attr-defined]

    def elementwise(self: Any, emit: Any, *scalars: Any) -> Any:
        found = right(self, emit, *scalars)
        return emit.mul(found, emit.constant(1.01, found.dtype))

    def reduction(self: Any, emit: Any, dtype: Any) -> Any:
        identity, combine = right(self, emit, dtype)
        return identity, lambda a, b: combine(a, emit.mul(b, emit.constant(1.01, dtype)))

    folds = kind.__module__.endswith("reductions")
    monkeypatch.setattr(kind, "lower", reduction if folds else elementwise)


def is_caught(call: Call, size: int) -> bool:
    x = aj.tensor(np.random.default_rng(size).uniform(0.5, 3.0, size).astype(np.float32))
    try:
        aj.jit(call, verify="first")(x)
    except RuntimeError as error:
        assert "verify" in str(error), error
        return True
    return False


SIZES = [10, 5_000, pytest.param(1_000_000, marks=pytest.mark.slow)]
QUICK = ("sigmoid", "mul", "sum", "remainder", "amax")
CASES = [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in PROGRAMS]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", CASES)
def test_an_error_of_one_per_cent_in_a_kernel_is_caught(name: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_caught(PROGRAMS[name], size)
    spoil(name, monkeypatch)
    assert is_caught(PROGRAMS[name], size)
