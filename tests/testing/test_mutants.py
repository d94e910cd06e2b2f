"""Mutants: each changes one thing, its text is Python, and planted in its module it is seen."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

from autojit.testing.mutants import attempt
from autojit.testing.mutants.mutations import mutate, mutations
from autojit.testing.mutants.targets import FAMILIES, ROOT, every_mutation

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
    for family in FAMILIES:
        known = every_mutation((family.name,))
        assert len(known) > 50
        for target in known[:: len(known) // 2]:
            compile(target.text(), target.path, "exec")


def test_a_wrong_derivative_is_seen_where_it_is_planted(tmp_path: Path) -> None:
    targets = every_mutation(("derivatives",))
    target = next(t for t in targets if t.mutation.function == "Tanh.partials" and "-> add(" in t.mutation.text)
    text, baseline = tmp_path / "text", tmp_path / "baseline"
    text.write_text(target.text())
    baseline.write_text(json.dumps({}))
    script = [sys.executable, str(Path(attempt.__file__)), target.family, target.module, str(ROOT / target.path)]
    done = subprocess.run([*script, str(text), str(baseline), "5"], capture_output=True, text=True, check=False)
    assert done.returncode == attempt.SEEN, done.stderr
    assert "derivative" in done.stdout and "tanh" in done.stdout
