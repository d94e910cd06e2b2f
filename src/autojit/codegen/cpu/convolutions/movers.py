"""Vectors of any dtype, and moving rows of an image to where it is packed: as they are, or two of them as pairs.

A *pair* is what two channels of bfloat16 have at a place, side by side in 32 bits: the operand of one dot product. The
last of an odd number of channels has zeros for a partner.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace

from autojit.codegen.cpu.vector_text import Vector, VectorText
from autojit.codegen.function_text import Operand
from autojit.codegen.scalar import memory_type, suffix
from autojit.core.dtypes import DType, bfloat16, float32
from autojit.core.records import record

MOST_UNROLLED = 4
"""Vectors of a row of known length that are written out; no measurement is recorded."""


@record
class Lanes(Vector):
    """``<lanes x element>`` of any real dtype.

    Args:
        of_pairs: elements that are multiplied are two bfloat16, and what is added up float32, as ``dtype`` says.
    """

    of_pairs: bool = False

    @property
    def element(self) -> str:
        return memory_type(self.dtype)

    @property
    def suffix(self) -> str:
        return f"v{self.lanes}{'i16' if self.dtype is bfloat16 else suffix(self.dtype)}"

    @property
    def zero(self) -> str:
        """The literal of one element."""
        return "0.0" if self.dtype.kind == "float" else "0"

    def multiply_add(self, text: VectorText, a: str, b: str, total: str) -> str:
        """``a * b + total``, fused where the machine has the instruction."""
        v = self.text
        if self.of_pairs:
            return text.add_dots(self, a, b, total)
        if self.dtype.kind == "float":
            return text.value(f"call {v} @llvm.fmuladd.{self.suffix}({v} {a}, {v} {b}, {v} {total})")
        return text.binary("add", total, text.binary("mul", a, b, v), v)

    def widened(self, text: VectorText, value: str, seen: Lanes) -> str:
        """A vector like this one of what was `seen`: of this dtype, or bfloat16, the upper half of a float32."""
        if seen.dtype is self.dtype:
            return value
        words = f"<{self.lanes} x i32>"
        bits = text.binary("shl", text.convert("zext", value, seen.text, words), "splat (i32 16)", words)
        return text.convert("bitcast", bits, words, self.text)

    def load_one(self, text: VectorText, address: str, operand: DType) -> str:
        """One element, likewise."""
        if operand is self.dtype:
            return text.load(self.element, address)
        bits = text.binary("shl", text.convert("zext", text.load("i16", address), "i16", "i32"), 16, "i32")
        return text.convert("bitcast", bits, "i32", self.element)

    def sum(self, text: VectorText, value: str) -> str:
        """The sum of all lanes, in pairs."""
        if self.dtype.kind == "float":
            return text.value(
                f"call reassoc {self.element} @llvm.vector.reduce.fadd.{self.suffix}({self.element} 0.0, "
                f"{self.text} {value})"
            )
        return text.value(f"call {self.element} @llvm.vector.reduce.add.{self.suffix}({self.text} {value})")

    def add(self, text: VectorText, a: str, b: str) -> str:
        """The sum of two elements."""
        return text.binary("fadd" if self.dtype.kind == "float" else "add", a, b, self.element)


def pieces(count: int, most: int) -> Iterator[tuple[int, int]]:
    """(first, elements) of pieces that cover ``count`` elements: powers of two up to ``most``, the last may overlap."""
    length = min(most, 1 << (count.bit_length() - 1))
    for first in range(0, count, length):
        yield min(first, count - length), length


class Mover(ABC):
    """Moves elements of a row of the image; `lanes` at a time where they are apart."""

    def __init__(self, text: VectorText, lanes: int, source_bytes: int, to_bytes: int) -> None:
        self.text, self.lanes = text, lanes
        self.source_bytes, self.to_bytes = source_bytes, to_bytes

    def source(self, row: str, place: Operand) -> str:
        """The address of an element of the image's row."""
        return self._at(row, place, self.source_bytes)

    def to(self, row: str, place: Operand) -> str:
        """The address of a packed element."""
        return self._at(row, place, self.to_bytes)

    def _at(self, row: str, place: Operand, size: int) -> str:
        return self.text.at(row, place * size if isinstance(place, int) else self.text.mul(place, size))

    @abstractmethod
    def row(self, to: str, source: str, count: Operand) -> None:
        """Elements side by side."""

    @abstractmethod
    def every_second(self, to: str, source: str, lanes: int) -> None:
        """So many elements, a power of two, of which one is left out between any two."""

    @abstractmethod
    def one(self, to: tuple[str, str], source: str) -> None:
        """One element, to a row and a place in it."""

    def _seconds(self, vector: Vector, source: str) -> str:
        """Every second element; nothing is read behind the last."""
        text, n = self.text, vector.lanes
        if n == 1:
            return text.load_vector(vector, source)
        ends = [text.load_vector(vector, self.source(source, place)) for place in (0, n - 1)]
        return text.shuffle(vector, ends[0], ends[1], [*range(0, n, 2), *range(n + 1, 2 * n, 2)])


