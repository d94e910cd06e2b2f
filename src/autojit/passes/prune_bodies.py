"""Merge equal loops and drop what nobody reads: results, carries, operands and tapes of branches and loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autojit.ir.calls_out import calls_out, silent_nodes
from autojit.ir.graph import Graph, Node, Value, replace
from autojit.ops.control_flow import Cond
from autojit.ops.scan_steps import Scan
from autojit.ops.while_sweeps import WhileLoop

Outputs = tuple[Value, ...]


def merge_scans(graph: Graph) -> Graph:
    """Scans of the same steps over the same operands become one scan, whose step gives what any of them gives.

    Derivative rules run a scan again to get at what its steps had; here this turns into further results of the first
    one. Steps are the same where they are the same nodes, but for calls of users' functions, which only the first scan
    may make. Preserves results and calls. Time O(nodes).
    """
    groups: dict[Any, list[Node]] = {}
    for node in graph.nodes:
        if isinstance(node.op, Scan):
            op = node.op
            key = (_steps(op.body), op.body.inputs, op.carries, op.stacks, op.length, op.reverse, node.inputs)
            same = groups.setdefault(key, [])
            if not (same and op.calls_out and op.silent() != op):
                same.append(node)
    merged: dict[Node, Node | None] = {}
    names: dict[Value, Value] = {}
    for nodes in groups.values():
        if len(nodes) > 1:
            merged[nodes[0]] = _union(nodes, names)
            merged.update(dict.fromkeys(nodes[1:]))
    if not merged:
        return graph
    kept = [merged.get(n, n) for n in graph.nodes]
    return graph.renamed([n.reading(names) for n in kept if n is not None], names)


def _steps(body: Graph) -> tuple[object, ...]:
    """What tells the steps of a body from those of others, apart from calls of users' functions."""
    if not calls_out(body):
        return body.nodes
    kept, known = silent_nodes(body.nodes), set(body.nodes)
    return tuple([node if node in known else (node.op, node.inputs, node.outputs) for node in kept])


def _union(nodes: Sequence[Node], names: dict[Value, Value]) -> Node:
    """One scan with the results of all; ``names`` learns where those of the others are, and what a step gives twice."""
    first, *others = nodes
    scan: Any = first.op
    carries = scan.carries
    made: dict[Value, Value] = {}
    for node in others:
        names.update(zip(node.outputs[:carries], first.outputs[:carries], strict=True))
    for node in nodes:
        op: Any = node.op
        for value, output in zip(op.body.outputs[carries:], node.outputs[carries:], strict=True):
            if made.setdefault(value, output) is not output:
                names[output] = made[value]
    body = replace(scan.body, outputs=(*scan.body.outputs[:carries], *made))
    return Node(scan.with_graphs([body]), first.inputs, (*first.outputs[:carries], *made.values()), first.source)


def prune_bodies(graph: Graph) -> Graph:
    """Drop results, carries, operands and tapes that nothing needs; carries that never change become operands.

    What may refuse its operands is needed, and then one result stays. Preserves results and refusals. Time O(nodes of
    all bodies), times the number of carries in the worst case.
    """
    live = set(graph.outputs)
    kept: list[Node] = []
    names: dict[Value, Value] = {}
    for node in reversed(graph.nodes):
        if not node.is_asked and live.isdisjoint(node.outputs):
            continue
        pruned = node
        if isinstance(node.op, Scan):
            pruned = _pruned_scan(node, node.op, live, names)
        elif isinstance(node.op, WhileLoop):
            pruned = _pruned_while(node, node.op, live)
        elif isinstance(node.op, Cond):
            pruned = _pruned_cond(node, node.op, live)
        if pruned.outputs:
            kept.append(pruned)
        live.update(pruned.inputs)
        live.update(names[v] for v in node.outputs if v in names)
    for value in names:
        names[value] = last_name(value, names)
    return graph.renamed([n.reading(names) for n in reversed(kept)], names)


def last_name(value: Value, names: dict[Value, Value]) -> Value:
    """What a value is called after all renaming."""
    while value in names:
        value = names[value]
    return value


def needed(
    nodes: Sequence[Node], wanted: Sequence[Value], are_asked: bool = True
) -> tuple[tuple[Node, ...], set[Value]]:
    """(the nodes that ``wanted`` values need, everything that is read on the way).

    With them, unless not ``are_asked``, those that may refuse what they read.
    """
    live = set(wanted)
    kept: list[Node] = []
    for node in reversed(nodes):
        if (are_asked and node.is_asked) or not live.isdisjoint(node.outputs):
            kept.append(node)
            live.update(node.inputs)
    return tuple(reversed(kept)), live


def _carries_needed(body: Graph, carries: int, wanted: Sequence[Value], finals: Sequence[int]) -> list[int]:
    """The carries without which ``wanted`` values or last values cannot be had."""
    chosen = set(finals)
    while True:
        _, live = needed(body.nodes, [*wanted, *(body.outputs[k] for k in chosen)])
        more = {k for k in range(carries) if body.inputs[k] in live}
        if more <= chosen:
            return sorted(chosen)
        chosen |= more


