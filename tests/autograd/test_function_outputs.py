"""What a custom function may return and change: inputs as they are, views, dirty and repeated tensors, and others."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.autograd import Function, gradcheck, gradgradcheck
from autojit.autograd.function import FunctionCtx, InplaceFunction, once_differentiable
from tests.autograd.modes import Mode


def leaf(*values: float) -> aj.Tensor:
    return aj.tensor(values, dtype=aj.float64, requires_grad=True)


def made(forward: Callable[..., Any], backward: Callable[..., Any], **extra: Any) -> Any:
    """A function from its two methods."""
    return type("My", (Function,), {"forward": staticmethod(forward), "backward": staticmethod(backward), **extra})


def same(ctx: Any, *bars: Any) -> Any:
    return bars[0] if len(bars) == 1 else bars


IDENTITY = made(lambda ctx, x: x, lambda ctx, bar: bar * 2)


def doubled_in_place(ctx: Any, x: aj.Tensor) -> aj.Tensor:
    ctx.mark_dirty(x)
    return x.mul_(2)


DOUBLE = made(doubled_in_place, lambda ctx, bar: bar * 2)


@pytest.mark.parametrize("shape", [(), (3,)])
def test_an_input_returned_as_it_is_gets_the_functions_backward(mode: Mode, shape: tuple[int, ...]) -> None:
    run = mode(lambda x: aj.autograd.grad(IDENTITY.apply(x).sum(), x)[0])
    result = mode(IDENTITY.apply)
    for _ in range(3):
        x = aj.ones(shape, requires_grad=True)
        assert aj.equal(run(x), aj.full(shape, 2.0))
        y = result(x)
        assert y is not x
        assert type(y.grad_fn).__name__ in ("MyBackward", "CompiledCallBackward0")
        y.sum().backward()
        assert aj.equal(x.grad, aj.full(shape, 2.0))
        x.grad = None
        result(x * 1).sum().backward()
        assert aj.equal(x.grad, aj.full(shape, 2.0))


def test_a_view_made_in_forward_has_the_functions_backward(mode: Mode) -> None:
    column = made(lambda ctx, x: x.view(2, 1), lambda ctx, bar: bar.view(2) * 5)
    run = mode(lambda x: column.apply(x))
    for _ in range(3):
        x = leaf(1.0, 2.0)
        run(x).sum().backward()
        np.testing.assert_array_equal(x.grad.numpy(), [5.0, 5.0])


def test_writing_to_such_views_is_refused() -> None:
    x = leaf(1.0, 2.0) * 1
    for function in (IDENTITY, made(lambda ctx, x: x[:1], same)):
        y = function.apply(x)
        with pytest.raises(RuntimeError, match="created inside a custom Function"):
            y.add_(1)
        with pytest.raises(RuntimeError, match="created inside a custom Function"):
            y.view(-1).mul_(2)
    several = made(lambda ctx, x: (x[:1], x * 2), lambda ctx, a, b: b * 2)
    with pytest.raises(RuntimeError, match="function that returns multiple views"):
        several.apply(x)[0].add_(1)
    y = IDENTITY.apply(x)
    x.add_(1)
    with pytest.raises(RuntimeError, match="its base or another view of its base has been modified inplace"):
        _ = y.grad_fn


def test_a_view_of_a_new_tensor_may_be_changed_inside_forward() -> None:
    def forward(ctx: Any, x: aj.Tensor, is_changed: bool) -> aj.Tensor:
        view = x.clone()[:3]
        if is_changed:
            view += 2
        return view

    local = made(forward, lambda ctx, bar: (aj.cat([bar, bar[:1]]), None))
    for is_changed in (False, True):
        y = local.apply(leaf(1.0, 2.0, 3.0, 4.0), is_changed)
        assert type(y.grad_fn).__name__ == "MyBackward"
        assert gradcheck(
            made(forward, lambda ctx, bar: (aj.cat([bar, bar[:1] * 0]), None)).apply, (leaf(1, 2, 3, 4), True)
        )


def test_a_dirty_input_is_rebased(mode: Mode) -> None:
    def run(x: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
        y = x * 3
        version = y._version
        z = DOUBLE.apply(y)
        assert z is y
        assert y._version > version
        assert type(y.grad_fn).__name__ == "MyBackward"
        return aj.autograd.grad((y**2).sum(), x)[0], y.detach()

    function = mode(run)
    for _ in range(3):
        grad, y = function(leaf(1.0, -2.0))
        np.testing.assert_array_equal(y.numpy(), [6.0, -12.0])
        np.testing.assert_array_equal(grad.numpy(), [72.0, -144.0])


def test_a_dirty_view_rebases_its_base(mode: Mode) -> None:
    def run(x: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
        y = x * 3
        z = DOUBLE.apply(y[:1])
        assert type(y.grad_fn).__name__ == "CopySlices"
        return aj.autograd.grad((y**2).sum() + z.sum(), x)[0], y.detach()

    function = mode(run)
    for _ in range(3):
        grad, y = function(leaf(1.0, -2.0))
        np.testing.assert_array_equal(y.numpy(), [6.0, -6.0])
        np.testing.assert_array_equal(grad.numpy(), [78.0, -36.0])


def test_dirty_tensors_that_do_not_fit_are_errors() -> None:
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad has been used in an in-place"):
        DOUBLE.apply(leaf(1.0))
    with pytest.raises(RuntimeError, match="a view of a leaf Variable that requires grad"):
        DOUBLE.apply(leaf(1.0, 2.0)[:1])

    def not_returned(ctx: Any, x: aj.Tensor) -> aj.Tensor:
        ctx.mark_dirty(x)
        return x * 3

    def no_input(ctx: Any, x: aj.Tensor) -> aj.Tensor:
        y = x * 3
        ctx.mark_dirty(y)
        return y

    def number(ctx: Any, x: aj.Tensor) -> aj.Tensor:
        ctx.mark_dirty(3)
        return x * 3

    def two(ctx: Any, x: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
        ctx.mark_dirty(x)
        return x.mul_(2), x + 1

    def constant(ctx: Any, x: aj.Tensor) -> aj.Tensor:
        ctx.mark_non_differentiable(None)
        return x * 3

    x = leaf(1.0, 2.0) * 1
    with pytest.raises(RuntimeError, match="marked as dirty during the forward method were not returned"):
        made(not_returned, same).apply(x)
    with pytest.warns(UserWarning, match="was not an input"):
        made(no_input, same).apply(x)
    with pytest.raises(RuntimeError, match="mark_dirty can only accept variables, but argument 0 is of type int"):
        made(number, same).apply(x)
    with pytest.raises(RuntimeError, match="cannot return more than one Tensor"):
        made(two, same).apply(x[:1])
    with pytest.raises(RuntimeError, match="mark_non_differentiable only accepts variable arguments"):
        made(constant, same).apply(x)


def test_one_tensor_may_be_returned_twice(mode: Mode) -> None:
    def twice(ctx: Any, x: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
        y = x * 2
        return y, y

    def twice_dirty(ctx: Any, x: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
        ctx.mark_dirty(x)
        return x.mul_(2), x

    def backward(ctx: Any, a: aj.Tensor, b: aj.Tensor) -> aj.Tensor:
        return a * 2 + b * 2

    def total(function: Any) -> Callable[[aj.Tensor], aj.Tensor]:
        def run(x: aj.Tensor) -> aj.Tensor:
            a, b = function.apply(x.clone())
            assert a is b
            return a + b

        return mode(run)

    assert gradgradcheck(total(made(twice, backward)), leaf(1.0, 2.0))
    assert gradgradcheck(total(made(twice_dirty, backward)), leaf(1.0, 2.0))
    a, b = made(lambda ctx, x: (x, x), backward).apply(leaf(1.0))
    assert a is not b


def test_outputs_that_are_no_tensors_have_no_gradient(mode: Mode) -> None:
    def backward(ctx: Any, *bars: Any) -> aj.Tensor:
        assert [b is None for b in bars] == [True, False, True, True, True]
        return bars[1] * 2

    mixed = made(lambda ctx, x: (5, x * 2, "a", None, [x * 3]), backward)

    def run(x: aj.Tensor) -> Any:
        number, y, text, nothing, items = mixed.apply(x)
        assert (number, text, nothing, y.output_nr) == (5, "a", None, 1)
        assert items[0].grad_fn is None
        return aj.autograd.grad(y.sum(), x)[0]

    for _ in range(2):
        assert mode(run)(leaf(1.0)).item() == 2.0
    assert made(lambda ctx, x: None, same).apply(leaf(1.0)) is None


def test_no_gradient_flows_where_backward_returns_none(mode: Mode) -> None:
    nothing = made(lambda ctx, x: x * 2, lambda ctx, bar: None)

    def run(x: aj.Tensor) -> Any:
        nothing.apply(x).backward()
        nothing.apply(x**2).backward()
        return aj.autograd.grad(nothing.apply(x), x, allow_unused=True)

    for _ in range(2):
        x = leaf(1.0)
        assert mode(run)(x) == (None,)
        assert x.grad is None


def test_gradients_are_brought_to_the_inputs_type_or_refused() -> None:
    def gradient(x: aj.Tensor, grad: aj.Tensor) -> aj.Tensor:
        made(lambda ctx, x: x * 2, lambda ctx, bar: grad).apply(x).sum().abs().backward()
        return x.grad

    x = aj.ones(2, requires_grad=True)
    assert gradient(x, aj.ones(3, 2)).tolist() == [3.0, 3.0]
    x.grad = None
    assert gradient(x, aj.ones(2, dtype=aj.float64)).dtype is aj.float32
    x.grad = None
    assert gradient(x, aj.ones(2, dtype=aj.int64)).dtype is aj.float32
    z = aj.ones(2, dtype=aj.complex64, requires_grad=True)
    assert gradient(z, aj.ones(2)).dtype is aj.complex64
    for bad in (aj.ones(3), aj.ones(1)):
        with pytest.raises(
            RuntimeError, match=r"returned an invalid gradient at index 0 - got \[\d\] but expected shape"
        ):
            gradient(x, bad)
    with pytest.raises(RuntimeError, match="expected a real gradient for a real input"):
        gradient(x, aj.ones(2, dtype=aj.complex64))
    with pytest.raises(RuntimeError, match=r"expected Variable or None \(got float\)"):
        gradient(x, 1.0)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match=r"expected Variable or None \(got list\)"):
        gradient(x, [aj.ones(2)])  # type: ignore[arg-type]


def test_materialised_and_missing_cotangents(mode: Mode) -> None:
    seen: list[Any] = []

    def forward(ctx: Any, x: aj.Tensor, materialize: bool) -> tuple[aj.Tensor, ...]:
        ctx.set_materialize_grads(materialize)
        mask = x > 0
        ctx.mark_non_differentiable(mask)
        return x * 2, x * 3, mask

    def backward(ctx: Any, *bars: Any) -> tuple[Any, None]:
        seen.append([b is None for b in bars])
        return bars[0], None

    function = made(forward, backward)
    for materialize, expected in ((True, [False, False, False]), (False, [False, True, True])):
        seen.clear()
        mode(lambda x, m=materialize: function.apply(x, m)[0].sum().backward())(leaf(1.0))
        assert seen == [expected]


def test_saved_tensors_of_every_kind(mode: Mode) -> None:
    def forward(ctx: Any, x: aj.Tensor, w: aj.Tensor) -> aj.Tensor:
        middle = x + 1
        y = x * w
        ctx.save_for_backward(x, None, middle, y, w)
        assert ctx.saved_tensors == ()
        return y

    def backward(ctx: Any, bar: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
        x, nothing, middle, y, w = ctx.saved_tensors
        assert nothing is None
        assert not middle.requires_grad
        assert y.grad_fn is ctx
        assert x.requires_grad
        assert x.is_leaf
        return bar * w, bar * x

    function = made(forward, backward)
    assert gradgradcheck(mode(function.apply), (leaf(1.0, 2.0), leaf(3.0, 4.0)))
    with pytest.raises(TypeError, match="save_for_backward can only save variables, but argument 1 is of type int"):
        made(lambda ctx, x: (ctx.save_for_backward(x, 1), x * 2)[1], same).apply(leaf(1.0))
    y = function.apply(leaf(1.0), leaf(2.0))
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    nothing_saved = made(lambda ctx, x: x * 2, same).apply(leaf(1.0))
    nothing_saved.sum().backward()
    with pytest.raises(RuntimeError, match="a second time"):
        _ = nothing_saved.grad_fn.saved_tensors
    nothing_saved.sum().backward()


def test_tensors_recorded_inside_forward_lose_that_history(mode: Mode) -> None:
    def forward(ctx: Any, x: aj.Tensor) -> aj.Tensor:
        with aj.enable_grad():
            detached = x.detach().requires_grad_()
            y = (detached * 2).exp()
        ctx.inner = (detached, y)
        return y

    def backward(ctx: Any, bar: aj.Tensor) -> aj.Tensor:
        assert ctx.inner[1].requires_grad
        return bar * 7

    run = mode(lambda x: aj.autograd.grad(made(forward, backward).apply(x).sum(), x)[0])
    for _ in range(2):
        assert run(leaf(1.0)).item() == 7.0
    with aj.no_grad():
        assert not made(forward, backward).apply(leaf(1.0)).requires_grad


def test_functions_nest_and_backward_may_call_backward(mode: Mode) -> None:
    class Reentrant(Function):
        @staticmethod
        def forward(ctx: Any, x: aj.Tensor) -> aj.Tensor:
            with aj.enable_grad():
                ctx.x = x.detach().requires_grad_()
                ctx.y = IDENTITY.apply(ctx.x * ctx.x)
            return ctx.y.detach()

        @staticmethod
        def backward(ctx: Any, bar: aj.Tensor) -> aj.Tensor:
            with aj.enable_grad():
                ctx.y.backward(bar)
            return ctx.x.grad

    run = mode(lambda x: aj.autograd.grad(Reentrant.apply(x).sum(), x)[0])
    for _ in range(3):
        np.testing.assert_array_equal(run(leaf(1.0, 3.0)).numpy(), [4.0, 12.0])


def test_once_differentiable_results_cannot_be_differentiated(mode: Mode) -> None:
    class Once(Function):
        @staticmethod
        def forward(ctx: Any, x: aj.Tensor, k: int, y: aj.Tensor) -> aj.Tensor:
            ctx.save_for_backward(x, y)
            return x * y * k

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, bar: aj.Tensor) -> tuple[Any, ...]:
            assert not aj.is_grad_enabled()
            x, y = ctx.saved_tensors
            return bar * y, None, bar * x

    def run(x: aj.Tensor, y: aj.Tensor, twice: bool) -> aj.Tensor:
        (grad,) = aj.autograd.grad((Once.apply(x, 1, y) ** 2).sum(), x, create_graph=True)
        assert type(grad.grad_fn).__name__ == "Error"
        names = [None if n is None else type(n).__name__ for n, _ in grad.grad_fn.next_functions]
        assert names == ["AccumulateGrad", None, "AccumulateGrad"]
        if twice:
            grad.sum().backward()
        return grad.detach()

    assert mode(run)(leaf(1.0), leaf(3.0), False).item() == 18.0
    with pytest.raises(RuntimeError, match="marked with @once_differentiable"):
        mode(run)(leaf(1.0), leaf(3.0), True)


def test_the_node_shows_ctx_attributes_and_torch_names() -> None:
    class Exp(Function):
        @staticmethod
        def forward(ctx: Any, x: aj.Tensor) -> aj.Tensor:
            ctx.note = "kept"
            ctx.save_for_backward(x)
            return x.exp()

        backward = staticmethod(same)

    x = leaf(1.0)
    node = Exp.apply(x).grad_fn
    assert type(node).__name__ == node.name() == "ExpBackward"
    assert isinstance(node, Exp._backward_cls)
    assert isinstance(node, FunctionCtx)
    assert node.note == "kept"
    assert node.saved_tensors[0] is x
    assert node.needs_input_grad == (True,)
    assert node.metadata == {}
    assert "ExpBackward" in repr(Exp.apply(x))
    assert aj.equal(node.apply(x), x)
    with pytest.raises(AttributeError):
        _ = node.missing


def test_calling_conventions_that_are_no_more() -> None:
    class Legacy(Function):
        def forward(self, x: aj.Tensor) -> aj.Tensor:  # type: ignore[override]
            return x

        def backward(self, bar: aj.Tensor) -> aj.Tensor:  # type: ignore[override]
            return bar

    class Bare(Function):
        pass

    class Both(Function):
        forward = staticmethod(lambda ctx, x: x * 2)
        backward = staticmethod(same)
        vjp = staticmethod(same)

    class Vjp(Function):
        forward = staticmethod(lambda ctx, x: x * 2)
        vjp = staticmethod(lambda ctx, bar: bar * 2)

    with pytest.raises(RuntimeError, match="Legacy autograd function with non-static forward method is deprecated"):
        Legacy()(aj.ones(2))
    with pytest.raises(NotImplementedError, match="You must implement the forward function"):
        Bare.apply(leaf(1.0))
    with pytest.raises(RuntimeError, match="Implementing both 'backward' and 'vjp'"):
        Both.apply(leaf(1.0)).sum().backward()
    assert gradcheck(Vjp.apply, leaf(1.0))
    for attribute in ("saved_tensors", "next_functions", "register_hook", "name"):
        with pytest.raises(RuntimeError, match=f"Attribute '{attribute}' is invalid"):
            getattr(Vjp(), attribute)
    with pytest.raises(AttributeError):
        _ = Vjp().missing
    assert InplaceFunction(True).inplace


def test_history_of_custom_functions_is_freed_without_the_collector() -> None:
    def forward(ctx: Any, x: aj.Tensor) -> aj.Tensor:
        y = x.exp()
        ctx.save_for_backward(x, y)
        return y

    exp = made(forward, lambda ctx, bar: bar * ctx.saved_tensors[1])
    x = leaf(1.0)
    gc.disable()
    try:
        for create_graph in (False, True):
            y = exp.apply(x)
            node = weakref.ref(y.grad_fn)
            grads = aj.autograd.grad(y.sum(), x, create_graph=create_graph)
            del y, grads
            assert node() is None
    finally:
        gc.enable()


def test_long_chains_of_custom_functions_are_freed_without_recursion() -> None:
    add = made(lambda ctx, x, y: x + y, lambda ctx, bar: (bar, bar))
    y = leaf(1.0) * 1
    for _ in range(20_000):
        y = add.apply(y, y)
    del y


def test_a_view_whose_base_was_changed_before_is_an_input_like_any_other(mode: Mode) -> None:
    def gradient(x: aj.Tensor, part: Callable[..., Any]) -> Any:
        base = x.clone()
        view = part(base)
        base.add_(1.0)
        return aj.autograd.grad(IDENTITY.apply(view).sum(), x)[0]

    for part in (lambda t: t[:1], lambda t: t.reshape(-1)[1:], lambda t: t.view(-1)):
        run = mode(gradient)
        for _ in range(3):
            x = leaf(1.0, 2.0)
            expected = aj.autograd.grad(part(x * 2).sum(), x)[0]
            assert aj.equal(run(x, part), expected)
