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
from typing import ClassVar

from autojit.codegen.cuda.grid_function import CudaKernel
from autojit.codegen.cuda.product_fragments import Fragments, Places
from autojit.codegen.cuda.product_shelves import Reader, Shelf
from autojit.codegen.cuda.product_tiles import COLUMNS, LANES
from autojit.codegen.function_text import Operand
from autojit.codegen.scalar import Scalar, is_half, literal, register_type
from autojit.core.dtypes import DType, float32, uint32

LEAST_EXPONENT, GREATEST_EXPONENT = -100, 62
"""Numbers that are split: below, the low part has too few bits for float32; of larger ones, a part may overflow."""

FLOAT_BIAS, FLOAT_DIGITS = 127, 23
SPLIT_DIGITS = 10
"""Behind the point of what a tensor core reads of float32."""

Totals = list[str]
"""The slots of a lane's elements, fragment by fragment."""

Parts = tuple[Operand, Operand]
"""Where the parts of both operands that are multiplied begin on their shelves."""


class Steps(ABC):
    """A way to multiply.

    Args:
        kernel: that is printed.
        a, b: where the parts of the operands are.
    """

    looks: ClassVar[bool] = False
    """Whether it has to see all elements before it multiplies: see `SplitSteps`."""
    begin: int = 0
    """The depth of the parts from which on they are multiplied, as deep as the tile."""
    skipped: int = 0
    """Fragments of a warp's columns in front of those that are multiplied."""

    def __init__(self, kernel: CudaKernel, dtype: DType, places: Places, a: Shelf, b: Shelf) -> None:
        self.kernel, self.dtype, self.places, self.a, self.b = kernel, dtype, places, a, b
        self.total = float32 if is_half(dtype) else dtype
        self.tile = places.tile

    def before_meeting(self) -> None:  # noqa: B027 (nothing is the rule)
        """What a thread does when its copies have come, before it meets others."""

    @abstractmethod
    def multiply(self, parts: Parts, totals: Totals) -> None:
        """Add the product of two parts to the totals."""


class LaneSteps(Steps):
    """Every lane multiplies rows and columns of its own elements."""

    def multiply(self, parts: Parts, totals: Totals) -> None:
        kernel, tile = self.kernel, self.tile
        offsets = [(row, column + self.skipped * COLUMNS) for row, column in self.places.of_lane()]
        rows = sorted({row for row, _ in offsets})
        columns = sorted({column for _, column in offsets})
        is_usual = tile.fragment is LANES  # else unrolled its registers would be those of the kernel, for what is rare
        hint = None if is_usual else kernel.loop_hint('!"llvm.loop.unroll.disable"')
        with kernel.loop(self.begin, self.begin + tile.depth, stem="depth", attachment=hint) as depth:
            left = self._elements(self.a, parts[0], (self.places.row, depth), rows)
            right = self._elements(self.b, parts[1], (self.places.column, depth), columns)
            for slot, (row, column) in zip(totals, offsets, strict=True):
                kernel.put(slot, self._added(kernel.get(slot, self.total), left[row], right[column]))

    def _elements(
        self, shelf: Shelf, part: Operand, place: tuple[str, str], offsets: Sequence[int]
    ) -> dict[int, Scalar]:
        """Elements of lines that are ``offsets`` from the lane's, at one depth."""
        kernel, (line, depth) = self.kernel, place
        readers: dict[int, Reader] = {}
        found = {}
        for offset in offsets:
            near = offset % COLUMNS if shelf.is_deep else 0  # lines that are 8 apart are turned alike
            if near not in readers:
                own = kernel.offset(line, near)
                readers[near] = Reader(kernel, shelf, *((own, depth) if shelf.is_deep else (depth, own)))
            steps = (offset - near, 0) if shelf.is_deep else (0, offset)
            address = readers[near].address(part, *steps)
            found[offset] = Scalar(kernel.emit.load(address, self.dtype).text, self.total)
        return found

    def _added(self, total: Scalar, a: Scalar, b: Scalar) -> Scalar:
        emit = self.kernel.emit
        if self.total.kind == "float":
            return emit.fma(a, b, total)
        return emit.add(total, emit.mul(a, b))


class TensorSteps(Steps):
    """The warp's instruction multiplies, and adds to the totals itself."""

    def multiply(self, parts: Parts, totals: Totals) -> None:
        kernel = self.kernel
        sums = [kernel.get(slot, self.total).text for slot in totals]
        left, right = self._sides(parts)
        for depth in range(0, self.tile.depth, self.tile.fragment.depth):
            b = [self.operand(right.registers(y, depth)) for y in range(right.count)]
            for x in range(left.count):
                one = self.operand(left.registers(x, depth))
                for y, other in enumerate(b):
                    here = self._of_fragment(x, y)
                    sums[here] = self._product(one, other, sums[here])
        for slot, found in zip(totals, sums, strict=True):
            kernel.put(slot, Scalar(found, self.total))

    def operand(self, registers: list[str]) -> list[str]:
        """What the instruction takes of a fragment's registers."""
        return registers

    def _sides(self, parts: Parts) -> tuple[Fragments, Fragments]:
        places, (down, across), begin = self.places, self.tile.fragments, self.begin
        rows = self.tile.fragment.rows
        left = Fragments(self.kernel, places, self.a, parts[0], places.first_row, lines=rows, count=down, begin=begin)
        right = Fragments(
            self.kernel,
            places,
            self.b,
            parts[1],
            places.first_column,
            lines=COLUMNS,
            count=across,
            begin=begin,
            skipped=self.skipped,
        )
        return left, right

    def _of_fragment(self, x: int, y: int) -> slice:
        """Which totals are those of one fragment of the result."""
        count = self.tile.fragment.rows // 4
        place = x * self.tile.fragments[1] + y
        return slice(place * count, (place + 1) * count)

    def _product(self, a: Sequence[str], b: Sequence[str], sums: Sequence[str]) -> list[str]:
        fragment, kind = self.tile.fragment, register_type(self.total)
        taken = "i32" if fragment.operand == "float" else fragment.operand
        returned = f"{{ {', '.join([kind] * len(sums))} }}"
        arguments = [*(f"{taken} {x}" for x in (*a, *b)), *(f"{kind} {x}" for x in sums)]
        whole = self.kernel.value(f"call {returned} @llvm.nvvm.{fragment.intrinsic}({', '.join(arguments)})")
        return [self.kernel.value(f"extractvalue {returned} {whole}, {k}") for k in range(len(sums))]


