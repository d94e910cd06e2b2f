"""A compiled step that fails changes nothing, whatever is fused; and the next call is right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj
from autojit import nn
from autojit.runtime.faults import PlantedError, planting
from tests.jit.failing_programs import PROGRAMS, Program

WARM = 4
"""Good calls before the first bad one: by then the step runs natively, on gradients of its own."""


def facts(thing: Any) -> Any:
    """What can be seen of an object: values, gradients and who they are, versions, flags."""
    if isinstance(thing, aj.Tensor):
        array = thing.detach().numpy()
        grad = None if thing._grad is None else (thing._grad._array.tobytes(), thing._grad._array.strides)
        return array.tobytes(), array.strides, thing._version, thing.requires_grad, thing.is_leaf, grad
    if isinstance(thing, nn.Module):
        return [(name, facts(t)) for name, t in (*thing.named_parameters(), *thing.named_buffers())]
    if isinstance(thing, aj.optim.Optimizer):
        return facts(thing.state_dict())
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


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_step_that_fails_on_its_data_changes_nothing(name: str) -> None:
    program, step = made(name)
    calls = 0
    for bad in program.bad:
        for _ in range(WARM):
            step(*program.good)
            calls += 1
        before = seen(program, *bad)
        for _ in range(2):
            with pytest.raises((IndexError, RuntimeError, ValueError)):
                step(*bad)
            assert seen(program, *bad) == before
    step(*program.good)
    assert values(seen(program)) == after_good_calls(name, calls + 1)


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
