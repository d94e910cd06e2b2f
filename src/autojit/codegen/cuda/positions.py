"""Positions of true elements, packed: blocks count those of their tiles, a block adds the counts up, blocks write."""

from __future__ import annotations

from autojit.codegen.cuda.counting import CountingKernel
from autojit.codegen.cuda.grid_function import Grid
from autojit.codegen.cuda.target import CudaTarget
from autojit.codegen.cuda.thread_items import roles_of
from autojit.codegen.grid_text import GridText
from autojit.codegen.scalar import Scalar
from autojit.core.dtypes import bool_, int64
from autojit.core.sizes import is_symbolic, size_max
from autojit.ir.graph import Node

THREADS = 256
RUN = 8  # neighbours of a thread: eight bytes of a mask are one access
TILE = THREADS * RUN


def print_packed_positions(node: Node, target: CudaTarget) -> GridText:
    """The kernels of a ``PackedPositions``: one, where there is one tile."""
    size = node.inputs[0].type.size
    tiles = size_max(1, -(-size // TILE))
    if not is_symbolic(tiles) and tiles == 1:
        return _Tiles(node, tiles).pack()
    then = _Tiles(node, tiles, blocks=1).add_up(_Tiles(node, tiles).pack())
    return _Tiles(node, tiles).count_tiles(then)


class _Tiles(CountingKernel):
    """A kernel whose blocks have a tile each. The memory in common: a word for each tile, and one for their sum."""

    def __init__(self, node: Node, tiles: int, blocks: int = 0) -> None:
        sizes = [v.type.size for v in (*node.inputs, *node.outputs)]
        self.is_alone = not is_symbolic(tiles) and tiles == 1
        room = 0 if self.is_alone else 4 * (tiles + 1)
        super().__init__(Grid(THREADS, (blocks or tiles, 1, 1)), roles_of(node), sizes, room)
        self.size, self.tiles = node.inputs[0].type.size, tiles

    def _truths(self) -> list[tuple[str, str, str]]:
        """The thread's elements: position, whether it is one, and 1 where it is true."""
        first = self.add(self.mul(self.block_x, TILE), self.mul(self.thread, RUN))
        found = []
        for k in range(RUN):
            position = self.add(first, k)
            inside = self.test("slt", position, self.size)
            truth = self.read(0, bool_, self.least(position, size_max(self.size - 1, 0)))
            found.append((position, inside, self.convert("zext", self.both(inside, truth.text), "i1")))
        return found

    def _sum(self, ones: list[str]) -> str:
        total = "0"
        for one in ones:
            total = self.add(total, one)
        return total

    def count_tiles(self, then: GridText) -> GridText:
        """How many of each tile are true."""
        _, total = self.before_in_block(self._sum([one for _, _, one in self._truths()]))
        with self.when(self.test("eq", self.thread, 0)):
            self.put_word(self.partials, self.block_x, total)
        return self.ended(then)

    def add_up(self, then: GridText) -> GridText:
        """How many are true in front of each tile, in the place of its own count, and in all."""
        running = self.local("i64")
        self.store("i64", 0, running)
        with self.loop(0, self.tiles, THREADS, stem="tiles") as first:
            tile = self.add(first, self.thread)
            inside = self.test("slt", tile, self.tiles)
            last = self.least(tile, self.tiles - 1)
            own = self.choose(inside, self.get_word(self.partials, last), 0)
            before, total = self.before_in_block(own)
            so_far = self.load("i64", running)
            with self.when(inside):
                self.put_word(self.partials, tile, self.add(so_far, before))
            self.store("i64", self.add(so_far, total), running)
        with self.when(self.test("eq", self.thread, 0)):
            self.put_word(self.partials, self.tiles, self.load("i64", running))
        return self.ended(then)

    def pack(self) -> GridText:
        """True elements go behind those in front of them, others behind all true ones."""
        truths = self._truths()
        before, total = self.before_in_block(self._sum([one for _, _, one in truths]))
        if not self.is_alone:
            before = self.add(before, self.get_word(self.partials, self.block_x))
            total = self.get_word(self.partials, self.tiles)
        for position, inside, one in truths:
            is_true = self.test("ne", one, 0)
            place = self.choose(is_true, before, self.add(total, self.sub(position, before)))
            with self.when(inside):
                self.write(1, Scalar(self.choose(is_true, position, 0), int64), place)
            before = self.add(before, one)
        is_first = self.both(self.test("eq", self.block_x, 0), self.test("eq", self.thread, 0))
        with self.when(is_first):
            self.write(2, Scalar(total, int64), "0")
        return self.ended()
