"""Steps for modules that train and steps for modules that do not are told from each other by one number."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import autojit as aj
from autojit.core.epoch import guard_epoch, meet
from autojit.runtime.object_layout import layout_is_known

needs_native_calls = pytest.mark.skipif(not layout_is_known(), reason="no native entry here")


class _Factor(aj.nn.Module):
    def __init__(self, *parts: aj.nn.Module) -> None:
        super().__init__()
        self.parts = aj.nn.ModuleList(parts)

    def forward(self, x: Any) -> Any:
        for part in self.parts:
            x = part(x)
        return x * 3 if self.training else x + 1


def _switches(modules: Sequence[aj.nn.Module]) -> list[Callable[[], object]]:
    """What changes flags outside of steps, by all ways that lead to them."""
    one = modules[0]
    return [
        *(module.train for module in modules),
        *(module.eval for module in modules),
        lambda: setattr(one, "training", not one.training),
        lambda: one.apply(lambda part: setattr(part, "training", True)),
    ]


def test_steps_compute_by_the_flags_that_modules_have_now() -> None:
    inner, other = _Factor(), _Factor()
    outer = _Factor(inner, _Factor())
    modules = (outer, inner, other)

    def switching(x: aj.Tensor, does_train: bool) -> Any:
        outer.train(does_train)
        found = outer(other(1))
        other.eval()
        return x * 2, found

    functions = [lambda x: (x * 2, outer(other(1))), lambda x: (x * 2, inner(1))]  # numbers: one kernel serves all
    steps = [aj.jit(step) for step in (*functions, lambda x: switching(x, True), lambda x: switching(x, False))]
    draw = random.Random(0)
    x = aj.ones(2)
    for _ in range(40):
        draw.choice(_switches(modules))()
        step = draw.choice(steps)
        before = [part.training for part in (*outer.modules(), other)]
        found = step(x)
        left = [part.training for part in (*outer.modules(), other)]
        for part, flag in zip((*outer.modules(), other), before, strict=True):
            part.training = flag
        wanted = step.function(x)
        assert found[1] == wanted[1]
        assert left == [part.training for part in (*outer.modules(), other)]


def test_the_guard_epoch_is_the_same_where_all_flags_are() -> None:
    outer = _Factor(_Factor(), aj.nn.Sequential(_Factor()))
    for part in outer.modules():
        meet(vars(part))
    draw = random.Random(0)
    epochs: dict[tuple[bool, ...], int] = {}
    for _ in range(80):
        draw.choice(_switches([*outer.modules()]))()
        flags = tuple(part.training for part in outer.modules())
        assert epochs.setdefault(flags, int(guard_epoch[0])) == int(guard_epoch[0])
    assert len(set(epochs.values())) == len(epochs) > 8
    outer.name = "new"
    assert int(guard_epoch[0]) not in epochs.values()


def _outside(net: aj.nn.Module, does_train: bool) -> None:
    net.train(does_train)


def _nothing(net: aj.nn.Module, does_train: bool) -> None:
    del net, does_train


@needs_native_calls
@pytest.mark.parametrize("before", [_outside, _nothing], ids=["outside", "inside"])
def test_steps_in_turn_that_switch_modules_stay_native(before: Callable[[Any, bool], None]) -> None:
    net = aj.nn.Sequential(_Factor(), aj.nn.BatchNorm1d(2))
    is_inside = before is _nothing

    def step(x: aj.Tensor, does_train: bool) -> aj.Tensor:
        if is_inside:
            net.train(does_train)
        return net(x).sum().detach()

    training, evaluating = aj.jit(lambda x: step(x, True)), aj.jit(lambda x: step(x, False))
    by_python: list[int] = []
    for _ in range(5):
        for compiled, does_train in ((training, True), (training, True), (evaluating, False), (evaluating, False)):
            before(net, does_train)
            compiled(aj.ones(3, 2))
        by_python.append(sum(compiled.stats()["python_calls"] for compiled in (training, evaluating)))
    assert by_python[-1] == by_python[2]
