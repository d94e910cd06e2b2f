"""What a jitted function keeps alive has a bound, and what it has forgotten is captured again, rightly."""

from __future__ import annotations

import gc
import random
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj
from autojit import nn
from autojit.jit.gathering_arguments import MOST_BOUND
from autojit.jit.kept_signatures import LEAST_KEPT, MOST_KEPT
from autojit.jit.places import HOLDERS_LIMIT

FEW = 8
FRESH = LEAST_KEPT + 40


class Settings:
    """An object of a user's."""

    def __init__(self, factor: float) -> None:
        self.factor = factor
        self.weight = aj.full((3,), factor)
        self.steps = 0
        self.total: Any = 0
        self.seen = aj.zeros(3)


class Slotted:
    """One that has no weak references."""

    __slots__ = ("factor",)

    def __init__(self, factor: float) -> None:
        self.factor = factor


def reading(settings: Any, x: Any) -> Any:
    """Reads numbers and tensors."""
    return (x * settings.factor + settings.weight).sum()


def assigning(settings: Any, x: Any) -> Any:
    """Assigns a number and a tensor."""
    settings.steps += 1
    settings.seen = settings.seen + x * settings.factor
    return settings.seen.sum() + settings.steps


def changing(settings: Any, x: Any) -> Any:
    """Changes a tensor in place."""
    settings.seen.add_(x * settings.factor)
    return settings.seen.sum()


def differentiating(settings: Any, x: Any) -> Any:
    """Leaves gradients in leaves that the object holds."""
    weight = settings.weight.requires_grad_()
    weight.grad = None
    (weight * weight * x).sum().backward()
    return weight.grad.sum()


def decided(settings: Any, x: Any) -> Any:
    """Python decides on a tensor."""
    return x * settings.factor if (x * settings.factor).sum() > 4 else x - settings.factor


def few_kept(function: Callable[..., Any], limit: int = FEW) -> Any:
    """The function jitted, keeping only a few signatures."""
    made = aj.jit(function)
    made.forgetting.limit = limit
    return made


def alive(refs: list[weakref.ref[Any]]) -> int:
    gc.collect()
    return sum(ref() is not None for ref in refs)


def values(result: Any) -> Any:
    return result.detach().tolist()


def test_of_fresh_objects_only_a_fixed_number_stays_alive() -> None:
    step, x = aj.jit(reading), aj.arange(3.0)
    refs: list[weakref.ref[Any]] = []
    for k in range(FRESH):
        settings = Settings(float(k))
        for _ in range(2):
            assert step(settings, x).item() == 6.0 * k
        refs.append(weakref.ref(settings))
        del settings
    assert alive(refs) <= LEAST_KEPT
    stats = step.stats()
    assert stats["captures"] == FRESH
    assert stats["captures"] - LEAST_KEPT <= stats["forgotten"] < stats["captures"]
    assert stats["native_calls"] + stats["python_calls"] == 2 * FRESH
    assert f"{stats['forgotten']} capture(s), the least recently used" in step.explain()


@pytest.mark.parametrize("function", [reading, assigning, changing, differentiating, decided])
def test_whatever_a_step_does_with_fresh_objects_they_go(function: Callable[..., Any]) -> None:
    step, x = few_kept(function), aj.arange(3.0)
    refs: list[weakref.ref[Any]] = []
    for k in range(2 * FEW):
        settings, twin = Settings(k / 4), Settings(k / 4)
        for _ in range(3):
            assert values(step(settings, x)) == values(function(twin, x))
        refs.append(weakref.ref(settings))
        del settings, twin
    assert alive(refs) <= FEW


def test_fresh_leaves_that_gather_gradients_go_but_for_a_few() -> None:
    @aj.jit
    def step(w: Any, x: Any) -> Any:
        loss = (w * w * x).sum()
        loss.backward()
        return loss

    x = aj.arange(3.0)
    refs: list[weakref.ref[Any]] = []
    for k in range(2 * MOST_BOUND):
        w = aj.full((3,), float(k)).requires_grad_()
        for n in range(1, 4):
            step(w, x)
            assert w.grad.tolist() == (2.0 * k * n * x).tolist()
        refs.append(weakref.ref(w))
        del w
    assert alive(refs) <= MOST_BOUND


