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
    "unpaired axes": (lambda: aj.ones(2, 3).movedim((0, 1), (0,)), "Invalid source or destination dims"),
}


@pytest.mark.parametrize(("asked", "said"), REFUSED.values(), ids=REFUSED)
def test_refusals_say_what_torch_says(asked: Callable[[], Any], said: str) -> None:
    with pytest.raises((RuntimeError, IndexError), match=said):
        asked()


@pytest.mark.parametrize("line", [lambda out: aj.arange(4.0, out=out), lambda out: aj.linspace(0, 3, 4, out=out)])
def test_lines_fill_a_place_of_as_many_elements(line: Callable[..., Any]) -> None:
    table = aj.zeros(2, 3)
    line(table.narrow(1, 1, 2))
    assert table.tolist() == [[0, 0, 1], [0, 2, 3]]


def test_a_size_by_name_leaves_the_bound_by_place() -> None:
    assert aj.randint(1, size=(2, 3)).tolist() == [[0] * 3] * 2
    assert aj.block_diag().shape == (1, 0)


def test_asarray_has_the_history_it_is_asked_for() -> None:
    leaf = aj.ones(2, requires_grad=True)
    apart = aj.asarray(leaf, requires_grad=False)
    assert aj.asarray(leaf) is leaf and not apart.requires_grad and apart.data_ptr() == leaf.data_ptr()
    assert aj.asarray(leaf * 2, requires_grad=True).grad_fn is not None
    assert aj.asarray(X.__dlpack__()).data_ptr() == X.data_ptr()
