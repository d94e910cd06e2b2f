"""Matrix products on a GPU: a block computes a tile of one matrix of the result, depth by depth.

How to read: `product_job.job_of`; `ProductPrinter.print`; `_finish`, a lane's elements of the result. In between
`product_pipeline` brings parts of the operands, which may have any strides, zero too, and multiplies them.

Where there are too few tiles for a GPU the contracted axis is split: blocks leave sums of its parts in memory, and a
second kernel adds those up in their order and goes on with them.

Buffers: the left operand, the right one, what the product is added to if there is such, the result. The last two may
be one: an element is read by the thread that writes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import groupby
from math import prod
from typing import ClassVar

from autojit.codegen.cuda.grid_function import CudaKernel
from autojit.codegen.cuda.product_fragments import Places
from autojit.codegen.cuda.product_groups import steps_of
from autojit.codegen.cuda.product_job import COMBINING_THREADS, ProductJob, stored_as
from autojit.codegen.cuda.product_operands import Stored, Supply
from autojit.codegen.cuda.product_pipeline import Pipeline
from autojit.codegen.cuda.product_results import Results, exchanges
from autojit.codegen.cuda.product_shelves import Shelf
from autojit.codegen.cuda.product_steps import Totals
from autojit.codegen.cuda.product_tiles import most_registers
from autojit.codegen.function_text import Operand
from autojit.codegen.grid_text import Buffer, GridText
from autojit.codegen.scalar import Scalar, register_type
from autojit.core.records import record
from autojit.core.sizes import is_symbolic, surely_less, typical

TILES_TOGETHER = 8
"""Rows of tiles that blocks go down before the next column."""


@record
class Element:
    """An element of a tile.

    Args:
        row: counted through all matrices.
        column: in its matrix.
        position: in the result.
        inside: the condition that it is one of the result; None: it always is.
        offset: of its column from the lane's first.
    """

    row: str
    column: str
    position: str
    inside: str | None
    offset: int


Vector = list[tuple[Element, Scalar]]
"""Neighbours in a row of the result with what was summed up of them: all are inside, or none is."""

Write = tuple[int, Scalar, str]
"""A buffer, what is stored there, and where."""

ADDED = 2
"""The buffer of what a product is added to."""


class ProductPrinter(CudaKernel):
    """Prints one product."""

    operands: ClassVar[tuple[int, int]] = (0, 1)
    """The buffers of the left and the right operand."""

    def __init__(self, job: ProductJob) -> None:
        super().__init__(job.grid)
        self.begin(job)

    def begin(self, job: ProductJob) -> None:
        """Take over what is to be printed."""
        self.job, self.shape, self.tile, self.dtype, self.adds = job, job.shape, job.tile, job.dtype, job.adds
        self.total = job.total

    def print(self, combine: GridText | None = None) -> GridText:
        """The kernel; of one that leaves sums, ``combine`` is what goes on with them."""
        self.pointers(self.shape.sizes)
        if self.job.part == "combine":
            self._combine()
        else:
            self.most_registers = most_registers(self.tile, self.dtype)
            self._find_tile()
            places = Places(self, self.tile)
            totals = [self.slot(self.total) for _ in places.of_lane()]
            for slot in totals:
                self.put(slot, self.emit.constant(0, self.total))
            if self.shape.extents[2]:
                self._multiply(places, totals)
            with self.where(places.finishes(self)):
                results = self.results_of(places)
                self.open_columns(results)
                self._finish(results, [self.get(slot, self.total) for slot in totals])
                self.close_columns(places, results)
        roles = self.roles()
        if self.job.part == "sums":
            roles = [Buffer("reads" if k in self.operands else "takes", b.element_bytes) for k, b in enumerate(roles)]
        partial_bytes = self.job.partial_bytes or self.partial_bytes
        return self.finished(roles, partial_bytes=partial_bytes, combine=combine or self.combining(roles))

    partial_bytes = 0
    """Of what blocks leave of columns."""

    def results_of(self, places: Places) -> Results:
        """A lane's elements, once they are summed up."""
        rows, columns = self.tile.fragment.rows, self.shape.extents[1]
        return Results(self, places, exchanges=exchanges(rows, self.total.size_bytes, columns))

    def read_ahead(self, places: Places) -> None:
        """What is read for the results while operands are on their way."""

    def open_columns(self, results: Results) -> None:
        """Before a lane's elements go on: nothing, unless something folds them."""

    def close_columns(self, places: Places, results: Results) -> None:
        """Behind a lane's elements."""

    def combining(self, roles: Sequence[Buffer]) -> GridText | None:
        """The kernel that makes results of what blocks leave of columns; None: they leave none."""
        return None

    def _find_tile(self) -> None:
        """Which part of the result is this block's: all tiles of a split follow each other."""
        down, across = self.job.tiles
        rest = self.block_x
        self.matrix = self.quotient(rest, down * across * self.job.choice.splits)
        rest = self.remainder(rest, down * across * self.job.choice.splits)
        self.split = self.quotient(rest, down * across)
        y, x = self._neighbouring(self.remainder(rest, down * across), down, across)
        self.row, self.column = self.scaled(y, self.tile.rows), self.scaled(x, self.tile.columns)

    def _neighbouring(self, place: str, down: int, across: int) -> tuple[str, str]:
        """A tile by its number: blocks that run together share rows and columns, which are then in the second cache."""
        if surely_less(down, TILES_TOGETHER + 1) or across == 1:
            return self.quotient(place, across), self.remainder(place, across)
        band = self.quotient(place, TILES_TOGETHER * across)
        inside = self.remainder(place, TILES_TOGETHER * across)
        first = self.scaled(band, TILES_TOGETHER)
        height = self.at_most(self.sub(down, first), TILES_TOGETHER)
        return self.offset(first, self.remainder(inside, height)), self.quotient(inside, height)

    # -- the product

    def stored(self) -> tuple[Stored, Stored]:
        """How the operands' matrices are stored."""
        return stored_as(self.shape)

    def _origins(self) -> tuple[str, str]:
        """The positions of this block's matrices in both operands."""
        places: list[Operand] = [self.shape.a[0], self.shape.b[0]]
        rest = self.matrix
        for extent, strides in reversed(self.shape.batch):
            index, rest = self.remainder(rest, extent), self.quotient(rest, extent)
            places = [self.add(place, self.mul(index, stride)) for place, stride in zip(places, strides, strict=True)]
        return self.number(places[0]), self.number(places[1])

    def _multiply(self, places: Places, totals: Totals) -> None:
        tile, choice, k = self.tile, self.job.choice, self.shape.extents[2]
        steps = -(-typical(choice.chunk) // tile.turn_depth)
        stages = tile.stages if is_symbolic(k) else min(tile.stages, steps)
        supplies = [
            Supply(self, number, stored, self.dtype, lines=lines, stages=stages, tile=tile, copies=self.job.copies)
            for number, stored, lines in zip(self.operands, self.stored(), (tile.rows, tile.columns), strict=True)
        ]
        tiles = self.row, self.column
        both, count = (supplies[0], supplies[1]), prod(tile.fragments)
        pipeline = Pipeline(self, both, stages, self._origins(), tiles, places.slice, fragments=count)
        way = steps_of(tile.fragment)(self, self.dtype, places, supplies[0].shelf, supplies[1].shelf)
        first: Operand = 0
        stop: Operand = k
        if choice.splits > 1:
            first = self.scaled(self.split, choice.chunk)
            stop = self.at_most(self.offset(first, choice.chunk), k)
        pipeline.run(way, totals, first, stop, lambda: self.read_ahead(places))
        if places.slice is not None:
            shelves = [supply.shelf for supply in supplies]
            self._add_slices(places.slice, totals, max(shelves, key=lambda s: s.size), stages)

    def _add_slices(self, own: str, totals: Totals, shelf: Shelf, stages: int) -> None:
        """Sums of all slices, in their order, become those of the first; operands leave them their shared memory."""
        count, threads, kind = self.tile.slices, self.tile.slice_threads, register_type(self.total)
        elements = (count - 1) * threads * len(totals)
        has_room = stages * count * shelf.size * self.dtype.size_bytes >= elements * self.total.size_bytes
        base = shelf.base if has_room else self.shared(kind, elements)
        thread, each = self.remainder(self.thread, threads), threads * len(totals)
        self.barrier()
        with self.when(self.test("ne", own, 0)):
            first = self.offset(self.scaled(self.sub(own, 1), each), thread)
            for k, slot in enumerate(totals):
                at = self.offset(first, k * threads)
                self.emit.store(self.get(slot, self.total), self.address(base, self.total, at))
        self.barrier()
        with self.when(self.test("eq", own, 0)):
            for number in range(count - 1):
                for k, slot in enumerate(totals):
                    at = self.offset(thread, number * each + k * threads)
                    other = self.emit.load(self.address(base, self.total, at), self.total)
                    self.put(slot, self.emit.add(self.get(slot, self.total), other))

    # -- the result

    def _finish(self, results: Results, totals: Sequence[Scalar]) -> None:
        """Every lane's elements, those of a fragment together: first all that is read, then all that is written."""
        runs = self.elements(results)
        for fragment in results.sums(totals):
            found: list[Vector] = []
            for sums, elements in zip(fragment, runs, strict=False):  # a fragment that ends asks for no further run
                if all(one.inside == elements[0].inside for one in elements):
                    found.append(list(zip(elements, sums, strict=True)))
                else:
                    found += [[pair] for pair in zip(elements, sums, strict=True)]
            for inside, together in groupby(found, lambda vector: vector[0][0].inside):
                with self.where(inside):
                    self._store(list(together))

    def elements(self, results: Results) -> Iterator[list[Element]]:
        """A lane's elements, run by run; what leads to those of a run is printed when it is asked for."""
        row, column = self.add(self.row, results.row), self.add(self.column, results.column)
        return (
            self._neighbours(self.offset(row, down), self.offset(column, across), across, results.width)
            for down, across in results.runs()
        )

    def _store(self, found: Sequence[Vector]) -> None:
        """What becomes of vectors of neighbours: first all that is read, then all that is written."""
        if self.job.part == "sums":
            for vector in found:
                at = self.offset(self.scaled(self.split, self.job.size), vector[0][0].position)
                start = self.address(self.partials, self.total, at)
                for k, (_, total) in enumerate(vector):
                    self.emit.store(total, self.address(start, self.total, k) if k else start)
            return
        writes = [write for vector in found for write in self.results(vector)]
        for argument, value, position in writes:
            self.write(argument, value, position)

    def _combine(self) -> None:
        """Every thread adds up the sums of some elements next to each other, split by split."""
        job, count, n = self.job, self.job.neighbours, self.shape.extents[1]
        thread = self.offset(self.scaled(self.block_x, COMBINING_THREADS), self.thread)
        first = self.scaled(thread, count)
        inside = self.test("ult", first, job.size) if job.size % (COMBINING_THREADS * count) else None
        with self.where(inside):
            totals = [self.slot(self.total) for _ in range(count)]
            for slot in totals:
                self.put(slot, self.emit.constant(0, self.total))
            with self.loop(0, job.choice.splits, stem="split") as split:
                start = self.address(self.partials, self.total, self.offset(self.scaled(split, job.size), first))
                sums = [self.emit.load(self.address(start, self.total, k), self.total) for k in range(count)]
                for slot, found in zip(totals, sums, strict=True):
                    self.put(slot, self.emit.add(self.get(slot, self.total), found))
            row, column = self.quotient(first, n), self.remainder(first, n)
            elements = [Element(row, self.offset(column, k), self.offset(first, k), None, k) for k in range(count)]
            sums = [self.get(slot, self.total) for slot in totals]
            self._store([list(zip(elements, sums, strict=True))])

    def where(self, inside: str | None) -> AbstractContextManager[None]:
        """What is written inside is done by lanes whose element is one of the result.

        The others read nothing either: what a product is added to may be overwritten by whoever has the element.
        """
        return self.perhaps(inside)

    def _neighbours(self, row: str, column: str, across: int, width: int) -> list[Element]:
        """The elements of a run, next to each other in a row of the result; two, or as many as divide the row."""
        m, n, _ = self.shape.extents
        line = self.offset(self.scaled(self.matrix, m), row)
        start = self.scaled(line, n)
        columns = [self.offset(column, k) for k in range(width)]
        inside: list[str | None] = [None] * len(columns)
        if m % self.tile.rows or n % self.tile.columns:
            is_row = self.test("ult", row, m)
            first = self.both(is_row, self.test("ult", column, n))
            rest = [self.both(is_row, self.test("ult", at, n)) if n % len(columns) else first for at in columns[1:]]
            inside = [first, *rest]
        return [
            Element(line, at, self.offset(start, at), condition, across + k)
            for k, (at, condition) in enumerate(zip(columns, inside, strict=True))
        ]

    def product_at(self, element: Element, total: Scalar) -> Scalar:
        """The product, rounded once, and what it is added to."""
        product = self.emit.rounded(total, self.job.result)
        if not self.adds:
            return product
        return self.emit.add(product, self.read(ADDED, self.job.result, element.position))

    def results(self, vector: Vector) -> list[Write]:
        """What is stored of neighbours."""
        return [(len(self.buffers) - 1, self.product_at(*pair), pair[0].position) for pair in vector]

    def roles(self) -> list[Buffer]:
        """What is done with each buffer."""
        size = self.job.result.size_bytes
        reads = [Buffer("reads", self.dtype.size_bytes)] * 2
        return [*reads, *([Buffer("updates", size)] * 2 if self.adds else [Buffer("writes", size)])]


def printed(job: ProductJob, printer: Callable[[ProductJob], ProductPrinter]) -> GridText:
    """The kernel of a product, and behind it the one that combines its splits."""
    if job.choice.splits == 1:
        return printer(job).print()
    combine = printer(replace(job, part="combine")).print()
    return printer(replace(job, part="sums")).print(combine)
