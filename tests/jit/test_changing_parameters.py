"""Parameters of ops that change from call to call: numbers and sizes that an op keeps, or by which a table finds what
it made before. Nothing of one captured function gets into another, nor into eager mode.

A table of functions of a tensor and a number, with and without gradients; each is compiled in two functions one after
the other, with eager calls in between.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.jit import open_numbers
from tests.covering import covering

F = aj.nn.functional
Function = Callable[[aj.Tensor, Any], Any]
FLOATS = (1.5, 2.25, 0.75)
INTS = (1, 2, 4)
DIMS = (1, 2, -1, 0)
OTHER_DIMS = (1, 2, -2)  # than the first


def _over_two(function: Function) -> Function:
    return lambda x, v: function(x, (v, 0))


OF_FLOATS: dict[str, Function] = {
    "pad": lambda x, v: F.pad(x, (1, 1), value=v),
    "pad, cropped": lambda x, v: F.pad(x, (-1, 1), value=v),
    "elu": lambda x, v: F.elu(x, v),
    "threshold": lambda x, v: F.threshold(x, v, v),
    "clamp": lambda x, v: x.clamp(-v, v),
    "masked_fill": lambda x, v: x.masked_fill(x > 0, v),
    "normalize": lambda x, v: F.normalize(x, p=v, eps=v),
    "layer_norm": lambda x, v: F.layer_norm(x, (4,), eps=v),
    "smooth_l1_loss": lambda x, v: F.smooth_l1_loss(x, 0.2 * x, beta=v),
    "norm": lambda x, v: x.norm(v),
    "renorm": lambda x, v: aj.renorm(x, 2, 0, v),
    "add": lambda x, v: aj.add(x, x, alpha=v),
    "addmm": lambda x, v: aj.addmm(x[0, :, :3], x[0, :, :3], x[1, :, :3], beta=v, alpha=v),
    "var": lambda x, v: x.var(1, correction=v),
    "full": lambda x, v: x * aj.full((4,), v),
    "linspace": lambda x, v: x * aj.linspace(0, v, 4),
    "lru_cache": lambda x, v: x * _twice(v) + _twice(value=v),
}
COMPOSITES: dict[str, Function] = {
    "addcdiv": lambda x, v: aj.addcdiv(x, x, x + 3, value=v),
    "addcmul": lambda x, v: aj.addcmul(x, x, x, value=v),
    "batch_norm": lambda x, v: F.batch_norm(x, None, None, training=True, eps=v),
    "celu": lambda x, v: F.celu(x, v),
    "clamp": lambda x, v: x.clamp(-v, v),
    "elu": lambda x, v: F.elu(x, v),
    "hardshrink": lambda x, v: F.hardshrink(x, v),
    "hardtanh": lambda x, v: F.hardtanh(x, -v, v),
    "huber_loss": lambda x, v: F.huber_loss(x, 0.2 * x, delta=v),
    "layer_norm": lambda x, v: F.layer_norm(x, (4,), eps=v),
    "leaky_relu": lambda x, v: F.leaky_relu(x, v),
    "lerp": lambda x, v: aj.lerp(x, x * x, v),
    "logit": lambda x, v: aj.logit(x.sigmoid(), eps=v / 10),
    "nan_to_num": lambda x, v: aj.nan_to_num(x, v),
    "normalize": lambda x, v: F.normalize(x, eps=v),
    "rms_norm": lambda x, v: F.rms_norm(x, (4,), eps=v),
    "smooth_l1_loss": lambda x, v: F.smooth_l1_loss(x, 0.2 * x, beta=v),
    "softplus": lambda x, v: F.softplus(x, v),
    "softshrink": lambda x, v: F.softshrink(x, v),
    "threshold": lambda x, v: F.threshold(x, v, v),
}
OF_INTS: dict[str, Function] = {
    "polygamma": lambda x, v: aj.special.polygamma(v, x.abs() + 1),
    "vander": lambda x, v: aj.vander(x[0, 0], v),
    "diag": lambda x, v: aj.diag(x[0], v - 3),
    "tril": lambda x, v: aj.tril(x, v - 3),
    "pad": lambda x, v: F.pad(x, (v, 1), value=v),
    "matrix_power": lambda x, v: aj.matrix_power(x[0, :, :3], v),
    "repeat": lambda x, v: x.repeat(1, v, 1),
    "unfold": lambda x, v: x.unfold(2, v, 1),
    "topk": lambda x, v: tuple(aj.topk(x, v, 2)),
    "roll": lambda x, v: aj.roll(x, v, 1),
    "one_hot": lambda x, v: x * F.one_hot(aj.tensor([0, 1, 1]), v + 2).sum(),
    "adaptive_avg_pool1d": lambda x, v: F.adaptive_avg_pool1d(x, v),
    "interpolate": lambda x, v: F.interpolate(x, size=v, mode="linear"),
    "lru_cache": lambda x, v: x * _twice(v),
}
OF_DIMS: dict[str, Function] = {
    name: getattr(aj, name)
    for name in ("sum", "mean", "prod", "amax", "cumsum", "softmax", "logsumexp", "unsqueeze", "std", "any")
}
OF_SEVERAL_DIMS: dict[str, Function] = {
    f"{name} over two": _over_two(getattr(aj, name))
    for name in ("sum", "mean", "amax", "std", "logsumexp", "nansum", "flip")
}
CASES = [
    pytest.param((function, values), id=f"{name} of {kind}")
    for kind, values, table in (
        ("floats", FLOATS, OF_FLOATS),
        ("ints", INTS, OF_INTS),
        ("dims", DIMS, OF_DIMS),
        ("dims", OTHER_DIMS, OF_SEVERAL_DIMS),
    )
    for name, function in table.items()
]


@functools.cache
def _twice(value: float) -> float:
    return 2 * value


def _results(function: Any, value: Any, with_gradient: bool) -> list[Any]:
    x = ((aj.arange(24.0) - 11.3) / 7).reshape(2, 3, 4).requires_grad_(with_gradient)
    found = function(x, value)
    results = list(found) if isinstance(found, tuple) else [found]
    if results[0].requires_grad:
        results[0].square().sum().backward()
        results.append(x.grad)
    return [(y.dtype, y.detach().numpy()) for y in results]


def _compare(function: Any, compiled: Any, value: Any, with_gradient: bool) -> None:
    expected, found = (_results(f, value, with_gradient) for f in (function, compiled))
    assert [dtype for dtype, _ in found] == [dtype for dtype, _ in expected]
    for (_, y), (_, wanted) in zip(found, expected, strict=True):
        np.testing.assert_allclose(y, wanted, rtol=2e-4, atol=2e-4)


@covering("case, with_gradient", CASES, [False, True], every=2)
def test_one_function_after_the_other(case: Any, with_gradient: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    function, values = case
    monkeypatch.setattr(open_numbers, "INTS_BEFORE", 1)
    for _ in range(2):
        compiled = aj.jit(lambda x, v: function(x, v))
        for value in values:
            _compare(function, compiled, value, with_gradient)


@pytest.mark.parametrize("function", COMPOSITES.values(), ids=COMPOSITES)
def test_recording_a_history_leaves_numbers_open(function: Function) -> None:
    """What a node keeps is asked of an op, of which no number is one of its step."""
    compiled = aj.jit(lambda x, v: function(x, v))
    for value in (0.3, 0.45, 0.6, 0.75, 0.9):
        _compare(function, compiled, value, True)
    stats = compiled.stats()
    assert stats["captures"] == 2 and stats["splits"] == 0, compiled.explain()


@pytest.mark.parametrize("function", OF_SEVERAL_DIMS.values(), ids=OF_SEVERAL_DIMS)
def test_sizes_as_dims(function: Function) -> None:
    x = aj.arange(240.0).reshape(2, 3, 4, 5, 2) / 100
    for _ in range(2):
        compiled = aj.jit(lambda y: function(x, y.shape[0] - 1))
        for n in (2, 3, 4, 5, 3):
            found, expected = compiled(aj.ones(n)), function(x, n - 1)
            assert found.shape == expected.shape
            np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-5, atol=1e-5)


def test_what_a_step_remembers_is_of_plain_numbers() -> None:
    @functools.cache
    def scaled(value: float) -> float:
        return 3 * value

    compiled = aj.jit(lambda x, v: x * scaled(v))
    for value in FLOATS:
        assert compiled(aj.ones(1), value).item() == 3 * value
    assert [type(scaled(value)) for value in FLOATS] == [float] * len(FLOATS)
    assert scaled.cache_info().currsize == len(FLOATS)


ERRORS: dict[str, Callable[[aj.Tensor, int], Any]] = {
    "a key": lambda x, k: x * {1: 1, 2: 2, 3: 3, 5: 5, 6: 6}[k],
    "an error of the user's": lambda x, k: _refused(x, k),
    "an error that holds a size": lambda x, k: _refused(x, x.shape[0]),
    "several": lambda x, k: _refused(x, (k, [x.shape[0] - 1])),
}


def _refused(x: aj.Tensor, what: Any) -> aj.Tensor:
    if x.shape[0] == 4:
        raise LookupError("refused", what)
    return x


@pytest.mark.parametrize("function", ERRORS.values(), ids=ERRORS)
def test_errors_hold_plain_numbers(function: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_numbers, "INTS_BEFORE", 1)
    compiled = aj.jit(lambda x, k: function(x, k))
    for n in (1, 2, 3, 5, 4, 6, 4):
        told = []
        for call in (function, compiled):
            try:
                told.append(call(aj.ones(n), n).tolist())
            except LookupError as error:
                told.append((type(error), str(error), [type(part) for part in error.args], error.args))
        assert told[1] == told[0]


MADE_OF: dict[str, Callable[[Any], aj.Tensor]] = {
    "tensor": lambda v: aj.tensor(v, dtype=aj.float64),
    "list": lambda v: aj.tensor([v, 1, 2.5, v + 1], dtype=aj.float64),
    "nest": lambda v: aj.as_tensor([[v, v * 2], [v, 1.0]], dtype=aj.float64),
    "new_tensor": lambda v: aj.ones(1, dtype=aj.float64).new_tensor([v, -v]),
    "scalar_tensor": lambda v: aj.scalar_tensor(v, dtype=aj.float64),
    "full": lambda v: aj.full((2,), v, dtype=aj.float64),
    "full_like": lambda v: aj.full_like(aj.ones(2, dtype=aj.float64), v),
    "new_full": lambda v: aj.ones(2, dtype=aj.float64).new_full((3,), v),
    "fill_": lambda v: aj.zeros(2, dtype=aj.float64).fill_(v),
    "linspace": lambda v: aj.linspace(v, 9.7, 5, dtype=aj.float64),
    "set": lambda v: _set(aj.zeros(3, dtype=aj.float64), v),
    "complex": lambda v: aj.tensor([v, 1j], dtype=aj.complex128).real,
    "where": lambda v: aj.where(aj.tensor([True, False]), aj.tensor(v, dtype=aj.float64), v + 1),
}


def _set(x: aj.Tensor, value: float) -> aj.Tensor:
    x[0] = value
    x[1:] = aj.tensor([value, value], dtype=aj.float64)
    return x


@pytest.mark.parametrize("name", sorted({*OF_FLOATS, *MADE_OF}))
def test_no_digit_is_lost_beside_float64(name: str) -> None:
    x = ((aj.arange(24.0, dtype=aj.float64) - 11.3) / 7).reshape(2, 3, 4)
    function = MADE_OF.get(name) or (lambda v: OF_FLOATS[name](x, v))
    compiled = aj.jit(function)
    for value in (0.1, 1 / 3, 0.7, 1.1, 2 / 7):
        expected, found = function(value), compiled(value)
        for y, wanted in zip(*[r if isinstance(r, tuple) else (r,) for r in (found, expected)], strict=True):
            assert y.dtype == wanted.dtype
            np.testing.assert_allclose(y.numpy(), wanted.numpy(), rtol=1e-12, atol=1e-13)
