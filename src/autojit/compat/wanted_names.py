"""Names of torch's, and libraries for it, that a program wants and autojit has not: found before it runs.

What is looked at: ``import torch.x``, ``from torch.x import y``, and chains such as ``F.y`` that begin with a name
that one of these has bound. Modules of the program's own, beside it, are looked at as well. What a program makes up
while it runs (``getattr``) is not seen, and what it never reaches is.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from autojit import ops
from autojit.compat.absent import LIBRARIES, reason_of
from autojit.core.errors import AutojitError

_TORCH = "torch"


class Wanted(NamedTuple):
    """A name that is missing: where it is asked for, in full."""

    path: Path
    line: int
    name: str

    def __str__(self) -> str:
        reason = LIBRARIES.get(self.name) or reason_of(self.name.partition(".")[2])
        return f"{self.path}:{self.line}: {self.name}" + (f" ({reason})" if reason else "")


def missing_names(path: Path) -> list[Wanted]:
    """The names of torch's that a program asks for in vain, each once a line, in order.

    A file that Python cannot read is left out: whoever runs it is told.

    Raises:
        OSError: one cannot be read.
    """
    found: dict[Wanted, None] = {}
    waiting, seen = [path], {path.resolve()}
    while waiting:
        here = waiting.pop()
        try:
            tree = ast.parse(here.read_bytes(), str(here))
        except SyntaxError:
            continue
        names = _Names(here, path.parent)
        names.visit(tree)
        found.update(dict.fromkeys(names.missing))
        for other in _own_modules(tree, path.parent):
            if other.resolve() not in seen:
                seen.add(other.resolve())
                waiting.append(other)
    return sorted(found)


def _own_modules(tree: ast.AST, folder: Path) -> Iterator[Path]:
    """The files of modules that are beside the program."""
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            at = folder.joinpath(*name.split("."))
            yield from (file for file in (at.with_suffix(".py"), at / "__init__.py") if file.is_file())


class _Names(ast.NodeVisitor):
    """Goes through one file."""

    def __init__(self, path: Path, folder: Path) -> None:
        self.path = path
        self.folder = folder
        self.missing: list[Wanted] = []
        self._bound: dict[str, str] = {}  # a name of the program -> what of torch's it stands for

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            if alias.name.partition(".")[0] != _TORCH:
                self._note_library(node, alias.name)
                continue
            if self._is_there(node, alias.name):
                self._bound[alias.asname or _TORCH] = alias.name if alias.asname else _TORCH

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.level or (node.module or "").partition(".")[0] != _TORCH:
            if not node.level:
                self._note_library(node, node.module or "")
            return
        for alias in node.names:
            if alias.name == "*":
                continue
            full = f"{node.module}.{alias.name}"
            if self._is_there(node, full):
                self._bound[alias.asname or alias.name] = full

    def _note_library(self, node: ast.stmt, name: str) -> None:
        """A library that does not run on autojit is missing like a name of torch's; the program may have its own."""
        top = name.partition(".")[0]
        if top in LIBRARIES and not any((self.folder / own).exists() for own in (top, f"{top}.py")):
            self.missing.append(Wanted(self.path, node.lineno, top))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        chain = _chain(node)
        if chain is None or chain[0] not in self._bound:
            self.generic_visit(node)
            return
        is_read = isinstance(node.ctx, ast.Load)
        self._is_there(node, ".".join([self._bound[chain[0]], *(chain[1:] if is_read else chain[1:-1])]))

    def _is_there(self, node: ast.stmt | ast.expr, name: str) -> bool:
        """Whether autojit has a name; a missing one is noted, as far as the part that is missing."""
        parts = name.split(".")
        for count in range(2, len(parts) + 1):
            value = _value(parts[:count])
            if value is _MISSING:
                self.missing.append(Wanted(self.path, node.lineno, ".".join(parts[:count])))
                return False
            if not _has_fixed_names(value):
                return True
        return True


_MISSING: Any = object()


def _value(parts: list[str]) -> Any:
    """What autojit has under a name of torch's."""
    value: Any = importlib.import_module("autojit")
    for count, part in enumerate(parts[1:], 2):
        if count == 2 and part == "__version__":
            return ""
        if count == 2 and part == _TORCH:  # ``torch.torch``, as some annotations have it
            continue
        try:
            value = getattr(value, part)
        except AttributeError:
            try:
                value = importlib.import_module(".".join(["autojit", *parts[1:count]]))
            except ImportError:
                return _MISSING
        except AutojitError:
            return ""  # it is there, and says why it cannot be used
    return value


def _has_fixed_names(value: Any) -> bool:
    """Whether what is missing of it now will be missing when the program runs: modules and classes.

    A program that registers operators finds them in ``torch.ops``.
    """
    return isinstance(value, type | ModuleType) and value is not ops


def _chain(node: ast.expr) -> list[str] | None:
    """``a.b.c`` as a list; None: it begins with something else than a name."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return [node.id, *reversed(parts)] if isinstance(node, ast.Name) else None
