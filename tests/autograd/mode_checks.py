"""What tests of gradient modes share."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import autojit as aj
from tests.autograd.modes import Mode


def leaf() -> aj.Tensor:
    return aj.tensor([1.0], requires_grad=True)


def thrice(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call three times: the first call of a compiled function captures, later ones run native code."""
    results = [function(*arguments) for _ in range(3)]
    assert repr(results[0]) == repr(results[1]) == repr(results[2])
    return results[-1]


def check_threads(mode: Mode, manager: Callable[[], Any], inside: bool) -> None:
    """Two threads in different modes: each sees its own, and a new one starts enabled."""
    function = mode(lambda x: x * 2)
    x, seen = leaf(), {}
    entered, looked = threading.Event(), threading.Event()

    def other() -> None:
        seen["new"] = aj.is_grad_enabled()
        with aj.enable_grad() if not inside else aj.no_grad():
            entered.set()
            looked.wait(120)
            seen["other"] = thrice(function, x).requires_grad

    thread = threading.Thread(target=other)
    with manager():
        thread.start()
        entered.wait(120)
        seen["own"] = thrice(function, x).requires_grad
        looked.set()
        thread.join()
        assert aj.is_grad_enabled() is inside
    assert seen == {"new": True, "other": not inside, "own": inside}
    assert aj.is_grad_enabled()
