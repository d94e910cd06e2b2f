"""Functions whose ops are found out once per kind of operands give what they give the long way, history and all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.dispatch import call_programs
from tests.autograd.test_known_rules import check_alike
from tests.autograd.test_recorded_rules import history

X, W = np.random.default_rng(0).standard_normal((2, 4, 4))
PLACES = np.array([2, 0, 3, 3])

FUNCTIONS: dict[str, Callable[[aj.Tensor, aj.Tensor, aj.Tensor], aj.Tensor]] = {
    "a product": lambda x, w, at: aj.einsum("ij,jk->ik", x, w),
    "a bilinear form": lambda x, w, at: aj.einsum("ij,jk,ik->i", x, w, x),
    "a trace": lambda x, w, at: aj.einsum("ii,j...->j...", x, w),
    "a transpose": lambda x, w, at: aj.einsum("ij->ji", x),
    "the operand itself": lambda x, w, at: aj.einsum("ij->ij", x) * w,
    "an outer product": lambda x, w, at: aj.einsum("i,j->ij", x[0], w[1]),
    "running sums": lambda x, w, at: x.cumsum(1) * w.cumsum(-2),
    "running products": lambda x, w, at: x.cumprod(0),
    "picks": lambda x, w, at: x.gather(1, at[:, None]) * w.index_select(0, at),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("turned", [False, True])
def test_calls_are_those_of_the_function(name: str, turned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_programs, "_PROGRAMS", {})
    found: list[list[Any]] = []
    for _ in range(8):
        x, w = (aj.tensor(a.T.copy()).t() if turned else aj.tensor(a) for a in (X, W))
        x, w = x.requires_grad_(), w.requires_grad_()
        y = FUNCTIONS[name](x, w, aj.tensor(PLACES))
        behind = history(y)
        slopes = aj.autograd.grad(y.square().sum(), [x, w], allow_unused=True)
        found.append([y, *slopes, behind, y._base is None])
    assert any(not isinstance(known, int) for known in call_programs._PROGRAMS.values())
    for one in found[1:]:
        assert one[-2:] == found[0][-2:]
        for t, wanted in zip(one[:-2], found[0][:-2], strict=True):
            check_alike(t, wanted, name)


def test_what_does_not_fit_is_said_whatever_has_come_before() -> None:
    x, w = aj.rand(3, 4), aj.rand(4, 5)
    for _ in range(8):
        aj.einsum("ij,jk->ik", x, w)
        x.cumsum(1)
    with pytest.raises(RuntimeError, match="subscript j has extents"):
        aj.einsum("ij,jk->ik", x, x)
    with pytest.raises(IndexError):
        x.cumsum(2)
    with pytest.raises(IndexError):
        x.gather(1, aj.tensor([[7]]))


def test_a_transform_and_a_step_get_the_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_programs, "_PROGRAMS", {})
    x, w = aj.rand(3, 4), aj.rand(4, 5)
    wanted = x @ w
    for _ in range(8):
        assert aj.allclose(aj.einsum("ij,jk->ik", x, w), wanted)
    assert aj.allclose(aj.func.vmap(lambda row: aj.einsum("j,jk->k", row, w))(x), wanted)
    assert aj.allclose(aj.jit(lambda x, w: aj.einsum("ij,jk->ik", x, w))(x, w), wanted)
    with aj.inference_mode():
        assert aj.einsum("ij,jk->ik", x, w).is_inference()


def test_what_a_type_rule_refuses_and_numpy_computes_stays_the_functions() -> None:
    x = aj.tensor([True, False, True])
    for _ in range(8):
        assert x.cumsum(0, dtype=aj.bool).tolist() == [True, True, True]
