"""Triangular systems whose right sides have contiguous rows: blocks of rows, each updated by one product."""

from __future__ import annotations

from autojit.codegen.cpu.structured.matrices import OUTER, SIDE, MatrixKernel, Place
from autojit.codegen.function_text import Operand
from autojit.core.sizes import is_symbolic


class SubstitutingKernel(MatrixKernel):
    """A kernel that solves triangular systems."""

    def solve_triangle(
        self, n: Operand, triangle: Place, x: Place, columns: Operand, *, is_upper: bool, is_unit: bool
    ) -> None:
        """Solve ``triangle x = -x`` in place; ``n`` rows, whole blocks where that is a name."""
        whole = n if isinstance(n, str) else n // SIDE * SIDE
        base = self.sub(n, whole) if is_upper else "0"  # rows that make no whole block come last
        system = _System(self, triangle, x, columns, is_upper, is_unit)
        with self.loop(0, whole, OUTER, stem="outer") as done:
            if is_upper:
                high = self.sub(n, done)
                low = self.most(self.sub(high, OUTER), base)
                system.subtract(low, self.sub(high, low), high, n)
            else:
                low, high = done, self.least(self.add(done, OUTER), whole)
                system.subtract(low, self.sub(high, low), 0, low)
            system.blocks(low, high)
        if isinstance(n, str):
            return
        rest = 1 if is_symbolic(n) else n % SIDE
        if not rest:
            return
        with self.loop(0, self.sub(n, whole), rest, stem="rest") as k:
            if is_upper:
                stop = self.sub(base, k)
                system.block(self.sub(stop, rest), rest, stop, n)
            else:
                first = self.add(whole, k)
                system.block(first, rest, 0, first)


class _System:
    """A system of a kernel, of which some rows are solved for."""

    def __init__(
        self, f: MatrixKernel, triangle: Place, x: Place, columns: Operand, is_upper: bool, is_unit: bool
    ) -> None:
        self.f, self.triangle, self.x, self.columns = f, triangle, x, columns
        self.is_upper, self.is_unit = is_upper, is_unit

    def blocks(self, low: Operand, high: Operand) -> None:
        """Solve for rows in whole blocks, from which all that is known outside is subtracted."""
        f = self.f
        with f.loop(0, f.quotient(f.sub(high, low), SIDE), stem="block") as k:
            if self.is_upper:
                stop = f.sub(high, f.mul(k, SIDE))
                self.block(f.sub(stop, SIDE), SIDE, stop, high)
            else:
                first = f.add(low, f.mul(k, SIDE))
                self.block(first, SIDE, low, first)

    def block(self, first: Operand, rows: int, since: Operand, until: Operand) -> None:
        """Solve for a few rows, where those between ``since`` and ``until`` are not subtracted yet."""
        f = self.f
        self.subtract(first, rows, since, until)
        down, across = self.triangle[1:]
        if self.is_upper:
            last = f.add(first, rows - 1)
            turned: Place = f.number_at(self.triangle, last, last), f.sub(0, down), f.sub(0, across)
            lines: Place = f.number_at(self.x, last, 0), f.sub(0, self.x[1]), 1
        else:
            turned = f.number_at(self.triangle, first, first), down, across
            lines = f.moved(self.x, first, 0)
        f.substitute(rows, turned, lines, self.columns, is_unit=self.is_unit)

    def subtract(self, first: Operand, rows: Operand, since: Operand, until: Operand) -> None:
        """What the known rows between two have to do with some."""
        f = self.f
        with f.when(f.test("slt", since, until)):
            extents = rows, self.columns, f.sub(until, since)
            a, b, c = f.moved(self.triangle, first, since), f.moved(self.x, since, 0), f.moved(self.x, first, 0)
            f.add_product(extents, a, b, c)
