"""Reference rows of in-place changes, detaching and the correctness check (the old Variable API included)."""

from __future__ import annotations

import gc
import inspect
import tracemalloc
import warnings
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.autograd import Variable
from tests.autograd.modes import Mode


def leaf(*values: float) -> aj.Tensor:
    return aj.tensor(values, dtype=aj.float64, requires_grad=True)


def line_of(text: str) -> int:
    """The line of this file that holds ``text`` first."""
    return next(n for n, line in enumerate(Path(__file__).read_text().splitlines(), 1) if text in line)


def needs_no_argument(function: Any) -> bool:
    try:
        parameters = list(inspect.signature(function).parameters.values())[1:]
    except ValueError:
        return False
    return all(p.default is not p.empty or p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters)


NEEDS_MORE = {
    "hsplit",
    "vsplit",
    "dsplit",
    "tensor_split",
    "backward",
    "retain_grad",
    "cuda",
    "expand",
    "permute",
    "view",
    "reshape",
    "repeat",
    "tile",
    "flip",
    "new_empty",
    "new_ones",
    "new_zeros",
}


def test_S2_16_nearly_every_method_works_on_variables(mode: Mode) -> None:
    mode.does_not_apply("a registry of methods; what they compute is compiled in the tests of each op")
    with warnings.catch_warnings(action="ignore"):
        v = Variable(aj.eye(2) + 1, requires_grad=True)
        methods = {n: f for n, f in inspect.getmembers(aj.Tensor) if callable(f) and not n.startswith("_")}
        assert len(methods) > 400
        assert all(callable(getattr(v, name)) for name in methods)
        called = 0
        for name, function in methods.items():
            if name.endswith("_") or name in NEEDS_MORE or not needs_no_argument(function):
                continue
            if name.startswith(("bitwise", "is_")) or inspect.isclass(function):
                continue
            try:
                getattr(v, name)()
            except (RuntimeError, TypeError, ValueError, NotImplementedError) as error:
                assert "numpy()" in str(error) or not isinstance(error, TypeError), name
            else:
                called += 1
        assert called > 120
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        v.exp_()  # the exception: a method that would overwrite what the gradient needs


def in_place_chain(x: aj.Tensor) -> aj.Tensor:
    y = x * 2
    y.add_(1).mul_(x).clamp_(max=2.0)
    return y.sum()


def out_of_place_chain(x: aj.Tensor) -> aj.Tensor:
    return ((x * 2 + 1) * x).clamp(max=2.0).sum()


def in_place_rows(x: aj.Tensor) -> aj.Tensor:
    y = x * 2
    y[0] = y[1] * 3
    y[:, 0].add_(1)
    return (y * y).sum()


def out_of_place_rows(x: aj.Tensor) -> aj.Tensor:
    y = aj.cat([(x[1] * 6)[None], x[1:] * 2])
    y = aj.cat([y[:, :1] + 1, y[:, 1:]], 1)
    return (y * y).sum()


def in_place_normalisation(x: aj.Tensor) -> aj.Tensor:
    y = x.clone()
    y.sub_(y.mean(1, keepdim=True))
    z = y / (y * y).mean(1, keepdim=True).add_(1e-5).sqrt_()
    z.add_(1).mul_(0.5)
    return z.sum()


def out_of_place_normalisation(x: aj.Tensor) -> aj.Tensor:
    y = x - x.mean(1, keepdim=True)
    return ((y / ((y * y).mean(1, keepdim=True) + 1e-5).sqrt() + 1) * 0.5).sum()


MODELS = [
    (in_place_chain, out_of_place_chain),
    (in_place_rows, out_of_place_rows),
    (in_place_normalisation, out_of_place_normalisation),
]


def check_out_of_place_uses_no_more_memory(mode: Mode, models: tuple[Any, Any]) -> None:
    changing, plain = models
    x = aj.linspace(-1, 1, 256 * 64, dtype=aj.float64).reshape(256, 64)

    def step(function: Callable[[aj.Tensor], aj.Tensor]) -> Callable[[aj.Tensor], aj.Tensor]:
        return lambda x: aj.autograd.grad(function(x), x)[0]

    steps = [mode(step(changing)), mode(step(plain))]
    found = [compute(x.clone().requires_grad_()) for compute in steps]
    np.testing.assert_allclose(found[0].numpy(), found[1].numpy(), rtol=1e-12)
    if mode.is_jit:
        with_changes, without = [compute.memory()["arena_bytes"] for compute in steps]
        assert without <= with_changes


@pytest.mark.parametrize("models", MODELS, ids=lambda m: m[1].__name__)
def test_S2_17_in_place_saves_no_memory_in_compiled_code(mode: Mode, models: tuple[Any, Any]) -> None:
    check_out_of_place_uses_no_more_memory(mode, models)


@pytest.mark.parametrize("models", MODELS, ids=lambda m: m[1].__name__)
def test_S3_34_in_place_changes_are_supported_and_not_needed(mode: Mode, models: tuple[Any, Any]) -> None:
    check_out_of_place_uses_no_more_memory(mode, models)


def changes_a_saved_result(x: aj.Tensor) -> aj.Tensor:
    y = x.exp()
    y.add_(1)  # exp needs its result for the derivative
    return y.sum()


