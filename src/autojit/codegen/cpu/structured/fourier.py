"""Fourier transforms along one axis, as vectors of lines: `fourier_stages` between a way in and a way out.

Lines along the last axis are turned by squares of registers, so that a vector holds one number of each line; along
other axes neighbouring lines are vectors in memory already. Complex numbers come interleaved and leave so. An even
number of real points is half as many complex ones, whose transform is taken apart, or put together, by one pass more;
an odd number has imaginary parts of zero. What a vector has no line for is the last line once more.
"""

from __future__ import annotations

from math import log2, prod, sqrt
from typing import Any

import numpy as np

from autojit.codegen.cpu.chunks import even_chunks
from autojit.codegen.cpu.kernel_text import KernelText
from autojit.codegen.cpu.machine import CPU_MACHINE, aligned
from autojit.codegen.cpu.products.packing import transposed
from autojit.codegen.cpu.structured.fourier_stages import Point, StagePrinter, radices_of, unit_root
from autojit.codegen.cpu.vector_text import VectorModule
from autojit.codegen.target import HostTarget
from autojit.core.sizes import is_symbolic, typical
from autojit.ir.graph import Node
from autojit.ops.fourier import Fft, Irfft, Rfft

POINT_NS = (
    0.25  # of one step of one point of one line: 5 operations, a core at some 20 GF/s; it only cuts work into chunks
)


def print_transform(node: Node, target: HostTarget) -> KernelText | None:
    """The kernel of a transform along one axis; None: of several, or of sizes that it is not made for."""
    op: Any = node.op
    axes = op.axes if isinstance(op, Fft) else (op.axis,)
    if len(axes) != 1:
        return None
    before, after = (v.type.shape[axes[0]] for v in (node.inputs[0], node.outputs[0]))
    points = max(before, after) if isinstance(op, Fft) else before if isinstance(op, Rfft) else op.n
    inner = prod(node.inputs[0].type.shape[node.inputs[0].type.ndim + axes[0] + 1 :])
    if is_symbolic(points) or is_symbolic(before) or is_symbolic(inner):
        return None
    limits = CPU_MACHINE.transforms
    assert limits is not None, "the CPU has transforms"
    transformed = points // 2 if points % 2 == 0 and not isinstance(op, Fft) else points
    if isinstance(op, Irfft) and before != points // 2 + 1:
        return None
    if not 0 < transformed <= limits.most_points or radices_of(transformed) is None:
        return None
    return _Printer(node, target, points, inner).print()


