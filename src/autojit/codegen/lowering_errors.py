"""What is said when a kernel cannot be lowered."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from typing import TYPE_CHECKING

from autojit.core.errors import CompileError

if TYPE_CHECKING:
    from autojit.ir.graph import Node
    from autojit.schedule.schedule import Schedule

SHOWN_LINES = 40  # of a graph in an error message


def lowering_error(nodes: Sequence[Node], schedule: Schedule, error: Exception) -> CompileError:
    """The error for a kernel of these nodes whose lowering raised another one."""
    facts = {
        "ops": ", ".join(dict.fromkeys(n.op.name for n in nodes)),
        "at": ", ".join(dict.fromkeys(str(n.source) for n in nodes)),
        "reason": f"{type(error).__name__}: {error}",
        "graph": keep_graph(str(schedule.graph)),
    }
    return CompileError("lowering failed", facts, "this is a defect of autojit: report it with the graph text")


def keep_graph(text: str) -> str:
    """The graph's text itself when short, else the name of a file that holds it."""
    if text.count("\n") < SHOWN_LINES:
        return "\n" + text
    handle, path = tempfile.mkstemp(prefix="autojit-", suffix=".graph", text=True)
    with os.fdopen(handle, "w") as file:
        file.write(text)
    return path
