"""Checkpoints: gradients as without them, nothing kept in between, the same random numbers, and what is refused."""

from __future__ import annotations

import weakref
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.utils.checkpoint import (
    CheckpointError,
    GraphExecGroup,
    checkpoint,
    checkpoint_sequential,
    set_checkpoint_debug_enabled,
    set_checkpoint_early_stop,
)


def leaf(*values: float) -> aj.Tensor:
    return aj.tensor(values, dtype=aj.float64, requires_grad=True)


def layers(x: aj.Tensor, weight: aj.Tensor) -> aj.Tensor:
    return ((x * weight).sin() * x).exp()


@pytest.mark.parametrize("use_reentrant", [False, True])
@pytest.mark.parametrize("is_compiled", [False, True])
def test_gradients_are_those_without_a_checkpoint(use_reentrant: bool, is_compiled: bool) -> None:
    x, weight = leaf(0.5, 1.5), leaf(2.0, 3.0)
    layers(x, weight).sum().backward()
    expected = x.grad.numpy(), weight.grad.numpy()

    def step() -> None:
        x.grad, weight.grad = None, None
        checkpoint(layers, x, weight, use_reentrant=use_reentrant).sum().backward()

    step = aj.jit(step) if is_compiled else step
    for _ in range(3):
        step()
    np.testing.assert_allclose(x.grad.numpy(), expected[0], rtol=1e-12)
    np.testing.assert_allclose(weight.grad.numpy(), expected[1], rtol=1e-12)


def test_nothing_is_kept_until_backward_runs_the_function_again() -> None:
    x = leaf(0.5, 1.5)
    runs: list[list[Any]] = []

    def function(t: aj.Tensor) -> aj.Tensor:
        middle = t.exp()
        runs.append([weakref.ref(middle)])
        return middle.sin().exp()

    y = checkpoint(function, x, use_reentrant=False)
    assert len(runs) == 1
    assert runs[0][0]() is None
    y.sum().backward()
    assert len(runs) == 2
    v = np.array([0.5, 1.5])
    np.testing.assert_allclose(x.grad.numpy(), np.exp(np.sin(np.exp(v))) * np.cos(np.exp(v)) * np.exp(v), rtol=1e-12)


def test_a_retained_graph_runs_the_function_again_in_every_pass() -> None:
    x = leaf(2.0)
    runs: list[int] = []

    def function(t: aj.Tensor) -> aj.Tensor:
        runs.append(1)
        return t * t

    y = checkpoint(function, x, use_reentrant=False)
    y.sum().backward(retain_graph=True)
    y.sum().backward()
    assert len(runs) == 3
    assert x.grad.item() == 8


@pytest.mark.parametrize("early_stop", [True, False])
def test_the_second_run_stops_as_soon_as_it_can(early_stop: bool) -> None:
    x = leaf(2.0)
    reached: list[str] = []

    def function(t: aj.Tensor) -> aj.Tensor:
        y = t.exp()
        reached.append("end")
        return y + 1

    with set_checkpoint_early_stop(early_stop):
        y = checkpoint(function, x, use_reentrant=False)
    y.sum().backward()
    assert len(reached) == (1 if early_stop else 2)


def test_checkpoints_nest() -> None:
    x = leaf(0.5, 1.5)
    runs = {"outer": 0, "inner": 0}

    def inner(t: aj.Tensor) -> aj.Tensor:
        runs["inner"] += 1
        return t.sin().exp()

    def outer(t: aj.Tensor) -> aj.Tensor:
        runs["outer"] += 1
        return checkpoint(inner, t.exp(), use_reentrant=False).cos()

    y = checkpoint(outer, x, use_reentrant=False)
    y.sum().backward()
    found = x.grad.numpy().copy()
    x.grad = None
    x.exp().sin().exp().cos().sum().backward()
    np.testing.assert_allclose(found, x.grad.numpy(), rtol=1e-12)
    assert runs["outer"] == 2
    assert runs["inner"] == 3


@pytest.mark.parametrize("early_stop", [True, False])
def test_backward_passes_of_the_function_itself_run_it_again_before_it_has_ended(early_stop: bool) -> None:
    def inner(x: Any) -> Any:
        return x.sin().exp().sin()

    def slope(function: Any) -> Any:
        return lambda x: aj.autograd.grad(function(x), x, create_graph=True)[0]

    def kept(function: Any) -> Any:
        return lambda x: checkpoint(function, x, use_reentrant=False, early_stop=early_stop)

    x = aj.tensor(0.3, dtype=aj.float64, requires_grad=True)
    twice = slope(slope(inner))(x)
    for nest in (slope(kept(slope(inner))), kept(slope(slope(kept(inner)))), slope(kept(slope(kept(inner))))):
        assert nest(x).item() == pytest.approx(twice.item(), rel=1e-12)


