"""Pulling: which element of a buffer is element ``i`` of a value.

Reindexing ops, sources and gathers are *inline*: they are never computed on their own unless somebody needs their
storage; readers follow them to the values that are stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from functools import lru_cache

from autojit.core.types import Shape
from autojit.ir.graph import Node, Value
from autojit.ir.index import Index, LoopVariable, Opaque
from autojit.ops.base import Elementwise, Reindex, Source
from autojit.ops.shape import Reshape

Indices = tuple[Index, ...]


@lru_cache(maxsize=4096)  # a process has few shapes; the variables of one must not be made for each node
def loop_indices(shape: Shape, prefix: str = "i") -> Indices:
    """A fresh loop variable per axis (extent 1 gives the constant 0)."""
    return tuple(Index.of(LoopVariable(f"{prefix}{axis}", n)) for axis, n in enumerate(shape))


def broadcast_index(index: Indices, shape: Shape) -> Indices:
    """The position in an operand of ``shape`` that broadcasting pairs with ``index``."""
    added = len(index) - len(shape)
    if not added and 1 not in shape:
        return index
    return tuple(Index() if n == 1 else index[axis + added] for axis, n in enumerate(shape))


def reshape_root(value: Value, definitions: Mapping[Value, Node], inline: AbstractSet[Value]) -> Value:
    """The value whose storage holds the same bytes in the same order: what it shows in another shape, or itself."""
    while value in inline and isinstance(definitions[value].op, Reshape):
        value = definitions[value].inputs[0]
    return value


def gathered_index(node: Node, index: Indices) -> tuple[list[tuple[Value, Indices, int, str]], Indices]:
    """For a gather: its look-ups (index operand, position in it, extent, opaque name) and the position in the data."""
    lookups: list[tuple[Value, Indices, int, str]] = []

    def fetch(operand: int, where: Indices, extent: int) -> Index:
        name = f"g{len(lookups)}"
        lookups.append((node.inputs[operand], where, extent, name))
        return Index.of(Opaque(name, extent))

    types = [v.type for v in node.inputs]
    return lookups, node.op.source_index_at(index, types, fetch)  # type: ignore[attr-defined]


def leaves(
    value: Value, index: Indices, definitions: Mapping[Value, Node], inline: frozenset[Value] | set[Value]
) -> Iterator[tuple[Value, Indices]]:
    """The stored values that ``value[index]`` reads, with the position read in each; sources read nothing."""
    node = definitions.get(value)
    if node is None or value not in inline:
        yield value, index
        return
    op = node.op
    if isinstance(op, Reindex):
        x = node.inputs[0]
        yield from leaves(x, op.source_index(index, x.type), definitions, inline)
    elif isinstance(op, Elementwise):
        for operand in node.inputs:
            yield from leaves(operand, broadcast_index(index, operand.type.shape), definitions, inline)
    elif not isinstance(op, Source):
        lookups, data = gathered_index(node, index)
        yield from leaves(node.inputs[0], data, definitions, inline)
        for operand, where, _, _ in lookups:
            yield from leaves(operand, where, definitions, inline)
