"""A result that changes in place before backward: torch's error, or the gradient as if it had not been written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

import autojit as aj
from autojit.nn import functional as F
from tests.autograd.modes import Mode

REDUCED = ("amax", "amin", "prod", "std", "var", "logsumexp", "median", "nanmedian", "sum", "mean", "max", "min")
CASES: dict[str, Callable[[aj.Tensor], Any]] = {
    **{name: lambda x, name=name: getattr(aj, name)(x, dim=1) for name in REDUCED},
    **{f"{name} keepdim": lambda x, name=name: getattr(aj, name)(x, dim=1, keepdim=True) for name in REDUCED},
    "amax of all": lambda x: x.amax((0, 1), keepdim=True),
    "aminmax": lambda x: x.aminmax(dim=0, keepdim=True),
    "kthvalue": lambda x: x.kthvalue(1, 1, keepdim=True).values,
    "quantile": lambda x: x.quantile(0.4, dim=1, keepdim=True),
    "std_mean": lambda x: aj.std_mean(x, 1, keepdim=True),
    "norm": lambda x: x.norm(dim=1, keepdim=True),
    "vector_norm": lambda x: aj.linalg.vector_norm(x, 3, dim=1, keepdim=True),
    "matrix_norm": lambda x: aj.linalg.matrix_norm(x, "nuc", keepdim=True),
    "largest": lambda x: aj.linalg.vector_norm(x, float("inf"), dim=1, keepdim=True),
    "max_pool": lambda x: F.max_pool1d(x[None], 2)[0],
    "softmax": lambda x: F.softmax(x, 1),
    "row": lambda x: x[:1].exp().squeeze(0),
}


@pytest.mark.parametrize(
    "name", ["asin", "atan", "cos", "digamma", "erf", "erfc", "erfinv", "lgamma", "log", "log1p", "sin"]
)
def test_results_that_torch_does_not_keep_may_be_written_to(name: str, mode: Mode) -> None:
    def gradient(x: aj.Tensor, is_written: bool) -> aj.Tensor:
        found = getattr(aj, name)(x)
        y = found * 1
        if is_written:
            found.mul_(2)
        return aj.autograd.grad(y.sum(), x)[0]

    x = aj.tensor([0.3, 0.5, 0.8], requires_grad=True)
    assert aj.allclose(mode(gradient)(x, True), gradient(x, False))


@pytest.mark.parametrize("name", CASES)
def test_a_gradient_is_of_the_results_that_were_computed(name: str, mode: Mode) -> None:
    def results(x: aj.Tensor) -> Sequence[aj.Tensor]:
        found = CASES[name](x)
        return [found] if isinstance(found, aj.Tensor) else [t for t in found if t.is_floating_point()]

    def gradient(x: aj.Tensor, is_written: bool) -> aj.Tensor:
        found = results(x)
        y = sum((k + 2) * t.sum() for k, t in enumerate(found))
        if is_written:
            with aj.no_grad():
                for t in found:
                    t.add_(1.0)
        return aj.autograd.grad(y, x)[0]

    x = aj.tensor([[1.0, 2.0, 3.0], [4.0, 6.0, 5.0]], requires_grad=True)
    expected = gradient(x, False)
    try:
        found = mode(gradient)(x, True)
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error)
    else:
        assert aj.allclose(found, expected)
