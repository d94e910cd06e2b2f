"""Workloads: a step and a program mean the same compiled and as they are written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
from benchmarks.systems import prepare
from benchmarks.workloads import WORKLOADS, reinforce, seq2seq
from benchmarks.workloads.problem import Program, Work, Workload, norm


def doubling(compiled: list[Any]) -> Workload:
    """A program of two calls of one compiled function; what was compiled is added to ``compiled``."""

    def build(T: Any) -> Program:
        def make(compile: Callable[..., Any]) -> Callable[[], Any]:
            double = compile(lambda x: x + x)
            compiled.append(double)
            return lambda: double(double(T.ones(3)))

        return Program(make, lambda result: {"norm": norm(result)})

    return Workload(build, lambda: build(None), Work)


@pytest.mark.parametrize(("system", "is_compiled"), [("autojit", True), ("autojit-eager", False)])
def test_a_program_is_given_what_the_system_compiles_by(system: str, is_compiled: bool) -> None:
    compiled: list[Any] = []
    step = prepare(system, aj, doubling(compiled))
    assert step.check(step.call()) == {"norm": pytest.approx(4 * 3**0.5)}
    assert hasattr(compiled[0], "explain") is is_compiled


def test_a_trajectory_is_the_same_compiled() -> None:
    eager, compiled = (prepare(system, aj, WORKLOADS["hmc"]) for system in ("autojit-eager", "autojit"))
    assert compiled.check(compiled.call()) == pytest.approx(eager.check(eager.call()), rel=1e-4)


def test_what_is_learned_from_is_standardised() -> None:
    start, noise, _ = reinforce.data()
    _, actions, returns = reinforce.rollout(start, noise, lambda state, noise: noise.argmax(-1))
    assert len(actions) == len(returns) == reinforce.COPIES * reinforce.MOVES
    assert (abs(returns.mean()), returns.std()) == pytest.approx((0, 1), abs=1e-4)


def test_lengths_differ_on_both_sides() -> None:
    pairs, _ = seq2seq.data()
    assert [(len(source), len(target)) for source, target in pairs] == list(seq2seq.LENGTHS)
    assert len(np.unique(seq2seq.LENGTHS, axis=0)) == len(pairs)
