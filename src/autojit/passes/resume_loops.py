"""Resume loops: a derivative's loop does not repeat the sweeps that an earlier loop has made.

A ``WhileLoop``'s derivative begins with the loop itself, for the tapes. Where that loop has run before in the same
graph, it keeps its tapes and the later one goes on from there. Both still say everything they do, so that either could
run alone; the code generator leaves out what is there already.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from autojit.ir.graph import Graph, Node, Value
from autojit.ops.while_sweeps import WhileLoop
from autojit.passes.prune_bodies import last_name
from autojit.passes.share_steps import own_nodes


class Match(NamedTuple):
    """How the first sweeps of a later loop are those of an earlier one.

    ``names``: per sweep, later's values -> earlier's; ``finals``: later's last values -> earlier's.
    """

    names: list[dict[Value, Value]]
    finals: dict[Value, Value]


def resume_loops(graph: Graph) -> Graph:
    """Let later loops read the tapes of earlier ones that make the same sweeps over the same operands.

    Preserves results bit for bit. Time O(nodes of bodies) per pair of loops.
    """
    places = [k for k, node in enumerate(graph.nodes) if isinstance(node.op, WhileLoop)]
    if len(places) < 2:
        return graph
    nodes = list(graph.nodes)
    finals: dict[Value, Value] = {}
    label = 0
    for later in reversed(places):
        for earlier in reversed([k for k in places if k < later]):
            label += 1
            match = _match(nodes[earlier], nodes[later])
            if match is not None:
                finals.update(match.finals)
                nodes[earlier], nodes[later] = _resumed(nodes[earlier], nodes[later], match, label)
                break
    if not label or not finals:
        return graph
    read = {v: last_name(v, finals) for v in finals}
    return graph.renamed([n.reading(read) for n in nodes], read)


def _resumed(earlier: Node, later: Node, match: Match, label: int) -> tuple[Node, Node]:
    e, r = earlier.op, later.op
    assert isinstance(e, WhileLoop) and isinstance(r, WhileLoop)
    count = len(e.bodies)
    bodies = list(e.bodies)
    wanted: list[list[Value]] = []
    for number, sweep in enumerate(r.sweeps()[:count]):
        pushed = list(bodies[number].outputs[e.carries[number] :])
        values = [match.names[number][v] for v in r.bodies[number].outputs[sweep.carries :]]
        pushed += [v for v in dict.fromkeys(values) if v not in pushed]
        wanted.append(pushed)
        bodies[number] = Graph(
            bodies[number].inputs, bodies[number].nodes, (*bodies[number].outputs[: e.carries[number]], *pushed)
        )
    kept = WhileLoop(tuple(bodies), e.carries, _renumbered(e, wanted), e.reverse, kept=label)
    return _keeping(earlier, kept), _going_on(earlier, later, kept, (match, wanted, label))


def _keeping(earlier: Node, kept: WhileLoop) -> Node:
    return Node(kept, earlier.inputs, earlier.outputs, earlier.source)


def _going_on(earlier: Node, later: Node, kept: WhileLoop, how: tuple[Match, list[list[Value]], int]) -> Node:
    """The later loop, its first sweeps replaced by those that were kept."""
    match, wanted, label = how
    r = later.op
    assert isinstance(r, WhileLoop)
    count = len(kept.bodies)
    sweeps = r.sweeps()
    first = [sum(len(v) for v in wanted[:number]) for number in range(count)]
    old_tapes = sum(s.pushes for s in sweeps[:count])
    new_tapes = sum(map(len, wanted))
    place: dict[int, int] = {}
    for number, sweep in enumerate(sweeps):
        for k in range(sweep.pushes):
            tape = sweep.first_tape + k
            if number < count:
                value = match.names[number][sweep.body.outputs[sweep.carries + k]]
                place[tape] = first[number] + wanted[number].index(value)
            else:
                place[tape] = tape - old_tapes + new_tapes
    mine, theirs = earlier.inputs[kept.n_outputs :], later.inputs[r.n_outputs :]
    bodies = [
        _with_constants(b, len(theirs) + 1, at_front=False, types=[*theirs, earlier.outputs[-1]]) for b in kept.bodies
    ]
    bodies += [
        _with_constants(s.body, len(mine), at_front=True, types=mine, first=s.first_constant) for s in sweeps[count:]
    ]
    bodies[count:] = [Graph((*b.inputs, Value(earlier.outputs[-1].type)), b.nodes, b.outputs) for b in bodies[count:]]
    reads = (*kept.reads, *(tuple(place[t] for t in s.reads) for s in sweeps[count:]))
    carries = (*kept.carries, *r.carries[count:])
    start = sum(r.carries[:count])
    kept_too = r.kept if all(new == old for old, new in place.items()) else 0  # whoever resumes it knows the numbers
    op = WhileLoop(tuple(bodies), carries, reads, r.reverse, kept_too, label)
    inputs = (
        *earlier.inputs[: kept.n_outputs], *later.inputs[start : r.n_outputs], *mine, *theirs, earlier.outputs[-1]
    )  # fmt: skip
    unread = tuple(Value(v.type) for v in earlier.outputs)
    return Node(op, inputs, (*unread, *later.outputs[start:]), later.source)


def _with_constants(body: Graph, count: int, at_front: bool, types: Iterable[Value], first: int = 0) -> Graph:
    """The body with constants that it does not read, behind its own or before them."""
    made = tuple(Value(v.type) for v in types)
    assert len(made) == count
    if at_front:
        return Graph((*body.inputs[:first], *made, *body.inputs[first:]), body.nodes, body.outputs)
    return Graph((*body.inputs, *made), body.nodes, body.outputs)


def _renumbered(e: WhileLoop, wanted: list[list[Value]]) -> tuple[tuple[int, ...], ...]:
    """What the sweeps read, when each pushes more."""
    first = [sum(len(values) for values in wanted[:number]) for number in range(len(wanted))]
    place: dict[int, int] = {}
    for number, sweep in enumerate(e.sweeps()):
        for k in range(sweep.pushes):
            place[sweep.first_tape + k] = first[number] + k
    return tuple(tuple(place[t] for t in reads) for reads in e.reads)


# -- are they the same sweeps?


def _match(earlier: Node, later: Node) -> Match | None:
    e, r = earlier.op, later.op
    assert isinstance(e, WhileLoop) and isinstance(r, WhileLoop)
    count = len(e.bodies)
    if len(r.bodies) <= count or r.reverse[:count] != e.reverse or e.resumes or e.kept:
        return None
    mine = dict(zip(earlier.inputs[e.n_outputs :], range(len(earlier.inputs)), strict=False))
    finals: dict[Value, Value] = {}
    names: list[dict[Value, Value]] = []
    pushed_by: dict[int, tuple[int, Value]] = {}  # later's tape -> (sweep, earlier's value)
    tape_of: dict[tuple[int, Value], int] = {}  # (sweep, earlier's value) -> earlier's tape
    e_start = r_start = 0
    for number, (a, b) in enumerate(zip(e.sweeps(), r.sweeps(), strict=False)):
        same: dict[Value, Value] = {}
        pairs: list[tuple[int, int]] = []
        for k in range(b.carries):
            operand = later.inputs[r_start + k]
            places = [j for j in range(a.carries) if earlier.inputs[e_start + j] is operand]
            if number == 0 and k == 0:
                places = [0] if operand is earlier.inputs[0] else []
            found = next((j for j in places if all(j != taken for _, taken in pairs)), None)
            if found is None:
                return None
            pairs.append((k, found))
            same[b.body.inputs[k]] = a.body.inputs[found]
        for place, tape in enumerate(b.reads):
            mine_tape = tape_of.get(pushed_by[tape]) if tape in pushed_by else None
            if mine_tape is None or mine_tape not in a.reads:
                return None
            same[b.body.inputs[b.carries + place]] = a.body.inputs[a.carries + a.reads.index(mine_tape)]
        for place, operand in enumerate(later.inputs[r.n_outputs :]):
            if operand in mine:
                same[b.body.inputs[b.first_constant + place]] = a.body.inputs[a.first_constant + mine[operand]]
        own_nodes(a.body, b.body, same)
        if any(v not in same for v in b.body.outputs):
            return None
        if any(same[b.body.outputs[k]] is not a.body.outputs[j] for k, j in pairs):
            return None
        names.append(same)
        finals.update((later.outputs[r_start + k], earlier.outputs[e_start + j]) for k, j in pairs)
        for k in range(b.pushes):
            pushed_by[b.first_tape + k] = number, same[b.body.outputs[b.carries + k]]
        for k in range(a.pushes):
            tape_of.setdefault((number, a.body.outputs[a.carries + k]), a.first_tape + k)
        e_start += a.carries
        r_start += b.carries
    return Match(names, finals)
