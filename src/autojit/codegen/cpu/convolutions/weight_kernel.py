"""The derivative of a convolution by its weight: dot products over places, a few outputs by a few weights at a time.

A *unit* is a group, a block of input channels and a block of output channels; it owns its weights, so nothing is added
up between units. It takes images (or bands of them) a few at a time and packs the input channels. Then every pair of an
output and a weight is one dot product of contiguous vectors, and a tile of them shares its loads::

    for each image at hand, for each stretch, for each vector of positions
        load a vector of each of 4 outputs and of each of 6 weights' images, 24 multiply-adds

What is contiguous is a *stretch*. Rows of a few whole vectors are stretches as they are. Others are read from images
that are packed once per column of the kernel: then all rows of places are one stretch. Where that would copy too much,
the outputs are spread over the positions of a plainly packed image, zero between them, and walked as one line.

Sums run over the lanes of a vector and are added across lanes once per round of images. Where outputs are spread,
positions between places multiply zeros: an infinity in the image makes NaN of the weights of its channel.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod

from autojit.codegen.cpu.chunks import CHUNK_NS
from autojit.codegen.cpu.convolutions.layout import Layout, forward_layout
from autojit.codegen.cpu.convolutions.movers import Lanes
from autojit.codegen.cpu.convolutions.packing import (
    VECTOR_BYTES,
    divide,
    offset,
    pack_signature,
    write_pack,
)  # fmt: skip
from autojit.codegen.cpu.convolutions.tiles import packing_cycles
from autojit.codegen.cpu.kernel_text import KernelText
from autojit.codegen.cpu.machine import aligned
from autojit.codegen.cpu.vector_text import INTERNAL, VectorKernel, VectorModule, VectorText
from autojit.codegen.function_text import Operand, State
from autojit.codegen.module_text import Signature
from autojit.codegen.target import HostTarget
from autojit.core.dtypes import bfloat16, float32
from autojit.core.sizes import is_symbolic, size_max, size_min, typical
from autojit.ir.graph import Node
from autojit.ops.convolution import ConvolutionWeight

MOST_OUTPUTS = 4
"""Outputs of a tile: their vectors stay in registers while those of the weights come and go.

