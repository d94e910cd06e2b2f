"""A user's program as mypy sees it by the stubs, which `make lint` does: a mistake not found is an ignore not used."""

from __future__ import annotations

from typing import assert_type

import autojit as aj
from autojit.functions.reduction import ValuesIndices
from autojit.tensor.size import Size


def program() -> None:
    """Never run."""
    x = aj.ones(2, 3, requires_grad=True)
    assert_type(aj.exp(x), aj.Tensor)
    assert_type(x.exp(), aj.Tensor)
    assert_type(x.exp_().add_(1), aj.Tensor)
    assert_type(1 + x * x, aj.Tensor)
    assert_type(x == x, aj.Tensor)
    assert_type(aj.sum(x, axis=0, keepdims=True), aj.Tensor)
    assert_type(x.sum(0).max(), aj.Tensor)
    assert_type(x.max(1), ValuesIndices)
    assert_type(x.size(), Size)
    assert_type(x.size(0), int)
    assert_type(x.grad, aj.Tensor | None)
    assert_type(x.T, aj.Tensor)
    assert_type(aj.float32, aj.dtype)

    x.exq()  # type: ignore[attr-defined]
    aj.exq(x)  # type: ignore[attr-defined]
    x.sum("0")  # type: ignore[arg-type]
    x.exp(1)  # type: ignore[call-arg]
    x.T = x  # type: ignore[misc]
