"""Graphs, users' lines and modules as tables: nodes refer to them by number, so that pages stay small."""

from __future__ import annotations

import linecache
from collections.abc import Mapping
from typing import Any

from autojit.core.program_parts import Part
from autojit.core.sizes import typical
from autojit.core.source import SourceLocation
from autojit.ir.graph import Graph, Node, Value
from autojit.ir.printing import names_of, print_parameters

MOST_PARAMETERS = 400  # characters of an op's parameters: the body of a loop is shown as a program of its own


class Tables:
    """Types, lines of users' code and parts of the program, each once."""

    def __init__(self) -> None:
        self.types: dict[str, int] = {}
        self.type_bytes: list[int] = []
        self.sources: list[list[Any]] = []
        self.parts: list[list[str]] = []
        self._places: dict[SourceLocation, int] = {}
        self._sources: dict[tuple[str, int, str], int] = {}
        self._parts: dict[Part, int] = {}
        self._known_parts: dict[tuple[str, str], int] = {}

    def type(self, value: Value) -> int:
        """The number of a value's type."""
        number = self.types.setdefault(str(value.type), len(self.types))
        if number == len(self.type_bytes):
            self.type_bytes.append(int(typical(value.type.size_bytes)))
        return number

    def source(self, source: SourceLocation) -> int:
        """The number of a line: its short name, its text, the whole path, what is called there."""
        known = self._places.get(source)
        if known is not None:
            return known
        key = source.file, source.line, source.callee
        number = self._places[source] = self._sources.setdefault(key, len(self.sources))
        if number == len(self.sources):
            self.sources.append([str(source), _text_of(source), source.file, source.function, source.callee])
        return number

    def part(self, part: Part) -> int:
        """The number of a part: its phase, the path of its module, the module's class."""
        number = self._parts.get(part)
        if number is None:
            shown = part.phase, part.module
            number = self._parts[part] = self._known_parts.setdefault(shown, len(self.parts))
            if number == len(self.parts):
                self.parts.append([*shown, part.kind if part.root is not None else ""])
        return number

    def as_data(self) -> dict[str, Any]:
        """What the page gets."""
        return {"types": list(self.types), "type_bytes": self.type_bytes, "sources": self.sources, "parts": self.parts}


def _text_of(source: SourceLocation) -> str:
    """The user's line, "" where it cannot be had: what gives sources of odd files may raise anything."""
    try:
        return linecache.getline(source.file, source.line).strip()
    except Exception:
        return ""


def graph_data(
    graph: Graph, tables: Tables, told: Mapping[Value, str], kernel_of: Mapping[Node, int]
) -> dict[str, Any]:
    """A graph: values have numbers, inputs first, then the nodes' results in order.

    A node is [op, parameters, inputs, [[name, type] of its results], line, part, kernel or -1].
    """
    names = names_of(graph)
    numbers = {value: k for k, value in enumerate(graph.inputs)}
    nodes: list[list[Any]] = []
    for node in graph.nodes:
        for value in node.outputs:
            numbers[value] = len(numbers)
        results = [[names[v], tables.type(v)] for v in node.outputs]
        where = tables.source(node.source), tables.part(node.source.part), kernel_of.get(node, -1)
        read = [numbers[v] for v in node.inputs]
        nodes.append([node.op.shown_name, shortened(print_parameters(node.op)), read, results, *where])
    inputs = [[names[v], tables.type(v), told.get(v, "")] for v in graph.inputs]
    return {"inputs": inputs, "nodes": nodes, "outputs": [numbers[v] for v in graph.outputs]}


def shortened(text: str, most: int = MOST_PARAMETERS) -> str:
    """A text, or its beginning and that it goes on."""
    return text if len(text) <= most else f"{text[:most]}... ({len(text)} characters)"
