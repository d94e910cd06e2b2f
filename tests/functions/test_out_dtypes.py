"""Which dtypes ``out=`` may have: by the function, the result's kind, the result's own dtype, or that of the sum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj

FLOATS = (aj.float32, aj.float64)
OWN_DTYPE: dict[str, Callable[..., Any]] = {
    "neg": aj.neg, "floor": aj.floor, "ceil": aj.ceil, "trunc": aj.trunc, "round": aj.round, "sign": aj.sign,
    "sgn": aj.sgn, "frac": aj.frac, "tril": lambda x, out: aj.tril(x.expand(3, 3), out=out),
    "mm": lambda x, out: aj.mm(x.expand(3, 3), x.expand(3, 3), out=out), "dot": lambda x, out: aj.dot(x, x, out=out),
    "amax": lambda x, out: aj.amax(x, 0, out=out), "softmax": lambda x, out: aj.softmax(x, 0, out=out),
    "nan_to_num": aj.nan_to_num,
}  # fmt: skip
OF_OUT = {
    "sum": aj.sum,
    "prod": aj.prod,
    "mean": aj.mean,
    "nansum": aj.nansum,
    "cumsum": aj.cumsum,
    "cumprod": aj.cumprod,
}


@pytest.mark.parametrize("name", OWN_DTYPE)
def test_what_rounds_or_only_moves_writes_its_own_dtype_alone(name: str) -> None:
    x = aj.tensor([1.5, -2.0, 3.0])
    for dtype in FLOATS:
        OWN_DTYPE[name](x.to(dtype), out=aj.empty(0, dtype=dtype))
        for other in FLOATS:
            if other is not dtype:
                with pytest.raises(RuntimeError, match=f"have dtype {dtype.name}, but got {other.name}"):
                    OWN_DTYPE[name](x.to(dtype), out=aj.empty(0, dtype=other))


@pytest.mark.parametrize("name", OF_OUT)
def test_sums_are_computed_in_the_dtype_of_out_which_dtype_may_only_repeat(name: str) -> None:
    x, function = aj.tensor([1.0, 2.0, 3.0]), OF_OUT[name]
    for dtype in FLOATS:
        out = aj.empty(0, dtype=dtype)
        assert aj.equal(function(x, 0, out=out), function(x.to(dtype), 0)) and out.dtype is dtype
        for other in FLOATS:
            if other is not dtype:
                with pytest.raises(RuntimeError, match="Expected out tensor to have dtype"):
                    function(x, 0, dtype=other, out=out)


@pytest.mark.parametrize("function", [aj.all, aj.any])
def test_truth_goes_into_bools_and_bytes(function: Callable[..., Any]) -> None:
    x = aj.ones(2, 3)
    for dtype in (aj.bool, aj.uint8):
        assert function(x, 1, out=aj.empty(0, dtype=dtype)).tolist() == [True, True]
    with pytest.raises(RuntimeError, match="only supports bool tensor for result"):
        function(x, 1, out=aj.empty(0))


@pytest.mark.parametrize("function", [aj.all, aj.any])
@pytest.mark.parametrize("dim", [[], ()])
def test_truth_along_no_axis_is_that_of_each_element(function: Callable[..., Any], dim: Any) -> None:
    x = aj.tensor([[0.0, 2.0], [-1.0, 0.0]])
    for keepdim in (False, True):
        assert function(x, dim, keepdim).tolist() == [[False, True], [True, False]]
    assert aj.jit(lambda v: function(v, dim))(x).tolist() == [[False, True], [True, False]]


def test_a_factor_that_is_a_bool_is_for_sums_of_bools() -> None:
    yes, one = aj.tensor([True]), aj.ones(1)
    assert aj.add(yes, yes, alpha=True).tolist() == [True]
    for a, b in ((one, one), (1, 1), (one, yes), (yes, one)):
        with pytest.raises(RuntimeError, match="Boolean alpha"):
            aj.add(a, b, alpha=True)


def test_places_chosen_by_lists_take_their_own_dtype_and_slices_convert() -> None:
    x = aj.zeros(3, 2)
    whole = aj.ones(3, 2, dtype=aj.int64)
    x[:, 0] = whole[:, 0]
    x[x > 5] = aj.tensor(1)  # a number
    x[[0]] = 2
    assert x.tolist() == [[2.0, 2.0], [1.0, 0.0], [1.0, 0.0]]
    for key, value in (([0, 1], whole[0]), (x == x, whole.flatten())):
        with pytest.raises(RuntimeError, match="source and destination dtypes match"):
            x[key] = value


def test_what_no_tensor_can_be_is_refused_in_its_numbers() -> None:
    for extents in ((2**62, 4), (2**31, 2**31, 8)):
        with pytest.raises(RuntimeError, match="overflow"):
            aj.empty(extents)
        with pytest.raises(RuntimeError, match="overflow"):
            aj.empty(1).resize_(extents)
    with pytest.raises(RuntimeError, match="up to 64 dims"):
        aj.zeros([1] * 65)


def test_spreads_of_too_few_elements_warn() -> None:
    for function in (aj.var, aj.std, aj.var_mean, aj.std_mean):
        with pytest.warns(UserWarning, match=rf"{function.__name__}\(\): degrees of freedom is <= 0") as seen:
            function(aj.ones(2, 1), dim=1)
        assert len(seen) == 1


def test_memory_that_grows_has_the_format_that_is_asked_for() -> None:
    like = aj.ones(2, 3, 4, 5).contiguous(memory_format=aj.channels_last)
    for grown in (
        aj.empty(1).resize_(2, 3, 4, 5, memory_format=aj.channels_last),
        aj.empty(1).resize_as_(like, memory_format=aj.preserve_format),
    ):
        assert grown.stride() == like.stride()
    assert aj.ones(6)[::2].ravel().is_contiguous()


def test_what_a_dtype_does_not_hold_is_not_drawn() -> None:
    for refused in (
        lambda: aj.randperm(300, dtype=aj.uint8),
        lambda: aj.randint(0, 2**9, (2,), dtype=aj.uint8),
        lambda: aj.empty(2, dtype=aj.int8).random_(0, 200),
        lambda: aj.empty(2, dtype=aj.float16).uniform_(0, 1e5),
        lambda: aj.empty(2).uniform_(-3e38, 3e38),
        lambda: aj.full((2,), float("nan"), dtype=aj.int32),
    ):
        with pytest.raises(RuntimeError, match=r"out of bounds|greater than|exceed|to-from|overflow"):
            refused()
    assert int(aj.randperm(256, dtype=aj.uint8).long().sum()) == 255 * 128


def test_asarray_shares_memory_or_copies_as_it_is_told() -> None:
    buffer = bytearray(4)
    shared, copied = aj.asarray(memoryview(buffer), dtype=aj.uint8), aj.tensor(memoryview(buffer), dtype=aj.uint8)
    buffer[0] = 7
    assert shared[0] == 7 and copied[0] == 0
    for data in (3.0, [1, 2], aj.ones(2, dtype=aj.float64)):
        with pytest.raises(ValueError, match="can't alias"):
            aj.asarray(data, dtype=aj.float32, copy=False)


def test_bytes_are_seen_as_another_dtype_without_a_copy_or_not_at_all() -> None:
    x = aj.ones(2, 4)
    assert x.view(aj.int16).data_ptr() == x.data_ptr()
    for dtype in (aj.float32, aj.int32):
        assert not x.clone().requires_grad_().view(dtype).requires_grad
    for apart in (x.t(), x[:, ::2]):
        with pytest.raises(RuntimeError, match=r"stride\(-1\) must be 1"):
            apart.view(aj.float64)
    for shifted, what in ((aj.ones(5)[1:], "storage_offset"), (aj.ones(2, 3)[:, :2], "stride")):
        with pytest.raises(RuntimeError, match=rf"{what}\(0?\) must be divisible by 2"):
            shifted.view(aj.float64)
    assert x.t().view(aj.int32).shape == (4, 2)  # of one size, in any order


BYTES = {
    "whole": lambda x: x, "transposed": lambda x: x.t(), "every other column": lambda x: x[:, ::2],
    "from the second row": lambda x: x[1:], "from the second column": lambda x: x[:, 1:], "columns": lambda x: x[:, :2],
    "odd rows": lambda x: x[::2, 2:], "computed, transposed": lambda x: (x * 1).t(), "one row": lambda x: x[1, 1:3],
    "flat": lambda x: x.reshape(-1)[1:], "expanded": lambda x: x[0].expand(3, 4), "no rows": lambda x: x[:0, 1:],
}  # fmt: skip


@pytest.mark.parametrize("of", BYTES)
def test_a_step_sees_bytes_as_another_dtype_where_eager_mode_does(of: str) -> None:
    """And through them the same memory: a write to the bytes is seen in the tensor."""

    def outcome(dtype: aj.dtype, run: Any) -> Any:
        def written(x: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
            y = x.clone()
            found = BYTES[of](y).view(dtype)
            if of != "expanded":
                found.zero_()
            return found.clone(), y

        try:
            return [t.tolist() for t in run(written)(aj.arange(16.0).reshape(4, 4))]
        except RuntimeError as error:
            return str(error).splitlines()[0]

    for dtype in (aj.int32, aj.float64, aj.int16):
        assert outcome(dtype, aj.jit) == outcome(dtype, lambda f: f), dtype
