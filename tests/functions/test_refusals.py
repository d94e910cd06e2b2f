"""What torch refuses is refused with torch's exception types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj

X = aj.arange(6.0).reshape(2, 3)
REFUSED: list[tuple[Callable[[], Any], type[Exception]]] = [
    (lambda: X & X, NotImplementedError),
    (lambda: aj.bitwise_xor(X, X), NotImplementedError),
    (lambda: ~X, TypeError),
    (lambda: aj.rand(2, -1), RuntimeError),
    (lambda: aj.randn(-1), RuntimeError),
    (lambda: aj.randint(5, 3, (2,)), RuntimeError),
    (lambda: aj.randperm(-1), RuntimeError),
    (lambda: aj.Generator("cuda:99"), RuntimeError),
    (lambda: aj.manual_seed(2**64), ValueError),
    (lambda: aj.isclose(X, X.double()), RuntimeError),
    (lambda: aj.isclose(X, 1.0), TypeError),
    (lambda: aj.heaviside(X, X.double()), RuntimeError),
    (lambda: aj.searchsorted(aj.tensor([[1, 2]]), aj.tensor([1])), RuntimeError),
    (lambda: aj.ones(3).fill_diagonal_(1), RuntimeError),
    (lambda: aj.ones(2, 2, 3).fill_diagonal_(1), RuntimeError),
]


@pytest.mark.parametrize(("call", "error"), REFUSED)
def test_what_does_not_fit_is_refused(call: Callable[[], Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        call()


def test_diagonals_of_any_layout_and_rank_are_filled() -> None:
    x = aj.zeros(3, 4).t()
    assert x.fill_diagonal_(7).sum().item() == 21.0
    wrapped = aj.zeros(7, 3).fill_diagonal_(1, wrap=True)
    assert wrapped.sum(1).tolist() == [1.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0]
    assert aj.zeros(3, 5).fill_diagonal_(1, wrap=True).sum().item() == 3.0
    cube = aj.zeros(2, 2, 2).fill_diagonal_(3)
    assert (cube.sum().item(), cube[1, 1, 1].item()) == (6.0, 3.0)


def test_extremes_have_names() -> None:
    found = aj.aminmax(X, dim=1)
    assert found.min.tolist() == [0.0, 3.0]
    assert found.max.tolist() == [2.0, 5.0]
    assert X.aminmax().max.item() == 5.0


def test_limits_show_themselves() -> None:
    assert repr(aj.iinfo(aj.int8)) == "iinfo(min=-128, max=127, dtype=int8)"
    assert "eps=1.19209e-07" in repr(aj.finfo(aj.float32))
