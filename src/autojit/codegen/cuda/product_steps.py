"""What warps do with the parts of two operands in shared memory: every lane's elements of the result grow by a product.

`LaneSteps` multiplies and adds lane by lane, with one rounding each, for every dtype. `TensorSteps` asks the warp's
instruction. `SplitSteps` gives float32 by three products of tensor cores, which read 11 bits of each operand: with
``x = high + low``, each of 11 bits, ``x y`` is ``high high + high low + low high`` up to two units of float32's last
bit. What that does not hold for (infinities and NaN; numbers so small that ``low`` loses bits, or so large that a part
overflows where the whole does not) is met by no split: a block that finds such an element takes the lanes' way for it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import reduce
from typing import ClassVar

from autojit.codegen.cuda.grid_function import CudaKernel
from autojit.codegen.cuda.product_operands import Brought, Shelf
from autojit.codegen.cuda.product_tiles import COLUMNS, LANES, SPLIT, WARP, Fragment, Tile
from autojit.codegen.scalar import Scalar, is_half, literal, register_type
from autojit.core.dtypes import DType, float32, float64, uint32

LEAST_EXPONENT, GREATEST_EXPONENT = -100, 62
"""Numbers that are split: below, the low part has too few bits for float32; of larger ones, a part may overflow."""

FLOAT_BIAS, FLOAT_DIGITS = 127, 23

Totals = list[str]
"""The slots of a lane's elements, fragment by fragment."""


class Places:
    """Where in the block's tile a lane's elements are."""

    def __init__(self, kernel: CudaKernel, tile: Tile) -> None:
        self.tile = tile
        lane = kernel.remainder(kernel.thread, WARP)
        warp = kernel.quotient(kernel.thread, WARP)
        self.group = kernel.quotient(lane, 4)
        self.member = kernel.remainder(lane, 4)
        down = kernel.quotient(warp, tile.warps[1])
        across = kernel.remainder(warp, tile.warps[1])
        self.first_row = kernel.mul(down, tile.warp_rows)
        self.first_column = kernel.mul(across, tile.warp_columns)
        self.row = kernel.add(self.first_row, self.group)
        self.column = kernel.add(self.first_column, kernel.mul(self.member, 2))

    def of_lane(self) -> list[tuple[int, int]]:
        """How far a lane's elements are from its first one: (rows, columns), in the order of `Totals`."""
        down, across = self.tile.fragments
        height = self.tile.fragment.rows
        return [
            (x * height + row, y * COLUMNS + column)
            for x in range(down)
            for y in range(across)
            for row in range(0, height, 8)
            for column in range(2)
        ]


class Steps(ABC):
    """A way to multiply."""

    def __init__(self, kernel: CudaKernel, dtype: DType, places: Places, a: Shelf, b: Shelf) -> None:
        self.kernel, self.dtype, self.places, self.a, self.b = kernel, dtype, places, a, b
        self.total = float32 if is_half(dtype) else dtype
        self.tile = places.tile

    def store(self, brought: Brought) -> None:
        """Put what this lane brings into shared memory; the block waits for it before it multiplies."""
        kind = f"i{8 * self.dtype.size_bytes}"
        for address, bits in brought:
            self.kernel.store(kind, bits, address)

    @abstractmethod
    def multiply(self, totals: Totals) -> None:
        """Add the product of what is in shared memory to the totals."""


