"""Convolutions by minimal filtering: tiles of places from fewer products (see `minimal_filtering`).

A *unit* is a group, a block of result channels and a part of all tiles. For every block of tiles it does::

    for each block of channels
        transform what the tiles see, and the weights unless they are kept: vectors of channels
        for each point: sums (tiles, result channels) += seen (tiles, channels) @ weights (channels, result channels)
    transform the sums to places

Images are turned to blocks of channels before, and back after (`blocked`), so that no width of an image leaves lanes
idle. Sums go over channels in order whatever the blocks, so results do not depend on them, nor on threads.

A tile adds up numbers that cancel, so an infinity makes NaN of its neighbours, and a number near the largest overflows.
Then the result is not finite, which is looked at as it is written: such a band of an image is computed once more, by
plain sums, which give what `kernel` gives.
"""

from __future__ import annotations

from autojit.codegen.cpu.chunks import wanted_chunks
from autojit.codegen.cpu.convolutions.blocked import PACK, UNPACK, write_pack_block, write_unpack_block
from autojit.codegen.cpu.convolutions.filtered_parts import (
    Products,
    Stack,
    gather_signature,
    scatter_signature,
    write_gather,
    write_scatter,
)
from autojit.codegen.cpu.convolutions.filtered_plan import (
    CHANNELS,
    Window,
    blocks_of,
    cut_evenly,
    part_of,
    register_tile,
)
from autojit.codegen.cpu.convolutions.movers import Lanes
from autojit.codegen.cpu.convolutions.packing import divide, offset
from autojit.codegen.cpu.convolutions.tile_places import BlockOfTiles, Places, Span
from autojit.codegen.cpu.kernel_text import KernelText
from autojit.codegen.cpu.machine import aligned
from autojit.codegen.cpu.vector_text import INTERNAL, VectorKernel, VectorModule, VectorText
from autojit.codegen.module_text import WALKED, Signature
from autojit.codegen.target import HostTarget
from autojit.core.dtypes import float32
from autojit.core.sizes import typical

KEPT_BYTES = 3 << 19
"""Transformed weights of a unit that are kept for all its tiles; larger ones are made again for every block."""

MAX_CHUNKS = 16
POINT_NS = 0.010
"""One multiply-add of a point, its share of transforms included; only cuts work into chunks."""

WEIGHTS = Signature("pack_weights", "ptr weight, i64 count, i64 last, i64 lane_bytes, i64 step_bytes, ptr block")
PLAINLY = Signature(
    "sum_plainly",
    "ptr image, ptr weight, i64 count, i64 low, i64 high, i64 height, i64 width, i64 columns, ptr block",
)


