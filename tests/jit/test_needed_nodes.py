"""The nodes of a segment: what its outputs need and what may refuse or has an effect, no more and no less."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from autojit.core.dtypes import bool_, float64, int64
from autojit.core.types import TensorType
from autojit.ir import Node, Value
from autojit.ir.op import Op
from autojit.jit.segment import needed_nodes

REAL, INDEX, MASK = TensorType((3,), float64), TensorType((3,), int64), TensorType((3,), bool_)
KINDS: tuple[tuple[Any, tuple[TensorType, ...], tuple[TensorType, ...]], ...] = (
    (Op.registry["sin"](), (REAL,), (REAL,)),
    (Op.registry["mul"](), (REAL, REAL), (REAL,)),
    (Op.registry["gt"](), (REAL, REAL), (MASK,)),
    (Op.registry["sort"](0, False), (REAL,), (REAL, INDEX)),  # type: ignore[call-arg]
    (Op.registry["gather"](0), (REAL, INDEX), (REAL,)),  # type: ignore[call-arg]
    (Op.registry["floor_divide"](), (INDEX, INDEX), (INDEX,)),
    (Op.registry["positions"](3), (MASK,), (INDEX,)),  # type: ignore[call-arg]
)


def drawn(draw: random.Random) -> list[Node]:
    """Nodes in order, of ops that compute only, that may refuse, and that have an effect."""
    pool = [Value(t) for t in (REAL, INDEX, MASK)]
    nodes: list[Node] = []
    for _ in range(draw.randint(1, 14)):
        op, takes, gives = draw.choice(KINDS)
        inputs = tuple(draw.choice([v for v in pool if v.type is t][-3:]) for t in takes)
        nodes.append(Node(op, inputs, tuple(Value(t) for t in gives)))
        pool += nodes[-1].outputs
    return nodes


def reached(nodes: Sequence[Node], wanted: Sequence[Value], given: Any, kept: Sequence[Node]) -> set[int]:
    """The numbers of the nodes behind ``wanted`` and ``kept``, where what is given is asked for no further."""
    maker = {v: k for k, node in enumerate(nodes) for v in node.outputs}
    waiting = [*wanted, *(v for node in kept for v in node.inputs)]
    found = {nodes.index(node) for node in kept}
    while waiting:
        value = waiting.pop()
        if value not in given and value in maker and maker[value] not in found:
            found.add(maker[value])
            waiting += nodes[maker[value]].inputs
    return found


@pytest.mark.parametrize("seed", range(8))
def test_a_segment_has_the_nodes_that_its_outputs_need_and_those_that_must_be_asked(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(60):
        nodes = drawn(draw)
        first = draw.randint(0, len(nodes))
        every = [v for node in nodes for v in node.outputs]
        wanted = draw.sample(every, min(len(every), 2))
        given = {v: None for v in every if draw.random() < 0.2}
        kept = needed_nodes(nodes, wanted, given, first)
        must = [
            node
            for k, node in enumerate(nodes)
            if node.op.has_effect or (node.is_asked and k >= first and node.outputs[0] not in given)
        ]
        chosen = [nodes[k] for k in sorted(reached(nodes, wanted, given, must))]
        assert [(node.op, node.inputs) for node in kept] == [(node.op, node.inputs) for node in chosen]
        for node, as_recorded in zip(kept, chosen, strict=True):
            assert given.keys().isdisjoint(node.outputs), "what is given is defined a second time"
            assert all(a is b for a, b in zip(node.outputs, as_recorded.outputs, strict=True) if b not in given)
