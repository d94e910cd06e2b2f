"""Saved tensors as objects, read once only, and without keeping their own call alive."""

from __future__ import annotations

import weakref

import pytest

import autojit as aj
from autojit import _C
from autojit.autograd import Function
from autojit.autograd.graph import disable_saved_tensors_hooks, saved_tensors_hooks
from autojit.nn import functional
from tests.autograd.modes import Mode


def test_a_saved_operand_is_the_tensor_itself_and_a_saved_result_a_detached_one() -> None:
    x = aj.tensor(2.0, requires_grad=True)
    y = (x * x).exp()
    operand, result = (x * x).grad_fn._raw_saved_self, y.grad_fn._raw_saved_result
    assert operand.data is x and operand.unpack() is x and operand.unpack_hook is None
    assert result.data is not y and result.data.grad_fn is None
    assert result.unpack().grad_fn is y.grad_fn


def test_a_packed_tensor_shows_what_the_pack_hook_returned() -> None:
    x = aj.tensor(2.0, requires_grad=True)

    def back(what: tuple[str, aj.Tensor]) -> aj.Tensor:
        return what[1]

    with saved_tensors_hooks(lambda t: ("kept", t), back):
        saved = (x**2).grad_fn._raw_saved_self
    assert saved.data == ("kept", x)
    assert saved.unpack_hook is back
    assert saved.unpack().requires_grad


def test_freed_tensors_cannot_be_looked_at() -> None:
    x = aj.tensor(2.0, requires_grad=True)
    y = x.exp()
    saved = y.grad_fn._raw_saved_result
    y.backward()
    assert saved.data is None
    with pytest.raises(RuntimeError, match="freed"):
        saved.unpack()


def test_nothing_saved_unpacks_to_none() -> None:
    class Nothing(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x, None)
            return x.clone()

        @staticmethod
        def backward(ctx, y_bar):
            return y_bar

    x = aj.ones(2, requires_grad=True)
    first, second = Nothing.apply(x).grad_fn._raw_saved_tensors
    assert first.unpack() is x
    assert second.data is None and second.unpack() is None


def test_a_tensor_is_saved_by_hand_through_the_active_hooks() -> None:
    x = aj.tensor([1.0, 2.0], requires_grad=True)
    counts = [0, 0]

    def pack(t):
        counts[0] += 1
        return t * 2

    def unpack(t):
        counts[1] += 1
        return t / 2

    with saved_tensors_hooks(pack, unpack):
        saved = _C._autograd._make_saved_tensor(x, is_output=False)
    assert counts == [1, 0]
    assert saved.unpack().tolist() == [1.0, 2.0] and counts == [1, 1]
    y = x * 1
    saved = _C._autograd._make_saved_tensor(y, is_output=False)
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        saved.unpack()
    with pytest.raises(TypeError, match="incompatible function arguments"):
        _C._autograd._make_saved_tensor(None, is_output=False)


def test_whether_hooks_may_be_entered_is_known() -> None:
    enabled = _C._autograd._saved_tensors_hooks_is_enabled
    assert enabled()
    with disable_saved_tensors_hooks("no"):
        assert not enabled()
    assert enabled()


def test_tensors_read_once_are_let_go_of(mode: Mode) -> None:
    class Once(Function):
        clear_saved_tensors_on_access = True

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx, y_bar):
            (x,) = ctx.saved_tensors
            reference = weakref.ref(x)
            found = y_bar * x.cos()
            del x
            alive.append(reference() is not None)
            return found

    def gradient(x):
        (found,) = aj.autograd.grad(Once.apply(x * 1).sum(), x)
        return found

    alive = []
    x = aj.tensor([0.5, 1.0], requires_grad=True)
    run = mode(gradient)
    for _ in range(3):
        assert aj.allclose(run(x), x.cos())
    if mode.name == "eager":
        assert not any(alive)


def test_reading_twice_is_an_error_when_one_read_was_promised() -> None:
    class Twice(Function):
        clear_saved_tensors_on_access = True

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.clone()

        @staticmethod
        def backward(ctx, y_bar):
            assert len(ctx.saved_tensors) == 1
            return y_bar + ctx.saved_tensors[0]

    with pytest.raises(RuntimeError, match="can only be accessed once"):
        Twice.apply(aj.ones(2, requires_grad=True)).sum().backward()


def test_a_function_that_saves_the_view_it_changed_is_no_cycle() -> None:
    class Double(Function):
        @staticmethod
        def forward(ctx, x):
            x.mul_(2)
            ctx.mark_dirty(x)
            ctx.save_for_backward(x)
            return x

        @staticmethod
        def backward(ctx, y_bar):
            (x,) = ctx.saved_tensors
            seen.append(x.tolist())
            return y_bar * 2

    def scope():
        x = (leaf * 1).view_as(leaf)
        Double.apply(x)
        return weakref.ref(x)

    seen = []
    leaf = aj.tensor([1.0, 3.0], requires_grad=True)
    assert scope()() is None
    x = (leaf * 1).view_as(leaf)
    Double.apply(x).sum().backward()
    assert seen == [[2.0, 6.0]]
    assert leaf.grad.tolist() == [2.0, 2.0]


def test_unpacked_tensors_without_history_are_what_the_hook_returned() -> None:
    x, y = aj.ones(2, requires_grad=True), aj.ones(2)
    other = aj.zeros(2)
    with saved_tensors_hooks(lambda t: t, lambda t: other):
        z = x * y
    assert z.grad_fn._saved_other is other


def test_a_node_knows_the_extents_of_its_operands() -> None:
    x = aj.ones(2, 3, requires_grad=True)
    assert x.mean().grad_fn._saved_self_sym_sizes == (2, 3)
    assert (x * aj.ones(3)).grad_fn._saved_other_sym_sizes == (3,)
    assert x.sum(0).grad_fn._saved_self_sym_argsize_minus_1 == 3
    with pytest.raises(AttributeError):
        _ = x.mean().grad_fn._saved_weight_sym_sizes
    batch = aj.ones(4, 2, 3, requires_grad=True)
    node = aj.addbmm(aj.ones(2, 5), batch, aj.ones(4, 3, 5)).grad_fn
    assert node.name() == "AddbmmBackward0"
    assert (node._saved_batch1_sym_argsize_0, node._saved_batch1_sym_argsize_1) == (4, 2)


def test_nodes_of_network_functions_show_what_they_were_called_with() -> None:
    image = aj.ones(1, 1, 3, 4, requires_grad=True)
    node = functional.unfold(image, 3).grad_fn
    assert (node.name(), node._saved_self_sym_argsize_minus_2, node._saved_self_sym_argsize_minus_1) == (
        "Im2ColBackward0", 3, 4,
    )  # fmt: skip
    kernel = aj.ones(2, 1, 3, 3)
    for bias, extents in ((aj.ones(2), (2,)), (None, (0,))):
        node = functional.conv2d(image, kernel, bias).grad_fn
        assert (node.name(), node._saved_bias_sym_sizes_opt) == ("ConvolutionBackward0", extents)
    signal = aj.ones(1, 1, 4, requires_grad=True)
    assert functional.interpolate(signal, scale_factor=0.5, mode="linear").grad_fn._saved_scales == 0.5
