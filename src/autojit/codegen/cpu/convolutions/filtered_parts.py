"""What kernels by minimal filtering are made of: transforms of tiles, and the products of their points.

A *tile* is a grid of neighbouring elements of an image, or of places, of which every channel has one. Transformed it
has a vector of channels per *point*; what is added up of a point is a matrix product of its own. `Stack` says where all
points of something are: one matrix per point, rows of vectors.

Elements of a tile are found by a table of offsets into blocks (see `blocked`), whose first vector is what is outside:
it holds zeros where tiles are read, and takes what is written there.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from autojit.codegen.cpu.convolutions.minimal_filtering import Matrix
from autojit.codegen.cpu.convolutions.movers import Lanes
from autojit.codegen.cpu.convolutions.transforms import two_sided
from autojit.codegen.cpu.vector_text import INTERNAL, SPILLING, VectorModule, VectorText
from autojit.codegen.function_text import Operand, State
from autojit.codegen.module_text import Signature
from autojit.core.records import record

Sides = tuple[Matrix, Matrix]
"""The matrices of the rows and of the columns of a tile."""

APART = 64
"""Bytes between the matrices of a stack, so that the points of one element do not share a set of a cache."""


@record
class Stack:
    """Matrices of ``rows`` by ``columns`` elements, one per point."""

    points: int
    rows: int
    columns: int
    element_bytes: int

    @property
    def row_bytes(self) -> int:
        return self.columns * self.element_bytes

    @property
    def matrix_bytes(self) -> int:
        return self.rows * self.row_bytes + APART

    @property
    def size_bytes(self) -> int:
        return self.points * self.matrix_bytes


_MOVED = "ptr {0}, i64 {0}_step, ptr offsets, i64 offsets_step, ptr {1}, i64 {1}_step, i64 apart, i64 count"


def gather_signature(symbol: str) -> Signature:
    """From a block to a stack, whose matrices are ``apart`` bytes apart, ``count`` times.

    What is in a block is found by a table of offsets; ``..._step`` are bytes from one time to the next.
    """
    return Signature(symbol, _MOVED.format("block", "stack"))


def write_gather(module: VectorModule, lanes: Lanes, symbol: str, sides: Sides) -> None:
    """Transform tiles of a vector of channels to all points. Layers of all extents share the function."""
    text = VectorText(module, gather_signature(symbol), linkage="internal", attributes=SPILLING)
    height, width = (len(side[0]) for side in sides)
    with text.loop(0, "%count") as tile:
        block, offsets, stack = _moved(text, tile, "block", "offsets", "stack")
        places = [text.load("i64", text.at(offsets, 8 * k)) for k in range(height * width)]
        seen = [text.load_vector(lanes, text.at(block, place)) for place in places]
        grid = [seen[k * width : (k + 1) * width] for k in range(height)]
        points = [value for line in two_sided(text, lanes, *sides, grid) for value in line]
        for value, point in zip(points, _points(text, stack, len(points)), strict=True):
            text.store_vector(lanes, value, point)
    text.finish()


def _moved(text: VectorText, number: str, *names: str) -> list[str]:
    """Parameters that are addresses, moved on by so many of their steps."""
    return [text.at(f"%{name}", text.mul(number, f"%{name}_step")) for name in names]


def _points(text: VectorText, stack: str, count: int) -> Iterator[str]:
    """Where the first so many points of a stack are."""
    for number in range(count):
        stack = text.at(stack, "%apart") if number else stack
        yield stack


def scatter_signature(symbol: str) -> Signature:
    """From a stack to a block, as above."""
    return Signature(symbol, _MOVED.format("stack", "block"))


def write_scatter(module: VectorModule, lanes: Lanes, symbol: str, sides: Sides) -> None:
    """Transform all points of a vector of channels to tiles."""
    text = VectorText(module, scatter_signature(symbol), linkage="internal", attributes=SPILLING)
    height, width = (len(side[0]) for side in sides)
    with text.loop(0, "%count") as tile:
        stack, offsets, block = _moved(text, tile, "stack", "offsets", "block")
        seen = [text.load_vector(lanes, point) for point in _points(text, stack, height * width)]
        grid = [seen[k * width : (k + 1) * width] for k in range(height)]
        values = [value for line in two_sided(text, lanes, *sides, grid) for value in line]
        for number, value in enumerate(values):
            place = text.load("i64", text.at(offsets, 8 * number))
            text.store_vector(lanes, value, text.at(block, place))
    text.finish()


def offsets_signature(symbol: str) -> Signature:
    """The table of a tile whose first element is at ``row, column``.

    A block has rows of ``width`` elements from ``low`` to ``high``.
    """
    return Signature(symbol, "i64 row, i64 column, i64 low, i64 high, i64 width, ptr offsets")


def write_offsets(module: VectorModule, symbol: str, tile: tuple[int, int], vector_bytes: int) -> None:
    """Add the function."""
    text = VectorText(module, offsets_signature(symbol), linkage="internal", attributes=INTERNAL)
    columns = []
    for k in range(tile[1]):
        column = text.add("%column", k)
        columns.append((text.test("ult", column, "%width"), text.mul(column, vector_bytes)))
    row_bytes = text.mul("%width", vector_bytes)
    with text.loop(0, tile[0]) as r:
        row = text.add("%row", r)
        is_row = text.both(text.test("sge", row, "%low"), text.test("slt", row, "%high"))
        start = text.add(text.mul(text.sub(row, "%low"), row_bytes), vector_bytes)
        line = text.at("%offsets", text.mul(r, 8 * tile[1]))
        for k, (is_column, at) in enumerate(columns):
            place = text.choose(text.both(is_row, is_column), text.add(start, at), 0)
            text.store("i64", place, text.at(line, 8 * k))
    text.finish()


@record
class Products:
    """Products of all points: ``c[row] (+)= sum over steps of a[row, step] b[step]``, vectors of ``b`` and ``c``.

    Args:
        lanes: a vector.
        a: the stack of the left operands, whose rows are steps if ``a_is_turned``.
        a_is_turned: as said.
        b: the stack of the right operands, rows are steps.
        c: the stack of the sums; its rows are whole tiles of registers.
        height: rows of a tile of registers.
        width: its vectors.
    """

    lanes: Lanes
    a: Stack
    a_is_turned: bool
    b: Stack
    c: Stack
    height: int
    width: int

    @property
    def zero_bytes(self) -> int:
        """What ``zeros`` has room for."""
        return self.width * self.lanes.size_bytes

    @property
    def signature(self) -> Signature:
        """``add``: 0 or 1, whether to what is there."""
        return Signature("products", "ptr a, ptr b, ptr c, i64 steps, i64 rows, i64 add, ptr zeros")

    def write(self, module: VectorModule) -> None:
        """Add the function."""
        text = VectorText(module, self.signature, linkage="internal", attributes=INTERNAL)
        size, vector_bytes = self.lanes.dtype.size_bytes, self.lanes.size_bytes
        row_bytes = size if self.a_is_turned else self.a.row_bytes
        adds = text.test("ne", "%add", 0)
        old_row = text.choose(adds, self.c.row_bytes, 0)
        with (
            text.loop(0, self.a.points) as point,
            text.loop(0, self.c.columns * size, self.width * vector_bytes) as column,
            text.loop(0, "%rows", self.height) as row,
        ):
            a = text.at("%a", text.add(text.mul(point, self.a.matrix_bytes), text.mul(row, row_bytes)))
            b = text.at("%b", text.add(text.mul(point, self.b.matrix_bytes), column))
            c = text.at("%c", text.add(text.mul(point, self.c.matrix_bytes), text.mul(row, self.c.row_bytes)))
            c = text.at(c, column)
            old = text.choose(adds, c, "%zeros", "ptr")
            sums = [
                text.load_vector(self.lanes, text.at(text.at(old, text.mul(old_row, r)), w * vector_bytes))
                for r in range(self.height)
                for w in range(self.width)
            ]
            sums = self._sum(text, a, b, sums)
            for number, value in enumerate(sums):
                r, w = divmod(number, self.width)
                text.store_vector(self.lanes, value, text.at(c, r * self.c.row_bytes + w * vector_bytes))
        text.finish()

    def _sum(self, text: VectorText, a: str, b: str, sums: State) -> State:
        lanes, size = self.lanes, self.lanes.dtype.size_bytes
        row_bytes, step_bytes = (size, self.a.row_bytes) if self.a_is_turned else (self.a.row_bytes, size)

        def step(state: State) -> State:
            left, a_at, b_at, *totals = state
            seen = [text.load_vector(lanes, text.at(b_at, w * lanes.size_bytes)) for w in range(self.width)]
            found: list[str] = []
            for r in range(self.height):
                factor = text.splat(text.load(lanes.element, text.at(a_at, r * row_bytes)), lanes.element, lanes.lanes)
                for value in seen:
                    found.append(lanes.multiply_add(text, factor, value, totals[len(found)]))
            return [text.sub(left, 1), text.at(a_at, step_bytes), text.at(b_at, self.b.row_bytes), *found]

        kinds = ["i64", "ptr", "ptr", *[lanes.text] * len(sums)]
        first: list[Operand] = ["%steps", a, b, *sums]
        return text.repeat(kinds, first, step)[3:]


def points_of(sides: Sides) -> int:
    """How many points a tile has."""
    return prod(len(side) for side in sides)