@pytest.mark.parametrize("function", [reading, assigning, changing, differentiating, decided])
def test_objects_that_come_again_find_the_results_of_eager_execution(function: Callable[..., Any]) -> None:
    step = few_kept(function)
    objects, twins = ([Settings(k / 4) for k in range(2 * FEW)] for _ in range(2))
    draw = random.Random(1)
    for n in range(60):
        k = draw.randrange(len(objects))
        x = aj.arange(3.0) + n % 5
        assert values(step(objects[k], x)) == values(function(twins[k], x))
    for one, other in zip(objects, twins, strict=True):
        assert one.steps == other.steps
        assert one.seen.tolist() == other.seen.tolist()


@pytest.mark.parametrize("is_number", [False, True])
def test_fresh_objects_to_which_a_step_assigns_do_not_pile_up_in_its_steps(is_number: bool) -> None:
    @aj.jit
    def step(counter: Any, x: Any) -> Any:
        counter.total = counter.total + 1
        return x * counter.total

    def made() -> Any:
        counter = Settings(1.0)
        counter.total = 5 if is_number else aj.tensor(5.0)
        return counter

    x = aj.ones(2)
    for _ in range(HOLDERS_LIMIT + 8):
        counter = made()
        for n in range(6, 9):
            assert step(counter, x).tolist() == [n] * 2
    assert len(step.last_step().capture.arguments) <= HOLDERS_LIMIT + 4
    (name,) = {place.name for place in step.rebinding.locations}
    assert name == "argument 0.total"


def test_a_cycle_through_more_objects_than_are_kept_is_soon_kept_whole() -> None:
    step, x = few_kept(reading), aj.arange(3.0)
    objects = [Settings(float(k)) for k in range(2 * FEW)]
    for _ in range(2):
        for settings in objects:
            assert step(settings, x).item() == 6.0 * settings.factor
    before = step.stats()["captures"]
    assert before <= 2 * len(objects)
    for settings in objects:
        step(settings, x)
    assert step.stats()["captures"] == before
    assert step.forgetting.limit <= MOST_KEPT
    assert "had been forgotten" in step.explain(verbose=True)


def test_dead_objects_do_not_count_as_coming_again() -> None:
    step, x = few_kept(reading), aj.arange(3.0)
    for k in range(3 * FEW):
        assert step(Settings(float(k)), x).item() == 6.0 * k  # often where another one was
    assert step.forgetting.limit == FEW


def test_objects_without_weak_references_have_a_bound_too() -> None:
    step, x = few_kept(lambda settings, x: x * settings.factor), aj.ones(2)
    for k in range(2 * FEW):
        assert step(Slotted(float(k)), x).tolist() == [float(k)] * 2
    assert len(step.roots) <= FEW


def test_what_is_used_natively_is_not_forgotten() -> None:
    step, x = few_kept(reading), aj.arange(3.0)
    known = Settings(0.5)
    step(known, x)
    for k in range(2 * FEW):
        step(Settings(float(k)), x)
        before = step.stats()["captures"]
        for _ in range(2):
            assert step(known, x).item() == 3.0
        assert step.stats()["captures"] == before


def test_steps_of_all_kinds_of_arguments_have_the_bound() -> None:
    step = few_kept(lambda x, mode: x * len(mode))
    for _ in range(2):
        for k in range(2 * FEW):
            assert step(aj.ones(2), "a" * k).tolist() == [float(k)] * 2
    assert len(step.roots) <= step.forgetting.limit


