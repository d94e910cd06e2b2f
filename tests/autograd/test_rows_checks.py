"""Reference rows on gradcheck and gradgradcheck: arguments, what is compared, what is refused, what messages say."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.autograd import Function, GradcheckError, gradcheck, gradgradcheck
from tests.autograd.modes import Mode
from tests.autograd.registry import first_samples, function_of, tensors


def leaf(values: Any, dtype: Any = aj.float64) -> Any:
    return aj.tensor(values, dtype=dtype, requires_grad=True)


def off_by(factor: float) -> Any:
    """A sine whose derivative is wrong by a factor."""

    class Sine(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx: Any, bar: Any) -> Any:
            (x,) = ctx.saved_tensors
            return bar * x.cos() * factor

    return Sine.apply


class WrongSecond(Function):
    """A sine with the right first and a wrong second derivative."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx: Any, bar: Any) -> Any:
        (x,) = ctx.saved_tensors
        return bar * x.detach().cos()


def check_defaults(function: Any, expected: dict[str, Any]) -> None:
    parameters = inspect.signature(function).parameters
    assert list(parameters)[: len(expected)] == list(expected)
    for name, default in expected.items():
        assert parameters[name].default == default, name
        assert parameters[name].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD


NONE = inspect.Parameter.empty
OVERLAP = "only supports inputs that are non-overlapping"


def test_S3_69_signature_and_defaults_of_gradcheck(mode: Mode) -> None:
    mode.does_not_apply("a signature has no compiled form")
    check_defaults(
        gradcheck,
        {
            "func": NONE, "inputs": NONE, "eps": 1e-6, "atol": 1e-5, "rtol": 1e-3, "raise_exception": True,
            "check_sparse_nnz": False,
        },
    )  # fmt: skip
    assert gradcheck(mode(aj.sin), leaf([0.5]), 1e-6, 1e-5, 1e-3, True, False)


def test_S3_70_inputs_without_the_flag_are_skipped_and_none_left_is_an_error(mode: Mode) -> None:
    x, constant = leaf([0.5, 1.0]), aj.tensor([2.0, 3.0], dtype=aj.float64)
    assert gradcheck(mode(lambda x, c: x * c), (x, constant))
    assert gradcheck(mode(lambda x, k: x * k), (x, 3))
    with pytest.raises(ValueError, match="at least one input tensor to require gradient"):
        gradcheck(mode(lambda x, c: x * c), (constant, constant))


def test_S3_71_comparison_is_that_of_allclose(mode: Mode) -> None:
    x = leaf([0.5])
    function = mode(off_by(1.01))  # 1% off: |a - n| = 0.01 n
    assert gradcheck(function, x, rtol=0.011, atol=0.0)
    assert not gradcheck(function, x, rtol=0.009, atol=0.0, raise_exception=False)
    gap = 0.01 * np.cos(0.5)
    assert gradcheck(function, x, rtol=0.0, atol=gap * 1.01)
    assert not gradcheck(function, x, rtol=0.0, atol=gap * 0.99, raise_exception=False)


def test_S3_72_inputs_of_less_than_double_precision_are_warned_about(mode: Mode) -> None:
    for dtype in (aj.float32, aj.complex64, aj.float16):
        with pytest.warns(UserWarning, match="Input #1 requires gradient and is not a double precision"):
            gradcheck(mode(lambda x, y: x * y), (leaf([0.5]), leaf([0.5], dtype)), raise_exception=False)
    assert gradcheck(mode(lambda x, y: x * y), (leaf([0.5]), leaf([0.5], aj.complex128)))  # and nobody warns


def test_S3_73_inputs_whose_elements_share_memory_are_refused(mode: Mode) -> None:
    mode.does_not_apply("the inputs are refused before the function runs")
    base = aj.arange(6, dtype=aj.float64)
    with pytest.raises(RuntimeError, match="The 0th input has a dimension with stride 0") as caught:
        gradcheck(mode(aj.sin), base[:1].expand(3).requires_grad_())
    assert OVERLAP in str(caught.value)
    with pytest.raises(RuntimeError, match="The 1th input has elements that overlap in memory"):
        gradcheck(mode(aj.mul), (leaf(np.ones((5, 2))), base.unfold(0, 2, 1).requires_grad_()))
    assert gradcheck(mode(aj.sin), base.view(2, 3).t()[:, ::2].detach().requires_grad_())  # gaps are no overlap


def test_S3_74_functions_return_a_tensor_or_several(mode: Mode) -> None:
    x = leaf([0.5, 1.0])
    assert gradcheck(mode(lambda x: x.exp()), x)
    assert gradcheck(mode(lambda x: (x.exp(), x.sum())), x)
    assert gradcheck(mode(lambda x: [x.exp(), x.sum()]), x)
    assert gradcheck(mode(lambda x: (x.exp(), x.argmax())), x)
    with pytest.raises(ValueError, match="output 1 is a NoneType"):
        gradcheck(mode(lambda x: (x, None)), x)


