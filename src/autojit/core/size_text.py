"""Sizes from their text: what ``str`` of a size gives, and a type or a graph prints."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from autojit.core import size_expressions as expressions
from autojit.core.sizes import named_size, size_max, size_min


def parse_size(tree: ast.expr) -> int:
    """A size from the syntax tree of its text; names beginning with "u" may be 0, as those that a step counts itself.

    Raises:
        ValueError: the text is not a size.
    """
    match tree:
        case ast.Constant(value=int(value)):
            return value
        case ast.Name(id=name):
            return named_size(name, 61, 0 if name.startswith("u") else expressions.LEAST)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -parse_size(operand)
        case ast.BinOp(left=left, op=operation, right=right) if type(operation) in _SYNTAX:
            computed: int = _SYNTAX[type(operation)](parse_size(left), parse_size(right))
            return computed
        case ast.Call(func=ast.Name(id=("min" | "max") as name), args=[left, right]):
            return (size_min if name == "min" else size_max)(parse_size(left), parse_size(right))
    raise ValueError(f"no size: {ast.unparse(tree)}")


_SYNTAX: dict[type, Callable[[int, int], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
