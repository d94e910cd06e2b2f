"""A tensor may be an operand of its own change: as if a copy of it were, with errors and gradients of eager mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj

SWAP = aj.tensor([1, 0])
CHANGES: dict[str, Callable[[Any, Any], Any]] = {
    "addcmul": lambda a, b: a.addcmul_(b, b, value=0.5),
    "addcdiv": lambda a, b: a.addcdiv_(b, b + 1, value=0.5),
    "addcdiv below": lambda a, b: a.addcdiv_(b + 1, b, value=0.5),
    "add": lambda a, b: a.add_(b, alpha=2),
    "sub": lambda a, b: a.sub_(b * 3),
    "sub itself": lambda a, b: a.sub_(b),
    "mul": lambda a, b: a.mul_(b),
    "div": lambda a, b: a.div_(b),
    "pow": lambda a, b: a.pow_(b),
    "lerp": lambda a, b: a.lerp_(b * 2, b),
    "lerp itself": lambda a, b: a.lerp_(b, 0.5),
    "atan2": lambda a, b: a.atan2_(b),
    "hypot": lambda a, b: a.hypot_(b),
    "copysign": lambda a, b: a.copysign_(b),
    "fmod": lambda a, b: a.fmod_(b),
    "remainder": lambda a, b: a.remainder_(b),
    "xlogy": lambda a, b: a.xlogy_(b),
    "copy": lambda a, b: a.copy_(b),
    "copy of a flip": lambda a, b: a.copy_(b.flip(0)),
    "copy of a choice": lambda a, b: a.copy_(aj.where(b > 2.5, b, b * 2)),
    "clamp": lambda a, b: a.clamp_(b * 0.5, b),
    "masked_fill": lambda a, b: a.masked_fill_(b > 2.5, 1.0),
    "greater": lambda a, b: a.gt_(b),
    "nextafter": lambda a, b: a.nextafter_(b),
    "addmv": lambda a, b: a.addmv_(aj.ones(2, 2), b),
    "a part of its own": lambda a, b: a[:1].add_(b[1:]),
    "an item of its own": lambda a, b: a.__setitem__(slice(0, 1), b[1:]),
    "twice": lambda a, b: a.sigmoid_().mul_(b),
    "out of place first": lambda a, b: a.copy_(b * b),
}


def outcome(change: Callable[[Any, Any], Any], is_self: bool, is_compiled: bool, has_history: bool) -> Any:
    """(values, gradient or that there is an error) of a change of ``w * 1`` by itself or by a copy of it."""
    w = aj.tensor([2.0, 3.0], requires_grad=has_history)

    def step(w: Any) -> Any:
        a = w * 1.0
        change(a, a if is_self else a.clone())
        return a * 1.0

    result = aj.jit(step)(w) if is_compiled else step(w)
    values = [round(v, 5) for v in result.tolist()]
    if not has_history:
        return values, None
    try:
        return values, [round(v, 5) for v in aj.autograd.grad(result.sum(), w)[0].tolist()]
    except RuntimeError:
        return values, "error"


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_by_the_tensor_itself_is_a_change_by_a_copy(name: str) -> None:
    change = CHANGES[name]
    for has_history in (False, True):
        by_copy = outcome(change, False, False, has_history)
        eager, compiled = (outcome(change, True, is_compiled, has_history) for is_compiled in (False, True))
        assert eager == compiled
        if name != "twice":
            assert eager[0] == by_copy[0]
            assert eager[1] in (by_copy[1], "error")


LOOK_UPS: dict[str, Callable[[Any, Any], Any]] = {
    "embedding": lambda w, i: aj.nn.functional.embedding(i, w),
    "getitem": lambda w, i: w[i],
    "index_select": lambda w, i: w.index_select(0, i),
    "gather": lambda w, i: w.gather(0, i.reshape(1, 3)),
    "take": lambda w, i: w.take(i),
    "index_add": lambda w, i: aj.zeros(4, 4).index_add(0, i, w[:3]),
    "scatter_add": lambda w, i: aj.zeros(3).scatter_add(0, i, w[0, :3]),
    "index_put": lambda w, i: aj.zeros(4, 4).index_put((i,), w[:3]),
    "where": lambda w, i: aj.where(i > 0, w[0, :3], 0.0),
    "factor": lambda w, i: w[0, :3] * i,
}


@pytest.mark.parametrize("is_state", [False, True])
@pytest.mark.parametrize("name", LOOK_UPS)
def test_an_index_that_is_changed_spoils_the_history_that_has_kept_it(name: str, is_state: bool) -> None:
    def kind_of_error(is_compiled: bool) -> bool:
        w, index = aj.rand(4, 4).requires_grad_(), aj.tensor([0, 2, 1])

        def step(given: Any) -> Any:
            i = index if is_state else given
            picked = LOOK_UPS[name](w, i)
            i.copy_(i.flip(0))
            return aj.autograd.grad((picked**2).sum(), w)[0]

        try:
            (aj.jit(step) if is_compiled else step)(aj.tensor([0, 2, 1]))
        except RuntimeError:
            return True
        return False

    assert kind_of_error(is_compiled=True) is kind_of_error(is_compiled=False)


@pytest.mark.parametrize("exponent", [0.5, -0.5, -1, 2, 3.0])
def test_a_power_keeps_its_base_and_not_its_result(exponent: float) -> None:
    def result_changed(x: Any) -> Any:
        y = x**exponent
        y.add_(1)
        return aj.autograd.grad(y.sum(), x)[0]

    def base_changed(x: Any) -> Any:
        base = x * 1
        y = base**exponent
        base.add_(1)
        return aj.autograd.grad(y.sum(), x)[0]

    x = aj.tensor([4.0, 9.0], requires_grad=True)
    for compiled in (lambda f: f, aj.jit):
        assert aj.allclose(compiled(result_changed)(x), exponent * x ** (exponent - 1))
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            compiled(base_changed)(x)


def test_the_version_of_a_tensor_from_outside_is_asked_at_every_call() -> None:
    w = aj.ones(2)
    for function in (lambda x: x * x._version, lambda x: x.add_(1) * x._version, lambda x: x * w._version):
        for _ in range(3):
            x, step = aj.ones(2), aj.jit(function)
            expected, left = [function(a := aj.ones(2)).tolist(), function(a).tolist()], w._version
            assert [step(x).tolist(), step(x).tolist()] == expected
            assert "the version of a tensor from outside" in step.explain()
            assert w._version == left
            w.add_(1)

    @aj.jit
    def of_its_own(x: Any) -> Any:
        y = x * 1
        y.add_(1)
        return y * y._version

    assert of_its_own(aj.ones(2)).tolist() == [2.0, 2.0]
