"""Mutations of a module's source: small changes of one expression or statement, numbered in the order of the text.

``mutations(source, wanted)`` lists them, ``mutate(source, wanted, number)`` gives the changed text. They resemble
slips of the hand: a sign, a dropped factor or term, swapped operands, a comparison's edge, a constant off by one, a
condition turned round, a forgotten statement.
"""

from __future__ import annotations

import ast
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
    changed: ast.AST | None  # what stands in its place; None: the statement is left out

    def text(self) -> str:
        """The change in words."""
        before = _short(self.node)
        return f"drop: {before}" if self.changed is None else f"{before} -> {_short(self.changed)}"


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
    return ast.unparse(ast.fix_missing_locations(_Replacing(site.node, site.changed).visit(tree)))


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
                    if not getattr(node, "is_message", False):
                        yield from (_Site(name, node, changed) for changed in _changes(node))


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
        if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr) or is_text:
            _leave_alone(node)
        if isinstance(node, ast.AnnAssign | ast.arg) and node.annotation is not None:
            _leave_alone(node.annotation)


def _leave_alone(*parts: ast.AST) -> None:
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
                _leave_alone(*(other if isinstance(other, list) else [other]))


def _mark_statements(node: ast.AST) -> None:
    """Every part of a statement is told the line of the innermost statement it is in."""
    for child in ast.iter_child_nodes(node):
        vars(child)["statement"] = child.lineno if isinstance(child, ast.stmt) else getattr(node, "statement", 0)
        _mark_statements(child)


def _short(node: ast.AST) -> str:
    text = f"if {ast.unparse(node.test)}:" if isinstance(node, ast.If) else ast.unparse(node).split("\n", 1)[0]
    return text if len(text) <= 70 else text[:67] + "..."


def _changes(node: ast.AST) -> Iterator[ast.AST | None]:
    """What may stand in a node's place; its parts are the node's own."""
    match node:
        case ast.BinOp() if type(node.op) in BINARY:
            yield ast.BinOp(node.left, BINARY[type(node.op)], node.right)
        case ast.Compare() if type(node.ops[0]) in COMPARISONS:
            other = ast.Compare(node.left, [COMPARISONS[type(node.ops[0])], *node.ops[1:]], node.comparators)
            yield ast.UnaryOp(ast.Not(), node) if _is_tuned(node) else other
        case ast.BoolOp():
            yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
            yield node.values[0] if len(node.values) == 2 else ast.BoolOp(node.op, node.values[:-1])
        case ast.UnaryOp(op=ast.USub() | ast.Not()) if not isinstance(node.operand, ast.Constant):
            yield node.operand
        case ast.Constant(value=int() | float() as value) if type(value) is not bool and value not in (10**9,):
            yield ast.Constant(value + 1 if isinstance(value, int) or value == 0 else value * 1.01)
        case ast.Call():
            yield from _call_changes(node)
        case ast.If():
            yield ast.If(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse)
        case ast.IfExp():
            yield ast.IfExp(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse)
        case ast.Expr() | ast.AugAssign():
            yield None
        case ast.Return(value=ast.Tuple(elts=[first, second, *rest])) if _differ(first, second):
            yield ast.Return(ast.Tuple([second, first, *rest], ast.Load()))


def _call_changes(node: ast.Call) -> Iterator[ast.AST]:
    name, args, other = _called(node), node.args, SWAPPED_CALLS.get(_called(node), "")
    if other and isinstance(node.func, ast.Name):
        yield ast.Call(ast.Name(other, ast.Load()), args, node.keywords)
    elif other and isinstance(node.func, ast.Attribute) and name.startswith("f"):
        yield ast.Call(ast.Attribute(node.func.value, other, ast.Load()), args, node.keywords)
    if (name in IDENTITIES and len(args) == 1) or (name in TERMS and len(args) == 2):
        yield args[0]
    is_plain = len(args) == 2 and not any(isinstance(a, ast.Starred) for a in args)
    if is_plain and name not in SYMMETRIC and _differ(*args):
        yield ast.Call(node.func, args[::-1], node.keywords)


def _differ(first: ast.expr, second: ast.expr) -> bool:
    """Whether swapping them changes something: known.get(v, v) and (None, None) are the same when swapped."""
    return ast.dump(first) != ast.dump(second)


def _called(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")


def _is_tuned(node: ast.Compare) -> bool:
    """Whether it compares with a constant of the module: what equals a measured limit may take either way."""
    sides = (node.left, *node.comparators)
    return any(isinstance(s, ast.Name) and s.id.isupper() for s in sides)
