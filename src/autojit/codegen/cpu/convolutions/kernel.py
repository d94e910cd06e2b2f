"""Convolutions and transposed convolutions: tiles of a few result channels by vectors of places, without im2col.

A *unit* is an image, a group, a band and a block of result channels. Its kernel packs the image, then, for every tile
of rows (result channels) and every run of places, holds the tile in registers while channels and taps run::

    for each channel, for each tap
        load the vectors of places once, broadcast one weight per row, multiply and add

Runs, tiles and packed images are cut by `convolutions.tiles`. Where runs hold places of no meaning, or where places are
apart in the result, a tile is staged and copied. An element is one chain of multiply-adds whatever tile computes it, so
results do not depend on threads or machines.

Reading order: ``print_convolution``, ``_Printer._unit``, ``_tile_function``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from itertools import product
from math import prod

from autojit.codegen.cpu.chunks import wanted_chunks
from autojit.codegen.cpu.convolutions.filtered import FilteredPrinter
from autojit.codegen.cpu.convolutions.filtered_plan import Window, is_worth_filtering, window_of
from autojit.codegen.cpu.convolutions.filtered_weight import FilteredWeightPrinter
from autojit.codegen.cpu.convolutions.layout import Layout, Phase, forward_layout, transposed_layout
from autojit.codegen.cpu.convolutions.movers import Lanes
from autojit.codegen.cpu.convolutions.packing import (
    VECTOR_BYTES,
    divide,
    offset,
    pack_signature,
    write_pack,
)  # fmt: skip
from autojit.codegen.cpu.convolutions.paired_weights import PAIR_WEIGHTS, PairedWeights
from autojit.codegen.cpu.convolutions.tiles import HeldTile, Registers, best_cut
from autojit.codegen.cpu.convolutions.unit_weights import UnitWeights, images_together
from autojit.codegen.cpu.convolutions.weight_columns import WeightColumns, has_columns
from autojit.codegen.cpu.convolutions.weight_kernel import print_convolution_weight
from autojit.codegen.cpu.kernel_text import KernelText
from autojit.codegen.cpu.machine import aligned
from autojit.codegen.cpu.vector_text import INTERNAL, VectorKernel, VectorModule, VectorText
from autojit.codegen.function_text import Operand, State
from autojit.codegen.module_text import Signature
from autojit.codegen.target import HostTarget
from autojit.core.errors import SpecializeSize
from autojit.core.sizes import expression_of, is_symbolic, size_max, typical
from autojit.ir.graph import Node
from autojit.ops.convolution import Convolution, ConvolutionInput, ConvolutionWeight, Trilinear

MOST_UNROLLED = 384
"""Multiply-adds written out one by one; more are walked by a loop over a table of lines of taps, or of taps.

Against code that takes long to compile; no measurement is recorded.
"""

MOST_OPEN = 125
"""Taps of a kernel on grids of open extents, 5 x 5 x 5: their places are words of the call, so each is written out."""

MAX_CHUNKS = 16  # every chunk packs its images; no measurement is recorded
MULTIPLY_NS = {4: 0.012, 8: 0.024}
"""One multiply-add of an element of this many bytes; only cuts work into chunks.

