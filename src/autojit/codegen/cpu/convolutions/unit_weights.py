"""What a unit of a convolution keeps near for its tiles: weights in the order they are read, and several images.

A transposed convolution reads, for a phase of its result, every few taps of a weight, a channel apart: most of what a
cache line brings is for other phases, and weights that do not fit a core's caches are fetched again for each of them.
Then a unit copies its weights first: tile after tile of rows, phase after phase, for every channel and tap the rows
side by side. Places of several images share what is copied.
"""

from __future__ import annotations

from dataclasses import replace

from autojit.codegen.cpu.convolutions.layout import PACKED_BYTES, Layout
from autojit.codegen.cpu.vector_text import INTERNAL, VectorModule, VectorText
from autojit.codegen.module_text import Signature
from autojit.core.records import record

ORDER_WEIGHTS = Signature("order_weights", "ptr weight, i64 rows, ptr to")
"""Copy the weights of some rows."""

LEAST_BYTES = 512 << 10
"""Weights of a group that are copied: less stays in a second-level cache while all phases read it.

On a Skylake server core, a convolution and its derivative by the input: 256 to 512 channels, 16 images of 8 x 8,
3 x 3 / 2 (4.7 MB of weights) 36 ms without copies and 22 with them; 64 to 128 of 32 x 32, 4 x 4 / 2 (0.5 MB) 12 and 14.
"""

ORDERED, PACKED = 3.5, 1.5
"""Cycles to copy a weight, and to pack an element of an image; they only say how many images are taken together.

To the order of magnitude, from profiles of the same core.
"""

MOST_IMAGES = 8


@record
class UnitWeights:
    """The weights of a unit's rows as tiles of ``height`` rows read them.

    Args:
        layout: as the convolution has it.
        channels: that are added up.
        height: of a tile; a lower last one has room for as many.
        row: elements between rows of the weight.
        channel: elements between channels.
        size: bytes of an element.
    """

    layout: Layout
    channels: int
    height: int
    row: int
    channel: int
    size: int

    @classmethod
    def of(cls, layout: Layout, channels: int, height: int, strides: tuple[int, int], size: int) -> UnitWeights | None:
        """None where all phases find the weights in a core's caches, or taps are not apart."""
        row, channel = strides
        if layout.is_open or len(layout.phases) == 1 or channels * channel * size <= LEAST_BYTES:
            return None
        return cls(layout, channels, height, row, channel, size)

    @property
    def taps(self) -> int:
        """Of all phases."""
        return sum(len(phase.taps) for phase in self.layout.phases)

    @property
    def ordered(self) -> Layout:
        """The layout whose taps are numbered as they are copied."""
        phases = (
            replace(phase, taps=tuple((k * self.height, place) for k, (_, place) in enumerate(phase.taps)))
            for phase in self.layout.phases
        )
        return replace(self.layout, phases=tuple(phases))

    def before(self, number: int) -> int:
        """Elements of a tile before those of a phase."""
        return self.height * self.channels * sum(len(phase.taps) for phase in self.layout.phases[:number])

    def size_bytes(self, rows: int) -> int:
        """Of the copies of some rows, a multiple of the height."""
        return rows * self.channels * self.taps * self.size

    def copy(self, text: VectorText, weight: str, rows: tuple[str, str], to: str) -> str:
        """Copy the unit's rows; returns where row 0 would begin."""
        low, high = rows
        source = text.at(weight, text.mul(low, self.row * self.size))
        text.call(ORDER_WEIGHTS, source, text.sub(high, low), to)
        return text.at(to, text.mul(text.sub(0, low), self.size_bytes(1)))

    def write(self, module: VectorModule, element: str) -> None:
        """Add `ORDER_WEIGHTS`: channel by channel, since rows of a channel follow each other."""
        text, size = VectorText(module, ORDER_WEIGHTS, linkage="internal", attributes=INTERNAL), self.size
        with (
            text.loop(0, self.channels) as channel,
            text.loop(0, "%rows", self.height) as first,
            text.loop(first, text.least(text.add(first, self.height), "%rows")) as row,
        ):
            source = text.at("%weight", text.mul(channel, self.channel * size))
            source = text.at(source, text.mul(row, self.row * size))
            tile = text.at("%to", text.mul(first, self.size_bytes(1)))
            tile = text.at(tile, text.mul(text.sub(row, first), size))
            for number, phase in enumerate(self.layout.phases):
                step = len(phase.taps) * self.height * size
                target = text.at(text.at(tile, self.before(number) * size), text.mul(channel, step))
                for k, (tap, _) in enumerate(phase.taps):
                    value = text.load(element, text.at(source, tap * size))
                    text.store(element, value, text.at(target, k * self.height * size))
        text.finish()


def images_together(images: int, packed: int, weights: int, wanted: int, tiles: int, size: int) -> int:
    """How many images a unit takes: weights are then copied less often, and images packed more often.

    Args:
        images: how many there are.
        packed: elements of one that is packed.
        weights: of all rows.
        wanted: units.
        tiles: that rows can be cut into.
        size: bytes of an element.
    """
    found = []
    for together in (1, 2, 4, MOST_IMAGES):
        if together > max(1, images) or (together > 1 and together * packed * size > PACKED_BYTES):
            break
        units = -(-images // together)
        blocks = min(tiles, max(1, wanted // max(units, 1)))
        found.append((units * weights * ORDERED + blocks * images * packed * PACKED, together))
    return min(found)[1]
