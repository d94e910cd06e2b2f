"""Matrix products on a GPU: a block computes a tile of one matrix of the result, depth by depth.

How to read: `job_of`; `ProductPrinter.print`; `_multiply`, the loop over depth: bring, wait, multiply;
`_finish`, a lane's elements of the result. Operands may have any strides, zero too: `product_operands` brings them, and
`product_steps` multiplies.

Buffers: the left operand, the right one, what the product is added to if there is such, the result. The last two may
be one: an element is read by the thread that writes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from itertools import groupby
from math import prod
from typing import ClassVar

from autojit.codegen.cuda.grid_function import CudaKernel, Grid
from autojit.codegen.cuda.product_operands import Stage, Stored, Strided, shelf_of
from autojit.codegen.cuda.product_steps import Places, Totals, steps_of
from autojit.codegen.cuda.product_tiles import Tile, tile_of
from autojit.codegen.cuda.target import CudaTarget
from autojit.codegen.function_text import Operand
from autojit.codegen.grid_text import Buffer, GridText
from autojit.codegen.scalar import Scalar, is_half
from autojit.core.dtypes import DType, float32
from autojit.core.records import record
from autojit.core.sizes import surely_less, typical
from autojit.schedule.kernels import Access, MatmulKernel, joint_batch


@record
class Shape:
    """A product without its values: equal ones are printed alike.

    Args:
        extents: m, n and k.
        batch: (extent, stride in each operand) from outside to inside.
        a, b: offset and strides of the last two axes.
        sizes: elements of each buffer.
    """

    extents: tuple[int, int, int]
    batch: tuple[tuple[int, tuple[int, int]], ...]
    a: tuple[int, int, int]
    b: tuple[int, int, int]
    sizes: tuple[int, ...]

    @property
    def count(self) -> int:
        """How many matrices."""
        return prod(extent for extent, _ in self.batch)


@record
class ProductJob:
    """What is printed, without values: equal jobs are printed alike."""

    shape: Shape
    tile: Tile
    dtype: DType
    adds: bool

    @property
    def tiles(self) -> tuple[int, int]:
        """Of one matrix, down and across."""
        m, n, _ = self.shape.extents
        return -(-m // self.tile.rows), -(-n // self.tile.columns)

    @property
    def grid(self) -> Grid:
        """A block for each tile of each matrix."""
        return Grid(self.tile.threads, (prod(self.tiles) * self.shape.count, 1, 1))


def job_of(kernel: MatmulKernel, target: CudaTarget) -> ProductJob:
    """What is printed for a product; of open sizes typical ones decide which tiles suit it."""
    shape = shape_of(kernel)
    dtype = kernel.node.outputs[0].type.dtype
    m, n, k = map(typical, shape.extents)
    tile = tile_of(dtype, target, (m, n, k), typical(shape.count))
    return ProductJob(shape, tile, dtype, kernel.init is not None)


def shape_of(kernel: MatmulKernel) -> Shape:
    """What the text of a product depends on, besides its dtype."""
    x, w = (value.type.shape for value in kernel.node.inputs[:2])
    values = [*kernel.reads(), *kernel.writes()]
    batch = joint_batch((kernel.a, kernel.b), x)
    return Shape(
        (x[-2], w[-1], x[-1]),
        tuple((extent, (strides[0], strides[1])) for extent, strides in batch),
        _matrix(kernel.a),
        _matrix(kernel.b),
        tuple(value.type.size for value in values),
    )


def _matrix(access: Access) -> tuple[int, int, int]:
    return access.offset, access.strides[-2], access.strides[-1]


@record
class Element:
    """An element of a tile.

    Args:
        row: counted through all matrices.
        column: in its matrix.
        position: in the result.
        inside: the condition that it is one of the result; None: it always is.
    """

    row: str
    column: str
    position: str
    inside: str | None


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
        self.shape, self.tile, self.dtype, self.adds = job.shape, job.tile, job.dtype, job.adds
        self.total = float32 if is_half(self.dtype) else self.dtype

    def print(self) -> GridText:
        self.pointers(self.shape.sizes)
        self._find_tile()
        places = Places(self, self.tile)
        totals = [self.slot(self.total) for _ in places.of_lane()]
        for slot in totals:
            self.put(slot, self.emit.constant(0, self.total))
        if self.shape.extents[2]:
            self._multiply(places, totals)
        self._finish(places, [self.get(slot, self.total) for slot in totals])
        return self.finished(self.roles())

    def _find_tile(self) -> None:
        """Which part of the result is this block's."""
        m, n, _ = self.shape.extents
        down, across = -(-m // self.tile.rows), -(-n // self.tile.columns)
        self.matrix = self.quotient(self.block_x, down * across)
        place = self.remainder(self.block_x, down * across)
        self.row = self.mul(self.quotient(place, across), self.tile.rows)
        self.column = self.mul(self.remainder(place, across), self.tile.columns)

    # -- the product

    def stored(self) -> tuple[Stored, Stored]:
        """How the operands' matrices are stored."""
        m, n, k = self.shape.extents
        (first_a, ra, ca), (first_b, rb, cb) = self.shape.a, self.shape.b
        moves_a, moves_b = ([strides[number] for _, strides in self.shape.batch] for number in range(2))
        return Strided(m, k, ra, ca, (first_a, *moves_a)), Strided(n, k, cb, rb, (first_b, *moves_b))

    def _stages(self) -> tuple[Stage, Stage]:
        depth, is_deep = self.tile.depth, self.tile.fragment.neighbours > 1
        found = []
        for number, (stored, lines) in enumerate(zip(self.stored(), (self.tile.rows, self.tile.columns), strict=True)):
            shelf = shelf_of(self, stored, (lines, depth), self.dtype, is_deep=is_deep)
            found.append(Stage(self, self.buffers[self.operands[number]], stored, shelf, (lines, depth), self.dtype))
        return found[0], found[1]

    def _origins(self) -> tuple[str, str]:
        """The positions of this block's matrices in both operands."""
        places: list[Operand] = [self.shape.a[0], self.shape.b[0]]
        rest = self.matrix
        for extent, strides in reversed(self.shape.batch):
            index, rest = self.remainder(rest, extent), self.quotient(rest, extent)
            places = [self.add(place, self.mul(index, stride)) for place, stride in zip(places, strides, strict=True)]
        return self.number(places[0]), self.number(places[1])

    def _multiply(self, places: Places, totals: Totals) -> None:
        stages, origins = self._stages(), self._origins()
        way = steps_of(self.tile.fragment)
        steps = way(self, self.dtype, places, stages[0].shelf, stages[1].shelf)
        lines = self.row, self.column

        def turn(first_depth: Operand) -> None:
            """Bring one depth of both operands and multiply it."""
            brought = [
                pair
                for stage, origin, line in zip(stages, origins, lines, strict=True)
                for pair in stage.load(self.tile, origin, line, first_depth)
            ]
            if isinstance(first_depth, str):
                self.barrier()  # the part before has been read by all
            steps.store(brought)
            self.barrier()
            steps.multiply(totals)

        k = self.shape.extents[2]
        if surely_less(k, self.tile.depth + 1):
            turn(0)
            return
        with self.loop(0, k, self.tile.depth, stem="depth") as depth:
            turn(depth)

    # -- the result

    def _finish(self, places: Places, totals: Sequence[Scalar]) -> None:
        """Every lane's elements, those of a fragment together: first all that is read, then all that is written."""
        elements = list(zip(places.of_lane(), totals, strict=True))
        row, column = self.add(self.row, places.row), self.add(self.column, places.column)
        count = self.tile.fragment.rows // 4
        for first in range(0, len(elements), count):
            found: list[tuple[Element, Scalar]] = []
            for pair in range(first, first + count, 2):
                (down, across), _ = elements[pair]
                neighbours = self._neighbours(self.add(row, down), self.add(column, across))
                found += [(one, total) for one, (_, total) in zip(neighbours, elements[pair : pair + 2], strict=True)]
            for inside, together in groupby(found, lambda item: item[0].inside):
                with self.where(inside):
                    writes = [write for element, total in together for write in self.results(element, total)]
                    for argument, value, position in writes:
                        self.write(argument, value, position)

    def where(self, inside: str | None) -> AbstractContextManager[None]:
        """What is written inside is done by lanes whose element is one of the result.

        The others read nothing either: what a product is added to may be overwritten by whoever has the element.
        """
        return self.perhaps(inside)

    def _neighbours(self, row: str, column: str) -> list[Element]:
        """Two elements next to each other in a row of the result."""
        m, n, _ = self.shape.extents
        line = self.offset(self.scaled(self.matrix, m), row)
        start = self.scaled(line, n)
        columns = [column, self.offset(column, 1)]
        inside: list[str | None] = [None, None]
        if m % self.tile.rows or n % self.tile.columns:
            is_row = self.test("ult", row, m)
            first = self.both(is_row, self.test("ult", columns[0], n))
            inside = [first, self.both(is_row, self.test("ult", columns[1], n)) if n % 2 else first]
        return [
            Element(line, at, self.offset(start, at), condition) for at, condition in zip(columns, inside, strict=True)
        ]

    def product_at(self, element: Element, total: Scalar) -> Scalar:
        """The product, rounded once, and what it is added to."""
        product = self.emit.rounded(total, self.dtype)
        if not self.adds:
            return product
        return self.emit.add(product, self.read(ADDED, self.dtype, element.position))

    def results(self, element: Element, total: Scalar) -> list[Write]:
        """What is stored of an element."""
        return [(len(self.buffers) - 1, self.product_at(element, total), element.position)]

    def roles(self) -> list[Buffer]:
        """What is done with each buffer."""
        size = self.dtype.size_bytes
        reads = [Buffer("reads", size)] * 2
        return [*reads, *([Buffer("updates", size)] * 2 if self.adds else [Buffer("writes", size)])]