A Zen 4 core with AVX2 takes twice as long (60 to 89 GF/s), so chunks have more than the least work.
"""


def print_convolution(node: Node, target: HostTarget) -> KernelText:
    """The kernel of one of the three convolutions, on contiguous operands; the batch and the grids may be open.

    Raises:
        SpecializeSize: another size is symbolic, or the kernel has many taps and the grids are open.
    """
    assert isinstance(node.op, Trilinear)
    shapes = dict(zip(node.op.roles, (v.type.shape for v in (*node.inputs, *node.outputs)), strict=True))
    fixed = (*shapes["w"], shapes["x"][1], shapes["y"][1])
    grids = (*shapes["x"][2:], *shapes["y"][2:])
    many_taps = prod(shapes["w"][2:]) > MOST_OPEN
    names = dict.fromkeys(name for n in (*fixed, *(grids if many_taps else ())) for name in expression_of(n).symbols())
    if names:
        raise SpecializeSize(tuple(names), f"{node.op.name} takes only its batch and its grids as they come")
    by_weight, window = isinstance(node.op, ConvolutionWeight), window_of(node)
    if window is not None and is_worth_filtering(window, by_weight=by_weight):
        write = _filtered if is_symbolic(window.images) else _filtered_once
        return write(window, node.op.roles, target)
    if by_weight:
        return WeightColumns(node, target).print() if has_columns(node) else print_convolution_weight(node, target)
    of_pairs = node.inputs[0].type.dtype is not node.outputs[0].type.dtype
    return _Printer(node, Registers.of(target, of_pairs=of_pairs)).print()


def _filtered(window: Window, roles: str, target: HostTarget) -> KernelText:
    """The kernel by minimal filtering."""
    if roles == ConvolutionWeight.roles:
        return FilteredWeightPrinter(window, target).print()
    return FilteredPrinter(window, roles == ConvolutionInput.roles, target).print()


_filtered_once = lru_cache(maxsize=64)(_filtered)
"""Layers repeat themselves, and these kernels are long. Open sizes of one value are not the same, so not for them."""


class _Printer:
    """Writes the module of one convolution."""

    def __init__(self, node: Node, registers: Registers) -> None:
        op = node.op
        assert isinstance(op, Convolution | ConvolutionInput)
        image, weight = (v.type for v in node.inputs)
        self.dtype, self.operand = node.outputs[0].type.dtype, image.dtype
        self.size = self.dtype.size_bytes
        self.lanes = Lanes(self.dtype, VECTOR_BYTES // self.size, registers.of_pairs)
        self.groups = op.groups
        self.images = image.shape[0]
        self.all_channels = image.shape[1] // op.groups
        self.channels = -(-self.all_channels // 2) if self.lanes.of_pairs else self.all_channels
        self.rows = node.outputs[0].type.shape[1] // op.groups
        kernel = weight.shape[2:]
        taps, row_bytes = prod(kernel), max(self.channels, 1) * self.size
        if isinstance(op, Convolution):
            laid_out: Callable[[bool], Layout] = partial(
                forward_layout, op, image.shape[2:], kernel, op.extents, row_bytes
            )
            self.weight_row, self.weight_channel = self.channels * taps, taps
        else:
            laid_out = partial(transposed_layout, op, image.shape[2:], kernel, row_bytes)
            self.weight_row, self.weight_channel = taps, self.rows * taps
        self.weights_per_group = self.rows * self.channels * taps
        layouts = [laid_out(False)]
        if not layouts[0].is_open and kernel[-1] > 1:
            layouts.append(laid_out(True))
        self.cut = best_cut(layouts, self.rows, self.channels, self.lanes.lanes, registers)
        self.layout, self.tiling, self.together = self.cut.layout, self.cut.tiling, registers.together
        self.row_step, self.ordered = self.weight_row, None
        if isinstance(op, ConvolutionInput) and not self.lanes.of_pairs:
            strides = self.weight_row, self.weight_channel
            self.ordered = UnitWeights.of(self.layout, self.channels, self.tiling.height, strides, self.size)
        if self.ordered is not None:
            self.layout, self.row_step = self.ordered.ordered, 1
        self.places = prod(self.layout.result)
        self.module, self.is_open = VectorModule(), self.layout.is_open
        self.pairs = None
        if self.lanes.of_pairs:
            lines = (self.groups * self.rows, taps) if isinstance(op, Convolution) else (self.groups, self.rows * taps)
            self.pairs = PairedWeights(*lines, self.all_channels)
        self._plan_taps()
        self._plan_units(taps)
        self._plan_scratch()

    def _plan_taps(self) -> None:
        """Whether a tile's function writes out all taps, or a line of them and a table says which lines, or one."""
        sums = self.tiling.height * len(self._vectors(self.tiling.width))
        phases = self.layout.phases
        is_few = self.is_open or sum(len(p.taps) for p in phases) * sums <= MOST_UNROLLED
        self.is_unrolled = is_few and not self.cut.trims
        lines = sum(p.line for p in phases) * sums
        self.by_lines = not self.is_unrolled and (is_few or lines <= 2 * MOST_UNROLLED)

    def _vectors(self, grains: int) -> list[Lanes]:
        """The vectors of this many grains, from left to right."""
        whole, half = divmod(grains, self.together)
        wide = replace(self.lanes, lanes=self.together * self.lanes.lanes)
        return [wide] * whole + [self.lanes] * half

    def _plan_units(self, taps: int) -> None:
        per_place = MULTIPLY_NS.get(self.size, 0.024) * self.groups * self.rows * self.channels * taps
        places = prod(self.layout.places)
        image_ns = per_place * typical(places) + 0.3 * typical(self.places)
        self.estimate = 1000.0 + typical(self.images) * image_ns
        packed = self.channels * self.layout.plane + self.cut.padded + self.layout.reach
        self.packed_bytes = aligned(packed * self.size)
        image_ps = round(1000 * per_place) * places + 300 * self.places if self.is_open else round(1000 * image_ns)
        most = MAX_CHUNKS if self.pairs is None else self.pairs.most_chunks(self.estimate, MAX_CHUNKS)
        wanted = wanted_chunks(self.estimate, self.images * image_ps, most)
        tiles = -(-self.rows // self.tiling.height) if self.rows else 1
        self.unit_images = 1
        if self.ordered is not None and self.groups == self.layout.bands == 1:
            parts = typical(self.images), packed, self.weights_per_group, typical(wanted), tiles
            self.unit_images = images_together(*parts, self.size)
        outer = -(-self.images // self.unit_images) * self.groups * self.layout.bands
        blocks = min(tiles, max(1, typical(wanted) // max(typical(outer), 1)))
        self.block_rows = -(-tiles // blocks) * self.tiling.height
        self.blocks = max(1, -(-self.rows // self.block_rows))
        self.units = outer * self.blocks if self.rows else 0
        self.units_per_chunk = size_max(1, -(-self.units // wanted))
        self.chunks = size_max(1, -(-self.units // self.units_per_chunk))

    def _plan_scratch(self) -> None:
        idle = self.cut.padded
        self.staged_bytes = aligned(self.tiling.height * idle * self.size)
        self.weight_bytes = 0 if self.pairs is None else aligned(self.pairs.size_bytes)
        if self.ordered is not None:
            self.weight_bytes = aligned(self.ordered.size_bytes(self.block_rows))
        self.images_bytes = self.unit_images * self.packed_bytes
        self.scratch_bytes = self.images_bytes + self.staged_bytes + self.weight_bytes

    def print(self) -> KernelText:
        shapes = list(product(self.tiling.heights, self.tiling.widths))
        kernel = self._kernel()
        write_pack(self.module, self.layout, self.lanes)
        is_shared = not (self.is_unrolled or self.by_lines)
        for number, phase in [(None, None)] if is_shared else enumerate(self.layout.phases):
            for height, grains in shapes:
                self._tile_function(height, grains, number, phase)
        for number, phase in enumerate(() if self.is_open else self.layout.phases):
            self._write_table(number, phase)
        if self.pairs is not None:
            self.pairs.write(self.module)
        if self.ordered is not None:
            self.ordered.write(self.module, self.lanes.element)
        return kernel.kernel_text(self.chunks, self.estimate, scratch_bytes=self.scratch_bytes)

    # -- the kernel

    def _kernel(self) -> VectorKernel:
        text = VectorKernel(self.module, "kernel")
        self.image, self.weight, self.result, scratch = text.pointers([0] * 4)
        self.packed = text.at(scratch, text.mul("%worker", self.scratch_bytes))
        self.staged = text.at(self.packed, self.images_bytes)
        if self.pairs is not None and not self.pairs.is_there:
            to = text.at(self.staged, self.staged_bytes)
            text.call(PAIR_WEIGHTS, self.weight, to)
            self.weight = to
        with text.loop(*text.chunk_bounds(self.units_per_chunk, self.units)) as unit:
            self._unit(text, unit)
        text.finish()
        return text

    def _unit(self, text: VectorText, unit: str) -> None:
        layout = self.layout
        rest, block = divide(text, unit, self.blocks)
        image, band = divide(text, rest, layout.bands)
        axis = layout.band_axis
        start = text.least(text.mul(band, layout.band[axis]), layout.places[axis] - layout.band[axis])
        text.fill_bytes(self.packed, 0, self.images_bytes)
        image_bytes = self.all_channels * prod(layout.image) * self.operand.size_bytes
        image = text.mul(image, self.unit_images)
        count = text.least(text.sub(self.images, image), self.unit_images) if self.unit_images > 1 else "1"
        with text.loop(0, count) as k:
            source = text.at(self.image, text.mul(text.add(image, k), image_bytes))
            packed = text.at(self.packed, text.mul(k, self.packed_bytes))
            text.call(pack_signature(layout), self.all_channels, source, start, packed)
        _, group = divide(text, image, self.groups)
        result = text.at(self.result, text.mul(image, self.rows * self.places * self.size))
        weight = text.at(self.weight, text.mul(group, self.weights_per_group * self.size))
        low = text.mul(block, self.block_rows)
        high = text.least(text.add(low, self.block_rows), self.rows)
        if self.ordered is not None:
            weight = self.ordered.copy(text, weight, (low, high), text.at(self.staged, self.staged_bytes))
        for number, phase in enumerate(layout.phases):
            self._phase(text, number, phase, (low, high), (weight, result, start, count))

    def _phase(
        self, text: VectorText, number: int, phase: Phase, rows: tuple[str, str], where: tuple[str, str, str, str]
    ) -> None:
        """All tiles of the unit's rows: whole ones, then what is left."""
        low, high = rows
        whole = text.sub(high, text.remainder(text.sub(high, low), self.tiling.height))
        with text.loop(low, whole, self.tiling.height) as row:
            self._rows(text, number, phase, (row, self.tiling.height), where)
        if self.tiling.last:
            with text.when(text.test("slt", whole, high)):
                self._rows(text, number, phase, (whole, self.tiling.last), where)

    def _rows(
        self, text: VectorText, number: int, phase: Phase, tile: tuple[str, int], where: tuple[str, str, str, str]
    ) -> None:
        layout, cut = self.layout, self.cut
        weight, result, start, images = where
        row, height = tile
        if self.ordered is None:
            weights = text.at(weight, text.mul(row, self.weight_row * self.size))
        else:
            place = text.mul(row, self.ordered.size_bytes(1))
            weights = text.at(weight, text.add(place, self.ordered.before(number) * self.size))
        _, rows, columns = layout.packed
        with text.loop(0, images) as k, text.loop(0, layout.band[0]) as d, text.loop(0, cut.count) as run:
            target = text.at(result, text.mul(text.add(text.mul(k, self.rows), row), self.places * self.size))
            packed = text.at(self.packed, text.mul(k, self.packed_bytes))
            h = text.least(text.mul(run, cut.rows), layout.band[1] - cut.rows)
            base = text.at(packed, text.mul(offset(text, [(d, rows * columns), (h, columns)]), self.size))
            if cut.is_direct:
                first = self._position(text, phase, start, d, h)
                place = text.at(target, text.mul(first, self.size))
                lines = self._lines(text, number, phase, (h, start))
                self._tiles(text, (number, height), (weights, base, place), self.places * self.size, lines)
            else:
                stride = cut.padded * self.size
                lines = self._lines(text, number, phase, (h, start))
                self._tiles(text, (number, height), (weights, base, self.staged), stride, lines)
                self._copy_out(text, phase, height, (target, start, d, h))

    def _position(self, text: VectorText, phase: Phase, start: str, d: str, h: str) -> Operand:
        """Where the row of places at (d, h) of the band begins in a channel of the result."""
        _, height, width = self.layout.result
        steps = self.layout.result_step
        strides = (height * width, width, 1)
        terms: list[tuple[Operand, int]] = [(d, steps[0] * strides[0]), (h, steps[1] * strides[1])]
        axis = self.layout.band_axis
        terms.append((start, steps[axis] * strides[axis]))
        return offset(text, terms, sum(f * s for f, s in zip(phase.first, strides, strict=True)))

    def _lines(self, text: VectorText, number: int, phase: Phase, row: tuple[str, str]) -> tuple[Operand, ...]:
        """The last arguments of a tile's function: the table of taps or lines of taps, and how many."""
        if self.is_unrolled:
            return ()
        if not (self.by_lines and self.cut.trims):
            line = max(phase.line, 1) if self.by_lines else 1
            return f"@taps_{number}", len(phase.taps) // line
        place = text.add(*row) if self.layout.band_axis == 1 else row[0]
        words = text.at(f"@seen_{number}", text.mul(place, 16))
        first, stop = (text.load("i64", text.at(words, 8 * k)) for k in (0, 1))
        table = text.at(f"@taps_{number}", text.mul(first, 16 * phase.line))
        return table, text.sub(stop, first)

    def _tiles(
        self,
        text: VectorText,
        which: tuple[int, int],
        places: tuple[str, str, str],
        stride: int,
        lines: tuple[Operand, ...],
    ) -> None:
        """Tiles from left to right over one run."""
        number, height = which
        weights, base, target = places
        tiling, size = self.tiling, self.size
        width, tail = (grains * self.lanes.lanes for grains in (tiling.width, tiling.tail))
        length = self.cut.length if self.cut.is_direct else self.cut.padded

        def tile(grains: int, first: Operand) -> None:
            at = first * size if isinstance(first, int) else text.mul(first, size)
            b, c = text.at(base, at), text.at(target, at)
            text.call(self._tile(height, grains, number), weights, b, c, stride, *lines)

        if tiling.tail:
            with text.loop(0, self.cut.padded - tail, width) as first:
                tile(tiling.width, first)
            tile(tiling.tail, length - tail)
            return
        with text.loop(0, length, width) as first:
            tile(tiling.width, text.least(first, length - width))

    def _tile(self, height: int, grains: int, number: int | None) -> Signature:
        """One tile; without a number, or by lines, the taps come as a table."""
        is_shared = number is None or not (self.is_unrolled or self.by_lines)
        table = "" if self.is_unrolled else ", ptr taps, i64 count"
        symbol = f"tile_{height}_{grains}" + ("" if is_shared else f"_{number}")
        return Signature(symbol, f"ptr a, ptr b, ptr c, i64 stride{table}", takes_sizes=self.is_open)

    def _copy_out(self, text: VectorText, phase: Phase, height: int, where: tuple[str, str, str, str]) -> None:
        """From the stage to the result: the places that the phase has."""
        target, start, d, h = where
        layout, size = self.layout, self.size
        counts: list[Operand] = list(phase.counts)
        axis = layout.band_axis
        counts[axis] = text.sub(phase.counts[axis], start)
        rows = text.least(text.sub(counts[1], h), self.cut.rows)
        columns = layout.band[2] if phase.counts[2] == layout.places[2] else text.least(counts[2], layout.band[2])
        stride = self.cut.padded
        first = self._position(text, phase, start, d, h)
        step = layout.result_step[2]
        with text.when(text.test("slt", d, counts[0])), text.loop(0, height) as r, text.loop(0, rows) as i:
            source = text.at(self.staged, text.mul(offset(text, [(r, stride), (i, layout.packed[2])]), size))
            line = layout.result_step[1] * layout.result[2]
            to = text.at(target, text.mul(text.add(offset(text, [(r, self.places), (i, line)]), first), size))
            if step == 1:
                text.copy_bytes(to, source, columns * size if isinstance(columns, int) else text.mul(columns, size))
            else:
                with text.loop(0, columns) as j:
                    value = text.load(self.lanes.element, text.at(source, text.mul(j, size)))
                    text.store(self.lanes.element, value, text.at(to, text.mul(j, step * size)))

    # -- tiles

    def _write_table(self, number: int, phase: Phase) -> None:
        self.module.table(f"@taps_{number}", [n * self.size for tap in phase.taps for n in tap] or [0])
        if self.cut.trims:
            seen = [n for row in range(self.layout.places[1]) for n in self.layout.seen(phase, row)]
            self.module.table(f"@seen_{number}", seen)

    def _tile_function(self, height: int, grains: int, number: int | None, phase: Phase | None) -> None:
        signature = self._tile(height, grains, number)
        text = VectorText(self.module, signature, linkage="internal", attributes=INTERNAL)
        tile = HeldTile(height, self._vectors(grains))
        sums = ["zeroinitializer"] * len(tile.kinds)
        if self.channels and (phase is None or phase.taps):
            if phase is None or not self.is_unrolled:
                sums = self._sum_table(text, tile, phase, sums)
            else:
                sums = self._sum_unrolled(text, tile, phase, sums)
        for row in range(height):
            line = text.at("%c", text.mul("%stride", row))
            for k, (vector, place) in enumerate(zip(tile.vectors, tile.places, strict=True)):
                text.store_vector(vector, sums[row * len(tile.vectors) + k], text.at(line, place))
        text.finish()

    def _sum_unrolled(self, text: VectorText, tile: HeldTile, phase: Phase, sums: State) -> State:
        def channel(state: State) -> State:
            left, a, b, *totals = state
            for tap, place in phase.taps:
                totals = self._tap(text, tile, (text.at(a, tap * self.size), text.at(b, place * self.size)), totals)
            return [text.sub(left, 1), *self._next_channel(text, phase, a, b), *totals]

        kinds = ["i64", "ptr", "ptr", *tile.kinds]
        return text.repeat(kinds, [self.channels, "%a", "%b", *sums], channel)[3:]

    def _sum_table(self, text: VectorText, tile: HeldTile, phase: Phase | None, sums: State) -> State:
        """Walk the table by taps, or by lines of taps that are placed alike in every line."""
        line = ((0, 0),) if phase is None else phase.taps[: phase.line]
        shifts = [((a - line[0][0]) * self.size, (b - line[0][1]) * self.size) for a, b in line]
        kinds = ["i64", "ptr", "ptr", *tile.kinds]

        def channel(state: State) -> State:
            left, a, b, *totals = state

            def tap(inner: State) -> State:
                remaining, row, *rest = inner
                shift_a, shift_b = (text.load("i64", text.at(row, 8 * k)) for k in (0, 1))
                first_a, first_b = text.at(a, shift_a), text.at(b, shift_b)
                for more_a, more_b in shifts:
                    rest = self._tap(text, tile, (text.at(first_a, more_a), text.at(first_b, more_b)), rest)
                return [text.sub(remaining, 1), text.at(row, 16 * len(shifts)), *rest]

            looped = ["i64", "ptr", *kinds[3:]]
            totals = text.while_left(1, looped, ["%count", "%taps", *totals], tap)[2:]
            return [text.sub(left, 1), *self._next_channel(text, phase, a, b), *totals]

        return text.repeat(kinds, [self.channels, "%a", "%b", *sums], channel)[3:]

    def _next_channel(self, text: VectorText, phase: Phase | None, a: str, b: str) -> list[str]:
        step: Operand = self.weight_channel * self.size
        if self.ordered is not None:
            taps = "%count" if phase is None else len(phase.taps)
            step = text.mul(taps, self.tiling.height * self.size)
        return [text.at(a, step), text.at(b, self.layout.plane * self.size)]

    def _tap(self, text: VectorText, tile: HeldTile, at: tuple[str, str], totals: State) -> State:
        a, b = at
        seen = [text.load_vector(v, text.at(b, place)) for v, place in zip(tile.vectors, tile.places, strict=True)]
        found: list[str] = []
        for row in range(tile.height):
            factor = text.load(self.lanes.element, text.at(a, row * self.row_step * self.size))
            spread = {v: text.splat(factor, v.element, v.lanes) for v in dict.fromkeys(tile.vectors)}
            for vector, places in zip(tile.vectors, seen, strict=True):
                found.append(vector.multiply_add(text, spread[vector], places, totals[len(found)]))
        return found
