"""Share steps: what a later loop over the same steps computes again, it reads from the earlier one.

A derivative's loop gets the carries of every step and would compute from them what the step had computed. What both
compute becomes a stacked result of the earlier scan (or a tape of the earlier sweep) where the later one reads it:
these are the residuals. Views and constants are made again, but of a part of a computed value the part is handed over.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from autojit.core.sizes import typical
from autojit.ir.graph import Graph, Node, Value
from autojit.ir.op import Op
from autojit.ops.base import Reindex, Source
from autojit.ops.scan_steps import Scan
from autojit.ops.shape import Slice
from autojit.ops.while_sweeps import WhileLoop
from autojit.passes.given_sizes import hangs_on_counts

EXPANSION = 4
"""A value that has this many times the elements of what it is computed from is computed again."""


class Shared(NamedTuple):
    """What a later body reads instead of computing: (its value, the earlier body's value); the nodes that remain."""

    values: tuple[tuple[Value, Value], ...]
    nodes: tuple[Node, ...]


def share_steps(graph: Graph) -> Graph:
    """Hand over what loops over the same steps both compute.

    Preserves results bit for bit. Time O(nodes of bodies) per pair of loops of which one reads the other's results.
    """
    nodes = list(graph.nodes)
    for place, node in enumerate(nodes):
        if isinstance(node.op, WhileLoop):
            shared = _shared_sweeps(node.op)
            if shared is not node.op:
                nodes[place] = Node(shared, node.inputs, node.outputs, node.source)
        if not isinstance(node.op, Scan):
            continue
        for earlier in range(place):
            first = nodes[earlier]
            if isinstance(first.op, Scan) and first.op.length == node.op.length:
                nodes[earlier], nodes[place] = _shared_scans(first, nodes[place])
    return Graph(graph.inputs, tuple(nodes), graph.outputs)


def _shared_scans(first: Node, later: Node) -> tuple[Node, Node]:
    f, r = first.op, later.op
    assert isinstance(f, Scan) and isinstance(r, Scan)
    results = dict(zip(first.outputs[f.carries :], f.body.outputs[f.carries :], strict=True))
    stacked = later.inputs[r.carries : r.carries + r.stacks]
    if results.keys().isdisjoint(stacked):
        return first, later
    rest = f.carries + f.stacks
    stacks = dict(zip(first.inputs[f.carries : rest], f.body.inputs[f.carries : rest], strict=True)) | results
    constants = dict(zip(first.inputs[rest:], f.body.inputs[rest:], strict=True))
    same: dict[Value, Value] = {}
    sliced = set(r.body.inputs[r.carries : r.carries + r.stacks])
    for operand, value in zip(later.inputs[r.carries :], r.body.inputs[r.carries :], strict=True):
        known = stacks if value in sliced else constants
        if operand in known:
            same[value] = known[operand]
    found = common(f.body, r.body, same)
    if not found.values:
        return first, later
    made = {value: output for output, value in results.items()}
    added = [v for v in dict.fromkeys(v for _, v in found.values) if v not in made]
    made.update((v, Value(v.type.with_shape((f.length, *v.type.shape)))) for v in added)
    body = Graph(f.body.inputs, f.body.nodes, (*f.body.outputs, *added))
    first = Node(f.with_graphs([body]), first.inputs, (*first.outputs, *(made[v] for v in added)), first.source)
    cut = r.carries + r.stacks
    inputs = (*r.body.inputs[:cut], *(v for v, _ in found.values), *r.body.inputs[cut:])
    operands = (*later.inputs[:cut], *(made[v] for _, v in found.values), *later.inputs[cut:])
    op = Scan(Graph(inputs, found.nodes, r.body.outputs), r.carries, r.stacks + len(found.values), r.length, r.reverse)
    return first, Node(op, operands, later.outputs, later.source)


def common(first: Graph, later: Graph, same: dict[Value, Value]) -> Shared:
    """What ``later`` computes as ``first`` does, from inputs that are the ``same`` (later's -> first's)."""
    same = dict(same)
    rest = own_nodes(first, later, same)
    kept = set(rest)
    made_by = {value: node for node in later.nodes if node not in kept for value in node.outputs}
    wanted = [*(v for node in rest for v in node.inputs), *later.outputs]
    taken: dict[Value, Value] = {}
    again: set[Node] = set()
    while wanted:
        value = wanted.pop()
        maker = made_by.get(value)
        if maker is None or value in taken or maker in again:
            continue
        if _is_made_again(maker) and not _is_part(maker, made_by):
            again.add(maker)
            wanted += maker.inputs
        else:
            taken[value] = same[value]
    kept |= again
    order = [v for node in later.nodes for v in node.outputs if v in taken]
    return Shared(tuple((v, taken[v]) for v in order), tuple(n for n in later.nodes if n in kept))


def own_nodes(first: Graph, later: Graph, same: dict[Value, Value]) -> list[Node]:
    """What only ``later`` computes; ``same`` (later's values -> first's) grows by what both compute alike."""
    known: dict[tuple[Op, tuple[Value, ...]], tuple[Value, ...]] = {}
    for node in first.nodes:
        known.setdefault((node.op, node.inputs), node.outputs)
    found: list[Node] = []
    is_counted = hangs_on_counts(later.nodes)
    for node in later.nodes:
        mapped = [same.get(v) for v in node.inputs]
        repeated = node.op.repeated
        is_call = repeated is None and (node.op.has_effect or node.op.calls_out)
        is_own = None in mapped or is_call or is_counted(node)
        key: Any = repeated or node.op, tuple(mapped)
        outputs = None if is_own else known.get(key)
        if outputs is None:
            found.append(node)
        else:
            same.update(zip(node.outputs, outputs, strict=True))
    return found


def _is_part(node: Node, made_by: dict[Value, Node]) -> bool:
    """Whether a node takes a part of what would have to be handed over whole."""
    if not isinstance(node.op, Slice) or typical(node.outputs[0].type.size) >= typical(node.inputs[0].type.size):
        return False
    whole = made_by.get(node.inputs[0])
    return whole is not None and not _is_made_again(whole)


def _is_made_again(node: Node) -> bool:
    if isinstance(node.op, Reindex | Source):
        return True
    if node.op.name in ("matmul", "matmul_add"):
        return False
    return node.outputs[0].type.size > EXPANSION * sum(v.type.size for v in node.inputs)


# -- sweeps of one loop


def _shared_sweeps(op: WhileLoop) -> WhileLoop:
    sweeps = op.sweeps()
    bodies = list(op.bodies)
    pushes = [list(body.outputs[count:]) for body, count in zip(bodies, op.carries, strict=True)]
    origin = [(number, k) for number, values in enumerate(pushes) for k in range(len(values))]
    reads = [[origin[tape] for tape in sweep.reads] for sweep in sweeps]  # (sweep, number of the push)
    changed = False
    for later in range(1, len(bodies)):
        for first in range(later):
            count = op.carries[later]
            body, tapes = bodies[later], reads[later]
            same = {
                value: pushes[s][k]
                for (s, k), value in zip(tapes, body.inputs[count : count + len(tapes)], strict=True)
                if s == first
            }
            if not same:
                continue
            constants = body.inputs[count + len(tapes) :]
            start = op.carries[first] + len(reads[first])
            same.update(zip(constants, bodies[first].inputs[start:], strict=True))
            same.update(_read_by_both(reads, bodies, op.carries, (first, later)))
            found = common(bodies[first], body, same)
            if not found.values:
                continue
            changed = True
            for _, value in found.values:
                if value not in pushes[first]:
                    pushes[first].append(value)
            reads[later] = [*tapes, *((first, pushes[first].index(v)) for _, v in found.values)]
            inputs = (*body.inputs[: count + len(tapes)], *(v for v, _ in found.values), *constants)
            bodies[later] = Graph(inputs, found.nodes, body.outputs)
    return _renumbered(op, bodies, pushes, reads) if changed else op


def _read_by_both(
    reads: list[list[tuple[int, int]]], bodies: list[Graph], carries: tuple[int, ...], pair: tuple[int, int]
) -> dict[Value, Value]:
    """What the later of two sweeps reads from a tape that the earlier one reads as well."""
    first, later = pair
    mine = dict(zip(reads[first], bodies[first].inputs[carries[first] :], strict=False))
    theirs = zip(reads[later], bodies[later].inputs[carries[later] :], strict=False)
    return {value: mine[tape] for tape, value in theirs if tape in mine}


def _renumbered(
    op: WhileLoop, bodies: list[Graph], pushes: list[list[Value]], reads: list[list[tuple[int, int]]]
) -> WhileLoop:
    first = [sum(len(values) for values in pushes[:number]) for number in range(len(pushes))]
    made = [
        Graph(body.inputs, body.nodes, (*body.outputs[:count], *values))
        for body, count, values in zip(bodies, op.carries, pushes, strict=True)
    ]
    numbered = tuple(tuple(first[s] + k for s, k in tapes) for tapes in reads)
    return WhileLoop(tuple(made), op.carries, numbered, op.reverse)
