"""Small rules of PyTorch's that programs meet: layouts of results, addresses, positions that are one number."""

from __future__ import annotations

import copy
from math import inf
from typing import Any

import pytest

import autojit as aj


@pytest.mark.parametrize("weight", [0.3, 0.5, 0.9])
@pytest.mark.parametrize("compiled", [False, True])
def test_interpolation_keeps_the_order_of_axes_of_its_start_and_both_ends(weight: float, compiled: bool) -> None:
    start = aj.arange(24.0).reshape(1, 2, 3, 4).to(memory_format=aj.channels_last)
    end = start.contiguous() * 3 + 1

    def between(a: aj.Tensor, b: aj.Tensor) -> aj.Tensor:
        return aj.lerp(a, b, weight)

    found = (aj.jit(between) if compiled else between)(start, end)
    aj.testing.assert_close(found, start + weight * (end - start))
    assert compiled or found.stride() == start.stride()
    assert aj.lerp(start, end, 1.0).equal(end) and aj.lerp(start, end, 0.0).equal(start)


def test_the_slope_at_a_sample_of_even_ones_does_not_ask_for_it() -> None:
    (found,) = aj.gradient(aj.tensor([1.0, 2.0, inf, 4.0, 5.0, 7.0]))
    assert found.tolist() == [1.0, inf, 1.0, -inf, 1.5, 2.0]


ONE: dict[str, Any] = {
    "index_copy": lambda x, i, src: x.index_copy(0, i, src),
    "index_add": lambda x, i, src: x.index_add(0, i, src),
    "index_reduce": lambda x, i, src: x.index_reduce(0, i, src, "amax"),
    "scatter": lambda x, i, src: x.scatter(0, i, src),
    "scatter_add": lambda x, i, src: x.scatter_add(0, i, src),
}


@pytest.mark.parametrize("name", ONE)
def test_one_position_may_be_a_number(name: str) -> None:
    x, i, src = aj.zeros(3), aj.tensor(1), aj.ones(1)
    assert ONE[name](x, i, src).tolist() == [0.0, 1.0, 0.0]
    assert ONE[name](x, i.reshape(1), src).tolist() == [0.0, 1.0, 0.0]


def test_tensors_without_elements_have_no_address_and_sizes_join_tuples() -> None:
    assert aj.empty(0).data_ptr() == aj.ones(3)[3:].data_ptr() == aj.ones(2, 0).data_ptr() == 0
    assert type((1, *(2,)) + aj.Size((3,))) is aj.Size
    assert f"{aj.empty((), device='meta')}" == repr(aj.empty((), device="meta"))
    with pytest.raises(RuntimeError, match="Could not set tensor of type"):
        aj.zeros(3).set_(aj.zeros(3, dtype=aj.int32))


@pytest.mark.parametrize("dtype", [aj.float32, aj.complex64, aj.bfloat16])
def test_copies_of_a_tensor_and_of_its_storages_share_memory(dtype: aj.dtype) -> None:
    x = aj.ones(3, dtype=dtype)
    kept = [x, x.storage(), x.untyped_storage(), x[1:]]
    for order in (kept, kept[::-1]):
        made = copy.deepcopy(order)
        first = next(m for m in made if isinstance(m, aj.Tensor) and m.shape == (3,))
        first.add_(1)
        assert {m.untyped_storage().data_ptr() if isinstance(m, aj.Tensor) else m.data_ptr() for m in made} == {
            first.data_ptr()
        }
    assert x.eq(1).all()


@pytest.mark.parametrize("compiled", [False, True])
def test_numbers_and_tensors_are_looked_for_among_elements_and_nothing_else(compiled: bool) -> None:
    def among(x: aj.Tensor, n: int) -> list[bool]:
        return [n in x, 1.5 in x, aj.tensor(2.0) in x]

    assert (aj.jit(among) if compiled else among)(aj.arange(3.0), 1) == [True, False, True]
    for other in ("x", None, [1.0]):
        with pytest.raises(RuntimeError, match="only supports Tensor or scalar"):
            _ = other in aj.arange(3.0)  # type: ignore[operator]


@pytest.mark.parametrize("name", ["max", "min", "argmax", "argmin", "amax", "sum", "cumsum", "sort", "mode"])
@pytest.mark.parametrize("dim", [1, -2])
def test_a_number_has_one_axis_and_no_other(name: str, dim: int) -> None:
    assert getattr(aj.tensor(2.0), name)(0) is not None and getattr(aj.tensor(2.0), name)(-1) is not None
    with pytest.raises(IndexError, match="Dimension out of range"):
        getattr(aj.tensor(2.0), name)(dim)


class Asked:
    """Answers for a tensor that does not know it."""

    def __radd__(self, other: Any) -> str:
        return "added"


@pytest.mark.parametrize("compiled", [False, True])
def test_assigning_operators_change_the_tensor_and_leave_what_they_do_not_know_to_it(compiled: bool) -> None:
    def change(x: aj.Tensor, n: int) -> tuple[aj.Tensor, aj.Tensor]:
        same = x
        same <<= 1
        same += n
        same >>= 1
        return x, same

    x = aj.tensor([1, 2, 3])
    first, same = (aj.jit(change) if compiled else change)(x, 4)
    assert x.tolist() == first.tolist() == same.tolist() == [3, 4, 5]
    y: Any = aj.ones(2)
    y += Asked()
    assert y == "added"
    z = aj.ones(2)
    with pytest.raises(TypeError, match="unsupported operand"):
        z += object()  # type: ignore[operator]


def test_complex_numbers_are_scaled_by_powers_of_two() -> None:
    assert aj.ldexp(aj.tensor([1 + 2j]), aj.tensor([2])).tolist() == [4 + 8j]
