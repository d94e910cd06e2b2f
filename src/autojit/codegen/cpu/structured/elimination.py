"""Gaussian elimination on a CPU, with LAPACK's exchanges of rows.

The matrix is in the worker's scratch, negated where it is not eliminated yet, with right sides beside it. A panel of
``SIDE`` columns gets all that the columns before it have to do with it by one product, is eliminated (`panel`), and its
rows follow in the same way (Crout's order: an element is written once). ``OUTER`` columns make an outer panel: what is
right of it waits until all of them are there. Rows and columns beyond the matrix, up to a whole panel, are those of the
identity.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from autojit.codegen.cpu.chunks import even_chunks
from autojit.codegen.cpu.kernel_text import KernelText
from autojit.codegen.cpu.structured.matrices import GFLOPS, OUTER, SIDE, Place, padded
from autojit.codegen.cpu.structured.panel import panel_signature, write_panel
from autojit.codegen.cpu.structured.substitution import SubstitutingKernel
from autojit.codegen.cpu.vector_text import INTERNAL, VectorText
from autojit.codegen.function_text import Operand
from autojit.codegen.scalar import Scalar
from autojit.codegen.target import HostTarget
from autojit.core.dtypes import bool_
from autojit.core.sizes import typical
from autojit.ir.graph import Node

WIDEST = 16  # elements of a vector


class EliminationKernel(SubstitutingKernel):
    """Eliminates columns of matrices with at least as many rows.

    Args:
        columns: how many, of each matrix of the node's first operand from the first on.
        right_sides: columns beside them.
        exchanges: of rows; without them nothing is looked for.
    """

    def __init__(
        self, node: Node, target: HostTarget, columns: int, *, right_sides: int = 0, exchanges: bool = True
    ) -> None:
        self.rows: int = node.inputs[0].type.shape[-2]
        self.columns, self.right_sides, self.exchanges = columns, right_sides, exchanges
        self.steps, self.height = padded(columns), padded(self.rows)  # with those of the identity
        self.side = self.steps if self.steps is columns and columns < SIDE else SIDE
        self.right = -(-self.steps // SIDE) * SIDE  # where right sides begin
        self.width = self.right + right_sides
        lines, length = -(-self.height // SIDE) * SIDE, self.width + WIDEST
        self.panel_length = lines + 2 * WIDEST
        extents = self.height, self.width, self.steps
        super().__init__(node, target, lines * length + SIDE * self.panel_length, extents)
        self.matrix: Place = (self.own, length, 1)
        self.panel = self.address(self.own, self.dtype, lines * length)
        self.taken = self.local(f"[{SIDE} x i64]")

    def for_each(self, flops: int, work: Callable[[str], None]) -> KernelText:
        """Do some work for every matrix, whose number it gets, of so many operations in all."""
        gigaflops = GFLOPS[self.size_bytes]
        estimate = 50.0 + typical(flops) / gigaflops
        chunks, size = even_chunks(self.matrices, estimate, 1000 * flops // round(gigaflops))
        with self.loop(*self.chunk_bounds(size, self.matrices), stem="matrix") as number:
            work(number)
        return self.ended(chunks, estimate)

    @property
    def flops(self) -> int:
        """Of eliminating all matrices; what is not arithmetic counts a little."""
        m, n = self.rows, self.columns
        return self.matrices * (n * n * (m - n // 3) + n * n * self.right_sides + 60 * m + 100)

    # -- what is there

    def fill(self, number: str) -> None:
        """The first columns of a matrix, negated; the identity, negated, beyond; right sides stay as they are."""
        self._copy_rows(self.matrix_of(0, number), self.columns, 0, is_negated=True)
        if self.height is not self.rows:
            with self.loop(self.rows, self.height, stem="beyond") as i:
                line = self.number_at(self.matrix, i, 0)
                self.fill_bytes(line, 0, self.mul(self.right, self.size_bytes))
        if self.steps is not self.columns:
            with self.loop(self.columns, self.steps, stem="identity") as k:
                self.set_cell(self.matrix, k, k, self.constant(-1))

    def fill_right(self, number: str) -> None:
        """The right sides, which are the node's second operand."""
        self._copy_rows(self.matrix_of(1, number), self.right_sides, self.right, is_negated=False)
        self._clear_right(self.rows)

    def fill_identity(self) -> None:
        """Right sides that are the identity."""
        self._clear_right(0)
        with self.loop(0, self.rows, stem="one") as k:
            self.set_cell(self.matrix, k, self.add(k, self.right), self.constant(1))

    def _clear_right(self, first: int) -> None:
        with self.loop(first, self.height, stem="clear") as i:
            start = self.number_at(self.matrix, i, self.right)
            self.fill_bytes(start, 0, self.mul(self.right_sides, self.size_bytes))

    def _copy_rows(self, source: Place, columns: int, first: int, *, is_negated: bool) -> None:
        """Copy columns of a matrix; zeros follow, up to a whole vector."""
        v = self.vector
        with self.loop(0, self.rows, stem="row") as i, self.loop(0, columns, v.lanes, stem="piece") as j:
            mask = self.mask_below(v, self.sub(columns, j))
            value = self.masked_load(v, self.number_at(source, i, j), mask)
            if is_negated:
                value = self.value(f"fneg {v.text} {value}")
            self.store_vector(v, value, self.number_at(self.matrix, i, self.add(j, first)))

    # -- elimination

    def eliminate(self, taken: Callable[[str, str], None] = lambda step, row: None) -> None:
        """``taken`` is told each step, and the row that was exchanged with its own."""
        with self.loop(0, self.steps, OUTER, stem="outer") as first:
            stop = self.least(self.add(first, OUTER), self.steps)
            self._add_known("0", (first, self.height), (first, stop))
            with self.loop(first, stop, self.side, stem="panel") as k:
                behind = self.add(k, self.side)
                self._add_known(first, (k, self.height), (k, behind))
                self._panel(k, taken)
                self._add_known(first, (k, behind), (behind, stop))
                corner, right = self.moved(self.matrix, k, k), self.moved(self.matrix, k, behind)
                self.substitute(self.side, corner, right, self.sub(stop, behind), is_unit=True)
            beside = self.choose(self.test("eq", stop, self.steps), self.right, stop)
            self._right_of_outer(first, stop, beside)

    def _right_of_outer(self, first: str, stop: str, beside: str) -> None:
        rows, columns = self.sub(stop, first), self.sub(self.width, beside)
        with self.when(self.test("sgt", columns, 0)):
            self._add_known("0", (first, stop), (beside, self.width))
            corner, right = self.moved(self.matrix, first, first), self.moved(self.matrix, first, beside)
            if self.side < SIDE:  # all is one panel
                self.substitute(self.side, corner, right, columns, is_unit=True)
            else:
                self.solve_triangle(rows, corner, right, columns, is_upper=False, is_unit=True)

    def _add_known(self, first: str, rows: tuple[Operand, Operand], columns: tuple[Operand, Operand]) -> None:
        """To part of the matrix, the products of the steps from one on up to the part's first row or column."""
        until = rows[0]
        extents = self.sub(rows[1], rows[0]), self.sub(columns[1], columns[0]), self.sub(until, first)
        is_some = self.both(self.test("slt", first, until), self.test("slt", columns[0], columns[1]))
        with self.when(is_some):
            left, above = self.moved(self.matrix, rows[0], first), self.moved(self.matrix, first, columns[0])
            self.add_product(extents, left, above, self.moved(self.matrix, rows[0], columns[0]))

    def _panel(self, k: str, taken: Callable[[str, str], None]) -> None:
        """Eliminate a panel: its columns are copied to where they are contiguous, and back."""
        side = self.side
        corner: Place = self.moved(self.matrix, k, k)
        lines: Place = self.panel, self.panel_length, 1
        rows = self.sub(self.height, k)
        with self.squares(rows, side) as (i, j):
            self._turn_square(corner, lines, i, j)
        signature = panel_signature(side, self.exchanges)
        if signature.symbol not in self.module.functions:
            write = partial(write_panel, self.vector, side, self.exchanges, self.fused)
            VectorText.define(self.module, signature, write, linkage="internal", attributes=INTERNAL)
        real, columns = self.sub(self.rows, k), self.sub(self.columns, k)
        self.call(signature, self.panel, self.panel_length, rows, real, columns, self.taken)
        if self.exchanges:
            with self.loop(0, side, stem="exchange") as q:
                row = self.load("i64", self.element(self.taken, "i64", q))
                self._exchange(self.add(k, q), self.add(k, row))
                taken(self.add(k, q), self.add(k, row))
        with self.squares(side, rows) as (j, i):
            self._turn_square(lines, corner, j, i)

    def _turn_square(self, source: Place, target: Place, row: str, column: str) -> None:
        lanes = range(self.square.lanes)
        found = [self.load_vector(self.square, self.number_at(source, self.add(row, q), column)) for q in lanes]
        for q, value in enumerate(self.turned(found)):
            self.store_vector(self.square, value, self.number_at(target, self.add(column, q), row))

    def _exchange(self, one: str, other: str) -> None:
        """Exchange two rows, what is left of them and right sides with them."""
        v = self.vector
        with self.when(self.test("ne", one, other)), self.loop(0, self.width, v.lanes, stem="piece") as j:
            places = [self.number_at(self.matrix, row, j) for row in (one, other)]
            values = [self.load_vector(v, place) for place in places]
            for place, value in zip(places, reversed(values), strict=True):
                self.store_vector(v, value, place)

    # -- what follows

    def over_diagonal(self, start: Scalar, fold: Callable[[Scalar, Scalar], Scalar]) -> Scalar:
        """The elements of the diagonal folded into a start, in order."""
        total = self.slot(start.dtype)
        self.put(total, start)
        with self.loop(0, self.columns, stem="diagonal") as k:
            self.put(total, fold(self.get(total, start.dtype), self.cell(self.matrix, k, k)))
        return self.get(total, start.dtype)

    def has_zero_pivot(self) -> str:
        """Whether there is a zero on the diagonal."""
        none = self.emit.constant(False, bool_)
        return self.over_diagonal(none, lambda so_far, x: self.emit.logical_or(so_far, self.emit.eq(x, 0.0))).text

    def solve_right(self) -> None:
        """The right sides become solutions; elimination has left them negated."""
        corner, right = self.matrix, self.moved(self.matrix, 0, self.right)
        if self.side < SIDE:
            last = self.side - 1
            turned = self.number_at(corner, last, last), self.sub(0, corner[1]), -1
            lines: Place = self.number_at(right, last, 0), self.sub(0, right[1]), 1
            self.substitute(self.side, turned, lines, self.right_sides)
        else:
            self.solve_triangle(self.number(self.steps), corner, right, self.right_sides, is_upper=True, is_unit=False)

    def write_rows(self, result: Place, columns: int, first: int) -> None:
        """Columns of the matrix, from one on, as a result."""
        with self.loop(0, self.rows, stem="row") as i, self.parallel_loop(0, columns, "column") as j:
            self.set_cell(result, i, j, self.cell(self.matrix, i, self.add(j, first)))

    def take_sign(self) -> str:
        """Eliminate, and the variable that holds the sign of the exchanges."""
        sign = self.slot(self.dtype)
        self.put(sign, self.constant(1))

        def turn(step: str, row: str) -> None:
            known = self.get(sign, self.dtype)
            is_turned = Scalar(self.test("ne", step, row), bool_)
            self.put(sign, self.emit.select(is_turned, self.emit.neg(known), known))

        self.eliminate(turn)
        return sign
