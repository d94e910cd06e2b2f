"""Padded values: what is computed for the inner part of a whole is computed by the kernel that reads the padding.

A step of a stencil makes the change of the inner cells, pads it and adds it to the whole. Change and whole have other
shapes, so they share no nest: the change would be written and read again. Computed where the padding is read, it has no
storage, and a derivative that needs it reads the cells which the step keeps in any case.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from autojit.core.machine import Machine
from autojit.core.records import record
from autojit.core.sizes import typical
from autojit.ir.graph import Graph, Node, Value
from autojit.ops.base import Elementwise, Reindex, Source
from autojit.ops.reversal import Flip
from autojit.ops.shape import Pad, Permute, Reshape, Slice
from autojit.schedule.kinds import Kind

MOST_BUFFERS = 8
"""Buffers that such a value is computed from: a kernel may read several of them. No measurement is recorded."""

MOST_READS = 8
"""So often at most is such a value computed for one of its elements: what leads to it is walked once per reader. No
measurement is recorded."""

A_STORE = 2
"""Reads that cost what a write does: its line is read before it is written."""


_MOVES = Pad, Slice, Reshape, Permute, Flip
"""Of an operand's elements each is one of the result's, or is left out."""


@record(frozen=False)
class _Reads:
    """How an element of a value is read: how often at most, and whether by way of a padding; ``is_open``: who knows."""

    count: int = 0
    is_padded: bool = False
    is_open: bool = False

    def add(self, other: _Reads) -> None:
        self.count += other.count
        self.is_padded = self.is_padded or other.is_padded
        self.is_open = self.is_open or other.is_open


def padded_values(
    graph: Graph,
    definitions: Mapping[Value, Node],
    kinds: Mapping[Node, Kind],
    inline: AbstractSet[Value],
    machine: Machine,
) -> set[Value]:
    """Cheap elementwise values of which a padding is read, where reading what they are made of moves less memory.

    With ``b`` buffers read for an element of a value and ``r`` readers, ``b + r`` reads and a write become ``b * r``
    reads. What is padded itself stays: its edges would be asked for once per reader. So do small values, which cost no
    more in a cache than computing them twice (`Machine.small_domain`; ten terms of a Rosenbrock sum: 2.4 and 2.8 us a
    step). Time O(edges), and for every such value once more those between it and what is stored.

    Args:
        inline: values without storage by other reasons.
    """
    if not machine.computes_padded or not any(isinstance(node.op, Pad) for node in graph.nodes):
        return set()
    found = _candidates(graph, definitions, kinds)
    through = inline | found.keys()
    kept: set[Value] = set()
    for value, reads in found.items():
        if reads.count > MOST_READS or typical(value.type.size) <= machine.small_domain:
            continue
        buffers = _buffers(value, definitions, through)
        moved = len(buffers) * reads.count
        if len(buffers) <= MOST_BUFFERS and moved < len(buffers) + reads.count + A_STORE:
            kept.add(value)
    return kept


def _buffers(value: Value, definitions: Mapping[Value, Node], through: AbstractSet[Value]) -> set[Value]:
    """The stored values that a value is computed from."""
    found: set[Value] = set()
    waiting, seen = [value], {value}
    while waiting:
        read = waiting.pop()
        node = definitions.get(read)
        if node is None or read not in through:
            found.add(read)
        elif not isinstance(node.op, Source):
            waiting += {operand: None for operand in node.inputs if operand not in seen}
            seen.update(node.inputs)
    return found


def _candidates(graph: Graph, definitions: Mapping[Value, Node], kinds: Mapping[Node, Kind]) -> dict[Value, _Reads]:
    """The values whose readers are known and read a padding of them, the last first."""
    uses: dict[Value, _Reads] = {value: _Reads(is_open=True) for value in graph.outputs}
    found: dict[Value, _Reads] = {}
    for node in reversed(graph.nodes):
        reads = uses.setdefault(node.outputs[0], _Reads())
        if isinstance(node.op, _MOVES):
            passed = _Reads(reads.count, reads.is_padded or isinstance(node.op, Pad), reads.is_open)
        elif not isinstance(node.op, Elementwise) or kinds[node] is not Kind.POINTWISE:
            passed = _Reads(is_open=True)
        elif reads.is_padded and not reads.is_open and _is_cheap(node) and not _pads(node, definitions):
            found[node.outputs[0]] = passed = reads
        else:
            passed = _Reads(1)
        for operand in node.inputs:
            is_repeated = operand.type.size != node.outputs[0].type.size and not isinstance(node.op, _MOVES)
            uses.setdefault(operand, _Reads()).add(_Reads(is_open=True) if is_repeated else passed)
    return found


def _is_cheap(node: Node) -> bool:
    op: Any = node.op
    return bool(op.is_cheap) and not node.is_kept


def _pads(node: Node, definitions: Mapping[Value, Node]) -> bool:
    """Whether a node reads a padding."""
    for operand in node.inputs:
        behind = definitions.get(operand)
        while behind is not None and isinstance(behind.op, Reindex):
            if isinstance(behind.op, Pad):
                return True
            behind = definitions.get(behind.inputs[0])
    return False
