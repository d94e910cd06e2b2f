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


PICKS: dict[str, Any] = {
    "gather": lambda x, at: x.gather(1, at),
    "scatter": lambda x, at: x.scatter(1, at, 2.0),
    "scatter of a tensor": lambda x, at: x.scatter(1, at, x),
    "scatter_add": lambda x, at: x.scatter_add(1, at, x),
    "scatter_reduce": lambda x, at: x.scatter_reduce(1, at, x, "amax"),
    "take_along_dim": lambda x, at: aj.take_along_dim(x, at, 1),
    "index_add": lambda x, at: x.index_add(1, at, x[:, : len(at)]),
}


@pytest.mark.parametrize("name", PICKS)
def test_places_that_do_not_fit_are_refused_eagerly_as_in_a_step(name: str) -> None:
    """NumPy broadcasts where a type rule refuses."""
    x = aj.arange(6.0).reshape(2, 3)
    for at in (aj.tensor([0, 1]), aj.tensor([[[0]]]), aj.zeros(4, 1, dtype=aj.int64), aj.tensor([[0], [1]])):
        found = []
        for run in (PICKS[name], aj.jit(PICKS[name])):
            try:
                found.append(run(x, at).tolist())
            except (RuntimeError, IndexError) as error:
                found.append(str(error).splitlines()[0])
        assert found[0] == found[1], at


@pytest.mark.parametrize("dtype", [aj.float32, aj.float64, aj.float16, aj.bfloat16], ids=str)
@pytest.mark.parametrize("weight", [float("inf"), float("nan"), -1.0])
def test_weights_that_are_no_numbers_are_refused(weight: float, dtype: aj.dtype) -> None:
    for replacement in (False, True):
        with pytest.raises(RuntimeError, match="contains either `inf`, `nan` or element < 0"):
            aj.multinomial(aj.tensor([1.0, weight, 1.0], dtype=dtype), 2, replacement)
