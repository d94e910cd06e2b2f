"""Where the tiles of a block are in their images: tables of offsets, and reading all tiles of one image."""

from __future__ import annotations

from collections.abc import Sequence

from autojit.codegen.cpu.convolutions.blocked import PACK
from autojit.codegen.cpu.convolutions.filtered_parts import (
    Stack,
    gather_signature,
    offsets_signature,
    write_offsets,
)
from autojit.codegen.cpu.convolutions.filtered_plan import Blocks
from autojit.codegen.cpu.convolutions.movers import Lanes
from autojit.codegen.cpu.convolutions.packing import divide, offset
from autojit.codegen.cpu.vector_text import VectorModule, VectorText
from autojit.codegen.function_text import Operand
from autojit.core.dtypes import DType
from autojit.core.records import record
from autojit.core.types import Shape


@record
class Span:
    """The row of an image that the first tile of a block begins at, and from and to which row there is something."""

    start: str
    low: str
    high: str


@record
class Places:
    """Tiles of one kind: of what is seen, or of the places.

    Args:
        name: of their functions.
        lanes: channels of a block.
        extents: of an image.
        tile: of a tile.
        step: from a tile to the next.
        padding: zeros before the image.
        blocks: how tiles are cut.
        operand: the dtype of the images.
    """

    name: str
    lanes: Lanes
    extents: Shape
    tile: tuple[int, int]
    step: tuple[int, int]
    padding: tuple[int, ...]
    blocks: Blocks
    operand: DType

    @property
    def plane(self) -> int:
        return self.extents[0] * self.extents[1]

    @property
    def tile_bytes(self) -> int:
        """Of the table of one tile."""
        return 8 * self.tile[0] * self.tile[1]

    @property
    def table_bytes(self) -> int:
        return self.blocks.of_image * self.tile_bytes

    @property
    def block_bytes(self) -> int:
        """Room for the rows that the tiles of one image have: what is outside, and whole squares."""
        rows = min(self.extents[0], (self.blocks.rows - 1) * self.step[0] + self.tile[0])
        return (1 + rows * self.extents[1] + self.lanes.lanes) * self.lanes.size_bytes

    def write(self, module: VectorModule) -> None:
        """Add what makes the table of a tile."""
        write_offsets(module, f"{self.name}_offsets", self.tile, self.lanes.size_bytes)

    def span(self, text: VectorText, first_row: str, rows: str) -> Span:
        """Of some rows of tiles."""
        start = text.sub(text.mul(first_row, self.step[0]), self.padding[0])
        stop = text.add(text.add(start, text.mul(text.sub(rows, 1), self.step[0])), self.tile[0])
        low = text.least(text.most(start, 0), self.extents[0])
        return Span(start, low, text.most(text.least(stop, self.extents[0]), low))

    def count(self, text: VectorText, span: Span) -> str:
        """Elements of a span."""
        return text.mul(text.sub(span.high, span.low), self.extents[1])

    def tables(self, text: VectorText, rows: str, span: Span, table: str) -> None:
        """The offsets of all tiles of an image."""
        with text.loop(0, rows) as i, text.loop(0, self.blocks.columns) as j:
            tile = offset(text, [(i, self.blocks.columns), (j, 1)])
            row = text.add(span.start, text.mul(i, self.step[0]))
            column = text.sub(text.mul(j, self.step[1]), self.padding[1])
            to = text.at(table, text.mul(tile, self.tile_bytes))
            rows_at = row, column, span.low, span.high, self.extents[1]
            text.call(offsets_signature(f"{self.name}_offsets"), *rows_at, to)

    def planes(self, text: VectorText, base: str, channel: Sequence[tuple[Operand, int]], span: Span) -> str:
        """Where the rows of a span begin in a plane: (number, of so many planes)."""
        terms = [(number, planes * self.plane) for number, planes in channel]
        start = offset(text, [*terms, (span.low, self.extents[1])])
        return text.at(base, text.mul(start, self.operand.size_bytes))

    def read(
        self, text: VectorText, source: tuple[str, str, Span], tiles: str, where: tuple[str, str, str], stack: Stack
    ) -> None:
        """Transform all tiles of an image.

        Args:
            source: planes of channels, how many, the span.
            tiles: how many.
            where: the table, a block whose first vector is zero, the first tile's row of the stack.
            stack: what they are transformed to.
        """
        planes, count, span = source
        table, block, row = where
        size, plane_bytes = self.lanes.dtype.size_bytes, self.plane * self.operand.size_bytes
        places = self.count(text, span)
        with text.loop(0, count, self.lanes.lanes) as lane:
            first = text.at(planes, text.mul(lane, plane_bytes))
            last = text.sub(text.sub(count, lane), 1)
            text.call(PACK, first, plane_bytes, last, places, text.at(block, self.lanes.size_bytes))
            to = text.at(row, text.mul(lane, size))
            moved = block, 0, table, self.tile_bytes, to, stack.row_bytes, stack.matrix_bytes
            text.call(gather_signature(f"gather_{self.name}"), *moved, tiles)


@record
class BlockOfTiles:
    """What a kernel knows of one block as it runs: its images, its rows of tiles, its tiles."""

    first_image: str
    images: str
    first_row: str
    rows: str
    of_image: str

    @classmethod
    def numbered(cls, text: VectorText, number: str, blocks: Blocks, images: int) -> BlockOfTiles:
        some, band = divide(text, number, blocks.bands)
        first_image, first_row = text.mul(some, blocks.images), text.mul(band, blocks.rows)
        here = text.least(text.sub(images, first_image), blocks.images)
        rows = text.least(text.sub(blocks.all_rows, first_row), blocks.rows)
        return cls(first_image, here, first_row, rows, text.mul(rows, blocks.columns))
