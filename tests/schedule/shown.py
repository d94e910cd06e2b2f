"""Graphs and their schedules as text, for tests that show both.

Graphs are scheduled as they are written, without passes, so that a test says all that a rule sees.
"""

from __future__ import annotations

import re
from dataclasses import replace
from textwrap import dedent
from typing import Any

import autojit.ops  # noqa: F401
from autojit.codegen.cpu.machine import CPU_MACHINE
from autojit.core.machine import Machine
from autojit.ir import Graph, parse_graph, verify
from autojit.schedule.schedule import Schedule
from autojit.schedule.scheduler import schedule

_NODE = re.compile(r"(?m)^ {6}(\S+).*$")  # a node of a kernel, its parameters and the user's line
_VALUES = re.compile(r"  \(([^)]*)\) -> (.*)$", re.MULTILINE)


def machine(**numbers: Any) -> Machine:
    """The CPU with other numbers."""
    return replace(CPU_MACHINE, **numbers)


def graph_of(text: str) -> Graph:
    return verify(parse_graph(dedent(text)))


def scheduled(text: str, on: Machine = CPU_MACHINE, **options: Any) -> Schedule:
    """The schedule of a graph that is given as text."""
    return schedule(graph_of(text), on, **options)


def kernels(found: Schedule) -> str:
    """A line for each kernel: what it is, its nodes' ops, what it reads and writes; bands and batches around theirs."""
    lines: list[str] = []
    for line in str(found).splitlines()[1:]:
        node = _NODE.match(line)
        if node is not None:
            lines[-1] += ("" if lines[-1].endswith("{") else " ") + node[1].partition("[")[0]
            continue
        if lines and "{" in lines[-1]:
            lines[-1] += "}"
        values = _VALUES.search(line)
        if values is None:
            lines.append(line)
            continue
        head = re.sub(r"^ *\d+ ", "", line[: values.start()])
        writes = ", ".join(part.partition(":")[0] for part in re.findall(r"\w+: \w+\[[^\]]*\]", values[2]))
        lines.append(f"{head} ({values[1]}) -> {writes} {{")
    return "\n".join(lines) + "}" * bool(lines and "{" in lines[-1] and not lines[-1].endswith("}"))


def expected(text: str) -> str:
    """An expected schedule, written indented."""
    return dedent(text).strip()
