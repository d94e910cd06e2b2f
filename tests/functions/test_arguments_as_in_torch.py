"""Arguments mean what they mean in torch, types of numbers for dtypes among them, and refusals say what torch says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj

X = aj.ones(2)
ASKED: dict[str, Callable[[Any], Any]] = {
    "zeros": lambda kind: aj.zeros(2, dtype=kind),
    "tensor": lambda kind: aj.tensor([1, 0], dtype=kind),
    "arange": lambda kind: aj.arange(2, dtype=kind),
    "full": lambda kind: aj.full((2,), 1, dtype=kind),
    "zeros_like": lambda kind: aj.zeros_like(X, dtype=kind),
    "new_zeros": lambda kind: X.new_zeros(2, dtype=kind),
    "to": lambda kind: X.to(kind),
    "to by name": lambda kind: X.to(dtype=kind),
    "sum": lambda kind: aj.sum(X, dtype=kind),
    "sum of an axis": lambda kind: X.sum(0, dtype=kind),
    "cumsum": lambda kind: aj.cumsum(X, 0, dtype=kind),
    "in a step": lambda kind: aj.jit(lambda x: x.to(kind) + aj.zeros(2, dtype=kind))(X),
}
DTYPES = {bool: aj.bool, int: aj.int64, float: aj.float64, complex: aj.complex128}


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
@pytest.mark.parametrize("kind", DTYPES)
def test_types_of_numbers_are_dtypes(asked: Callable[[Any], Any], kind: type) -> None:
    assert asked(kind).dtype is asked(DTYPES[kind]).dtype is DTYPES[kind]


def test_modules_take_them_too() -> None:
    layer = aj.nn.Linear(2, 2, dtype=float)
    assert layer.weight.dtype is aj.float64
    assert aj.nn.Linear(2, 2).to(float).weight.dtype is aj.float64
    assert aj.finfo(float).eps == aj.finfo(aj.float64).eps and aj.can_cast(int, float)


def test_what_is_no_dtype_is_refused() -> None:
    with pytest.raises(TypeError, match="argument 'dtype' must be DType, not str"):
        aj.zeros(2, dtype="float32")


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "a vector's matrix transpose": (lambda: X.mT, "only supported on matrices"),
    "a vector's adjoint": (lambda: X.adjoint(), "only supported on matrices"),
    "H of a batch": (lambda: aj.ones(2, 3, 4).H, "only supported on matrices"),
    "an ambiguous extent": (lambda: aj.ones(0).view(-1, 0), "can be any value and is ambiguous"),
    "an index of nothing": (lambda: aj.empty(10, 0)[:, [0, 1]], "for dimension with size 0"),
    "pieces of a number": (lambda: aj.tensor(1.0).tensor_split(2), "at least a 1-dimensional tensor"),
    "places as floats": (lambda: aj.nonzero(X, out=aj.empty(0)), "to have dtype int64"),
    "a place as floats": (lambda: aj.tensor([1, 2]).add_(0.5), "result type Float can't be cast to .* type Long"),
    "positions as floats": (lambda: X.tensor_split(aj.tensor([1.0])), "dtype of long, but got Float"),
    "several axes of a product": (lambda: aj.ones(2, 2).prod((0, 1)), r"argument 'dim' \(position 2\) must be int"),
    "bytes that do not divide": (
        lambda: aj.ones(2, 3).view(aj.float64),
        r"size\(-1\) must be divisible by 2 to view Float",
    ),
    "buckets in a table": (lambda: aj.bucketize(X, aj.ones(2, 2)), "boundaries tensor must be 1 dimension"),
    "a number among lines": (lambda: aj.searchsorted(aj.ones(2, 2), 1), "can be a scalar only when"),
    "places into floats": (lambda: aj.searchsorted(X, X, out=aj.empty(2)), "to have dtype int64"),
    "a range that descends": (lambda: aj.histc(aj.tensor([1]), 4, 5, 1), "max must be larger than min"),
    "counts in another dtype": (lambda: aj.histogram(X, 1, out=(X.double(), X)), "to have dtype float32"),
    "a device beside a tensor": (lambda: aj.Tensor(X, device="cpu"), "takes no device beside a tensor"),
    "another device": (lambda: aj.Tensor([1.0], device="meta"), "expects device type: cpu but device type: meta"),
    "a range without end": (lambda: aj.arange(1.2e-38, 3.4e38), "invalid size, possible overflow"),
    "a block of three axes": (lambda: aj.block_diag(X, aj.ones(1, 1, 1)), "Input 1 has 3 dimensions"),
    "too many bytes": (lambda: aj.empty(2, 4, 2**29, 2**29), "Storage size calculation overflowed"),
    "too many bytes between": (lambda: aj.empty_strided((8, 8), (2**61, 1)), "Storage size calculation overflowed"),
    "too long steps": (lambda: aj.zeros(1).resize_(0, 4, 2**61), "Stride calculation overflowed"),
    "unpaired axes": (lambda: aj.ones(2, 3).movedim((0, 1), (0,)), "Invalid source or destination dims"),
}


@pytest.mark.parametrize(("asked", "said"), REFUSED.values(), ids=REFUSED)
def test_refusals_say_what_torch_says(asked: Callable[[], Any], said: str) -> None:
    with pytest.raises((RuntimeError, IndexError, TypeError), match=said):
        asked()


@pytest.mark.parametrize("line", [lambda out: aj.arange(4.0, out=out), lambda out: aj.linspace(0, 3, 4, out=out)])
def test_lines_fill_a_place_of_as_many_elements(line: Callable[..., Any]) -> None:
    table = aj.zeros(2, 3)
    line(table.narrow(1, 1, 2))
    assert table.tolist() == [[0, 0, 1], [0, 2, 3]]


def test_a_line_that_is_too_short_says_why_that_may_be() -> None:
    with pytest.warns(UserWarning, match="may occur as a result of rounding error"):
        assert aj.arange(3.0, out=aj.zeros(1, 2)).tolist() == [0, 1, 2]


@pytest.mark.parametrize("make", [aj.tensor, aj.as_tensor])
def test_lists_inside_of_themselves_are_refused(make: Callable[[Any], Any]) -> None:
    inside: list[Any] = [0]
    inside.append(inside)
    for given in (inside, [[1, 2], inside]):
        with pytest.raises(TypeError, match="self-referential lists"):
            make(given)


def test_factories_take_all_of_their_keywords_beside_out() -> None:
    out = aj.empty(0)
    assert aj.ones(2, out=out, layout=aj.strided, device="cpu", requires_grad=True) is out and out.requires_grad
    with pytest.raises(RuntimeError, match="does not match layout of out"):
        aj.zeros(2, out=aj.empty(0), layout=aj.sparse_coo)


def test_empty_vectors_are_joined_along_any_axis() -> None:
    assert aj.cat([aj.ones(0), aj.ones(0)], 1).shape == (0,)


def test_a_size_by_name_leaves_the_bound_by_place() -> None:
    assert aj.randint(1, size=(2, 3)).tolist() == [[0] * 3] * 2
    assert aj.block_diag().shape == (1, 0)


def test_asarray_has_the_history_it_is_asked_for() -> None:
    leaf = aj.ones(2, requires_grad=True)
    apart = aj.asarray(leaf, requires_grad=False)
    assert aj.asarray(leaf) is leaf and not apart.requires_grad and apart.data_ptr() == leaf.data_ptr()
    assert aj.asarray(leaf * 2, requires_grad=True).grad_fn is not None
    assert aj.asarray(X.__dlpack__()).data_ptr() == X.data_ptr()
