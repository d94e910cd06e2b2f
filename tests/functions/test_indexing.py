"""Subscripts agree with NumPy, for reading and for writing, and their derivatives with finite differences.

One difference is torch's: an integer next to index tensors selects first, it does not take part in their broadcasting.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj

SHAPE = (3, 4, 5)
ROWS = np.array([2, 0, 2])

SUBSCRIPTS: dict[str, Any] = {
    "integer": 1,
    "negative": -1,
    "slice": slice(1, None),
    "steps": (slice(None), slice(None, None, 2)),
    "new axis": (None, slice(None), 1),
    "ellipsis": (..., 1),
    "mixed": (1, slice(2, None), -1),
    "list": [0, 2],
    "pairs": ([0, 2], [1, 1]),
    "middle": (slice(None), [0, 0, 3]),
    "separated": ([0, 1], slice(None), [2, 3]),
    "after slice": (slice(None), slice(1, None), [1, 2]),
    "broadcast": (ROWS[:, None], ROWS),
    "mask": np.arange(60).reshape(SHAPE) % 3 == 0,
    "row mask": np.array([True, False, True]),
    "empty": (slice(2, 1),),
    "no index": [],
    "all": ...,
}


def as_numpy(index: Any) -> Any:
    """The subscript with an empty list as NumPy wants it."""
    return np.array([], dtype=np.int64) if isinstance(index, list) and not index else index


def ramp() -> np.ndarray[Any, Any]:
    return np.arange(60.0).reshape(SHAPE) / 7


@pytest.mark.parametrize("name", SUBSCRIPTS)
def test_reading_agrees_with_numpy(name: str) -> None:
    index = SUBSCRIPTS[name]
    plain = as_numpy(index)
    np.testing.assert_array_equal(aj.tensor(ramp())[index].numpy(), ramp()[plain])


@pytest.mark.parametrize("name", SUBSCRIPTS)
def test_writing_agrees_with_numpy(name: str) -> None:
    index = SUBSCRIPTS[name]
    plain = as_numpy(index)
    expected, found = ramp(), aj.tensor(ramp())
    value = -np.arange(expected[plain].size).reshape(expected[plain].shape) - 1.0
    expected[plain] = value
    found[index] = aj.tensor(value)
    np.testing.assert_array_equal(found.numpy(), expected)


@pytest.mark.parametrize("name", SUBSCRIPTS)
def test_both_have_right_derivatives(name: str) -> None:
    index = SUBSCRIPTS[name]
    x = aj.tensor(ramp(), requires_grad=True)

    def read_and_write(x: aj.Tensor) -> aj.Tensor:
        y = x * x
        piece = y[index].clone()
        y[index] = piece * piece
        return y

    (gradient,) = aj.autograd.grad(read_and_write(x).sum(), x)
    base = ramp()
    expected = 2 * base
    plain = as_numpy(index)
    expected[plain] = 4 * base[plain] ** 3  # x -> x**4 where indexed
    if name in ("middle", "broadcast"):  # equal places: which write wins is unspecified
        assert aj.autograd.gradcheck(lambda x: x[index], x)
    else:
        np.testing.assert_allclose(gradient.numpy(), expected, rtol=1e-12)


def test_basic_subscripts_are_views_and_advanced_ones_copies() -> None:
    x = aj.zeros(3, 4)
    x[1][2:] = 5.0
    x[[0, 1]].fill_(9.0)
    np.testing.assert_array_equal(x.numpy(), [[0, 0, 0, 0], [0, 0, 5, 5], [0, 0, 0, 0]])


def test_an_integer_selects_before_index_tensors_apply() -> None:
    x = aj.tensor(ramp())
    np.testing.assert_array_equal(x[0, :, [1, 2]].numpy(), ramp()[0][:, [1, 2]])


BAD: dict[str, tuple[Callable[[aj.Tensor], Any], type[Exception]]] = {
    "out of range": (lambda x: x[3], IndexError),
    "too many": (lambda x: x[0, 0, 0, 0], IndexError),
    "float": (lambda x: x[1.5], IndexError),
    "two ellipses": (lambda x: x[..., 0, ...], IndexError),
    "negative step": (lambda x: x[::-1], ValueError),
    "wrong mask": (lambda x: x[aj.tensor([True, False])], IndexError),
    "index too large": (lambda x: x[[0, 3]], IndexError),
    "value does not fit": (lambda x: x.__setitem__(0, aj.zeros(7)), RuntimeError),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_subscripts_raise_what_torch_raises(name: str) -> None:
    attempt, error = BAD[name]
    with pytest.raises(error):
        attempt(aj.tensor(ramp()))


@pytest.mark.parametrize(
    "index", [[slice(None), [1, 0]], [[0, 1], [1, 2]], [aj.tensor([0, 1]), Ellipsis], [None], [(0, 1), slice(1, 3)]]
)
def test_a_list_that_holds_more_than_numbers_means_a_tuple(index: list[Any]) -> None:
    x = aj.arange(12.0).view(3, 4)
    y = x.clone()
    with pytest.warns(UserWarning, match=r"use x\[tuple\(seq\)\]"):
        found = x[index]
    assert aj.equal(found, x[tuple(index)])
    with pytest.warns(UserWarning, match=r"use x\[tuple\(seq\)\]"):
        y[index] = 7.0
    assert (y[tuple(index)] == 7).all()
    assert aj.equal(x[[0, 2]], x[aj.tensor([0, 2])])  # numbers alone are an index array


def test_the_forms_of_unique_with_all_results_leave_those_not_asked_for_empty() -> None:
    x = aj.tensor([3.0, 1.0, 3.0], requires_grad=True)
    values, inverse = aj._unique(x, sorted=True, return_inverse=True)
    assert (values.tolist(), inverse.tolist()) == ([1.0, 3.0], [1, 0, 1])
    values, inverse, counts = aj._unique2(x, return_counts=True)
    assert (values.tolist(), inverse.tolist(), counts.tolist()) == ([1.0, 3.0], [], [1, 2])
    assert values.requires_grad and not counts.requires_grad
    assert [t.tolist() for t in aj._VF.unique_dim(x, 0)] == [[1.0, 3.0], [1, 0, 1], [1, 2]]


STRICT: dict[str, Callable[[aj.Tensor, aj.Tensor], aj.Tensor]] = {
    "index_select": lambda x, i: x.index_select(1, i),
    "embedding": lambda x, i: aj.nn.functional.embedding(i, x),
    "embedding_bag": lambda x, i: aj.nn.functional.embedding_bag(i.reshape(1, -1), x),
    "gather": lambda x, i: x.gather(0, i.reshape(1, -1)),
    "scatter": lambda x, i: x.scatter(0, i.reshape(1, -1), 1.0),
    "scatter_add_": lambda x, i: x.clone().scatter_add_(0, i.reshape(1, -1), x[:1, :2]),
    "scatter_reduce": lambda x, i: x.scatter_reduce(0, i.reshape(1, -1), x[:1, :2], "amax"),
    "index_add": lambda x, i: x.index_add(0, i, x[:2]),
    "index_copy_": lambda x, i: x.clone().index_copy_(0, i, x[:2]),
    "index_reduce": lambda x, i: x.index_reduce(0, i, x[:2], "amax"),
}


@pytest.mark.parametrize("name", STRICT)
def test_only_subscripts_and_take_count_from_the_end(name: str) -> None:
    x = aj.arange(12.0).view(3, 4)
    run = aj.jit(STRICT[name])
    assert aj.equal(run(x, aj.tensor([1, 0])), STRICT[name](x, aj.tensor([1, 0])))
    for function in (STRICT[name], run):
        for index in ([-1, 0], [0, 7]):
            with pytest.raises(IndexError, match="out of bounds") as caught:
                function(x, aj.tensor(index))
            assert isinstance(caught.value, RuntimeError)
    assert aj.equal(x[aj.tensor([-1])], x[2:])
    assert x.take(aj.tensor([-1])).tolist() == [11.0]


def test_empty_slices_keep_the_steps_of_what_they_are_of() -> None:
    x = aj.zeros(2, 3, 4, 5)
    for empty in (x[:, 1:1], x[..., 2:2], x[1:1], x.narrow(2, 0, 0)):
        assert empty.stride() == x.stride() and empty.is_contiguous()
    assert x.mT[:, 1:1].stride() == (60, 20, 1, 5) and aj.zeros(3, 0, 2).stride() == (2, 2, 1)


def test_a_write_that_does_not_fit_names_the_shapes_before_the_dtypes() -> None:
    x = aj.arange(4)
    with pytest.raises(RuntimeError, match="shape mismatch"):
        x[x > -1] = aj.tensor([1.0, 2.0])
    with pytest.raises(RuntimeError, match="dtypes match"):
        x[x > -1] = aj.ones(4)


def test_rows_by_an_index_tensor_are_what_the_general_form_gives() -> None:
    for shape, index in (((5,), [4, 0, -1]), ((3, 4), [[2, 0], [1, 1]]), ((3, 0), [1]), ((2, 3), [])):
        x = aj.arange(float(np.prod(shape))).reshape(shape).requires_grad_()
        places = aj.tensor(index, dtype=aj.int64)
        rows, general = x[places], x[places, ...]
        assert aj.equal(rows, general) and rows.stride() == general.stride()
        nodes = [found.grad_fn for found in (rows, general)]
        assert [n.name() for n in nodes] == ["IndexBackward0"] * 2
        assert [n._saved_self_sym_sizes for n in nodes] == [shape] * 2
        assert [[aj.equal(i, places) for i in n._saved_indices] for n in nodes] == [[True]] * 2
        assert aj.equal(*[aj.autograd.grad((found * found).sum(), x)[0] for found in (rows, general)])
    for key in (aj.tensor([5]), aj.tensor([-6])):
        told = []
        for index in (key, (key, ...)):
            with pytest.raises(IndexError) as info:
                aj.zeros(5)[index]
            told.append(str(info.value).splitlines()[0])
        assert told[0] == told[1]
