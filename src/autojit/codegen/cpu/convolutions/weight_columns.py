"""The derivative of a convolution by its weight where many outputs fill vectors: columns of outputs, in registers.

A *unit* is a group, a block of input channels and a block of outputs, and takes images (or bands of them) a few at a
time, as in `weight_kernel`. Inputs are packed as every convolution packs them, outputs turned to blocks of channels
(`blocked`). Then a tile is a few weights of one output vector or more: input channels by taps of a line, all of which
read one place after the other, at distances that are known::

    for each image at hand, for each row of places, for each place
        load the vectors of outputs once, broadcast what each weight sees, multiply and add

Every weight is a chain of multiply-adds over the places of a round, whatever tile computes it, and rounds depend on
shapes alone, so results do not depend on threads or machines.
"""

from __future__ import annotations

from functools import partial
from itertools import product
from math import prod

from autojit.codegen.cpu.chunks import CHUNK_NS
from autojit.codegen.cpu.convolutions.blocked import PACK, UNPACK, write_pack_block, write_unpack_block
from autojit.codegen.cpu.convolutions.layout import Layout, forward_layout
from autojit.codegen.cpu.convolutions.movers import Lanes
from autojit.codegen.cpu.convolutions.packing import divide, offset, pack_signature, write_pack
from autojit.codegen.cpu.kernel_text import KernelText
from autojit.codegen.cpu.machine import aligned
from autojit.codegen.cpu.vector_text import INTERNAL, VectorKernel, VectorModule, VectorText
from autojit.codegen.function_text import Operand, State
from autojit.codegen.module_text import WRITTEN_OUT, Signature
from autojit.codegen.target import HostTarget
from autojit.core.dtypes import float32, float64
from autojit.core.records import record
from autojit.core.sizes import is_symbolic, size_max, size_min, typical
from autojit.ir.graph import Node
from autojit.ops.convolution import ConvolutionWeight

LEAST_OUTPUTS = 16
"""Outputs that fill vectors: one of float32 with 64 bytes. With fewer, dot products over places idle less."""

OUTPUT_UNIT = 32
"""Outputs are cut into blocks of this many on every machine: two vectors of 64 bytes."""

ROUND_BYTES = 384 << 10
"""Packed images and outputs of one round: part of the second-level cache, as in `weight_kernel`."""

ROUND_PLACES = 2048
"""Most places of a round with more than one image: the multiply-adds of a chain, each of which rounds."""

MOST_UNROLLED = 4
"""Places that are written out, or all up to twice as many; no measurement is recorded."""

LANES, PACK_SEEN, PACK_MADE = 16, 1.0, 2.0
"""Multiply-adds of a cycle, and cycles to pack an element of an image and to turn one of the outputs.

Measured on a Skylake server core, 4 images of 56 x 56, 32 to 192 channels, 1 x 1: 0.8 and 3 from the shared cache.
"""

MAX_CHUNKS = 16
MULTIPLY_NS = {4: 0.012, 8: 0.024}  # as in `kernel`


def has_columns(node: Node) -> bool:
    """Whether a derivative by the weight is computed this way; depends on shapes alone."""
    op = node.op
    assert isinstance(op, ConvolutionWeight)
    image, output = (v.type for v in node.inputs)
    if image.dtype not in (float32, float64) or output.shape[1] // op.groups < LEAST_OUTPUTS:
        return False
    if image.shape[0] == 0 or 0 in image.shape or 0 in output.shape or any(map(is_symbolic, image.shape[2:])):
        return False
    layout = _layout(node, _blocks(node).inputs)
    return layout.places[layout.band_axis] % layout.band[layout.band_axis] == 0


def _layout(node: Node, block_inputs: int) -> Layout:
    op = node.op
    assert isinstance(op, ConvolutionWeight)
    image, output = (v.type for v in node.inputs)
    row_bytes = block_inputs * image.dtype.size_bytes
    return forward_layout(op, image.shape[2:], op.extents, output.shape[2:], row_bytes)


