"""A function of scores inside of attention's kernels on a CPU: its graph of one place, printed where a place is met.

What depends on neither score nor key is computed once per query. Blocks that a table promises to be empty are skipped.
"""

from __future__ import annotations

from collections.abc import Iterable

from autojit.codegen.attention_operands import AttentionOperands
from autojit.codegen.function_text import Operand
from autojit.codegen.kernel_function import KernelFunction
from autojit.codegen.scalar import Scalar
from autojit.core.dtypes import bool_, int64
from autojit.ir.graph import Node, Value
from autojit.ops.flex_attention import NUMBERS, FlexAttending
from autojit.ops.indexing import GatherNd
from autojit.passes.index_bounds import Bounds, IndexBounds

Known = dict[Value, Scalar]


class ScoreFunction:
    """Prints the function of one op into a kernel."""

    def __init__(self, kernel: KernelFunction, job: AttentionOperands, op: FlexAttending) -> None:
        self.kernel, self.job, self.op, self.graph = kernel, job, op, op.graph
        inputs = op.graph.inputs
        self.score, self.batch, self.head, self.query, self.key = inputs[:NUMBERS]
        self.read = {v: job.number(f"read{k}") for k, v in enumerate(inputs[NUMBERS : NUMBERS + op.read])}
        self.bars = inputs[NUMBERS + op.read :]
        of_place = self._behind((self.score, self.key, *self.bars))
        of_bar = self._behind(self.bars)
        self.by_query = [n for n in op.graph.nodes if n not in of_place]
        self.by_place = [n for n in op.graph.nodes if n in of_place and n not in of_bar]
        self.by_bar = [n for n in op.graph.nodes if n in of_bar]
        self.bounds = IndexBounds(op.graph)
        queries, keys = job.extents[:2]
        extents = (job.count // op.heads, op.heads, queries, keys)
        for value, extent in zip((self.batch, self.head, self.query, self.key), extents, strict=True):
            self.bounds.assume(value, Bounds(0, extent))

    def _behind(self, values: Iterable[Value]) -> set[Node]:
        """The nodes that depend on inputs."""
        moving, found = set(values), set()
        for node in self.graph.nodes:
            if not moving.isdisjoint(node.inputs):
                found.add(node)
                moving.update(node.outputs)
        return found

    # -- values

    def of_query(self, matrix: str, query: str) -> Known:
        """What is known of a query's places."""
        kernel, heads = self.kernel, self.op.heads
        known = {
            self.batch: Scalar(kernel.quotient(matrix, heads), int64),
            self.head: Scalar(kernel.remainder(matrix, heads), int64),
            self.query: Scalar(query, int64),
        }
        for value, number in self.read.items():
            if not value.type.shape:
                known[value] = kernel.read(number, value.type.dtype, str(self.job.places[number][0]))
        self._print(self.by_query, known)
        return known

    def at_place(self, of_query: Known, score: Scalar, key: str) -> tuple[Scalar, Known]:
        """What becomes of a score, and what is known of the place."""
        known = {**of_query, self.score: score, self.key: Scalar(key, int64)}
        self._print(self.by_place, known)
        return self._output(0, known), known

    def slope(self, of_place: Known, bar: Scalar) -> Scalar:
        """The cotangent of the score from that of what becomes of it."""
        known = {**of_place, self.bars[0]: bar}
        self._print(self.by_bar, known)
        return self._output(1, known)

    def _output(self, number: int, known: Known) -> Scalar:
        return known[self.graph.outputs[number]]

    def _print(self, nodes: Iterable[Node], known: Known) -> None:
        for node in nodes:
            if isinstance(node.op, GatherNd):
                found = self._picked(node, known)
            else:
                given = [known[v] for v in node.inputs] if node.inputs else [()]
                found = node.op.lower(self.kernel.emit, *given)
                self.kernel.emit.failures.clear()  # of divisors that are surely not 0
            known[node.outputs[0]] = Scalar(found.text, node.outputs[0].type.dtype)

    def _picked(self, node: Node, known: Known) -> Scalar:
        """An element of what the function reads."""
        kernel, (base, *indices) = self.kernel, node.inputs
        number = self.read[base]
        offset, *strides = self.job.places[number]
        position: Operand = offset
        for index, stride, extent in zip(indices, strides, base.type.shape, strict=True):
            place = kernel.emit.cast(known[index], int64).text
            least = self.bounds.of(index).least
            if least is None or least < 0:
                place = kernel.choose(kernel.test("slt", place, 0), kernel.add(place, extent), place)
            position = kernel.add(position, kernel.mul(place, stride))
        return kernel.read(number, base.type.dtype, kernel.number(position))

    # -- blocks

    def is_looked_at(self, matrix: str, queries: tuple[str, str], keys: tuple[str, str]) -> str:
        """Whether a block that a table has is not empty, for (first, number of) queries and keys."""
        kernel, number = self.kernel, self.job.number("table")
        offset, *strides = self.job.places[number]
        of = kernel.quotient(matrix, self.op.heads), kernel.remainder(matrix, self.op.heads)
        start = kernel.add(offset, kernel.add(kernel.mul(of[0], strides[0]), kernel.mul(of[1], strides[1])))
        found = kernel.slot(bool_)
        kernel.put(found, kernel.emit.constant(False, bool_))
        ranges = []
        for (first, count), size in zip((queries, keys), self.op.block, strict=True):
            last = kernel.quotient(kernel.sub(kernel.add(first, count), 1), size)
            ranges.append((kernel.quotient(first, size), kernel.add(last, 1)))
        with kernel.loop(*ranges[0], stem="row") as row:
            line = kernel.add(start, kernel.mul(row, strides[2]))
            with kernel.loop(*ranges[1], stem="column") as column:
                at = kernel.number(kernel.add(line, kernel.mul(column, strides[3])))
                is_listed = kernel.read(number, bool_, at)
                kernel.put(found, kernel.emit.logical_or(kernel.get(found, bool_), is_listed))
        return kernel.get(found, bool_).text
