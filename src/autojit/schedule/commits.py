"""Commits: memory that outlives a step is written when nothing in the step can fail any more.

When a kernel fails, the kernels after it do not run; those before it have run, and so may other chunks of its own. So
state, and gradients whose memory is used again, are written by kernels that cannot fail, after all that can. This is
the one place that decides how (docs/design/failing_steps.md):

1. *Order.* A unit that writes a lasting output waits for every unit that may fail.
2. *Checks by themselves.* Where a look-up reads what is written in place, or writes it (``x[index] = v``), its indices
   are checked by a node of their own, which needs the indices alone, and the look-up cannot fail any more.
3. *Copies.* What is left is a unit that may fail and writes a lasting output, or that others which may fail depend on:
   the output goes to a temporary, and is copied as the last thing of the step.

How to read: `with_checks` (before fusion), `may_fail`, `order_commits` (after it).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

from autojit.core.device import CPU, Device
from autojit.ir.graph import Graph, Node, Value, replace
from autojit.ops.control_flow import HoldsGraphs
from autojit.ops.elementwise_rounding import Quotient
from autojit.ops.requirements import InRange
from autojit.ops.scattering import Scattering
from autojit.ops.shape import Reshape
from autojit.ops.sources import Full
from autojit.ops.while_sweeps import WhileLoop
from autojit.passes.index_bounds import IndexBounds
from autojit.passes.index_checks import Key, check_of, key_of, look_ups
from autojit.schedule.fusion import Fuser
from autojit.schedule.groups import Group


def may_fail(node: Node) -> bool:
    """Whether a node can be an error for the values of its operands, or for the memory it asks for as it runs."""
    op = node.op
    if isinstance(op, HoldsGraphs):  # a loop of unknown length asks for memory, and can be interrupted
        return isinstance(op, WhileLoop) or any(may_fail(inner) for graph in op.graphs() for inner in graph.nodes)
    return op.has_effect or op.may_fail(*[v.type for v in node.inputs])


def sure_nodes(graph: Graph) -> frozenset[Node]:
    """Nodes whose code looks for what cannot be: a divisor 0 that is another literal, an index that is a remainder."""
    definitions = graph.definitions()
    bounds = IndexBounds(graph)
    return frozenset(node for node in graph.nodes if _is_sure(node, definitions, bounds))


def _is_sure(node: Node, definitions: Mapping[Value, Node], bounds: IndexBounds) -> bool:
    if node.op.looks_up:
        return all(bounds.are_within(node.inputs[place], extent) for place, _, extent in look_ups(node))
    divisor = definitions.get(node.inputs[1]) if isinstance(node.op, Quotient) else None
    return (
        divisor is not None and isinstance(divisor.op, Full) and type(divisor.op.value) is int and divisor.op.value != 0
    )


def failing_nodes(graph: Graph, checked: AbstractSet[Node] = frozenset()) -> set[Node]:
    """The nodes that may fail; those that were ``checked`` cannot. Time O(nodes)."""
    return {node for node in graph.nodes if node not in checked and may_fail(node)}


# -- checks by themselves


def with_checks(graph: Graph, lasting: Collection[int], sure: AbstractSet[Node]) -> tuple[Graph, frozenset[Node]]:
    """The graph with checks in front of look-ups that touch what outputs ``lasting`` write; these look-ups.

    They are scatters that make such an output, in place, look-ups of what depends on one, and look-ups that are read
    beside such values alone (the rows of a table that a step changes, beside those of the gradient), except those that
    are ``sure`` not to fail. Time O(nodes).
    """
    if not lasting:
        return graph, frozenset()
    definitions = graph.definitions()
    written = {_root(graph.outputs[place], definitions) for place in lasting} & definitions.keys()
    found = {node for value in written for node in _scatters_behind(value, definitions)}
    late = set(written)
    for node in graph.nodes:
        if not late.isdisjoint(node.inputs):
            late.update(node.outputs)
            if node.op.looks_up:
                found.add(node)
    found |= _read_late(graph, late)
    found -= sure
    if not found:
        return graph, frozenset()
    wanted = {key_of(node.inputs[place], extent) for node in found for place, _, extent in look_ups(node)}
    wanted -= {key_of(node.inputs[0], node.op.extent) for node in graph.nodes if isinstance(node.op, InRange)}
    nodes: list[Node] = []
    for node in graph.nodes:  # the first look-up by an index is the one that eager mode fails at
        if wanted and node.op.looks_up:
            nodes += _checks(node, wanted)
        nodes.append(node)
    return replace(graph, nodes=tuple(nodes)), frozenset(found)


def _read_late(graph: Graph, late: AbstractSet[Value]) -> set[Node]:
    """The look-ups that only nodes which read something ``late`` read."""
    early = {v for node in graph.nodes if late.isdisjoint(node.inputs) for v in node.inputs} | set(graph.outputs)
    return {node for node in graph.nodes if node.op.looks_up and early.isdisjoint(node.outputs)}


def _root(value: Value, definitions: Mapping[Value, Node]) -> Value:
    """The value whose elements a value shows in another shape."""
    node = definitions.get(value)
    while node is not None and isinstance(node.op, Reshape):
        value = node.inputs[0]
        node = definitions.get(value)
    return value


def _scatters_behind(value: Value, definitions: Mapping[Value, Node]) -> Iterator[Node]:
    """The scatters that turn a base into the value, one after the other."""
    node = definitions.get(value)
    while node is not None and isinstance(node.op, Scattering):
        yield node
        node = definitions.get(_root(node.inputs[0], definitions))


def _checks(node: Node, wanted: set[Key]) -> list[Node]:
    """Checks of those of a look-up's indices that are ``wanted``, and are no more."""
    found: list[Node] = []
    for place, axis, extent in look_ups(node):
        index = node.inputs[place]
        key = key_of(index, extent)
        if key in wanted:
            wanted.remove(key)
            found.append(check_of(node, axis, index, extent))
    return found


