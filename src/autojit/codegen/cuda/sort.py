"""Sorting by counting: an element's place is how many come before it, which a thread of its own counts.

Places of equal elements keep their order, so sorts are stable. The work is the square of a line's length; beyond
`MOST_ELEMENTS` it is not worth a GPU.
"""

from __future__ import annotations

from math import prod

from autojit.codegen.cuda.target import CudaTarget
from autojit.codegen.cuda.thread_items import ItemKernel
from autojit.codegen.grid_text import GridText
from autojit.codegen.scalar import Scalar
from autojit.codegen.sort_keys import key_bytes, sort_key
from autojit.core.dtypes import int64
from autojit.ir.graph import Node
from autojit.ops.sorting import Sort

MOST_ELEMENTS = 1 << 16
"""Of a line: 4 billion comparisons, milliseconds of a whole GPU [not measured]."""


def print_sort(node: Node, target: CudaTarget) -> GridText | None:
    """The kernel of a ``Sort``."""
    assert isinstance(node.op, Sort)
    x = node.inputs[0].type
    if x.shape[node.op.axis] > MOST_ELEMENTS:
        return None
    return _LineSorter(node).print()


class _LineSorter(ItemKernel):
    """The threads of a line's elements read all of it at the same time."""

    def __init__(self, node: Node) -> None:
        super().__init__(node, node.inputs[0].type.size)
        assert isinstance(node.op, Sort)
        self.op = node.op
        x = node.inputs[0].type
        self.dtype = x.dtype
        self.length, self.inner = x.shape[node.op.axis], prod(x.shape[node.op.axis + 1 :])
        self.ranks = node.op.ranks or (0, self.length)

    def print(self) -> GridText:
        with self.item() as number:
            # items are numbered line after line, so that a warp's threads share what they read
            line, element = self.quotient(number, self.length), self.remainder(number, self.length)
            outer, column = self.quotient(line, self.inner), self.remainder(line, self.inner)
            start = self.add(self.mul(outer, self.length * self.inner), column)
            value = self._element(start, element)
            place = self._place(start, element, sort_key(self, value, descending=self.op.descending))
            first, stop = self.ranks
            rank = self.sub(place, first)
            kept = stop - first
            with self.when(self.test("ult", rank, kept)):
                target = self.add(self.mul(outer, kept * self.inner), column)
                at = self.add(target, self.mul(rank, self.inner))
                self.write(1, value, at)
                self.write(2, Scalar(element, int64), at)
        return self.text()

    def _element(self, start: str, place: str) -> Scalar:
        return self.read(0, self.dtype, self.add(start, self.mul(place, self.inner)))

    def _place(self, start: str, element: str, mine: str) -> str:
        """How many elements of the line come before one with this key."""
        kind = f"i{8 * key_bytes(self.dtype)}"
        before = self.slot(int64)
        self.put(before, self.emit.constant(0, int64))
        with self.loop(0, self.length, stem="other") as j:
            other = sort_key(self, self._element(start, j), descending=self.op.descending)
            is_first = self.both(self.test("eq", other, mine, kind), self.test("ult", j, element))
            comes = self.either(self.test("ult", other, mine, kind), is_first)
            one = Scalar(self.convert("zext", comes, "i1"), int64)
            self.put(before, self.emit.add(self.get(before, int64), one))
        return self.get(before, int64).text


def print_row_order(node: Node, target: CudaTarget) -> GridText | None:
    """The kernel of a ``RowOrder``: rows are compared from the first column on until two differ."""
    rows, columns = node.inputs[0].type.shape
    if rows > MOST_ELEMENTS:
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
