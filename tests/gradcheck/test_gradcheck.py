"""gradcheck passes right derivatives, catches planted wrong ones, and refuses unsuitable inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.autograd import Function, GradcheckError, gradcheck, gradgradcheck
from tests.autograd.registry import first_samples, function_of, samples, tensors


def leaf(*values: Any) -> aj.Tensor:
    return aj.tensor(values, dtype=aj.float64, requires_grad=True)


class WrongSine(Function):
    @staticmethod
    def forward(ctx: Any, x: aj.Tensor) -> aj.Tensor:
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx: Any, bar: aj.Tensor) -> aj.Tensor:
        (x,) = ctx.saved_tensors
        return bar * x.cos() * 1.01


class WrongSecond(WrongSine):
    @staticmethod
    def backward(ctx: Any, bar: aj.Tensor) -> aj.Tensor:
        (x,) = ctx.saved_tensors
        return bar * x.detach().cos()


def test_wrong_derivatives_are_found_with_a_message_that_shows_both() -> None:
    x = leaf(0.3, 0.7)
    with pytest.raises(RuntimeError, match="Jacobian mismatch for output 0 with respect to input 0"):
        gradcheck(WrongSine.apply, x)
    assert gradcheck(WrongSine.apply, x, raise_exception=False) is False
    assert gradcheck(WrongSine.apply, x, rtol=0.1)
    assert gradcheck(WrongSecond.apply, x)
    assert not gradgradcheck(WrongSecond.apply, x, raise_exception=False)


def test_several_inputs_and_outputs_complex_and_strided_vectors() -> None:
    a, b = leaf([0.2, 0.5], [1.0, 2.0]), leaf([1.0, 3.0])
    assert gradcheck(lambda a, b: (a * b, (a @ b.t()).exp()), (a, b))
    assert gradgradcheck(lambda a, b: (a * b).sin(), (a, b), gen_non_contig_grad_outputs=True)
    z = aj.tensor([1 + 2j, 0.5 - 1j], dtype=aj.complex128, requires_grad=True)
    assert gradcheck(lambda z: z * z.conj() + z.exp(), z)
    assert gradcheck(lambda z: z.abs(), z)


def test_unsuitable_inputs_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one input tensor to require gradient"):
        gradcheck(aj.sin, aj.ones(2))
    with pytest.raises(RuntimeError, match="overlap"):
        gradcheck(aj.sin, aj.ones(1, dtype=aj.float64).expand(3).requires_grad_())
    with pytest.warns(UserWarning, match="double precision"):
        gradcheck(aj.sin, aj.ones(1, requires_grad=True), raise_exception=False)


# -- undefined gradients


def test_backward_must_cope_with_gradients_that_never_arrive() -> None:
    def refuse_none(bar: Any) -> None:
        if bar is None:
            raise RuntimeError("nothing arrived")

    def fails(x: aj.Tensor) -> aj.Tensor:
        y = x.clone()
        y.register_hook(refuse_none)
        return y

    x = leaf(1.0)
    for fast in (False, True):
        with (
            pytest.warns(UserWarning, match="undefined gradient support checking feature"),
            pytest.raises(GradcheckError, match="Expected backward function to handle undefined output grads"),
        ):
            gradcheck(fails, x, fast_mode=fast)
        assert gradcheck(fails, x, fast_mode=fast, check_undefined_grad=False)


class Both(Function):
    """Product and sum."""

    @staticmethod
    def forward(ctx: Any, x: aj.Tensor, y: aj.Tensor) -> Any:
        ctx.save_for_backward(x, y)
        return x * y, x + y

    @staticmethod
    def backward(ctx: Any, a: aj.Tensor, b: aj.Tensor) -> Any:
        x, y = ctx.saved_tensors
        return a * y + b, a * x + b


class Unprepared(Both):
    """Its backward gets None for outputs that were not used, and does not expect it."""

    @staticmethod
    def forward(ctx: Any, x: aj.Tensor, y: aj.Tensor) -> Any:
        ctx.set_materialize_grads(False)
        return Both.forward(ctx, x, y)


def test_every_output_is_left_out_once() -> None:
    x, y = leaf(0.5), leaf(2.0)
    assert gradcheck(Both.apply, (x, y))
    with pytest.raises(TypeError, match="NoneType"):
        gradcheck(Unprepared.apply, (x, y))


# -- repeatability


class Jitter(Function):
    """The derivative of ``2 x``, off by a little every second time."""

    now = 0.0

    @staticmethod
    def forward(ctx: Any, x: aj.Tensor) -> aj.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, bar: aj.Tensor) -> aj.Tensor:
        Jitter.now = 1e-6 - Jitter.now
        return bar * (2 + Jitter.now)


@pytest.mark.parametrize("fast", [False, True])
def test_a_backward_that_does_not_repeat_is_found(fast: bool) -> None:
    x = leaf(0.5)
    with pytest.raises(GradcheckError, match=r"Backward is not reentrant.*nondeterminism was 0.0"):
        gradcheck(Jitter.apply, x, fast_mode=fast)
    assert gradcheck(Jitter.apply, x, fast_mode=fast, nondet_tol=1e-5)
    assert gradcheck(Jitter.apply, x, fast_mode=fast, nondet_tol=1e-7, raise_exception=False) is False


# -- constants, offsets, dtypes, shapes


def test_outputs_without_gradients_must_be_constant() -> None:
    x = leaf(0.5, 1.0)
    for fast in (False, True):
        with pytest.raises(GradcheckError, match="Numerical gradient for function expected to be zero"):
            gradcheck(lambda x: x.detach() * 2, x, fast_mode=fast)
        assert gradcheck(lambda x: x.detach() * 0, x, fast_mode=fast)
    assert gradcheck(lambda x: (x * 2, x.detach() * 3), x)  # only outputs that require gradients are compared


class Offset(Function):
    @staticmethod
    def forward(ctx: Any, x: aj.Tensor) -> aj.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, bar: aj.Tensor) -> aj.Tensor:
        return bar + 1e-7


def test_gradients_that_do_not_scale_with_what_arrives_are_found() -> None:
    with pytest.raises(GradcheckError, match="backward not multiplied by grad_output"):
        gradcheck(Offset.apply, leaf(0.5))


def test_outputs_must_keep_shape_and_dtype() -> None:
    x = leaf(1.0)
    with pytest.raises(AssertionError, match=r"same shape when inputs are perturbed on index \(0,\) by 1e-06"):
        gradcheck(lambda x: aj.cat([x, x]) if bool(x.detach() >= 1) else x, x)
    with pytest.raises(AssertionError, match="same dtype when inputs are perturbed"):
        gradcheck(lambda x: x.float() if bool(x.detach() >= 1) else x, x, fast_mode=True)


def test_inputs_are_left_as_they_were() -> None:
    x = leaf([0.1, 0.2], [0.3, 0.4])
    before, version = x.detach().clone(), x._version

    def explodes(x: aj.Tensor) -> aj.Tensor:
        if not bool((x.detach() == before).all()):
            raise ArithmeticError
        return x * 2

    with pytest.raises(ArithmeticError):
        gradcheck(explodes, x)
    np.testing.assert_array_equal(x.detach().numpy(), before.numpy())
    assert gradcheck(aj.exp, x)
    np.testing.assert_array_equal(x.detach().numpy(), before.numpy())
    assert x._version == version
    assert x.grad is None


def test_inputs_with_gaps_transposes_and_empty_ones() -> None:
    wide = aj.rand(4, 6, dtype=aj.float64)
    for x in (wide[:, ::2], wide.t(), wide[1:3, 2], wide[:0], wide[0, 0]):
        x = x.detach().requires_grad_()
        assert gradcheck(lambda x: (x * x).sin(), x, check_forward_ad=True, check_batched_grad=True)
        assert gradcheck(lambda x: (x * x).sin(), x, check_forward_ad=True, fast_mode=True)


def test_at_least_one_mode_must_be_checked() -> None:
    x = leaf(1.0)
    with pytest.raises(AssertionError, match="at least one of check_forward_ad or check_backward_ad"):
        gradcheck(aj.sin, x, check_backward_ad=False)
    with pytest.raises(AssertionError, match="check_batched_grad=True requires check_backward_ad"):
        gradcheck(aj.sin, x, check_backward_ad=False, check_forward_ad=True, check_batched_grad=True)
    with pytest.raises(AssertionError, match="check_batched_forward_grad=True requires check_forward_ad"):
        gradcheck(aj.sin, x, check_batched_forward_grad=True)
    with pytest.raises(AssertionError, match="at least one of check_fwd_over_rev or check_rev_over_rev"):
        gradgradcheck(aj.sin, x, check_rev_over_rev=False)
    with pytest.raises(AssertionError, match="check_undefined_grad=True requires check_rev_over_rev"):
        gradgradcheck(aj.sin, x, check_rev_over_rev=False, check_fwd_over_rev=True)


# -- fast mode, forward mode, batches


class WrongForward(WrongSine):
    @staticmethod
    def forward(ctx: Any, x: aj.Tensor) -> aj.Tensor:
        ctx.save_for_forward(x)
        return x.sin()

    @staticmethod
    def jvp(ctx: Any, x_dot: aj.Tensor) -> aj.Tensor:
        (x,) = ctx.saved_tensors
        return x_dot * x.cos() * 1.01


def test_fast_mode_finds_the_same_mistakes_and_shows_the_whole_jacobians() -> None:
    x = leaf(0.3, 0.7)
    with pytest.raises(GradcheckError) as caught:
        gradcheck(WrongSine.apply, x, fast_mode=True)
    message = str(caught.value)
    assert message.startswith("Jacobian mismatch for output 0 with respect to input 0,")
    assert "element by element" in message
    assert "The max per-element difference (slow mode) is: 0.0095" in message
    assert gradcheck(WrongSine.apply, x, fast_mode=True, rtol=0.1)
    assert not gradgradcheck(WrongSecond.apply, x, fast_mode=True, raise_exception=False)
    z = aj.tensor([1 + 2j, 0.5 - 1j], dtype=aj.complex128, requires_grad=True)
    assert gradcheck(lambda z, x: (z * x, z.abs() * x), (z, x), fast_mode=True, check_forward_ad=True)
    assert not gradcheck(WrongSine.apply, z, fast_mode=True, raise_exception=False)


@pytest.mark.parametrize("fast", [False, True])
def test_forward_mode_is_checked_for_itself(fast: bool) -> None:
    x = leaf(0.3, 0.7)
    options: dict[str, Any] = {"check_forward_ad": True, "check_backward_ad": False, "fast_mode": fast}
    with pytest.raises(GradcheckError, match="Jacobian computed with forward mode mismatch for output 0 with respect"):
        gradcheck(WrongForward.apply, x, **options)
    z = aj.tensor([1 + 2j, 0.5 - 1j], dtype=aj.complex128, requires_grad=True)
    with pytest.raises(GradcheckError, match="While considering the imaginary part of complex inputs only, Jacobian"):
        gradcheck(WrongForward.apply, z, **options)
    assert gradcheck(lambda x, y: (x * y, x.sum()), (x, leaf([2.0], [3.0])), **options)
    assert gradcheck(lambda z, x: (z * z.conj() * x, z.exp()), (z, x), **options)


def test_parts_of_complex_outputs_are_named() -> None:
    z = aj.tensor([1 + 2j, 0.5 - 1j], dtype=aj.complex128, requires_grad=True)
    with pytest.raises(GradcheckError, match="While considering the imaginary part of complex outputs only, Jacobian"):
        gradcheck(WrongSine.apply, z)
    with pytest.raises(GradcheckError, match=r"^Jacobian mismatch for output 1"):
        gradcheck(lambda z, x: (z * 1, WrongSine.apply(x)), (z, leaf(0.5)))


def test_batched_gradients_and_tangents_are_compared_with_single_ones() -> None:
    x, y = leaf(0.3, 0.7), leaf([1.0], [2.0])
    everything = {"check_batched_grad": True, "check_forward_ad": True, "check_batched_forward_grad": True}
    assert gradcheck(lambda x, y: ((x * y).exp(), y.cumsum(0)), (x, y), **everything)
    assert gradgradcheck(lambda x: x.tanh(), x, check_batched_grad=True, check_fwd_over_rev=True)

    class OneAtATime(WrongSine):
        @staticmethod
        def backward(ctx: Any, bar: aj.Tensor) -> aj.Tensor:
            (x,) = ctx.saved_tensors
            return x.detach().cos() * float(bar[0]) + aj.stack([bar[0] * 0, (bar[1] - bar[0]) * x[1].cos()])

    assert gradcheck(OneAtATime.apply, x, check_undefined_grad=False) is True
    with pytest.raises(GradcheckError, match="While computing batched gradients, got: vmap"):
        gradcheck(OneAtATime.apply, x, check_batched_grad=True)


def test_gradients_of_other_dtypes_are_found_on_request() -> None:
    x = aj.tensor([0.5], dtype=aj.float64, requires_grad=True)
    assert gradcheck(lambda x: x.float().double() * 2, x, check_grad_dtypes=True, atol=1.0)


# -- compiled functions


def test_compiled_functions_are_checked_as_they_are() -> None:
    x = leaf(0.3, 0.7)
    everything = {"check_batched_grad": True, "check_forward_ad": True, "check_batched_forward_grad": True}
    good = aj.jit(lambda x: (x.sin() * x, x.prod()))
    assert gradcheck(good, x, **everything)
    assert gradgradcheck(good, x, check_fwd_over_rev=True)
    assert good.stats()["fallbacks"] == 0
    wrong = aj.jit(lambda x: WrongSine.apply(x))
    assert not gradcheck(wrong, x, raise_exception=False)
    assert not gradgradcheck(aj.jit(lambda x: WrongSecond.apply(x)), x, raise_exception=False)


# -- all ops


def narrows(op: Any) -> bool:
    """Whether the op rounds to a smaller dtype, which differences of 1e-6 cannot judge."""
    return op.name == "cast" and op.dtype not in (aj.float64, aj.complex128)


def check_everything(op: Any, arrays: Any) -> None:
    given, function = tensors(arrays), function_of(op)
    everything = {"check_forward_ad": True, "check_batched_grad": True, "check_batched_forward_grad": True}
    assert gradcheck(function, given, atol=1e-4, **everything)
    assert gradgradcheck(function, given, atol=1e-3, check_fwd_over_rev=True, check_batched_grad=True, fast_mode=True)


def has_gradient(op: Any, arrays: Any) -> bool:
    return any(y.requires_grad for y in function_of(op)(*tensors(arrays)))


def test_both_modes_alone_and_in_batches_for_one_sample_of_every_op() -> None:
    count = 0
    for name, op, arrays in first_samples(aj.float64, largest=12):
        if op.is_random or narrows(op) or not has_gradient(op, arrays):
            continue
        try:
            check_everything(op, arrays)
        except Exception as error:
            raise AssertionError(name) from error
        count += 1
    assert count > 90


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [aj.float64, aj.complex128], ids=lambda d: d.name)
def test_both_modes_alone_and_in_batches_for_all_samples(dtype: Any) -> None:
    for name, op, arrays in samples(dtype, largest=12):
        if op.is_random or narrows(op) or not has_gradient(op, arrays):
            continue
        try:
            check_everything(op, arrays)
        except Exception as error:
            raise AssertionError(name) from error