class _Printer(StagePrinter):
    def __init__(self, node: Node, target: HostTarget, points: int, inner: int) -> None:
        super().__init__(VectorModule(), "kernel")
        op: Any = node.op
        x, y = node.inputs[0].type, node.outputs[0].type
        self.op, self.points, self.inner = op, points, inner
        self.before, self.after = (t.shape[op.axes[0] if isinstance(op, Fft) else op.axis] for t in (x, y))
        self.from_complex, self.to_complex = x.dtype.is_complex, y.dtype.is_complex
        self.outer = prod(x.shape[: x.ndim + (op.axes[0] if isinstance(op, Fft) else op.axis)])
        self.is_halved = not isinstance(op, Fft) and points % 2 == 0
        dtype = x.dtype.to_real()
        lanes = target.vector_bytes // dtype.size_bytes
        if inner > 1:
            lanes = min(lanes, 1 << (inner.bit_length() - 1))
        elif not is_symbolic(self.outer):
            lanes = min(lanes, 1 << max(self.outer - 1, 0).bit_length())
        self.set_vector(dtype, lanes)
        self.size = dtype.size_bytes
        self.sign = 1 if isinstance(op, Irfft) or (isinstance(op, Fft) and op.is_inverse) else -1

    def print(self) -> KernelText:
        lanes = self.vector.lanes
        source, target, scratch = self.pointers([0, 0, 0])
        rows = self.points + 2 if self.is_halved else 2 * self.points
        room = aligned((rows + 2 * lanes) * self.row_bytes)
        columns = -(-self.inner // lanes)
        units = self.outer * columns if self.inner > 1 else -(-self.outer // lanes)
        steps = self.points * (2 + log2(self.points)) * (0.5 if self.is_halved else 1.0)
        unit_ns = max(1.0, steps * POINT_NS * lanes)
        chunks, size = even_chunks(units, typical(units) * unit_ns, units * round(1000 * unit_ns))
        first = self.at(scratch, self.mul("%worker", 2 * room))
        buffers = first, self.at(first, room)
        with self.loop(*self.chunk_bounds(size, units), stem="unit") as unit:
            if self.inner > 1:
                line, column = self.quotient(unit, columns), self.remainder(unit, columns)
                start = self.least(self.mul(column, lanes), self.inner - lanes)
            else:
                line, start = self.mul(unit, lanes), "0"
            self._unit(buffers, source, target, line, start)
        self.finish()
        return self.kernel_text(chunks, typical(units) * unit_ns, scratch_bytes=2 * room)

    def _unit(self, buffers: tuple[str, str], source: str, target: str, line: str, column: str) -> None:
        """The lines of one vector."""
        a, b = buffers
        scale, points, op = self._scale(), self.points, self.op
        half = points // 2
        if isinstance(op, Rfft):
            scale = scale / 2 if self.is_halved else scale
            self._take(source, a, line, column, scale, 1 if self.is_halved else 2)
            if self.is_halved:
                a, b = self.transform(a, b, half, self.sign)
                self._part(a, b)
                a, b = b, a
            else:
                self._clear_imaginary(a)
                a, b = self.transform(a, b, points, self.sign)
        elif isinstance(op, Irfft):
            self._take(source, a, line, column, scale, 1)
            if self.is_halved:
                self._join(a, b)
                a, b = self.transform(b, a, half, self.sign)
            else:
                self._mirror(a)
                a, b = self.transform(a, b, points, self.sign)
        else:
            self._take(source, a, line, column, scale, 1)
            a, b = self.transform(a, b, points, self.sign)
        self._give(target, a, line, column, 2 if isinstance(op, Irfft) and not self.is_halved else 1)

    def _scale(self) -> float:
        """What the norm multiplies with."""
        is_inverse = self.sign > 0
        if self.op.norm == "ortho":
            return 1 / sqrt(self.points)
        return 1 / self.points if is_inverse == (self.op.norm == "backward") else 1.0

    # -- halves of real transforms

    def _roots(self) -> str:
        return self.table("@roots", unit_root(np.arange(self.points // 4 + 1), self.points, -1))

    def _part(self, source: str, target: str) -> None:
        """The transform of real points from that of their pairs, which were halved."""
        half = self.points // 2
        re, im = self.load_point(source)
        twice = self.literal(2.0)
        zero = self.literal(0.0)
        self.store_point((self.times(self.plus(re, im), twice), zero), target)
        self.store_point((self.times(self.minus(re, im), twice), zero), self.point(target, half))
        roots = self._roots()
        with self.loop(1, half // 2 + 1, stem="pair") as k:
            (ar, ai), (br, bi), other = self._opposite(source, k)
            er, ei, dr, di = self.plus(ar, br), self.minus(ai, bi), self.minus(ar, br), self.plus(ai, bi)
            wr, wi = self.factor(roots, k)
            tr = self.plus(self.times(wr, di), self.times(wi, dr))
            ti = self.minus(self.times(wi, di), self.times(wr, dr))
            self.store_point((self.plus(er, tr), self.plus(ei, ti)), self.point(target, k))
            self.store_point((self.minus(er, tr), self.minus(ti, ei)), self.point(target, other))

    def _join(self, source: str, target: str) -> None:
        """The transform of pairs of real points from that of the points."""
        half = self.points // 2
        first, last = self.load_row(source), self.load_row(self.point(source, half))
        self.store_point((self.plus(first, last), self.minus(first, last)), target)
        roots = self._roots()
        with self.loop(1, half // 2 + 1, stem="pair") as k:
            (ar, ai), (br, bi), other = self._opposite(source, k)
            er, ei, dr, di = self.plus(ar, br), self.minus(ai, bi), self.minus(ar, br), self.plus(ai, bi)
            wr, wi = self.factor(roots, k)
            re = self.plus(self.times(dr, wr), self.times(di, wi))
            im = self.minus(self.times(di, wr), self.times(dr, wi))
            self.store_point((self.minus(er, im), self.plus(ei, re)), self.point(target, k))
            self.store_point((self.plus(er, im), self.minus(re, ei)), self.point(target, other))

    def _opposite(self, buffer: str, k: str) -> tuple[Point, Point, str]:
        """A point, the one as far from the end, and its number."""
        other = self.sub(self.points // 2, k)
        return self.load_point(self.point(buffer, k)), self.load_point(self.point(buffer, other)), other

    def _mirror(self, buffer: str) -> None:
        """The second half of a spectrum of real points; the first imaginary part has no influence."""
        self.store_vector(self.vector, self.literal(0.0), self.row(buffer, 1))
        with self.loop(1, self.points // 2 + 1, stem="mirrored") as k:
            re, im = self.load_point(self.point(buffer, k))
            self.store_point((re, self.negative(im)), self.point(buffer, self.sub(self.points, k)))

    def _clear_imaginary(self, buffer: str) -> None:
        with self.loop(0, self.points, stem="cleared") as k:
            self.store_vector(self.vector, self.literal(0.0), self.at(self.point(buffer, k), self.row_bytes))

    # -- ways in and out

    def _scaled(self, value: str, scale: float) -> str:
        return value if scale == 1.0 else self.times(value, self.literal(scale))

    def _take(self, source: str, buffer: str, line: str, column: str, scale: float, step: int) -> None:
        """Rows of a buffer from the numbers of lines, ``step`` rows apart."""
        if self.inner == 1:
            self._take_lines(source, buffer, line, scale, step)
            return
        parts = 2 if self.from_complex else 1
        lanes = self.vector.lanes
        with self.loop(0, self.before, stem="taken") as k:
            place = self._in_memory(source, line, k, self.before, column, parts)
            low = self._scaled(self.load_row(place), scale)
            if self.from_complex:
                high = self._scaled(self.load_row(self.at(place, self.row_bytes)), scale)
                re, im = (self.shuffle(self.vector, low, high, range(part, 2 * lanes, 2)) for part in range(2))
                self.store_point((re, im), self.point(buffer, k))
            else:
                self.store_vector(self.vector, low, self.row(buffer, self.mul(k, step)))

    def _give(self, target: str, buffer: str, line: str, column: str, step: int) -> None:
        """The numbers of lines from rows of a buffer."""
        if self.inner == 1:
            self._give_lines(target, buffer, line, step)
            return
        lanes = self.vector.lanes
        with self.loop(0, self.after, stem="given") as k:
            place = self._in_memory(target, line, k, self.after, column, 2 if self.to_complex else 1)
            if not self.to_complex:
                self.store_vector(self.vector, self.load_row(self.row(buffer, self.mul(k, step))), place)
            else:
                re, im = self.load_point(self.point(buffer, k))
                for part in range(2):
                    first = part * lanes // 2
                    pairs = [n for lane in range(lanes // 2) for n in (first + lane, first + lane + lanes)]
                    mixed = self.shuffle(self.vector, re, im, pairs)
                    self.store_vector(self.vector, mixed, self.at(place, part * self.row_bytes))

    def _in_memory(self, base: str, line: str, k: str, extent: int, column: str, parts: int) -> str:
        """The address of the vector's numbers at a place of the axis."""
        number = self.add(self.mul(self.add(self.mul(line, extent), k), self.inner), column)
        return self.at(base, self.mul(number, parts * self.size))

    def _places(self, base: str, line: str, numbers: int) -> list[str]:
        """Where the lines of a vector begin, if each has this many real numbers."""
        last = self.sub(self.outer, 1)
        lanes = [self.least(self.add(line, lane), last) for lane in range(self.vector.lanes)]
        return [self.at(base, self.mul(lane, numbers * self.size)) for lane in lanes]

    def _take_lines(self, source: str, buffer: str, line: str, scale: float, step: int) -> None:
        numbers = self.before * (2 if self.from_complex else 1)
        places, lanes = self._places(source, line, numbers), self.vector.lanes
        with self.loop(0, numbers, lanes, stem="square") as first:
            mask = self.mask_below(self.vector, self.sub(numbers, first)) if numbers % lanes else ""
            skip = self.mul(first, self.size)
            square = [self._taken(self.at(place, skip), mask) for place in places]
            start = self.row(buffer, self.mul(first, step))
            for k, value in enumerate(transposed(self, self.vector, square)):
                self.store_vector(self.vector, self._scaled(value, scale), self.at(start, k * step * self.row_bytes))

    def _taken(self, address: str, mask: str) -> str:
        return self.masked_load(self.vector, address, mask) if mask else self.load_row(address)

    def _give_lines(self, target: str, buffer: str, line: str, step: int) -> None:
        numbers = self.after * (2 if self.to_complex else 1)
        places, lanes = self._places(target, line, numbers), self.vector.lanes
        with self.loop(0, numbers, lanes, stem="square") as first:
            mask = self.mask_below(self.vector, self.sub(numbers, first)) if numbers % lanes else ""
            start = self.row(buffer, self.mul(first, step))
            square = [self.load_row(self.at(start, k * step * self.row_bytes)) for k in range(lanes)]
            skip = self.mul(first, self.size)
            for place, value in zip(places, transposed(self, self.vector, square), strict=True):
                if mask:
                    self.masked_store(self.vector, value, self.at(place, skip), mask)
                else:
                    self.store_vector(self.vector, value, self.at(place, skip))