# -- order


def failing_units(fuser: Fuser, failing: AbstractSet[Node]) -> set[int]:
    """The units that may fail: by a node of theirs, or by a look-up that they compute where they read it."""
    looked: set[Value] = set()  # values without storage that need a look-up which may fail
    for node in fuser.graph.nodes:
        if node.outputs[0] in fuser.inline and (node in failing or not looked.isdisjoint(node.inputs)):
            looked.update(node.outputs)
    return {
        number
        for number, unit in enumerate(fuser.units)
        if any(node in failing or not looked.isdisjoint(node.inputs) for node in _nodes(unit))
    }


def _device_of(unit: Group | Node | None) -> Device:
    nodes = _nodes(unit)
    return nodes[0].outputs[0].type.device if nodes and nodes[0].outputs else CPU


def _nodes(unit: Group | Node | None) -> Sequence[Node]:
    if isinstance(unit, Group):
        return unit.members
    return () if unit is None else (unit,)


def order_commits(fuser: Fuser, failing: AbstractSet[int], lasting: Mapping[int, Value]) -> set[int]:
    """Let writers of ``lasting`` outputs wait for the units that may fail; the positions of those that cannot wait.

    A device reports when all that it was told is done, so what the host computes beside it is copied then: a counter
    that waited would part the step that reads it on the device in two.
    """
    needed = 0
    for unit in failing:
        needed |= fuser.dependencies[unit] | 1 << unit
    reports_late = fuser.is_mixed and any(_device_of(fuser.units[unit]) != CPU for unit in failing)
    cannot_wait: set[int] = set()
    for position, value in lasting.items():
        writer = fuser.owner.get(value)
        if writer is None:
            continue  # another output, or an input, that is copied at the end
        if needed >> writer & 1 or (reports_late and value.type.device == CPU):
            cannot_wait.add(position)
        else:
            fuser.wait_for_all(writer, failing, needed)
    return cannot_wait