def test_S3_75_inputs_are_a_tensor_or_a_tuple(mode: Mode) -> None:
    x, y = leaf([0.5, 1.0]), leaf([[2.0], [3.0]])
    assert gradcheck(mode(aj.exp), x)
    assert gradcheck(mode(aj.exp), (x,))
    assert gradcheck(mode(aj.mul), (x, y))
    assert gradcheck(mode(aj.mul), [x, y])


def test_S3_76_eps_atol_and_rtol_each_decide_a_borderline_case(mode: Mode) -> None:
    cubic = mode(lambda x: x**3)  # the central difference is off by eps ** 2
    x = leaf([0.0])
    assert gradcheck(cubic, x, eps=1e-3, rtol=0.0, atol=1.1e-6)
    assert not gradcheck(cubic, x, eps=1.1e-3, rtol=0.0, atol=1.1e-6, raise_exception=False)
    assert not gradcheck(cubic, x, eps=1e-3, rtol=0.0, atol=0.9e-6, raise_exception=False)
    wrong = mode(off_by(1.001))
    assert gradcheck(wrong, leaf([0.5]), atol=0.0, rtol=1.1e-3)
    assert not gradcheck(wrong, leaf([0.5]), atol=0.0, rtol=0.9e-3, raise_exception=False)


def test_S3_77_the_message_has_indices_both_jacobians_and_the_worst_element(mode: Mode) -> None:
    wrong = off_by(1.5)
    function = mode(lambda a, b: (a * b, wrong(b)))
    inputs = leaf([2.0, 3.0]), leaf([[0.3, 0.7], [1.5, 0.1]])
    with pytest.raises(GradcheckError) as caught:
        gradcheck(function, inputs)
    message = str(caught.value)
    assert message.startswith("Jacobian mismatch for output 1 with respect to input 1,\nnumerical:tensor(")
    assert "\nanalytical:tensor(" in message
    assert f"{np.cos(0.3):.4f}" in message
    assert f"{1.5 * np.cos(0.3):.4f}" in message
    assert f"largest difference {0.5 * np.cos(0.1):.3e} at input element (1, 1), output element 3" in message
    assert isinstance(caught.value, RuntimeError)
    assert gradcheck(function, inputs, raise_exception=False) is False
    with pytest.raises(ValueError, match="require gradient"):  # wrong use is an error either way
        gradcheck(function, (aj.ones(1), aj.ones(1)), raise_exception=False)


def test_S3_78_sparse_inputs_are_checked_at_their_specified_elements(mode: Mode) -> None:
    dense = aj.tensor([[0.0, 1.5, 0.0], [-2.0, 0.0, 0.5]], dtype=aj.float64)
    other = leaf([[1.0, 2.0], [0.5, -1.0], [3.0, 0.1]])

    def function(s: Any, x: Any) -> Any:
        return s @ x

    for sparse in (dense.to_sparse(), dense.to_sparse_csr()):
        s = sparse.detach().requires_grad_()
        assert gradcheck(mode(function), (s, other), check_sparse_nnz=True)
        assert gradcheck(mode(function), (s, other), masked=True)
        assert gradcheck(mode(function), (s, other), masked=True, fast_mode=True)
        assert gradcheck(mode(lambda s: s.to_dense() * 2), s, check_sparse_nnz=True)
        with pytest.raises(RuntimeError, match="expects all tensor inputs are dense"):
            gradcheck(mode(function), (s, other))
        assert gradcheck(mode(function), (s, other), raise_exception=False) is False
        wrong = off_by(1.5)
        with pytest.raises(GradcheckError, match="Jacobian mismatch for output 0 with respect to input 0"):
            gradcheck(lambda s, wrong=wrong: wrong(s.to_dense()), s, check_sparse_nnz=True)
        with pytest.raises(ValueError, match="Sparse output is not supported at gradcheck yet"):
            gradcheck(lambda s: s * 2, s, check_sparse_nnz=True)


def test_S3_78_all_elements_of_a_sparse_input_can_be_checked_too(mode: Mode) -> None:
    full = aj.tensor([[4.0, 1.5, 0.2], [-2.0, -1.0, 0.5]], dtype=aj.float64)
    partial = aj.tensor([[0.0, 1.5, 0.0], [-2.0, 0.0, 0.5]], dtype=aj.float64)
    for convert in (aj.Tensor.to_sparse, aj.Tensor.to_sparse_csr):
        function = mode(lambda s: s.to_dense() ** 2 + 3 * s.to_dense())
        assert gradcheck(function, convert(full).detach().requires_grad_(), masked=False)
        s = convert(partial).detach().requires_grad_()
        with pytest.raises(GradcheckError, match="mismatch"):  # its gradient exists at the specified elements only
            gradcheck(function, s, masked=False)
        with pytest.raises(ValueError, match="to be equal to masked"):
            gradcheck(function, s, masked=False, check_sparse_nnz=True)


def test_S3_79_the_result_is_a_bool(mode: Mode) -> None:
    assert gradcheck(mode(aj.sin), leaf([0.5])) is True
    assert gradcheck(mode(off_by(2.0)), leaf([0.5]), raise_exception=False) is False


