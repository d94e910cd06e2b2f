"""Reference rows of the gradient modes: no_grad, enable_grad, set_grad_enabled, and their common base."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import autojit as aj
from autojit.ir.op import Op
from autojit.tensor.node import sequence_mark
from tests.autograd.mode_checks import check_threads, leaf, thrice
from tests.autograd.modes import Mode

# -- the three forms, nesting


def test_S1_08_enable_grad_is_a_context_a_decorator_and_a_bare_decorator(mode: Mode) -> None:
    @aj.enable_grad()
    def doubler(x: aj.Tensor) -> aj.Tensor:
        return x * 2

    @aj.enable_grad
    def tripler(x: aj.Tensor) -> aj.Tensor:
        """Three times."""
        return x * 3

    def body(x: aj.Tensor) -> Any:
        with aj.no_grad():
            with aj.enable_grad():
                y = x * 1
            return y, doubler(x), tripler(x)

    assert all(y.requires_grad for y in thrice(mode(body), leaf()))
    assert callable(tripler.__wrapped__)  # type: ignore[attr-defined]
    assert tripler.__doc__ == "Three times."
    assert tripler.__name__ == "tripler"


def check_nesting(mode: Mode) -> None:
    managers = {True: (aj.enable_grad, lambda: aj.set_grad_enabled(True)),
                False: (aj.no_grad, lambda: aj.set_grad_enabled(False))}  # fmt: skip

    def body(x: aj.Tensor) -> Any:
        found = []
        for outer in (True, False):
            for inner in (True, False):
                for make_outer in managers[outer]:
                    for make_inner in managers[inner]:
                        with make_outer():
                            with pytest.raises(KeyError), make_inner():
                                assert (x * 2).requires_grad is inner
                                raise KeyError
                            found.append(aj.is_grad_enabled() is outer)
                        found.append(aj.is_grad_enabled())
        return found

    assert all(thrice(mode(body), leaf()))
    assert aj.is_grad_enabled()


def test_S1_09_modes_nest_both_ways_and_are_restored_after_exceptions(mode: Mode) -> None:
    check_nesting(mode)


def test_S1_10_enable_grad_holds_for_one_thread(mode: Mode) -> None:
    check_threads(mode, aj.enable_grad, True)


def check_generator(mode: Mode, decorate: Callable[..., Any], inside: bool) -> None:
    """The mode of a decorated generator holds only while its body runs: next, send, throw, close, return."""
    closed = []

    @decorate
    def states(x: aj.Tensor) -> Iterator[Any]:
        sent = yield (x * 2).requires_grad
        assert sent == "sent"
        try:
            yield aj.is_grad_enabled()
        except KeyError:
            yield aj.is_grad_enabled()
        try:
            yield aj.is_grad_enabled()
        finally:
            closed.append(aj.is_grad_enabled())

    def body(x: aj.Tensor) -> Any:
        outside = []
        generator: Any = states(x)
        found = [next(generator)]
        outside.append(aj.is_grad_enabled())
        found.append(generator.send("sent"))
        outside.append(aj.is_grad_enabled())
        found.append(generator.throw(KeyError()))
        outside.append(aj.is_grad_enabled())
        found.append(next(generator))
        generator.close()
        return found, outside, aj.is_grad_enabled()

    found, outside, after = thrice(mode(body), leaf())
    assert found == [inside] * 4
    assert outside == [True] * 3
    assert after
    assert set(closed) == {inside}
    with aj.set_grad_enabled(not inside):
        result = []

        @decorate
        def returning() -> Iterator[int]:
            yield 1
            return 7

        def outer() -> Iterator[int]:
            result.append((yield from returning()))

        assert list(outer()) == [1]
        assert result == [7]
        assert aj.is_grad_enabled() is not inside


def test_S1_11_the_mode_of_a_generator_holds_while_its_body_runs(mode: Mode) -> None:
    check_generator(mode, aj.enable_grad(), True)
    check_generator(mode, aj.enable_grad, True)


# -- examples of the pages


def example_enable(mode: Mode) -> None:
    x = leaf()

    def body(x: aj.Tensor) -> Any:
        with aj.no_grad(), aj.enable_grad():
            return x * 2

    function = mode(body)
    for _ in range(3):
        x.grad = None
        y = function(x)
        assert y.requires_grad
        y.backward()
        assert repr(x.grad.cpu()) == "tensor([2.])"


def test_S1_14_the_result_inside_enable_grad_is_recorded(mode: Mode) -> None:
    example_enable(mode)


def test_S1_15_decorated_functions_record_under_no_grad(mode: Mode) -> None:
    @aj.enable_grad()
    def doubler(x: aj.Tensor) -> aj.Tensor:
        return x * 2

    @aj.enable_grad
    def tripler(x: aj.Tensor) -> aj.Tensor:
        return x * 3

    def body(x: aj.Tensor) -> Any:
        with aj.no_grad():
            return doubler(x), tripler(x)

    z, w = thrice(mode(body), leaf())
    assert z.requires_grad
    assert w.requires_grad

    def view(x: aj.Tensor) -> aj.Tensor:
        return x[:1]

    x = leaf()
    for function in (mode(doubler), mode(tripler), mode(aj.enable_grad(view)), aj.enable_grad(mode(doubler))):
        with aj.no_grad():
            for _ in range(3):
                assert function(x).requires_grad
                assert function(x).grad_fn is not None


# -- no_grad


def deep(x: aj.Tensor) -> aj.Tensor:
    for _ in range(20):
        x = (x * 1.0001).tanh()
    return x


def peak_bytes(function: Callable[[], Any]) -> int:
    gc.collect()
    tracemalloc.start()
    try:
        kept = function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        del kept


def check_memory(mode: Mode) -> None:
    x = aj.ones(100_000, requires_grad=True)
    deep(x)  # plans of the ops are made once
    with aj.no_grad():
        mark = sequence_mark()
        deep(x)
        assert sequence_mark() - mark <= 1  # no node was numbered in between
    recording = peak_bytes(lambda: deep(x))
    with aj.no_grad():
        silent = peak_bytes(lambda: deep(x))
        function = mode(deep)
        thrice(function, x)
        compiled = peak_bytes(lambda: function(x))
    assert silent <= recording / 5
    assert compiled <= recording / 5


def test_S1_16_no_grad_keeps_nothing(mode: Mode) -> None:
    check_memory(mode)


def registered_cases() -> list[tuple[Op, list[aj.Tensor]]]:
    """Every registered op with the samples it brings, in a real and a complex dtype."""
    cases = []
    for op_class in Op.registry.load().values():
        if not op_class.__module__.startswith("autojit.ops.") or not hasattr(op_class, "samples"):
            continue
        for dtype in (aj.float64, aj.complex128):
            for op, arrays in op_class.samples(dtype):
                operands = [aj.from_numpy(a) for a in arrays]
                for t in operands:
                    t.requires_grad_(t.dtype.is_floating_point or t.dtype.is_complex)
                cases.append((op, operands))
    return cases


def check_flags(mode: Mode) -> None:
    cases = registered_cases()
    assert len(cases) > 300
    for start in range(0, len(cases), 40):
        chunk = cases[start : start + 40]
        operands = [ts for _, ts in chunk]

        def body(operands: list[list[aj.Tensor]], chunk: Any = chunk) -> list[Any]:
            with aj.no_grad():
                return [aj.Tensor._apply(op, *ts) for (op, _), ts in zip(chunk, operands, strict=True)]

        results = mode(body)(operands)
        for (op, _), found in zip(chunk, results, strict=True):
            for y in found if isinstance(found, tuple | list) else (found,):
                assert y.grad_fn is None, op.name
                if not op.is_view:  # a view that shares memory shows the flag of its base, as in PyTorch
                    assert not y.requires_grad, op.name


@pytest.mark.usefixtures("lightly_compiled")
def test_S1_17_no_result_requires_gradients_under_no_grad(mode: Mode) -> None:
    check_flags(mode)


def test_S1_18_factories_are_not_affected_by_no_grad(mode: Mode) -> None:
    def body() -> list[bool]:
        with aj.no_grad():
            made = [
                aj.zeros(2, requires_grad=True), aj.ones(2, requires_grad=True), aj.rand(2, requires_grad=True),
                aj.randn(2, requires_grad=True), aj.full((2,), 1.0, requires_grad=True),
                aj.tensor(1.0, requires_grad=True), aj.arange(2.0, requires_grad=True),
                aj.eye(2, requires_grad=True), aj.linspace(0, 1, 3, requires_grad=True),
                aj.zeros_like(aj.ones(2), requires_grad=True), aj.ones(2).new_zeros(2, requires_grad=True),
                aj.empty(2, requires_grad=True),
            ]  # fmt: skip
        return [t.requires_grad for t in made]

    assert thrice(mode(body)) == [True] * 12


def test_S1_19_no_grad_holds_for_one_thread(mode: Mode) -> None:
    check_threads(mode, aj.no_grad, False)


def test_S1_20_no_grad_decorates_functions_and_generators(mode: Mode) -> None:
    check_generator(mode, aj.no_grad(), False)
    check_generator(mode, aj.no_grad, False)


def test_S1_22_nothing_is_recorded_in_the_three_forms(mode: Mode) -> None:
    @aj.no_grad()
    def doubler(x: aj.Tensor) -> aj.Tensor:
        return x * 2

    @aj.no_grad
    def tripler(x: aj.Tensor) -> aj.Tensor:
        return x * 3

    def body(x: aj.Tensor) -> Any:
        with aj.no_grad():
            y = x * 2
        return y, doubler(x), tripler(x)

    assert [t.requires_grad for t in thrice(mode(body), leaf())] == [False] * 3


def test_S1_23_a_parameter_made_under_no_grad_requires_gradients(mode: Mode) -> None:
    def body() -> bool:
        with aj.no_grad():
            a = aj.nn.Parameter(aj.rand(10))
        return a.requires_grad

    assert thrice(mode(body)) is True


def test_S1_24_a_clone_of_no_grad_is_a_fresh_manager(mode: Mode) -> None:
    def body(x: aj.Tensor) -> list[bool]:
        manager = aj.no_grad()
        assert type(manager.clone()) is aj.no_grad
        found = []
        with manager:
            with manager.clone(), manager:
                found.append(aj.is_grad_enabled())
            found.append((x * 2).requires_grad)
        found.append((x * 2).requires_grad)
        return found

    assert thrice(mode(body), leaf()) == [False, False, True]


# -- the same on the page of 1.0


def test_S3_04_one_keyword_gives_gradients(mode: Mode) -> None:
    def loss(w: aj.Tensor) -> aj.Tensor:
        return ((w * aj.tensor([1.0, 2.0, 3.0])).sum() - 1) ** 2

    w = aj.zeros(3, requires_grad=True)
    loss_of = mode(loss)
    for _ in range(3):
        w.grad = None
        loss_of(w).backward()
        assert w.grad is not None
        assert w.grad.tolist() == [-2.0, -4.0, -6.0]


def test_S3_23_no_grad_saves_memory(mode: Mode) -> None:
    check_memory(mode)


def test_S3_24_results_require_no_gradients_whatever_the_inputs(mode: Mode) -> None:
    def body(x: aj.Tensor, y: aj.Tensor) -> Any:
        with aj.no_grad():
            return x * y, x @ y, x.exp(), aj.cat([x, y]), x.sum(), x.max(0).values, x.abs(), x.sort().values

    x = aj.ones(2, 2, requires_grad=True)
    assert not any(t.requires_grad for t in thrice(mode(body), x, x * 1))


def test_S3_25_no_grad_is_a_decorator(mode: Mode) -> None:
    check_generator(mode, aj.no_grad(), False)


def test_S3_26_the_example_of_no_grad(mode: Mode) -> None:
    @aj.no_grad()
    def doubler(x: aj.Tensor) -> aj.Tensor:
        return x * 2

    def body(x: aj.Tensor) -> Any:
        with aj.no_grad():
            y = x * 2
        return y, doubler(x)

    y, z = thrice(mode(body), aj.tensor([1.0], requires_grad=True))
    assert y.requires_grad is False
    assert z.requires_grad is False
    with pytest.raises(RuntimeError, match="floating point"):  # the page's literal is [1]; see the conflict rules
        aj.tensor([1], requires_grad=True)


def test_S3_27_enable_grad_records_inside_no_grad(mode: Mode) -> None:
    check_nesting(mode)


def test_S3_28_enable_grad_has_no_effect_outside_no_grad(mode: Mode) -> None:
    def body(x: aj.Tensor) -> Any:
        before = aj.is_grad_enabled()
        with aj.enable_grad():
            y, inside = x * 2, aj.is_grad_enabled()
        return [before, inside, y.requires_grad, aj.is_grad_enabled()]

    assert thrice(mode(body), leaf()) == [True] * 4


def test_S3_29_enable_grad_is_a_decorator(mode: Mode) -> None:
    check_generator(mode, aj.enable_grad(), True)


def test_S3_30_the_example_of_enable_grad(mode: Mode) -> None:
    example_enable(mode)

    @aj.enable_grad()
    def doubler(x: aj.Tensor) -> aj.Tensor:
        return x * 2

    def body(x: aj.Tensor) -> aj.Tensor:
        with aj.no_grad():
            return doubler(x)

    assert thrice(mode(body), leaf()).requires_grad is True  # the page lost the printed value
