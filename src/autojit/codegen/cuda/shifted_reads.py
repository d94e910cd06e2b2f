"""Neighbours that begin anywhere, read as the vectors that they are in.

What a stencil reads beside its own element, or a view that leaves out a rim, are as many neighbours as a lane computes
at once, but the first of them is at no multiple of that number: element by element they are accesses of four bytes, 16
apart from lane to lane. They are in two *pieces*, whole vectors that begin at multiples. A lane reads both and
takes its elements out of them: which ones is known where all that moves the position are multiples (`phase_of`), and
is chosen by the position's low bits elsewhere. Pieces of reads that differ in a constant are read once.

A piece holds an element that is asked for, or is moved into the buffer; so nothing outside of a buffer is read. Where a
guard says that there is nothing, what was read there is not used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

from autojit.codegen.cuda.grid_expressions import GridExpressions, Point
from autojit.codegen.cuda.lane_limits import has_pieces, phase_of
from autojit.codegen.expressions import Memo
from autojit.codegen.piecewise import varies
from autojit.codegen.scalar import Scalar, memory_type
from autojit.core.dtypes import DType
from autojit.core.sizes import surely_less
from autojit.ir.index import Index
from autojit.schedule.expressions import Expr, Guarded, Load


class ShiftedReads(GridExpressions):
    """A kernel on a GPU that reads neighbours in whole vectors."""

    def is_read_together(self, guard: Guarded) -> bool:
        """Whether a guard is in front of such a read, can be answered where it fails, and needs no branch then."""
        is_unknown = any(g in self.answers or varies(g[0], ()) for g in guard.guards)
        return not is_unknown and guard.args[1] not in self.walk.varying and self._has_pieces(guard.args[0])

    def read_at(self, vector: Sequence[Point], expr: Expr, phase: int) -> None:
        """Read runs that begin anywhere or are guarded piece by piece, everything else element by element."""
        if expr not in vector[0].memo:
            if isinstance(expr, Guarded) and self.is_read_together(expr):
                self._read_guarded(vector, expr, phase)
                return
            if self._has_pieces(expr) and phase_of(self.walk, expr.positions[0], self.width) != 0:
                for point, value in zip(vector, self._elements(expr, vector[0], phase, is_sure=True), strict=True):
                    point.memo[expr] = value
                return
        super().read_at(vector, expr, phase)

    def _read_guarded(self, vector: Sequence[Point], guard: Guarded, phase: int) -> None:
        load, outside = guard.args
        assert isinstance(load, Load), "what is read together is a read"
        found = self._elements(load, vector[0], phase, is_sure=False)
        for point, value in zip(vector, found, strict=True):
            self.variables.update(point.counters)
            self.point = point
            condition = self.conditions(guard.guards, point.memo, phase)
            point.memo[guard] = self.emit.select(condition, value, self.expr(outside, point.memo, phase))

    def _has_pieces(self, load: Expr) -> TypeGuard[Load]:
        """Whether the points' neighbours are read, in whole pieces of their buffer."""
        if not isinstance(load, Load) or self.is_checked or self.width == 1 or self.along != self.walk.inner[-1]:
            return False
        return has_pieces(self.walk, load, self.width)

    def _elements(self, load: Load, first: Point, phase: int, *, is_sure: bool) -> list[Scalar]:
        """The elements of a vector.

        Args:
            is_sure: all of them are in the buffer.
        """
        (index,), width = load.positions, self.width
        self.variables.update(first.counters)
        self.point = first
        known = phase_of(self.walk, index, width)
        if known is None:
            parts = self._by_low_bits(load, self.index(index, first.memo, phase), is_sure=is_sure)
        else:
            starts = [Index(index.terms, index.offset - known + k * width) for k in range(2 if known else 1)]
            parts = [
                bits for start in starts for bits in self._piece_at(load, start, first.memo, phase, is_sure=is_sure)
            ]
            parts = parts[known : known + width]
        return [self.emit.from_memory(Scalar(bits, load.dtype)) for bits in parts]

    def _piece_at(self, load: Load, start: Index, memo: Memo, phase: int, *, is_sure: bool) -> list[str]:
        """The elements of the piece that begins at an index."""
        sure, moved = ("piece", load.buffer, start), ("moved piece", load.buffer, start)
        key = sure if is_sure or sure in memo else moved
        if key not in memo:
            position = self.index(start, memo, phase)
            position = position if is_sure else self.most(self.least(position, self._last(load)), 0)
            memo[key] = self._piece(load.buffer, load.dtype, position)
        found: list[str] = memo[key]
        return found

    def _by_low_bits(self, load: Load, position: str, *, is_sure: bool) -> list[str]:
        """The elements from a position on, by as many choices among those of two pieces as it has low bits."""
        width, kind = self.width, memory_type(load.dtype)
        start, rest = self.binary("and", position, -width), self.binary("and", position, width - 1)
        starts = [start, self.add(start, width)]
        starts = [self.least(start, self._last(load)) for start in starts]  # behind the last element nothing is wanted
        if not is_sure:
            starts = [self.most(start, 0) for start in starts]
        found = [bits for start in starts for bits in self._piece(load.buffer, load.dtype, start)]
        step = width // 2
        while step:
            is_far = self.test("ne", self.binary("and", rest, step), 0)
            found = [
                self.choose(is_far, there, here, kind)
                for here, there in zip(found, found[step : step + width + step - 1], strict=False)
            ]
            step //= 2
        return found[:width]

    def _last(self, load: Load) -> int:
        """Where the last piece begins that has an element to read, or is in the buffer.

        A buffer that begins behind its first element (`begun_buffers`) is shorter than its size says: then no place is
        behind the last element, and the greatest one tells where the buffer goes on to at least.
        """
        greatest, size = load.positions[0].bounds()[1], self.sizes[load.buffer]
        return (greatest if surely_less(greatest, size) else size - 1) // self.width * self.width

    def _piece(self, buffer: int, dtype: DType, position: str) -> list[str]:
        """The elements of one wide access, as they are in memory; vectors have no pairs, so complex numbers' parts."""
        part = dtype.to_real()
        width = self.width * (dtype.size_bytes // part.size_bytes)
        kind = f"<{width} x {memory_type(part)}>"
        address = self.address(self.buffers[buffer], dtype, position)
        address = self.as_aligned(address, [self.buffers[buffer]], self.width * dtype.size_bytes)
        vector = self.load(kind, address, attributes=f", align {dtype.size_bytes}")
        found = [Scalar(self.value(f"extractelement {kind} {vector}, i32 {k}"), part) for k in range(width)]
        if dtype.is_complex:
            found = [self.emit.paired(*both) for both in zip(found[::2], found[1::2], strict=True)]
        return [element.text for element in found]