class FilteredPrinter:
    """Writes the module of one convolution, or transposed one."""

    def __init__(self, window: Window, is_transposed: bool, target: HostTarget) -> None:
        self.window, self.is_transposed = window, is_transposed
        self.size, self.operand_bytes = float32.size_bytes, window.operand.size_bytes
        self.lanes = lanes = Lanes(float32, target.vector_bytes // self.size)
        self.vector = lanes.size_bytes
        taps = window.taps
        own, shared = taps, window.lanes * taps if is_transposed else window.steps * taps
        self.lane_stride, self.step_stride = (own, shared) if is_transposed else (shared, own)
        self.blocks = blocks_of(window)
        self.block_lanes, self.lane_blocks = cut_evenly(window.lanes, CHANNELS, lanes.lanes)
        height, width = register_tile(target, self.blocks.tiles, self.block_lanes // lanes.lanes)
        step = lanes.lanes * width
        self.block_lanes = -(-self.block_lanes // step) * step
        self.block_steps, self.step_blocks = cut_evenly(window.steps, CHANNELS, lanes.lanes)
        points = window.seen[0] * window.seen[1]
        rows = -(-self.blocks.tiles // height) * height
        self.seen = Stack(points, rows, self.block_steps, self.size)
        self.weights = Stack(points, self.block_steps, self.block_lanes, self.size)
        self.sums = Stack(points, rows, self.block_lanes, self.size)
        self.products = Products(lanes, self.seen, False, self.weights, self.sums, height, width)
        forms = (lanes, window.image, window.seen, window.made, window.padding, self.blocks)
        self.seen_places = Places("seen", *forms, window.operand)
        self.made_places = Places("made", lanes, window.result, window.made, window.made, (0, 0), self.blocks, float32)
        self.keeps = self.step_blocks == 1 or self.step_blocks * self.weights.size_bytes <= KEPT_BYTES
        self.module = VectorModule(WALKED)
        self._plan_units()
        self._plan_scratch()

    def _plan_units(self) -> None:
        window = self.window
        tiles = typical(window.images) * window.tiles[0] * window.tiles[1]
        products = tiles * self.seen.points * window.steps * window.lanes * window.groups
        self.estimate = 1000.0 + POINT_NS * products
        owned = window.groups * self.lane_blocks
        wanted = wanted_chunks(self.estimate, 0, MAX_CHUNKS)
        self.parts = max(1, min(typical(self.blocks.count), -(-wanted // owned)))
        self.part = part_of(self.blocks.count, self.parts)
        self.units = owned * self.parts
        self.units_per_chunk = -(-self.units // wanted)

    def _plan_scratch(self) -> None:
        kept = self.step_blocks if self.keeps else 1
        sizes = {
            "zeros": self.products.zero_bytes,
            "finite": self.vector,
            "seen_at": self.seen_places.table_bytes,
            "made_at": self.made_places.table_bytes,
            "weight": (self.block_steps * self.window.taps + self.lanes.lanes) * self.vector,
            "image": self.seen_places.block_bytes,
            "places": self.made_places.block_bytes,
            "points": self.seen.size_bytes,
            "weights": kept * self.weights.size_bytes,
            "sums": self.sums.size_bytes,
        }
        self.room, self.scratch_bytes = {}, 0
        for name, size_bytes in sizes.items():
            self.room[name] = self.scratch_bytes
            self.scratch_bytes += aligned(size_bytes)

    def print(self) -> KernelText:
        """The kernel."""
        kernel = self._kernel()
        module, lanes, window = self.module, self.lanes, self.window
        height, width = window.forms
        write_pack_block(module, lanes, window.operand)
        write_unpack_block(module, lanes)
        self.seen_places.write(module)
        self.made_places.write(module)
        write_gather(module, lanes, "gather_seen", (height.data, width.data))
        write_gather(module, lanes, "gather_weight", (height.weight, width.weight))
        write_scatter(module, lanes, "scatter_made", (height.result, width.result))
        self.products.write(module)
        VectorText.define(module, WEIGHTS, self._write_weights, linkage="internal", attributes=INTERNAL)
        VectorText.define(module, PLAINLY, self._write_plainly, linkage="internal", attributes=INTERNAL)
        module.table("@outside", [0])
        module.table("@weight_at", [self._tap(k) * self.vector for k in range(window.taps)])
        chunks = -(-self.units // self.units_per_chunk)
        return kernel.kernel_text(chunks, self.estimate, scratch_bytes=self.scratch_bytes)

    def _tap(self, number: int) -> int:
        """The tap of the weight that is number so and so of the window: a transposed convolution sees them turned."""
        return self.window.taps - 1 - number if self.is_transposed else number

    # -- the kernel

    def _kernel(self) -> VectorKernel:
        text = VectorKernel(self.module, "kernel")
        self.image, self.weight, self.result, scratch = text.pointers([0] * 4)
        own = text.at(scratch, text.mul("%worker", self.scratch_bytes))
        self.at = {name: text.at(own, place) for name, place in self.room.items()}
        for name in ("zeros", "finite"):
            text.fill_bytes(self.at[name], 0, self.products.zero_bytes if name == "zeros" else self.vector)
        text.fill_bytes(self.at["image"], 0, self.vector)
        with text.loop(*text.chunk_bounds(self.units_per_chunk, self.units)) as unit:
            self._unit(text, unit)
        text.finish()
        return text

    def _unit(self, text: VectorText, unit: str) -> None:
        window = self.window
        owned, part = divide(text, unit, self.parts)
        group, block = divide(text, owned, self.lane_blocks)
        first_lane = text.mul(block, self.block_lanes)
        lanes = text.least(text.sub(window.lanes, first_lane), self.block_lanes)
        per_group = window.lanes * window.steps * window.taps
        start = offset(text, [(group, per_group), (first_lane, self.lane_stride)])
        weight = text.at(self.weight, text.mul(start, self.operand_bytes))
        if self.keeps:
            with text.loop(0, self.step_blocks) as number:
                self._transform_weights(text, weight, number, lanes, self._weights_at(text, number))
        begin = text.mul(part, self.part)
        with text.loop(begin, text.least(text.add(begin, self.part), self.blocks.count)) as number:
            self._block(text, number, group, (weight, first_lane, lanes))

    def _weights_at(self, text: VectorText, number: str) -> str:
        if not self.keeps:
            return self.at["weights"]
        return text.at(self.at["weights"], text.mul(number, self.weights.size_bytes))

    def _steps(self, text: VectorText, number: str) -> tuple[str, str]:
        """The first channel of a block, and how many it has."""
        first = text.mul(number, self.block_steps)
        return first, text.least(text.sub(self.window.steps, first), self.block_steps)

    def _transform_weights(self, text: VectorText, weight: str, number: str, lanes: str, to: str) -> None:
        first, count = self._steps(text, number)
        weight = text.at(weight, text.mul(first, self.step_stride * self.operand_bytes))
        with text.loop(0, lanes, self.lanes.lanes) as lane:
            self._pack_weights(text, weight, lane, lanes, count)
            column = text.at(to, text.mul(lane, self.size))
            taps = self.at["weight"], self.window.taps * self.vector, "@weight_at", 0
            points = column, self.weights.row_bytes, self.weights.matrix_bytes
            text.call(gather_signature("gather_weight"), *taps, *points, count)

    def _pack_weights(self, text: VectorText, weight: str, lane: str, lanes: str, count: str) -> None:
        last = text.sub(text.sub(lanes, lane), 1)
        strides = [stride * self.operand_bytes for stride in (self.lane_stride, self.step_stride)]
        source = text.at(weight, text.mul(lane, strides[0]))
        text.call(WEIGHTS, source, count, last, *strides, self.at["weight"])

    def _block(self, text: VectorText, number: str, group: str, lanes: tuple[str, str, str]) -> None:
        window, at = self.window, self.at
        weight, first_lane, count = lanes
        here = BlockOfTiles.numbered(text, number, self.blocks, window.images)
        seen, made = (p.span(text, here.first_row, here.rows) for p in (self.seen_places, self.made_places))
        self.seen_places.tables(text, here.rows, seen, at["seen_at"])
        self.made_places.tables(text, here.rows, made, at["made_at"])
        with text.loop(0, self.step_blocks) as block:
            to = self._weights_at(text, block)
            if not self.keeps:
                self._transform_weights(text, weight, block, count, to)
            first, steps = self._steps(text, block)
            with text.loop(0, here.images) as image:
                number = text.add(here.first_image, image)
                channels = [(number, window.groups * window.steps), (group, window.steps), (first, 1)]
                planes = self.seen_places.planes(text, self.image, channels, seen)
                row = text.at(at["points"], text.mul(image, self.blocks.of_image * self.seen.row_bytes))
                where = (at["seen_at"], at["image"], row)
                self.seen_places.read(text, (planes, steps, seen), here.of_image, where, self.seen)
            add = text.convert("zext", text.test("sgt", block, 0), "i1")
            tiles = text.mul(here.images, here.of_image)
            text.call(self.products.signature, at["points"], to, at["sums"], steps, tiles, add, at["zeros"])
        with text.loop(0, here.images) as image:
            number = text.add(here.first_image, image)
            channels = [(number, window.groups * window.lanes), (group, window.lanes), (first_lane, 1)]
            planes = self.made_places.planes(text, self.result, channels, made)
            row = text.at(at["sums"], text.mul(image, self.blocks.of_image * self.sums.row_bytes))
            self._write(text, (row, planes, here.of_image), (number, group, weight, count), made)

    def _write(
        self, text: VectorText, where: tuple[str, str, str], which: tuple[str, str, str, str], made: Span
    ) -> None:
        """Transform the sums of an image to places, and write them."""
        row, planes, tiles = where
        _, _, _, count = which
        places, plane_bytes = self.made_places.count(text, made), self.made_places.plane * self.size
        block = text.at(self.at["places"], self.vector)
        with text.loop(0, count, self.lanes.lanes) as lane:
            from_ = text.at(row, text.mul(lane, self.size))
            table = self.at["made_at"], self.made_places.tile_bytes
            to = self.at["places"], 0, self.sums.matrix_bytes
            text.call(scatter_signature("scatter_made"), from_, self.sums.row_bytes, *table, *to, tiles)
            first = text.at(planes, text.mul(lane, plane_bytes))
            last = text.sub(text.sub(count, lane), 1)
            written = (block, places, first, plane_bytes, last, self.at["finite"])
            text.call(UNPACK, *written)
            with text.when(self._is_not_finite(text)):
                self._sum_plainly(text, which, lane, made, block)
                text.call(UNPACK, *written)
                text.fill_bytes(self.at["finite"], 0, self.vector)

    # -- plain sums

    def _is_not_finite(self, text: VectorText) -> str:
        """Whether zero times all that was written is not zero."""
        products = text.load_vector(self.lanes, self.at["finite"])
        lanes = text.value(f"fcmp uno {self.lanes.text} {products}, zeroinitializer")
        return text.value(f"call i1 @llvm.vector.reduce.or.v{self.lanes.lanes}i1({self.lanes.mask} {lanes})")

    def _sum_plainly(
        self, text: VectorText, which: tuple[str, str, str, str], lane: str, made: Span, block: str
    ) -> None:
        """Once more the places of some rows, for a vector of channels."""
        window = self.window
        image, group, weight, count = which
        plane = window.image[0] * window.image[1] * self.operand_bytes
        channel = offset(text, [(image, window.groups * window.steps), (group, window.steps)])
        source = text.at(self.image, text.mul(channel, plane))
        text.fill_bytes(block, 0, text.mul(self.made_places.count(text, made), self.vector))
        with text.loop(0, self.step_blocks) as number:
            first, steps = self._steps(text, number)
            taps = text.at(weight, text.mul(first, self.step_stride * self.operand_bytes))
            self._pack_weights(text, taps, lane, count, steps)
            planes = text.at(source, text.mul(first, plane))
            extents = (*window.image, window.result[1])
            text.call(PLAINLY, planes, self.at["weight"], steps, made.low, made.high, *extents, block)

    def _write_weights(self, text: VectorText) -> None:
        """Pack the taps of a vector of result channels, of channels that follow each other."""
        taps = self.window.taps
        if not self.is_transposed:
            text.call(PACK, "%weight", "%lane_bytes", "%last", text.mul("%count", taps), "%block")
            return
        with text.loop(0, "%count") as step:
            source = text.at("%weight", text.mul(step, "%step_bytes"))
            to = text.at("%block", text.mul(step, taps * self.vector))
            text.call(PACK, source, "%lane_bytes", "%last", taps, to)

    def _write_plainly(self, text: VectorText) -> None:
        window, lanes = self.window, self.lanes
        plane_bytes = text.mul(text.mul("%height", "%width"), self.operand_bytes)
        with (
            text.loop("%low", "%high") as row,
            text.loop(0, "%columns") as column,
            text.loop(0, "%count") as step,
        ):
            place = text.add(text.mul(text.sub(row, "%low"), "%columns"), column)
            to = text.at("%block", text.mul(place, self.vector))
            plane = text.at("%image", text.mul(step, plane_bytes))
            taps = text.at("%weight", text.mul(step, window.taps * self.vector))
            with text.loop(0, window.kernel[0]) as k, text.loop(0, window.kernel[1]) as m:
                y = text.sub(text.add(row, k), window.padding[0])
                x = text.sub(text.add(column, m), window.padding[1])
                inside = text.both(text.test("ult", y, "%height"), text.test("ult", x, "%width"))
                seen = text.at(plane, text.mul(text.add(text.mul(y, "%width"), x), self.operand_bytes))
                value = lanes.load_one(text, text.choose(inside, seen, "@outside", "ptr"), window.operand)
                number = offset(text, [(k, window.kernel[1]), (m, 1)])
                tap = text.sub(window.taps - 1, number) if self.is_transposed else number
                assert isinstance(tap, str)
                factor = text.load_vector(lanes, text.at(taps, text.mul(tap, self.vector)))
                total = text.load_vector(lanes, to)
                spread = text.splat(value, lanes.element, lanes.lanes)
                text.store_vector(lanes, lanes.multiply_add(text, spread, factor, total), to)