def test_a_model_that_other_objects_are_used_with_trains_on_as_in_eager_mode() -> None:
    def trained(wrap: Callable[[Any], Any]) -> list[list[float]]:
        model = nn.Linear(3, 2)
        with aj.no_grad():
            for p in model.parameters():
                p.copy_(aj.linspace(-0.5, 0.7, p.numel()).reshape(p.shape))
        optimizer = aj.optim.Adam(model.parameters(), lr=0.05)

        def step(settings: Any, x: Any) -> Any:
            optimizer.zero_grad()
            loss = (model(x) * settings.factor).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        run, draw = wrap(step), random.Random(2)
        objects = [Settings(1 + k / 8) for k in range(2 * FEW)]
        losses = [run(objects[draw.randrange(len(objects))], aj.arange(6.0).reshape(2, 3)).item() for _ in range(60)]
        return [losses, *(p.flatten().tolist() for p in model.parameters())]

    for found, wanted in zip(trained(few_kept), trained(lambda step: step), strict=True):
        assert found == pytest.approx(wanted, rel=1e-4)


def test_versions_count_the_native_calls_of_steps_that_are_gone() -> None:
    state, x = aj.zeros(3), aj.arange(3.0)

    def add(settings: Any, x: Any) -> Any:
        state.add_(x * settings.factor)
        return x + 1

    step = few_kept(add)
    step(Settings(0.0), x)
    before, calls = state._version, 0
    factor = aj.ones(3, requires_grad=True)
    product = (factor * state).sum()
    for k in range(2 * FEW):
        settings = Settings(float(k))
        for _ in range(3):
            step(settings, x)
            calls += 1
        if k % 5 == 0:
            assert state._version == before + calls
    gc.collect()
    assert state._version == before + calls
    with pytest.raises(RuntimeError, match=r"in place|inplace"):
        product.backward()


def test_a_call_that_runs_while_its_step_is_forgotten_ends_well() -> None:
    step, x = few_kept(reading), aj.arange(3.0)
    settings = Settings(2.0)
    step(settings, x)
    call = step._installed[aj.is_grad_enabled()]
    before = step.stats()["native_calls"]
    for k in range(2 * FEW):
        step(Settings(float(k)), x)
    gc.collect()
    assert len(step.roots) <= FEW
    assert call(settings, x).item() == 12.0
    assert step.stats()["native_calls"] == before + 1
    del call
    gc.collect()
    step(Settings(1.0), x)
    assert step.stats()["native_calls"] == before + 1


def test_a_signal_in_a_native_call_of_a_forgotten_step_is_still_known_to_be_inside() -> None:
    step, x = few_kept(reading), aj.arange(3.0)
    step(Settings(2.0), x)
    native = step.last_step().entry
    for k in range(2 * FEW):
        step(Settings(float(k)), x)
    assert not step.natives.is_inside()
    with native.step.segment.gate.held():
        assert step.natives.is_inside()


def test_threads_may_race_with_forgetting() -> None:
    step = few_kept(reading, 4)
    shared = [Settings(float(k)) for k in range(6)]
    wrong: list[Any] = []

    def work(seed: int) -> None:
        draw = random.Random(seed)
        x = aj.arange(3.0)
        try:
            for _ in range(60):
                settings = draw.choice(shared) if draw.random() < 0.5 else Settings(float(draw.randrange(9)))
                for _ in range(draw.randrange(1, 20)):
                    found = step(settings, x).item()
                    if found != 6.0 * settings.factor:
                        wrong.append((settings.factor, found))
                if draw.random() < 0.1:
                    step.stats()
                    step.explain()
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not wrong and not any(thread.is_alive() for thread in threads)
    assert len(step.roots) <= step.forgetting.limit


def test_a_function_that_is_dropped_keeps_nothing() -> None:
    step, x = aj.jit(reading), aj.arange(3.0)
    settings = Settings(2.0)
    for _ in range(3):
        step(settings, x)
    ref, weight = weakref.ref(settings), weakref.ref(settings.weight)
    del settings
    assert alive([ref, weight]) == 2  # a step that may run again needs what it was captured for
    del step
    assert alive([ref, weight]) == 0
