"""Joined values: a concatenation of what one nest computes is stored by that nest, part by part.

The gradient of gates that were parts of one product is such a concatenation; by itself it would be a kernel of copies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING

from autojit.core.sizes import is_symbolic
from autojit.ir.graph import Node, Value
from autojit.ops.joining import Concatenate
from autojit.schedule.groups import FULL, OUT, Group
from autojit.schedule.pull import Indices, reshape_root

if TYPE_CHECKING:
    from autojit.schedule.fusion import Fuser


def join_parts(fuser: Fuser, node: Node) -> bool:
    """Let the group that computes every operand of a concatenation, each at all of its points, store the whole.

    Not where an operand is read by others too: who stores it by itself would write everything twice.
    """
    if not isinstance(node.op, Concatenate) or node.is_kept or any(map(is_symbolic, _offsets(node))):
        return False
    sources = [reshape_root(operand, fuser.definitions, fuser.inline) for operand in node.inputs]
    owners = {fuser.owner.get(source) for source in sources}
    unit = owners.pop()
    group = None if unit is None or owners else fuser.units[unit]
    if not isinstance(group, Group) or group.checks_only or len(set(sources)) != len(sources):
        return False
    if any(group.level[source] != FULL or prod(source.type.shape) != group.size for source in sources):
        return False
    stores = len(sources) + sum(level == OUT for level in group.level.values())
    if len(group.buffers) + stores > fuser.machine.most_buffers or _are_read_elsewhere(fuser, node, group, sources):
        return False
    fuser.add(group, node, OUT, (), [(source, group.position[source]) for source in sources])
    return True


def _are_read_elsewhere(fuser: Fuser, node: Node, group: Group, sources: list[Value]) -> bool:
    """Whether anything but a concatenation, and the group so far, reads what it joins."""
    inside = Counter(read for member in group.members for read in member.inputs)
    for operand, source in zip(node.inputs, sources, strict=True):
        if fuser.uses[source] != 1 + inside[source] or (operand is not source and fuser.uses[operand] != 1):
            return True
    return False


def parts_of(node: Node, group: Group, definitions: Mapping[Value, Node]) -> Iterator[tuple[Value, Indices]]:
    """Of a concatenation that a group stores: the member behind each operand, and its element's place in the whole."""
    assert isinstance(node.op, Concatenate)
    axis = node.op.axis
    for operand, (start, _) in zip(node.inputs, pairwise(_offsets(node)), strict=True):
        position = list(group.canonical(operand.type.shape, FULL))
        position[axis] = position[axis] + start
        while operand not in group.level:  # in another shape
            operand = definitions[operand].inputs[0]
        yield operand, tuple(position)


def _offsets(node: Node) -> list[int]:
    assert isinstance(node.op, Concatenate)
    return node.op.offsets([operand.type for operand in node.inputs])
