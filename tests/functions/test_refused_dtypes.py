"""Dtypes that torch refuses are refused in eager mode and while a step is captured, with NotImplementedError."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj
import autojit.nn.functional as F

C = aj.tensor([[1 + 2j, 3 - 1j]])
B = aj.tensor([[True, False]])
I = aj.tensor([[1, 2]])
REFUSED: list[Callable[[], Any]] = [
    lambda: C < C,
    lambda: aj.ge(C, 1.0),
    lambda: aj.maximum(C, C),
    lambda: aj.fmin(C, C),
    lambda: aj.max(C),
    lambda: C.max(1),
    lambda: C.amin(1),
    lambda: aj.sort(C),
    lambda: C.argsort(),
    lambda: aj.median(C),
    lambda: aj.cummax(C, 1),
    lambda: C.clamp(min=0.0),
    lambda: aj.sign(C),
    lambda: aj.erf(C),
    lambda: C.clone().erf_(),
    lambda: aj.special.ndtr(C),
    lambda: aj.special.i0e(C),
    lambda: aj.igamma(C, C),
    lambda: aj.abs(B),
    lambda: aj.floor(B),
    lambda: B.ceil(),
    lambda: aj.remainder(B, B),
    lambda: aj.relu(B),
    lambda: aj.softmax(I, 1),
    lambda: F.log_softmax(C, 1),
    lambda: F.gelu(I),
    lambda: F.leaky_relu(C),
    lambda: F.layer_norm(I, (2,)),
    lambda: F.interpolate(I[None], size=4),
    lambda: aj.topk(B, 1),
    lambda: aj.kthvalue(C, 1),
    lambda: aj.empty(2, dtype=aj.int64).exponential_(),
    lambda: aj.empty(2, dtype=aj.complex64).cauchy_(),
]


@pytest.mark.parametrize("call", REFUSED)
def test_a_dtype_without_meaning_is_refused(call: Callable[[], Any]) -> None:
    with pytest.raises(NotImplementedError) as caught:
        call()
    assert isinstance(caught.value, RuntimeError)


def test_dtypes_that_do_not_fit_together_are_refused() -> None:
    x = aj.ones(2, 2)
    for call in (
        lambda: aj.addmm(x.double(), x, x),
        lambda: aj.baddbmm(x.double()[None], x[None], x[None]),
        lambda: aj.addbmm(x.double(), x[None], x[None]),
        lambda: aj.cross(aj.ones(3), aj.ones(3).double()),
        lambda: aj.masked_scatter(x, x > 0, x.double()),
        lambda: aj.masked_select(x, x),
        lambda: aj.addcdiv(aj.ones(2), aj.tensor([1, 2]), aj.tensor([1, 2])),
        lambda: aj.view_as_real(x),
    ):
        with pytest.raises(RuntimeError):
            call()
    assert aj.addr(x, aj.tensor([1, 2]), aj.ones(2).double()).dtype is aj.float64  # this one promotes


def test_what_stays_allowed() -> None:
    assert aj.sgn(C).dtype is aj.complex64
    assert aj.igamma(aj.tensor([1, 2]), aj.ones(2)).dtype is aj.float32
    assert aj.softmax(I, 1, dtype=aj.float64).sum().item() == 1.0
    assert I.unfold(1, 1, 1).shape == (1, 2, 1)
    assert aj.floor(I).dtype is aj.int64


def test_captured_steps_refuse_the_same() -> None:
    with pytest.raises(NotImplementedError):
        aj.jit(lambda x: aj.maximum(x, x))(C)
    with pytest.raises(NotImplementedError):
        aj.jit(lambda x: aj.softmax(x, 1))(I)
