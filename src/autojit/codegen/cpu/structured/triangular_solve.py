"""Triangular systems on a CPU: threads share the matrices and, of wide right sides, the columns."""

from __future__ import annotations

from autojit.codegen.cpu.chunks import MAX_CHUNKS, wanted_chunks
from autojit.codegen.cpu.kernel_text import KernelText
from autojit.codegen.cpu.structured.matrices import GFLOPS, OUTER, SIDE, MatrixKernel, Place, is_native
from autojit.codegen.function_text import Operand
from autojit.codegen.target import HostTarget
from autojit.core.dtypes import bool_
from autojit.core.sizes import is_symbolic, size_max, size_min, typical
from autojit.ir.graph import Node
from autojit.ops.linalg import TriangularSolve

COLUMNS = 64  # that threads share are a multiple of this: some cache lines, and whole tiles of products


def print_triangular_solve(node: Node, target: HostTarget) -> KernelText | None:
    """The kernel of a ``TriangularSolve``."""
    return _TriangularSolve(node, target).print() if is_native(node) else None


class SubstitutingKernel(MatrixKernel):
    """A kernel that solves triangular systems for right sides with contiguous rows."""

    def solve_triangle(
        self, n: int, triangle: Place, x: Place, columns: Operand, *, is_upper: bool, is_unit: bool
    ) -> None:
        """Solve ``triangle x = -x`` in place."""

        def block(first: Operand, rows: int, since: Operand, until: Operand) -> None:
            """Rows of a block, where those between ``since`` and ``until``, of the same outer one, are known."""
            self._subtract(triangle, x, columns, (first, rows), (since, until))
            last = self.add(first, rows - 1)
            down, across = triangle[1], triangle[2]
            if is_upper:
                turned = self.number_at(triangle, last, last), self.sub(0, down), self.sub(0, across)
                self.substitute(rows, turned, (self.number_at(x, last, 0), self.sub(0, x[1]), 1), columns, is_unit=is_unit)
            else:
                corner = self.number_at(triangle, first, first), down, across
                self.substitute(rows, corner, self.moved(x, first, 0), columns, is_unit=is_unit)

        def outer(low: Operand, high: Operand) -> None:
            """Some rows, a multiple of a block's but for the last ones of an open number."""
            with self.loop(0, self.quotient(self.sub(high, low), SIDE), stem="block") as k:
                if is_upper:
                    stop = self.sub(high, self.mul(k, SIDE))
                    block(self.sub(stop, SIDE), SIDE, stop, high)
                else:
                    first = self.add(low, self.mul(k, SIDE))
                    block(first, SIDE, low, first)

        rest = n % SIDE if not is_symbolic(n) else 1
        whole = n - n % SIDE if not is_symbolic(n) else n // SIDE * SIDE
        # the rows that make no whole block are the last ones that are solved for
        base = n - whole if is_upper else 0
        with self.loop(0, whole, OUTER, stem="outer") as done:
            if is_upper:
                high = self.sub(n, done)
                low = self.most(self.sub(high, OUTER), base)
                self._subtract(triangle, x, columns, (low, self.sub(high, low)), (high, self.number(n)))
            else:
                low = done
                high = self.least(self.add(done, OUTER), whole)
                self._subtract(triangle, x, columns, (low, self.sub(high, low)), (0, low))
            outer(low, high)
        if not is_symbolic(n):
            if rest:
                block(0 if is_upper else whole, rest, rest if is_upper else 0, n if is_upper else whole)
            return
        with self.loop(0, self.sub(n, whole), stem="row") as k:
            row = self.sub(self.sub(base, k), 1) if is_upper else self.add(whole, k)
            block(row, 1, self.add(row, 1) if is_upper else 0, n if is_upper else row)

    def _subtract(
        self,
        triangle: Place,
        x: Place,
        columns: Operand,
        rows: tuple[Operand, Operand],
        known: tuple[Operand, Operand],
    ) -> None:
        """From rows (the first, how many) what those between two others, which are known, have to do with them."""
        first, count = rows
        since, until = known
        with self.when(self.test("slt", since, until)):
            extents = count, columns, self.sub(until, since)
            a, b, c = self.moved(triangle, first, since), self.moved(x, since, 0), self.moved(x, first, 0)
            self.add_product(extents, a, b, c)


class _TriangularSolve(SubstitutingKernel):
    def __init__(self, node: Node, target: HostTarget) -> None:
        assert isinstance(node.op, TriangularSolve)
        self.op: TriangularSolve = node.op
        self.n, self.columns = node.inputs[1].type.shape[-2:]
        super().__init__(node, target, 0, (size_min(OUTER, self.n), self.columns, self.n))

    def print(self) -> KernelText:
        n, columns = self.n, self.columns
        flops = self.matrices * (n * (n + 8) * columns + 20 * n + 20)
        gigaflops = GFLOPS[self.size_bytes]
        estimate = 50.0 + typical(flops) / gigaflops
        wanted = wanted_chunks(estimate, 1000 * flops // round(gigaflops), MAX_CHUNKS)
        parts = size_max(1, size_min(-(-wanted // size_max(self.matrices, 1)), columns // COLUMNS))
        width = size_max(1, size_min(columns, -(-columns // (parts * COLUMNS)) * COLUMNS))
        parts = size_max(1, -(-columns // width))
        units = self.matrices * parts
        size = size_max(1, -(-units // wanted))
        with self.loop(*self.chunk_bounds(size, units), stem="unit") as unit:
            matrix = self.quotient(unit, parts)
            first = self.mul(self.remainder(unit, parts), width)
            self._solve(matrix, first, self.least(self.sub(columns, first), width))
        return self.ended(size_max(1, -(-units // size)), estimate)

    def _solve(self, matrix: str, first: str, columns: str) -> None:
        triangle = self.matrix_of(0, matrix)
        right, x = (self.moved(self.matrix_of(k, matrix), 0, first) for k in (1, 2))
        with self.loop(0, self.n, stem="row") as i, self.parallel_loop(0, columns, "column") as j:
            self.set_cell(x, i, j, self.emit.neg(self.cell(right, i, j)))
        self.solve_triangle(self.n, triangle, x, columns, is_upper=self.op.upper, is_unit=self.op.unit)
        if not self.op.unit:
            self._refuse_zeros(matrix, triangle)

    def _refuse_zeros(self, matrix: str, triangle: Place) -> None:
        is_singular = self.slot(bool_)
        self.put(is_singular, self.emit.constant(False, bool_))
        with self.loop(0, self.n, stem="diagonal") as k:
            is_zero = self.emit.eq(self.cell(triangle, k, k), 0.0)
            self.put(is_singular, self.emit.logical_or(self.get(is_singular, bool_), is_zero))
        self.refuse(matrix, self.get(is_singular, bool_).text)