def test_S3_80_signature_and_defaults_of_gradgradcheck(mode: Mode) -> None:
    mode.does_not_apply("a signature has no compiled form")
    check_defaults(
        gradgradcheck,
        {
            "func": NONE, "inputs": NONE, "grad_outputs": None, "eps": 1e-6, "atol": 1e-5, "rtol": 1e-3,
            "gen_non_contig_grad_outputs": False, "raise_exception": True,
        },
    )  # fmt: skip


def test_S3_81_second_derivatives_pass_for_every_op_and_a_wrong_one_fails(mode: Mode) -> None:
    count = 0
    for name, op, arrays in first_samples(aj.float64, largest=12, one_of=mode.one_of):
        given = tensors(arrays)
        outputs = function_of(op)(*given)
        if not any(y.requires_grad for y in outputs):
            continue
        function = mode(function_of(op))
        assert gradgradcheck(function, given, check_undefined_grad=False, atol=1e-4, fast_mode=True), name
        count += 1
    assert count > (90 if mode.one_of == 1 else 25)
    x = leaf([0.3, 0.7])
    function = mode(WrongSecond.apply)
    assert gradcheck(function, x)
    with pytest.raises(GradcheckError, match="with respect to input 0"):
        gradgradcheck(function, x)


def test_S3_82_tolerances_and_precision_hold_for_inputs_and_vectors(mode: Mode) -> None:
    x, vector = leaf([0.5]), leaf([1.0])
    assert gradgradcheck(mode(aj.sin), x, vector)
    with pytest.warns(UserWarning, match="Input #1 requires gradient and is not a double precision"):
        gradgradcheck(mode(lambda x: x.float().sin()), x, leaf([1.0], aj.float32), raise_exception=False)
    quartic = mode(lambda x: x**4)
    assert gradgradcheck(quartic, leaf([0.0]), leaf([1.0]), eps=1e-2, rtol=0.0, atol=4.1e-4)
    assert not gradgradcheck(
        quartic, leaf([0.0]), leaf([1.0]), eps=1e-2, rtol=0.0, atol=3.9e-4, raise_exception=False
    )  # fmt: skip


def test_S3_83_inputs_and_vectors_that_overlap_are_refused(mode: Mode) -> None:
    mode.does_not_apply("the inputs are refused before the function runs")
    shared = aj.ones(1, dtype=aj.float64).expand(2)
    with pytest.raises(RuntimeError, match=f"The 0th input has a dimension with stride 0.*{OVERLAP}"):
        gradgradcheck(mode(aj.sin), shared.detach().requires_grad_())
    with pytest.raises(RuntimeError, match=f"The 1th input has a dimension with stride 0.*{OVERLAP}"):
        gradgradcheck(mode(aj.sin), leaf([0.3, 0.7]), shared.detach().requires_grad_())


def test_S3_84_vectors_are_given_or_drawn_from_the_generator(mode: Mode) -> None:
    drawn = []

    def seen(x: Any) -> Any:
        y = x.sin()
        if y.requires_grad:
            y.register_hook(lambda bar: drawn.append(bar.detach().clone()) or None)
        return y

    mode.does_not_apply("the hook that looks at the vectors runs while the step is captured only")
    x = leaf([0.3, 0.7])
    for _ in range(2):
        aj.manual_seed(5)
        assert gradgradcheck(seen, x, check_undefined_grad=False)
    half = len(drawn) // 2
    np.testing.assert_array_equal(drawn[0].numpy(), drawn[half].numpy())
    drawn.clear()
    vector = leaf([2.0, -3.0])
    assert gradgradcheck(seen, x, grad_outputs=vector)
    np.testing.assert_array_equal(drawn[0].numpy(), vector.detach().numpy())
    assert gradgradcheck(mode(aj.sin), x, [vector])
    assert gradgradcheck(mode(aj.sin), x)


def test_S3_85_drawn_vectors_can_have_gaps_in_memory(mode: Mode) -> None:
    layouts = []

    class Sine(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx: Any, bar: Any) -> Any:
            (x,) = ctx.saved_tensors
            layouts.append(bar.is_contiguous())
            return bar * x.cos()

    x = leaf([[0.3, 0.7], [1.0, 2.0]])
    assert gradgradcheck(Sine.apply, x, gen_non_contig_grad_outputs=True, check_undefined_grad=False)
    assert not any(layouts)
    layouts.clear()
    assert gradgradcheck(Sine.apply, x, check_undefined_grad=False)
    assert all(layouts)
    assert gradgradcheck(mode(aj.sin), x, gen_non_contig_grad_outputs=True)


def test_S3_86_a_wrong_second_derivative_raises_or_returns_false(mode: Mode) -> None:
    x = leaf([0.3, 0.7])
    with pytest.raises(GradcheckError, match="Jacobian mismatch for output 0 with respect to input 0"):
        gradgradcheck(mode(WrongSecond.apply), x)
    assert gradgradcheck(mode(WrongSecond.apply), x, raise_exception=False) is False
    assert gradgradcheck(mode(aj.sin), x) is True
