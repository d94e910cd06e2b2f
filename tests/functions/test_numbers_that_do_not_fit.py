"""A number that a dtype does not hold is an error wherever it is written down, never another number in silence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj

F = aj.nn.functional
INDEX = aj.tensor([0, 1])
MASK = aj.tensor([True, False])
WRITERS: dict[str, Callable[[aj.Tensor, Any], Any]] = {
    "full": lambda x, n: aj.full((2,), n, dtype=x.dtype),
    "full_like": aj.full_like,
    "new_full": lambda x, n: x.new_full((2,), n),
    "fill_": lambda x, n: x.clone().fill_(n),
    "setitem": lambda x, n: x.clone().__setitem__(0, n),
    "setitem of a mask": lambda x, n: x.clone().__setitem__(MASK, n),
    "masked_fill": lambda x, n: x.masked_fill(MASK, n),
    "index_fill": lambda x, n: x.index_fill(0, INDEX, n),
    "scatter": lambda x, n: x.scatter(0, INDEX, n),
    "index_add": lambda x, n: x.index_add(0, INDEX, x, alpha=n),
    "add": lambda x, n: aj.add(x, x, alpha=n),
    "sub": lambda x, n: aj.sub(x, x, alpha=n),
    "add_": lambda x, n: x.clone().add_(x, alpha=n),
    "addcmul": lambda x, n: aj.addcmul(x, x, x, value=n),
    "addmm": lambda x, n: aj.addmm(aj.outer(x, x), aj.outer(x, x), aj.outer(x, x), alpha=n),
    "addmv": lambda x, n: aj.addmv(x, aj.outer(x, x), x, beta=n),
    "addr": lambda x, n: aj.addr(aj.outer(x, x), x, x, beta=n),
    "tensor": lambda x, n: aj.tensor([1, n], dtype=x.dtype),
    "lerp": lambda x, n: aj.lerp(x.float(), x.float(), n),
    "addcdiv": lambda x, n: aj.addcdiv(x.float(), x.float(), x.float(), value=n),
}


@pytest.mark.parametrize("dtype", [aj.float32, aj.float16, aj.int64, aj.uint8])
@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("compiled", [False, True])
def test_an_imaginary_part_is_not_lost(name: str, dtype: aj.dtype, compiled: bool) -> None:
    def write(x: aj.Tensor) -> Any:
        return WRITERS[name](x, 1 + 2j)

    with pytest.raises((RuntimeError, TypeError), match=r"without overflow|complex number|must be real number"):
        (aj.jit(write) if compiled else write)(aj.ones(2, dtype=dtype))


@pytest.mark.parametrize("name", sorted(set(WRITERS) - {"add", "sub", "add_", "addr", "tensor"}))
def test_a_complex_number_without_an_imaginary_part_is_a_real_one(name: str) -> None:
    x = aj.tensor([1.0, 2.0])
    found, plain = (WRITERS[name](x, number) for number in (3 + 0j, 3.0))
    assert found is None or (found.dtype is x.dtype and found.equal(plain))


def test_factors_of_whole_numbers_lose_their_fraction_where_torch_s_do() -> None:
    x = aj.tensor([1, 2])
    assert aj.addcmul(x, x, x, value=2.5).tolist() == [3, 10]
    assert x.index_add(0, INDEX, x, alpha=2.5).tolist() == [3, 6]
    for form in ({"alpha": 2.5}, {"beta": 2.5}):
        with pytest.raises(RuntimeError, match="must not be a floating point number"):
            aj.addr(aj.outer(x, x), x, x, **form)


@pytest.mark.parametrize("name", ["addmm", "addmv", "addr", "baddbmm", "addbmm"])
@pytest.mark.parametrize("dtype", [aj.float32, aj.bfloat16, aj.complex64])
def test_an_input_that_counts_nothing_may_be_nan(name: str, dtype: aj.dtype) -> None:
    m = aj.eye(2, dtype=dtype)
    given = {
        "addmm": (m, m),
        "addmv": (m, m[0]),
        "addr": (m[0], m[0]),
        "baddbmm": (m[None], m[None]),
        "addbmm": (m[None], m[None]),
    }
    shape = getattr(aj, name)(
        aj.zeros((), dtype=dtype) if name != "addbmm" else aj.zeros(2, 2, dtype=dtype), *given[name]
    ).shape
    found = getattr(aj, name)(aj.full(shape, float("nan"), dtype=dtype), *given[name], beta=0)
    assert not found.isnan().any() and found.sum() == (1 if name in ("addmv", "addr") else 2)


def test_einsum_takes_lists_of_subscripts() -> None:
    x, y = aj.arange(6.0).reshape(2, 3), aj.arange(12.0).reshape(3, 4)
    assert aj.einsum(x, [0, 1], y, [1, 2], [2, 0]).equal(aj.einsum("ij,jk->ki", x, y))
    assert aj.einsum(x, [0, 1], y, [1, 2]).equal(x @ y)
    batch = aj.arange(24.0).reshape(2, 3, 4)
    assert aj.einsum(batch, [..., 0, 1], [..., 1, 0]).equal(batch.mT)
    assert aj.einsum(x, [30, 2]).equal(x.mT), "axes of the result are in the order of their numbers"
    leaf = x.clone().requires_grad_()
    aj.einsum(leaf, [0, 51], [51]).sum().backward()
    assert leaf.grad is not None and leaf.grad.eq(1).all()
    with pytest.raises(ValueError, match="valid range"):
        aj.einsum(x, [0, 52])
    with pytest.raises(TypeError, match="subscripts"):
        aj.einsum(x, x)
