"""Mutations of a module's source: small changes of one expression or statement, numbered in the order of the text.

``mutations(source, wanted)`` lists them, ``mutate(source, wanted, number)`` gives the changed text. They resemble
slips of the hand: a sign, a dropped factor or term, swapped operands, a comparison's edge, a constant off by one, a
condition turned round, a forgotten statement.
"""

from __future__ import annotations

import ast
import copy
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

SWAPPED_CALLS = {  # functions of ops and emitters whose confusion is an error that compiles
    "add": "sub", "sub": "add", "mul": "div", "div": "mul", "sin": "cos", "cos": "sin", "sinh": "cosh", "cosh": "sinh",
    "maximum": "minimum", "minimum": "maximum", "fadd": "fsub", "fsub": "fadd", "fmul": "fdiv", "lt": "ge", "gt": "le",
    "le": "gt", "ge": "lt", "eq": "ne", "ne": "eq", "all": "any", "any": "all", "min": "max", "max": "min",
}  # fmt: skip
IDENTITIES = ("neg", "square", "conj", "reciprocal", "sqrt", "exp", "sum", "negative")  # calls that may be left out
TERMS = ("add", "sub", "mul", "div")  # calls of which one operand may be left out
SYMMETRIC = (  # calls whose swapped operands mean the same, or are of two kinds and fail at once
    "add", "mul", "fadd", "fmul", "maximum", "minimum", "fmax", "fmin", "isinstance", "getattr", "hasattr", "zip",
    "range", "replace", "bind", "as_operand", "eq", "ne", "_is", "same", "surely_equal", "_meet",
    "bitwise_and", "bitwise_or", "bitwise_xor", "_plus", "_of_maximum", "_of_minimum", "_hull",
    "_different_derivative", "cast", "Graph", "full", "result_of", "sum", "permute", "reshape", "broadcast_to",
)  # fmt: skip
BINARY: dict[type[ast.operator], ast.operator] = {
    ast.Add: ast.Sub(), ast.Sub: ast.Add(), ast.Mult: ast.Add(), ast.Div: ast.Mult(), ast.FloorDiv: ast.Mult(),
    ast.Mod: ast.FloorDiv(),
}  # fmt: skip
COMPARISONS: dict[type[ast.cmpop], ast.cmpop] = {
    ast.Lt: ast.LtE(), ast.LtE: ast.Lt(), ast.Gt: ast.GtE(), ast.GtE: ast.Gt(), ast.Eq: ast.NotEq(),
    ast.NotEq: ast.Eq(), ast.Is: ast.IsNot(), ast.IsNot: ast.Is(), ast.In: ast.NotIn(), ast.NotIn: ast.In(),
}  # fmt: skip
Change = Callable[[ast.AST], ast.AST | None]  # of a copy of the node; None: leave the statement out


class Mutation(NamedTuple):
    """One change of a module."""

    number: int
    function: str
    line: int
    text: str  # "mul(a, b) -> mul(b, a)"
    statement: int  # the line where its statement begins


class _Site(NamedTuple):
    function: str
    node: ast.AST
    change: Change
    what: str

    def text(self) -> str:
        """The change in words."""
        if isinstance(self.node, ast.If):  # without its body
            return f"{_short(self.node)} -> {_short(ast.If(ast.UnaryOp(ast.Not(), self.node.test), [], []))}"
        trial = self.change(copy.deepcopy(self.node))
        return self.what if trial is None else f"{_short(self.node)} -> {_short(trial)}"


def mutations(source: str, wanted: Callable[[str], bool]) -> list[Mutation]:
    """Every mutation of the functions whose qualified name is wanted."""
    sites = _sites(ast.parse(source), wanted)
    return [
        Mutation(k, s.function, getattr(s.node, "lineno", 0), s.text(), getattr(s.node, "statement", 0))
        for k, s in enumerate(sites)
    ]


def mutate(source: str, wanted: Callable[[str], bool], number: int) -> str:
    """The source with one mutation."""
    tree = ast.parse(source)
    site = list(_sites(tree, wanted))[number]
    changed = site.change(copy.deepcopy(site.node))
    return ast.unparse(ast.fix_missing_locations(_Replacing(site.node, changed).visit(tree)))


