"""The fuzzer: programs are the same for a seed, mostly run eagerly, and a planted disagreement is found and shrunk."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.testing.fuzz import check, sample, sample_array
from autojit.testing.fuzz.campaign import judge_seed
from autojit.testing.fuzz.generate import generate
from autojit.testing.fuzz.program import Block, Program
from autojit.testing.fuzz.running import load, run
from autojit.testing.fuzz.showing import report
from autojit.testing.fuzz.shrink import judge_program, shrink
from autojit.testing.fuzz.verdicts import judge


def test_a_seed_gives_one_program() -> None:
    assert all(generate(seed).script() == generate(seed).script() for seed in range(20))


def test_most_programs_run_eagerly_to_their_end() -> None:
    runs = [run(load(generate(seed).script(), str(seed)), "eager") for seed in range(60)]
    assert sum(seen.error is None and seen.broken is None for seen in runs) > 0.8 * len(runs)


SMOKE = (200, 202, 204, 207, 209, 210, 212, 213)


def test_random_programs_agree() -> None:
    """A glance; the campaign is ``make fuzz``."""
    found = {seed: verdict for seed in SMOKE if (verdict := judge_seed(seed)).is_finding}
    assert not found, "\n".join(f"seed {seed}: {report(verdict)}" for seed, verdict in found.items())


PLANTED = Program(
    0,
    "float64",
    (
        "scale = 2.0",
        "unused = [1, 2, 3]",
        Block("def step(x):", ("y = x.sin()", "z = y * np.random.standard_normal()", "return x + scale"), ("@jit",)),
        "x0 = sample(1, 3)",
        "r0 = see.call(step, x0)",
        "unused.append(4)",
        "r1 = see.call(step, x0 if jit is aj.jit else x0 + 1)",
        "r2 = see.call(step, x0)",
    ),
)


def test_a_disagreement_is_found_and_shrunk() -> None:
    verdict = judge_program(PLANTED)
    assert verdict.is_finding and verdict.kind == "value" and verdict.place.startswith("call 2")
    small = shrink(PLANTED, verdict)
    text = small.script()
    assert "unused" not in text and "sin" not in text and "r2" not in text
    assert small.statements() <= 6


SENSITIVE = """
import autojit as aj
from autojit.testing.fuzz import sample
def program(jit, see):
    scale = 1.0 if jit is aj.jit else 1.0 + 2e-16
    see.call(lambda x: (1e14 * x * scale).sin(), sample(1, 3))
"""
STABLE = SENSITIVE.replace("1e14", "1.0").replace("2e-16", "1e-9")


@pytest.mark.parametrize(("text", "kind"), [(SENSITIVE, "rounding"), (STABLE, "value")])
def test_only_a_difference_that_the_inputs_last_digits_make_is_rounding(text: str, kind: str) -> None:
    assert judge(load(text, "sensitive"), "float64").kind == kind


TORN = """
import numpy as np
import autojit as aj
from autojit.testing.fuzz import sample
def program(jit, see):
    rng = np.random.default_rng(7)
    w = aj.zeros(4)
    @jit
    def step(x):
        w.add_(1)
        DRAWS
        return x[w[:1].long()]
    see.watch(w=lambda: w)
    def called(x):
        try:
            return step(x)
        except IndexError:
            w.add_(PLANTED if jit is aj.jit else 0)
            raise
    called.explain = getattr(step, "explain", None)
    for n in (4, 3, 1):
        see.call(called, sample(1, n))
"""
BY_LINE = TORN.replace("DRAWS", "x = x * float(rng.integers(5)) + float(rng.integers(5))")


@pytest.mark.parametrize(
    ("text", "planted", "kind"),
    [
        (TORN.replace("DRAWS", "pass"), 0, "eager error"),  # has changed nothing
        (TORN.replace("DRAWS", "pass"), 1, "a failed call changed value"),  # has changed what eager mode has changed
        (BY_LINE, 0, "eager error"),
        (BY_LINE, 1, "a failed call changed value"),
    ],
)
def test_a_failed_call_changes_nothing_or_by_line_what_eager_mode_changes(text: str, planted: int, kind: str) -> None:
    assert judge(load(text.replace("PLANTED", str(planted)), "torn"), "float32").kind == kind


def test_samples_do_not_depend_on_the_run() -> None:
    assert np.array_equal(sample(3, 2, 2).numpy(), sample_array(3, 2, 2))
    assert sample(3, 4, dtype=aj.int32).dtype is aj.int32


def test_a_users_step_is_called_with_other_arguments() -> None:
    def make(jit: Any) -> Any:
        return jit(lambda x, y: (x @ y.mT).tanh())

    assert check(make, sample(1, 3, 2), sample(2, 3, 2)) >= 10


def test_a_users_step_that_differs_is_shown() -> None:
    def make(jit: Any) -> Any:
        return jit(lambda x: x * 2 if jit is aj.jit else x)

    with pytest.raises(AssertionError, match="call 1: result"):
        check(make, sample(1, 3))