def test_higher_derivatives_pass_through() -> None:
    x = leaf(0.5, 1.5)
    (first,) = aj.autograd.grad(checkpoint(lambda t: t**3, x, use_reentrant=False).sum(), x, create_graph=True)
    (second,) = aj.autograd.grad(first.sum(), x)
    np.testing.assert_allclose(second.numpy(), [3.0, 9.0])


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_both_runs_draw_the_same_random_numbers(use_reentrant: bool) -> None:
    x = aj.ones(100, requires_grad=True)
    aj.manual_seed(1)
    y = checkpoint(lambda t: t * aj.rand(100) * t, x, use_reentrant=use_reentrant)
    state = aj.get_rng_state()
    y.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * y.detach().numpy(), rtol=1e-6)
    assert (aj.get_rng_state() == state).all()


@pytest.mark.parametrize("use_reentrant", [False, True])
@pytest.mark.parametrize("is_compiled", [False, True])
def test_both_runs_have_the_precision_of_the_first(use_reentrant: bool, is_compiled: bool) -> None:
    """Which backward's own surroundings do not change, in either direction."""
    x, seen = aj.ones(4, 4, requires_grad=True), []

    def product(t: aj.Tensor) -> aj.Tensor:
        seen.append((t @ t).dtype)
        return (t @ t).float()

    def step() -> None:
        for first, then in ((True, False), (False, True)):
            with aj.autocast("cpu", dtype=aj.bfloat16, enabled=first):
                found = checkpoint(product, x, use_reentrant=use_reentrant)
            with aj.autocast("cpu", dtype=aj.bfloat16, enabled=then):
                found.sum().backward()

    (aj.jit(step) if is_compiled else step)()
    assert seen[:2] == [aj.bfloat16] * 2 and seen[2:4] == [aj.float32] * 2


def test_a_function_that_does_something_else_the_second_time_is_noticed() -> None:
    x = leaf(2.0)
    calls: list[int] = []

    def fewer(t: aj.Tensor) -> aj.Tensor:
        calls.append(1)
        return t.exp().exp() if len(calls) == 1 else t.exp()

    with pytest.raises(CheckpointError, match="A different number of tensors was saved"):
        checkpoint(fewer, x, use_reentrant=False).sum().backward()
    calls.clear()

    def more(t: aj.Tensor) -> aj.Tensor:
        calls.append(1)
        return t.exp() if len(calls) == 1 else t.exp().exp()

    with pytest.raises(CheckpointError, match="save more tensors during recomputation"):
        checkpoint(more, x, use_reentrant=False, early_stop=False).sum().backward()
    calls.clear()

    def other(t: aj.Tensor) -> aj.Tensor:
        calls.append(1)
        return (t if len(calls) == 1 else aj.cat([t, t])).exp().sum()

    with pytest.raises(CheckpointError, match="different metadata"):
        checkpoint(other, x, use_reentrant=False).backward()


def test_arguments_must_not_change_before_backward() -> None:
    x = leaf(2.0) * 1
    y = checkpoint(lambda t: t.exp(), x, use_reentrant=False)
    x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_what_does_not_go_together_is_refused() -> None:
    x = leaf(2.0)
    with pytest.raises(ValueError, match="Unexpected keyword arguments"):
        checkpoint(lambda t, k: t, x, use_reentrant=True, k=1)
    with pytest.raises(ValueError, match="determinism_check should be one of"):
        checkpoint(lambda t: t, x, use_reentrant=False, determinism_check="never")
    with pytest.raises(RuntimeError, match=r"not compatible with \.grad"):
        aj.autograd.grad(checkpoint(lambda t: t.exp(), x, use_reentrant=True).sum(), x)
    with pytest.warns(UserWarning, match="use_reentrant parameter should be passed explicitly"):
        y = checkpoint(lambda t: t.exp(), x)
    y.sum().backward()
    with pytest.warns(UserWarning, match="None of the inputs have requires_grad=True"):
        checkpoint(lambda t: t.exp(), x.detach(), use_reentrant=True)


