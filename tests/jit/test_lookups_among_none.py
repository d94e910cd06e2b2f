"""An index is refused in a step as in eager mode, also where a look-up has no elements, or picks among none.

Found by fuzzing (seed 93035900): what had no elements became a literal, and its indices were looked at no more; an axis
without places let every index pass, and gave whatever lay in memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj
from autojit.core.errors import AutojitError, IndexOutOfRangeError
from autojit.nn import functional as F

Look = Callable[[Any, Any, int, Any], Any]


def _along(index: Any, x: Any, dim: int, length: int) -> Any:
    """The indices for each line of ``x`` along ``dim``: of as many lines as it has."""
    shape = [length if a == dim else n for a, n in enumerate(x.shape)]
    return index.reshape([length if a == dim else 1 for a in range(x.dim())]).expand(shape)


def _rows(x: Any, dim: int, length: int) -> Any:
    return x.new_ones([length if a == dim else n for a, n in enumerate(x.shape)])


LOOKS: dict[str, Look] = {
    "index_select": lambda x, i, d, n: x.index_select(d, i),
    "gather": lambda x, i, d, n: x.gather(d, _along(i, x, d, n)),
    "one line gathered": lambda x, i, d, n: x.gather(d, i.reshape([n if a == d else 1 for a in range(x.dim())])),
    "take_along_dim": lambda x, i, d, n: aj.take_along_dim(x, _along(i, x, d, n), d),
    "take": lambda x, i, d, n: x.take(i),
    "subscript": lambda x, i, d, n: x[(slice(None),) * d + (i,)],
    "two subscripts": lambda x, i, d, n: x[i, aj.zeros(n, dtype=aj.int64)],
    "index_fill": lambda x, i, d, n: x.index_fill(d, i, 0.5),
    "index_add": lambda x, i, d, n: x.index_add(d, i, _rows(x, d, n)),
    "index_copy": lambda x, i, d, n: x.index_copy(d, i, _rows(x, d, n)),
    "index_reduce": lambda x, i, d, n: x.index_reduce(d, i, _rows(x, d, n), "prod"),
    "index_put": lambda x, i, d, n: x.index_put((i,), aj.tensor(1.0)),
    "put": lambda x, i, d, n: x.put(i, aj.ones(n)),
    "scatter": lambda x, i, d, n: x.scatter(d, _along(i, x, d, n), 1.0),
    "scatter_add": lambda x, i, d, n: x.scatter_add(d, _along(i, x, d, n), _rows(x, d, n)),
    "embedding": lambda x, i, d, n: F.embedding(i, x),
    "assigned": lambda x, i, d, n: _assigned(x, i, d),
    "in a branch": lambda x, i, d, n: aj.cond(i.sum() > -99, lambda x, i: x.index_select(d, i) * 2, _other(d), (x, i)),
}  # fmt: skip


def _assigned(x: Any, index: Any, dim: int) -> Any:
    made = x.clone()
    made[(slice(None),) * dim + (index,)] = 1.0
    return made


def _other(dim: int) -> Callable[[Any, Any], Any]:
    def other(x: Any, index: Any) -> Any:
        return x.sum(dim, keepdim=True).index_select(dim, index * 0)

    return other


def outcome(step: Callable[..., Any], *args: Any) -> str:
    """The shape of the result, or the first line of the refusal."""
    try:
        found = step(*args)
    except AutojitError as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return f"{tuple(found.shape)} {found.tolist()}"


SHAPES = [shape for shape in itertools.product((0, 1, 3), repeat=2) if 0 in shape]
INDICES: list[list[int]] = [[0], [7], [-1], [0, -4], []]


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_indices_are_refused_as_in_eager_mode_among_no_elements(look: Look) -> None:
    for shape, dim, index in itertools.product(SHAPES, (0, 1), INDICES):
        args = aj.zeros(shape), aj.tensor(index, dtype=aj.int64)

        def step(x: Any, i: Any, dim: int = dim) -> Any:
            return look(x, i, dim, i.shape[0])

        told = outcome(step, *args)
        assert outcome(aj.jit(step), *args) == told, (shape, dim, index)


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_so_they_are_where_a_step_counts_the_elements(look: Look) -> None:
    """Sizes that a step finds out as it runs are 0 without being known to be."""

    @aj.jit
    def step(x: Any, i: Any, keep: Any) -> Any:
        return look(x[keep], i, 0, i.shape[0]), look(x[:, keep], i, 0, i.shape[0])

    x = aj.arange(9.0).reshape(3, 3)
    for kept, index in itertools.product(([], [0], [0, 2]), ([0], [2], [-3])):
        keep = aj.tensor([k in kept for k in range(3)])
        args = x, aj.tensor(index), keep
        told = _both(step.__wrapped__, *args)
        assert _both(step, *args) == told, (kept, index)


def _both(step: Callable[..., Any], *args: Any) -> str:
    try:
        return str([found.tolist() for found in step(*args)])
    except AutojitError as error:
        return type(error).__name__


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_state_is_left_alone_by_a_step_that_is_refused_so(look: Look) -> None:
    total, index = aj.zeros(3), aj.tensor([7])

    @aj.jit
    def step(x: Any, i: Any) -> Any:
        total.add_(1)
        return look(x, i, 0, 1)

    with pytest.raises(IndexOutOfRangeError):
        step(aj.zeros(0, 3), index)
    assert total.tolist() == [0.0, 0.0, 0.0]


ONE_ALONG: dict[str, Callable[[Any], Any]] = {
    "a part": lambda x: x[:1],
    "a part in another shape": lambda x: x[:1].reshape(1, 3, 1)[:, :, 0],
    "spread": lambda x: x[:1].expand(3, 3),
    "spread and reordered": lambda x: (x[1:2] + 1).expand(3, 3).flip(0),
    "repeated": lambda x: x[:1].repeat(3, 1),
    "looked up": lambda x: x[aj.tensor([1])],
    "a sum": lambda x: x.sum(0, keepdim=True),
    "numbers": lambda x: x.new_ones(1, 3) * 2,
    "spread among others": lambda x: aj.cat([x[:1].expand(2, 3), x[1:]]),
    "turned": lambda x: x[:, :1].expand(3, 3).t(),
}


@pytest.mark.parametrize("made", ONE_ALONG.values(), ids=ONE_ALONG)
@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_what_is_one_element_along_an_axis_is_looked_up_all_the_same(look: Look, made: Callable[[Any], Any]) -> None:
    """Where every place shows the same element, nobody needs the place: it is checked even so."""
    step = aj.jit(lambda x, i: look(made(x), i, 0, 1))
    x = aj.arange(9.0).reshape(3, 3)
    for index in (0, 7, -7, 1):
        args = x, aj.tensor([index])
        assert _both(step, *args) == _both(step.__wrapped__, *args), index
