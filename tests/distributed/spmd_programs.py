"""Random programs that every rank of a group runs: collectives between ordinary ops, on values of both kinds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from autojit.core.dtypes import float64
from autojit.core.types import TensorType
from autojit.ir.builder import GraphBuilder
from autojit.ir.graph import Graph
from autojit.ir.op import bind
from autojit.ops import add, cast, mul, sin, sum, tanh
from autojit.ops.collectives import AllGather, AllReduce, AllToAll, Broadcast, ReduceScatter, SendRecv, Wait
from autojit.ops.ranks import OwnPart, for_all, own_rank
from autojit.ops.sources import arange
from tests.distributed.global_graphs import global_graph
from tests.distributed.rank_kinds import rank_kinds, with_pvary

GROUP = "world"
LENGTH = 3


class Program:
    """A graph of one replicated and two varying inputs, with ``pvary`` where kinds meet.

    Args:
        seed: what it is made from; the number of ranks too.
    """

    def __init__(self, seed: int, has_extremes: bool = True) -> None:
        self.draw = np.random.default_rng(seed)
        self.seed, self.has_extremes = seed, has_extremes
        self.size = int(self.draw.choice([1, 2, 3, 5]))
        self.varying = (False, True, True)
        builder = GraphBuilder()
        self.pool = [builder.tracer(builder.input(TensorType((LENGTH,), float64))) for _ in self.varying]
        for _ in range(int(self.draw.integers(3, 12))):
            self.pool.append(self.step())
        outputs = [self.pool[-1].value, self.one().value]
        self.graph = with_pvary(builder.finish(outputs), GROUP, self.size, self.varying)
        self.whole, self.kinds = global_graph(self.graph, GROUP, self.size, self.varying)

    def one(self) -> Any:
        return self.pool[int(self.draw.integers(len(self.pool)))]

    def is_varying(self, x: Any) -> bool:
        """Whether a value of the unfinished program varies."""
        graph = Graph(tuple(x.builder.inputs), tuple(x.builder.nodes), (x.value,))
        return rank_kinds(graph, GROUP, self.varying)[x.value]

    def step(self) -> Any:
        """One more value."""
        ways = [self.unary, self.binary, self.reduced, self.moved, self.by_parts, self.gathered]
        return ways[int(self.draw.integers(len(ways)))](self.one())

    def unary(self, x: Any) -> Any:
        way = int(self.draw.integers(3))
        if way == 2:
            return mul(x, cast(add(own_rank(x, GROUP, self.size), 1), float64))
        return (tanh, sin)[way](x)

    def binary(self, x: Any) -> Any:
        return (add, mul)[int(self.draw.integers(2))](x, self.one())

    def reduced(self, x: Any) -> Any:
        most = 4 if self.has_extremes else 2
        combine = ("sum", "prod", "max", "min")[int(self.draw.integers(most))]
        return self.done(AllReduce(GROUP, self.size, combine, bool(self.draw.integers(2))), tanh(x))

    def done(self, op: Any, x: Any) -> Any:
        """A collective, at once or begun and waited for."""
        if self.draw.integers(2):
            return bind(op, x)
        pending = bind(replace(op, manner="begun"), x)
        self.pool.append(self.unary(self.one()))  # something between beginning and end
        return bind(Wait(GROUP, self.size, not op.varies(True)), pending, x)

    def moved(self, x: Any) -> Any:
        if self.draw.integers(2):
            root = int(self.draw.integers(self.size))
            return self.done(Broadcast(GROUP, self.size, root, bool(self.draw.integers(2))), x)
        count = int(self.draw.integers(self.size + 1))
        pairs = zip(self.draw.permutation(self.size)[:count], self.draw.permutation(self.size)[:count], strict=True)
        return bind(SendRecv(GROUP, self.size, tuple([(int(a), int(b)) for a, b in pairs])), x)

    def parts(self, x: Any) -> Any:
        """Something for every rank."""
        weights = add(cast(arange(x, self.size), float64), 0.5)
        return sin(mul(for_all(x, self.size), _column(weights)))

    def by_parts(self, x: Any) -> Any:
        parts = self.parts(x)
        if self.draw.integers(2):
            return self.done(ReduceScatter(GROUP, self.size), parts)
        return sum(self.weighted(self.done(AllToAll(GROUP, self.size), parts)), (0,))

    def gathered(self, x: Any) -> Any:
        rows = self.done(AllGather(GROUP, self.size, bool(self.draw.integers(2))), x)
        if self.draw.integers(2) and not self.is_varying(rows):
            return bind(OwnPart(GROUP, self.size), tanh(rows))
        return sum(self.weighted(rows), (0,))

    def weighted(self, rows: Any) -> Any:
        return mul(rows, _column(add(cast(arange(rows, self.size), float64), 1)))

    def inputs(self, seed: int = 0) -> list[Any]:
        """For all ranks: those that vary have them as their first axis."""
        return self.like(self.varying, (self.seed, seed))

    def like(self, kinds: tuple[bool, ...], seed: tuple[int, int]) -> list[Any]:
        draw = np.random.default_rng(seed)
        return [draw.standard_normal((self.size, LENGTH) if flag else LENGTH) for flag in kinds]


def _column(x: Any) -> Any:
    from autojit.ops import reshape

    return reshape(x, (x.spec.shape[0], 1))
