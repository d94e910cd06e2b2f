"""Which functions of the product are mutated, in four families; ``every_mutation()`` lists them all."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import autojit
from autojit.testing.mutants.mutations import Mutation, functions, mutate, mutations

ROOT = Path(autojit.__file__).parent
DERIVATIVES = ("partials", "slope", "vjp", "jvp", "batch", "pull_back")
LOWERINGS = ("lower", "combine", "source_index", "source_index_at", "target_index_at")
LEFT_OUT = {  # they tell, or they are themselves checks
    "jit": ("report.py", "verify.py", "memory_check.py", "scripting.py", "__init__.py"),
    "passes": ("__init__.py",),
}


class Family(NamedTuple):
    """A kind of target."""

    name: str
    folder: str
    wants: Callable[[str], bool]


FAMILIES = (
    Family("derivatives", "ops", lambda name: name.rpartition(".")[2] in DERIVATIVES),
    Family("lowerings", "ops", lambda name: name.rpartition(".")[2] in LOWERINGS),
    Family("transforms", "transforms", lambda name: True),
    Family("passes", "passes", lambda name: True),
    Family("jit", "jit", lambda name: not name.rpartition(".")[2].startswith(("__repr__", "describe", "explain"))),
)


class Target(NamedTuple):
    """One mutation of one module."""

    family: str
    path: str  # of the module, below the package
    mutation: Mutation

    @property
    def identity(self) -> str:
        """How the command line names it."""
        return f"{self.family}:{self.path}:{self.mutation.number}"

    @property
    def module(self) -> str:
        """The module's name."""
        return "autojit." + self.path.removesuffix(".py").replace("/", ".")

    def text(self) -> str:
        """The module's mutated text."""
        source = (ROOT / self.path).read_text(encoding="utf-8")
        family = next(family for family in FAMILIES if family.name == self.family)
        return mutate(source, family.wants, self.mutation.number)

    def lines(self) -> range:
        """Where the mutated function is in its file."""
        tree = ast.parse((ROOT / self.path).read_text(encoding="utf-8"))
        function = {name: node for node, name in functions(tree)}[self.mutation.function]
        return range(function.lineno, (function.end_lineno or function.lineno) + 1)

    def describe(self) -> str:
        """One line for the report."""
        return f"{self.path}:{self.mutation.line} {self.mutation.function}: {self.mutation.text}"


def every_mutation(families: tuple[str, ...] = ()) -> list[Target]:
    """All targets, or those of some families, in the order of the files."""
    return [t for family in FAMILIES if not families or family.name in families for t in _of_family(family)]


@cache
def _of_family(family: Family) -> tuple[Target, ...]:
    found: list[Target] = []
    for path in sorted((ROOT / family.folder).glob("*.py")):
        if path.name not in LEFT_OUT.get(family.folder, ()):
            text = path.read_text(encoding="utf-8")
            where = f"{family.folder}/{path.name}"
            found += [Target(family.name, where, m) for m in mutations(text, family.wants)]
    return tuple(found)
