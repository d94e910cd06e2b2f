"""Gradient modes: context, decorator, generator, thread, nesting."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

import autojit as aj


def leaf() -> aj.Tensor:
    return aj.tensor([1.0], requires_grad=True)


def test_nothing_is_recorded_inside_no_grad() -> None:
    x = leaf()
    with aj.no_grad():
        y = x * 2
        with aj.enable_grad():
            z = x * 2
        assert aj.zeros(2, requires_grad=True).requires_grad
    assert not y.requires_grad
    assert z.requires_grad
    assert (x * 2).requires_grad


@pytest.mark.parametrize("decorate", [aj.no_grad, aj.no_grad(), aj.inference_mode()])
def test_modes_decorate_with_and_without_parentheses(decorate: object) -> None:
    @decorate  # type: ignore[operator, untyped-decorator]
    def double(x: aj.Tensor) -> aj.Tensor:
        """Twice."""
        return x * 2

    assert not double(leaf()).requires_grad
    assert double.__wrapped__ is not None
    assert double.__doc__ == "Twice."
    assert aj.is_grad_enabled()


def test_the_mode_of_a_generator_holds_only_inside_its_body() -> None:
    @aj.no_grad()
    def states() -> Iterator[bool]:
        yield aj.is_grad_enabled()
        yield aj.is_grad_enabled()

    generator = states()
    assert next(generator) is False
    assert aj.is_grad_enabled()
    assert next(generator) is False
    assert aj.is_grad_enabled()


def test_set_grad_enabled_is_a_function_and_a_context_manager() -> None:
    with aj.set_grad_enabled(False):
        assert not aj.is_grad_enabled()
    assert aj.is_grad_enabled()
    aj.set_grad_enabled(False)
    assert not aj.is_grad_enabled()
    aj.set_grad_enabled(True)

    @aj.set_grad_enabled(False)
    def state() -> bool:
        return aj.is_grad_enabled()

    assert aj.is_grad_enabled()
    assert not state()


def test_modes_are_restored_after_an_exception_and_differ_between_threads() -> None:
    seen = []
    with pytest.raises(KeyError), aj.no_grad():
        thread = threading.Thread(target=lambda: seen.append(aj.is_grad_enabled()))
        thread.start()
        thread.join()
        raise KeyError
    assert seen == [True]
    assert aj.is_grad_enabled()


def test_a_decorated_function_may_call_itself() -> None:
    @aj.no_grad()
    def count(n: int) -> int:
        assert not aj.is_grad_enabled()
        return 0 if n == 0 else 1 + count(n - 1)

    assert count(5) == 5
    assert aj.is_grad_enabled()