def check_the_saved_result_is_guarded(mode: Mode) -> None:
    """The error when backward starts; a trace that keeps the old value gives the right gradient instead."""

    def step(x: aj.Tensor) -> aj.Tensor:
        total = changes_a_saved_result(x)
        total.backward()
        return total

    x = leaf(0.0, 1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation") as caught:
        mode(step)(x)
    message = str(caught.value)
    assert "DoubleTensor [2]]" in message
    assert "which is output 0 of Exp" in message
    assert "is at version 1; expected version 0 instead" in message
    assert f"test_rows_views.py:{line_of('exp needs its result for the derivative')}" in message
    assert x.grad is None


def test_S2_18_a_change_of_what_the_gradient_needs_is_an_error_of_backward(mode: Mode) -> None:
    check_the_saved_result_is_guarded(mode)

    def harmless(x: aj.Tensor) -> aj.Tensor:
        y = x * 2
        y.add_(1)  # mul by a number needs nothing of y
        return aj.autograd.grad(y.sum(), x)[0]

    run = mode(harmless)
    for _ in range(3):
        assert run(leaf(1.0, 2.0)).tolist() == [2.0, 2.0]


def test_S3_36_the_correctness_check_watches_tensors(mode: Mode) -> None:
    check_the_saved_result_is_guarded(mode)

    def operand(x: aj.Tensor, w: aj.Tensor) -> None:
        y = (x * w).sum()
        with aj.no_grad():
            w.mul_(2)
        y.backward()

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        mode(operand)(leaf(1.0), leaf(2.0))


def check_detached(mode: Mode) -> None:
    def step(x: aj.Tensor) -> tuple[Any, ...]:
        y = x * 3
        z = y.detach()
        kept = (z.requires_grad, z.grad_fn is None, z.is_leaf)
        return z, (y * z).sum(), kept

    run = mode(step)
    for _ in range(3):
        x = leaf(1.0, 2.0)
        z, total, kept = run(x)
        assert kept == (False, True, True)
        assert not z.requires_grad
        total.backward()
        assert x.grad is not None
        assert x.grad.tolist() == [9.0, 18.0]  # only through y


def test_S2_33_detach_is_cut_from_the_graph(mode: Mode) -> None:
    check_detached(mode)
    with warnings.catch_warnings(action="ignore"):
        from autojit.compat import v0_3

        source = v0_3.Variable(aj.ones(2), volatile=True)
        assert source.detach().volatile


def test_S3_47_detach_never_requires_gradients(mode: Mode) -> None:
    check_detached(mode)
    assert not leaf(1.0).detach().requires_grad


def check_shared_counter(mode: Mode) -> None:
    x = leaf(1.0, 2.0)
    y = x.exp()
    z = y.detach()
    z.zero_()
    assert y.tolist() == [0.0, 0.0]
    assert y._version == z._version == 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()

    def step(x: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
        y = x * 2
        y.detach().add_(1)
        return y.detach(), aj.autograd.grad((y * y.detach()).sum(), x)[0]

    run = mode(step)
    for _ in range(3):
        seen, gradient = run(leaf(1.0, 2.0))
        assert seen.tolist() == [3.0, 5.0]
        assert gradient.tolist() == [6.0, 10.0]

    def forbidden(x: aj.Tensor) -> aj.Tensor:
        y = x.exp()
        y.detach().zero_()
        return aj.autograd.grad(y.sum(), x)[0]

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        mode(forbidden)(x)


def test_S2_34_detach_shares_data_and_version(mode: Mode) -> None:
    check_shared_counter(mode)


def test_S3_48_changes_of_a_detached_tensor_are_seen_and_checked(mode: Mode) -> None:
    check_shared_counter(mode)


def test_S2_35_detach_in_place_makes_a_leaf(mode: Mode) -> None:
    def step(x: aj.Tensor) -> tuple[Any, ...]:
        y = x * 2
        y.detach_()
        return y, (y.is_leaf, y.grad_fn is None, y.requires_grad)

    run = mode(step)
    for _ in range(2):
        y, said = run(leaf(1.0))
        assert said == (True, True, False)
        assert y.tolist() == [2.0]

    def of_a_view(x: aj.Tensor) -> aj.Tensor:
        return (x * 2)[:1].detach_()

    with pytest.raises(RuntimeError, match="Can't detach views in-place") as caught:
        mode(of_a_view)(leaf(1.0, 2.0))
    assert "fix" in str(caught.value)


def test_S3_35_saved_tensors_are_freed_as_backward_consumes_them(mode: Mode) -> None:
    layers, size = 50, 40_000
    scales = [aj.tensor(0.5 + 0.01 * k, dtype=aj.float64) for k in range(layers)]

    def forward(x: aj.Tensor) -> list[aj.Tensor]:
        found = [x]
        for scale in scales:
            found.append((found[-1] * scale).tanh())
        return found

    x = aj.linspace(-1, 1, size, dtype=aj.float64).requires_grad_()
    if mode.is_jit:
        compiled = aj.jit(lambda x: aj.autograd.grad(forward(x)[-1].sum(), x)[0])
        compiled(x)
        # every layer keeps its result until its own derivative ran: their memory and no more than a few buffers
        assert compiled.memory()["arena_bytes"] <= (layers + 4) * 8 * size
        return
    live: list[int] = []
    gc.collect()
    tracemalloc.start()
    try:
        outputs = forward(x)
        total = outputs[-1].sum()
        for y in outputs[1:]:
            y.register_hook(lambda g: live.append(tracemalloc.get_traced_memory()[0]))
        del outputs, y
        total.backward()
    finally:
        tracemalloc.stop()
    assert len(live) == layers
    late = live[layers // 2 :]
    assert all(later < earlier for earlier, later in pairwise(late))
    assert live[0] - live[-1] > 0.9 * layers * 8 * size
