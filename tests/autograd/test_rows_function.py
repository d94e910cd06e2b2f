"""Reference rows S0 to S2 of ``autograd.Function``: the base class, its ctx, how its nodes stand in the history."""

from __future__ import annotations

import inspect
import sys
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.autograd import Function, gradcheck, gradgradcheck
from tests.autograd.functions import (
    Exp,
    Scaled,
    Two,
    assert_no_python,
    check_diamond,
    derivatives,
    diamond,
    leaf,
    two_outputs,
)
from tests.autograd.modes import Mode


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
    calls = []

    def profile(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_qualname.startswith("test_S2_45"):
            calls.append(frame.f_code.co_name)

    class Counted(Function):
        @staticmethod
        def forward(ctx: Any, x: aj.Tensor) -> aj.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, y_bar: aj.Tensor) -> aj.Tensor:
            return y_bar * 2

    run = mode(lambda x: aj.autograd.grad(Counted.apply(x).sum(), x)[0])
    for k in range(5):
        x = leaf(1.0)
        sys.setprofile(profile if k else None)
        try:
            found = run(x)
        finally:
            sys.setprofile(None)
        assert found.item() == 2.0
    assert (calls == []) is mode.is_jit
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


def test_S2_54_forward_takes_and_returns_any_number_of_tensors(mode: Mode) -> None:
    two_outputs(mode)
    assert gradgradcheck(mode(Two.apply), (leaf(1.0, 2.0), leaf(3.0, 4.0)))

    class Nothing(Function):
        @staticmethod
        def forward(ctx: Any) -> tuple[()]:
            return ()

    assert mode(lambda x: (Nothing.apply(), x))(leaf(1.0))[0] == ()
