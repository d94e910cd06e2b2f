"""Matrix products on a GPU: a block computes a tile of one matrix of the result, depth by depth.

How to read: `print_product`; `ProductPrinter.print`; `_multiply`, the loop over depth: bring, wait, multiply;
`_finish`, a lane's elements of the result. Operands may have any strides, zero too: `product_operands` brings them, and
`product_steps` multiplies.

Buffers: the left operand, the right one, what the product is added to if there is such, the result. The last two may
be one: an element is read by the thread that writes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from autojit.codegen.cuda.grid_function import CudaKernel, Grid
from autojit.codegen.cuda.product_operands import Stage, Strided, shelf_of
from autojit.codegen.cuda.product_steps import Places, Totals, steps_of
from autojit.codegen.cuda.product_tiles import Tile, tile_of
from autojit.codegen.cuda.target import CudaTarget
from autojit.codegen.function_text import Operand
from autojit.codegen.grid_text import Buffer, GridText
from autojit.codegen.scalar import Scalar, is_half
from autojit.core.dtypes import float32
from autojit.core.records import record
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


def print_product(kernel: MatmulKernel, target: CudaTarget) -> GridText:
    """The kernel of a product whose sizes are known."""
    shape = shape_of(kernel)
    dtype = kernel.node.outputs[0].type.dtype
    tile = tile_of(dtype, target, shape.extents, shape.count)
    return ProductPrinter(shape, tile, kernel).print()


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


class ProductPrinter(CudaKernel):
    """Prints one product."""

    def __init__(self, shape: Shape, tile: Tile, kernel: MatmulKernel) -> None:
        m, n, _ = shape.extents
        self.tiles = -(-m // tile.rows), -(-n // tile.columns)
        super().__init__(Grid(tile.threads, (prod(self.tiles) * shape.count, 1, 1)))
        self.shape, self.tile = shape, tile
        self.dtype = kernel.node.outputs[0].type.dtype
        self.total = float32 if is_half(self.dtype) else self.dtype
        self.adds = kernel.init is not None

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
        size = self.dtype.size_bytes
        reads = [Buffer("reads", size)] * 2
        return self.finished([*reads, *([Buffer("updates", size)] * 2 if self.adds else [Buffer("writes", size)])])

    def _find_tile(self) -> None:
        """Which part of the result is this block's."""
        down, across = self.tiles
        self.matrix = self.quotient(self.block_x, down * across)
        place = self.remainder(self.block_x, down * across)
        self.row = self.mul(self.quotient(place, across), self.tile.rows)
        self.column = self.mul(self.remainder(place, across), self.tile.columns)

    # -- the product

    def _stages(self) -> tuple[Stage, Stage]:
        m, n, k = self.shape.extents
        (_, ra, ca), (_, rb, cb) = self.shape.a, self.shape.b
        found = []
        matrices = (m, self.tile.rows, ra, ca), (n, self.tile.columns, cb, rb)
        for number, (lines, part, line_stride, depth_stride) in enumerate(matrices):
            offset = (self.shape.a, self.shape.b)[number][0]
            steps = (offset, *(strides[number] for _, strides in self.shape.batch))
            stored = Strided(lines, k, line_stride, depth_stride, steps)
            extents = part, self.tile.depth
            is_deep = self.tile.fragment.neighbours > 1
            shelf = shelf_of(self, stored, extents, self.dtype, is_deep=is_deep)
            found.append(Stage(self, self.buffers[number], stored, shelf, extents, self.dtype))
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
        if k <= self.tile.depth:
            turn(0)
            return
        with self.loop(0, k, self.tile.depth, stem="depth") as depth:
            turn(depth)

    # -- the result

    def _finish(self, places: Places, totals: Sequence[Scalar]) -> None:
        """Every lane's elements: first all that is read, then all that is written."""
        m, n, _ = self.shape.extents
        row, column = self.add(self.row, places.row), self.add(self.column, places.column)
        matrix = self.mul(self.matrix, m * n)
        found: list[tuple[str | None, str, Scalar]] = []
        for (down, across), total in zip(places.of_lane(), totals, strict=True):
            at = self.add(row, down), self.add(column, across)
            inside = self._inside(at)
            position = self.add(matrix, self.add(self.mul(at[0], n), at[1]))
            safe = position if inside is None else self.choose(inside, position, 0)
            found.append((inside, position, self.result_at(safe, total)))
        for inside, position, value in found:
            if inside is None:
                self.write(len(self.buffers) - 1, value, position)
                continue
            with self.when(inside):
                self.write(len(self.buffers) - 1, value, position)

    def _inside(self, at: tuple[str, str]) -> str | None:
        """Whether an element of the tile is one of the result; None where all are."""
        m, n, _ = self.shape.extents
        parts = (at[0], m, self.tile.rows), (at[1], n, self.tile.columns)
        tests = [self.test("ult", place, extent) for place, extent, part in parts if extent % part]
        if not tests:
            return None
        return tests[0] if len(tests) == 1 else self.both(*tests)

    def result_at(self, position: str, total: Scalar) -> Scalar:
        """The element of the result: the product, rounded once, and what it is added to."""
        product = self.emit.rounded(total, self.dtype)
        if not self.adds:
            return product
        return self.emit.add(product, self.read(2, self.dtype, position))
