"""Views, aliases and writes through them: eager and compiled agree, orders one and two; which writes are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.autograd import Function, grad, gradcheck, gradgradcheck
from tests.autograd.modes import Mode


def ramp(*shape: int) -> aj.Tensor:
    return aj.arange(float(np.prod(shape)), dtype=aj.float64).reshape(*shape) + 1


WEIGHTS = ramp(12).numpy()


def weighted(y: aj.Tensor) -> aj.Tensor:
    """A sum of squares in which every element counts differently."""
    return (y.reshape(-1) ** 2 * aj.tensor(WEIGHTS[: y.numel()])).sum()


def strided(x: aj.Tensor) -> Any:
    y = x.clone().as_strided((3, 3), (2, 1), 1)
    return (y * y).sum(), y


def strided_write(x: aj.Tensor) -> Any:
    y = x.clone()
    y.as_strided((3, 2), (4, 1), 1).mul_(3)
    return weighted(y), y


def strided_view_of_a_view(x: aj.Tensor) -> Any:
    y = x.clone()
    z = y[1:].as_strided((2, 2), (4, 1), 0)  # the first two elements are not shown by y[1:]
    return weighted(z), z


def parts_of_complex(x: aj.Tensor) -> Any:
    z = aj.complex(x, x * 2)
    z.real.mul_(3)
    z.imag.add_(x.detach())
    return (z * z.conj()).real.sum(), z.real


def complex_as_real(x: aj.Tensor) -> Any:
    z = aj.complex(x, x * 2)
    pairs = aj.view_as_real(z)
    pairs[..., 1] = pairs[..., 0] * 2
    return (z * z.conj()).real.sum(), pairs


def real_as_complex(x: aj.Tensor) -> Any:
    y = x.clone().reshape(3, 2, 2)
    aj.view_as_complex(y).mul_(2j)
    return weighted(y), y


def other_dtype(x: aj.Tensor) -> Any:
    y = x.clone()
    y.view(aj.int64)[0] = 0
    return (y * y).sum(), y


def unbound(x: aj.Tensor) -> Any:
    a, b, c = x.unbind()
    return (a * b).sum() + c.prod(), a


def split_and_chunked(x: aj.Tensor) -> Any:
    a, b = x.split([1, 2])
    c, d = x.chunk(2, 1)
    return (a * b).sum() + (c * d).sum(), b


def transposed_in_place(x: aj.Tensor) -> Any:
    y = x.clone()
    flat = y.view(12)
    y.t_()
    flat.mul_(2)
    return weighted(flat) + weighted(y), y


def shape_changed_in_place(x: aj.Tensor) -> Any:
    y = x.clone()
    y.unsqueeze_(0).mul_(2)
    y.squeeze_(0)
    y.swapdims_(0, 1)
    return weighted(y), y


def filled(x: aj.Tensor) -> Any:
    y = x.clone()
    y[1].fill_(7.0)
    y[:, 0].zero_()
    return (y * y).sum(), y


def filled_where_memory_is_shared(x: aj.Tensor) -> Any:
    y = x[0, :1].clone()
    y.expand(3).fill_(2.0)
    return (y * x.sum()).sum(), y


def copied_between_dtypes(x: aj.Tensor) -> Any:
    y = aj.zeros(3, 4, dtype=aj.float32)
    y.copy_(x)
    y[0].copy_(x[1])
    return (y * y).sum(), y


def put_by_position(x: aj.Tensor) -> Any:
    y = x.clone()
    y.put_(aj.tensor([1, 2, -1]), x[0, :3] * 2)
    y.put_(aj.tensor([5, 5]), x[0, :2], accumulate=True)
    return (y * y).sum(), y


def every_kind_of_subscript(x: aj.Tensor) -> Any:
    y = x.clone()
    y[0] = x[1]
    y[..., 1] = 5.0
    y[[0, 2], [1, 3]] = x[0, :2]
    y[1:, None, 2] = x[0, 0]
    y[x > 11] = 0.0
    return (y * y).sum(), y


def scattered(x: aj.Tensor) -> Any:
    a = aj.select_scatter(x, x[0] * 2, 0, 1)
    b = aj.slice_scatter(x, x[:1], 0, 2, 3)
    c = aj.diagonal_scatter(x, x[0, :3])
    d = aj.as_strided_scatter(x, x[0], (4,), (2,), 1)
    return (a * b * c * d).sum(), d


def overlapping_slices(x: aj.Tensor) -> Any:
    y = x.clone()
    y[1:] = y[:-1]
    return weighted(y), y


def written_through_detach(x: aj.Tensor) -> Any:
    y = x * 2
    y.detach().add_(1)
    return (y * x).sum(), y


def chain_of_views(x: aj.Tensor) -> Any:
    y = x.clone()
    row = y.view(4, 3)[1:].t()[0]
    row.mul_(row.detach() + 1)
    return (y * y).sum(), row


def two_views(x: aj.Tensor) -> Any:
    y = x.clone()
    rows, columns = y[0], y[:, 0]
    rows.mul_(2)
    columns.add_(rows[1])
    return (y * y).sum(), columns


CASES = [
    strided, strided_write, strided_view_of_a_view, parts_of_complex, complex_as_real, real_as_complex, other_dtype,
    unbound, split_and_chunked, transposed_in_place, shape_changed_in_place, filled, filled_where_memory_is_shared,
    copied_between_dtypes, put_by_position, every_kind_of_subscript, scattered, overlapping_slices,
    written_through_detach, chain_of_views, two_views,
]  # fmt: skip
SMOOTH = [c for c in CASES if c not in (other_dtype, copied_between_dtypes, every_kind_of_subscript)]
DETACHED = (strided_view_of_a_view, parts_of_complex, written_through_detach, chain_of_views)


def step_of(case: Callable[[aj.Tensor], Any]) -> Callable[[aj.Tensor], Any]:
    """Value, gradient and a gradient of the gradient."""

    def step(x: aj.Tensor) -> Any:
        loss, shown = case(x)
        (x_bar,) = grad(loss, x, create_graph=True)
        (second,) = grad((x_bar * x_bar).sum(), x, allow_unused=True, materialize_grads=True)
        return loss.detach(), shown.detach(), x_bar.detach(), second

    return step


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.__name__)
def test_compiled_views_and_writes_give_what_eager_gives(case: Callable[[aj.Tensor], Any]) -> None:
    compiled = aj.jit(step_of(case))
    for _ in range(3):
        x = (ramp(3, 4) / 3).requires_grad_()
        for eager, found in zip(step_of(case)(x), compiled(x), strict=True):
            np.testing.assert_allclose(found.numpy(), eager.numpy(), rtol=1e-12)


@pytest.mark.parametrize("case", [c for c in SMOOTH if c not in DETACHED], ids=lambda c: c.__name__)
def test_gradients_through_views_are_right(case: Callable[[aj.Tensor], Any]) -> None:
    x = (ramp(3, 4) / 7).requires_grad_()
    assert gradcheck(lambda x: case(x)[0], x)
    assert gradgradcheck(lambda x: case(x)[0], x)


@pytest.mark.parametrize(
    ("size", "stride", "offset"),
    [((3, 3), (6, 2), 2), ((1, 2, 1, 5), (0, 5, 100, 1), 2), ((3, 3, 3), (0, 1, 0), 2), ((6, 3), (3, 1), 2)],
)
def test_as_strided_adds_the_gradients_of_elements_shown_twice(
    size: tuple[int, ...], stride: tuple[int, ...], offset: int
) -> None:
    x = aj.linspace(-1, 1, 25, dtype=aj.float64).requires_grad_()
    assert gradcheck(lambda x: x.as_strided(size, stride, offset), x)
    assert gradgradcheck(lambda x: x.as_strided(size, stride, offset), x)


def test_as_strided_stays_within_the_storage() -> None:
    with pytest.raises(RuntimeError, match="out of bounds for storage of size 48"):
        aj.arange(12, dtype=aj.int32).as_strided((5, 5), (4, 1))


def test_view_as_another_dtype_shares_bytes_and_version() -> None:
    x = aj.ones(2, 2)
    bits = x.view(aj.int32)
    bits[0, 0] = 0
    assert x.tolist() == [[0.0, 1.0], [1.0, 1.0]]
    assert x._version == bits._version == 1
    assert not bits._is_view()
    assert x.double().view(aj.float32).shape == (2, 4)
    with pytest.raises(RuntimeError, match="must be divisible by 2"):
        aj.ones(3).view(aj.float64)


# -- which writes are refused


def made(how: str, base: aj.Tensor) -> aj.Tensor:
    class Alias(Function):
        @staticmethod
        def forward(ctx: Any, x: aj.Tensor) -> aj.Tensor:
            return x.view_as(x)

        @staticmethod
        def backward(ctx: Any, y_bar: aj.Tensor) -> aj.Tensor:
            return y_bar

    return {
        "plain": lambda: base.view_as(base),
        "several": lambda: base.unbind()[1],
        "custom": lambda: Alias.apply(base),
    }[how]()


REFUSED = {
    "several": "Output 1 of .* is a view and is being modified inplace. .* function that returns multiple views",
    "custom": "view was created inside a custom Function",
}


@pytest.mark.parametrize("requires_grad", [True, False])
@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize("how", ["plain", "several", "custom"])
def test_writes_to_views_follow_where_the_view_was_made(how: str, recorded: bool, requires_grad: bool) -> None:
    base = aj.rand(2, 3, requires_grad=requires_grad).clone()
    with aj.set_grad_enabled(recorded):
        view = made(how, base)
    message = None
    if requires_grad:
        message = REFUSED.get(how) if recorded else "A view was created in no_grad mode and is being modified inplace"
    if message is None:
        view.add_(1)
        return
    with pytest.raises(RuntimeError, match=message):
        view.add_(1)
    with pytest.raises(RuntimeError, match=message):
        view.unsqueeze_(0)
    with aj.no_grad():
        view.unsqueeze_(0)  # nothing is recorded, so nothing is refused; the view stays what it was
    with pytest.raises(RuntimeError, match=message):
        view.add_(1)


def test_a_write_of_something_differentiable_makes_the_difference() -> None:
    v = aj.rand(1, requires_grad=True)
    piece = aj.rand(1, 2).unbind()[0]
    piece.add_(1)
    with pytest.raises(RuntimeError, match="function that returns multiple views"):
        piece.copy_(v)
    base = aj.rand(1, 2)
    base.select(1, 0).copy_(v)
    assert base.requires_grad


def test_views_made_one_by_one_may_be_written() -> None:
    x = aj.rand(4, 4, requires_grad=True).clone()
    for piece in (*x.tensor_split(2), *x.hsplit(2), x[0], x.narrow(0, 1, 2)):
        piece.add_(1)
    assert x._version == 6


def test_the_history_of_a_forbidden_view_is_refused_after_its_base_changed() -> None:
    x = aj.rand(2, 2, requires_grad=True).clone()
    with aj.no_grad():
        view = x[0]
    pieces = x.unbind()
    x.mul_(2)
    with pytest.raises(RuntimeError, match="its base or another view of its base has been modified inplace"):
        _ = view.grad_fn
    with pytest.raises(RuntimeError, match="its base or another view of its base has been modified inplace"):
        _ = pieces[0].grad_fn


def test_an_unrecorded_view_says_what_its_base_requires() -> None:
    x = aj.rand(2, requires_grad=True).clone()
    with aj.no_grad():
        view = x.view_as(x)
    assert (view.requires_grad, view.is_leaf, view.grad_fn) == (True, True, None)
    assert (view * view).requires_grad
    plain = aj.rand(2)
    early = plain[:]
    plain.requires_grad_()
    assert early.requires_grad
    with pytest.raises(RuntimeError, match="a view of a leaf Variable that requires grad"):
        early.add_(1)


def test_detaching_a_base_leaves_its_views_attached() -> None:
    x = aj.rand(4, requires_grad=True).clone()
    view = x[:2]
    x.detach_()
    assert not x.requires_grad
    assert view.requires_grad
    assert view.grad_fn is not None
    assert view._base is x
    with pytest.raises(RuntimeError, match="Can't detach views in-place"):
        view.detach_()


def test_nodes_of_views_have_torchs_names_and_edges() -> None:
    x = aj.rand(2, 3, 4, requires_grad=True)
    names = {
        "Select": (x[0], x.select(0, 1), x[..., 0], x[1, :]),
        "Slice": (x[1:], x[0, 1:], x.narrow(0, 0, 1), x[:], x.tensor_split(2)[1]),
        "Unsqueeze": (x[:, None], x.unsqueeze(1), x[None]),
        "Alias": (x[...],),
        "Transpose": (x.transpose(0, 1), x.swapdims(0, 1), x.mT),
        "T": (x[0].t(),),
        "Permute": (x.permute(1, 0, 2), x.T, x.movedim(0, 1)),
        "View": (x.view(-1), x.reshape(-1), x.flatten(), x.unflatten(1, (3, 1)), x.view_as(x)),
        "Expand": (x.expand(5, 2, 3, 4), x.expand_as(x)),
        "Diagonal": (x.diagonal(),),
        "Unfold": (x.unfold(0, 2, 1),),
        "AsStrided": (x.as_strided((2,), (1,)),),
        "Unbind": x.unbind(),
        "Split": (*x.split(1), *x.chunk(2)),
        "SplitWithSizes": x.split([1, 1]),
    }
    for name, views in names.items():
        for view in views:
            assert view._is_view()
            assert type(view.grad_fn).__name__ == f"{name}Backward0"
    outputs = x.unbind()
    assert [y.output_nr for y in outputs] == [0, 1]
    assert outputs[0].grad_fn is outputs[1].grad_fn
    assert len(x[0, 1:].grad_fn.next_functions) == 1


def test_elements_that_share_memory_cannot_be_changed_apart(mode: Mode) -> None:
    def write(x: aj.Tensor) -> aj.Tensor:
        return (x * 1).expand(3).add_(1)

    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor refers to a single memory"):
        mode(write)(aj.ones(1))


def test_a_view_may_be_made_a_leaf_and_is_protected_as_one(mode: Mode) -> None:
    x = aj.arange(4.0).reshape(2, 2).requires_grad_()
    assert (x._is_view(), x.is_leaf) == (True, True)
    for write in (lambda x: x.add_(1), lambda x: x[0].mul_(2)):
        with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
            mode(write)(x)
    with aj.no_grad():
        x.add_(1)
    (x * 2).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[2.0, 2.0], [2.0, 2.0]]


def test_numbers_drawn_in_place_cut_the_gradient_of_the_old_ones(mode: Mode) -> None:
    def step(x: aj.Tensor, fill: str) -> aj.Tensor:
        y = x * 2
        getattr(y, fill)()
        return aj.autograd.grad((y * x).sum() - (y.detach() * x).sum(), x)[0]

    run = mode(step)
    for fill in ("uniform_", "normal_", "bernoulli_", "exponential_", "random_", "zero_"):
        for _ in range(2):
            assert run(aj.ones(3, requires_grad=True), fill).abs().max().item() == 0.0
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        aj.ones(3, requires_grad=True).uniform_()


def test_the_only_piece_is_a_view_too_and_leaves_the_leaf_a_leaf(mode: Mode) -> None:
    for cut in (lambda x: x.split(1), lambda x: x.chunk(1), lambda x: x.split_with_sizes([1]), lambda x: x.unbind(0)):
        x = aj.ones(1, 3, requires_grad=True)
        (piece,) = cut(x)
        assert piece is not x
        assert x.is_leaf
        assert piece._base is x
        run = mode(lambda x, cut: aj.autograd.grad((cut(x)[0] * 2).sum(), x)[0])
        for _ in range(3):
            assert run(x, cut).tolist() == [[2.0] * 3]
        assert x.is_leaf


def test_an_unrecorded_view_of_what_requires_gradients_can_be_asked_for_its_own() -> None:
    x = aj.ones(2, 3, requires_grad=True)
    with aj.no_grad():
        view = x[:1]
    view.retain_grad()
    with pytest.raises(RuntimeError, match="appears to not have been used in the graph"):
        aj.autograd.grad(view.sum(), view)
    assert aj.autograd.grad(view.sum(), view, allow_unused=True) == (None,)
    (piece,) = view.unbind(0)
    assert type(piece.grad_fn).__name__ == "UnbindBackward0"
    piece.sum().backward()
    assert x.grad is None
    assert view.grad is None
