"""Reference rows of ``autograd.Function``: the base class, its ctx, and how its nodes stand in the history."""

from __future__ import annotations

import inspect
from typing import Any, ClassVar

import numpy as np
import pytest

import autojit as aj
from autojit.autograd import Function, gradcheck, gradgradcheck
from tests.autograd.modes import Mode


def leaf(*values: float) -> aj.Tensor:
    return aj.tensor(values, dtype=aj.float64, requires_grad=True)


class Exp(Function):
    @staticmethod
    def forward(ctx: Any, i: aj.Tensor) -> aj.Tensor:
        result = i.exp()
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx: Any, grad_output: aj.Tensor) -> aj.Tensor:
        (result,) = ctx.saved_tensors
        return grad_output * result


class Scaled(Function):
    """Reads everything a ctx tells; ``seen`` collects it."""

    seen: ClassVar[list[Any]] = []

    @staticmethod
    def forward(ctx: Any, x: aj.Tensor, w: aj.Tensor, scale: float = 1.0, name: str = "") -> aj.Tensor:
        ctx.save_for_backward(x, w)
        ctx.scale = scale
        Scaled.seen.append((ctx.needs_input_grad, ctx.num_inputs, ctx.requires_grad))
        return x * w * scale

    @staticmethod
    def backward(ctx: Any, y_bar: aj.Tensor) -> tuple[Any, ...]:
        x, w = ctx.saved_tensors
        x_bar = y_bar * w * ctx.scale if ctx.needs_input_grad[0] else None
        w_bar = y_bar * x * ctx.scale if ctx.needs_input_grad[1] else None
        return x_bar, w_bar, None, None