class SingleSteps(TensorSteps):
    """float32 rounded to the 11 bits that a tensor core reads."""

    def operand(self, registers: list[str]) -> list[str]:
        return [self.kernel.value(f"call i32 @llvm.nvvm.f2tf32.rna(float {x})") for x in registers]


class SplitSteps(TensorSteps):
    """float32 in two parts of 11 bits; the smallest products are added first.

    A part of the contracted axis, 16 or 32 long, is summed up inside a tensor core and added to the totals by ordinary
    additions: tensor cores cut sums off, which must not grow with the axis.
    """

    looks: ClassVar[bool] = True
    met: str
    """Whether any thread of the block has brought an element that cannot be split."""

    def multiply(self, parts: Parts, totals: Totals) -> None:
        kernel = self.kernel
        with kernel.when(self.met):
            by_lanes = LaneSteps(kernel, self.dtype, self.places, self.a, self.b)
            by_lanes.begin, by_lanes.skipped = self.begin, self.skipped
            by_lanes.multiply(parts, totals)
        with kernel.otherwise():
            self._multiply(parts, totals)

    def _multiply(self, parts: Parts, totals: Totals) -> None:
        """Column of fragments by column, so that few sums are in registers besides the totals."""
        kernel, tile = self.kernel, self.tile
        left, right = self._sides(parts)
        depths = range(0, tile.depth, tile.fragment.depth)
        a = {(x, d): self._split(left.registers(x, d)) for d in depths for x in range(left.count)}
        for y in range(right.count):
            sums = {x: [literal(0.0, self.total)] * (tile.fragment.rows // 4) for x in range(left.count)}
            for depth in depths:
                other_high, other_low = self._split(right.registers(y, depth))
                for x in range(left.count):
                    high, low = a[x, depth]
                    for one, other in ((low, other_high), (high, other_low), (high, other_high)):
                        sums[x] = self._product(one, other, sums[x])
            for x, found in sums.items():
                for slot, text in zip(totals[self._of_fragment(x, y)], found, strict=True):
                    kernel.put(slot, kernel.emit.add(kernel.get(slot, self.total), Scalar(text, self.total)))

    def _split(self, registers: Sequence[str]) -> tuple[list[str], list[str]]:
        """High and low parts: ``high`` is rounded by whole-number arithmetic, which is as wide as the lanes are.

        ``low`` has at most 12 bits, of which a tensor core does not look at the last; to round there is to halve a tie.
        """
        kernel, high, low = self.kernel, list[str](), list[str]()
        last = 1 << FLOAT_DIGITS - SPLIT_DIGITS
        for register in registers:
            bits = kernel.convert("bitcast", register, "float", "i32")
            bits = kernel.binary("and", kernel.binary("add", bits, last // 2, "i32"), -last, "i32")
            rest = kernel.value(f"fsub float {register}, {kernel.convert('bitcast', bits, 'i32', 'float')}")
            high.append(bits)
            low.append(kernel.convert("bitcast", rest, "float", "i32"))
        return high, low

    def cannot_split(self, words: Sequence[str]) -> str:
        """Whether one of some numbers, given as their bits, is neither zero nor fit to be split.

        The largest magnitude is found as a number, which keeps NaN; the least one that is not 0 as bits without their
        sign, less one, which makes the most of 0.
        """
        kernel = self.kernel
        beyond, least = ((e + FLOAT_BIAS) << FLOAT_DIGITS for e in (GREATEST_EXPONENT, LEAST_EXPONENT))
        greatest, smallest = literal(0.0, float32), literal(-1, uint32)
        for word in words:
            number = kernel.convert("bitcast", word, "i32", "float")
            magnitude = kernel.value(f"call float @llvm.nvvm.fabs.f(float {number})")
            greatest = kernel.value(f"call float @llvm.maximum.f32(float {greatest}, float {magnitude})")
            below = kernel.binary("add", kernel.binary("shl", word, 1, "i32"), -1, "i32")
            smallest = kernel.value(f"call i32 @llvm.umin.i32(i32 {smallest}, i32 {below})")
        limit = kernel.convert("bitcast", beyond, "i32", "float")
        is_large = kernel.value(f"fcmp uge float {greatest}, {limit}")
        return kernel.either(is_large, kernel.test("ult", smallest, (least << 1) - 1, "i32"))
