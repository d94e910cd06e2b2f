"""Views made a second time, by what was kept of the first, are the views that were made the first time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit import Tensor
from autojit.dispatch import view_memo
from tests.autograd.test_recorded_rules import history

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


KEYS: tuple[Any, ...] = (
    0, slice(1, 3), (slice(None), 1), (..., None, 2), slice(None), ..., (1, 2), slice(None, None, 2),
)  # fmt: skip


@pytest.mark.parametrize("key", KEYS, ids=str)
@pytest.mark.parametrize("with_history", [False, True])
def test_a_part_is_written_the_same_way_however_often(
    key: Any, with_history: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view_memo, "_WAYS", {})
    found: list[Any] = []
    for _ in range(4):
        x = aj.arange(12.0).reshape(3, 4).requires_grad_(with_history)
        value = aj.full(tuple(x[key].shape), 7.0).requires_grad_(with_history)
        y = x * 2
        before = y._version
        y[key] = value
        y[key] = 3
        y[key] = value * value
        gradients = aj.autograd.grad((y * y).sum(), [x, value]) if with_history else ()
        behind = history(y) if with_history else []
        found.append((y.tolist(), y._version - before, [g.tolist() for g in gradients], behind))
    assert found[1:] == found[:-1]
    expected = np.arange(12.0).reshape(3, 4) * 2
    expected[key] = 49
    assert found[0][0] == expected.tolist()
    assert found[0][1] == 3


PIECES: dict[str, Callable[[aj.Tensor], tuple[aj.Tensor, ...]]] = {
    "chunk": lambda x: x.chunk(2, 1),
    "one chunk": lambda x: x.chunk(1),
    "split": lambda x: x.split(2),
    "split with sizes": lambda x: x.split([1, 3], 1),
    "unbind": lambda x: x.unbind(0),
    "unbind columns": lambda x: x.unbind(-1),
}


@pytest.mark.parametrize("name", PIECES)
@pytest.mark.parametrize("mode", ["plain", "grad", "no grad", "a view", "a transpose"])
def test_pieces_are_the_same_however_often(name: str, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view_memo, "_WAYS", {})
    found: list[Any] = []
    for _ in range(4):
        x = aj.arange(16.0).reshape(4, 4).requires_grad_(mode != "plain")
        operand = (x * 1)[:3] if mode == "a view" else (x * 1).t() if mode == "a transpose" else x
        with aj.set_grad_enabled(mode != "no grad"):
            pieces = PIECES[name](operand)
        said = []
        try:
            pieces[0].add_(1)
        except RuntimeError as error:
            said.append(str(error).splitlines()[0])
        facts = [(p.tolist(), p.stride(), p.output_nr, p._base is operand._base or p._base is operand) for p in pieces]
        behind = [history(p) for p in pieces]
        fresh = PIECES[name](operand.detach().requires_grad_(mode != "plain"))
        slopes = [p.square().sum() for p in fresh if p.requires_grad]
        found.append((facts, behind, said, [s.item() for s in slopes]))
    assert found[1:] == found[:-1]


BY_NUMBER: dict[str, Callable[[Tensor, Any], Any]] = {
    "squeeze": lambda x, n: x.squeeze(n),
    "squeeze several": lambda x, n: x.squeeze((n,)),
    "unsqueeze": lambda x, n: x.unsqueeze(n),
    "transpose": lambda x, n: x.transpose(n, 2),
    "permute": lambda x, n: x.permute(0, n, 2),
    "permute several": lambda x, n: x.permute((0, n, 2)),
    "select": lambda x, n: x.select(n, 0),
    "flatten": lambda x, n: x.flatten(n),
    "view": lambda x, n: x.view(n, 6),
    "reshape": lambda x, n: x.reshape((n, -1)),
    "expand": lambda x, n: x.expand(2, n, 3),
    "index": lambda x, n: x[n],
    "index of several axes": lambda x, n: x[n, 0],
    "unbind": lambda x, n: x.unbind(n)[0],
    "chunk": lambda x, n: x.chunk(n)[0],
    "split": lambda x, n: x.split(n)[0],
    "diagonal": lambda x, n: x.diagonal(n),
    "unfold": lambda x, n: x.unfold(n, 1, 1),
    "narrow": lambda x, n: x.narrow(0, n, 1),
}


@pytest.mark.parametrize("other", [True, 1.0, np.float64(1)], ids=["a truth value", "a float", "NumPy's float"])
@pytest.mark.parametrize("name", BY_NUMBER)
def test_what_equals_a_number_is_not_taken_for_it(name: str, other: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a view has been made by the number before makes no difference to what is refused."""

    def outcome() -> Any:
        try:
            return tuple(BY_NUMBER[name](aj.zeros(2, 1, 3), other).shape)
        except (TypeError, RuntimeError, IndexError) as error:
            return type(error)

    monkeypatch.setattr(view_memo, "_WAYS", {})
    expected = outcome()
    for _ in range(3):
        BY_NUMBER[name](aj.zeros(2, 1, 3), 1)
    assert outcome() == expected
    assert outcome() == expected


def test_pieces_by_a_truth_value_are_not_those_by_a_number() -> None:
    x = aj.arange(4.0)
    for _ in range(2):
        assert len(x.split(1)) == 4
    with pytest.raises((TypeError, RuntimeError)):
        x.split(1.0)  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (1, 1), (1, 4), (4, 1)])
def test_pieces_of_few_elements(shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view_memo, "_WAYS", {})
    for _ in range(3):
        x = aj.zeros(shape)
        for axis in (0, 1):
            assert [tuple(p.shape) for p in x.unbind(axis)] == [(shape[1 - axis],)] * shape[axis]
            assert sum(p.numel() for p in x.split(1, axis)) == x.numel()