class Two(Function):
    @staticmethod
    def forward(ctx: Any, x: aj.Tensor, y: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
        ctx.save_for_backward(x, y)
        return x * y, x + y

    @staticmethod
    def backward(ctx: Any, product_bar: aj.Tensor, sum_bar: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
        x, y = ctx.saved_tensors
        return product_bar * y + sum_bar, product_bar * x + sum_bar


def derivatives(function: Any, x: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
    (first,) = aj.autograd.grad(function(x).sum(), x, create_graph=True)
    (second,) = aj.autograd.grad((first**2).sum(), x)
    return first.detach(), second


def assert_no_python(function: Any) -> None:
    """Later calls of a jitted function ran without Python ops."""
    if hasattr(function, "stats"):
        counts = function.stats()
        assert counts["fallbacks"] == 0
        assert counts["native_calls"] >= 1


def test_S0_02_a_subclass_with_two_static_methods_works_without_registration(mode: Mode) -> None:
    class Square(Function):
        @staticmethod
        def forward(ctx: Any, x: aj.Tensor) -> aj.Tensor:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, y_bar: aj.Tensor) -> aj.Tensor:
            return 2 * ctx.saved_tensors[0] * y_bar

    run = mode(lambda x: derivatives(Square.apply, x))
    for values in ((1.0, 2.0), (3.0, -4.0), (0.5, 7.0)):
        x = leaf(*values)
        first, second = run(x)
        np.testing.assert_array_equal(first.numpy(), 2 * x.detach().numpy())
        np.testing.assert_array_equal(second.numpy(), 8 * x.detach().numpy())
    assert_no_python(run)


def test_S0_03_forward_by_hand_records_nothing_and_apply_one_node(mode: Mode) -> None:
    class Ctx:
        def save_for_backward(self, *tensors: Any) -> None:
            self.to_save = tensors

    def nodes(x: aj.Tensor) -> tuple[Any, Any]:
        by_hand = Exp.forward(Ctx(), x.detach())
        applied = Exp.apply(x)
        assert by_hand.grad_fn is None
        assert type(applied.grad_fn).__name__ == "ExpBackward"
        assert [type(n).__name__ for n, _ in applied.grad_fn.next_functions] == ["AccumulateGrad"]
        return by_hand, applied.detach()

    by_hand, applied = mode(nodes)(leaf(0.5, 1.0))
    assert aj.equal(by_hand, applied)


def test_S0_04_the_exp_example(mode: Mode) -> None:
    run = mode(lambda x: aj.autograd.grad(Exp.apply(x).sum(), x)[0])
    for _ in range(3):
        x = leaf(-1.5, 0.0, 0.3, 2.0)
        expected = np.exp(x.detach().numpy())
        assert (np.abs(run(x).numpy() - expected) <= np.spacing(expected)).all()
    function = mode(Exp.apply)
    assert gradcheck(function, leaf(0.3, -1.0))
    assert gradgradcheck(function, leaf(0.3, -1.0))


def test_S0_05_calling_an_instance_is_apply(mode: Mode) -> None:
    run = mode(lambda x: (Exp()(x).detach(), *derivatives(lambda t: Exp()(t), x)))
    expected = mode(lambda x: (Exp.apply(x).detach(), *derivatives(Exp.apply, x)))
    for _ in range(3):
        for a, b in zip(run(leaf(0.2, 1.0)), expected(leaf(0.2, 1.0)), strict=True):
            assert aj.equal(a, b)
    x = leaf(1.0)
    assert type(Exp()(x).grad_fn) is type(Exp.apply(x).grad_fn)


def test_S0_06_apply_is_a_classmethod_and_records_iff_wanted(mode: Mode) -> None:
    assert isinstance(inspect.getattr_static(Function, "apply"), classmethod)

    def flags(x: aj.Tensor, constant: aj.Tensor) -> tuple[bool, ...]:
        with aj.no_grad():
            off = Exp.apply(x)
        return Exp.apply(x).grad_fn is not None, Exp.apply(constant).grad_fn is not None, off.grad_fn is not None

    run = mode(flags)
    for _ in range(2):
        assert run(leaf(1.0), aj.ones(1)) == (True, False, False)


def test_S1_04_the_base_class_and_subclasses_construct_without_arguments(mode: Mode) -> None:
    mode.does_not_apply("construction computes nothing")
    assert isinstance(Function(), Function)
    assert isinstance(Exp(), Function)


def test_S1_05_keyword_arguments_are_bound_to_the_signature(mode: Mode) -> None:
    def run(x: aj.Tensor, w: aj.Tensor) -> tuple[aj.Tensor, ...]:
        y = Scaled.apply(x, w=w, scale=2.0)
        return aj.autograd.grad(y.sum(), (x, w))

    function = mode(run)
    for _ in range(3):
        x_bar, w_bar = function(leaf(1.0, 2.0), leaf(3.0, 4.0))
        np.testing.assert_array_equal(x_bar.numpy(), [6.0, 8.0])
        np.testing.assert_array_equal(w_bar.numpy(), [2.0, 4.0])


def test_S1_06_arguments_of_any_type_pass_through_unchanged(mode: Mode) -> None:
    class Mixed(Function):
        @staticmethod
        def forward(ctx: Any, x: aj.Tensor, n: int, text: str, nothing: None, items: list[int], *rest: Any) -> Any:
            assert (n, text, nothing, items, rest) == (3, "a", None, [1, 2], (4.5,))
            assert type(n) is int
            assert type(items) is list
            return x * n, text, items

        @staticmethod
        def backward(ctx: Any, y_bar: aj.Tensor, text_bar: None, items_bar: None) -> tuple[Any, ...]:
            assert text_bar is None
            assert items_bar is None
            return y_bar * 3, None, None, None, None, None

    def run(x: aj.Tensor) -> Any:
        y, text, items = Mixed.apply(x, 3, "a", None, [1, 2], 4.5)
        return aj.autograd.grad(y.sum(), x)[0], text, items

    function = mode(run)
    for _ in range(2):
        grad, text, items = function(leaf(1.0))
        assert (grad.item(), text, items) == (3.0, "a", [1, 2])


def test_S1_07_a_missing_backward_is_an_error_of_backward_only(mode: Mode) -> None:
    class NoBackward(Function):
        @staticmethod
        def forward(ctx: Any, x: aj.Tensor) -> aj.Tensor:
            return x * 2

    assert mode(NoBackward.apply)(leaf(1.0)).item() == 2.0
    with pytest.raises(NotImplementedError, match="NoBackward"):
        mode(lambda x: NoBackward.apply(x).sum().backward())(leaf(1.0))


def diamond(x: aj.Tensor) -> list[str]:
    """Names in the order in which the nodes of a diamond run."""
    order: list[str] = []

    def named(name: str) -> Any:
        class Step(Function):
            @staticmethod
            def forward(ctx: Any, *inputs: aj.Tensor) -> aj.Tensor:
                ctx.count = len(inputs)
                return inputs[0].clone() if len(inputs) == 1 else inputs[0] + inputs[1]

            @staticmethod
            def backward(ctx: Any, y_bar: aj.Tensor) -> Any:
                order.append(name)
                return (y_bar,) * ctx.count

        return Step.apply

    top = named("top")(x)
    left, right = named("left")(top), named("right")(top)
    named("bottom")(left, right).sum().backward()
    return order


def check_diamond(order: list[str]) -> None:
    assert sorted(order) == ["bottom", "left", "right", "top"]
    assert order[0] == "bottom"
    assert order[-1] == "top"


def test_S2_43_each_node_of_a_diamond_runs_once_after_its_users(mode: Mode) -> None:
    run = mode(diamond)
    for _ in range(2):
        check_diamond(run(leaf(1.0)))


def test_S2_44_an_op_is_written_in_ten_lines(mode: Mode) -> None:
    class Cube(Function):
        @staticmethod
        def forward(ctx: Any, x: aj.Tensor) -> aj.Tensor:
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx: Any, y_bar: aj.Tensor) -> aj.Tensor:
            (x,) = ctx.saved_tensors
            return y_bar * 3 * x**2

    assert gradgradcheck(mode(Cube.apply), leaf(1.2, -0.4))


def test_S2_45_a_compiled_step_runs_no_python_op_functions(mode: Mode) -> None:
    calls = np.zeros(1, int)  # not a list, whose items a compiled step would compare at every call

    class Counted(Function):
        @staticmethod
        def forward(ctx: Any, x: aj.Tensor) -> aj.Tensor:
            calls[0] += 1
            return x * 2

        @staticmethod
        def backward(ctx: Any, y_bar: aj.Tensor) -> aj.Tensor:
            calls[0] += 1
            return y_bar * 2

    run = mode(lambda x: aj.autograd.grad(Counted.apply(x).sum(), x)[0])
    for _ in range(5):
        assert run(leaf(1.0)).item() == 2.0
    assert calls[0] == (2 if mode.is_jit else 10)
    assert_no_python(run)


def test_S2_46_every_call_makes_a_node_of_its_own(mode: Mode) -> None:
    def nodes(x: aj.Tensor) -> tuple[bool, bool]:
        function = Exp()
        a, b = function(x), function(x)
        assert aj.equal(a.detach(), b.detach()) or mode.is_jit
        return a.grad_fn is not b.grad_fn, a.grad_fn is a.grad_fn

    assert mode(nodes)(leaf(1.0)) == (True, True)


def test_S2_47_saved_tensors_is_a_tuple_and_is_freed(mode: Mode) -> None:
    def run(x: aj.Tensor) -> aj.Tensor:
        y = Exp.apply(x)
        node = y.grad_fn
        assert type(node.saved_tensors) is tuple
        assert len(node.saved_tensors) == 1
        y.sum().backward(retain_graph=True)
        assert len(node.saved_tensors) == 1
        y.sum().backward()
        with pytest.raises(RuntimeError, match="a second time"):
            _ = node.saved_tensors
        with pytest.raises(RuntimeError, match="a second time"):
            y.sum().backward()
        return x.grad

    function = mode(run)
    for _ in range(2):
        x = leaf(0.0, 1.0)
        function(x)
        np.testing.assert_allclose(x.grad.numpy(), 2 * np.exp([0.0, 1.0]), rtol=1e-15)


def test_S2_48_saved_variables_is_the_old_name(mode: Mode) -> None:
    class Old(Exp):
        @staticmethod
        def backward(ctx: Any, y_bar: aj.Tensor) -> aj.Tensor:
            with pytest.warns(DeprecationWarning, match="saved_tensors"):
                (y,) = ctx.saved_variables
            assert y.requires_grad
            return y_bar * y

    run = mode(lambda x: derivatives(Old.apply, x))
    for _ in range(2):
        first, second = run(leaf(0.5))
        np.testing.assert_allclose(first.numpy(), np.exp(0.5), rtol=1e-15)
        np.testing.assert_allclose(second.numpy(), 2 * np.exp(1.0), rtol=1e-14)


def needs(x: aj.Tensor, w: aj.Tensor) -> Any:
    Scaled.seen.clear()
    Scaled.apply(x, w, 2.0)
    Scaled.apply(w, x)
    with aj.no_grad():
        Scaled.apply(x, w)
    Scaled.apply(w, w)
    return list(Scaled.seen)


def test_S2_49_needs_input_grad_tells_which_inputs_want_gradients(mode: Mode) -> None:
    flags = [entry[0] for entry in mode(needs)(leaf(1.0), aj.ones(1, dtype=aj.float64))]
    assert flags == [(True, False, False), (False, True), (True, False), (False, False)]


def test_S2_50_num_inputs_counts_what_forward_was_given(mode: Mode) -> None:
    assert [entry[1] for entry in mode(needs)(leaf(1.0), aj.ones(1, dtype=aj.float64))] == [3, 2, 2, 2]
    assert Scaled.apply(leaf(1.0), leaf(1.0)).grad_fn.num_inputs == 2


def test_S2_51_num_outputs_counts_what_forward_returned(mode: Mode) -> None:
    def run(x: aj.Tensor) -> tuple[int, int, int, int]:
        a, b = Two.apply(x, x)
        return a.grad_fn.num_outputs, Exp.apply(x).grad_fn.num_outputs, a.output_nr, b.output_nr

    assert mode(run)(leaf(1.0)) == (2, 1, 0, 1)


def test_S2_52_requires_grad_of_a_ctx_and_nothing_saved_without_it(mode: Mode) -> None:
    assert [entry[2] for entry in mode(needs)(leaf(1.0), aj.ones(1, dtype=aj.float64))] == [True, True, False, False]
    kept: list[Any] = []

    class Keeping(Exp):
        @staticmethod
        def forward(ctx: Any, x: aj.Tensor) -> aj.Tensor:
            kept.append(ctx)
            return Exp.forward(ctx, x)

    def run(x: aj.Tensor) -> list[int]:
        kept.clear()
        Keeping.apply(x)
        Keeping.apply(x.detach())
        with aj.no_grad():
            Keeping.apply(x)
        return [len(ctx.saved_tensors) for ctx in kept]

    assert mode(run)(leaf(1.0)) == [1, 0, 0]


def test_S2_53_wrong_numbers_of_gradients_name_both_counts(mode: Mode) -> None:
    def returning(*grads: Any) -> Any:
        class Returning(Function):
            @staticmethod
            def forward(ctx: Any, x: aj.Tensor, y: aj.Tensor) -> aj.Tensor:
                return x + y

            @staticmethod
            def backward(ctx: Any, y_bar: aj.Tensor) -> Any:
                return tuple(y_bar if g else None for g in grads)

        return lambda x: Returning.apply(x, x).sum().backward()

    with pytest.raises(RuntimeError, match=r"incorrect number of gradients \(expected 2, got 1\)"):
        mode(returning(True))(leaf(1.0))
    with pytest.raises(RuntimeError, match=r"incorrect number of gradients \(expected 2, got 3\)"):
        mode(returning(True, True, True))(leaf(1.0))
    x = leaf(1.0)
    mode(returning(True, True, False, False))(x)
    assert x.grad.item() == 2.0


def two_outputs(mode: Mode) -> None:
    run = mode(lambda x, y: aj.autograd.grad(sum((t * (k + 2)).sum() for k, t in enumerate(Two.apply(x, y))), (x, y)))
    for _ in range(3):
        x_bar, y_bar = run(leaf(1.0, 2.0), leaf(3.0, 4.0))
        np.testing.assert_array_equal(x_bar.numpy(), [9.0, 11.0])
        np.testing.assert_array_equal(y_bar.numpy(), [5.0, 7.0])
    assert_no_python(run)


def test_S2_54_forward_takes_and_returns_any_number_of_tensors(mode: Mode) -> None:
    two_outputs(mode)
    assert gradgradcheck(mode(Two.apply), (leaf(1.0, 2.0), leaf(3.0, 4.0)))

    class Nothing(Function):
        @staticmethod
        def forward(ctx: Any) -> tuple[()]:
            return ()

    assert mode(lambda x: (Nothing.apply(), x))(leaf(1.0))[0] == ()


def test_S3_60_every_op_records_a_new_node_that_points_to_its_inputs(mode: Mode) -> None:
    def names(x: aj.Tensor) -> list[str]:
        node = Exp.apply(Exp.apply(x)).grad_fn
        found = []
        while node is not None:
            found.append(node.name())
            node = node.next_functions[0][0] if node.next_functions else None
        return found

    assert mode(names)(leaf(1.0)) == ["ExpBackward", "ExpBackward", "AccumulateGrad"]


def test_S3_61_backward_runs_in_topological_order(mode: Mode) -> None:
    check_diamond(mode(diamond)(leaf(2.0)))


def test_S3_62_subclassing_extends_autograd(mode: Mode) -> None:
    two_outputs(mode)


def test_S3_63_a_node_is_used_once(mode: Mode) -> None:
    assert mode(lambda x: Exp.apply(x).grad_fn is not Exp.apply(x).grad_fn)(leaf(1.0))


def test_S3_64_the_exp_example(mode: Mode) -> None:
    assert gradgradcheck(mode(Exp.apply), leaf(0.1, 0.7))


def test_S3_65_backward_gets_one_gradient_per_output_and_returns_one_per_input(mode: Mode) -> None:
    class Checked(Scaled):
        @staticmethod
        def backward(ctx: Any, *bars: Any) -> tuple[Any, ...]:
            assert len(bars) == 1
            return (*Scaled.backward(ctx, *bars)[:2], bars[0] if ctx.scale == 3.0 else None)

    def run(x: aj.Tensor, scale: float) -> aj.Tensor:
        return aj.autograd.grad(Checked.apply(x, x, scale).sum(), x)[0]

    assert mode(run)(leaf(2.0), 2.0).item() == 8.0
    with pytest.raises(RuntimeError, match="different than None at position 3"):
        mode(run)(leaf(2.0), 3.0)


def test_S3_66_ctx_has_saved_tensors_and_needs_input_grad_in_backward(mode: Mode) -> None:
    seen: list[Any] = []

    class Seeing(Scaled):
        @staticmethod
        def backward(ctx: Any, y_bar: aj.Tensor) -> tuple[Any, ...]:
            seen.append((ctx.needs_input_grad, len(ctx.saved_tensors)))
            return Scaled.backward(ctx, y_bar)

    mode(lambda x, w: aj.autograd.grad(Seeing.apply(x, w).sum(), x)[0])(leaf(1.0), aj.ones(1, dtype=aj.float64))
    assert seen == [((True, False), 2)]


def test_S3_67_forward_with_ctx_or_with_setup_context(mode: Mode) -> None:
    class Split(Function):
        @staticmethod
        def forward(x: aj.Tensor, power: int = 3) -> aj.Tensor:
            return x**power

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: aj.Tensor) -> None:
            x, ctx.power = inputs
            ctx.save_for_backward(x)

        @staticmethod
        def backward(ctx: Any, y_bar: aj.Tensor) -> tuple[Any, ...]:
            (x,) = ctx.saved_tensors
            return y_bar * ctx.power * x ** (ctx.power - 1), None

    assert gradgradcheck(mode(Split.apply), leaf(1.2, 0.4))
    run = mode(lambda x: aj.autograd.grad(Split.apply(x, power=2).sum(), x)[0])
    for _ in range(2):
        assert run(leaf(3.0)).item() == 6.0


