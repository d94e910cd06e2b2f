"""Branches and loops that a device decides by itself: all that is in their bodies goes there.

Literals, counters and small tables of the host are the device's inside such a body: its operands go in by value, and
its results are copied back where the host reads them. What is left for the host is a branch or loop whose condition it
knows itself, and whatever needs memory or a size that is known only while the step runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet

from autojit.core.device import CPU, Device
from autojit.core.machine import Machine
from autojit.core.sizes import is_symbolic
from autojit.ir.graph import Graph, Node, Value, values_of
from autojit.ops.base import Source
from autojit.ops.control_flow import Cond, HoldsGraphs
from autojit.ops.elementwise_arithmetic import StopGradient
from autojit.ops.shape import Reshape
from autojit.ops.sources import source_at
from autojit.ops.transfers import ToDevice
from autojit.ops.while_sweeps import WhileLoop


def may_be_decided_there(node: Node, machine: Machine) -> bool:
    """Whether a branch or loop has nothing to do with the host, as far as its values say.

    A loop that leaves tapes asks for memory while it runs; what is of open size is launched by numbers of the call.
    """
    op = node.op
    if not isinstance(op, WhileLoop | Cond) or not _has_no_tapes(op):
        return False
    condition = op.bodies[0].outputs[0] if isinstance(op, WhileLoop) else node.inputs[0]
    if condition.type.device == CPU:  # the host knows it without waiting
        return False
    values = [*node.inputs, *node.outputs, *(v for body in op.graphs() for v in _all_values(body))]
    if any(is_symbolic(value.type.size) for value in values) or len({v.type.device for v in values} - {CPU}) != 1:
        return False
    return all(v.type.device != CPU or v.type.size_bytes <= machine.value_bytes for v in values)


def _has_no_tapes(op: HoldsGraphs) -> bool:
    """Whether neither a loop nor those in it leave tapes."""
    if isinstance(op, WhileLoop) and (len(op.bodies) > 1 or op.kept or op.tapes()):
        return False
    inner = (node.op for graph in op.graphs() for node in graph.nodes)
    return all(_has_no_tapes(each) for each in inner if isinstance(each, HoldsGraphs))


def _all_values(graph: Graph) -> Iterator[Value]:
    """The values of a graph and of those in it."""
    yield from values_of(graph)
    for node in graph.nodes:
        if isinstance(node.op, HoldsGraphs):
            for inner in node.op.graphs():
                yield from _all_values(inner)


def decided_there(node: Node, names: dict[Value, Value]) -> list[Node]:
    """A branch or loop with all of its bodies on its device; ``names``: what its results are called from now on."""
    assert isinstance(node.op, HoldsGraphs)
    device = next(v.type.device for v in (*node.inputs, *node.outputs) if v.type.device != CPU)
    bodies = [with_own_outputs(_moved_whole(body, device), frozenset(), 0) for body in node.op.graphs()]
    outputs: list[Value] = []
    back: list[Node] = []
    for value in node.outputs:
        if value.type.device == device:
            outputs.append(value)
            continue
        outputs.append(Value(value.type.on(device)))
        back.append(Node(ToDevice(CPU), (outputs[-1],), (Value(value.type),), node.source))
        names[value] = back[-1].outputs[0]
    return [Node(node.op.with_graphs(bodies), node.inputs, tuple(outputs), node.source), *back]


def with_originals(nodes: Iterable[Node]) -> Iterator[Node]:
    """Let what a device computes read what it has, where it read the host's copy of it."""
    copied: dict[Value, Value] = {}
    for node in nodes:
        if isinstance(node.op, ToDevice) and node.op.device == CPU:
            copied[node.outputs[0]] = node.inputs[0]
        elif (
            copied and all(value.type.device != CPU for value in node.outputs) and not isinstance(node.op, HoldsGraphs)
        ):
            node = node.reading(copied)
        yield node


def _moved_whole(body: Graph, device: Device) -> Graph:
    """A body all of whose values are on a device; nothing in it is copied to another."""
    names: dict[Value, Value] = {}

    def there(value: Value) -> Value:
        if value not in names:
            names[value] = value if value.type.device == device else Value(value.type.on(device))
        return names[value]

    nodes: list[Node] = []
    for node in body.nodes:
        op = node.op
        if isinstance(op, ToDevice):
            names[node.outputs[0]] = there(node.inputs[0])
            continue
        if isinstance(op, Source):
            op = source_at(op, device)
        elif isinstance(op, HoldsGraphs):
            op = op.with_graphs([_moved_whole(inner, device) for inner in op.graphs()])
        nodes.append(Node(op, tuple(map(there, node.inputs)), tuple(map(there, node.outputs)), node.source))
    return Graph(tuple(map(there, body.inputs)), tuple(nodes), tuple(map(there, body.outputs)))


def with_own_outputs(body: Graph, kept: AbstractSet[Value], first: int) -> Graph:
    """A body none of whose outputs on devices is an input or another output, seen in any shape.

    Args:
        kept: inputs that may be outputs from the ``first`` on.
    """
    definitions = body.definitions()
    taken = set(body.inputs)
    outputs: list[Value] = []
    copies: list[Node] = []
    for place, value in enumerate(body.outputs):
        root = value
        while root in definitions and isinstance(definitions[root].op, Reshape):
            root = definitions[root].inputs[0]
        is_history = place >= first and value in kept
        if root in taken and not is_history and value.type.device != CPU and not value.type.dtype.is_complex:
            copies.append(Node(StopGradient(), (value,), (Value(value.type),)))
            value = copies[-1].outputs[0]
        taken.add(root)
        outputs.append(value)
    return Graph(body.inputs, (*body.nodes, *copies), tuple(outputs)) if copies else body
