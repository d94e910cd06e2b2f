"""However the managers of gradients and of inference are nested, eager or in a step, one rule says what records."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj

Modes = tuple[bool, bool]  # gradients are on, inference mode is on
MANAGERS: dict[str, tuple[Callable[[], Any], Callable[[Modes], Modes]]] = {
    "no_grad": (lambda: aj.no_grad(), lambda m: (False, m[1])),
    "enable_grad": (lambda: aj.enable_grad(), lambda m: (True, m[1])),
    "set_grad_enabled(True)": (lambda: aj.set_grad_enabled(True), lambda m: (True, m[1])),
    "set_grad_enabled(False)": (lambda: aj.set_grad_enabled(False), lambda m: (False, m[1])),
    "inference_mode": (lambda: aj.inference_mode(), lambda m: (False, True)),
    "inference_mode(False)": (lambda: aj.inference_mode(False), lambda m: (True, False)),
}


def seen(w: Any) -> list[Any]:
    made = [w * 2, (w * w).sum(), aj.softmax(w, 0), aj.cat([w, w]), w.max(0).values]
    return [
        [t.requires_grad for t in made],
        [t.is_inference() for t in made],
        w[1:].is_inference(),
        aj.is_grad_enabled(),
        aj.is_inference_mode_enabled(),
    ]


def expected(modes: Modes) -> list[Any]:
    grad, inference = modes
    return [[grad and not inference] * 5, [inference] * 5, False, grad, inference]


@pytest.mark.parametrize("seed", range(40))
def test_nested_managers_follow_one_rule(seed: int) -> None:
    rng = random.Random(seed)
    outer, inner = (rng.choices(list(MANAGERS), k=rng.randint(0, 3)) for _ in range(2))
    w = aj.tensor([1.0, 2.0, 3.0], requires_grad=True)

    def run(w: Any) -> list[Any]:
        with contextlib.ExitStack() as stack:
            for name in inner:
                stack.enter_context(MANAGERS[name][0]())
            found = seen(w)
        return [*found, aj.is_grad_enabled(), aj.is_inference_mode_enabled()]

    step = aj.jit(run)
    modes = outside = (True, False)
    for length in (len(outer), 0, len(outer)):  # the same step outside and inside
        modes = (True, False)
        with contextlib.ExitStack() as stack:
            for name in outer[:length]:
                stack.enter_context(MANAGERS[name][0]())
                modes = MANAGERS[name][1](modes)
            outside = modes
            for name in inner:
                modes = MANAGERS[name][1](modes)
            for _ in range(2):
                assert run(w) == [*expected(modes), *outside]
                assert step(w) == [*expected(modes), *outside], (outer, inner)
    assert (aj.is_grad_enabled(), aj.is_inference_mode_enabled()) == (True, False)
