"""The parser of the text form. The grammar is the docstring of ``autojit.ir``; `printing` writes it."""

from __future__ import annotations

import ast
import re
from typing import Any

from autojit.core.device import device
from autojit.core.dtypes import BY_SHORT
from autojit.core.size_text import parse_size
from autojit.core.types import TensorType, parse_type
from autojit.ir.graph import Graph, Node, Value
from autojit.ir.op import Op


class _Reader:
    """Recursive-descent reader of the grammar; positions are used for error messages."""

    def __init__(self, text: str) -> None:
        self.text = re.sub(r"#[^\n]*", "", text)
        self.position = 0

    def space(self) -> None:
        while self.position < len(self.text) and self.text[self.position].isspace():
            self.position += 1

    def fail(self, expected: str) -> ValueError:
        near = self.text[self.position : self.position + 30]
        return ValueError(f"graph text: expected {expected} at character {self.position}, found {near!r}")

    def take(self, token: str) -> bool:
        self.space()
        if self.text.startswith(token, self.position):
            self.position += len(token)
            return True
        return False

    def expect(self, token: str) -> None:
        if not self.take(token):
            raise self.fail(repr(token))

    def name(self) -> str:
        self.space()
        match = re.compile(r"[A-Za-z_%][\w.]*").match(self.text, self.position)
        if match is None:
            raise self.fail("a name")
        self.position = match.end()
        return match.group()

    def bracketed(self, opening: str, closing: str) -> str:
        """The text between balanced brackets."""
        self.expect(opening)
        start, depth = self.position, 1
        while self.position < len(self.text):
            char = self.text[self.position]
            depth += (char in "([{") - (char in ")]}")
            self.position += 1
            if depth == 0:
                return self.text[start : self.position - 1]
        raise self.fail(repr(closing))

    def type(self) -> TensorType:
        self.space()
        match = re.compile(r"\w+\[[^\]]*\](@[\w:]+)?").match(self.text, self.position)
        if match is None:
            raise self.fail("a type such as f32[2, 3]")
        self.position = match.end()
        return parse_type(match.group())

    def parameter(self) -> Value:
        name = self.name()
        self.expect(":")
        return Value(self.type(), name)

    def list(self, end: str) -> list[str]:
        names: list[str] = []
        while not self.take(end):
            names.append(self.name())
            self.take(",")
        return names


def _literal(tree: ast.expr) -> Any:
    if isinstance(tree, ast.Name):
        if tree.id in BY_SHORT:
            return BY_SHORT[tree.id]
        if tree.id in ("inf", "nan"):
            return float(tree.id)
        return parse_size(tree)
    if isinstance(tree, ast.BinOp):
        return parse_size(tree)
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub):
        return -_literal(tree.operand)
    if isinstance(tree, ast.Tuple):
        return tuple(_literal(item) for item in tree.elts)
    if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name):
        if tree.func.id in ("min", "max"):
            return parse_size(tree)
        if tree.func.id == "device":
            return device(*map(ast.literal_eval, tree.args))
        return Op.registry[tree.func.id](**{str(k.arg): _literal(k.value) for k in tree.keywords})
    return ast.literal_eval(tree)


def _op(name: str, fields: str) -> Op:
    if name not in Op.registry and name not in Op.registry.load():
        raise ValueError(f"graph text: no op is called {name!r}")
    found: dict[str, Any] = {}
    for field in _parts(fields):
        key, _, value = field.partition("=")
        found[key.strip()] = _value(value.strip())
    return Op.registry[name](**found)


def _value(text: str) -> Any:
    """A static parameter: a graph, a tuple of graphs, or a literal."""
    if text.endswith("}"):
        return parse_graph(text)
    if text.startswith("(") and "{" in text:
        return tuple(_value(part) for part in _parts(text[1:-1]))
    return _literal(ast.parse(text, mode="eval").body)


def _parts(text: str) -> list[str]:
    """What is between the commas outside brackets and quotes."""
    found: list[str] = []
    depth = start = 0
    quote = ""
    for place, char in enumerate(text):
        if quote:
            quote = "" if char == quote and text[place - 1] != "\\" else quote
        elif char in "'\"":
            quote = char
        elif char == "," and depth == 0:
            found.append(text[start:place].strip())
            start = place + 1
        else:
            depth += (char in "([{") - (char in ")]}")
    found.append(text[start:].strip())
    return [part for part in found if part]


def parse_graph(text: str) -> Graph:
    """Read a graph from its text form; ValueError says what was expected where."""
    reader = _Reader(text)
    values: dict[str, Value] = {}
    inputs: list[Value] = []
    reader.expect("(")
    while not reader.take(")"):
        inputs.append(reader.parameter())
        reader.take(",")
    values.update({v.name: v for v in inputs})
    reader.expect("{")
    nodes: list[Node] = []
    while not reader.take("return"):
        outputs = [reader.parameter()]
        while reader.take(","):
            outputs.append(reader.parameter())
        reader.expect("=")
        op_name = reader.name()
        reader.space()
        has_fields = reader.text.startswith("[", reader.position)
        op = _op(op_name, reader.bracketed("[", "]") if has_fields else "")
        reader.expect("(")
        operands = tuple(values[name] for name in reader.list(")"))
        nodes.append(Node(op, operands, tuple(outputs)))
        values.update({v.name: v for v in outputs})
        reader.take(";")
    results = tuple(values[name] for name in reader.list("}"))
    return Graph(tuple(inputs), tuple(nodes), results)
