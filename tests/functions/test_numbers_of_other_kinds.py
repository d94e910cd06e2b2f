"""NumPy's numbers and tensors without axes stand for Python's where a parameter is a number or an axis, as in torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.nn import functional as F

X = aj.arange(6.0).reshape(2, 3)
AXES: dict[str, Callable[[Any], Any]] = {
    **{name: lambda n, name=name: getattr(X, name)(n) for name in (  # type: ignore[misc]
        "sum", "mean", "amax", "argmin", "var", "std", "any", "all", "prod", "nansum", "logsumexp", "count_nonzero",
        "cumsum", "softmax", "unsqueeze", "squeeze", "flip", "roll", "chunk", "split", "tensor_split",
    )},
    "rolled along": lambda n: X.roll(1, n),
    "moved": lambda n: aj.movedim(X, 0, n),
    "vector_norm": lambda n: aj.linalg.vector_norm(X, dim=n),
    "normalize": lambda n: F.normalize(X, dim=n),
    "aminmax": lambda n: X.aminmax(dim=n),
    "tril": lambda n: aj.tril(X, n),
}  # fmt: skip
NUMBERS: dict[str, Callable[[Any], Any]] = {
    "hardtanh": lambda v: F.hardtanh(X, -1.0, v),
    "hardshrink": lambda v: F.hardshrink(X, v),
    "softshrink": lambda v: F.softshrink(X, v),
    "leaky_relu": lambda v: F.leaky_relu(X, v),
    "elu": lambda v: F.elu(-X, v),
    "celu": lambda v: F.celu(-X, v),
    "softplus": lambda v: F.softplus(X, v),
    "layer_norm": lambda v: F.layer_norm(X, (3,), eps=v),
    "clamp": lambda v: X.clamp(min=v),
    "full": lambda v: aj.full((2,), v),
    "fill": lambda v: X.clone().fill_(v),
}


def _equal(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, tuple):
        return all(map(_equal, found, wanted))
    return bool(found.dtype == wanted.dtype and found.equal(wanted))


@pytest.mark.parametrize("name", AXES)
def test_axes_and_counts(name: str) -> None:
    for given in (np.int64(1), np.int32(1), aj.tensor(1)):
        if not (name == "tensor_split" and isinstance(given, aj.Tensor)):  # a tensor of places
            assert _equal(AXES[name](given), AXES[name](1)), given


@pytest.mark.parametrize("name", NUMBERS)
def test_parameters(name: str) -> None:
    for given in (np.float64(0.5), np.float32(0.5), aj.tensor(0.5)):
        assert _equal(NUMBERS[name](given), NUMBERS[name](0.5)), given


@pytest.mark.parametrize("name", ["sin_", "relu_", "neg_", "squeeze_", "t_"])
def test_functions_in_place_say_what_they_take(name: str) -> None:
    with pytest.raises(TypeError, match="must be Tensor, not str"):
        getattr(aj, name)("x")


@pytest.mark.parametrize(
    ("call", "kind", "said"),
    [
        (lambda: aj.addcmul(1, 2, 3), TypeError, "must be Tensor, not int"),  # type: ignore[arg-type]
        (lambda: aj.addcdiv(1.0, 2, 3), TypeError, "must be Tensor, not float"),  # type: ignore[arg-type]
        (lambda: aj.tensordot(aj.ones(2), aj.tensor(1.0), 1), RuntimeError, "expects dims < ndim_a or ndim_b"),
        (lambda: aj.cholesky_inverse(aj.tensor(1.0)), RuntimeError, "must have at least 2 dimensions"),
        (lambda: aj.trapezoid(aj.tensor(1.0)), IndexError, "but tensor has no dimensions"),
    ],
)
def test_what_has_no_axes_is_refused_where_axes_are_needed(
    call: Callable[[], Any], kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind, match=said):
        call()
