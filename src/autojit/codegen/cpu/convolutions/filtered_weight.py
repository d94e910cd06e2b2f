"""The derivative by the weight by minimal filtering: for each point, sums over tiles of seen channels by made ones.

A *unit* is a group, a block of the image's channels, a block of the result's, and a part of all tiles. It transforms
the tiles of both, block by block of tiles, adds up ``sums[channel, made channel] += seen[tile, channel] * made[tile,
made channel]`` of every point, and transforms the sums to taps at the end. Where tiles are cut into parts, each has
weights of its own in a memory of partial results, which `_combine` adds up. Parts and blocks depend on shapes alone,
so results do not depend on threads.

As tiles add up numbers that cancel, an infinity makes NaN of the weights of its channel.
"""

from __future__ import annotations

from autojit.codegen.cpu.chunks import wanted_chunks
from autojit.codegen.cpu.convolutions.blocked import UNPACK, write_pack_block, write_unpack_block
from autojit.codegen.cpu.convolutions.filtered import MAX_CHUNKS, POINT_NS
from autojit.codegen.cpu.convolutions.filtered_parts import (
    Products,
    Stack,
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
from autojit.codegen.cpu.convolutions.minimal_filtering import transposed
from autojit.codegen.cpu.convolutions.movers import Lanes
from autojit.codegen.cpu.convolutions.packing import divide, offset
from autojit.codegen.cpu.convolutions.tile_places import BlockOfTiles, Places
from autojit.codegen.cpu.kernel_text import KernelText
from autojit.codegen.cpu.machine import aligned
from autojit.codegen.cpu.vector_text import INTERNAL, VectorKernel, VectorModule, VectorText
from autojit.codegen.module_text import WALKED, Signature
from autojit.codegen.target import HostTarget
from autojit.core.dtypes import float32
from autojit.core.sizes import typical

ADDED = Signature("add_parts", "ptr weight, ptr partial")


class FilteredWeightPrinter:
    """Writes the module of one derivative by the weight."""

    def __init__(self, window: Window, target: HostTarget) -> None:
        self.window, self.size = window, float32.size_bytes
        self.lanes = lanes = Lanes(float32, target.vector_bytes // self.size)
        self.vector = lanes.size_bytes
        self.blocks = blocks_of(window)
        self.block_lanes, self.lane_blocks = cut_evenly(window.lanes, CHANNELS, lanes.lanes)
        self.block_steps, self.step_blocks = cut_evenly(window.steps, CHANNELS, lanes.lanes)
        height, width = register_tile(target, min(window.steps, self.block_steps), self.block_lanes // lanes.lanes)
        self.block_lanes = -(-self.block_lanes // (lanes.lanes * width)) * lanes.lanes * width
        points = window.seen[0] * window.seen[1]
        self.seen = Stack(points, self.blocks.tiles, self.block_steps, self.size)
        self.made = Stack(points, self.blocks.tiles, self.block_lanes, self.size)
        self.sums = Stack(points, -(-self.block_steps // height) * height, self.block_lanes, self.size)
        self.products = Products(lanes, self.seen, True, self.made, self.sums, height, width)
        forms = (lanes, window.image, window.seen, window.made, window.padding, self.blocks)
        self.seen_places = Places("seen", *forms, window.operand)
        made = window.result, window.made, window.made, (0, 0), self.blocks, window.operand
        self.made_places = Places("made", lanes, *made)
        self.module = VectorModule(WALKED)
        self._plan_units()
        self._plan_scratch()

    def _plan_units(self) -> None:
        window = self.window
        tiles = typical(window.images) * window.tiles[0] * window.tiles[1]
        products = tiles * self.sums.points * window.steps * window.lanes * window.groups
        self.estimate = 1000.0 + POINT_NS * products
        self.owned = window.groups * self.lane_blocks * self.step_blocks
        wanted = wanted_chunks(self.estimate, 0, MAX_CHUNKS)
        self.parts = max(1, min(typical(self.blocks.count), wanted // self.owned))
        self.part = part_of(self.blocks.count, self.parts)
        self.units = self.owned * self.parts
        self.units_per_chunk = -(-self.units // wanted)
        self.chunks = -(-self.units // self.units_per_chunk)
        self.results = window.groups * window.lanes * window.steps * window.taps
        self.partial_bytes = aligned(-(-self.parts * self.results * self.size // self.chunks)) if self.parts > 1 else 0

    def _plan_scratch(self) -> None:
        sizes = {
            "zeros": self.products.zero_bytes,
            "finite": self.vector,
            "seen_at": self.seen_places.table_bytes,
            "made_at": self.made_places.table_bytes,
            "image": self.seen_places.block_bytes,
            "places": self.made_places.block_bytes,
            "weight": (self.block_steps * self.window.taps + self.lanes.lanes) * self.vector,
            "seen": self.seen.size_bytes,
            "made": self.made.size_bytes,
            "sums": self.sums.size_bytes,
        }
        self.room, self.scratch_bytes = {}, 0
        for name, size_bytes in sizes.items():
            self.room[name] = self.scratch_bytes
            self.scratch_bytes += aligned(size_bytes)

    def print(self) -> KernelText:
        """The kernel."""
        kernel = self._kernel()
        module, lanes = self.module, self.lanes
        height, width = self.window.forms
        write_pack_block(module, lanes, self.window.operand)
        write_unpack_block(module, lanes)
        self.seen_places.write(module)
        self.made_places.write(module)
        write_gather(module, lanes, "gather_seen", (height.data, width.data))
        write_gather(module, lanes, "gather_made", (transposed(height.result), transposed(width.result)))
        write_scatter(module, lanes, "scatter_taps", (transposed(height.weight), transposed(width.weight)))
        self.products.write(module)
        module.table("@taps_at", [k * self.vector for k in range(self.window.taps)])
        if self.partial_bytes:
            self._combine()
        return kernel.kernel_text(
            self.chunks, self.estimate, partial_bytes=self.partial_bytes, scratch_bytes=self.scratch_bytes
        )

    def _kernel(self) -> VectorKernel:
        text = VectorKernel(self.module, "kernel")
        has_parts = bool(self.partial_bytes)
        self.image, self.output, self.weight, *rooms = text.pointers([0] * (4 + has_parts))
        if has_parts:
            self.weight = rooms[0]
        own = text.at(rooms[-1], text.mul("%worker", self.scratch_bytes))
        self.at = {name: text.at(own, place) for name, place in self.room.items()}
        text.fill_bytes(self.at["zeros"], 0, self.products.zero_bytes)
        for name in ("finite", "image", "places"):
            text.fill_bytes(self.at[name], 0, self.vector)
        with text.loop(*text.chunk_bounds(self.units_per_chunk, self.units)) as unit:
            self._unit(text, unit)
        text.finish()
        return text

    def _unit(self, text: VectorText, unit: str) -> None:
        window = self.window
        part, owned = divide(text, unit, self.owned)
        rest, step_block = divide(text, owned, self.step_blocks)
        group, lane_block = divide(text, rest, self.lane_blocks)
        first_step, first_lane = text.mul(step_block, self.block_steps), text.mul(lane_block, self.block_lanes)
        steps = text.least(text.sub(window.steps, first_step), self.block_steps)
        lanes = text.least(text.sub(window.lanes, first_lane), self.block_lanes)
        begin = text.mul(part, self.part)
        end = text.least(text.add(begin, self.part), self.blocks.count)
        with text.when(text.test("sge", begin, end)):
            text.fill_bytes(self.at["sums"], 0, self.sums.size_bytes)
        with text.loop(begin, end) as number:
            add = text.convert("zext", text.test("sgt", number, begin), "i1")
            self._block(text, number, group, (first_step, steps, first_lane, lanes), add)
        row = window.steps * window.taps
        terms = [(part, self.results), (group, window.lanes * row), (first_lane, row), (first_step, window.taps)]
        target = text.at(self.weight, text.mul(offset(text, terms), self.size))
        self._write(text, target, steps, lanes)

    def _block(self, text: VectorText, number: str, group: str, channels: tuple[str, str, str, str], add: str) -> None:
        window, at = self.window, self.at
        first_step, steps, first_lane, lanes = channels
        here = BlockOfTiles.numbered(text, number, self.blocks, window.images)
        seen, made = (p.span(text, here.first_row, here.rows) for p in (self.seen_places, self.made_places))
        self.seen_places.tables(text, here.rows, seen, at["seen_at"])
        self.made_places.tables(text, here.rows, made, at["made_at"])
        with text.loop(0, here.images) as image:
            number = text.add(here.first_image, image)
            first_tile = text.mul(image, here.of_image)
            for name, base, places, span, stack, of_group, first, count in (
                ("seen", self.image, self.seen_places, seen, self.seen, window.steps, first_step, steps),
                ("made", self.output, self.made_places, made, self.made, window.lanes, first_lane, lanes),
            ):
                planes = places.planes(
                    text, base, [(number, window.groups * of_group), (group, of_group), (first, 1)], span
                )
                block = at["image" if name == "seen" else "places"]
                where = (at[f"{name}_at"], block, text.at(at[name], text.mul(first_tile, stack.row_bytes)))
                places.read(text, (planes, count, span), here.of_image, where, stack)
        tiles = text.mul(here.images, here.of_image)
        text.call(self.products.signature, at["seen"], at["made"], at["sums"], tiles, steps, add, at["zeros"])

    def _write(self, text: VectorText, target: str, steps: str, lanes: str) -> None:
        """Transform the sums of a unit to taps."""
        taps, row_bytes = self.window.taps, self.window.steps * self.window.taps * self.size
        with text.loop(0, lanes, self.lanes.lanes) as lane:
            column = text.at(self.at["sums"], text.mul(lane, self.size))
            to = self.at["weight"], taps * self.vector, self.sums.matrix_bytes
            text.call(scatter_signature("scatter_taps"), column, self.sums.row_bytes, "@taps_at", 0, *to, steps)
            rows = text.at(target, text.mul(lane, row_bytes))
            last = text.sub(text.sub(lanes, lane), 1)
            count = text.mul(steps, taps)
            text.call(UNPACK, self.at["weight"], count, rows, row_bytes, last, self.at["finite"])

    def _combine(self) -> None:
        """Add the parts' weights, in their order."""
        VectorText.define(self.module, ADDED, self._write_added, linkage="internal", attributes=INTERNAL)
        text = VectorKernel(self.module, "kernel_combine")
        _, _, weight, partial, _ = text.pointers([0] * 5)
        text.call(ADDED, weight, partial)
        text.finish()

    def _write_added(self, text: VectorText) -> None:
        with text.loop(0, self.results, stem="weight") as place:
            at = text.mul(place, self.size)
            total = "0.0"
            for part in range(self.parts):
                source = text.at("%partial", text.add(at, part * self.results * self.size))
                total = text.binary("fadd", total, text.load("float", source), "float")
            text.store("float", total, text.at("%weight", at))
