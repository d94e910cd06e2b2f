"""Copying blocks of bfloat16 as pairs: two steps of k side by side in 32 bits, the operand of one dot product.

Panels of B and copied blocks of A are as in `packing`, with pairs for elements. A row of A has its pairs side by side
and is copied as it is. Where rows follow each other along k, two of them are interleaved: those of B as it is usually
stored, those of a transposed A. An odd last step gets a zero for a partner, in A and in B: whatever is next to it in
memory could be infinite.
"""

from __future__ import annotations

from typing import Protocol

from autojit.codegen.cpu.products.packing import transpose_columns
from autojit.codegen.cpu.products.tiles import TileSet
from autojit.codegen.cpu.vector_text import Vector, VectorText
from autojit.codegen.function_text import Operand
from autojit.codegen.module_text import Signature
from autojit.core.dtypes import bfloat16


def count_pairs(text: VectorText, depth: str) -> str:
    """Pairs of so many steps."""
    return text.quotient(text.add(depth, 1), 2)


def write_pack_pairs(tiles: TileSet, text: VectorText) -> None:
    """What `packing.pack_panels_signature` names, for pairs; ``k`` counts steps."""
    size = bfloat16.size_bytes
    text.line(f"%pairs = lshr i64 {text.add('%k', 1)}, 1")
    text.line(f"%column_bytes = mul nsw i64 %pairs, {tiles.dtype.size_bytes}")
    rows_contiguous = text.test("eq", "%csb", size)
    with text.when(rows_contiguous):
        _Interleaving(text, tiles, "%b", "%rsb").panels()
    text.return_when(rows_contiguous)
    columns_contiguous = text.test("eq", "%rsb", size)
    with text.when(columns_contiguous):
        transpose_columns(text, tiles)
    text.return_when(columns_contiguous)
    element, word = tiles.dtype.size_bytes, tiles.panel * tiles.dtype.size_bytes
    with text.loop(0, "%columns") as column:
        source = text.at("%b", text.mul(column, "%csb"))
        first = text.binary("and", column, -tiles.panel)
        within = text.binary("and", column, tiles.panel - 1)
        panel = text.at("%packed", text.mul(first, "%column_bytes"))
        _copy_line(text, source, "%rsb", text.at(panel, text.mul(within, element)), word)


def copy_pairs_signature(tiles: TileSet) -> Signature:
    """What `write_copy_pairs` writes: strides in bytes.

    The lines of the target are ``line_stride`` apart and hold pairs: those of a row, if ``csa`` says that its elements
    are contiguous, else one pair of every row.
    """
    parameters = "i64 rows, i64 k, ptr a, i64 rsa, i64 csa, ptr target, i64 line_stride"
    return Signature(f"aj_copy_pairs_{tiles.operand.short}", parameters)


def write_copy_pairs(tiles: TileSet, text: VectorText) -> None:
    """What the function does."""
    size = bfloat16.size_bytes
    rows_contiguous = text.test("eq", "%csa", size)
    with text.when(rows_contiguous):
        length = text.mul("%k", size)
        missing = text.mul(text.binary("and", "%k", 1), size)
        with text.loop(0, "%rows") as row:
            target = text.at("%target", text.mul(row, "%line_stride"))
            text.copy_bytes(target, text.at("%a", text.mul(row, "%rsa")), length)
            text.fill_bytes(text.at(target, length), 0, missing)
    text.return_when(rows_contiguous)
    columns_contiguous = text.test("eq", "%rsa", size)
    with text.when(columns_contiguous):
        _Interleaving(text, tiles, "%a", "%csa").lines()
    text.return_when(columns_contiguous)
    with text.loop(0, "%rows") as row:
        source, target = (
            text.at(x, text.mul(row, s)) for x, s in (("%a", "%rsa"), ("%target", tiles.dtype.size_bytes))
        )
        _copy_line(text, source, "%csa", target, "%line_stride")


class PairWriter(Protocol):
    """Writes the code for one pair, whose second step may be missing."""

    def __call__(self, number: str, *, is_whole: bool) -> None:
        """``number`` counts pairs."""


