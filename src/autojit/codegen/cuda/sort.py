"""Sorting lines: short ones in shared memory, long ones digit by digit over many blocks. Sorts are stable.

The keys are those of `codegen.sort_keys`. Elements stay where they are until the last step, which reads them by their
positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from autojit.codegen.cuda import network, radix
from autojit.codegen.cuda.counting import CountingKernel
from autojit.codegen.cuda.network import Network, NetworkKernel
from autojit.codegen.cuda.radix import Workspace
from autojit.codegen.cuda.target import CudaTarget
from autojit.codegen.cuda.thread_items import ItemKernel, roles_of, thread_grid
from autojit.codegen.grid_text import Buffer, GridText
from autojit.codegen.scalar import Scalar
from autojit.codegen.sort_keys import key_bytes, sort_key
from autojit.core.dtypes import int64
from autojit.core.sizes import is_symbolic, surely_equal
from autojit.ir.graph import Node
from autojit.ops.sorting import Sort

MOST_ROWS = 1 << 16
"""Of a matrix whose rows are compared with each other: 4 billion comparisons [not measured]."""


def print_sort(node: Node, target: CudaTarget) -> GridText | None:
    """The kernels of a ``Sort``."""
    lines = _Lines(node)
    if is_symbolic(lines.length):  # how long lines are, a call knows
        return _long(lines)
    if lines.length <= network.MOST_ELEMENTS:
        return _short(lines)
    return _long(lines) if lines.length <= radix.MOST_ELEMENTS else None


class _Lines:
    """What a kernel reads and writes of the lines that a node sorts."""

    def __init__(self, node: Node) -> None:
        assert isinstance(node.op, Sort)
        self.op = node.op
        x = node.inputs[0].type
        self.dtype = x.dtype
        self.length, self.inner = x.shape[node.op.axis], prod(x.shape[node.op.axis + 1 :])
        self.count = prod(x.shape[: node.op.axis]) * self.inner
        self.first, stop = node.op.ranks or (0, self.length)
        self.kept = stop - self.first
        self.key_bytes = key_bytes(x.dtype)
        self.buffers: Sequence[Buffer] = roles_of(node)
        self.sizes = [v.type.size for v in (*node.inputs, *node.outputs)]

    def element(self, f: CountingKernel, line: str, position: str) -> Scalar:
        return f.read(0, self.dtype, self._place(f, line, position, self.length))

    def _place(self, f: CountingKernel, line: str, position: str, extent: int) -> str:
        outer, column = f.quotient(line, self.inner), f.remainder(line, self.inner)
        return f.add(f.add(f.mul(outer, extent * self.inner), column), f.mul(position, self.inner))

    def key(self, f: CountingKernel, line: str, position: str) -> str:
        return sort_key(f, self.element(f, line, position), descending=self.op.descending)

    def write(self, f: CountingKernel, line: str, rank: str, position: str) -> None:
        """An element in its place, from its position, if its rank is asked for."""
        kept = f.sub(rank, self.first)
        with f.perhaps(None if surely_equal(self.kept, self.length) else f.test("ult", kept, self.kept)):
            at = self._place(f, line, kept, self.kept)
            f.write(1, self.element(f, line, position), at)
            f.write(2, Scalar(position, int64), at)


def _short(lines: _Lines) -> GridText:
    """One kernel: a block has a line, or several."""
    f = NetworkKernel(Network(lines.count, lines.length), lines.key_bytes, lines.buffers, lines.sizes)
    if lines.length:
        f.fill(lambda line, position: lines.key(f, line, position))
        f.sort()
        f.take(lambda line, rank, position: lines.write(f, line, rank, position))
    return f.ended()


def _long(lines: _Lines) -> GridText:
    """A chain of kernels; a thread for an element in the first and the last."""
    space = Workspace(lines.count, lines.length, lines.key_bytes, lines.key_bytes)
    first, last = (
        CountingKernel(thread_grid(items), lines.buffers, lines.sizes, space.size_bytes)
        for items in (lines.count * lines.length, lines.count * lines.kept)
    )
    with first.numbered(lines.count * lines.length) as element:
        line, position = first.quotient(element, lines.length), first.remainder(element, lines.length)
        space.put(first, element, lines.key(first, line, position), position)
        with first.when(first.test("eq", position, 0)):
            space.begin(first, line)
    with last.numbered(lines.count * lines.kept) as number:
        line, kept = last.quotient(number, lines.kept), last.remainder(number, lines.kept)
        rank = last.add(kept, lines.first)
        position = space.sorted_position(last, last.add(last.mul(line, lines.length), rank))
        lines.write(last, line, rank, position)
    return first.ended(space.passes_over(lines.buffers, lines.sizes, last.ended()))


def print_row_order(node: Node, target: CudaTarget) -> GridText | None:
    """The kernel of a ``RowOrder``: rows are compared from the first column on until two differ."""
    rows, columns = node.inputs[0].type.shape
    if rows > MOST_ROWS:
        return None
    return _RowSorter(node, rows, columns).print()


class _RowSorter(ItemKernel):
    """Every thread counts the rows that come before its own."""

    def __init__(self, node: Node, rows: int, columns: int) -> None:
        super().__init__(node, rows)
        self.rows, self.columns = rows, columns
        self.dtype = node.inputs[0].type.dtype

    def print(self) -> GridText:
        before = self.slot(int64)
        with self.item() as mine:
            self.put(before, self.emit.constant(0, int64))
            with self.loop(0, self.rows, stem="other") as other:
                comes = self._comes_before(other, mine)
                one = Scalar(self.convert("zext", comes, "i1"), int64)
                self.put(before, self.emit.add(self.get(before, int64), one))
            self.write(1, Scalar(mine, int64), self.get(before, int64).text)
        return self.text()

    def _comes_before(self, other: str, mine: str) -> str:
        """Whether a row is less than the thread's, or equal and in front of it."""

        def goes_on(state: list[str]) -> str:
            column, less, greater = state
            return self.both(self.test("slt", column, self.columns), self.negate(self.either(less, greater)))

        def turn(state: list[str]) -> list[str]:
            column = state[0]
            theirs, own = (self._key(row, column) for row in (other, mine))
            less, greater = (self.test(relation, theirs, own, self._kind) for relation in ("ult", "ugt"))
            return [self.add(column, 1), less, greater]

        _, less, greater = self.repeat_while(("i64", "i1", "i1"), (0, "false", "false"), goes_on, turn)
        is_equal = self.negate(self.either(less, greater))
        return self.either(less, self.both(is_equal, self.test("ult", other, mine)))

    @property
    def _kind(self) -> str:
        return f"i{8 * key_bytes(self.dtype)}"

    def _key(self, row: str, column: str) -> str:
        element = self.read(0, self.dtype, self.add(self.mul(row, self.columns), column))
        return sort_key(self, element, descending=False)
