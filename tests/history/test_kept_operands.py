"""Nodes of composites keep what their rules read: other operands may change before the backward pass, as in torch."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pytest

import autojit as aj
from autojit.nn import functional as F


class Case(NamedTuple):
    """A function of so many operands, and what is kept of them where some require gradients, by their letters.

    ``bc:a`` says: where ``a`` requires one, ``b`` and ``c`` are kept.
    """

    function: Callable[..., Any]
    count: int
    kept: str


CASES: dict[str, Case] = {
    "lerp": Case(aj.lerp, 3, "c:a c:b abc:c"),  # torch: "ab:c"; here c chooses the formula
    "lerp by a number": Case(lambda a, b: aj.lerp(a, b, 0.3), 2, ""),
    "addcmul": Case(lambda a, b, c: aj.addcmul(a, b, c, value=2), 3, "c:b b:c"),
    "addcdiv": Case(lambda a, b, c: aj.addcdiv(a, b, c), 3, "c:b bc:c"),
    "cross": Case(aj.linalg.cross, 2, "b:a a:b"),
    "outer": Case(lambda a, b: aj.outer(a[0], b[0]), 2, "b:a a:b"),
    "dot": Case(lambda a, b: aj.dot(a[0], b[0]), 2, "b:a a:b"),
    "copysign": Case(aj.copysign, 2, "a:a"),
    "mse_loss": Case(F.mse_loss, 2, "ab:a ab:b"),
    "huber_loss": Case(F.huber_loss, 2, "ab:a ab:b"),
    "smooth_l1_loss": Case(F.smooth_l1_loss, 2, "ab:a ab:b"),
}
ASKED = [(name, wanted) for name, case in CASES.items() for wanted in product((True, False), repeat=case.count)]


def kept_by(case: Case, wanted: tuple[bool, ...]) -> set[str]:
    """The letters of the operands that are kept where these require gradients."""
    asking = {letter for letter, is_wanted in zip("abc", wanted, strict=False) if is_wanted}
    rules = [rule.split(":") for rule in case.kept.split()]
    return {letter for kept, of in rules if of in asking for letter in kept}


def operands_of(case: Case, wanted: tuple[bool, ...]) -> list[Any]:
    draws = np.random.default_rng(3)
    made = [aj.tensor(draws.uniform(0.5, 2.0, (4, 3))) for _ in range(case.count)]
    return [t.requires_grad_() * 1.0 if is_wanted else t for t, is_wanted in zip(made, wanted, strict=True)]


def gradients(case: Case, wanted: tuple[bool, ...], change: Callable[[list[Any]], None]) -> list[Any]:
    """Of the operands that require them, and of the first of them once more."""
    operands = operands_of(case, wanted)
    asking = [t for t, is_wanted in zip(operands, wanted, strict=True) if is_wanted]
    y = case.function(*operands)
    with aj.no_grad():
        change(operands)
    weights = aj.arange(1.0, y.numel() + 1, dtype=y.dtype).reshape(y.shape)
    found = aj.autograd.grad((y * weights).sum(), asking, allow_unused=True, materialize_grads=True)
    return [t.numpy() for t in found]


def double(place: int) -> Callable[[list[Any]], None]:
    """A change of one operand."""

    def change(operands: list[Any]) -> None:
        operands[place].mul_(2.0)

    return change


@pytest.mark.parametrize(("name", "wanted"), [(n, w) for n, w in ASKED if any(w)])
def test_what_no_rule_reads_may_change_and_what_one_reads_may_not(name: str, wanted: tuple[bool, ...]) -> None:
    case = CASES[name]
    expected = gradients(case, wanted, lambda operands: None)
    for place, letter in enumerate("abc"[: case.count]):
        if letter in kept_by(case, wanted):
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                gradients(case, wanted, double(place))
            continue
        for found, as_before in zip(gradients(case, wanted, double(place)), expected, strict=True):
            np.testing.assert_array_equal(found, as_before)


@pytest.mark.parametrize("name", ["lerp", "addcmul", "addcdiv", "cross"])
def test_derivatives_of_derivatives_are_those_of_kept_operands(name: str) -> None:
    case = CASES[name]
    for wanted in product((True, False), repeat=case.count):
        if any(wanted):
            chosen = [k for k, is_wanted in enumerate(wanted) if is_wanted]
            given = [t.detach().requires_grad_(k in chosen) for k, t in enumerate(operands_of(case, wanted))]
            assert aj.autograd.gradcheck(case.function, tuple(given))
            assert aj.autograd.gradgradcheck(case.function, tuple(given))


@pytest.mark.parametrize("name", ["lerp", "addcmul", "cross"])
def test_captured_steps_allow_the_same_writes(name: str) -> None:
    case = CASES[name]

    @aj.jit
    def step(a: Any, *others: Any) -> Any:
        y = case.function(a, *others)
        with aj.no_grad():
            a.mul_(2.0)
        return aj.autograd.grad(y.sum(), [x])

    wanted = (True, *[False] * (case.count - 1))
    operands = operands_of(case, wanted)
    x = aj.ones(4, 3, dtype=aj.float64, requires_grad=True)
    plain = step.function(x * operands[0].detach(), *operands[1:])[0].numpy()
    np.testing.assert_allclose(step(x * operands[0].detach(), *operands[1:])[0].numpy(), plain)