def test_keyword_arguments_and_nests_are_passed_on() -> None:
    x = leaf(2.0)
    y = checkpoint(lambda t, *, scale, more: {"y": t * t * scale + more[0]}, x, use_reentrant=False, scale=x, more=[1])
    y["y"].sum().backward()
    assert x.grad.item() == 12


def test_nothing_is_recorded_under_no_grad() -> None:
    x = leaf(2.0)
    with aj.no_grad():
        y = checkpoint(lambda t: t * t, x, use_reentrant=False)
    assert not y.requires_grad


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_chains_are_cut_into_segments(use_reentrant: bool) -> None:
    x = leaf(0.1)
    steps = [lambda t: t.exp(), lambda t: t.sin(), lambda t: t * t, lambda t: t + 1]
    checkpoint_sequential(steps, 2, x, use_reentrant=use_reentrant).sum().backward()
    v = np.exp(0.1)
    np.testing.assert_allclose(x.grad.numpy(), [2 * np.sin(v) * np.cos(v) * v], rtol=1e-12)


def test_passes_of_one_group_share_a_second_run() -> None:
    def run(is_grouped: bool) -> int:
        calls = 0

        def function(t: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
            nonlocal calls
            calls += 1
            y = t.sin().cos()
            return y, y.sin().cos()

        x = leaf(0.5, 1.5)
        y, z = checkpoint(function, x, use_reentrant=False)
        with GraphExecGroup() if is_grouped else nullcontext():
            (y_bar,) = aj.autograd.grad(z, y, aj.ones_like(z))
            (x_bar,) = aj.autograd.grad(y, x, y_bar)
        inner = x.detach().sin().cos()
        expected = x.sin().sin() * x.cos() * inner.sin().sin() * inner.cos()
        assert aj.allclose(x_bar, expected)
        return calls

    assert run(True) == 2
    assert run(False) == 3


def test_overlapping_passes_of_one_group_and_nested_groups_are_refused() -> None:
    x = leaf(0.5)
    y = checkpoint(lambda t: t.sin().cos(), x, use_reentrant=False)
    with GraphExecGroup():
        y.sum().backward(retain_graph=True)
        with pytest.raises(RuntimeError, match="two backward calls that overlap"):
            y.sum().backward()
        with pytest.raises(RuntimeError, match="cannot be nested"), GraphExecGroup():
            pass


@pytest.mark.parametrize("by_context", [False, True])
def test_debug_shows_what_both_runs_saved(by_context: bool) -> None:
    runs = []

    def changing(t: aj.Tensor) -> aj.Tensor:
        runs.append(1)
        return t.sin().exp() if len(runs) % 2 else t.sin() * aj.tensor([1.0, 2.0], dtype=aj.float64)

    x = leaf(0.5)
    with set_checkpoint_debug_enabled(True if by_context else None):
        y = checkpoint(changing, x, use_reentrant=False, debug=not by_context)
    with pytest.raises(CheckpointError, match="because you passed `debug=True` to checkpoint") as caught:
        y.sum().backward()
    assert "first run\n  f64[1]" in str(caught.value) and "second run" in str(caught.value)
    with set_checkpoint_debug_enabled(False):
        y = checkpoint(changing, x, use_reentrant=False, debug=True)
    with pytest.raises(CheckpointError) as caught:
        y.sum().backward()
    assert "second run" not in str(caught.value)


def test_a_saved_tensor_without_gradient_stays_the_same_object() -> None:
    class Keeps(aj.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: aj.Tensor, y: aj.Tensor) -> aj.Tensor:
            ctx.save_for_backward(y)
            return x

        @staticmethod
        def backward(ctx: Any, y_bar: aj.Tensor) -> Any:
            seen.append(ctx.saved_tensors[0])
            return y_bar, None

    seen: list[aj.Tensor] = []
    constant = aj.ones(1)
    checkpoint(Keeps.apply, leaf(0.5), constant, use_reentrant=False).backward()
    assert seen[0] is constant


def test_random_numbers_drawn_after_a_compiled_call_do_not_stand_in_the_way_of_its_gradient() -> None:
    compiled = aj.jit(lambda t: checkpoint(lambda s: s.sin().exp(), t, use_reentrant=False))
    x = leaf(0.5, 1.5)
    for _ in range(3):
        y = compiled(x)
        aj.rand(2)
        (found,) = aj.autograd.grad(y.sum(), x, retain_graph=True)
        aj.rand(2)
        (again,) = aj.autograd.grad(y.sum(), x)
        assert aj.allclose(found, x.sin().exp() * x.cos()) and aj.equal(found, again)