class _Replacing(ast.NodeTransformer):
    """Puts a node in the place of another (the same object)."""

    def __init__(self, old: ast.AST, new: ast.AST | None) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        """The changed node, or the node with its parts visited."""
        if node is self.old:
            return ast.copy_location(ast.Pass(), node) if self.new is None else self.new
        found: ast.AST = self.generic_visit(node)
        return found


def _sites(tree: ast.Module, wanted: Callable[[str], bool]) -> Iterator[_Site]:
    known = _of_versions(tree)
    for function, name in functions(tree):
        _mark_other_versions(function, known)
        if wanted(name):
            for statement in function.body:
                for node in ast.walk(statement):
                    if not _is_in_an_error(node):
                        yield from _of_node(node, name)


def functions(node: ast.AST, prefix: str = "") -> Iterator[tuple[ast.FunctionDef, str]]:
    """Functions and methods with their qualified names, marked for what follows."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef):
            _mark_messages(child)
            _mark_statements(child)
            yield child, f"{prefix}{child.name}"
        elif isinstance(child, ast.ClassDef):
            yield from functions(child, f"{prefix}{child.name}.")


def _mark_messages(function: ast.FunctionDef) -> None:
    """Docstrings, what is raised, asserted and annotated have no meaning that a check could see."""
    for node in ast.walk(function):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        parts: list[ast.AST] = [node] if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr) or is_text else []
        if isinstance(node, ast.AnnAssign | ast.arg) and node.annotation is not None:
            parts.append(node.annotation)
        for part in parts:
            for inner in ast.walk(part):
                vars(inner)["is_message"] = True


def _of_versions(tree: ast.Module) -> dict[str, object]:
    """The module's constants that say which version of Python runs, with ``sys`` itself."""
    known: dict[str, object] = {"sys": sys}
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and isinstance(target := statement.targets[0], ast.Name):
            names = {n.id for n in ast.walk(statement.value) if isinstance(n, ast.Name)}
            is_version = "sys.version_info" in ast.unparse(statement.value) or bool(names - {"sys"})
            if names and names <= known.keys() and is_version:
                known[target.id] = eval(ast.unparse(statement.value), dict(known))
    return known


def _mark_other_versions(function: ast.FunctionDef, known: dict[str, object]) -> None:
    """What runs on another version of Python alone cannot be seen on this one."""
    for node in ast.walk(function):
        if isinstance(node, ast.If | ast.IfExp):
            names = {n.id for n in ast.walk(node.test) if isinstance(n, ast.Name)}
            if names and names <= known.keys():
                other = node.orelse if eval(ast.unparse(node.test), dict(known)) else node.body
                parts: list[ast.AST] = [*other] if isinstance(other, list) else [other]
                for part in parts:
                    for inner in ast.walk(part):
                        vars(inner)["is_message"] = True


def _mark_statements(node: ast.AST) -> None:
    """Every part of a statement is told the line of the innermost statement it is in."""
    for child in ast.iter_child_nodes(node):
        vars(child)["statement"] = child.lineno if isinstance(child, ast.stmt) else getattr(node, "statement", 0)
        _mark_statements(child)


def _is_in_an_error(node: ast.AST) -> bool:
    return bool(getattr(node, "is_message", False))


def _of_node(node: ast.AST, function: str) -> Iterator[_Site]:
    for change, what in _changes(node):
        yield _Site(function, node, change, what)


def _short(node: ast.AST) -> str:
    text = f"if {ast.unparse(node.test)}:" if isinstance(node, ast.If) else ast.unparse(node).split("\n", 1)[0]
    return text if len(text) <= 70 else text[:67] + "..."


