"""Forward mode: dual tensors carry tangents through ops, views, in-place changes, custom functions and backward."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import autojit as aj
import autojit.autograd.forward_ad as forward
from autojit.autograd import Function, functional
from tests.autograd.modes import Mode
from tests.autograd.registry import first_samples, function_of, tensors


def equal(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found.detach().numpy(), np.asarray(expected), rtol=1e-6, atol=1e-7)


def tangent(t: Any) -> Any:
    return forward.unpack_dual(t).tangent


def test_levels_are_numbered_cannot_be_nested_and_end_in_order() -> None:
    assert forward._current_level == -1
    with forward.dual_level() as level:
        assert (level, forward._current_level) == (0, 0)
        with pytest.raises(RuntimeError, match="Nested forward mode AD is not supported"):
            forward.enter_dual_level()
        with pytest.raises(RuntimeError, match="not the last one that was created"):
            forward.exit_dual_level(level=1)
    assert forward._current_level == -1
    with pytest.raises(RuntimeError, match="no forward AD level is entered"):
        forward.exit_dual_level()
    level = forward.enter_dual_level()
    forward.exit_dual_level(level=level)
    with pytest.raises(RuntimeError, match="no level exists"):
        forward.make_dual(aj.ones(1), aj.ones(1))


def test_a_level_ends_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError), forward.dual_level():
        _ = 1 / 0
    assert forward._current_level == -1


def test_a_level_decorates_a_function() -> None:
    @forward.dual_level()
    def push(x: Any) -> Any:
        return tangent(forward.make_dual(x, aj.ones(2)) * 3)

    equal(push(aj.ones(2)), [3, 3])


def test_unsuitable_primals_and_tangents_are_refused() -> None:
    x = aj.ones(2)
    with forward.dual_level():
        with pytest.raises(ValueError, match=r"Expected primal to be floating point or complex, but got: .*int64"):
            forward.make_dual(aj.arange(2), x)
        with pytest.raises(ValueError, match="Expected tangent to be floating point or complex"):
            forward.make_dual(x, aj.arange(2))
        with pytest.raises(RuntimeError, match="has a different size than that of the original Tensor"):
            forward.make_dual(x, aj.ones(3))
        with pytest.raises(RuntimeError, match="already has a forward gradient"):
            forward.make_dual(forward.make_dual(x, x), x)
        with pytest.raises(RuntimeError, match="same dtype"):
            forward.make_dual(x, aj.ones(2, dtype=aj.float64))
        with pytest.raises(TypeError, match="must be Tensor"):
            forward.unpack_dual(3)  # type: ignore[arg-type]


def test_packing_gives_aliases_and_keeps_the_very_tangent() -> None:
    primal, direction = aj.rand(2), aj.ones(2)
    with forward.dual_level():
        dual = forward.make_dual(primal, direction)
        found = forward.unpack_dual(dual)
        assert isinstance(found, forward.UnpackedDualTensor)
        assert found.tangent is direction
        assert found.primal.data_ptr() == dual.data_ptr() == primal.data_ptr()
        primal.add_(1)
        assert primal._version == dual._version == found.primal._version
        assert tangent(primal) is None
        assert tangent(found.primal) is None
        assert f"tangent={direction!r}" in repr(dual)
        assert "tangent=" not in repr(primal)
    assert tangent(dual) is None
    assert forward.unpack_dual(dual).primal is dual
    with forward.dual_level():
        assert tangent(dual) is None


def test_tangents_do_not_outlive_their_tensors_or_the_level() -> None:
    primal = aj.rand(2)

    def fresh() -> tuple[Any, Any]:
        t = aj.rand(2)
        return t, weakref.ref(t)

    gc.disable()
    try:
        with forward.dual_level():
            first, first_ref = fresh()
            dual = forward.make_dual(primal, first)
            del first
            assert first_ref() is not None
            del dual
            assert first_ref() is None
            second, second_ref = fresh()
            kept = forward.make_dual(primal, second)
            del second
            assert second_ref() is not None
        assert kept is not None
        assert second_ref() is None
    finally:
        gc.enable()


@pytest.mark.usefixtures("lightly_compiled")
def test_tangents_follow_every_op_of_the_registry(mode: Mode) -> None:
    """The tangent along v paired with w is the gradient for w paired with v."""

    def both(op: Any) -> Any:
        function = function_of(op)

        def run(*given: Any) -> Any:
            with forward.dual_level():
                duals = [forward.make_dual(x, aj.ones_like(x)) if x.is_floating_point() else x for x in given]
                pushed = [tangent(y) for y in function(*duals)]
            xs = [x.detach().requires_grad_() if x.is_floating_point() else x for x in given]
            outputs = function(*xs)
            live = [k for k, y in enumerate(outputs) if y.requires_grad]
            sums = [pushed[k].sum() for k in live if pushed[k] is not None]
            left = sum((s.real if s.is_complex() else s for s in sums), aj.zeros((), dtype=aj.float64))
            if not live:
                return left, left
            leaves = [x for x in xs if x.requires_grad]
            bars = [aj.ones_like(outputs[k]) for k in live]
            grads = aj.autograd.grad([outputs[k] for k in live], leaves, bars, allow_unused=True)
            right = sum((g.sum() for g in grads if g is not None), aj.zeros((), dtype=aj.float64))
            return left.detach(), right

        return run

    for name, op, arrays in first_samples(aj.float64):
        if op.is_random:
            continue
        left, right = mode(both(op))(*[t.detach() for t in tensors(arrays)])
        np.testing.assert_allclose(left.numpy(), right.numpy(), rtol=1e-9, atol=1e-9, err_msg=name)


def test_ops_that_are_constant_have_zero_tangents_and_integers_none(mode: Mode) -> None:
    def run(x: Any, v: Any) -> Any:
        with forward.dual_level():
            dual = forward.make_dual(x, v)
            assert tangent(dual > 0) is None
            assert tangent(aj.zeros_like(dual)) is None
            assert tangent(dual.detach() * 2) is None
            return tangent(dual.floor()), tangent(dual.sign()), tangent(dual.max(0).values)

    floor, sign, largest = mode(run)(aj.tensor([0.5, 1.5]), aj.tensor([1.0, 3.0]))
    equal(floor, [0, 0])
    equal(sign, [0, 0])
    equal(largest, 3)


def test_detach_in_place_drops_the_tangent(mode: Mode) -> None:
    def run(x: Any, v: Any) -> Any:
        with forward.dual_level():
            dual = forward.make_dual(x, v).clone()
            assert tangent(dual) is not None
            dual.detach_()
            assert tangent(dual * 2) is None
            return dual

    equal(mode(run)(aj.tensor([0.5]), aj.tensor([1.0])), [0.5])


def test_in_place_changes_of_duals_change_their_tangents(mode: Mode) -> None:
    def run(x: Any, v: Any) -> Any:
        with forward.dual_level():
            dual = forward.make_dual(x.clone(), v.clone())
            dual *= 2
            dual[0] = dual[1] * 3
            dual.sin_()
            scaled = tangent(dual).clone()
            dual.zero_()
            return scaled, tangent(dual)

    x, v = np.array([0.5, 1.5]), np.array([1.0, 3.0])
    scaled, zeroed = mode(run)(aj.tensor(x), aj.tensor(v))
    equal(scaled, [6 * 3.0 * np.cos(9.0), 2 * 3.0 * np.cos(3.0)])
    equal(zeroed, [0, 0])


def test_results_that_are_no_views_have_tangents_of_their_own(mode: Mode) -> None:
    def run(x: Any, v: Any) -> Any:
        with forward.dual_level():
            dual = forward.make_dual(x, v)
            found = []
            for copy in (dual.clone(), dual + 0, dual.reshape(2, 1).clone(), dual.contiguous().clone().view(2)):
                copy *= 5
                found.append(tangent(copy).reshape(-1))
            found.append(tangent(dual).clone())
            return found

    *scaled, own = mode(run)(aj.tensor([1.0, 2.0]), aj.tensor([1.0, 3.0]))
    for found in scaled:
        equal(found, [5, 15])
    equal(own, [1, 3])


def test_copies_have_tangents_of_their_own(mode: Mode) -> None:
    def run(x: Any, v: Any) -> Any:
        with forward.dual_level():
            dual = forward.make_dual(x, v)
            target = aj.zeros(2)
            target.copy_(dual)
            target *= 2
            return tangent(dual).clone(), tangent(target).clone()

    of_source, of_target = mode(run)(aj.tensor([1.0, 2.0]), aj.tensor([1.0, 3.0]))
    equal(of_source, [1, 3])
    equal(of_target, [2, 6])


def test_writes_through_a_transposed_view_reach_the_base(mode: Mode) -> None:
    def run(x: Any, v: Any) -> Any:
        with forward.dual_level():
            base = aj.zeros(2, 2)
            view = base.t()
            view += forward.make_dual(x, v)
            before = tangent(base).clone()
            view *= 2
            compared = base == 0
            assert tangent(compared) is None
            return before, tangent(base).clone(), tangent(base.eq_(x)).clone()

    v = np.array([[1.0, 2.0], [3.0, 4.0]])
    before, after, constant = mode(run)(aj.ones(2, 2), aj.tensor(v, dtype=aj.float32))
    equal(before, v.T)
    equal(after, 2 * v.T)
    equal(constant, np.zeros((2, 2)))


def test_views_share_tangents_and_stop_at_make_dual(mode: Mode) -> None:
    def run(x: Any, v: Any) -> Any:
        x, v = x.clone(), v.clone()
        with forward.dual_level():
            dual = forward.make_dual(x, v)
            view = dual.narrow(0, 0, 1)
            view *= 2
            assert tangent(x) is None
            first = tangent(dual).clone()
            dual *= 3
            return first, tangent(view).clone(), tangent(dual).clone()

    first, of_view, of_dual = mode(run)(aj.tensor([1.0, 2.0]), aj.tensor([1.0, 1.0]))
    equal(first, [2, 1])
    equal(of_view, [6])
    equal(of_dual, [6, 3])


def test_tensors_become_dual_by_what_is_written_to_them(mode: Mode) -> None:
    def run(x: Any, v: Any) -> Any:
        with forward.dual_level():
            dual = forward.make_dual(x, v)
            whole = aj.zeros(2)
            before = whole[1:]
            whole += dual
            part = aj.zeros(2)
            part[0] = dual[0]
            apart = aj.zeros(2)
            alias = apart.detach()
            alias += dual
            assert tangent(apart) is None
            return tangent(whole).clone(), tangent(before).clone(), tangent(part).clone(), tangent(alias).clone()

    whole, before, part, alias = mode(run)(aj.tensor([1.0, 2.0]), aj.tensor([3.0, 4.0]))
    equal(whole, [3, 4])
    equal(before, [4])
    equal(part, [3, 0])
    equal(alias, [3, 4])


def test_a_tangent_of_another_layout_is_laid_out_like_its_primal() -> None:
    primal = aj.arange(6.0).view(2, 3).t()
    direction = aj.ones(3, 2)
    with forward.dual_level():
        dual = forward.make_dual(primal, direction)
        found = tangent(dual)
        assert found is not direction
        assert found.stride() == primal.stride()
        dual.view(dual.shape)[0, 0] = 0
        equal(tangent(dual)[0, 0], 0)
        shared = forward.make_dual(aj.zeros(3), aj.ones(1).expand(3))
        shared[0] = 5
        equal(tangent(shared), [0, 1, 1])


def test_a_tangent_that_lies_elsewhere_in_its_memory_is_copied() -> None:
    part, whole = aj.ones(5)[:4].detach(), aj.ones(4)
    with forward.dual_level():
        for primal, direction in ((part, whole), (whole, part), (aj.ones(5)[1:], part)):
            assert tangent(forward.make_dual(primal, direction)) is not direction
        direction = aj.ones(5)[:4]
        assert tangent(forward.make_dual(part, direction)) is direction
        nothing = aj.ones(1)[1:]
        assert tangent(forward.make_dual(aj.ones(0), nothing)) is nothing
        tangent(forward.make_dual(part, whole)).mul_(2)
        equal(whole, [1, 1, 1, 1])


def test_a_tangent_has_no_tangent_itself() -> None:
    with forward.dual_level():
        dual = forward.make_dual(aj.ones(2), aj.ones(2))
        with pytest.raises(RuntimeError, match="has a forward gradient at the same level"):
            forward.make_dual(aj.ones(2), dual)


def test_no_grad_leaves_tangents_alone_and_switching_forward_mode_off_drops_them(mode: Mode) -> None:
    def run(x: Any, v: Any) -> Any:
        with forward.dual_level():
            dual = forward.make_dual(x, v)
            with aj.no_grad():
                unrecorded = tangent(dual * 3)
            with forward._set_fwd_grad_enabled(False):
                assert not forward._is_fwd_grad_enabled()
                assert tangent(dual) is None
                dropped = dual * 3
            assert tangent(dropped) is None
            assert tangent(dual) is not None
            return unrecorded

    equal(mode(run)(aj.tensor([0.5]), aj.tensor([2.0])), [6])


def test_backward_through_primals_and_tangents(mode: Mode) -> None:
    def run(x: Any, v: Any) -> Any:
        x, v = x.detach().requires_grad_(), v.detach().requires_grad_()
        with forward.dual_level():
            primal, pushed = forward.unpack_dual(forward.make_dual(x, v) ** 3)
            of_primal = aj.autograd.grad(primal.sum(), (x, v), retain_graph=True, allow_unused=True)
            of_tangent = aj.autograd.grad(pushed.sum(), (x, v))
        assert of_primal[1] is None
        return of_primal[0], *of_tangent

    x, v = np.array([0.5, 2.0]), np.array([1.0, -1.0])
    for found, expected in zip(mode(run)(aj.tensor(x), aj.tensor(v)), (3 * x**2, 6 * x * v, 3 * x**2), strict=True):
        equal(found, expected)


def test_forward_over_reverse_is_the_hessian_times_the_tangent(mode: Mode) -> None:
    def function(x: Any) -> Any:
        y = x.exp() * x.prod()
        y = y.clone()
        y[0] = x[0] * x[1]
        return y.tanh().sum() + (x @ x).sqrt()

    def run(x: Any, v: Any) -> Any:
        with forward.dual_level():
            dual = forward.make_dual(x.detach().requires_grad_(), v)
            (gradient,) = aj.autograd.grad(function(dual), dual)
            return tangent(gradient)

    x, v = aj.tensor([0.3, -0.4, 0.5], dtype=aj.float64), aj.tensor([1.0, 2.0, -1.0], dtype=aj.float64)
    expected = functional.hessian(function, x) @ v
    for _ in range(2):
        found = mode(run)(x, v)
    equal(found, expected.numpy())


def test_gradients_accumulate_with_their_tangents(mode: Mode) -> None:
    def run(x: Any, v: Any) -> Any:
        x = x.detach().requires_grad_()
        with forward.dual_level():
            dual = forward.make_dual(x, v)
            (dual**3).sum().backward()
            (dual**2).sum().backward()
            return x.grad.clone(), tangent(x.grad).clone()

    gradient, pushed = mode(run)(aj.tensor([2.0, 3.0]), aj.tensor([1.0, -1.0]))
    equal(gradient, [16, 33])
    equal(pushed, [14, -20])


def test_out_arguments_take_no_duals() -> None:
    with forward.dual_level():
        dual, plain = forward.make_dual(aj.ones(2), aj.ones(2)), aj.ones(2)
        for arguments, place in (((plain, plain), dual), ((dual, plain), plain)):
            with pytest.raises(NotImplementedError, match="because it is an out= function"):
                aj.add(*arguments, out=place)
        assert aj.add(plain, plain, out=plain) is plain


def test_custom_functions_push_with_their_jvp(mode: Mode) -> None:
    class Cube(Function):
        @staticmethod
        def forward(ctx: Any, x: Any, scale: float) -> Any:
            ctx.save_for_forward(x)
            ctx.scale = scale
            return x**3 * scale

        @staticmethod
        def jvp(ctx: Any, x_dot: Any, scale: Any) -> Any:
            assert scale is None
            (x,) = ctx.saved_tensors
            return 3 * x**2 * x_dot * ctx.scale * 10  # a factor that only this rule has

    def run(x: Any, v: Any) -> Any:
        with forward.dual_level():
            y = Cube.apply(forward.make_dual(x, v), 2.0)
            return forward.unpack_dual(y)

    primal, pushed = mode(run)(aj.tensor([2.0]), aj.tensor([1.0]))
    equal(primal, [16])
    equal(pushed, [240])


def test_forward_mode_compiles_to_one_native_step() -> None:
    def run(x: Any, v: Any) -> Any:
        with forward.dual_level():
            dual = forward.make_dual(x, v)
            y = (dual @ dual.t()).tanh().sum(0)
            y[0] *= 2
            return tangent(y) + 0

    jitted = aj.jit(run)
    x, v = aj.rand(3, 4, dtype=aj.float64), aj.rand(3, 4, dtype=aj.float64)
    for _ in range(3):
        found = jitted(x, v)
    equal(found, run(x, v).numpy())
    stats = jitted.stats()
    assert (stats["captures"], stats["fallbacks"]) == (1, 0)
    assert stats["native_calls"] >= 1


def test_a_jitted_function_inside_a_level_pushes_tangents() -> None:
    jitted = aj.jit(lambda x: (x * 2).sin())
    x, v = aj.tensor([0.5, 1.0]), aj.tensor([1.0, 3.0])
    jitted(x)
    jitted(x)
    with forward.dual_level():
        pushed = tangent(jitted(forward.make_dual(x, v)))
    equal(pushed, 2 * np.cos(2 * x.numpy()) * v.numpy())
    assert "called inside a forward-mode level" in jitted.explain()


def test_levels_leave_no_reference_cycles() -> None:
    x, v = aj.ones(3), aj.ones(3)

    def push() -> None:
        with forward.dual_level():
            forward.unpack_dual((forward.make_dual(x, v) * 2).sin())

    push()
    gc.collect()
    gc.disable()
    try:
        for _ in range(50):
            push()
        assert gc.collect() < 50  # objects that only the collector finds: two a level in a cycle; threads leave some
    finally:
        gc.enable()


def test_complex_tangents(mode: Mode) -> None:
    def run(z: Any, v: Any) -> Any:
        with forward.dual_level():
            dual = forward.make_dual(z, v)
            return tangent(dual * dual.conj()), tangent(dual.abs())

    z, v = np.array([1 + 2j, -0.5j]), np.array([1j, 2 + 1j])
    squared, modulus = mode(run)(aj.tensor(z), aj.tensor(v))
    equal(squared, 2 * np.real(np.conj(z) * v) + 0j)
    equal(modulus, np.real(np.conj(z) * v) / np.abs(z))


def test_strided_views_of_views_carry_tangents(mode: Mode) -> None:
    def pushed(x: Any, direction: Any) -> Any:
        with forward.dual_level():
            dual = forward.make_dual(x, direction)
            twice = dual.as_strided((2, 2), (4, 1)).as_strided((2, 2), (1, 4))
            row = dual.select(0, 1).as_strided((2, 2), (1, 1))
            own = (dual * 2).as_strided((2, 2), (4, 1)).as_strided((3,), (1,))
            return tangent(twice), tangent(row), tangent(own)

    x = aj.arange(12.0).reshape(3, 4)
    run = mode(pushed)
    for _ in range(3):
        twice, row, own = run(x, x * 10)
        equal(twice, [[0, 40], [10, 50]])
        equal(row, (x * 10).select(0, 1).as_strided((2, 2), (1, 1)).numpy())
        equal(own, [0, 20, 40])


def test_a_detached_view_and_its_tangent_reach_all_of_its_memory() -> None:
    memory, tangent = aj.arange(6.0), aj.tensor([1.0, 2.0])
    primal = memory[2:4].detach()
    assert aj.equal(primal.as_strided((6,), (1,), 0), memory)
    with forward.dual_level():
        dual = forward.make_dual(primal, tangent)
        whole = forward.unpack_dual(dual.as_strided((6,), (1,), 0))
        assert aj.equal(whole.primal, memory) and whole.tangent is not None
        assert whole.tangent.tolist() == [0.0, 0.0, 1.0, 2.0, 0.0, 0.0]
    with pytest.raises(RuntimeError, match="out of bounds for storage of size 24"):
        primal.as_strided((7,), (1,), 0)
