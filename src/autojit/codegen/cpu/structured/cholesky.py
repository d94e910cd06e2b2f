"""Cholesky factorisation on a CPU.

The factor is made as an upper triangle, whose rows are contiguous, and written transposed. Rows beyond the matrix, up
to a whole block, are those of the identity.
"""

from __future__ import annotations

from autojit.codegen.cpu.chunks import even_chunks
from autojit.codegen.cpu.kernel_text import KernelText
from autojit.codegen.cpu.structured.matrices import GFLOPS, OUTER, SIDE, MatrixKernel, Place, is_native, padded
from autojit.codegen.cpu.vector_text import Vector
from autojit.codegen.scalar import Scalar
from autojit.codegen.target import HostTarget
from autojit.core.dtypes import int32, int64
from autojit.core.sizes import size_min, typical
from autojit.ir.graph import Node
from autojit.ops.linalg import Cholesky

WIDEST = 16  # elements of a vector


def print_cholesky(node: Node, target: HostTarget) -> KernelText | None:
    """The kernel of a ``Cholesky`` or a ``FirstBadMinor``."""
    return _Cholesky(node, target).print() if is_native(node) else None


class _Cholesky(MatrixKernel):
    """Factorises the symmetric part of a matrix; ``bad`` is the order of the first minor that is not positive."""

    def __init__(self, node: Node, target: HostTarget) -> None:
        self.n: int = node.inputs[0].type.shape[-1]
        self.rows = padded(self.n)
        self.width = self.rows + WIDEST
        height = -(-self.rows // SIDE) * SIDE
        super().__init__(node, target, height * self.width, (size_min(OUTER, height), self.rows, self.rows))
        self.matrix: Place = (self.own, self.width, 1)
        self.bad = self.slot(int64)

    def print(self) -> KernelText:
        n = self.n
        flops = self.matrices * n * (n * n // 3 + 4 * n + 20)
        gigaflops = GFLOPS[self.size_bytes]
        estimate = 50.0 + typical(flops) / gigaflops
        chunks, size = even_chunks(self.matrices, estimate, 1000 * flops // round(gigaflops))
        with self.loop(*self.chunk_bounds(size, self.matrices), stem="matrix") as number:
            self._factorise(number)
            bad = self.get(self.bad, int64)
            if isinstance(self.node.op, Cholesky):
                self._write_lower(self.matrix_of(1, number))
                self.refuse(number, self.test("ne", bad.text, 0))
            else:
                self.write(1, self.emit.cast(bad, int32), number)
        return self.ended(chunks, estimate)

    def _factorise(self, number: str) -> None:
        self.put(self.bad, Scalar("0", int64))
        self._fill(self.matrix_of(0, number))
        if self.rows is self.n and self.n < SIDE:
            self._diagonal_block("0", self.n)
            return
        with self.loop(0, self.rows, OUTER, stem="outer") as first:
            stop = self.least(self.add(first, OUTER), self.rows)
            self._subtract_known("0", first, self.sub(stop, first))
            with self.loop(first, stop, SIDE, stem="block") as k:
                self._subtract_known(first, k, self.number(SIDE))
                self._diagonal_block(k, SIDE)
                behind = self.add(k, SIDE)
                triangle = self.number_at(self.matrix, k, k), 1, self.width  # its transpose
                right = self.moved(self.matrix, k, behind)
                self.substitute(SIDE, triangle, right, self.sub(self.rows, behind))

    def _fill(self, a: Place) -> None:
        """The symmetric part, negated: its upper triangle."""
        n, side = self.n, self.square.lanes
        extents = n, n
        with self.loop(0, self.rows, side, stem="rows") as i, self.loop(i, self.rows, side, stem="columns") as j:
            piece = self.load_square(a, extents, i, j)
            other = self.turned(self.load_square(a, extents, j, i))
            factor, kind = self.splat_of(-0.5), self.square.text
            for k, (x, y) in enumerate(zip(piece, other, strict=True)):
                half = self.binary("fmul", self.binary("fadd", x, y, kind), factor, kind)
                self.store_vector(self.square, half, self.number_at(self.matrix, self.add(i, k), j))
        if self.rows is not n:
            with self.loop(n, self.rows, stem="beyond") as at:
                self.set_cell(self.matrix, at, at, self.constant(-1))

    def _subtract_known(self, first: str, k: str, rows: str) -> None:
        """From some rows, the products of those between another and them."""
        with self.when(self.test("slt", first, k)):
            extents = rows, self.sub(self.rows, k), self.sub(k, first)
            above = self.number_at(self.matrix, first, k)
            self.add_product(extents, (above, 1, self.width), (above, self.width, 1), self.moved(self.matrix, k, k))

    def _diagonal_block(self, k: str, rows: int) -> None:
        """Factorise a block on the diagonal, in registers."""
        lanes = 1 << max(rows - 1, 1).bit_length()
        vector = Vector(self.dtype, lanes)
        places = [self.number_at(self.matrix, self.add(k, i), k) for i in range(rows)]
        lines = [self.load_vector(vector, place) for place in places]
        for i in range(rows):
            pivot = self.emit.neg(self._lane(vector, lines[i], i))
            self._look_at(pivot, self.add(k, i + 1))
            root = self.emit.sqrt(pivot)
            scale = self.splat(self.emit.div(self.constant(-1), root).text, vector.element, lanes)
            scaled = self.binary("fmul", lines[i], scale, vector.text)
            for j in range(i + 1, rows):
                factor = self.splat(self._lane(vector, scaled, j).text, vector.element, lanes)
                lines[j] = self.multiply_add(vector, factor, scaled, lines[j], fused=self.fused)
            lines[i] = self.value(f"insertelement {vector.text} {scaled}, {vector.element} {root.text}, i64 {i}")
        for place, line in zip(places, lines, strict=True):
            self.store_vector(vector, line, place)

    def _lane(self, vector: Vector, line: str, lane: int) -> Scalar:
        return Scalar(self.value(f"extractelement {vector.text} {line}, i64 {lane}"), self.dtype)

    def _look_at(self, pivot: Scalar, order: str) -> None:
        known = self.get(self.bad, int64).text
        is_bad = self.both(self.negate(self.emit.gt(pivot, 0.0).text), self.test("eq", known, 0))
        self.put(self.bad, Scalar(self.choose(is_bad, order, known), int64))

    def _write_lower(self, result: Place) -> None:
        n, kind = self.n, self.square.text
        extents, zero = (n, n), "zeroinitializer"
        with self.squares(n, n) as (i, j):
            is_below = self.test("slt", j, i)
            with self.when(self.test("sgt", j, i)):
                self.store_square(result, extents, i, j, [zero] * self.square.lanes)
            with self.otherwise():
                piece = self.turned(
                    [
                        self.load_vector(self.square, self.number_at(self.matrix, self.add(j, k), i))
                        for k in range(self.square.lanes)
                    ]
                )
                for k, value in enumerate(piece):
                    lanes = ", ".join(f"i1 {str(lane <= k).lower()}" for lane in range(self.square.lanes))
                    half = self.value(f"select {self.square.mask} <{lanes}>, {kind} {value}, {kind} {zero}")
                    piece[k] = self.value(f"select i1 {is_below}, {kind} {value}, {kind} {half}")
                self.store_square(result, extents, i, j, piece)