class Everything(Function):
    """Uses every method of a ctx at once."""

    @staticmethod
    def forward(ctx: Any, x: aj.Tensor, target: aj.Tensor) -> tuple[aj.Tensor, ...]:
        target.mul_(2)
        ctx.mark_dirty(target)
        order = x > 1.5
        ctx.mark_non_differentiable(order)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, None, order)
        ctx.factor = 3.0
        return x * ctx.factor, target, order, x + 1

    @staticmethod
    def backward(ctx: Any, x_bar: Any, target_bar: Any, order_bar: Any, unused_bar: Any) -> tuple[Any, ...]:
        x, nothing, order = ctx.saved_tensors
        assert nothing is None
        assert order_bar is None
        assert unused_bar is None
        assert order.dtype is aj.bool
        return x_bar * ctx.factor + 0 * x, target_bar * 2


def test_S3_68_everything_a_ctx_stores_is_honoured(mode: Mode) -> None:
    def run(x: aj.Tensor) -> tuple[aj.Tensor, ...]:
        target = x * 5
        scaled, changed, order, _ = Everything.apply(x, target)
        assert changed is target
        assert not order.requires_grad
        (grad,) = aj.autograd.grad((scaled + changed).sum(), x)
        return grad, changed.detach(), order

    function = mode(run)
    for _ in range(3):
        grad, changed, order = function(leaf(2.0, 1.0))
        np.testing.assert_array_equal(grad.numpy(), [13.0, 13.0])
        np.testing.assert_array_equal(changed.numpy(), [20.0, 10.0])
        np.testing.assert_array_equal(order.numpy(), [True, False])
    assert_no_python(function)
