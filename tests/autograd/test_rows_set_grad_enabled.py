"""Rows of ``set_grad_enabled`` and of its page in 1.0."""

from __future__ import annotations

import threading

import pytest

import autojit as aj
from autojit.autograd.grad_mode import _DecoratorContextManager, _NoParamDecoratorContextManager
from tests.autograd.mode_checks import check_threads, leaf, thrice
from tests.autograd.modes import Mode


def test_S1_25_set_grad_enabled_takes_a_flag(mode: Mode) -> None:
    def body(x: aj.Tensor) -> list[bool]:
        found = []
        for flag in (True, False):
            with aj.set_grad_enabled(flag):
                found.append((x * 2).requires_grad)
            with aj.set_grad_enabled(mode=not flag):
                found.append((x * 2).requires_grad)
        return found

    assert thrice(mode(body), leaf()) == [True, False, False, True]
    for wrong in (1, None, "no"):
        with pytest.raises(TypeError, match="must be bool, not"):
            aj.set_grad_enabled(wrong)  # type: ignore[arg-type]
    assert aj.is_grad_enabled()


def check_two_uses(mode: Mode) -> None:
    def body(x: aj.Tensor) -> list[bool]:
        aj.set_grad_enabled(False)
        found = [aj.is_grad_enabled(), (x * 2).requires_grad]
        with aj.set_grad_enabled(True):
            found.append(aj.is_grad_enabled())
        found.append(aj.is_grad_enabled())
        aj.set_grad_enabled(True)

        @aj.set_grad_enabled(False)
        def inner() -> bool:
            return aj.is_grad_enabled()

        return [*found, aj.is_grad_enabled(), inner(), aj.is_grad_enabled()]

    assert thrice(mode(body), leaf()) == [False, False, True, False, True, False, True]
    assert aj.is_grad_enabled()

    def leaving(x: aj.Tensor) -> aj.Tensor:
        aj.set_grad_enabled(False)
        return x * 2

    function = mode(leaving)
    for _ in range(3):
        try:
            assert not function(leaf()).requires_grad
            assert not aj.is_grad_enabled()
        finally:
            aj.set_grad_enabled(True)


def test_S1_26_set_grad_enabled_is_a_function_and_a_context(mode: Mode) -> None:
    check_two_uses(mode)


def test_S1_27_set_grad_enabled_holds_for_one_thread(mode: Mode) -> None:
    check_threads(mode, lambda: aj.set_grad_enabled(False), False)
    check_threads(mode, lambda: aj.set_grad_enabled(True), True)


def example_set_grad_enabled(mode: Mode) -> None:
    def body(x: aj.Tensor, is_train: bool) -> list[bool]:
        with aj.set_grad_enabled(is_train):
            y = x * 2
        found = [y.requires_grad]
        _ = aj.set_grad_enabled(True)
        y = x * 2
        found.append(y.requires_grad)
        _ = aj.set_grad_enabled(False)
        y = x * 2
        found.append(y.requires_grad)
        _ = aj.set_grad_enabled(True)
        return found

    assert thrice(mode(body), leaf(), False) == [False, True, False]


def test_S1_29_the_example_of_set_grad_enabled(mode: Mode) -> None:
    example_set_grad_enabled(mode)


def test_S1_30_a_clone_keeps_the_mode_and_changes_nothing(mode: Mode) -> None:
    def body(x: aj.Tensor) -> list[bool]:
        manager = aj.set_grad_enabled(False)
        aj.set_grad_enabled(True)
        clone = manager.clone()
        found = [clone.mode, aj.is_grad_enabled()]
        with clone:
            found.append((x * 2).requires_grad)
        return [*found, aj.is_grad_enabled()]

    assert thrice(mode(body), leaf()) == [False, True, False, True]


def test_S1_31_a_decorated_function_is_reentrant_and_thread_safe(mode: Mode) -> None:
    assert issubclass(aj.no_grad, _NoParamDecoratorContextManager)
    assert issubclass(aj.enable_grad, _NoParamDecoratorContextManager)
    assert issubclass(_NoParamDecoratorContextManager, _DecoratorContextManager)
    for manager in (aj.set_grad_enabled, aj.inference_mode):
        assert issubclass(manager, _DecoratorContextManager)
    from autojit.utils._contextlib import _DecoratorContextManager as there

    assert there is _DecoratorContextManager

    @aj.no_grad()
    def down(x: aj.Tensor, n: int) -> aj.Tensor:
        assert not aj.is_grad_enabled()
        return x if n == 0 else up(x * 2, n - 1)

    @aj.enable_grad
    def up(x: aj.Tensor, n: int) -> aj.Tensor:
        assert aj.is_grad_enabled()
        return x if n == 0 else down(x * 2, n - 1)

    function = mode(lambda x: down(x, 7))
    x = leaf()
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(20):
                assert not function(x).requires_grad
                assert aj.is_grad_enabled()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert aj.is_grad_enabled()

    with pytest.warns(FutureWarning, match="Decorating classes"):

        @aj.no_grad()
        class Model:
            def __init__(self) -> None:
                self.recorded = aj.is_grad_enabled()

    assert not Model().recorded


def test_S3_31_set_grad_enabled_switches_on_and_off(mode: Mode) -> None:
    def body(x: aj.Tensor, flag: bool) -> bool:
        with aj.set_grad_enabled(flag):
            return bool((x * 2).requires_grad)

    function = mode(body)
    for flag in (True, False, True, False):
        assert function(leaf(), flag) is flag


def test_S3_32_set_grad_enabled_is_a_function_and_a_context(mode: Mode) -> None:
    check_two_uses(mode)


def test_S3_33_the_example_gives_false_true_false(mode: Mode) -> None:
    example_set_grad_enabled(mode)
