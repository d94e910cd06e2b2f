"""Graphs, ops and types with open sizes, for given values of the sizes."""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType
from typing import Any

from autojit.core.size_expressions import constant
from autojit.core.sizes import SymbolicSize, is_symbolic, size
from autojit.core.types import TensorType
from autojit.ir.graph import Graph, Node, Value
from autojit.ir.op import Op


def concrete(what: Any, sizes: Mapping[str, int]) -> Any:
    """A size, or anything that holds sizes (shape, op, type, graph, nested tuple), evaluated; else ``what`` itself.

    Sizes that depend on others than those in ``sizes`` stay open, as do those that depend on values that are open.

    Example:
        >>> from autojit.core.sizes import named_size
        >>> concrete((named_size("s0", 8) * 2, 3), {"s0": 5})
        (10, 3)
    """
    if isinstance(what, SymbolicSize):
        symbols = set(what.expression.symbols())
        is_whole = sizes.keys() >= symbols
        opened = {name: value for name, value in sizes.items() if isinstance(value, SymbolicSize) and name in symbols}
        if is_whole and not opened:
            return what.expression.evaluate(sizes)
        given = {name: constant(value) for name, value in sizes.items() if name not in opened and name in symbols}
        given |= {name: value.expression for name, value in opened.items()}
        hints = {name: opened[name].hint if name in opened else value for name, value in sizes.items()}
        return size(what.expression.evaluate(hints) if is_whole else what.hint, what.expression.substitute(given))
    if isinstance(what, tuple) and not hasattr(what, "_fields"):
        found = tuple([concrete(item, sizes) for item in what])
        if all(a is b for a, b in zip(found, what, strict=True)):
            return what
        return found if type(what) is tuple else type(what)(found)  # a tensor's Size
    if isinstance(what, TensorType):
        return what.with_shape(concrete(what.shape, sizes)) if is_open(what.shape) else what
    if isinstance(what, Op):
        return _concrete_op(what, sizes)
    return _concrete_graph(what, sizes) if isinstance(what, Graph) else what


def hinted(what: Any) -> Any:
    """A size, shape or op with every open size at its hint, for questions that all sizes from 2 on answer alike."""
    if isinstance(what, SymbolicSize):
        return what.hint
    if type(what) is tuple:
        return tuple(map(hinted, what))
    if not isinstance(what, Op) or not symbols_of(what):
        return what
    return type(what)(*[hinted(getattr(what, name)) for name in what.__match_args__])


def _concrete_op(op: Op, sizes: Mapping[str, int]) -> Op:
    if op.of_sizes is not None:
        return op.of_sizes(sizes)
    given = [getattr(op, name) for name in op.__match_args__]
    found = [concrete(value, sizes) for value in given]
    return op if all(a is b for a, b in zip(found, given, strict=True)) else type(op)(*found)


def _concrete_graph(graph: Graph, sizes: Mapping[str, int]) -> Graph:
    known: dict[Value, Value] = {}

    def fixed(value: Value) -> Value:
        if value not in known:
            known[value] = Value(concrete(value.type, sizes), value.name)
        return known[value]

    inputs = tuple(map(fixed, graph.inputs))
    nodes = tuple(
        Node(concrete(n.op, sizes), tuple(map(fixed, n.inputs)), tuple(map(fixed, n.outputs)), n.source)
        for n in graph.nodes
    )
    return Graph(inputs, nodes, tuple(map(fixed, graph.outputs)))


def is_open(shape: tuple[int, ...]) -> bool:
    """Whether a shape holds a size that is left open."""
    return any(map(is_symbolic, shape))


def symbols_of(what: Any) -> set[str]:
    """The names of the open sizes in a size, a shape, a type, an op, or a nested tuple of these."""
    if isinstance(what, SymbolicSize):
        return set(what.expression.symbols())
    if isinstance(what, TensorType):
        what = what.shape
    elif isinstance(what, Op):
        what = tuple([getattr(what, name) for name in what.__match_args__])
    if not isinstance(what, tuple) or _WITHOUT_SYMBOLS.issuperset(map(type, what)):
        return set()
    return set().union(*map(symbols_of, what))


_WITHOUT_SYMBOLS = frozenset((int, float, bool, str, NoneType))
"""Of parts: most shapes and parameters are seen at a glance."""


def take_sizes(kind: TensorType, shape: tuple[int, ...], sizes: dict[str, int]) -> None:
    """Note the values of the symbols that are extents of a type, from the shape of an array of this type."""
    for extent, found in zip(kind.shape, shape, strict=True):
        if is_symbolic(extent):
            sizes.setdefault(str(extent), found)
