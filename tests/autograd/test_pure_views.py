"""Views that leave custom functions: pure views, views marked as changed, and the tangents of views."""

from __future__ import annotations

import pytest

import autojit as aj
from autojit.autograd import Function, forward_ad
from tests.autograd.modes import Mode


class Head(Function):
    """The first two elements; ``pure`` says that it is to count as an ordinary view."""

    calls = 0

    @staticmethod
    def forward(ctx, x, pure):
        ctx._is_pure_view = pure
        ctx.n = x.shape[0]
        return x.narrow(0, 0, 2)

    @staticmethod
    def backward(ctx, y_bar):
        Head.calls += 1
        return aj.cat([y_bar, aj.zeros(ctx.n - 2)]), None


def test_writing_to_a_pure_view_replaces_its_node_by_the_view(mode: Mode) -> None:
    def gradient(x):
        base = x * 1
        head = Head.apply(base, True)
        head.mul_(3)
        (found,) = aj.autograd.grad((base * base).sum(), x)
        return found

    x = aj.tensor([1.0, 2.0, 3.0], requires_grad=True)
    before = Head.calls
    run = mode(gradient)
    for _ in range(3):
        assert run(x).tolist() == [18.0, 36.0, 6.0]
    assert Head.calls == before


def test_writing_to_a_view_of_a_pure_view_replaces_its_node_too() -> None:
    x = aj.tensor([1.0, 2.0, 3.0], requires_grad=True)
    base = x * 1
    head = Head.apply(base, True)
    before = Head.calls
    head[0].mul_(5)
    (found,) = aj.autograd.grad(base.sum(), x)
    assert found.tolist() == [5.0, 1.0, 1.0]
    assert Head.calls == before


def test_a_pure_view_that_is_not_written_to_keeps_its_own_backward() -> None:
    x = aj.ones(3, requires_grad=True)
    before = Head.calls
    Head.apply(x * 1, True).sum().backward()
    assert Head.calls == before + 1
    assert x.grad.tolist() == [1.0, 1.0, 0.0]


def test_other_views_of_functions_are_not_written_to() -> None:
    x = aj.ones(3, requires_grad=True)
    view = Head.apply(x * 1, False)
    with pytest.raises(RuntimeError, match="Output 0 of Head is a view and is being modified inplace") as caught:
        view.add_(1)
    assert "Output 0 of HeadBackward is a view and is being modified inplace. This view was created" in str(
        caught.value
    )


@pytest.mark.parametrize("outputs", [1, 2])
def test_a_pure_view_has_one_tensor_in_and_one_out(outputs: int) -> None:
    class Several(Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx._is_pure_view = True
            return x.clone() if outputs == 1 else (x.clone(), 1)

    other = aj.ones(2) if outputs == 1 else 3
    with pytest.raises(RuntimeError, match="can only have one input Tensor and one output Tensor"):
        Several.apply(aj.ones(2, requires_grad=True), other)


class Increment(Function):
    @staticmethod
    def forward(ctx, x):
        x.add_(1)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, y_bar):
        return y_bar


def test_changing_one_of_several_views_is_refused_before_the_leaf_is_looked_at() -> None:
    first, _ = aj.ones(2, requires_grad=True).split([1, 1])
    with pytest.raises(RuntimeError, match="function that returns multiple views"):
        Increment.apply(first)
    x = aj.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="a view of a leaf Variable that requires grad"):
        Increment.apply(x.view(2))


def test_marking_a_view_of_a_tensor_of_its_own_is_an_error() -> None:
    class Own(Function):
        @staticmethod
        def forward(ctx, x):
            made = x.clone().view_as(x)
            ctx.mark_dirty(made)
            return made

    with pytest.raises(RuntimeError, match="received a tensor that was not an input"):
        Own.apply(aj.ones(1, requires_grad=True) * 1)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("view", None),
        ("copy", "jvp is not returning a view"),
        ("view of a copy", "jvp is not returning a view of the given"),
        ("view of a copy, for a view", "jvp is not returning a view of the same base"),
    ],
)
def test_the_tangent_of_a_view_is_the_view_of_the_tangent(how: str, message: str | None) -> None:
    class Start(Function):
        @staticmethod
        def forward(ctx, x):
            return x.narrow(0, 0, 2)

        @staticmethod
        def jvp(ctx, x_dot):
            head = x_dot.narrow(0, 0, 2)
            if how == "view":
                return head
            return head.clone() if how == "copy" else head.clone().view(2)

    with forward_ad.dual_level():
        x = forward_ad.make_dual(aj.ones(3), aj.tensor([1.0, 2.0, 3.0]))
        if how.endswith("for a view"):
            x = x.view_as(x)
        if message is not None:
            with pytest.raises(RuntimeError, match=message):
                Start.apply(x)
            return
        assert forward_ad.unpack_dual(Start.apply(x)).tangent.tolist() == [1.0, 2.0]


def test_jvp_sees_only_what_was_saved_for_it() -> None:
    class Saves(Function):
        @staticmethod
        def forward(ctx, x, for_forward):
            ctx.save_for_backward(x)
            if for_forward:
                ctx.save_for_forward(x, x)
            return x.clone()

        @staticmethod
        def backward(ctx, y_bar):
            seen.append(len(ctx.saved_tensors))
            return y_bar, None

        @staticmethod
        def jvp(ctx, x_dot, _):
            seen.append(len(ctx.saved_tensors))
            return x_dot

    seen = []
    x = aj.ones(2, requires_grad=True)
    with forward_ad.dual_level():
        for flag in (False, True):
            Saves.apply(forward_ad.make_dual(x, aj.ones(2)), flag).sum().backward()
    assert seen == [0, 1, 2, 1]


def test_a_view_that_may_not_be_used_any_more_is_printed_as_invalid() -> None:
    x = aj.ones(1, requires_grad=True, device="cpu")
    with aj.no_grad():
        view = x[:]
        assert repr(view) == "tensor([1.])"
        view.mul_(2)
    assert repr(view) == "tensor([2.], grad_fn=<Invalid>)"
    with pytest.raises(RuntimeError, match="created in no_grad mode"):
        view + 1


def test_a_view_made_without_gradients_counts_as_requiring_them_in_a_function() -> None:
    class Asks(Function):
        @staticmethod
        def forward(ctx, x):
            asked.append(ctx.needs_input_grad)
            return x * 2

        @staticmethod
        def backward(ctx, y_bar):
            return y_bar * 2

    asked = []
    base = aj.ones(3, requires_grad=True) * 1
    with aj.no_grad():
        view = base[:2]
    y = Asks.apply(view)
    assert asked == [(True,)] and y.requires_grad
    assert y.grad_fn.next_functions == ((None, 0),)
    with pytest.raises(RuntimeError, match="created in no_grad mode"):
        Increment.apply(view)
