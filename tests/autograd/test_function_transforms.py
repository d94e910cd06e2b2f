"""Custom functions in forward mode and in batches: ``jvp``, ``vmap``, ``generate_vmap_rule``, eager and compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.autograd import Function, forward_ad
from autojit.dispatch.batch_layer import over_batch
from tests.autograd.modes import Mode


def leaf(*values: Any) -> aj.Tensor:
    return aj.tensor(values, dtype=aj.float64, requires_grad=True)


def made(forward: Callable[..., Any], jvp: Callable[..., Any], **extra: Any) -> Any:
    return type("My", (Function,), {"forward": staticmethod(forward), "jvp": staticmethod(jvp), **extra})


class Cube(Function):
    """x**3 * w and x**2; every derivative by hand."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: aj.Tensor, w: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
        square = x * x
        return x * square * w, square

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        ctx.save_for_backward(*inputs, output[1])
        ctx.save_for_forward(*inputs, output[1])

    @staticmethod
    def backward(ctx: Any, cube_bar: aj.Tensor, square_bar: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
        x, w, square = ctx.saved_tensors
        return cube_bar * 3 * square * w + 2 * x * square_bar, (cube_bar * x * square).sum()

    @staticmethod
    def jvp(ctx: Any, x_dot: aj.Tensor, w_dot: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
        x, w, square = ctx.saved_tensors
        return 3 * square * w * x_dot + x * square * w_dot, 2 * x * x_dot


def by_ops(x: aj.Tensor, w: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
    return x**3 * w, x**2


def pushed(function: Callable[..., Any], *inputs: Any, dual: tuple[int, ...] = (0,)) -> list[Any]:
    """(primal, tangent) of every result, for tangents full of 2, 3, ... at the inputs in ``dual``."""
    with forward_ad.dual_level():
        args = [
            forward_ad.make_dual(x, aj.full_like(x, k + 2.0)) if k in dual else x for k, x in enumerate(inputs)
        ]  # fmt: skip
        found = function(*args)
        results = found if isinstance(found, tuple) else (found,)
        return [tuple(forward_ad.unpack_dual(y)) if isinstance(y, aj.Tensor) else y for y in results]


def test_forward_mode_uses_the_users_jvp(mode: Mode) -> None:
    wrong_on_purpose = made(lambda ctx, x: x * 2, lambda ctx, x_dot: x_dot * 7)
    for function in (mode(wrong_on_purpose.apply), mode(lambda x: wrong_on_purpose.apply(x) * 1)):
        ((y, y_dot),) = pushed(function, aj.ones(2))
        assert y.tolist() == [2.0, 2.0]
        assert y_dot.tolist() == [14.0, 14.0]


def test_forward_mode_of_several_inputs_and_outputs(mode: Mode) -> None:
    x, w = aj.tensor([1.0, 2.0]), aj.tensor(3.0)
    for dual in ((0,), (1,), (0, 1)):
        for got, expected in zip(
            pushed(mode(Cube.apply), x, w, dual=dual), pushed(by_ops, x, w, dual=dual), strict=True
        ):  # fmt: skip
            assert aj.allclose(got[0], expected[0])
            assert aj.allclose(got[1], aj.zeros(2) if expected[1] is None else expected[1])


def test_forward_mode_inside_a_compiled_step() -> None:
    def tangent(x: aj.Tensor, x_dot: aj.Tensor, w: aj.Tensor) -> aj.Tensor:
        with forward_ad.dual_level():
            y, _ = Cube.apply(forward_ad.make_dual(x, x_dot), w)
            return forward_ad.unpack_dual(y).tangent

    step = aj.jit(tangent)
    x, w = aj.tensor([1.0, 2.0]), aj.tensor(3.0)
    for _ in range(3):
        assert aj.allclose(step(x, aj.ones(2), w), 9 * x * x)
    assert step.stats()["native_calls"] >= 1


def test_reverse_mode_of_tangents(mode: Mode) -> None:
    def run(x: aj.Tensor, w: aj.Tensor) -> aj.Tensor:
        with forward_ad.dual_level():
            y, _ = Cube.apply(forward_ad.make_dual(x, aj.ones_like(x)), w)
            return aj.autograd.grad(forward_ad.unpack_dual(y).tangent.sum(), x)[0]

    assert aj.allclose(mode(run)(leaf(1.0, 2.0), aj.tensor(3.0, dtype=aj.float64)), leaf(18.0, 36.0).detach())


def test_what_jvp_is_given_and_what_it_may_return() -> None:
    seen: list[Any] = []

    def jvp(ctx: Any, *x_dots: Any) -> Any:
        seen.append([None if t is None else t.tolist() for t in x_dots])
        return x_dots[0]

    def quiet(ctx: Any, x: aj.Tensor, y: Any) -> aj.Tensor:
        ctx.set_materialize_grads(False)
        return x * 2

    x = aj.ones(2)
    loud = made(lambda ctx, x, y: x * 2, jvp)
    pushed(loud.apply, x, aj.ones(2))
    pushed(loud.apply, x, 3)
    pushed(loud.apply, x, aj.ones(2, dtype=aj.int64))
    pushed(made(quiet, jvp).apply, x, aj.ones(2))
    tangent = [2.0, 2.0]
    assert seen == [[tangent, [0.0, 0.0]], [tangent, None], [tangent, None], [tangent, None]]
    seen.clear()
    assert loud.apply(x, x).tolist() == [2.0, 2.0]
    with forward_ad.dual_level():
        loud.apply(x, x)
    assert seen == []
    assert pushed(made(lambda ctx, x: (x * 2, 5), lambda ctx, t: (t, None)).apply, x)[1] == 5


def test_tangents_that_do_not_fit_are_errors() -> None:
    def refused(match: str, forward: Callable[..., Any], jvp: Callable[..., Any], kind: type = RuntimeError) -> None:
        with pytest.raises(kind, match=match):
            pushed(made(forward, jvp).apply, aj.ones(2).clone())

    def twice(ctx: Any, x: aj.Tensor) -> aj.Tensor:
        return x * 2

    def constant(ctx: Any, x: aj.Tensor) -> aj.Tensor:
        y = x * 2
        ctx.mark_non_differentiable(y)
        return y

    def dirty(ctx: Any, x: aj.Tensor) -> aj.Tensor:
        ctx.mark_dirty(x)
        return x.mul_(2)

    refused(r"invalid number of forward gradients \(expected 1 but got 2\)", twice, lambda ctx, t: (t, t))
    refused(
        r"invalid number of forward gradients \(expected 2 but got 1\)", lambda ctx, x: (x * 1, x * 2), lambda c, t: t
    )
    refused(r"expected Variable or None \(got float\) for grad output 0", twice, lambda ctx, t: 1.0)
    refused("different size than that of the original Tensor", twice, lambda ctx, t: aj.ones(3))
    refused("forward output is not a differentiable Tensor", constant, lambda ctx, t: t)
    refused("jvp is not returning a view", lambda ctx, x: x.view(2, 1), lambda ctx, t: t.view(2, 1).clone())
    refused("jvp is not returning a view", lambda ctx, x: x, lambda ctx, t: t)
    refused("not modifying the forward mode gradients inplace", dirty, lambda ctx, t: t * 2)
    refused("You must implement the jvp function", twice, Function.jvp, NotImplementedError)
    with pytest.raises(AssertionError, match="save_for_forward"):
        made(lambda ctx, x: (ctx.save_for_forward(3), x * 2)[1], twice).apply(aj.ones(1))
    ((_, t),) = pushed(made(dirty, lambda ctx, t: t.mul_(2)).apply, aj.ones(2))
    assert t.tolist() == [4.0, 4.0]
    ((_, t),) = pushed(made(lambda ctx, x: x.view(2, 1), lambda ctx, t: t.view(2, 1)).apply, aj.ones(2))
    assert t.tolist() == [[2.0], [2.0]]


def derivatives(y: aj.Tensor, square: aj.Tensor, inputs: list[aj.Tensor]) -> list[aj.Tensor]:
    first = aj.autograd.grad((y**2).sum() + (square * 3).sum(), inputs, create_graph=True)
    second = aj.autograd.grad(sum((g**2).sum() for g in first), inputs)
    return [*first, *second]


def test_a_generated_batching_rule_agrees_with_the_loop() -> None:
    x, w = leaf([1.0, 2.0], [3.0, 4.0], [5.0, 6.0]), leaf(2.0, 3.0, 4.0)
    fixed = aj.tensor(2.0, dtype=aj.float64, requires_grad=True)
    for weights in (w, fixed):
        if weights is w:
            y, square = over_batch(lambda row, k: Cube.apply(row, k), [x, w])
            expected = by_ops(x, w[:, None])
        else:
            y, square = over_batch(lambda row: Cube.apply(row, fixed), [x])
            expected = by_ops(x, fixed)
        assert type(y.grad_fn).__name__ == "CubeBackward"
        for a, b in zip(derivatives(y, square, [x, weights]), derivatives(*expected, [x, weights]), strict=True):
            assert aj.allclose(a, b)


def test_forward_mode_and_batches_compose_in_both_orders() -> None:
    x = aj.tensor([[1.0, 2.0], [3.0, 4.0]])
    w = aj.tensor(2.0)

    def tangents(row: aj.Tensor) -> list[Any]:
        return [t for _, t in pushed(lambda r: Cube.apply(r, w), row)]

    y_dot, square_dot = over_batch(tangents, [x])
    assert aj.allclose(y_dot, 12 * x * x)
    assert aj.allclose(square_dot, 4 * x)
    found = pushed(lambda t: tuple(over_batch(lambda row: Cube.apply(row, w), [t])), x)
    assert aj.allclose(found[0][1], 12 * x * x)
    assert aj.allclose(found[1][1], 4 * x)


def test_the_users_batching_rule_is_used() -> None:
    seen: list[Any] = []

    class Own(Function):
        @staticmethod
        def forward(ctx: Any, x: aj.Tensor, k: float) -> aj.Tensor:
            return x * k

        @staticmethod
        def setup(ctx: Any) -> None: ...

        @staticmethod
        def backward(ctx: Any, bar: aj.Tensor) -> tuple[aj.Tensor, None]:
            return bar * 10, None

        @staticmethod
        def vmap(info: Any, in_dims: tuple[Any, ...], x: aj.Tensor, k: float) -> tuple[aj.Tensor, int]:
            seen.append((info.batch_size, info.randomness, in_dims, tuple(x.shape)))
            return Own.apply(x, k).mT, 1

    x = leaf([1.0, 2.0], [3.0, 4.0], [5.0, 6.0])
    (y,) = over_batch(lambda row: [Own.apply(row, 3.0)], [x])
    assert seen == [(3, "same", (0, None), (3, 2))]
    np.testing.assert_array_equal(y.detach().numpy(), 3 * x.detach().numpy())
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), np.full((3, 2), 10.0))


def test_functions_without_or_with_two_batching_rules_are_refused() -> None:
    def run(**extra: Any) -> None:
        function = made(lambda ctx, x: x * 2, lambda ctx, t: t, **extra)
        over_batch(lambda row: [function.apply(row)], [aj.ones(2, 2)])

    with pytest.raises(RuntimeError, match="You tried to vmap over My, but it does not have vmap support"):
        run()
    with pytest.raises(RuntimeError, match="both generate_vmap_rule=True and an overridden vmap"):
        run(generate_vmap_rule=True, vmap=staticmethod(lambda info, dims, x: (x, 0)))
    with pytest.raises(RuntimeError, match=r"incompatible .output, out_dims. tuple: .* for 2 outputs"):
        run(vmap=staticmethod(lambda info, dims, x: ((x, x), (0,))))
    with pytest.raises(RuntimeError, match=r"incompatible .output, out_dims. tuple: .* for one output"):
        run(vmap=staticmethod(lambda info, dims, x: (x, (0,))))
    with pytest.raises(RuntimeError, match=r"to have two returns, .* Got a Tensor"):
        run(vmap=staticmethod(lambda info, dims, x: x))
    function = made(lambda ctx, x: x * 2, lambda ctx, t: t)
    (y,) = over_batch(lambda row: [row + function.apply(aj.ones(1))], [aj.ones(2, 1)])
    assert y.tolist() == [[3.0], [3.0]]


def test_gradients_of_every_element_of_a_batch_through_a_generated_rule() -> None:
    class Product(aj.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x: Any, w: Any) -> Any:
            return x * w

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs, output)

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            x, w, _ = ctx.saved_tensors
            return grad * w, grad * x

    rows, w = aj.arange(6.0).reshape(3, 2), aj.tensor([2.0, 3.0])
    slopes = aj.func.vmap(aj.func.grad(lambda x: Product.apply(x, w).square().sum()))(rows)
    np.testing.assert_allclose(slopes.numpy(), (2 * rows * w * w).numpy())