def _changes(node: ast.AST) -> Iterator[tuple[Change, str]]:
    if isinstance(node, ast.BinOp) and type(node.op) in BINARY:
        yield _operator, ""
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARISONS:
        yield (_turned if _is_tuned(node) else _comparison), ""
    elif isinstance(node, ast.BoolOp):
        yield _connective, ""
        yield _first_condition, ""
    elif (
        isinstance(node, ast.UnaryOp)
        and isinstance(node.op, ast.USub | ast.Not)
        and not isinstance(node.operand, ast.Constant)
    ):
        yield _bare, ""
    elif isinstance(node, ast.Constant) and type(node.value) in (int, float) and node.value not in (10**9,):
        yield _constant, ""
    elif isinstance(node, ast.Call):
        yield from _call_changes(node)
    elif isinstance(node, ast.If | ast.IfExp):
        yield _condition, ""
    elif isinstance(node, ast.Expr | ast.AugAssign):
        yield _nothing, f"drop: {_short(node)}"
    elif isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple) and _differ(node.value.elts):
        yield _swapped_results, ""


def _call_changes(node: ast.Call) -> Iterator[tuple[Change, str]]:
    name = _called(node)
    if name in SWAPPED_CALLS and (isinstance(node.func, ast.Name) or name.startswith("f")):
        yield _other_function, ""
    if name in IDENTITIES and len(node.args) == 1:
        yield _argument, ""
    if name in TERMS and len(node.args) == 2:
        yield _argument, ""
    is_plain = len(node.args) == 2 and not any(isinstance(a, ast.Starred) for a in node.args)
    if is_plain and name not in SYMMETRIC and _differ(node.args):
        yield _swapped_arguments, ""


def _differ(parts: list[ast.expr]) -> bool:
    """Whether the first two of them differ: known.get(v, v) and (None, None) are the same when swapped."""
    return len(parts) > 1 and ast.dump(parts[0]) != ast.dump(parts[1])


def _called(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")


def _operator(node: ast.AST) -> ast.AST:
    assert isinstance(node, ast.BinOp)
    node.op = BINARY[type(node.op)]
    return node


def _comparison(node: ast.AST) -> ast.AST:
    assert isinstance(node, ast.Compare)
    node.ops = [COMPARISONS[type(node.ops[0])], *node.ops[1:]]
    return node


def _is_tuned(node: ast.Compare) -> bool:
    """Whether it compares with a constant of the module: what equals a measured limit may take either way."""
    sides = (node.left, *node.comparators)
    return any(isinstance(s, ast.Name) and s.id.isupper() for s in sides)


def _turned(node: ast.AST) -> ast.AST:
    assert isinstance(node, ast.expr)
    return ast.UnaryOp(ast.Not(), node)


def _connective(node: ast.AST) -> ast.AST:
    assert isinstance(node, ast.BoolOp)
    node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
    return node


def _first_condition(node: ast.AST) -> ast.AST:
    assert isinstance(node, ast.BoolOp)
    return node.values[0] if len(node.values) == 2 else ast.BoolOp(node.op, node.values[:-1])


def _bare(node: ast.AST) -> ast.AST:
    assert isinstance(node, ast.UnaryOp)
    return node.operand


def _constant(node: ast.AST) -> ast.AST:
    assert isinstance(node, ast.Constant)
    assert isinstance(node.value, int | float)
    return ast.Constant(node.value + 1 if isinstance(node.value, int) or node.value == 0 else node.value * 1.01)


def _condition(node: ast.AST) -> ast.AST:
    assert isinstance(node, ast.If | ast.IfExp)
    node.test = ast.UnaryOp(ast.Not(), node.test)
    return node


def _nothing(node: ast.AST) -> None:
    del node


def _swapped_results(node: ast.AST) -> ast.AST:
    assert isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple)
    first, second, *rest = node.value.elts
    node.value.elts = [second, first, *rest]
    return node


def _other_function(node: ast.AST) -> ast.AST:
    assert isinstance(node, ast.Call)
    if isinstance(node.func, ast.Name):
        node.func = ast.Name(SWAPPED_CALLS[node.func.id], ast.Load())
    else:
        assert isinstance(node.func, ast.Attribute)
        node.func = ast.Attribute(node.func.value, SWAPPED_CALLS[node.func.attr], ast.Load())
    return node


def _argument(node: ast.AST) -> ast.AST:
    assert isinstance(node, ast.Call)
    return node.args[0]


def _swapped_arguments(node: ast.AST) -> ast.AST:
    assert isinstance(node, ast.Call)
    node.args = node.args[::-1]
    return node
