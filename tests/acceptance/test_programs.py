"""Whole programs: compiled equals eager, one native call per step, the same bits for any number of threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.core.config import config
from tests.acceptance.programs import PROGRAMS, STEPS, Size, arrays, assert_close, outcome

SIZES: tuple[Size, ...] = ("tiny", "medium")
every_program = pytest.mark.parametrize("name", PROGRAMS)
every_size = pytest.mark.parametrize("size", SIZES)


def as_written(step: Callable[..., Any]) -> Callable[..., Any]:
    return step


@cache
def eager_outcome(name: str, size: Size) -> list[Any]:
    return outcome(PROGRAMS[name].build(size), as_written)


def compiled_outcome(name: str, size: Size) -> tuple[list[Any], Any]:
    jitted: list[Any] = []

    def wrap(step: Callable[..., Any]) -> Callable[..., Any]:
        jitted.append(aj.jit(step))
        return jitted[0]

    return outcome(PROGRAMS[name].build(size), wrap), jitted[0]


@pytest.fixture
def restored_threads() -> Iterator[None]:
    before = aj.get_num_threads()
    yield
    aj.set_num_threads(before)


@every_size
@every_program
def test_compiled_steps_equal_eager_ones_in_one_native_call_each(name: str, size: Size) -> None:
    found, step = compiled_outcome(name, size)
    assert_close(found, eager_outcome(name, size), PROGRAMS[name].rtol)
    stats = step.stats()
    assert stats["captures"] == PROGRAMS[name].captures
    assert stats["fallbacks"] == 0
    assert stats["python_calls"] == PROGRAMS[name].captures
    assert stats["native_calls"] == STEPS - PROGRAMS[name].captures


@every_size
@every_program
@pytest.mark.usefixtures("restored_threads")
def test_results_have_the_same_bits_for_any_number_of_threads(name: str, size: Size) -> None:
    bits = []
    for threads in (1, 2, 3):
        aj.set_num_threads(threads)
        found, _ = compiled_outcome(name, size)
        bits.append([array.tobytes() for array in found])
    assert bits[0] == bits[1] == bits[2]


@every_program
def test_compilation_switched_off_is_eager_execution(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [array.tobytes() for array in eager_outcome(name, "tiny")]
    with aj.eager():
        found, step = compiled_outcome(name, "tiny")
    assert [array.tobytes() for array in found] == expected
    assert step.stats()["captures"] == 0
    monkeypatch.setattr(config, "disable", True)  # what AUTOJIT_DISABLE=1 sets
    found, step = compiled_outcome(name, "tiny")
    assert [array.tobytes() for array in found] == expected
    assert step.stats()["captures"] == 0


@pytest.mark.parametrize(
    "name", ["mlp_adam", "gpt", "pinn_f64", "lstm", "heat_in_place", "embedding_bag", "newton_solve"]
)  # every kind of kernel once: they are compiled anew, with tests in them
def test_checked_kernels_find_nothing_and_change_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "check", True)  # what AUTOJIT_CHECK=1 sets: verifier, bounds tests
    found, step = compiled_outcome(name, "tiny")
    assert_close(found, eager_outcome(name, "tiny"), PROGRAMS[name].rtol)
    assert step.stats()["captures"] == 1


@every_program
def test_verify_first_accepts_the_program(name: str) -> None:
    run = PROGRAMS[name].build("tiny")
    step = aj.jit(run.step, verify="first")
    first = arrays(step(*run.args))
    assert_close(first, eager_outcome(name, "tiny")[: len(first)], PROGRAMS[name].rtol)


def test_all_stages_can_be_shown() -> None:
    _, step = compiled_outcome("mlp_sgd", "tiny")
    for stage in ("graph", "adjoint", "schedule", "llvm", "asm"):
        assert step.show(stage).strip()
    assert "1 capture" in step.explain()
    assert all(count >= 0 for count in step.memory().values())


def test_programs_start_from_the_same_numbers_every_time() -> None:
    for program in PROGRAMS.values():
        first, second = program.build("tiny"), program.build("tiny")
        for a, b in zip((*first.args, *first.state), (*second.args, *second.state), strict=True):
            np.testing.assert_array_equal(np.array(a.detach()), np.array(b.detach()))