class Elements(Mover):
    """Elements as they are."""

    def __init__(self, text: VectorText, lanes: Lanes) -> None:
        super().__init__(text, lanes.lanes, lanes.dtype.size_bytes, lanes.dtype.size_bytes)
        self.vector = lanes

    def row(self, to: str, source: str, count: Operand) -> None:
        size = count * self.to_bytes if isinstance(count, int) else self.text.mul(count, self.to_bytes)
        self.text.copy_bytes(to, source, size)

    def every_second(self, to: str, source: str, lanes: int) -> None:
        vector = replace(self.vector, lanes=lanes)
        self.text.store_vector(vector, self._seconds(vector, source), to)

    def one(self, to: tuple[str, str], source: str) -> None:
        value = self.text.load(self.vector.element, source)
        self.text.store(self.vector.element, value, self.to(*to))


class Pairs(Mover):
    """Pairs of a row of bfloat16 and the one ``apart`` elements behind it, if ``is_whole``."""

    def __init__(self, text: VectorText, apart: Operand, is_whole: str) -> None:
        super().__init__(text, 16, bfloat16.size_bytes, float32.size_bytes)
        self.apart, self.is_whole = apart, is_whole
        self.halves = Vector(bfloat16, self.lanes)
        self.partners = text.splat(is_whole, "i1", self.lanes)

    def row(self, to: str, source: str, count: Operand) -> None:
        text, lanes = self.text, self.lanes
        if isinstance(count, int):
            whole, rest = count // lanes * lanes, count % lanes
            bits = ", ".join(f"i1 {str(k < rest).lower()}" for k in range(lanes))
            if whole > MOST_UNROLLED * lanes:
                with text.loop(0, whole, lanes) as place:
                    self._vector(to, source, place, "")
            for number in range(0, 0 if whole > MOST_UNROLLED * lanes else whole, lanes):
                self._vector(to, source, number, "")
            if rest:
                self._vector(to, source, whole, f"<{bits}>")
            return
        whole_words = text.binary("and", count, -lanes)
        with text.loop(0, whole_words, lanes) as first:
            self._vector(to, source, first, "")
        self._vector(to, source, whole_words, text.mask_below(self.halves, text.sub(count, whole_words)))

    def _vector(self, to: str, source: str, first: Operand, mask: str) -> None:
        text, v = self.text, self.halves
        low = self.source(source, first)
        high = self.source(low, self.apart)
        seen = text.masked_load(v, low, mask) if mask else text.load_vector(v, low)
        both = text.value(f"and {v.mask} {mask}, {self.partners}") if mask else self.partners
        self._store(v, self.to(to, first), (seen, text.masked_load(v, high, both)), mask)

    def _store(self, halves: Vector, to: str, rows: tuple[str, str], mask: str) -> None:
        text, lanes, pairs = self.text, halves.lanes, Vector(float32, halves.lanes)
        mixed = text.shuffle(halves, *rows, [lane for k in range(lanes) for lane in (k, k + lanes)])
        value = text.convert("bitcast", mixed, Vector(bfloat16, 2 * lanes).text, pairs.text)
        if mask:
            text.masked_store(pairs, value, to, mask)
        else:
            text.store_vector(pairs, value, to)

    def every_second(self, to: str, source: str, lanes: int) -> None:
        text, v = self.text, Vector(bfloat16, lanes)
        low = self._seconds(v, source)
        high = self._seconds(v, text.choose(self.is_whole, self.source(source, self.apart), source, "ptr"))
        kept = text.value(f"select i1 {self.is_whole}, {v.text} {high}, {v.text} zeroinitializer")
        self._store(v, to, (low, kept), "")

    def one(self, to: tuple[str, str], source: str) -> None:
        text, size, place = self.text, bfloat16.size_bytes, self.to(*to)
        text.store("i16", text.load("i16", source), place)
        partner = text.choose(self.is_whole, self.source(source, self.apart), source, "ptr")
        text.store("i16", text.choose(self.is_whole, text.load("i16", partner), "0", "i16"), text.at(place, size))
