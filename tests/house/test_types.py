"""How much of the sources says nothing to a type checker: it may get less."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.sources import PACKAGE, nodes_of

FOLDERS = ("core", "ops", "tensor", "history", "dispatch", "functions", "top_level", "jit")


def annotations(folder: Path) -> Iterator[str]:
    """What the parameters of a folder's functions are annotated with."""
    for path in sorted(folder.rglob("*.py")):
        for node in nodes_of(path):
            if isinstance(node, ast.arg) and node.annotation is not None:
                yield ast.unparse(node.annotation)


@pytest.mark.parametrize("folder", FOLDERS)
def test_few_parameters_are_any(folder: str) -> None:
    found = list(annotations(PACKAGE / folder))
    assert found.count("Any") / len(found) < 0.05


def test_at_most_100_types_are_ignored() -> None:
    ignored = re.compile(r"#\s*type: ignore")
    assert (
        sum(
            len(ignored.findall(path.read_text(encoding="utf-8")))
            for path in (*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.pyi"))
        )
        <= 100
    )
