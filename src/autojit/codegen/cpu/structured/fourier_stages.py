"""The stages of a Fourier transform of some lines side by side: Stockham's, whose results come out in order.

A *row* is a vector with one real number of each line; a point is two rows, its real and its imaginary part, one behind
the other. A stage of radix ``r`` takes points that are ``n / r`` apart, transforms them in registers, turns them by the
stage's factors and writes them where the next stage finds them, in the other buffer. Lanes never meet: a line's result
is the same in every lane of every width.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import cos, pi, sin
from typing import ClassVar

import numpy as np

from autojit.codegen.cpu.vector_text import Vector, VectorKernel
from autojit.codegen.function_text import Operand
from autojit.core.dtypes import DType

Point = tuple[str, str]
"""The real and the imaginary rows of a point, in registers."""

LARGEST_RADIX = 13
"""Radices above 4 are primes, written out; their squares of multiplications make larger ones another method's."""


def radices_of(points: int) -> tuple[int, ...] | None:
    """The radices whose product is a number of points, large powers of two first; None: a prime factor is too large."""
    found: list[int] = []
    for radix in (4, 2, 3, 5, 7, 11, LARGEST_RADIX):
        while points % radix == 0:
            found.append(radix)
            points //= radix
    return tuple(found) if points == 1 else None


