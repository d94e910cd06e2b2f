"""A compiled step that fails changes nothing, whatever is fused; and the next call is right."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit import nn
from autojit.control_flow import while_loop
from autojit.core.device_array import host_copy
from autojit.runtime.faults import PlantedError, planting
from tests.jit.failing_programs import PROGRAMS, Program, Seen

WARM = 4
"""Good calls before a bad one: by then the step runs natively, on gradients of its own."""


def facts(thing: Any) -> Any:
    """What can be seen of an object: values, gradients and who they are, versions, flags."""
    if isinstance(thing, aj.Tensor):
        array = thing.detach().numpy()
        grad = None if thing._grad is None else (host_copy(thing._grad._array).tobytes(), thing._grad._array.strides)
        return host_copy(array).tobytes(), array.strides, thing._version, thing.requires_grad, thing.is_leaf, grad
    if isinstance(thing, nn.Module):
        return [(name, facts(t)) for name, t in (*thing.named_parameters(), *thing.named_buffers())]
    if isinstance(thing, aj.optim.Optimizer | aj.optim.lr_scheduler.LRScheduler):
        return facts(thing.state_dict())
    if isinstance(thing, aj.Generator):
        return facts(thing.get_state())
    if isinstance(thing, Seen):
        return facts(thing.facts())
    if isinstance(thing, dict):
        return [(name, facts(value)) for name, value in thing.items()]
    if isinstance(thing, list | tuple):
        return [facts(value) for value in thing]
    return thing


def seen(program: Program, *more: Any) -> Any:
    return facts([program.seen, *program.good, *more]), aj.get_rng_state().numpy().tobytes()


def values(found: Any) -> Any:
    """Facts without version counters, which differ between the ways in which a call may run."""
    if isinstance(found, tuple) and len(found) == 6:
        return found[0], *found[3:]
    return [values(part) for part in found] if isinstance(found, list | tuple) else found


def made(name: str) -> tuple[Program, Callable[..., Any]]:
    aj.manual_seed(3)
    program = PROGRAMS[name]()
    return program, aj.jit(program.step, dynamic=True) if program.is_dynamic else aj.jit(program.step)


def after_good_calls(name: str, count: int) -> Any:
    """What the program leaves that was never given anything wrong."""
    program, step = made(name)
    for _ in range(count):
        step(*program.good)
    return values(seen(program))


@pytest.mark.filterwarnings("ignore:(Anomaly Detection has been|Error detected in)")
@pytest.mark.parametrize("good_calls", [0, 1, WARM])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_step_that_fails_on_its_data_changes_nothing(name: str, good_calls: int) -> None:
    program, step = made(name)
    calls = 0
    for bad in program.bad:
        for _ in range(good_calls):
            step(*program.good)
            calls += 1
        before = seen(program, *bad)
        for _ in range(2):
            with pytest.raises((IndexError, RuntimeError, ValueError)):
                step(*bad)
            assert seen(program, *bad) == before
    step(*program.good)
    assert values(seen(program)) == after_good_calls(name, calls + 1)


@pytest.mark.filterwarnings("ignore:Anomaly Detection has been")
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_step_with_a_fault_behind_any_kernel_changes_nothing(name: str) -> None:
    with planting() as faults:
        program, step = made(name)
        calls = WARM
        for _ in range(WARM):
            step(*program.good)
        failed = 0
        for site in range(len(faults.labels)):
            for after in (0, 2):
                before = seen(program)
                with faults.armed(site, after):
                    try:
                        step(*program.good)
                    except PlantedError:
                        failed += 1
                        assert seen(program) == before, faults.labels[site]
                    else:
                        calls += 1
                        assert faults.passed[site] <= after
        step(*program.good)
    assert failed
    assert values(seen(program)) == after_good_calls(name, calls + 1)


def repeated(seen: Any) -> Callable[[Any, Any], Any]:
    """A result of a size that nothing bounds, and state that counts."""

    def step(x: Any, repeats: Any) -> Any:
        seen.add_(x.sum())
        return x.repeat_interleave(repeats), aj.repeat_interleave(x, repeats).cumsum(0).max()

    return step


def looped(seen: Any) -> Callable[[Any, Any], Any]:
    """A loop that is differentiated, so its rounds are kept, and state that counts."""

    def step(x: Any, repeats: Any) -> Any:
        seen.add_(1)
        y = x.clone().requires_grad_()
        rounds = 40 * repeats.sum()
        _, z = while_loop(lambda k, z: k < rounds, lambda k, z: (k + 1, (z * 1.01).sin()), (aj.zeros(()).long(), y))
        (slope,) = aj.autograd.grad(z.sum(), (y,))
        seen.mul_(1.5)
        return slope

    return step


MEMORY = {
    "results": (repeated, "autojit.runtime.executable.allocate_at"),
    "temporaries": (repeated, "autojit.runtime.memory.Arena"),
    "rounds": (looped, "autojit.runtime.memory.Arena"),
}


@pytest.mark.parametrize("what", MEMORY)
def test_a_step_that_finds_no_memory_changes_nothing(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, allocation = MEMORY[what]
    seen = aj.zeros(4)
    step = aj.jit(make(seen))
    x, few, many = aj.ones(4), aj.tensor([1, 2, 0, 1]), aj.tensor([900, 2, 700, 1])
    for _ in range(WARM):
        step(x, few)
    before = facts([seen, x, many])

    def refuse(*given: Any) -> Any:
        raise MemoryError("none")

    monkeypatch.setattr(allocation, refuse)
    with pytest.raises((RuntimeError, MemoryError)):
        step(x, many)
    assert facts([seen, x, many]) == before
    monkeypatch.undo()
    step(x, many)
    assert not np.array_equal(seen.numpy(), np.frombuffer(before[0][0], np.float32))


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers on this system")
def test_a_signal_in_a_loop_comes_before_any_state_is_written() -> None:
    state = aj.ones(3)

    @aj.jit
    def step(rounds: Any) -> Any:
        state.add_(1)
        _, x = while_loop(lambda k, x: k < rounds, lambda k, x: (k + 1, x.sin() + 1), (aj.zeros(()).long(), state))
        state.copy_(x)
        return x.sum()

    for _ in range(WARM):
        step(aj.tensor(3))
    before = facts(state)

    def ring(number: int, frame: Any) -> None:
        raise TimeoutError

    handler = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(TimeoutError):
            step(aj.tensor(1 << 60))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
    assert facts(state) == before
    step(aj.tensor(3))


def test_updates_of_what_nothing_depends_on_are_not_copied() -> None:
    """Order suffices for training steps: state is written in place, behind all that may fail."""
    aj.manual_seed(0)
    program = PROGRAMS["language_model"]()
    step = aj.jit(program.step)
    step(*program.good)
    assert "copy  (" not in str(step.show("schedule"))


def test_a_cache_is_written_in_place_though_its_indices_may_be_wrong() -> None:
    cache = aj.zeros(1000, 8)

    @aj.jit
    def step(index: Any, rows: Any) -> Any:
        cache[index] = rows
        return cache.mean(0)[index % 8]

    good = aj.tensor([3, 999]), aj.ones(2, 8)
    step(*good)
    text = str(step.show("schedule"))
    assert "in_range[" in text
    assert "copy  (" not in text
    with pytest.raises(IndexError, match="index 1000 is out of bounds for dimension 0 with size 1000"):
        step(aj.tensor([3, 1000]), good[1])
