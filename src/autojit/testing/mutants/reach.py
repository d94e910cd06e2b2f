"""Which checks reach which statement: recorded once on the unchanged product, so that a mutant meets those that run it.

``record.py`` runs every check with a probe before every statement of the modules that are mutated. ``Reach`` is what it
writes down: a bit for every pair of check and statement, and what each check took. ``Reach.checks_of`` gives the checks
of one statement, those that run little else and end soon first. A statement that no check reaches is a hole by itself.
"""

from __future__ import annotations

import ast
import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

SEEN = "__statements_run__"  # what a probe writes to: a bytearray of the module


class Check(NamedTuple):
    """One thing that may notice a mutant."""

    kind: str  # "op", "graph", "test", "program"
    name: str  # the op's, the seed, pytest's name
    verdict: str  # of a program: what the unchanged product gets
    elapsed_s: float  # of processor time, with probes


def statements(tree: ast.Module) -> list[ast.stmt]:
    """Every statement in a function, in the order of the text; docstrings are none."""
    found: list[ast.stmt] = []
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            inner = (n for statement in function.body for n in ast.walk(statement) if isinstance(n, ast.stmt))
            found += [n for n in inner if not (isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant))]
    return sorted(set(found), key=lambda s: (s.lineno, s.col_offset))


def probed(source: str) -> tuple[ast.Module, list[int]]:
    """The module with a probe before every statement, and the lines of the statements by number."""
    tree = ast.parse(source)
    every = statements(tree)
    numbers = {statement: k for k, statement in enumerate(every)}
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list) and any(s in numbers for s in block):
                setattr(node, name, [made for s in block for made in _with_probe(s, numbers)])
    return ast.fix_missing_locations(tree), [s.lineno for s in every]


def _with_probe(statement: ast.stmt, numbers: dict[ast.stmt, int]) -> list[ast.stmt]:
    if statement not in numbers or isinstance(statement, ast.Global | ast.Nonlocal):
        return [statement]
    (probe,) = ast.parse(f"{SEEN}[{numbers[statement]}] = 1").body
    for inner in ast.walk(probe):
        ast.copy_location(inner, statement)
    return [probe, statement]


@dataclass(frozen=True)
class Reach:
    """Checks, statements and which check runs which statement."""

    checks: Sequence[Check]
    places: dict[tuple[str, int], int]  # (path below the package, line) -> column of the bits
    bits: NDArray[np.bool_]  # (check, statement)

    def checks_of(self, path: str, line: int, functions: Iterable[int], seconds: float) -> list[Check]:
        """The checks that run a statement, for about that time; then others of its function, then of its module.

        What a process does once (tables, memos) is put down to the first check that did it, so others may see it too.
        """
        chosen: dict[int, None] = {}
        lines = [line], list(functions), [number for where, number in self.places if where == path]
        for wanted in lines:
            columns = [self.places[path, number] for number in wanted if (path, number) in self.places]
            rows = np.flatnonzero(self.bits[:, columns].any(axis=1))
            chosen.update(dict.fromkeys(self._spread([int(r) for r in rows if int(r) not in chosen])))
        found: list[Check] = []
        left = seconds
        for row in chosen:
            if self.checks[row].elapsed_s <= left:
                left -= self.checks[row].elapsed_s
                found.append(self.checks[row])
        kinds = ("op", "graph", "test", "told", "program")
        return sorted(found, key=lambda check: kinds.index(check.kind))

    def reaches(self, path: str, line: int) -> int:
        """How many checks run a statement."""
        column = self.places.get((path, line))
        return 0 if column is None else int(self.bits[:, column].sum())

    def _spread(self, rows: list[int]) -> list[int]:
        """Rows in an order that takes one case of every test function, then the next one of each; short ones first."""
        ranks: dict[str, list[int]] = defaultdict(list)
        for row in sorted(rows, key=self._cost):
            check = self.checks[row]
            ranks[check.name.split("[")[0] if check.kind == "test" else check.kind].append(row)
        turns = [(turn, self._cost(row), row) for found in ranks.values() for turn, row in enumerate(found)]
        return [row for *_, row in sorted(turns)]

    def _cost(self, row: int) -> float:
        """Seconds, more for a check that runs much besides the statement: it is less about it."""
        return (0.02 + self.checks[row].elapsed_s) * float(self.bits[row].sum())

    def write(self, path: Path) -> None:
        """To a file."""
        places = np.array([f"{where}:{line}" for where, line in self.places])
        kept: dict[str, Any] = {name: np.array([getattr(c, name) for c in self.checks]) for name in Check._fields}
        with path.open("wb") as file:
            np.savez_compressed(file, places=places, bits=np.packbits(self.bits, axis=1), **kept)

    def joined(self, other: Reach) -> Reach:
        """With the checks of another record."""
        places = {place: k for k, place in enumerate(dict.fromkeys([*self.places, *other.places]))}
        bits = np.zeros((len(self.checks) + len(other.checks), len(places)), bool)
        bits[: len(self.checks), [places[p] for p in self.places]] = self.bits
        bits[len(self.checks) :, [places[p] for p in other.places]] = other.bits
        return Reach([*self.checks, *other.checks], places, bits)

    @classmethod
    def read(cls, path: Path) -> Reach:
        """From a file."""
        with np.load(path) as kept:
            pairs = [str(place).rsplit(":", 1) for place in kept["places"]]
            places = {(where, int(line)): k for k, (where, line) in enumerate(pairs)}
            columns: list[list[Any]] = [kept[name].tolist() for name in Check._fields]
            checks = [Check(*row) for row in zip(*columns, strict=True)]
            bits = np.unpackbits(kept["bits"], axis=1, count=len(places)).astype(bool)
        return cls(checks, places, bits)


def digest_of(paths: Iterable[Path]) -> str:
    """Short digest of files: a record belongs to one state of them."""
    made = hashlib.sha256()
    for path in sorted(paths):
        made.update(path.read_bytes())
    return made.hexdigest()[:16]