class StagePrinter(VectorKernel):
    """A kernel that transforms points in two buffers of its own."""

    freedom: ClassVar[str] = "contract"

    def set_vector(self, dtype: DType, lanes: int) -> None:
        """What a row is."""
        self.vector = Vector(dtype, lanes)
        self.row_bytes = self.vector.size_bytes

    # -- rows

    def row(self, buffer: str, number: Operand, skip: int = 0) -> str:
        """The address of a row, some rows behind another."""
        if type(number) is int:
            return self.at(buffer, (number + skip) * self.row_bytes)
        start = self.at(buffer, self.mul(number, self.row_bytes))
        return self.at(start, skip * self.row_bytes) if skip else start

    def load_row(self, address: str) -> str:
        return self.load_vector(self.vector, address)

    def load_point(self, address: str) -> Point:
        return self.load_row(address), self.load_row(self.at(address, self.row_bytes))

    def store_point(self, point: Point, address: str) -> None:
        self.store_vector(self.vector, point[0], address)
        self.store_vector(self.vector, point[1], self.at(address, self.row_bytes))

    def point(self, buffer: str, number: Operand) -> str:
        """The address of a point."""
        return self.row(buffer, self.mul(number, 2) if type(number) is str else 2 * int(number))

    # -- arithmetic

    def plus(self, a: str, b: str) -> str:
        return self.value(f"fadd {self.freedom} {self.vector.text} {a}, {b}")

    def minus(self, a: str, b: str) -> str:
        return self.value(f"fsub {self.freedom} {self.vector.text} {a}, {b}")

    def times(self, a: str, b: str) -> str:
        return self.value(f"fmul {self.freedom} {self.vector.text} {a}, {b}")

    def negative(self, a: str) -> str:
        return self.value(f"fneg {self.vector.text} {a}")

    def literal(self, number: float) -> str:
        """A number in every lane."""
        exact = float(self.vector.dtype.numpy.type(number))
        bits = np.float64(exact).view(np.uint64)
        return f"splat ({self.vector.element} 0x{int(bits):016X})"

    def turned(self, point: Point, factor: Point) -> Point:
        """The product of two complex numbers."""
        (a, b), (c, d) = point, factor
        re = self.minus(self.times(a, c), self.times(b, d))
        return re, self.plus(self.times(a, d), self.times(b, c))

    # -- tables

    def table(self, symbol: str, numbers: np.ndarray) -> str:
        """A table of complex numbers; its symbol."""
        part = self.vector.dtype.numpy
        pairs = np.stack([numbers.real, numbers.imag], -1).astype(part)
        escaped = "".join(f"\\{byte:02X}" for byte in pairs.tobytes())
        text = f'{symbol} = private unnamed_addr constant [{pairs.nbytes} x i8] c"{escaped}", align 64'
        self.module.definitions[symbol] = text
        return symbol

    def factor(self, table: str, number: Operand, skip: int = 0) -> Point:
        """A complex number of a table in every lane."""
        size, element = self.vector.dtype.size_bytes, self.vector.element
        place = self.mul(number, 2 * size) if type(number) is str else str(2 * size * int(number))
        start = self.value(f"getelementptr i8, ptr {table}, i64 {place}")
        re, im = (self.load(element, self.at(start, (2 * skip + k) * size)) for k in range(2))
        return self.splat(re, element, self.vector.lanes), self.splat(im, element, self.vector.lanes)

    # -- stages

    def transform(self, source: str, other: str, points: int, sign: int) -> tuple[str, str]:
        """All stages, from one buffer into the other and back: (the buffer of the result, the other one)."""
        radices = radices_of(points)
        assert radices is not None, "a size with a large prime factor"
        left, apart = points, 1
        for number, radix in enumerate(radices):
            self._stage(f"@turn{number}", source, other, radix, left, apart, sign)
            source, other = other, source
            left, apart = left // radix, apart * radix
        return source, other

    def _stage(self, symbol: str, source: str, target: str, radix: int, left: int, apart: int, sign: int) -> None:
        groups = left // radix
        if groups > 1:
            turns = np.outer(np.arange(groups), np.arange(1, radix)) % left
            self.table(symbol, unit_root(turns, left, sign))
        with self.loop(0, groups, stem="group") as group:
            turns_of = range(radix - 1 if groups > 1 else 0)
            factors = [self.factor(symbol, self.mul(group, radix - 1), j) for j in turns_of]
            first, wanted = self.mul(group, apart), self.mul(group, apart * radix)
            with self.loop(0, apart, stem="point") as place:
                start = self.point(source, self.add(first, place))
                step = 2 * groups * apart * self.row_bytes
                taken = [self.load_point(self.at(start, k * step)) for k in range(radix)]
                made = self.butterfly(taken, sign)
                if factors:
                    made[1:] = [self.turned(p, f) for p, f in zip(made[1:], factors, strict=True)]
                end = self.point(target, self.add(wanted, place))
                for k, point in enumerate(made):
                    self.store_point(point, self.at(end, 2 * k * apart * self.row_bytes))

    def butterfly(self, points: Sequence[Point], sign: int) -> list[Point]:
        """The transform of a few points in registers."""
        if len(points) == 2:
            return [self._sum(*points), self._difference(*points)]
        if len(points) == 4:
            return self._of_four(points, sign)
        return self._of_odd(points, sign)

    def _sum(self, a: Point, b: Point) -> Point:
        return self.plus(a[0], b[0]), self.plus(a[1], b[1])

    def _difference(self, a: Point, b: Point) -> Point:
        return self.minus(a[0], b[0]), self.minus(a[1], b[1])

    def _sideways(self, a: Point, b: Point, sign: int) -> tuple[Point, Point]:
        """``a + i sign b`` and ``a - i sign b``."""
        one = self.minus(a[0], b[1]), self.plus(a[1], b[0])
        other = self.plus(a[0], b[1]), self.minus(a[1], b[0])
        return (one, other) if sign > 0 else (other, one)

    def _of_four(self, points: Sequence[Point], sign: int) -> list[Point]:
        a, b, c, d = points
        even, odd = self._sum(a, c), self._sum(b, d)
        first, third = self._sideways(self._difference(a, c), self._difference(b, d), sign)
        return [self._sum(even, odd), first, self._difference(even, odd), third]

    def _of_odd(self, points: Sequence[Point], sign: int) -> list[Point]:
        """An odd number of points: what is the same for ``k`` and ``-k`` is computed once."""
        count = len(points)
        pairs = [(points[k], points[count - k]) for k in range(1, count // 2 + 1)]
        sums = [self._sum(*pair) for pair in pairs]
        gaps = [self._difference(*pair) for pair in pairs]
        total = points[0]
        for term in sums:
            total = self._sum(total, term)
        made = [total] * count
        for j in range(1, count // 2 + 1):
            angles = [2 * pi * (j * k % count) / count for k in range(1, count // 2 + 1)]
            along = self._combined(points[0], sums, [cos(angle) for angle in angles])
            across = self._combined(None, gaps, [sin(angle) for angle in angles])
            made[j], made[count - j] = self._sideways(along, across, sign)
        return made

    def _combined(self, start: Point | None, terms: Sequence[Point], weights: Sequence[float]) -> Point:
        """``start`` and the terms times their weights, added up."""
        parts: list[str] = []
        for part in range(2):
            total = None if start is None else start[part]
            for term, weight in zip(terms, weights, strict=True):
                share = self.times(term[part], self.literal(weight))
                total = share if total is None else self.plus(total, share)
            assert total is not None, "nothing to add up"
            parts.append(total)
        return parts[0], parts[1]


def unit_root(numbers: np.ndarray, order: int, sign: int) -> np.ndarray:
    """``exp(sign 2 pi i number / order)``, right in every digit of a double: angles are taken below an eighth turn."""
    eighths = 8 * (np.asarray(numbers, np.int64) % order)
    octant, rest = np.divmod(eighths, order)
    folded = np.where(octant % 2 == 1, order - rest, rest)
    angle = np.pi / 4 * (folded / order)
    c, s = np.cos(angle), np.sin(angle)
    c, s = np.where((octant + 1) // 2 % 2 == 1, s, c), np.where((octant + 1) // 2 % 2 == 1, c, s)
    c = np.where((octant >= 2) & (octant < 6), -c, c)
    s = np.where(octant >= 4, -s, s)
    found: np.ndarray = c + 1j * (sign * s)
    return found
