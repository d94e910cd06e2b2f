"""Every program runs with ``AUTOJIT_PASSES=none``: passes make code faster, and nothing needs them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.compiler import compile
from autojit.core.config import config
from autojit.core.types import TensorType
from autojit.ir import evaluate
from autojit.ir.builder import GraphBuilder
from autojit.ir.op import Op


@pytest.fixture(autouse=True)
def no_passes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(config, "passes", "none")
    yield


@pytest.mark.usefixtures("lightly_compiled")
def test_every_op_is_lowered_without_passes() -> None:
    for name, cls in sorted(Op.registry.load().items()):
        if not hasattr(cls, "samples") or cls.is_random:
            continue
        for op, arrays in list(cls.samples(aj.float32))[:1]:
            builder = GraphBuilder()
            types = [TensorType(a.shape, aj.from_numpy(np.zeros(1, a.dtype)).dtype) for a in arrays]
            graph = builder.finish(list(builder.apply(op, [builder.input(t) for t in types])))
            with np.errstate(all="ignore"):
                expected = evaluate(graph, [a.copy() for a in arrays])
            for found, value in zip(
                compile(graph).executable.run([np.ascontiguousarray(a) for a in arrays]), expected, strict=True
            ):
                close = np.allclose(found, np.asarray(value), rtol=1e-3, atol=1e-3, equal_nan=True)
                assert close, f"{name}: {op}"


def folded(name: str, axes: Any, x: Any) -> Any:
    found = getattr(x, name)(axes)
    return found[0] if isinstance(found, tuple) else found


REDUCTIONS = ("sum", "mean", "amax", "amin", "prod", "any", "all", "logsumexp", "softmax", "argmax", "max", "median")


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_reductions_over_axes_of_extent_1_run_without_passes(name: str, axis: int) -> None:
    def alone(x: Any) -> Any:
        return folded(name, axis, x.unsqueeze(axis))

    def between(x: Any) -> Any:
        y = (x * 3).unsqueeze(axis)
        return y + 1, folded(name, axis, y) * 2, y.sum()

    x = aj.arange(12.0).reshape(3, 4) / 7
    for function in (alone, between):
        for found, expected in zip(aj.jit(function)(x), function(x), strict=True):
            assert aj.allclose(found.double(), expected.double())