def _copy_line(text: VectorText, source: str, stride: str, target: str, step: Operand) -> None:
    """The pairs of one row of A or column of B, element by element."""

    def pair(number: str, *, is_whole: bool) -> None:
        low = text.at(source, text.mul(text.mul(number, 2), stride))
        place = text.at(target, text.mul(number, step))
        text.store("i16", text.load("i16", low), place)
        high = text.load("i16", text.at(low, stride)) if is_whole else "0"
        text.store("i16", high, text.at(place, bfloat16.size_bytes))

    _every_pair(text, pair)


def _every_pair(text: VectorText, write: PairWriter) -> None:
    """Write what is done for each pair of ``%k`` steps."""
    whole = text.quotient("%k", 2)
    with text.loop(0, whole) as number:
        write(number, is_whole=True)
    with text.when(text.test("ne", text.binary("and", "%k", 1), 0)):
        write(whole, is_whole=False)


class _Interleaving:
    """Pairs from rows along k that are contiguous and ``stride`` bytes apart."""

    def __init__(self, text: VectorText, tiles: TileSet, source: str, stride: str) -> None:
        self.text, self.tiles, self.source, self.stride = text, tiles, source, stride
        self.pairs = tiles.widest
        self.halves = Vector(bfloat16, self.pairs.lanes)

    def panels(self) -> None:
        """Panels of ``%columns``, as in `packing`."""
        text, panel = self.text, self.tiles.panel
        whole = text.binary("and", "%columns", -panel)
        rest = text.sub("%columns", whole)
        firsts = range(0, panel, self.pairs.lanes)
        masks = [text.mask_below(self.halves, rest, first) for first in firsts]

        def pair(number: str, *, is_whole: bool) -> None:
            rows = self._rows(number, is_whole)
            line = text.at("%packed", text.mul(number, panel * self.pairs.dtype.size_bytes))
            with text.loop(0, whole, panel) as column:
                for first in firsts:
                    self._put(rows, text.add(column, first), text.at(line, text.mul(column, "%column_bytes")), first)
            with text.when(text.test("sgt", rest, 0)):
                for first, mask in zip(firsts, masks, strict=True):
                    self._put(
                        rows, text.add(whole, first), text.at(line, text.mul(whole, "%column_bytes")), first, mask
                    )

        _every_pair(text, pair)

    def lines(self) -> None:
        """A line for each pair, of ``%rows``."""
        text, lanes = self.text, self.pairs.lanes
        whole = text.binary("and", "%rows", -lanes)
        rest = text.sub("%rows", whole)
        mask = text.mask_below(self.halves, rest)

        def pair(number: str, *, is_whole: bool) -> None:
            steps = self._rows(number, is_whole)
            line = text.at("%target", text.mul(number, "%line_stride"))
            size = self.pairs.dtype.size_bytes
            with text.loop(0, whole, lanes) as row:
                self._put(steps, row, text.at(line, text.mul(row, size)), 0)
            with text.when(text.test("sgt", rest, 0)):
                self._put(steps, whole, text.at(line, text.mul(whole, size)), 0, mask)

        _every_pair(text, pair)

    def _rows(self, number: str, is_whole: bool) -> list[str]:
        """Addresses of the rows of a pair."""
        low = self.text.at(self.source, self.text.mul(self.text.mul(number, 2), self.stride))
        return [low, self.text.at(low, self.stride)] if is_whole else [low]

    def _put(self, rows: list[str], first: str, line: str, skipped: int, mask: str = "") -> None:
        """A vector of pairs: elements from ``first`` on, ``skipped`` pairs behind ``line``."""
        text, halves = self.text, self.halves
        places = [text.at(row, text.mul(first, bfloat16.size_bytes)) for row in rows]
        loads = [text.masked_load(halves, p, mask) if mask else text.load_vector(halves, p) for p in places]
        low, high = (*loads, "zeroinitializer")[:2]
        lanes = halves.lanes
        pairs = text.shuffle(halves, low, high, [lane for k in range(lanes) for lane in (k, k + lanes)])
        wide = Vector(bfloat16, 2 * lanes)
        text.store_vector(wide, pairs, text.at(line, skipped * self.pairs.dtype.size_bytes))