@record
class _Blocks:
    """Channels and outputs of a unit, and how many units there are."""

    inputs: int
    outputs: int
    units: int


def _blocks(node: Node) -> _Blocks:
    """Few blocks are packed seldom, many keep workers busy: least time of two workers and of `MAX_CHUNKS` together."""
    op = node.op
    assert isinstance(op, ConvolutionWeight)
    image, output = (v.type for v in node.inputs)
    inputs, outputs = image.shape[1] // op.groups, output.shape[1] // op.groups
    seen, made = prod(image.shape[2:]), prod(output.shape[2:])
    products = inputs * outputs * prod(op.extents) * made
    nanoseconds = MULTIPLY_NS[image.dtype.size_bytes] * typical(image.shape[0]) * op.groups * products
    most = max(1, int(nanoseconds / CHUNK_NS))
    found: list[tuple[float, _Blocks]] = []
    output_units = -(-outputs // OUTPUT_UNIT)
    for count, output_count in product(
        range(1, min(inputs, MAX_CHUNKS) + 1), range(1, min(output_units, MAX_CHUNKS) + 1)
    ):
        block = -(-inputs // count), -(-output_units // output_count) * OUTPUT_UNIT
        input_blocks, output_blocks = -(-inputs // block[0]), -(-outputs // block[1])
        units = op.groups * input_blocks * output_blocks
        if units > most and found:
            continue
        packed = PACK_MADE * input_blocks * outputs * made + PACK_SEEN * output_blocks * inputs * seen
        work = products / LANES + packed
        shares = [-(-units // workers) / units for workers in (2, MAX_CHUNKS)]
        found.append((work * work * prod(shares), _Blocks(*block, units)))
    return min(found, key=lambda item: item[0])[1]


@record
class _Tile:
    """Weights and outputs held in registers: ``channels`` by the taps of a line (or one), by ``vectors``."""

    channels: int
    taps: int
    vectors: int

    @property
    def rows(self) -> int:
        return self.channels * self.taps


def _best_tile(channels: int, line: int, vectors: int, target: HostTarget) -> _Tile:
    """The tile that takes the fewest cycles for all weights of a line of taps and all vectors of outputs."""
    sums = 3 * target.vector_registers // 4
    at_once = target.multiplied_bytes / target.vector_bytes
    found = []
    for taps, wide in product(dict.fromkeys((1, line)), range(1, min(vectors, 4) + 1)):
        for blocks in range(1, channels + 1):
            tile = _Tile(-(-channels // blocks), taps, wide)
            if vectors % wide or tile.rows * wide > sums:
                continue
            step = max(tile.rows * wide / at_once, (tile.rows + wide) / 2, 4.0)
            tiles = -(-channels // tile.channels) * (line // taps) * (vectors // wide)
            found.append((tiles * (step + 0.5), -tile.rows * wide, tile))
            break  # the highest that fits
    return min(found, key=lambda item: item[:2])[2]


class WeightColumns:
    """Writes the module of one derivative by the weight."""

    def __init__(self, node: Node, target: HostTarget) -> None:
        op = node.op
        assert isinstance(op, ConvolutionWeight)
        image, output = (v.type for v in node.inputs)
        self.size = image.dtype.size_bytes
        self.lanes = Lanes(image.dtype, target.vector_bytes // self.size)
        self.vector = self.lanes.size_bytes
        self.groups, self.images = op.groups, image.shape[0]
        self.inputs, self.outputs = image.shape[1] // op.groups, output.shape[1] // op.groups
        self.taps = prod(op.extents)
        blocks = _blocks(node)
        self.block_inputs, self.block_outputs, self.units = blocks.inputs, blocks.outputs, blocks.units
        self.layout = _layout(node, self.block_inputs)
        self.places = prod(self.layout.band)
        self.vectors = -(-min(self.outputs, self.block_outputs) // self.lanes.lanes)
        line = self.layout.phases[0].line
        self.tile = _best_tile(self.block_inputs, line, self.vectors, target)
        self.room_inputs = -(-self.block_inputs // self.tile.channels) * self.tile.channels
        self.module = VectorModule(WRITTEN_OUT)
        self._plan_units()
        self._plan_scratch()

    def _plan_units(self) -> None:
        products = typical(self.images) * self.groups * self.inputs * self.outputs * self.taps
        self.estimate = 1000.0 + MULTIPLY_NS[self.size] * products * prod(self.layout.places)
        wanted = max(1, min(MAX_CHUNKS, int(self.estimate / CHUNK_NS)))
        self.input_blocks = -(-self.inputs // self.block_inputs)
        self.output_blocks = -(-self.outputs // self.block_outputs)
        self.units_per_chunk = -(-self.units // wanted)

    def _plan_scratch(self) -> None:
        layout = self.layout
        # What decides about rounds is the same on every machine; room beyond it is for whole tiles and squares.
        seen, made = self.block_inputs * layout.plane, min(self.outputs, self.block_outputs) * self.places
        most = min(ROUND_BYTES // ((seen + made) * self.size), ROUND_PLACES // self.places)
        pieces = self.images * layout.bands
        self.pieces = pieces
        self.round = size_max(1, most if is_symbolic(pieces) else size_min(pieces, most))
        self.image_bytes = aligned((self.room_inputs * layout.plane + layout.reach) * self.size)
        self.block_bytes = self.places * self.vector
        self.piece_bytes = self.vectors * self.block_bytes
        self.column_bytes = self.room_inputs * self.taps * self.vector
        square = self.lanes.lanes * self.vector
        self.room, self.scratch_bytes = {}, 0
        for name, size_bytes in {
            "image": self.round * self.image_bytes,
            "made": self.round * self.piece_bytes + square,
            "sums": self.vectors * self.column_bytes + square,
            "finite": self.vector,
        }.items():
            self.room[name] = self.scratch_bytes
            self.scratch_bytes += aligned(size_bytes)

    def print(self) -> KernelText:
        """The kernel."""
        kernel = self._kernel()
        write_pack(self.module, self.layout, self.lanes)
        write_pack_block(self.module, self.lanes, self.lanes.dtype)
        write_unpack_block(self.module, self.lanes)
        VectorText.define(self.module, TILE, self._write_tile, linkage="internal", attributes=INTERNAL)
        lines = self.layout.phases[0].taps[:: self.tile.taps]
        self.module.table("@lines", [place * self.size for _, place in lines])
        chunks = -(-self.units // self.units_per_chunk)
        return kernel.kernel_text(chunks, self.estimate, scratch_bytes=self.scratch_bytes)

    # -- the kernel

    def _kernel(self) -> VectorKernel:
        text = VectorKernel(self.module, "kernel")
        self.image, self.output, self.weight, scratch = text.pointers([0] * 4)
        own = text.at(scratch, text.mul("%worker", self.scratch_bytes))
        self.at = {name: text.at(own, place) for name, place in self.room.items()}
        with text.loop(*text.chunk_bounds(self.units_per_chunk, self.units)) as unit:
            self._unit(text, unit)
        text.finish()
        return text

    def _unit(self, text: VectorText, unit: str) -> None:
        rest, block_out = divide(text, unit, self.output_blocks)
        group, block_in = divide(text, rest, self.input_blocks)
        first_in, first_out = text.mul(block_in, self.block_inputs), text.mul(block_out, self.block_outputs)
        inputs = text.least(text.sub(self.inputs, first_in), self.block_inputs)
        outputs = text.least(text.sub(self.outputs, first_out), self.block_outputs)
        seen = offset(text, [(group, self.inputs), (first_in, 1)])
        made = offset(text, [(group, self.outputs), (first_out, 1)])
        with text.loop(0, self.pieces, self.round) as first:
            count = text.least(text.sub(self.pieces, first), self.round)
            text.fill_bytes(self.at["image"], 0, text.mul(count, self.image_bytes))
            with text.loop(0, count) as k:
                self._piece(text, (text.add(first, k), k), (seen, inputs, made, outputs))
            later = text.convert("zext", text.test("sgt", first, 0), "i1")
            self._tiles(text, count, (inputs, outputs), later)
        row = self.inputs * self.taps
        start = offset(text, [(group, self.outputs * row), (first_out, row), (first_in, self.taps)])
        self._write(text, text.at(self.weight, text.mul(start, self.size)), inputs, outputs)

    def _piece(self, text: VectorText, piece: tuple[str, str], channels: tuple[Operand, str, Operand, str]) -> None:
        """Pack the inputs of one band of one image, and turn its outputs."""
        layout, size = self.layout, self.size
        number, k = piece
        seen, inputs, made, outputs = channels
        image, band = divide(text, number, layout.bands)
        start = text.mul(band, layout.band[layout.band_axis])
        first = offset(text, [(image, self.groups * self.inputs), (seen, 1)])
        source = text.at(self.image, text.mul(first, prod(layout.image) * size))
        text.call(
            pack_signature(layout), inputs, source, start, text.at(self.at["image"], text.mul(k, self.image_bytes))
        )
        plane = prod(layout.places) * size
        first = offset(text, [(image, self.groups * self.outputs), (made, 1)])
        planes = text.at(self.output, text.add(text.mul(first, plane), text.mul(band, self.places * size)))
        to = text.at(self.at["made"], text.mul(k, self.piece_bytes))
        with text.loop(0, outputs, self.lanes.lanes) as lane:
            last = text.sub(text.sub(outputs, lane), 1)
            block = text.at(to, text.mul(text.quotient(lane, self.lanes.lanes), self.block_bytes))
            text.call(PACK, text.at(planes, text.mul(lane, plane)), plane, last, self.places, block)

    def _tiles(self, text: VectorText, count: str, channels: tuple[str, str], add: str) -> None:
        inputs, outputs = channels
        lines, plane = self.taps // self.tile.taps, self.layout.plane * self.size
        columns = self.tile.vectors * self.lanes.lanes
        with text.loop(0, outputs, columns) as lane:
            vector = text.quotient(lane, self.lanes.lanes)
            made = text.at(self.at["made"], text.mul(vector, self.block_bytes))
            sums = text.at(self.at["sums"], text.mul(vector, self.column_bytes))
            with text.loop(0, inputs, self.tile.channels) as channel, text.loop(0, lines) as line:
                shift = text.load("i64", text.at("@lines", text.mul(line, 8)))
                seen = text.at(self.at["image"], text.add(text.mul(channel, plane), shift))
                row = offset(text, [(channel, self.taps), (line, self.tile.taps)])
                assert isinstance(row, str)
                text.call(TILE, count, seen, made, text.at(sums, text.mul(row, self.vector)), add)

    def _write(self, text: VectorText, target: str, inputs: str, outputs: str) -> None:
        row_bytes = self.inputs * self.taps * self.size
        with text.loop(0, outputs, self.lanes.lanes) as lane:
            column = text.at(self.at["sums"], text.mul(text.quotient(lane, self.lanes.lanes), self.column_bytes))
            rows, last = text.at(target, text.mul(lane, row_bytes)), text.sub(text.sub(outputs, lane), 1)
            text.call(UNPACK, column, text.mul(inputs, self.taps), rows, row_bytes, last, self.at["finite"])

    # -- tiles

    def _write_tile(self, text: VectorText) -> None:
        """All places of the images at hand, then the sums to their memory, or onto what is there."""
        tile, kind = self.tile, self.lanes.text
        zeros = ["zeroinitializer"] * (tile.rows * tile.vectors)
        depth, height, width = self.layout.band
        _, rows, columns = self.layout.packed
        lines, run = (1, height * width) if columns == width else (height, width)  # rows without gaps are one
        walked = depth * rows * columns * self.size
        # From the innermost: how often, and how far images and outputs move beyond what was walked inside.
        loops: list[tuple[Operand, int, int]] = [
            (lines, (columns - width) * self.size, 0),
            (depth, (rows - height) * columns * self.size, 0),
            ("%count", self.image_bytes - walked, self.piece_bytes - self.block_bytes),
        ]

        def nest(level: int, state: State) -> State:
            if level < 0:
                return self._row(text, run, state)
            times, seen_step, made_step = loops[level]
            inner = partial(nest, level - 1)
            if times == 1:
                return self._moved(text, inner(state), seen_step, made_step)

            def turn(now: State) -> State:
                left, *rest = now
                return [text.sub(left, 1), *self._moved(text, inner(rest), seen_step, made_step)]

            return text.repeat(["i64", "ptr", "ptr", *[kind] * len(zeros)], [times, *state], turn)[1:]

        sums = nest(2, ["%seen", "%made", *zeros])[2:]
        self._store(text, sums)

    def _moved(self, text: VectorText, state: State, seen_step: int, made_step: int) -> State:
        seen, made, *sums = state
        seen = text.at(seen, seen_step) if seen_step else seen
        return [seen, text.at(made, made_step) if made_step else made, *sums]

    def _row(self, text: VectorText, width: int, state: State) -> State:
        """The places of one row, a few written out."""
        together = (
            width if width <= 2 * MOST_UNROLLED else max(n for n in range(1, MOST_UNROLLED + 1) if width % n == 0)
        )

        def some(now: State) -> State:
            seen, made, *sums = now
            for k in range(together):
                sums = self._place(text, text.at(seen, k * self.size), text.at(made, k * self.vector), sums)
            return [text.at(seen, together * self.size), text.at(made, together * self.vector), *sums]

        if together == width:
            return some(state)

        def turn(now: State) -> State:
            return [text.sub(now[0], together), *some(now[1:])]

        kinds = ["i64", "ptr", "ptr", *[self.lanes.text] * (len(state) - 2)]
        return text.repeat(kinds, [width, *state], turn)[1:]

    def _place(self, text: VectorText, seen: str, made: str, sums: State) -> State:
        tile, lanes = self.tile, self.lanes
        vectors = [text.load_vector(lanes, text.at(made, k * self.block_bytes)) for k in range(tile.vectors)]
        found: list[str] = []
        for shift in self._shifts():
            factor = text.splat(text.load(lanes.element, text.at(seen, shift)), lanes.element, lanes.lanes)
            for vector in vectors:
                found.append(lanes.multiply_add(text, factor, vector, sums[len(found)]))
        return found

    def _shifts(self) -> list[int]:
        """How many bytes behind the first what each weight of a tile sees is."""
        line = self.layout.phases[0].taps[: self.tile.taps]
        taps = [(place - line[0][1]) * self.size for _, place in line]
        return [c * self.layout.plane * self.size + tap for c in range(self.tile.channels) for tap in taps]

    def _store(self, text: VectorText, sums: State) -> None:
        tile, lanes = self.tile, self.lanes
        rows = [c * self.taps + k for c in range(tile.channels) for k in range(tile.taps)]
        places = [row * self.vector + v * self.column_bytes for row in rows for v in range(tile.vectors)]
        with text.when(text.test("ne", "%add", 0)):
            news = [
                text.binary("fadd", text.load_vector(lanes, text.at("%sums", place)), total, lanes.text)
                for place, total in zip(places, sums, strict=True)
            ]
        found = [text.merge(lanes.text, new, alone) for new, alone in zip(news, sums, strict=True)]
        for place, value in zip(places, found, strict=True):
            text.store_vector(lanes, value, text.at("%sums", place))


TILE = Signature("tile", "i64 count, ptr seen, ptr made, ptr sums, i64 add")
"""All places of ``count`` images for one tile: what its first weight sees, its outputs, its sums, whether they add."""