class LaneSteps(Steps):
    """Every lane multiplies rows and columns of its own elements."""

    def multiply(self, totals: Totals) -> None:
        kernel, tile = self.kernel, self.tile
        offsets = self.places.of_lane()
        rows = sorted({row for row, _ in offsets})
        columns = sorted({column for _, column in offsets})
        with kernel.loop(0, tile.depth, stem="depth") as depth:
            left = self._elements(self.a, self.places.row, depth, rows)
            right = self._elements(self.b, self.places.column, depth, columns)
            for slot, (row, column) in zip(totals, offsets, strict=True):
                kernel.put(slot, self._added(kernel.get(slot, self.total), left[row], right[column]))

    def _elements(self, shelf: Shelf, line: str, depth: str, offsets: Sequence[int]) -> dict[int, Scalar]:
        kernel = self.kernel
        at = kernel.add(kernel.mul(line, shelf.line_stride), kernel.mul(depth, shelf.depth_stride))
        first = kernel.address(shelf.base, self.dtype, at)
        found = {}
        for offset in offsets:
            address = kernel.address(first, self.dtype, offset * shelf.line_stride)
            found[offset] = Scalar(kernel.emit.load(address, self.dtype).text, self.total)
        return found

    def _added(self, total: Scalar, a: Scalar, b: Scalar) -> Scalar:
        emit = self.kernel.emit
        if self.total.kind == "float":
            return emit.fma(a, b, total)
        return emit.add(total, emit.mul(a, b))


class TensorSteps(Steps):
    """The warp's instruction multiplies; in float64 it adds to the totals itself, else its sums are added to them."""

    terms: ClassVar[tuple[tuple[int, int], ...]] = ((0, 0),)
    """Which parts of the operands are multiplied: by their numbers in `parts`."""

    def multiply(self, totals: Totals) -> None:
        kernel, fragment = self.kernel, self.tile.fragment
        count = fragment.rows // 4
        grows = self.total is float64
        zero = literal(0.0, self.total)
        sums = [kernel.get(slot, self.total).text if grows else zero for slot in totals]
        left, right = (self._first(shelf, line) for shelf, line in zip((self.a, self.b), self._lines(), strict=True))
        for depth in range(0, self.tile.depth, fragment.depth):
            a = [self._left(left, x * fragment.rows, depth) for x in range(self.tile.fragments[0])]
            b = [self._right(right, y * COLUMNS, depth) for y in range(self.tile.fragments[1])]
            for place in range(len(a) * len(b)):
                x, y = divmod(place, len(b))
                here = slice(place * count, (place + 1) * count)
                for p, q in self.terms:
                    sums[here] = self._product(a[x][p], b[y][q], sums[here])
        for slot, found in zip(totals, sums, strict=True):
            value = Scalar(found, self.total)
            kernel.put(slot, value if grows else kernel.emit.add(kernel.get(slot, self.total), value))

    def parts(self, register: str) -> tuple[str, ...]:
        """What is multiplied of a register of an operand."""
        return (register,)

    def _lines(self) -> tuple[str, str]:
        kernel, places = self.kernel, self.places
        return places.row, kernel.add(places.first_column, places.group)

    def _first(self, shelf: Shelf, line: str) -> str:
        depth = self.kernel.mul(self.places.member, self.tile.fragment.neighbours)
        at = self.kernel.add(self.kernel.mul(line, shelf.line_stride), self.kernel.mul(depth, shelf.depth_stride))
        return self.kernel.address(shelf.base, self.dtype, at)

    def _left(self, first: str, row: int, depth: int) -> list[list[str]]:
        """The registers of a fragment of the left operand, each in its parts."""
        half = 4 * self.tile.fragment.neighbours
        pairs = [(r, d) for d in range(0, self.tile.fragment.depth, half) for r in range(0, self.tile.fragment.rows, 8)]
        return self._registers(self.a, first, [(row + r, depth + d) for r, d in pairs])

    def _right(self, first: str, column: int, depth: int) -> list[list[str]]:
        """The registers of a fragment of the right operand, each in its parts."""
        half = 4 * self.tile.fragment.neighbours
        return self._registers(self.b, first, [(column, depth + d) for d in range(0, self.tile.fragment.depth, half)])

    def _registers(self, shelf: Shelf, first: str, offsets: Sequence[tuple[int, int]]) -> list[list[str]]:
        kernel, kind = self.kernel, self.tile.fragment.operand
        found = []
        for line, depth in offsets:
            at = line * shelf.line_stride + depth * shelf.depth_stride
            address = kernel.address(first, self.dtype, at)
            found.append(self.parts(kernel.load(kind, address, attributes=", align 4" if kind[0] == "<" else "")))
        return [list(part) for part in zip(*found, strict=True)]

    def _product(self, a: Sequence[str], b: Sequence[str], sums: Sequence[str]) -> list[str]:
        fragment, kind = self.tile.fragment, register_type(self.total)
        taken = "i32" if fragment is SPLIT else fragment.operand
        returned = f"{{ {', '.join([kind] * len(sums))} }}"
        arguments = [*(f"{taken} {x}" for x in (*a, *b)), *(f"{kind} {x}" for x in sums)]
        whole = self.kernel.value(f"call {returned} @llvm.nvvm.{fragment.intrinsic}({', '.join(arguments)})")
        return [self.kernel.value(f"extractvalue {returned} {whole}, {k}") for k in range(len(sums))]