def _pruned_scan(node: Node, op: Scan, live: set[Value], names: dict[Value, Value]) -> Node:
    body, first, rest = op.body, op.carries, op.carries + op.stacks
    still = [k for k in range(first) if body.outputs[k] is body.inputs[k]]
    names.update((node.outputs[k], node.inputs[k]) for k in still if node.outputs[k] in live)
    results = [k for k in range(first, len(body.outputs)) if node.outputs[k] in live]
    finals = [k for k in range(first) if node.outputs[k] in live and k not in still]
    carries = _carries_needed(body, first, [body.outputs[k] for k in results], finals)
    constant = [k for k in carries if k in still]
    carries = [k for k in carries if k not in still]
    if not (carries or results):
        if not node.is_asked:
            return Node(op, (), (), node.source)
        carries, constant = [0], constant[1:] if constant[:1] == [0] else constant
    outputs = [*carries, *results]
    nodes, read = needed(body.nodes, [body.outputs[k] for k in outputs])
    stacks = [k for k in range(first, rest) if body.inputs[k] in read]
    inputs = [*carries, *stacks, *constant, *(k for k in range(rest, len(body.inputs)) if body.inputs[k] in read)]
    if len(outputs) == len(body.outputs) and len(inputs) == len(body.inputs) and len(nodes) == len(body.nodes):
        return node
    pruned = Graph(tuple(body.inputs[k] for k in inputs), nodes, tuple(body.outputs[k] for k in outputs))
    made = Scan(pruned, len(carries), len(stacks), op.length, op.reverse)
    return Node(made, tuple(node.inputs[k] for k in inputs), tuple(node.outputs[k] for k in outputs), node.source)


def _pruned_cond(node: Node, op: Cond, live: set[Value]) -> Node:
    outputs = [k for k, v in enumerate(node.outputs) if v in live] or ([0] if node.is_asked else [])
    parts = [needed(g.nodes, [g.outputs[k] for k in outputs]) for g in op.graphs()]
    pairs = list(zip(op.graphs(), parts, strict=True))
    inputs = [k for k in range(len(op.on_true.inputs)) if any(g.inputs[k] in read for g, (_, read) in pairs)]
    branches = [
        Graph(tuple(g.inputs[k] for k in inputs), nodes, tuple(g.outputs[k] for k in outputs))
        for g, (nodes, _) in pairs
    ]
    operands = (node.inputs[0], *(node.inputs[k + 1] for k in inputs))
    return Node(Cond(*branches), operands, tuple(node.outputs[k] for k in outputs), node.source)


def _pruned_while(node: Node, op: WhileLoop, live: set[Value]) -> Node:
    """The first sweep stays, because it finds the number of steps; of later ones what is read."""
    sweeps = op.sweeps()
    starts = [sum(op.carries[:k]) for k in range(len(sweeps))]
    pushed: set[int] = set()  # tapes that are read
    chosen: dict[int, list[int]] = {}
    for number in reversed(range(len(sweeps))):
        sweep, body = sweeps[number], op.bodies[number]
        pushes = [k for k in range(sweep.pushes) if sweep.first_tape + k in pushed]
        finals = [k for k in range(sweep.carries) if node.outputs[starts[number] + k] in live]
        finals = sorted({0, *finals}) if number == 0 else finals
        values = [body.outputs[sweep.carries + k] for k in pushes]
        chosen[number] = _carries_needed(body, sweep.carries, values, finals)
        _, read = needed(body.nodes, [*values, *(body.outputs[k] for k in chosen[number])])
        if chosen[number] or pushes:
            pushed.update(t for t, v in zip(sweep.reads, body.inputs[sweep.carries :], strict=False) if v in read)
    place = {tape: k for k, tape in enumerate(sorted(pushed))}
    kept = [
        k
        for k in range(len(sweeps))
        if chosen[k] or any(sweeps[k].first_tape + p in pushed for p in range(sweeps[k].pushes))
    ]
    outputs: dict[int, Outputs] = {}
    for number in kept:
        sweep, body = sweeps[number], op.bodies[number]
        pushes = [k for k in range(sweep.pushes) if sweep.first_tape + k in pushed]
        outputs[number] = tuple([body.outputs[k] for k in (*chosen[number], *(sweep.carries + k for k in pushes))])
    parts = {number: needed(op.bodies[number].nodes, outputs[number]) for number in kept}
    fixed = {number: op.bodies[number].inputs[sweeps[number].first_constant :] for number in kept}
    constants = sorted({k for number in kept for k, v in enumerate(fixed[number]) if v in parts[number][1]})
    bodies: list[Graph] = []
    reads: list[tuple[int, ...]] = []
    for number in kept:
        sweep, body, (nodes, read) = sweeps[number], op.bodies[number], parts[number]
        tapes = [k for k in range(len(sweep.reads)) if body.inputs[sweep.carries + k] in read]
        inputs = (
            *(body.inputs[k] for k in chosen[number]), *(body.inputs[sweep.carries + k] for k in tapes),
            *(fixed[number][k] for k in constants),
        )  # fmt: skip
        bodies.append(Graph(inputs, nodes, outputs[number]))
        reads.append(tuple(place[sweep.reads[k]] for k in tapes))
    carries = [len(chosen[k]) for k in kept]
    made = WhileLoop(tuple(bodies), tuple(carries), tuple(reads), tuple(op.reverse[k] for k in kept))
    places = [starts[number] + k for number in kept for k in chosen[number]]
    operands = (*(node.inputs[k] for k in places), *(node.inputs[op.n_outputs + k] for k in constants))
    return Node(made, operands, tuple(node.outputs[k] for k in places), node.source)
