"""The sources of autojit as trees: for a law about many files, each is parsed once, not once for each such law."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "autojit"
SOURCES = sorted(PACKAGE.rglob("*.py"))


@cache
def tree_of(path: Path) -> ast.Module:
    """What the file is, without the places of names in it as targets or values (``ctx``)."""
    with _uncollected():
        return ast.parse(path.read_text(encoding="utf-8"))


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    """What ``ast.walk`` finds but for each ``ctx``, half of all: breadth first."""
    found: list[ast.AST] = [tree_of(path)]
    with _uncollected():
        for node in found:
            found.extend(children_of(node))
    return found


def children_of(node: ast.AST) -> list[ast.AST]:
    """The nodes directly below one, in the order of their fields, but for ``ctx``."""
    found: list[ast.AST] = []
    for field in node._fields:
        value = getattr(node, field, None)
        if value.__class__ is list:
            found.extend(part for part in value if isinstance(part, ast.AST))
        elif field != "ctx" and isinstance(value, ast.AST):
            found.append(value)
    return found


def forget_sources() -> None:
    """They take 300 MB."""
    tree_of.cache_clear()
    nodes_of.cache_clear()


@contextmanager
def _uncollected() -> Iterator[None]:
    """Trees have no cycles, and a million of new objects would be walked again and again in search of one."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