@pytest.mark.parametrize("randomness", ["error", "same", "different"])
def test_a_batching_rule_is_told_what_draws_do(randomness: str) -> None:
    seen = []

    def rule(info: Any, in_dims: Any, x: Any) -> Any:
        seen.append(info.randomness)
        return x, in_dims[0]

    function = made(lambda ctx, x: x, lambda ctx, t: t, vmap=staticmethod(rule))
    aj.vmap(function.apply, randomness=randomness)(aj.ones(2, 2))
    assert seen == [randomness]


@pytest.mark.parametrize("nest", [list, tuple, lambda pair: {"a": pair[0], "b": [pair[1]]}])
def test_tensors_in_nests_are_elements_of_the_batch(nest: Any) -> None:
    def products(xs: Any) -> Any:
        a, b = (xs["a"], xs["b"][0]) if isinstance(xs, dict) else xs
        return a * b

    def rule(info: Any, in_dims: Any, xs: Any, k: int) -> Any:
        assert in_dims == (nest((0, None)), None)
        return products(xs) * k, 0

    generated = made(lambda ctx, xs, k: products(xs) * k, lambda ctx, t: (None, None), generate_vmap_rule=True)
    own = made(lambda ctx, xs, k: products(xs) * k, lambda ctx, t: (None, None), vmap=staticmethod(rule))
    rows, w = aj.arange(6.0).reshape(3, 2), aj.tensor([2.0, 3.0])
    for function in (generated, own):
        found = aj.vmap(lambda row, function=function: function.apply(nest((row, w)), 2))(rows)
        np.testing.assert_array_equal(found.numpy(), (rows * w * 2).numpy())


def test_tensors_by_name_are_refused_by_a_batching_rule() -> None:
    class Sum(aj.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, *, y: Any) -> Any:
            return x + y

        @staticmethod
        def vmap(info: Any, in_dims: Any, x: Any, *, y: Any) -> Any:
            return x + y, 0

    assert aj.vmap(lambda x: Sum.apply(x, y=1))(aj.ones(2)).tolist() == [2.0, 2.0]
    with pytest.raises(NotImplementedError, match="kwarg-only Tensor args; pass y by position"):
        aj.vmap(lambda x: Sum.apply(x, y=x))(aj.ones(2))
