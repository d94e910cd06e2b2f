"""Every reference row has a test that runs in both modes."""

from __future__ import annotations

import ast
from pathlib import Path

from autojit.testing.rows import ROWS, row_and_mode


def test_every_row_has_a_test_that_takes_a_mode() -> None:
    tested = set()
    for path in Path(__file__).parent.glob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and "mode" in [a.arg for a in node.args.args]:
                found = row_and_mode(f"::{node.name}")
                if found is not None:
                    tested.add(found[0])
    assert [row for row in ROWS if row not in tested] == []
    assert tested <= set(ROWS)
