"""``Program``: a script as a tree of statements: generated, shrunk, run and written to a file in one form."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

IMPORTS = (
    ("array", "import array"),
    ("collections", "import collections"),
    ("contextlib", "import contextlib"),
    ("contextvars", "import contextvars"),
    ("copy", "import copy"),
    ("dataclasses", "import dataclasses"),
    ("functools", "import functools"),
    ("heapq", "import heapq"),
    ("io", "import io"),
    ("itertools", "import itertools"),
    ("math", "import math"),
    ("operator", "import operator"),
    ("os", "import os"),
    ("random", "import random"),
    ("types", "import types"),
    ("np", "\nimport numpy as np\n"),
    ("aj", "import autojit as aj"),
    ("nn", "from autojit import nn"),
    ("F", "from autojit.nn import functional as F"),
    ("checkpoint", "from autojit.utils.checkpoint import checkpoint"),
)


@dataclass(frozen=True)
class Block:
    """A compound statement: ``header`` ends in a colon; ``lead`` lines (decorators) come before it."""

    header: str
    body: tuple[Node, ...]
    lead: tuple[str, ...] = ()


Node = str | Block


@dataclass(frozen=True)
class Program:
    """The statements of ``program(jit, see)``; names in ``globals`` are assigned as globals of the script."""

    seed: int
    dtype: str  # the coarsest dtype that takes part: sets the tolerance
    body: tuple[Node, ...]
    globals: tuple[str, ...] = ()
    note: str = field(default="", compare=False)

    def script(self) -> str:
        """The text: imports, the function, and a last line that runs it in both modes."""
        used = set(re.findall(r"[A-Za-z_]\w*", "\n".join(lines_of(self.body, 0))))
        heads = [line for name, line in IMPORTS if name in used]
        helpers = sorted({"filled", "sample", "sample_array"} & used)
        heads.append(f"from autojit.testing.fuzz import {', '.join([*helpers, 'show'])}")
        named = [name for name in self.globals if name in used]
        first = [f"    global {', '.join(named)}"] if named else []
        note = [f'"""{self.note}"""', ""] if self.note else []
        function = ["", "", "def program(jit, see):", *first, *lines_of(self.body, 1)]
        last = ["", "", 'if __name__ == "__main__":', f'    show(program, "{self.dtype}")', ""]
        return "\n".join([*note, *heads, *function, *last])

    def with_body(self, body: Sequence[Node]) -> Program:
        """The same with other statements."""
        return replace(self, body=tuple(body))

    def statements(self) -> int:
        """How many there are, heads of blocks included."""
        return sum(1 for line in lines_of(self.body, 0) if line.strip())


def lines_of(nodes: Sequence[Node], depth: int) -> list[str]:
    """Source lines of statements."""
    indent = "    " * depth
    found: list[str] = []
    for node in nodes:
        if isinstance(node, str):
            found += [indent + line for line in node.split("\n")]
        else:
            found += [indent + line for line in (*node.lead, node.header)]
            found += lines_of(node.body or ("pass",), depth + 1)
    return found
