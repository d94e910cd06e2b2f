"""A panel of Gaussian elimination: a few columns, in memory where each is contiguous.

What is not eliminated yet is negated, so a multiplier is the quotient of two negated elements, and a row of ``U`` is
negated when its step comes. The largest element of a column is the first of those with the greatest bits of their
absolute values, so that NaN is not left behind.
"""

from __future__ import annotations

from autojit.codegen.cpu.vector_text import Vector, VectorText
from autojit.codegen.module_text import Signature
from autojit.codegen.scalar import literal

TINY = {4: 2.0**-100, 8: 2.0**-900}  # smaller pivots are scaled up, lest their reciprocals overflow
SCALE = {4: 2.0**60, 8: 2.0**200}


def panel_signature(width: int, exchanges: bool) -> Signature:
    """What `write_panel` writes: ``stride`` and ``rows`` count elements of a column; ``stride`` leaves a vector's room.

    ``searched`` is how many rows may be exchanged, ``columns`` how many columns have a step. ``taken`` gets the row
    that is exchanged with each step's.
    """
    return Signature(
        f"panel_{width}{'_exchanged' * exchanges}",
        "ptr panel, i64 stride, i64 rows, i64 searched, i64 columns, ptr taken",
    )


def write_panel(vector: Vector, width: int, exchanges: bool, fused: bool, f: VectorText) -> None:
    """Eliminate the columns one after the other, those behind with them."""
    panel = _Panel(f, vector, width, fused)
    for k in range(width):
        if exchanges:
            panel.exchange(k, panel.largest(k))
        panel.eliminate(k, keeps_zeros=exchanges)


class _Panel:
    def __init__(self, f: VectorText, vector: Vector, width: int, fused: bool) -> None:
        self.f, self.vector, self.fused = f, vector, fused
        self.element, self.size = vector.element, vector.dtype.size_bytes
        self.columns = [f.element("%panel", self.element, f.mul("%stride", k)) for k in range(width)]

    def at(self, column: int, row: str | int) -> str:
        return self.f.element(self.columns[column], self.element, row)

    def largest(self, k: int) -> str:
        """The row of the largest element of a column, from its step on; the step's where the column has none."""
        f, v, bits = self.f, self.vector, f"i{8 * self.size}"
        kind = f"<{v.lanes} x {bits}>"
        lanes = f"<{', '.join(f'{bits} {lane}' for lane in range(v.lanes))}>"
        best, where = f.local(kind), f.local(kind)
        f.store(kind, f.splat("-1", bits, v.lanes), best)
        f.store(kind, f.splat("0", bits, v.lanes), where)

        def narrow(number: str) -> str:
            return number if bits == "i64" else f.convert("trunc", number, "i64", bits)

        stop = f.splat(narrow("%searched"), bits, v.lanes)
        with f.loop(k, "%searched", v.lanes) as row:
            x = f.value(f"call {v.text} @llvm.fabs.{v.suffix}({v.text} {f.load_vector(v, self.at(k, row))})")
            size = f.value(f"bitcast {v.text} {x} to {kind}")
            numbers = f.binary("add", f.splat(narrow(row), bits, v.lanes), lanes, kind)
            known = f.load(kind, best)
            wins = f.binary("and", f.test("sgt", size, known, kind), f.test("slt", numbers, stop, kind), v.mask)
            f.store(kind, f.value(f"select {v.mask} {wins}, {kind} {size}, {kind} {known}"), best)
            before = f.load(kind, where)
            f.store(kind, f.value(f"select {v.mask} {wins}, {kind} {numbers}, {kind} {before}"), where)
        found, numbers = f.load(kind, best), f.load(kind, where)
        suffix = f"v{v.lanes}{bits}"
        most = f.value(f"call {bits} @llvm.vector.reduce.smax.{suffix}({kind} {found})")
        is_most = f.test("eq", found, f.splat(most, bits, v.lanes), kind)
        rows = f.value(f"select {v.mask} {is_most}, {kind} {numbers}, {kind} {f.splat('-1', bits, v.lanes)}")
        first = f.value(f"call {bits} @llvm.vector.reduce.umin.{suffix}({kind} {rows})")
        is_there = f.both(f.test("sge", most, 0, bits), f.test("slt", k, "%columns"))
        return f.choose(is_there, first if bits == "i64" else f.convert("zext", first, bits), k)

    def exchange(self, k: int, row: str) -> None:
        f = self.f
        f.store("i64", row, f.element("%taken", "i64", k))
        for column in range(len(self.columns)):
            own, other = self.at(column, k), self.at(column, row)
            mine, its = f.load(self.element, own), f.load(self.element, other)
            f.store(self.element, its, own)
            f.store(self.element, mine, other)

    def eliminate(self, k: int, *, keeps_zeros: bool) -> None:
        f, v, element = self.f, self.vector, self.element
        pivot = f.load(element, self.at(k, k))
        scale, inverse = self._scaled_inverse(pivot, keeps_zeros)
        row = []
        for column in range(k, len(self.columns)):
            found = f.value(f"fneg {element} {f.load(element, self.at(column, k))}")
            f.store(element, found, self.at(column, k))
            row.append(f.splat(found, element, v.lanes))
        factors = f.splat(scale, element, v.lanes), f.splat(inverse, element, v.lanes)
        with f.loop(k + 1, "%rows", v.lanes) as i:
            place = self.at(k, i)
            multiplier = f.load_vector(v, place)
            for factor in factors:
                multiplier = f.binary("fmul", multiplier, factor, v.text)
            f.store_vector(v, multiplier, place)
            for column, of_row in enumerate(row[1:], start=k + 1):
                target = self.at(column, i)
                left = f.multiply_add(v, of_row, multiplier, f.load_vector(v, target), fused=self.fused)
                f.store_vector(v, left, target)

    def _scaled_inverse(self, pivot: str, keeps_zeros: bool) -> tuple[str, str]:
        """What a column is multiplied by, one after the other; a column of zeros stays where that is asked."""
        f, element = self.f, self.element
        size = f.value(f"call {element} @llvm.fabs.{self.vector.dtype.short}({element} {pivot})")
        is_tiny = f.value(f"fcmp olt {element} {size}, {literal(TINY[self.size], self.vector.dtype)}")
        scale = f.value(f"select i1 {is_tiny}, {element} {literal(SCALE[self.size], self.vector.dtype)}, {element} 1.0")
        inverse = f.value(f"fdiv {element} 1.0, {f.binary('fmul', pivot, scale, element)}")
        if keeps_zeros:
            is_zero = f.value(f"fcmp oeq {element} {pivot}, 0.0")
            inverse = f.value(f"select i1 {is_zero}, {element} 1.0, {element} {inverse}")
        return scale, inverse
