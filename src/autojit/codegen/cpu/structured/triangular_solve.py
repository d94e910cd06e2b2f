"""Triangular systems on a CPU: threads share the matrices and, of wide right sides, the columns."""

from __future__ import annotations

from autojit.codegen.cpu.chunks import MAX_CHUNKS, wanted_chunks
from autojit.codegen.cpu.kernel_text import KernelText
from autojit.codegen.cpu.structured.matrices import GFLOPS, OUTER, Place, is_native
from autojit.codegen.cpu.structured.substitution import SubstitutingKernel
from autojit.codegen.target import HostTarget
from autojit.core.dtypes import bool_
from autojit.core.sizes import size_max, size_min, typical
from autojit.ir.graph import Node
from autojit.ops.linalg import TriangularSolve

COLUMNS = 64  # that threads share are a multiple of this: some cache lines, and whole tiles of products


def print_triangular_solve(node: Node, target: HostTarget) -> KernelText | None:
    """The kernel of a ``TriangularSolve``."""
    return _TriangularSolve(node, target).print() if is_native(node) else None


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
