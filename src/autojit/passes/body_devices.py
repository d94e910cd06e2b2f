"""Branches and loops meet their operands where these are, and the host decides.

A body is captured with values on the devices that its operands had, but nothing binds what it computes: a branch may
give a number of the host where the other gives one of the GPU. Who runs plans inside plans hands over memory, and knows
no dtypes or devices. So what is elsewhere is copied within the body. The condition of a branch, and the first carry of
a loop that goes on while it is true, are asked for by the host: they are copied there.

A value that is a carry and a result, or was an operand, needs memory of its own for each. On a device a copy is a
launch; as a value of its own it is one store more of the kernel that makes it, or reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from autojit.core.device import CPU, Device
from autojit.core.machine import Machine
from autojit.ir.graph import Graph, Node, Value
from autojit.ops.control_flow import Cond, HoldsGraphs
from autojit.ops.scan_steps import Scan
from autojit.ops.transfers import ToDevice
from autojit.ops.while_sweeps import WhileLoop
from autojit.passes.decided_bodies import decided_there, may_be_decided_there, with_originals, with_own_outputs


def settle_devices(graph: Graph, machine: Machine | None = None) -> Graph:
    """Copy conditions to the host where it decides, and what bodies take and give to where it is expected.

    Preserves results. Time O(nodes); graphs whose values are all on the CPU come back as they are.
    """
    if not any(isinstance(node.op, HoldsGraphs) and _is_elsewhere(node) for node in graph.nodes):
        return graph
    nodes: list[Node] = []
    names: dict[Value, Value] = {}
    for node in graph.nodes:
        found = node.reading(names)
        if not isinstance(node.op, HoldsGraphs) or not _is_elsewhere(node):
            nodes.append(found)
        elif machine is not None and machine.turns_loops and may_be_decided_there(node, machine):
            nodes += decided_there(found, names)
        else:
            nodes += _settled(found, names)
    nodes = list(with_originals(nodes))
    read = {value for node in nodes for value in node.inputs}.union(names.get(v, v) for v in graph.outputs)
    kept = [node for node in nodes if not isinstance(node.op, ToDevice) or node.outputs[0] in read]
    return graph.renamed(kept, names)


def _is_elsewhere(node: Node) -> bool:
    assert isinstance(node.op, HoldsGraphs)
    inner = (v for body in node.op.graphs() for v in (*body.inputs, *body.outputs))
    return any(value.type.device != CPU for value in (*node.inputs, *node.outputs, *inner))


def _settled(node: Node, names: dict[Value, Value]) -> list[Node]:
    op = node.op
    if isinstance(op, Cond):
        return _settled_branch(node, op)
    if isinstance(op, Scan):
        taken = _devices(node.inputs)
        given = [*taken[: op.carries], *_devices(node.outputs[op.carries :])]
        body = _moved(op.body, taken, given, op.carries)
        return [Node(op.with_graphs([body]), node.inputs, node.outputs, node.source)]
    assert isinstance(op, WhileLoop)
    return _settled_loop(node, op, names)


def _settled_branch(node: Node, op: Cond) -> list[Node]:
    condition, copies = _copied(node.inputs[0], CPU, node)
    taken, given = _devices(node.inputs[1:]), _devices(node.outputs)
    branches = [_moved(branch, taken, given) for branch in op.graphs()]
    return [*copies, Node(op.with_graphs(branches), (condition, *node.inputs[1:]), node.outputs, node.source)]


def _settled_loop(node: Node, op: WhileLoop, names: dict[Value, Value]) -> list[Node]:
    condition, copies = _copied(node.inputs[0], CPU, node)
    inputs = (condition, *node.inputs[1:])
    taken = _devices(inputs)
    carried, constants = taken[: op.n_outputs], taken[op.n_outputs :]
    tapes = _devices(v for body, count in zip(op.bodies, op.carries, strict=True) for v in body.outputs[count:])
    bodies: list[Graph] = []
    start = 0
    for sweep in op.sweeps():
        mine = carried[start : start + sweep.carries]
        pushed = tapes[sweep.first_tape : sweep.first_tape + sweep.pushes]
        bodies.append(_moved(sweep.body, [*mine, *(tapes[k] for k in sweep.reads), *constants], [*mine, *pushed]))
        start += sweep.carries
    last, back = node.outputs[0], list[Node]()
    if last.type.device != CPU:  # who reads the condition of a loop that has ended finds it where it was
        decided = Value(condition.type)
        names[last], back = _copied(decided, last.type.device, node)
        last = decided
    return [*copies, Node(op.with_graphs(bodies), inputs, (last, *node.outputs[1:]), node.source), *back]


def _devices(values: Iterable[Value]) -> list[Device]:
    return [value.type.device for value in values]


def _copied(value: Value, device: Device, node: Node) -> tuple[Value, list[Node]]:
    """A value on a device, and what copies it there for a node."""
    if value.type.device == device:
        return value, []
    op = ToDevice(device)
    made = Value(op.result_type(value.type))
    return made, [Node(op, (value,), (made,), node.source)]


def _moved(body: Graph, taken: Sequence[Device], given: Sequence[Device], carries: int = 0) -> Graph:
    """A body that takes and gives its values on these devices, each device's in memory of its own.

    Args:
        carries: of a scan. Its results that are what they were before the step are where these go from step to step.
    """
    body = with_own_outputs(body, frozenset(body.inputs[:carries]), carries)
    if _devices(body.inputs) == list(taken) and _devices(body.outputs) == list(given):
        return body
    inputs: list[Value] = []
    before: list[Node] = []
    for value, device in zip(body.inputs, taken, strict=True):
        if value.type.device == device:
            inputs.append(value)
            continue
        inputs.append(Value(ToDevice(device).result_type(value.type)))
        before.append(Node(ToDevice(value.type.device), (inputs[-1],), (value,)))
    outputs: list[Value] = []
    behind: list[Node] = []
    for value, device in zip(body.outputs, given, strict=True):
        if value.type.device == device:
            outputs.append(value)
            continue
        outputs.append(Value(ToDevice(device).result_type(value.type)))
        behind.append(Node(ToDevice(device), (value,), (outputs[-1],)))
    read = {v for node in (*body.nodes, *behind) for v in node.inputs}.union(outputs)
    kept = [node for node in before if node.outputs[0] in read]
    return Graph(tuple(inputs), (*kept, *body.nodes, *behind), tuple(outputs))
