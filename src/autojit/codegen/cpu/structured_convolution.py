"""Convolutions and transposed convolutions: tiles of a few result channels by vectors of places, without im2col.

A *unit* is an image, a group, a band and a block of result channels. Its kernel packs the image, then, for every tile
of rows (result channels) and every run of places, holds the tile in registers while channels and taps run::

    for each channel, for each tap
        load the vectors of places once, broadcast one weight per row, multiply and add

A run is one row of places, or several rows if that leaves fewer lanes idle; the last tile of a run moves back to
overlap the one before. Where runs hold places of no meaning, or where places lie apart in the result, a tile is staged
and copied. An element is one chain of multiply-adds whatever tile computes it, so results do not depend on threads.

Reading order: ``print_convolution``, ``_Runs`` (the cut of a band), ``_Printer.unit``, ``_tile_function``.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from autojit.codegen.cpu.chunks import wanted_chunks
from autojit.codegen.cpu.convolution_pack import (
    VECTOR_BYTES,
    Lanes,
    aligned,
    clear,
    copy,
    divide,
    more,
    offset,
    open_sizes,
    pack_function,
)  # fmt: skip
from autojit.codegen.cpu.convolution_plan import Layout, Phase, forward_layout, transposed_layout
from autojit.codegen.cpu.gemm_text import MODULE_TAIL, FunctionText
from autojit.codegen.cpu.kernel_text import KernelText
from autojit.codegen.cpu.structured_convolution_weight import print_convolution_weight
from autojit.core.errors import SpecializeSize
from autojit.core.sizes import expression_of, is_symbolic, size_max, typical
from autojit.ir.graph import Node
from autojit.ops.convolution import Convolution, ConvolutionInput, ConvolutionWeight, Trilinear

TALLEST = 6
VECTORS = {1: 8, 2: 4, 3: 4, 4: 3, 5: 2, 6: 2}
"""Vectors of places by rows of a tile: at most twelve sums, which leave room for operands in sixteen registers."""

RUN = 1024
"""Most places of a run over several rows: a staged tile stays in the first-level cache."""

MOST_UNROLLED = 32
"""Taps written out one by one; more are walked by a loop over a table."""

MOST_OPEN = 125
"""Taps of a kernel on grids of open extents: their places are words of the call, so each is written out."""

WORTH_TRIMMING = 0.8
"""Lines of taps that only see zeros are left out when no more than this part of all lines is left."""

MAX_CHUNKS = 16
MULTIPLY_NS = {4: 0.012, 8: 0.024}
"""One multiply-add of an element of so many bytes; only cuts work into chunks."""


def print_convolution(node: Node) -> KernelText:
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
    if isinstance(node.op, ConvolutionWeight):
        return print_convolution_weight(node)
    return _Printer(node).print()


@dataclass(frozen=True)
class _Runs:
    """How the places of a band are cut: ``rows`` rows of places per run, tiles of ``vectors`` vectors."""

    rows: int
    count: int
    length: int
    vectors: int
    is_direct: bool
    trims: bool

    def padded(self, lanes: int) -> int:
        """Places that the tiles of a run compute."""
        return -(-self.length // (self.vectors * lanes)) * self.vectors * lanes


def _cut(layout: Layout, tallest: int, lanes: int) -> _Runs:
    """One row per run or several: what computes less, idle lanes and taps that see only zeros included.

    A run of one row can leave out the lines of taps that see only zeros (it trims); that pays when there are many.
    """
    _, height, width = layout.band
    columns = layout.packed[2]
    if layout.is_open:
        rows = -(-height // -(-height // size_max(1, RUN // columns)))
        length = (rows - 1) * columns + width
        return _Runs(rows, -(-height // rows), length, VECTORS[tallest], is_direct=False, trims=False)
    groups = -(-height // max(1, RUN // columns))
    rows = -(-height // groups)
    found = []
    for count in dict.fromkeys((1, rows)):
        length = (count - 1) * columns + width
        vectors = max(1, min(VECTORS[tallest], -(-length // lanes)))
        plain = max(layout.result_step) == 1 and (count == 1 or columns == width)
        share = _seen_share(layout) if count == 1 else 1.0
        trims = share < WORTH_TRIMMING
        runs = _Runs(count, -(-height // count), length, vectors, plain and length >= vectors * lanes, trims)
        work = runs.padded(lanes) / (count * width) * (share if trims else 1.0)
        found.append((work, not runs.is_direct, runs))
    return min(found, key=lambda item: item[:2])[2]


def _seen_share(layout: Layout) -> float:
    """Which part of all pairs of a row of places and a line of taps sees the image."""
    if not layout.is_flat:
        return 1.0
    pairs = [(layout.seen(phase, row), len(phase.rows)) for phase in layout.phases for row in range(phase.counts[1])]
    return sum(stop - first for (first, stop), _ in pairs) / max(1, sum(count for _, count in pairs))


class _Printer:
    """Writes the module of one convolution."""

    def __init__(self, node: Node) -> None:
        op = node.op
        assert isinstance(op, Convolution | ConvolutionInput)
        image, weight = (v.type for v in node.inputs)
        self.dtype = image.dtype
        self.size = self.dtype.size_bytes
        self.lanes = Lanes(self.dtype, VECTOR_BYTES // self.size)
        self.groups = op.groups
        self.images = image.shape[0]
        self.channels = image.shape[1] // op.groups
        self.rows = node.outputs[0].type.shape[1] // op.groups
        kernel = weight.shape[2:]
        taps, row_bytes = prod(kernel), max(self.channels, 1) * self.size
        if isinstance(op, Convolution):
            self.layout = forward_layout(op, image.shape[2:], kernel, op.extents, row_bytes)
            self.weight_row, self.weight_channel = self.channels * taps, taps
        else:
            self.layout = transposed_layout(op, image.shape[2:], kernel, row_bytes)
            self.weight_row, self.weight_channel = taps, self.rows * taps
        self.weights_per_group = self.rows * self.channels * taps
        blocks = max(1, -(-self.rows // TALLEST))
        self.height = max(1, -(-self.rows // blocks))
        self.runs = _cut(self.layout, self.height, self.lanes.lanes)
        self.places = prod(self.layout.result)
        self.sizes = open_sizes(self.layout)
        few = self.sizes is not None or sum(len(p.taps) for p in self.layout.phases) <= MOST_UNROLLED
        self.by_lines = self.runs.trims and few  # the tile's function knows a line of taps, a table says which lines
        self.is_unrolled = few and not self.by_lines
        self._plan_units(taps)
        self._plan_scratch()

    def _plan_units(self, taps: int) -> None:
        per_place = MULTIPLY_NS.get(self.size, 0.024) * self.groups * self.rows * self.channels * taps
        places = prod(self.layout.places)
        image_ns = per_place * typical(places) + 0.3 * typical(self.places)
        self.estimate = 1000.0 + typical(self.images) * image_ns
        outer = self.images * self.groups * self.layout.bands
        image_ps = (
            round(1000 * image_ns) if self.sizes is None else round(1000 * per_place) * places + 300 * self.places
        )
        wanted = wanted_chunks(self.estimate, self.images * image_ps, MAX_CHUNKS)
        tiles = -(-self.rows // self.height) if self.rows else 1
        blocks = min(tiles, max(1, typical(wanted) // max(typical(outer), 1)))
        self.block_rows = -(-tiles // blocks) * self.height
        self.blocks = max(1, -(-self.rows // self.block_rows))
        self.units = outer * self.blocks if self.rows else 0
        self.units_per_chunk = size_max(1, -(-self.units // wanted))
        self.chunks = size_max(1, -(-self.units // self.units_per_chunk))

    def _plan_scratch(self) -> None:
        idle = self.runs.padded(self.lanes.lanes)
        self.packed_bytes = aligned((self.channels * self.layout.plane + idle + self.layout.reach) * self.size)
        self.staged_bytes = aligned(self.height * idle * self.size)

    def print(self) -> KernelText:
        remainder = self.rows % self.height
        heights = [h for h in dict.fromkeys((self.height, remainder)) if h]
        functions = [self._kernel(), pack_function(self.layout, self.lanes, self.sizes)]
        if self.is_unrolled or self.by_lines:
            for number, phase in enumerate(self.layout.phases):
                functions += [self._tile_function(h, number, phase) for h in heights]
        else:
            functions += [self._tile_function(h, None, None) for h in heights]
        phases = self.layout.phases if self.sizes is None else ()
        tables = [self._table(number, phase) for number, phase in enumerate(phases)]
        text = "\n".join([*functions, *tables, *self.lanes.declarations(), MODULE_TAIL])
        scratch = self.packed_bytes + self.staged_bytes
        sizes = tuple(filter(is_symbolic, (self.units_per_chunk, self.units)))
        if self.sizes is not None:
            sizes = tuple(self.sizes.words)
        return KernelText(text, self.chunks, 0, self.estimate, reports=False, scratch_bytes=scratch, sizes=sizes)

    # -- the kernel

    def _kernel(self) -> str:
        text = FunctionText("void @kernel(ptr %args, i64 %chunk, i64 %worker) #0", self.sizes)
        names = ("image", "weight", "result", "scratch")
        for k, name in enumerate(names):
            text.line(f"%{name} = load ptr, ptr {text.at('%args', 8 * k)}, align 8")
        if self.sizes is not None:
            text.read_sizes(len(names))
        text.line(f"%skip = mul i64 %worker, {text.number(self.packed_bytes + self.staged_bytes)}")
        text.line("%packed = getelementptr i8, ptr %scratch, i64 %skip")
        text.line(f"%staged = getelementptr i8, ptr %packed, i64 {text.number(self.packed_bytes)}")
        cut: list[str | int] = [self.units_per_chunk, self.units]
        per_chunk, units = cut if self.sizes is not None else text.sizes(len(names), (self.units_per_chunk, self.units))
        first = text.mul("%chunk", per_chunk)
        stop = text.least(text.add(first, per_chunk), units)
        with text.loop(first, stop, 1) as unit:
            self._unit(text, unit)
        return text.finish()

    def _unit(self, text: FunctionText, unit: str) -> None:
        layout = self.layout
        rest, block = divide(text, unit, self.blocks)
        image, band = divide(text, rest, layout.bands)
        axis = layout.band_axis
        start = text.least(text.mul(band, layout.band[axis]), layout.places[axis] - layout.band[axis])
        clear(text, "%packed", self.packed_bytes)
        source = text.at("%image", text.mul(image, self.channels * prod(layout.image) * self.size))
        text.line(f"call void @pack(i64 {self.channels}, ptr {source}, i64 {start}, ptr %packed{more(self.sizes)})")
        _, group = divide(text, image, self.groups)
        result = text.at("%result", text.mul(image, self.rows * self.places * self.size))
        weight = text.at("%weight", text.mul(group, self.weights_per_group * self.size))
        low = text.mul(block, self.block_rows)
        high = text.least(text.add(low, self.block_rows), self.rows)
        for number, phase in enumerate(layout.phases):
            self._phase(text, number, phase, (low, high), (weight, result, start))

    def _phase(
        self, text: FunctionText, number: int, phase: Phase, rows: tuple[str, str], where: tuple[str, str, str]
    ) -> None:
        """All tiles of the unit's rows: whole ones, then what is left."""
        low, high = rows
        whole = text.sub(high, text.value(f"urem i64 {text.sub(high, low)}, {self.height}"))
        with text.loop(low, whole, self.height) as row:
            self._rows(text, number, phase, (row, self.height), where)
        if self.rows % self.height:
            with text.when(text.test("slt", whole, high)):
                self._rows(text, number, phase, (whole, self.rows % self.height), where)

    def _rows(
        self, text: FunctionText, number: int, phase: Phase, tile: tuple[str, int], where: tuple[str, str, str]
    ) -> None:
        layout, runs = self.layout, self.runs
        weight, result, start = where
        row, height = tile
        weights = text.at(weight, text.mul(row, self.weight_row * self.size))
        target = text.at(result, text.mul(row, self.places * self.size))
        _, rows, columns = layout.packed
        with text.loop(0, layout.band[0], 1) as d, text.loop(0, runs.count, 1) as run:
            h = text.least(text.mul(run, runs.rows), layout.band[1] - runs.rows)
            base = text.at("%packed", text.mul(offset(text, [(d, rows * columns), (h, columns)]), self.size))
            if runs.is_direct:
                first = self._position(text, phase, start, d, h)
                place = text.at(target, text.mul(first, self.size))
                lines = self._lines(text, number, phase, (h, start))
                self._tiles(text, (number, height), (weights, base, place), self.places * self.size, lines)
            else:
                stride = runs.padded(self.lanes.lanes) * self.size
                lines = self._lines(text, number, phase, (h, start))
                self._tiles(text, (number, height), (weights, base, "%staged"), stride, lines)
                self._copy_out(text, phase, height, (target, start, d, h))

    def _position(self, text: FunctionText, phase: Phase, start: str, d: str, h: str) -> str | int:
        """Where the row of places at (d, h) of the band begins in a channel of the result."""
        _, height, width = self.layout.result
        steps = self.layout.result_step
        strides = (height * width, width, 1)
        terms: list[tuple[str | int, int]] = [(d, steps[0] * strides[0]), (h, steps[1] * strides[1])]
        axis = self.layout.band_axis
        terms.append((start, steps[axis] * strides[axis]))
        return offset(text, terms, sum(f * s for f, s in zip(phase.first, strides, strict=True)))

    def _lines(self, text: FunctionText, number: int, phase: Phase, row: tuple[str, str]) -> str:
        """The last arguments of a tile's function: the table of taps or lines of taps, and how many."""
        if self.is_unrolled:
            return ""
        if not self.by_lines:
            return f", ptr @taps_{number}, i64 {len(phase.taps)}"
        place = text.add(*row) if self.layout.band_axis == 1 else row[0]
        words = text.at(f"@seen_{number}", text.mul(place, 16))
        first, stop = (text.value(f"load i64, ptr {text.at(words, 8 * k)}, align 8") for k in (0, 1))
        table = text.at(f"@taps_{number}", text.mul(first, 16 * phase.line))
        return f", ptr {table}, i64 {text.sub(stop, first)}"

    def _tiles(
        self, text: FunctionText, which: tuple[int, int], places: tuple[str, str, str], stride: int, lines: str
    ) -> None:
        """Tiles from left to right over one run."""
        number, height = which
        weights, base, target = places
        width = self.runs.vectors * self.lanes.lanes
        length = self.runs.length if self.runs.is_direct else self.runs.padded(self.lanes.lanes)
        name = f"tile_{height}_{number}" if self.is_unrolled or self.by_lines else f"tile_{height}"
        with text.loop(0, length, width) as first:
            at = text.mul(text.least(first, length - width), self.size)
            b, c = text.at(base, at), text.at(target, at)
            arguments = f"ptr {weights}, ptr {b}, ptr {c}, i64 {text.number(stride)}{lines}{more(self.sizes)}"
            text.line(f"call void @{name}({arguments})")

    def _copy_out(self, text: FunctionText, phase: Phase, height: int, where: tuple[str, str, str, str]) -> None:
        """From the stage to the result: the places that the phase has."""
        target, start, d, h = where
        layout, size = self.layout, self.size
        counts: list[str | int] = list(phase.counts)
        axis = layout.band_axis
        counts[axis] = text.sub(phase.counts[axis], start)
        rows = text.least(text.sub(counts[1], h), self.runs.rows)
        columns = layout.band[2] if phase.counts[2] == layout.places[2] else text.least(counts[2], layout.band[2])
        stride = self.runs.padded(self.lanes.lanes)
        first = self._position(text, phase, start, d, h)
        step = layout.result_step[2]
        with text.when(text.test("slt", d, counts[0])), text.loop(0, height, 1) as r, text.loop(0, rows, 1) as i:
            source = text.at("%staged", text.mul(offset(text, [(r, stride), (i, layout.packed[2])]), size))
            line = layout.result_step[1] * layout.result[2]
            to = text.at(target, text.mul(text.add(offset(text, [(r, self.places), (i, line)]), first), size))
            if step == 1:
                copy(text, to, source, columns * size if isinstance(columns, int) else text.mul(columns, size))
            else:
                self._scatter_row(text, columns, source, to)

    def _scatter_row(self, text: FunctionText, columns: str | int, source: str, to: str) -> None:
        size, element = self.size, self.lanes.element
        with text.loop(0, columns, 1) as j:
            value = text.value(f"load {element}, ptr {text.at(source, text.mul(j, size))}, align {size}")
            place = text.at(to, text.mul(j, self.layout.result_step[2] * size))
            text.line(f"store {element} {value}, ptr {place}, align {size}")

    # -- tiles

    def _table(self, number: int, phase: Phase) -> str:
        words = [n * self.size for tap in phase.taps for n in tap] or [0]
        listed = ", ".join(f"i64 {word}" for word in words)
        table = f"@taps_{number} = internal constant [{len(words)} x i64] [{listed}], align 16"
        if not self.by_lines:
            return table
        seen = [n for row in range(self.layout.places[1]) for n in self.layout.seen(phase, row)]
        listed = ", ".join(f"i64 {word}" for word in seen)
        return f"{table}\n@seen_{number} = internal constant [{len(seen)} x i64] [{listed}], align 16"

    def _tile_function(self, height: int, number: int | None, phase: Phase | None) -> str:
        """``void (weights, places, target, stride)``: one tile; without a phase the taps come as a table."""
        name = f"tile_{height}" if number is None else f"tile_{height}_{number}"
        table = "" if self.is_unrolled else ", ptr %taps, i64 %count"
        parameters = f"ptr %a, ptr %b, ptr %c, i64 %stride{table}{more(self.sizes)}"
        text = FunctionText(f"internal void @{name}({parameters}) #1", self.sizes)
        sums = ["zeroinitializer"] * (height * self.runs.vectors)
        if self.channels and (phase is None or phase.taps):
            if phase is None or not self.is_unrolled:
                sums = self._sum_table(text, height, phase, sums)
            else:
                sums = self._sum_unrolled(text, height, phase, sums)
        for k, total in enumerate(sums):
            row, vector = divmod(k, self.runs.vectors)
            address = text.at("%c", text.add(text.mul("%stride", row), vector * VECTOR_BYTES))
            text.store(self.lanes, total, address)
        return text.finish()

    def _sum_unrolled(self, text: FunctionText, height: int, phase: Phase, sums: list[str]) -> list[str]:
        def channel(state: list[str]) -> list[str]:
            left, a, b, *totals = state
            for tap, place in phase.taps:
                totals = self._tap(text, height, (text.at(a, tap * self.size), text.at(b, place * self.size)), totals)
            return [text.sub(left, 1), *self._next_channel(text, a, b), *totals]

        kinds = ["i64", "ptr", "ptr", *[self.lanes.text] * len(sums)]
        return text.repeat(kinds, [str(self.channels), "%a", "%b", *sums], channel)[3:]

    def _sum_table(self, text: FunctionText, height: int, phase: Phase | None, sums: list[str]) -> list[str]:
        """Walk the table by taps, or by lines of taps that lie alike in every line."""
        line = ((0, 0),) if phase is None else phase.taps[: phase.line]
        shifts = [((a - line[0][0]) * self.size, (b - line[0][1]) * self.size) for a, b in line]
        kinds = ["i64", "ptr", "ptr", *[self.lanes.text] * len(sums)]

        def channel(state: list[str]) -> list[str]:
            left, a, b, *totals = state

            def tap(inner: list[str]) -> list[str]:
                remaining, row, *rest = inner
                shift_a, shift_b = (text.value(f"load i64, ptr {text.at(row, 8 * k)}, align 8") for k in (0, 1))
                first_a, first_b = text.at(a, shift_a), text.at(b, shift_b)
                for more_a, more_b in shifts:
                    rest = self._tap(text, height, (text.at(first_a, more_a), text.at(first_b, more_b)), rest)
                return [text.sub(remaining, 1), text.at(row, 16 * len(shifts)), *rest]

            looped = ["i64", "ptr", *kinds[3:]]
            totals = text.repeat_while(1, looped, ["%count", "%taps", *totals], tap)[2:]
            return [text.sub(left, 1), *self._next_channel(text, a, b), *totals]

        return text.repeat(kinds, [str(self.channels), "%a", "%b", *sums], channel)[3:]

    def _next_channel(self, text: FunctionText, a: str, b: str) -> list[str]:
        return [text.at(a, self.weight_channel * self.size), text.at(b, self.layout.plane * self.size)]

    def _tap(self, text: FunctionText, height: int, at: tuple[str, str], totals: list[str]) -> list[str]:
        a, b = at
        lanes, count = self.lanes, self.runs.vectors
        seen = [text.load(lanes, text.at(b, k * VECTOR_BYTES)) for k in range(count)]
        found = []
        for row in range(height):
            address = text.at(a, row * self.weight_row * self.size)
            factor = text.value(f"load {lanes.element}, ptr {address}, align {self.size}")
            spread = text.splat(factor, lanes.element, lanes.lanes)
            for k in range(count):
                found.append(lanes.multiply_add(text, spread, seen[k], totals[row * count + k]))
        return found
