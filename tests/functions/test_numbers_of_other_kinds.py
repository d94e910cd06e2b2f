"""NumPy's numbers and tensors without axes stand for Python's where a parameter is a number or an axis, as in torch."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.dispatch.declared import DECLARED, declaration_of
from autojit.functions import PLACES
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
    found, wanted = (t.to_dense() if t.layout is not aj.strided else t for t in (found, wanted))
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


def _methods_of_numbers() -> list[str]:
    """Methods that ask for nothing but numbers, and ask for or take one."""
    found = []
    for name in PLACES:
        getattr(aj, name, None)  # their modules are imported when they are first asked for
    for d in sorted(DECLARED.values(), key=lambda d: d.name):
        if d.method is True and not d.is_factory and _numbers_of(d.function) and not d.name.startswith("_"):
            found += [*d.names, *(f"{name}_" for name in d.names if d.in_place)]
    return found


def _numbers_of(function: Any) -> list[Any]:
    """Values for the parameters after the first: all that have to be given, or else the first one."""
    given = []
    for place, p in enumerate(list(inspect.signature(function).parameters.values())[1:]):
        kinds = str(p.annotation).split(" | ")
        if p.kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD or (given and p.default is not p.empty):
            break
        if not {"int", "float", "Dims", "Number"}.intersection(kinds) or "Tensor" in kinds:
            return given if p.default is not p.empty else []
        given.append(1 - place % 2 if "int" in kinds or "Dims" in kinds else 0.5)
    return given


def _outcome(name: str, numbers: list[Any]) -> Any:
    aj.manual_seed(0)
    try:
        return getattr(X.clone(), name)(*numbers)
    except Exception as error:
        return type(error)


@pytest.mark.parametrize("name", _methods_of_numbers())
def test_methods(name: str) -> None:
    numbers = _numbers_of(declaration_of(name).function)
    wanted = _outcome(name, numbers)
    for convert in (aj.tensor, lambda v: np.float64(v) if isinstance(v, float) else np.int64(v)):
        found = _outcome(name, list(map(convert, numbers)))
        if isinstance(wanted, type):
            assert isinstance(found, type)
        elif not (name in ("tensor_split", "split") and isinstance(found, type | tuple)):  # of places; as in torch
            assert not isinstance(found, type), found
            assert not isinstance(wanted, aj.Tensor) or _equal(found, wanted)


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
