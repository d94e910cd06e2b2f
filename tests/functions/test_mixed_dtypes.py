"""Functions of operands of several dtypes give what they give of operands converted first; numbers keep their kind."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

import autojit as aj

DTYPES = (aj.bool, aj.int32, aj.float16, aj.bfloat16, aj.float64, aj.complex64)
OF_SEVERAL: dict[str, Callable[..., Any]] = {
    "addcmul": lambda x, y: aj.addcmul(x, y, y, value=2),
    "addcmul with another third": lambda x, y: aj.addcmul(y, x, y),
    "addcdiv": lambda x, y: aj.addcdiv(x, y, x, value=2),
    "atan2": aj.atan2,
    "hypot": aj.hypot,
    "ldexp": aj.ldexp,
    "logaddexp": aj.logaddexp,
    "logaddexp2": aj.logaddexp2,
    "maximum": aj.maximum,
    "xlogy": aj.xlogy,
}


def _outcome(compute: Callable[[], aj.Tensor]) -> Any:
    try:
        found = compute()
    except (RuntimeError, TypeError) as error:
        return "refused", isinstance(error, RuntimeError)
    return found.dtype, str(found.tolist())  # of NaN, too


@pytest.mark.parametrize("name", OF_SEVERAL)
@pytest.mark.parametrize("shape", [(3,), ()], ids=str)
def test_operands_are_converted_before_anything_is_computed(name: str, shape: tuple[int, ...]) -> None:
    compute = OF_SEVERAL[name]
    for one, other in product(DTYPES, DTYPES):
        x, y = aj.tensor([1.1, 0.7, 3.0]).to(one), aj.tensor([0.3, 2.0, 1.9][: len(shape) * 3 or 1]).to(other)
        y = y.reshape(shape)
        dtype = aj.result_type(x, y)
        wanted = _outcome(lambda x=x, y=y, dtype=dtype: compute(x.to(dtype), y.to(dtype)))  # type: ignore[misc]
        found = _outcome(lambda x=x, y=y: compute(x, y))  # type: ignore[misc]
        assert found == wanted or wanted[0] == "refused", (one, other, found, wanted)


@pytest.mark.parametrize("number", [1j, 2.5 - 1j, 2, True])
def test_float_power_of_a_number_is_that_of_a_tensor_of_it(number: complex) -> None:
    x = aj.tensor([1.5, 2.0, 3.0])
    of_it = aj.tensor(number)
    for found, wanted in (
        (aj.float_power(x, number), aj.float_power(x, of_it)),
        (aj.float_power(number, x), aj.float_power(of_it, x)),
    ):
        assert found.dtype is wanted.dtype
        aj.testing.assert_close(found, wanted)


def test_bools_to_the_power_of_bools_are_bools() -> None:
    x = aj.tensor([True, False])
    assert (x**True).tolist() == [True, False] and (x**False).tolist() == [True, True]


@pytest.mark.parametrize("dtype", [aj.float16, aj.bfloat16, aj.float32, aj.float64])
def test_ldexp_moves_the_least_number_to_the_greatest_and_back(dtype: aj.dtype) -> None:
    least = aj.finfo(dtype).smallest_normal
    for compute in (aj.ldexp, aj.jit(aj.ldexp)):
        exponent = round(-2 * aj.tensor(least, dtype=aj.float64).log2().item()) - 2
        there = compute(aj.tensor([least], dtype=dtype), aj.tensor([exponent]))
        assert there.isfinite().all() and compute(there, aj.tensor([-exponent])).item() == least


def test_a_product_with_a_tensor_without_axes_has_the_dtype_of_its_function() -> None:
    x, y = aj.ones(3), aj.tensor(2.0, dtype=aj.float64)
    assert aj.kron(x, y).dtype is aj.float64  # as if both had axes
    assert aj.inner(x, y).tolist() == [2.0, 2.0, 2.0] and aj.inner(x, y).dtype is aj.float32


def test_an_extreme_of_everything_goes_into_a_dtype_that_holds_it_and_pairs_into_their_own() -> None:
    x = aj.tensor([1, 3, 2])
    assert aj.max(x, out=aj.empty(0)).item() == 3.0
    with pytest.raises(RuntimeError):
        aj.max(x, 0, out=(aj.empty(0), aj.empty(0, dtype=aj.int64)))


def test_sinc_of_complex_numbers_is_that_of_reals_on_the_real_line() -> None:
    x = aj.tensor([0.0, 0.3, -1.7], dtype=aj.float64)
    aj.testing.assert_close(aj.sinc(x + 0j).real, aj.sinc(x))
    assert aj.autograd.gradcheck(aj.sinc, (x[1:] + 0.2j).requires_grad_())


@pytest.mark.parametrize("dtype", [aj.float32, aj.int64, aj.bool, aj.float16])
@pytest.mark.parametrize("other", [aj.float64, aj.int32, aj.bool])
def test_what_is_written_to_a_view_is_converted(dtype: aj.dtype, other: aj.dtype) -> None:
    """As ``x[view] = src`` converts it: ``select_scatter`` and its like, and multiples that ``index_add`` adds."""
    x, src = aj.arange(4).reshape(2, 2).to(dtype), aj.tensor([3, 0]).to(other)
    written = x.clone()
    written[0] = src
    assert x.select_scatter(src, 0, 0).equal(written) and x.slice_scatter(src[None], 0, 0, 1).equal(written)
    written = x.clone()
    written.diagonal().copy_(src)
    found = aj.jit(lambda x, src: x.diagonal_scatter(src))(x, src)
    assert found.equal(written) and x.diagonal_scatter(src).equal(written)
    row = aj.tensor([[1, 0]]).to(dtype)
    added = x.index_add(0, aj.tensor([1]), row, alpha=True if dtype is aj.bool else 2)
    assert added.dtype is dtype and aj.tensor([True]).index_add(0, aj.tensor([0]), aj.tensor([True]), alpha=2).item()
