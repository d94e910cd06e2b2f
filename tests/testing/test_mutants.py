"""Mutants: each changes one thing, its text is Python, and planted in its module it is seen."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autojit.testing.mutants import campaign
from autojit.testing.mutants.equivalents import EQUIVALENT
from autojit.testing.mutants.mutations import mutate, mutations
from autojit.testing.mutants.reach import SEEN, Check, Reach, probed
from autojit.testing.mutants.server import SLOWER, START_S, Attempt
from autojit.testing.mutants.targets import FAMILIES, ROOT, Target, every_mutation

SOURCE = '''
def rule(x, y):
    """A docstring with 2 numbers."""
    if x > 0 and y:
        raise ValueError("not 1")
    return sub(mul(x, 2), neg(y))


def other(x):
    return x + 1
'''


def every(name: str) -> bool:
    return name == "rule"


def test_mutations_leave_other_functions_docstrings_and_messages_alone() -> None:
    found = mutations(SOURCE, every)
    assert {m.function for m in found} == {"rule"}
    texts = [mutate(SOURCE, every, m.number) for m in found]
    assert all("A docstring with 2 numbers." in t and "not 1" in t and "x + 1" in t for t in texts)


def test_every_mutation_changes_the_text_in_another_way() -> None:
    plain = ast.unparse(ast.parse(SOURCE))
    texts = [mutate(SOURCE, every, m.number) for m in mutations(SOURCE, every)]
    assert len({*texts, plain}) == len(texts) + 1


def test_signs_terms_operands_edges_and_constants_are_changed() -> None:
    texts = "\n".join(mutate(SOURCE, every, m.number) for m in mutations(SOURCE, every))
    for wanted in (
        "add(mul(x, 2), neg(y))",
        "sub(neg(y), mul(x, 2))",
        "sub(x, neg(y))",
        "sub(mul(x, 2), y)",
        "x >= 0",
        "mul(x, 3)",
    ):
        assert wanted in texts


def test_every_family_has_targets_whose_texts_compile() -> None:
    """Of some of its files: reading all takes ten seconds."""
    for family in FAMILIES:
        files = sorted((ROOT / family.folder).glob("*.py"))
        known: list[Target] = []
        for path in (path for first in range(8) for path in files[first::8]):
            found = mutations(path.read_text(encoding="utf-8"), family.wants)
            known += [Target(family.name, f"{family.folder}/{path.name}", mutation) for mutation in found]
            if len(known) > 50:
                break
        assert len(known) > 25, family.name
        for target in known[:: len(known) // 2]:
            compile(target.text(), target.path, "exec")


def test_the_targets_of_a_family_are_the_mutations_of_its_files() -> None:
    found = every_mutation(("transforms",))
    for path in {target.path for target in found}:
        text = (ROOT / path).read_text(encoding="utf-8")
        assert [t.mutation for t in found if t.path == path] == mutations(text, lambda name: True)


def test_what_another_version_of_python_runs_is_left_alone() -> None:
    source = (
        "import sys\n_VERSION = sys.version_info[:2]\n_OLD = _VERSION < (3, 0)\n"
        "def rule(x):\n    y = x - 1 if _OLD else x * 2\n    if _VERSION < (3, 2):\n        y = y / 3\n    return y\n"
    )
    texts = {m.text for m in mutations(source, every)}
    assert {"x * 2 -> x + 2", "2 -> 3"} < texts
    assert texts.isdisjoint({"x - 1 -> x + 1", "1 -> 2", "y / 3 -> y * 3"})


@pytest.fixture(scope="module")
def server() -> Iterator[subprocess.Popen[str]]:
    """A process that answers attempts; it collects the tests of two small files."""
    command = [
        sys.executable,
        "-m",
        "autojit.testing.mutants.server",
        "tests/passes/test_loop_bodies.py",
        "tests/passes/test_constants.py",
        "tests/jit/test_late_texts.py",
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT.parent)}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment) as process:
        yield process
        process.communicate()


def ask(server: subprocess.Popen[str], target: Target, checks: list[Any], text: str = "") -> str:
    assert server.stdin is not None and server.stdout is not None
    attempt = Attempt(str(ROOT / target.path), target.mutation.function, text or target.text(), checks)
    print(json.dumps(attempt), file=server.stdin, flush=True)
    answer = server.stdout.readline()
    assert answer
    return answer.strip()


def a_target(family: str, function: str, text: str) -> Target:
    found = every_mutation((family,))
    return next(t for t in found if t.mutation.function == function and text in t.mutation.text)


def test_an_error_is_seen_where_it_is_planted_and_nowhere_else(server: subprocess.Popen[str]) -> None:
    derivative = a_target("derivatives", "Tanh.slope", "-> add(")
    laws = [("op", "tanh", "", 1.0)]
    plain = (ROOT / derivative.path).read_text()
    assert ask(server, derivative, laws, plain) == ""
    seen = ask(server, derivative, laws)
    assert "derivative" in seen and "tanh" in seen
    assert ask(server, derivative, laws, plain) == ""  # the next mutant meets a process without this one
    merged = a_target("passes", "merge_scans", "len(nodes) > 1 -> ")
    name = "tests/passes/test_loop_bodies.py::test_scans_of_the_same_steps_are_one"
    assert ask(server, merged, [("test", name, "", 1.0)], (ROOT / merged.path).read_text()) == ""
    assert name in ask(server, a_target("passes", "merge_scans", "if len(nodes) > 1:"), [("test", name, "", 1.0)])


def test_functions_made_while_modules_are_imported_are_changed_as_well(server: subprocess.Popen[str]) -> None:
    target = a_target("passes", "_without_guard", "fold.literal(inputs[0]) is None")
    text = (ROOT / target.path).read_text()
    changed = text.replace("None if fold.literal(inputs[0]) is None else", "inputs[1] if fold else")
    assert changed != text
    name = "tests/passes/test_constants.py::test_a_literal_numerator_needs_no_guard"
    assert name in ask(server, target, [("test", name, "", 1.0)], changed)


def test_tables_that_modules_compute_while_imported_are_computed_by_changed_code(server: subprocess.Popen[str]) -> None:
    target = a_target("jit", "_sites", "FORMAT_VALUE")
    text = (ROOT / target.path).read_text()
    changed = text.replace('("FORMAT_VALUE", "FORMAT_SIMPLE", "FORMAT_WITH_SPEC", "CONVERT_VALUE")', "()")
    assert changed != text
    name = "tests/jit/test_late_texts.py::test_a_hundred_losses_are_printed_with_one_capture"
    assert ask(server, target, [("test", name, "", 1.0)], text) == ""
    assert name in ask(server, target, [("test", name, "", 1.0)], changed)


def test_a_check_that_fails_without_the_mutant_as_well_kills_nothing(server: subprocess.Popen[str]) -> None:
    derivative = a_target("derivatives", "Tanh.slope", "-> add(")
    never = ("program", "0", "no verdict at all", 1.0)
    assert ask(server, derivative, [never, never]) == ""
    assert "derivative" in ask(server, derivative, [never, ("op", "tanh", "", 1.0)])


def test_a_mutant_that_runs_for_ever_is_ended(server: subprocess.Popen[str]) -> None:
    derivative = a_target("derivatives", "Tanh.slope", "-> add(")
    text = (ROOT / derivative.path).read_text().replace("sub(1, square(y))", "[0 for _ in iter(int, 1)]")
    assert text.count("iter(int, 1)") == 1
    in_no_time = -START_S / SLOWER  # what the check is said to take leaves the mutant the least limit there is
    assert ask(server, derivative, [("op", "tanh", "", in_no_time)], text) == "hang"


def test_checks_that_run_a_statement_come_before_those_that_run_its_module() -> None:
    names = ("far", "near", "short", "elsewhere")
    checks = [Check("op", name, "", 0.1 if name == "short" else 1.0) for name in names]
    places = {("a.py", 1): 0, ("a.py", 2): 1, ("a.py", 9): 2, ("b.py", 1): 3}
    bits = np.array([[0, 0, 1, 0], [1, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1]], bool)
    reach = Reach(checks, places, bits)
    assert [c.name for c in reach.checks_of("a.py", 1, [1, 2], 10.0)] == ["short", "near", "far"]
    assert [c.name for c in reach.checks_of("a.py", 1, [1, 2], 1.2)] == ["short", "near"]
    assert (reach.reaches("a.py", 1), reach.reaches("a.py", 3)) == (2, 0)
    twice = reach.joined(Reach(checks[:1], {("c.py", 1): 0}, np.ones((1, 1), bool)))
    assert (twice.reaches("a.py", 1), twice.reaches("c.py", 1)) == (2, 1)


def test_probes_note_what_ran(tmp_path: Path) -> None:
    tree, lines = probed(SOURCE)
    flags = bytearray(len(lines))
    module: dict[str, Any] = {SEEN: flags}
    exec(compile(tree, "source", "exec"), module)
    assert not any(flags)
    assert module["other"](1) == 2
    assert [line for line, flag in zip(lines, flags, strict=True) if flag] == [10]
    path = tmp_path / "record"
    kept = Reach([Check("op", "x", "", 0.5)], {("a.py", 1): 0}, np.ones((1, 1), bool))
    kept.write(path)
    again = Reach.read(path)
    assert (again.checks, again.places, again.bits.tolist()) == (kept.checks, kept.places, [[True]])


def test_known_equivalents_are_mutants_with_a_reason() -> None:
    every = {(t.path, t.mutation.function, t.mutation.text) for t in every_mutation()}
    assert EQUIVALENT.keys() <= every, "the source has changed: judge these again"
    assert all(len(reason) > 10 for reason in EQUIVALENT.values())


def test_who_survives_is_looked_for_by_further_checks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    target = a_target("passes", "merge_scans", "if len(nodes) > 1:")
    names = [f"{k}" for k in range(8)]
    place = target.path, target.mutation.statement
    reach = Reach([Check("op", name, "", 1.0) for name in names], {place: 0}, np.ones((8, 1), bool))
    asked: list[list[str]] = []

    class Servers:
        def __init__(self, count: int, folder: Path) -> None: ...

        def ask(self, attempt: Attempt) -> str:
            asked.append([name for _, name, *_ in attempt.checks])
            return "seen" if killer in asked[-1] else ""

        def close(self) -> None: ...

    monkeypatch.setattr(campaign, "known_reach", lambda folder: reach)
    monkeypatch.setattr(campaign, "_Servers", Servers)
    for killer, rounds in (("1", 1), ("6", 2), ("none", 2)):
        asked.clear()
        outcome = campaign.run_mutants([target], 2.0, 1, tmp_path)
        assert (len(outcome.killed), len(asked)) == (int(killer != "none"), rounds)
        assert sorted(name for given in asked for name in given) == names[: 2 if rounds == 1 else 8]
