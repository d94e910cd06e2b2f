"""Dot products of several rows at a time, with explicit vectors.

LLVM sums each row across the lanes of its own vector, a dozen instructions a row. Of several rows the vectors are
added up pair by pair, each step halving the lanes of a row and doubling the rows in a vector, so that one vector holds
the sums of all rows in the end: three instructions a row. In which order a row is summed depends on its length alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from autojit.codegen.cpu.chunks import exceeds_block
from autojit.codegen.cpu.loops.folds import FoldPrinter
from autojit.codegen.cpu.vector_text import Vector, Vectors
from autojit.codegen.walk import Walk
from autojit.core.dtypes import float32, float64
from autojit.core.sizes import is_symbolic
from autojit.schedule.expressions import Applied, Load
from autojit.schedule.loops import RowReduction

VECTOR_BYTES = 32
"""Of 256 bits. Rows from L2 are no faster with vectors of 512 on a Zen 4 core, and short rows fill fewer of them."""


LANE_BYTES = 16
"""Shuffles within as many bytes are one instruction."""

_Sums = tuple[str, list[int]]


class DotPrinter(FoldPrinter, Vectors):
    """A printer that knows sums of products of neighbouring elements."""

    def factors_of(self, reduction: RowReduction) -> list[Load] | None:
        """The one or two loads along the row that a reduction sums the products of; None: it does something else."""
        expr = reduction.expr
        if self.is_checked or reduction.op.name != "sum" or expr.dtype not in (float32, float64):
            return None
        if len(self.walk.inner) != 1 or exceeds_block(self.walk.inner_count):
            return None
        factors = expr.args if isinstance(expr, Applied) and expr.op.name == "mul" else (expr,)
        found = [f for f in factors if isinstance(f, Load) and f.dtype is expr.dtype and _is_dense(f, self.walk)]
        return found if len(found) == len(factors) else None

    def print_dots(self, factors: Sequence[Load], starts: Sequence[Sequence[str]]) -> list[tuple[Vector, str]]:
        """The sums of rows, a power of two of them, in vectors.

        Args:
            starts: by row, the address of the first element of each factor.
        """
        dtype = factors[0].dtype
        vector = Vector(dtype, VECTOR_BYTES // dtype.size_bytes)
        sums = [self.local(vector.text, align=VECTOR_BYTES) for _ in starts]
        for total in sums:
            self.line(f"store {vector.text} zeroinitializer, ptr {total}")
        (variable,) = self.walk.inner
        count = self.number(variable.extent)
        whole = self.mul(self.quotient(count, vector.lanes), vector.lanes)
        with self.loop(0, whole, vector.lanes, stem="dot") as j:
            self._add_products(vector, starts, sums, j, None)
        if is_symbolic(variable.extent) or variable.extent % vector.lanes:
            mask = self.mask_below(vector, self.sub(count, whole))
            self._add_products(vector, starts, sums, whole, mask)
        return self._across(vector, [self.value(f"load {vector.text}, ptr {total}") for total in sums])

    def _add_products(
        self, vector: Vector, starts: Sequence[Sequence[str]], sums: Sequence[str], place: str, mask: str | None
    ) -> None:
        """One vector of each row; ``mask``: which lanes there are."""
        known: dict[str, str] = {}
        for row, total in zip(starts, sums, strict=True):
            product: str | None = None
            for start in row:
                if start not in known:
                    at = self.element(start, vector.element, place)
                    known[start] = self.load_vector(vector, at) if mask is None else self.masked_load(vector, at, mask)
                found = known[start]
                product = found if product is None else self.value(f"fmul contract {vector.text} {product}, {found}")
            before = self.value(f"load {vector.text}, ptr {total}")
            self.line(
                f"store {vector.text} {self.value(f'fadd contract {vector.text} {before}, {product}')}, ptr {total}"
            )

    def _across(self, vector: Vector, rows: Sequence[str]) -> list[tuple[Vector, str]]:
        """The sums of the lanes of each row, in vectors of as many: each upper half of lanes joins the lower half."""
        found = [(total, [k]) for k, total in enumerate(rows)]  # and the rows whose lanes are in each
        width = vector.lanes  # lanes of a row
        while width > 1:
            pairs = zip(found[::2], found[1::2], strict=True) if len(found) > 1 else [(found[0], None)]
            found = [self._halved(vector, a, b, width) for a, b in pairs]
            width //= 2
            vector = Vector(vector.dtype, len(found[0][1]) * width)
        return [(vector, self._in_order(vector, total, order)) for total, order in found]

    def _halved(self, vector: Vector, a: _Sums, b: _Sums | None, width: int) -> _Sums:
        """One vector of the rows of one or two, with half as many lanes of each."""
        # Where a row is within 128 bits, pairs are taken within 128 bits: crossing them takes another instruction.
        block = max(width, LANE_BYTES // vector.dtype.size_bytes)
        lanes: list[int] = []
        order: list[int] = []
        for start in range(0, vector.lanes, block):
            for rows, skip in ((a[1], 0), ([] if b is None else b[1], vector.lanes)):
                for lane in range(start, min(start + block, len(rows) * width), width):
                    order.append(rows[lane // width])
                    lanes += range(skip + lane, skip + lane + width // 2)
        other = "poison" if b is None else b[0]
        lower = self.shuffle(vector, a[0], other, lanes)
        upper = self.shuffle(vector, a[0], other, [lane + width // 2 for lane in lanes])
        return self.value(f"fadd <{len(lanes)} x {vector.element}> {lower}, {upper}"), order

    def _in_order(self, vector: Vector, sums: str, order: Sequence[int]) -> str:
        places = sorted(range(len(order)), key=order.__getitem__)
        return sums if places == list(range(len(order))) else self.shuffle(vector, sums, "poison", places)


def _is_dense(load: Load, walk: Walk) -> bool:
    """Whether neighbours of a row are neighbours in memory."""
    (variable,) = walk.inner
    (position,) = load.positions
    return dict(position.terms).get(variable) == 1 and variable not in position.divided_variables()
