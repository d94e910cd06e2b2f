"""Views made a second time, by what was kept of the first, are the views that were made the first time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import autojit as aj
from autojit import Tensor

VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "reshape": lambda x: x.reshape(6, 4),
    "reshape with -1": lambda x: x.reshape(-1),
    "view": lambda x: x.view(3, 8),
    "transpose": lambda x: x.transpose(0, 2),
    "permute": lambda x: x.permute(2, 0, 1),
    "unsqueeze": lambda x: x.unsqueeze(1),
    "squeeze": lambda x: x[:, :1].squeeze(1),
    "flatten": lambda x: x.flatten(1),
    "expand": lambda x: x.unsqueeze(0).expand(5, -1, -1, -1),
    "row": lambda x: x[1],
    "last row": lambda x: x[-1],
    "slice": lambda x: x[:, 1:3],
    "mixed": lambda x: x[0, ..., None, 1:],
    "whole": lambda x: x[...],
    "view of a view": lambda x: x[1].transpose(0, 1)[2],
}
views = pytest.mark.parametrize("view", VIEWS.values(), ids=list(VIEWS))


def leaf(requires_grad: bool = True) -> Tensor:
    return aj.tensor(np.arange(24.0).reshape(2, 3, 4), requires_grad=requires_grad)


@views
def test_the_second_view_is_like_the_first(view: Callable[[Tensor], Tensor]) -> None:
    x = leaf()
    first, second = view(x), view(x)
    assert second.shape == first.shape
    assert second.stride() == first.stride()
    assert second.dtype is first.dtype
    assert second._base is first._base is x
    assert type(second.grad_fn) is type(first.grad_fn)
    assert aj.equal(first, second)
    gradients = [aj.autograd.grad((y * y).sum(), x)[0] for y in (first, second)]
    assert aj.equal(gradients[0], gradients[1])


@pytest.mark.parametrize("name", [name for name in VIEWS if name != "expand"])
def test_what_is_written_through_it_reaches_the_base(name: str) -> None:
    x, view = leaf(requires_grad=False), VIEWS[name]
    expected = -view(leaf(requires_grad=False))
    view(x).mul_(-1.0)
    assert aj.equal(view(x), expected)
    assert x._version == 1


@views
def test_history_is_recorded_or_not_as_the_mode_says(view: Callable[[Tensor], Tensor]) -> None:
    x = leaf()
    for _ in range(2):
        with aj.no_grad():
            assert view(x).grad_fn is None
        assert view(x).grad_fn is not None
        assert view(leaf(requires_grad=False)).grad_fn is None
        with aj.inference_mode():
            assert view(leaf()).is_inference()


def test_the_layout_decides_between_view_and_copy() -> None:
    for _ in range(2):
        x = leaf(requires_grad=False)
        assert x.reshape(-1)._base is x
        turned = x.transpose(0, 2)
        assert turned.reshape(-1)._base is None
        with pytest.raises(RuntimeError, match="view size is not compatible"):
            turned.view(-1)


def test_an_index_out_of_range_is_refused_every_time() -> None:
    x = leaf()
    for _ in range(3):
        with pytest.raises(IndexError, match="out of bounds"):
            x[5]
        with pytest.raises(IndexError, match="Dimension out of range"):
            x.unsqueeze(7)


def test_tensors_and_lists_among_the_arguments_are_read_anew() -> None:
    x, start = leaf(requires_grad=False), aj.tensor(0)
    assert x.narrow(2, start, 2)[0, 0, 0] == 0
    start.add_(1)
    assert x.narrow(2, start, 2)[0, 0, 0] == 1
    assert x[:, :, int(start) :].shape == (2, 3, 3)
    for _ in range(2):
        assert x.reshape([4, 6]).shape == (4, 6)
        assert x.permute([1, 0, 2]).shape == (3, 2, 4)


def test_a_view_inside_a_captured_step_follows_its_base() -> None:
    def step(x: Tensor) -> Tensor:
        y = x * 2
        row = y[0]
        y[0].add_(1.0)
        return row + y.transpose(0, 1)[0].sum()

    x = leaf(requires_grad=False)
    expected = step(x)
    compiled = aj.jit(step)
    for _ in range(3):
        np.testing.assert_allclose(compiled(x).numpy(), expected.numpy())