class SplitSteps(TensorSteps):
    """float32 in two parts of 11 bits; the smallest products are added first."""

    terms: ClassVar[tuple[tuple[int, int], ...]] = ((1, 0), (0, 1), (0, 0))
    met: str
    """Whether a lane of this warp has brought an element that cannot be split."""
    words: str = ""
    """The same of every warp of the block, in shared memory; none for a single warp."""

    def parts(self, register: str) -> tuple[str, ...]:
        kernel = self.kernel
        high = kernel.value(f"call i32 @llvm.nvvm.f2tf32.rna(float {register})")
        rest = kernel.value(f"fsub float {register}, {kernel.convert('bitcast', high, 'i32', 'float')}")
        return high, kernel.value(f"call i32 @llvm.nvvm.f2tf32.rna(float {rest})")

    def store(self, brought: Brought) -> None:
        super().store(brought)
        kernel = self.kernel
        found = self._cannot_split([bits for _, bits in brought])
        self.met = kernel.value(f"call i1 @llvm.nvvm.vote.any.sync(i32 -1, i1 {found})")
        warps = self.tile.threads // WARP
        if warps == 1:
            return
        if not self.words:
            self.words = kernel.shared("i32", warps)
        with kernel.when(kernel.test("eq", kernel.remainder(kernel.thread, WARP), 0)):
            word = kernel.convert("zext", self.met, "i1", "i32")
            kernel.store("i32", word, kernel.element(self.words, "i32", kernel.quotient(kernel.thread, WARP)))

    def multiply(self, totals: Totals) -> None:
        kernel = self.kernel
        met = self.met
        if self.words:
            words = [
                kernel.load("i32", kernel.element(self.words, "i32", warp)) for warp in range(self.tile.threads // WARP)
            ]
            met = kernel.test("ne", reduce(lambda a, b: kernel.binary("or", a, b, "i32"), words), 0, "i32")
        with kernel.when(met):
            LaneSteps(kernel, self.dtype, self.places, self.a, self.b).multiply(totals)
        with kernel.otherwise():
            super().multiply(totals)

    def _cannot_split(self, bits: Sequence[str]) -> str:
        """Whether one of some numbers, given as their bits, is neither zero nor fit to be split."""
        kernel = self.kernel
        least, beyond = ((e + FLOAT_BIAS) << FLOAT_DIGITS + 1 for e in (LEAST_EXPONENT, GREATEST_EXPONENT))
        span = literal(beyond - least, uint32)
        found = "false"
        for word in bits:
            magnitude = kernel.binary("shl", word, 1, "i32")
            strays = kernel.test("uge", kernel.binary("sub", magnitude, least, "i32"), span, "i32")
            found = kernel.either(found, kernel.both(strays, kernel.test("ne", magnitude, 0, "i32")))
        return found


def steps_of(fragment: Fragment) -> type[Steps]:
    """The way to multiply that belongs to a tile's fragments."""
    if fragment is LANES:
        return LaneSteps
    return SplitSteps if fragment is SPLIT else TensorSteps