4 x 6 sums with 32 registers, blocks and rounds together: 1.6 to 1.43 ms (design note on loops and tiles).
"""

ROUND_BYTES = 384 << 10
"""Packed images and outputs of one round: part of the second-level cache (512 KiB and more)."""

NEAR_BYTES = 128 << 10
"""What a tile of one round reads when outputs stay where they are: sums are added across lanes once for all of it."""

MOST_UNROLLED = 4
"""Vectors of a stretch that are written out one by one; no measurement is recorded."""

_PARAMETERS = {
    "spread": "i64 channels, ptr output, i64 start, i64 done, ptr target",
    "dots": "i64 count, i64 outputs, i64 columns, ptr packed, ptr spread, ptr weights, i64 accumulate",
}

MAX_CHUNKS = 16
MULTIPLY_NS = {4: 0.012, 8: 0.024}  # as in `kernel`
PAIR_NS = 0.006  # of bfloat16, two at a time


def print_convolution_weight(node: Node, target: HostTarget) -> KernelText:
    """The kernel of a ``ConvolutionWeight`` on contiguous operands."""
    return _Printer(node, target).print()


class _Printer:
    def __init__(self, node: Node, target: HostTarget) -> None:
        op = node.op
        assert isinstance(op, ConvolutionWeight)
        image, output = (v.type for v in node.inputs)
        self.dtype = image.dtype
        self.size = self.dtype.size_bytes
        self.lanes = self.sums = Lanes(self.dtype, VECTOR_BYTES // self.size)
        if self.dtype is bfloat16:  # two places side by side are one product
            self.sums = Lanes(float32, VECTOR_BYTES // float32.size_bytes, of_pairs=True)
        self.weight_bytes = self.sums.dtype.size_bytes
        self.groups, self.images = op.groups, image.shape[0]
        self.inputs, self.outputs = image.shape[1] // op.groups, output.shape[1] // op.groups
        self.taps, places = prod(op.extents), typical(prod(output.shape[2:]))
        products = typical(self.images) * self.groups * self.inputs * self.outputs * self.taps * places
        per_product = PAIR_NS if self.dtype is bfloat16 else MULTIPLY_NS.get(self.size, 0.024)
        self.estimate = 1000.0 + per_product * products
        copies = 1 if output.shape[-1] % self.lanes.lanes == 0 else op.extents[-1]
        self._plan_units(2 * copies * typical(prod(image.shape[2:])), places)
        row_bytes = max(self.block_inputs, 1) * self.size
        laid_out = partial(forward_layout, op, image.shape[2:], op.extents, output.shape[2:], row_bytes)
        self.layout = laid_out()
        self.module, self.is_open = VectorModule(), self.layout.is_open
        self.tile = _tile(min(self.outputs, self.block_outputs), self.block_inputs * self.taps, target)
        self._plan_stretches(laid_out(True))
        self._plan_rounds()

    def _plan_units(self, seen: int, made: int) -> None:
        """Blocks of inputs by blocks of outputs: enough for all workers, and cut so that least is read again.

        Every block of inputs reads the outputs, ``made`` places a channel; every block of outputs packs the inputs,
        ``seen`` elements a channel.
        """
        wanted = max(1, min(MAX_CHUNKS, int(self.estimate / CHUNK_NS)))
        shares = -(-wanted // max(self.groups, 1))
        tiles = max(1, -(-self.outputs // MOST_OUTPUTS))
        found = []
        for count in range(1, min(shares, max(self.inputs, 1)) + 1):
            block_inputs = max(1, -(-self.inputs // count))
            input_blocks = max(1, -(-self.inputs // block_inputs))
            block_tiles = max(1, -(-tiles // -(-shares // input_blocks)))
            again = input_blocks * self.outputs * made + -(-tiles // block_tiles) * self.inputs * seen
            idle = max(0, shares - input_blocks * -(-tiles // block_tiles))
            found.append((idle, again, block_inputs, block_tiles * MOST_OUTPUTS))
        _, _, self.block_inputs, self.block_outputs = min(found)
        self.input_blocks = max(1, -(-self.inputs // self.block_inputs))
        self.output_blocks = max(1, -(-self.outputs // self.block_outputs))
        self.units = self.groups * self.input_blocks * self.output_blocks if self.inputs * self.outputs else 0
        self.units_per_chunk = max(1, -(-self.units // wanted))
        self.chunks = max(1, -(-self.units // self.units_per_chunk))

    def _plan_stretches(self, copied: Layout) -> None:
        """What is contiguous in outputs and images: whole rows, all rows of an image packed in copies, or a line."""
        layout, lanes = self.layout, self.lanes.lanes
        (depth, height, width), places = layout.band, prod(layout.places)
        is_plain = not self.is_open and layout.bands == 1
        by_rows = is_plain and depth == 1 and width % lanes == 0 and width // lanes <= MOST_UNROLLED
        self.is_spread = not by_rows
        if is_plain and not by_rows and copied.bands == 1:
            sums = self.outputs * self.inputs * self.taps / 16
            more_copies = packing_cycles(copied, self.inputs, lanes) - packing_cycles(layout, self.inputs, lanes)
            moved = more_copies - self.outputs * places / lanes  # outputs that are not spread
            self.is_spread = moved > sums * (layout.span + 1 - places)
        if self.is_spread:
            self.positions = -(-(layout.span + 1) // lanes) * lanes
            self.stretches, length = 1, self.positions
        elif by_rows:
            self.stretches, length = height, width
            self.image_step = layout.packed[2]
        else:
            self.layout = layout = copied
            self.stretches, length = depth, height * width
            self.image_step = layout.packed[1] * width
        self.length = length
        self.vectors, self.left = length // lanes, 0 if is_symbolic(length) else length % lanes

    def _plan_rounds(self) -> None:
        layout, size = self.layout, self.size
        places, lanes = prod(layout.places), self.lanes.lanes
        slack = layout.reach + (self.positions if self.is_spread else lanes)
        self.image_bytes = aligned((self.block_inputs * layout.plane + slack) * size)
        self.pieces = self.images * layout.bands
        if self.is_spread:
            self.output_line = self.positions
            self.spread_bytes = self.output_piece = aligned(self.block_outputs * self.positions * size)
            most = ROUND_BYTES // (self.image_bytes + self.spread_bytes)
        else:
            self.output_line, self.output_piece = places, self.groups * self.outputs * places * size
            self.spread_bytes = 0
            near = (MOST_OUTPUTS * places + 2 * layout.plane) * size  # of any tile: rounds decide how sums are rounded
            most = min(ROUND_BYTES // self.image_bytes, NEAR_BYTES // near)
        self.round = size_max(1, most if is_symbolic(self.pieces) else size_min(self.pieces, most))
        self.rounds = -(-self.pieces // self.round)

    def print(self) -> KernelText:
        kernel = self._kernel()
        write_pack(self.module, self.layout, self.lanes)
        self._define("dots", self._write_dots)
        if self.is_spread:
            self._define("spread", self._write_spread)
        if not self.is_open:
            self.module.table("@taps", [place * self.size for _, place in self.layout.phases[0].taps])
        scratch = self.round * (self.image_bytes + self.spread_bytes)
        return kernel.kernel_text(self.chunks, self.estimate, scratch_bytes=scratch)

    def _signature(self, symbol: str) -> Signature:
        return Signature(symbol, _PARAMETERS[symbol], takes_sizes=self.is_open)

    def _define(self, symbol: str, write: Callable[[VectorText], None]) -> None:
        VectorText.define(self.module, self._signature(symbol), write, linkage="internal", attributes=INTERNAL)

    # -- the kernel

    def _kernel(self) -> VectorKernel:
        text = VectorKernel(self.module, "kernel")
        self.image, self.output, self.weight, scratch = text.pointers([0] * 4)
        self.packed = text.at(scratch, text.mul("%worker", self.round * (self.image_bytes + self.spread_bytes)))
        self.spread = text.at(self.packed, self.round * self.image_bytes)
        with text.loop(*text.chunk_bounds(self.units_per_chunk, self.units)) as unit:
            if self.pieces != 0:
                self._unit(text, unit)
            else:
                self._clear_unit(text, unit)
        text.finish()
        return text

    def _bounds(self, text: VectorText, unit: str) -> tuple[str, str, str, str, str]:
        """Group, first input, number of inputs, first output, number of outputs."""
        rest, block_out = divide(text, unit, self.output_blocks)
        group, block_in = divide(text, rest, self.input_blocks)
        first_in, first_out = text.mul(block_in, self.block_inputs), text.mul(block_out, self.block_outputs)
        inputs = text.least(text.sub(self.inputs, first_in), self.block_inputs)
        outputs = text.least(text.sub(self.outputs, first_out), self.block_outputs)
        return group, first_in, inputs, first_out, outputs

    def _weights_at(self, text: VectorText, group: str, first_in: str, first_out: str) -> str:
        row = self.inputs * self.taps
        start = offset(text, [(group, self.outputs * row), (first_out, row), (first_in, self.taps)])
        return text.at(self.weight, text.mul(start, self.weight_bytes))

    def _clear_unit(self, text: VectorText, unit: str) -> None:
        group, first_in, inputs, first_out, outputs = self._bounds(text, unit)
        weights = self._weights_at(text, group, first_in, first_out)
        with text.loop(0, outputs) as row:
            line = text.at(weights, text.mul(row, self.inputs * self.taps * self.weight_bytes))
            text.fill_bytes(line, 0, text.mul(inputs, self.taps * self.weight_bytes))

    def _unit(self, text: VectorText, unit: str) -> None:
        group, first_in, inputs, first_out, outputs = self._bounds(text, unit)
        weights = self._weights_at(text, group, first_in, first_out)
        channel_in = offset(text, [(group, self.inputs), (first_in, 1)])
        channel_out = offset(text, [(group, self.outputs), (first_out, 1)])
        with text.loop(0, self.rounds) as number:
            first = text.mul(number, self.round)
            count = text.least(text.sub(self.pieces, first), self.round)
            text.fill_bytes(self.packed, 0, text.mul(count, self.image_bytes))
            if self.is_spread:
                text.fill_bytes(self.spread, 0, text.mul(count, self.spread_bytes))
            with text.loop(0, count) as k:
                self._piece(text, text.add(first, k), k, (channel_in, inputs, channel_out, outputs))
            later = text.convert("zext", text.test("sgt", number, 0), "i1")
            outputs_at = self.spread if self.is_spread else self._outputs_at(text, first, channel_out)
            columns = text.mul(inputs, self.taps)
            text.call(self._signature("dots"), count, outputs, columns, self.packed, outputs_at, weights, later)

    def _outputs_at(self, text: VectorText, image: str, channel: Operand) -> str:
        made = offset(text, [(image, self.groups * self.outputs), (channel, 1)])
        return text.at(self.output, text.mul(made, prod(self.layout.places) * self.size))

    def _piece(self, text: VectorText, piece: str, k: str, channels: tuple[Operand, str, Operand, str]) -> None:
        """Pack one band of one image and spread its outputs."""
        layout, size = self.layout, self.size
        channel_in, inputs, channel_out, outputs = channels
        image, band = divide(text, piece, layout.bands)
        axis = layout.band_axis
        begin = text.mul(band, layout.band[axis])
        start = text.least(begin, layout.places[axis] - layout.band[axis])
        seen = offset(text, [(image, self.groups * self.inputs), (channel_in, 1)])
        source = text.at(self.image, text.mul(seen, prod(layout.image) * size))
        packed = text.at(self.packed, text.mul(k, self.image_bytes))
        text.call(pack_signature(layout), inputs, source, start, packed)
        if not self.is_spread:
            return
        output = self._outputs_at(text, image, channel_out)
        spread = text.at(self.spread, text.mul(k, self.spread_bytes))
        done = text.sub(begin, start)
        text.call(self._signature("spread"), outputs, output, start, done, spread)

    def _write_spread(self, text: VectorText) -> None:
        """Rows of places at their packed positions.

        The last band overlaps the one before: its first ``done`` places along the cut axis were counted there.
        """
        layout, size = self.layout, self.size
        firsts: list[Operand] = ["%done" if axis == layout.band_axis else 0 for axis in range(3)]
        starts: list[Operand] = ["%start" if axis == layout.band_axis else 0 for axis in range(3)]
        _, rows, columns = layout.packed
        height, width = layout.places[1:]
        with (
            text.loop(0, "%channels") as channel,
            text.loop(firsts[0], layout.band[0]) as d,
            text.loop(firsts[1], layout.band[1]) as h,
        ):
            lines: list[tuple[Operand, int]] = [(channel, self.positions), (d, rows * columns), (h, columns)]
            to = offset(text, [*lines, (firsts[2], 1)])
            places: list[tuple[Operand, int]] = [(channel, prod(layout.places)), (d, height * width), (h, width)]
            strides = (height * width, width, 1)
            moved = [(start, stride) for start, stride in zip(starts, strides, strict=True)]
            from_ = offset(text, [*places, *moved, (firsts[2], 1)])
            count = layout.band[2] if firsts[2] == 0 else text.sub(layout.band[2], firsts[2])
            bytes_ = count * size if isinstance(count, int) else text.mul(count, size)
            text.copy_bytes(text.at("%target", text.mul(to, size)), text.at("%output", text.mul(from_, size)), bytes_)

    # -- dot products

    def _write_dots(self, text: VectorText) -> None:
        """All tiles of a unit; those that stick out compute the last row or column again and store it twice."""
        self.table = self._open_table(text) if self.is_open else "@taps"
        size, (high, wide) = self.size, self.tile
        with text.loop(0, "%outputs", high) as row, text.loop(0, "%columns", wide) as column:
            rows = [text.least(text.add(row, k), text.sub("%outputs", 1)) for k in range(high)]
            columns = [text.least(text.add(column, k), text.sub("%columns", 1)) for k in range(wide)]
            outputs = [text.at("%spread", text.mul(r, self.output_line * size)) for r in rows]
            images = [self._image_of(text, c) for c in columns]
            totals = self._sums(text, outputs, images)
            places = [
                text.at("%weights", text.mul(offset(text, [(r, self.inputs * self.taps), (c, 1)]), self.weight_bytes))
                for r in rows
                for c in columns
            ]
            self._store(text, totals, places)

    def _open_table(self, text: VectorText) -> str:
        """The table of taps, written at the start of a call."""
        table = text.local(f"[{self.taps} x i64]", 16)
        for number, (_, place) in enumerate(self.layout.phases[0].taps):
            text.store("i64", place * self.size, text.at(table, 8 * number))
        return table

    def _image_of(self, text: VectorText, column: str) -> str:
        """What the weight of a column sees from the first place on."""
        channel, tap = divide(text, column, self.taps)
        shift = text.load("i64", text.at(self.table, text.mul(tap, 8)))
        return text.at("%packed", text.add(text.mul(channel, self.layout.plane * self.size), shift))

    def _sums(self, text: VectorText, outputs: list[str], images: State) -> State:
        pointers = [*outputs, *images]
        zeros = ["zeroinitializer"] * (len(outputs) * len(images))
        sums = [self.sums.text] * len(zeros)

        def piece(state: State) -> State:
            left, starts, totals = state[0], state[1 : 1 + len(pointers)], state[1 + len(pointers) :]

            def stretch(inner: State) -> State:
                remaining, output, image, *totals = inner
                places = [text.at(p, image if k >= len(outputs) else output) for k, p in enumerate(starts)]
                totals = self._stretch(text, places, totals)
                moved = [text.add(output, self.length * self.size), text.add(image, self.image_step * self.size)]
                return [text.sub(remaining, 1), *moved, *totals]

            if self.stretches == 1:
                totals = self._stretch(text, starts, totals)
            else:
                first: list[Operand] = [self.stretches, 0, 0, *totals]
                totals = text.repeat(["i64", "i64", "i64", *sums], first, stretch)[3:]
            steps = [self.output_piece] * len(outputs) + [self.image_bytes] * len(images)
            moved = [text.at(p, s) for p, s in zip(starts, steps, strict=True)]
            return [text.sub(left, 1), *moved, *totals]

        kinds = ["i64", *["ptr"] * len(pointers), *sums]
        return text.repeat(kinds, ["%count", *pointers, *zeros], piece)[1 + len(pointers) :]

    def _stretch(self, text: VectorText, starts: list[str], totals: State) -> State:
        """The products of one stretch of all outputs and images of a tile: whole vectors, then what is left of one."""
        if not is_symbolic(self.vectors) and self.vectors <= MOST_UNROLLED:
            for k in range(self.vectors):
                totals = self._products(text, [text.at(p, k * VECTOR_BYTES) for p in starts], totals)
            end: Operand = self.vectors * VECTOR_BYTES
        else:

            def step(state: State) -> State:
                left, at, *sums = state
                sums = self._products(text, [text.at(p, at) for p in starts], sums)
                return [text.sub(left, 1), text.add(at, VECTOR_BYTES), *sums]

            kinds = ["i64", "i64", *[self.sums.text] * len(totals)]
            _, end, *totals = text.repeat(kinds, [self.vectors, 0, *totals], step)
        if not self.left:
            return totals
        lanes = ", ".join(f"i1 {'true' if k < self.left else 'false'}" for k in range(self.lanes.lanes))
        return self._products(text, [text.at(p, end) for p in starts], totals, f"<{lanes}>")

    def _products(self, text: VectorText, places: list[str], totals: list[str], mask: str = "") -> list[str]:
        def read(place: str) -> str:
            found = text.masked_load(self.lanes, place, mask) if mask else text.load_vector(self.lanes, place)
            if self.sums is self.lanes:
                return found
            return text.convert("bitcast", found, self.lanes.text, self.sums.text)

        high, wide = self.tile
        outputs, found = [read(place) for place in places[:high]], list(totals)
        for column, place in enumerate(places[high:]):
            seen = read(place)
            for row, output in enumerate(outputs):
                k = row * wide + column
                found[k] = self.sums.multiply_add(text, output, seen, found[k])
        return found

    def _store(self, text: VectorText, totals: list[str], places: list[str]) -> None:
        """All old values are read before any is written: a repeated place is then added to once."""
        lanes, element = self.sums, self.sums.element
        sums = [lanes.sum(text, total) for total in totals]
        with text.when(text.test("ne", "%accumulate", 0)):
            olds = [text.load(element, place) for place in places]
            news = [lanes.add(text, old, new) for old, new in zip(olds, sums, strict=True)]
        found = [text.merge(element, new, alone) for new, alone in zip(news, sums, strict=True)]
        for value, place in zip(found, places, strict=True):
            text.store(element, value, place)


def _tile(outputs: int, weights: int, target: HostTarget) -> tuple[int, int]:
    """Outputs and weights of a tile: as many sums as leave room for operands, with the fewest loads per product."""
    sums = 3 * target.vector_registers * min(target.vector_bytes, VECTOR_BYTES) // (4 * VECTOR_BYTES)
    found = []
    for high in range(1, min(outputs, MOST_OUTPUTS) + 1):
        most = max(1, min(sums // high, weights))
        for wide in range(max(1, most // 2), most + 1):
            tiles = -(-outputs // high) * -(-weights // wide)
            found.append((tiles * (max(high * wide, high + wide, 9) + 1), -high * wide, (high, wide)))
    return min(found)[2] if found else (1, 1)
