"""Anomaly mode beyond its reference rows: nested derivatives, missing information, warnings as errors, lifetimes."""

from __future__ import annotations

import gc
import warnings
import weakref
from typing import Any

import pytest

import autojit as aj
from autojit.autograd import Function, detect_anomaly, set_detect_anomaly
from autojit.autograd.anomaly import ForwardCall
from tests.autograd.modes import Mode

NAN = float("nan")


def leaf(*values: float) -> aj.Tensor:
    return aj.tensor(values, dtype=aj.float64, requires_grad=True)


class NanAt(Function):
    """Its backward gives NaN as its first or second gradient."""

    @staticmethod
    def forward(ctx: Any, a: aj.Tensor, b: aj.Tensor, first: bool) -> aj.Tensor:
        ctx.first = first
        return a * 2.0 + b

    @staticmethod
    def backward(ctx: Any, bar: aj.Tensor) -> tuple[Any, ...]:
        return (bar * NAN, bar, None) if ctx.first else (bar, bar * NAN, None)


class UsesNanAt(Function):
    @staticmethod
    def forward(ctx: Any, x: aj.Tensor, first: bool) -> aj.Tensor:
        ctx.first = first
        ctx.save_for_backward(x)
        return x.sum(0, keepdim=True)

    @staticmethod
    def backward(ctx: Any, bar: aj.Tensor) -> tuple[Any, ...]:
        (x,) = ctx.saved_tensors
        return NanAt.apply(bar.expand(3) * x, bar.expand(3) + x, ctx.first), None


@pytest.mark.parametrize("first", [True, False])
def test_nan_in_a_second_derivative_tells_both_calls(mode: Mode, first: bool) -> None:
    def second(x: aj.Tensor) -> None:
        y = UsesNanAt.apply(x, first)
        (x_bar,) = aj.autograd.grad(y, x, create_graph=True)
        x_bar.sum().backward()

    mode(second)(leaf(1.0, 2.0, 3.0))  # without the mode it passes
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        number = 0 if first else 1
        match = f"'NanAtBackward' returned nan values in its {number}th output"
        with pytest.raises(RuntimeError, match=match), detect_anomaly():
            mode(second)(leaf(1.0, 2.0, 3.0))
    texts = [str(w.message) for w in found]
    assert len(texts) == 3
    assert "Anomaly Detection has been enabled" in texts[0]
    assert "NanAt.apply" in texts[1]
    assert "UsesNanAt.apply" in texts[2]
    assert "Previous calculation was induced by UsesNanAtBackward" in texts[2]


def test_without_a_watched_forward_pass_the_report_says_so() -> None:
    x = leaf(1.0, 2.0, 3.0)
    (x_bar,) = aj.autograd.grad(UsesNanAt.apply(x, True), x, create_graph=True)
    with (
        warnings.catch_warnings(record=True) as found,
        pytest.raises(RuntimeError, match=r"forward op  NanAt at .*test_anomaly.py"),
        set_detect_anomaly(True),
    ):
        warnings.simplefilter("always")
        x_bar.sum().backward()
    (text,) = [str(w.message) for w in found]
    assert text.startswith("Error detected in NanAtBackward. No forward pass information available.")


def test_check_nan_false_only_explains_exceptions(mode: Mode) -> None:
    def run(x: aj.Tensor) -> aj.Tensor:
        return aj.autograd.grad(x.sqrt().sum(), x)[0]

    step = mode(run)
    with set_detect_anomaly(True, check_nan=False):
        for _ in range(2):
            assert step(leaf(-1.0)).isnan().all()
        with set_detect_anomaly(True, check_nan=True), pytest.warns(UserWarning), pytest.raises(RuntimeError):
            step(leaf(-1.0))
        assert step(leaf(-1.0)).isnan().all()


def test_a_warning_that_is_an_error_does_not_replace_the_error_it_explains(capsys: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings(), set_detect_anomaly(True):
        warnings.simplefilter("error")
        with pytest.raises(RuntimeError, match="returned nan values"):
            leaf(-1.0).sqrt().sum().backward()
    assert "Error detected in SqrtBackward0" in capsys.readouterr().err


def test_warnings_point_to_the_users_line() -> None:
    with pytest.warns(UserWarning) as found, set_detect_anomaly(True), pytest.raises(RuntimeError):
        leaf(-1.0).sqrt().sum().backward()
    assert [w.filename for w in found] == [__file__]


def test_stacks_are_kept_only_while_the_mode_is_on_and_die_with_the_graph(mode: Mode) -> None:
    def run() -> None:
        plain = leaf(1.0) * 2
        assert not isinstance(plain.grad_fn.source, ForwardCall)
        with set_detect_anomaly(True):
            x = leaf(2.0)
            y = UsesNanAt.apply(x.expand(3), True)
            (x_bar,) = aj.autograd.grad(y, x, create_graph=True)
        node = x_bar.grad_fn
        while not (isinstance(node.source, ForwardCall) and node.source.parent is not None):
            node = next(n for n, _ in node.next_functions if n is not None)
        assert node.source.parent is not None
        forward, backward = weakref.ref(y.grad_fn), weakref.ref(node)
        del node, y, x_bar
        assert forward() is None
        assert backward() is None

    gc.disable()
    try:
        mode(run)()
    finally:
        gc.enable()


def test_hooks_may_repair_a_gradient_only_after_the_check(mode: Mode) -> None:
    def run(x: aj.Tensor) -> aj.Tensor:
        y = x * 1
        y.register_hook(lambda bar: bar.nan_to_num())
        return aj.autograd.grad(y.sqrt().sum(), x)[0]

    with set_detect_anomaly(True), pytest.warns(UserWarning), pytest.raises(RuntimeError, match="SqrtBackward0"):
        mode(run)(leaf(-1.0))
    assert mode(run)(leaf(-1.0)).item() == 0.0


def test_every_float_dtype_is_checked(mode: Mode) -> None:
    def run(x: aj.Tensor) -> aj.Tensor:
        return aj.autograd.grad((x * NAN).abs().sum(), x)[0]

    for dtype in (aj.float16, aj.bfloat16, aj.float32, aj.complex64, aj.complex128):
        with set_detect_anomaly(True), pytest.warns(UserWarning), pytest.raises(RuntimeError, match="nan values"):
            mode(run)(aj.ones(2, dtype=dtype, requires_grad=True))


def test_several_backward_passes_of_one_step_are_checked_in_turn(mode: Mode) -> None:
    def run(x: aj.Tensor, w: aj.Tensor) -> aj.Tensor:
        x.sqrt().sum().backward()
        w.log().sum().backward()
        w.rsqrt().sum().backward()
        return x.grad + w.grad

    step = mode(run)
    with set_detect_anomaly(True):
        for _ in range(2):
            assert not step(leaf(1.0), leaf(1.0)).isnan().any()
        for x, w, name in ((-1.0, 1.0, "Sqrt"), (1.0, -1.0, "Rsqrt"), (-1.0, -1.0, "Sqrt")):
            given = leaf(x), leaf(w)
            with pytest.warns(UserWarning), pytest.raises(RuntimeError, match=f"'{name}Backward0'"):
                step(*given)
