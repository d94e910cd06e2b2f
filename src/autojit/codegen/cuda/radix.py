"""Stable sorting of long lines by the digits of their keys, eight bits at a time from the lowest, over many blocks.

A chain of kernels: the first one, written by whoever sorts, leaves keys with their positions in memory that the chain
has in common (`Workspace`). Each pass over a digit is three kernels: blocks count digits of their tiles; a block for
each line says where the elements of every digit of every tile go; blocks move their elements there. Elements of equal
digits keep their order because a warp takes neighbours at once, and its lanes with equal digits find each other
(`CountingKernel.alike`). The last kernel finds keys and positions in order (`Workspace.sorted_position`).

All passes have the same texts: which pass it is, is a word in memory that the second kernel counts up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autojit.codegen.cuda.counting import IN_BLOCK, CountingKernel
from autojit.codegen.cuda.grid_function import WARP, Grid
from autojit.codegen.grid_text import Buffer, GridText
from autojit.core.records import record
from autojit.core.sizes import size_min

DIGITS = 256
THREADS = 256  # of a block: one for each digit
ROUNDS = 8  # elements of a thread
TILE = THREADS * ROUNDS
WARPS = THREADS // WARP
MOST_ELEMENTS = 1 << 31
"""Of a line: positions are 32-bit words, and so are sums of counts. An open length is taken to be below 2^32: a line of
that length, of the smallest elements there are, takes 76 GiB with its keys, positions and results."""


def _aligned(size_bytes: int) -> int:
    return -(-size_bytes // 256) * 256


@record
class Workspace:
    """Where a sort has its keys, positions and counts, in bytes from the beginning of the chain's memory.

    Args:
        lines: how many are sorted, each by itself.
        length: elements of a line.
        key_bytes: of an element's key, an unsigned number.
        passes: how many of its digits are not known to be zero.
        before: bytes that the chain has for something else, in front.
    """

    lines: int
    length: int
    key_bytes: int
    passes: int
    before: int = 0

    @property
    def kind(self) -> str:
        return f"i{8 * self.key_bytes}"

    @property
    def tiles(self) -> int:
        """Blocks that share a line."""
        return -(-self.length // TILE)

    @property
    def grid(self) -> Grid:
        """Blocks for all tiles of all lines."""
        return Grid(THREADS, (self.tiles * self.lines, 1, 1))

    @property
    def _key_room(self) -> int:
        return _aligned(self.lines * self.length * self.key_bytes)

    @property
    def _place_room(self) -> int:
        return _aligned(self.lines * self.length * 4)

    @property
    def _counts_at(self) -> int:
        return self.before + 2 * (self._key_room + self._place_room)

    @property
    def _turns_at(self) -> int:
        return self._counts_at + _aligned(self.lines * self.tiles * DIGITS * 4)

    @property
    def size_bytes(self) -> int:
        return self._turns_at + _aligned(8 * self.lines)

    # -- what kernels of the chain do with it

    def put(self, f: CountingKernel, element: str, key: str, position: str) -> None:
        """Leave an element, numbered through all lines, for the first pass: its key and its position in the line."""
        f.store(self.kind, key, f.element(f.own(self.before), self.kind, element))
        f.put_word(f.own(self.before + 2 * self._key_room), element, position)

    def begin(self, f: CountingKernel, line: str) -> None:
        """No pass of a line is done; one thread says so in the first kernel."""
        f.put_word(f.own(self._turns_at), f.mul(line, 2), 0)

    def sorted_position(self, f: CountingKernel, element: str) -> str:
        """The position of what is in a place of the order, after all passes."""
        half = self._place_room if self.passes % 2 else 0
        return f.get_word(f.own(self.before + 2 * self._key_room + half), element)

    def sorted_key(self, f: CountingKernel, element: str) -> str:
        """Its key, widened to an index."""
        half = self._key_room if self.passes % 2 else 0
        return f.get_word(f.own(self.before + half), element, self.kind)

    def passes_over(self, buffers: Sequence[Buffer], sizes: Sequence[int], then: GridText) -> GridText:
        """The kernels of all passes, and what follows them."""
        found = then
        texts = [kernel(self, buffers, sizes).print() for kernel in (_Moves, _Starts, _Counts)]
        for text in texts * self.passes:
            found = replace(text, combine=found)
        return found


class _Pass(CountingKernel):
    """A kernel of a pass."""

    def __init__(self, space: Workspace, buffers: Sequence[Buffer], sizes: Sequence[int], grid: Grid) -> None:
        super().__init__(grid, buffers, sizes, space.size_bytes)
        self.space = space

    def take_tile(self) -> None:
        """Which tile of which line the block has."""
        self.line_number = self.quotient(self.block_x, self.space.tiles)
        self.first = self.mul(self.remainder(self.block_x, self.space.tiles), TILE)
        self.base = self.mul(self.line_number, self.space.length)

    def turn(self, word: int) -> str:
        """Which pass over the line it is."""
        return self.get_word(self.own(self.space._turns_at), self.add(self.mul(self.line_number, 2), word))

    def half(self, turn: str, base: int, room: int) -> tuple[str, str]:
        """Two arrays that take turns: the one that a pass reads, the one that it writes."""
        shift = self.mul(self.binary("and", turn, 1), room)
        return self.at(self.own(base), shift), self.at(self.own(base + room), self.sub(0, shift))

    def keys(self, turn: str) -> tuple[str, str]:
        return self.half(turn, self.space.before, self.space._key_room)

    def places(self, turn: str) -> tuple[str, str]:
        return self.half(turn, self.space.before + 2 * self.space._key_room, self.space._place_room)

    def digit(self, key: str, turn: str) -> str:
        """The digit of a key that the pass is about."""
        kind = self.space.kind
        wide = key if kind == "i64" else self.convert("zext", key, kind)
        return self.binary("and", self.binary("lshr", wide, self.mul(turn, 8)), DIGITS - 1)


class _Counts(_Pass):
    """How often each digit occurs in a tile."""

    def __init__(self, space: Workspace, buffers: Sequence[Buffer], sizes: Sequence[int]) -> None:
        super().__init__(space, buffers, sizes, space.grid)

    def print(self) -> GridText:
        space = self.space
        self.take_tile()
        turn = self.turn(0)
        keys, _ = self.keys(turn)
        counts = self.shared("i32", DIGITS)
        self.put_word(counts, self.thread, 0)
        self.barrier()
        stop = self.least(self.add(self.first, TILE), space.length)
        with self.loop(self.add(self.first, self.thread), stop, THREADS, stem="element") as element:
            key = self.load(space.kind, self.element(keys, space.kind, self.add(self.base, element)))
            self.update("add", self.element(counts, "i32", self.digit(key, turn)), 1, IN_BLOCK, "i32")
        self.barrier()
        at = self.add(self.mul(self.block_x, DIGITS), self.thread)
        self.put_word(self.own(space._counts_at), at, self.get_word(counts, self.thread))
        return self.ended()


class _Starts(_Pass):
    """From how often each digit occurs in each tile to where its elements go: a block for a line, a thread a digit."""

    def __init__(self, space: Workspace, buffers: Sequence[Buffer], sizes: Sequence[int]) -> None:
        super().__init__(space, buffers, sizes, Grid(THREADS, (space.lines * size_min(space.tiles, 1), 1, 1)))

    def print(self) -> GridText:
        space = self.space
        self.line_number = self.block_x
        counts = self.own(space._counts_at)
        first = self.add(self.mul(self.block_x, space.tiles * DIGITS), self.thread)
        running = self.local("i64")
        self.store("i64", 0, running)
        with self.loop(0, space.tiles, stem="tile") as tile:
            count = self.get_word(counts, self.add(first, self.mul(tile, DIGITS)))
            self.store("i64", self.add(self.load("i64", running), count), running)
        before, _ = self.before_in_block(self.load("i64", running))
        self.store("i64", before, running)
        with self.loop(0, space.tiles, stem="tile") as tile:
            at = self.add(first, self.mul(tile, DIGITS))
            count = self.get_word(counts, at)
            start = self.load("i64", running)
            self.put_word(counts, at, start)
            self.store("i64", self.add(start, count), running)
        with self.when(self.test("eq", self.thread, 0)):
            turn, turns = self.turn(0), self.own(space._turns_at)
            at = self.mul(self.line_number, 2)
            self.put_word(turns, self.add(at, 1), turn)
            self.put_word(turns, at, self.add(turn, 1))
        return self.ended()


class _Moves(_Pass):
    """Every element of a tile goes where its digit belongs, behind those of equal digits in front of it."""

    def __init__(self, space: Workspace, buffers: Sequence[Buffer], sizes: Sequence[int]) -> None:
        super().__init__(space, buffers, sizes, space.grid)

    def print(self) -> GridText:
        self.take_tile()
        turn = self.turn(1)
        keys, other_keys = self.keys(turn)
        counts = self.shared("i32", WARPS * DIGITS)
        for warp in range(WARPS):
            self.put_word(counts, self.add(self.thread, warp * DIGITS), 0)
        self.barrier()
        row = self.mul(self.warp, DIGITS)
        taken = [self._take(keys, counts, row, turn, number) for number in range(ROUNDS)]
        self.barrier()
        self._starts_of_warps(counts)
        self.barrier()
        places, other_places = self.places(turn)
        for inside, element, key, at, rank in taken:
            with self.when(inside):
                target = self.add(self.base, self.add(self.get_word(counts, at), rank))
                place = self.get_word(places, self.add(self.base, element))
                self.store(self.space.kind, key, self.element(other_keys, self.space.kind, target))
                self.put_word(other_places, target, place)
        return self.ended()

    def _take(self, keys: str, counts: str, row: str, turn: str, number: int) -> tuple[str, str, str, str, str]:
        """An element: whether there is one, its place in the line, its key, the place of its count, its rank there."""
        space = self.space
        of_warp = self.add(self.first, self.mul(self.warp, WARP * ROUNDS))
        element = self.add(self.add(of_warp, number * WARP), self.lane)
        inside = self.test("slt", element, space.length)
        last = self.add(self.base, self.least(element, space.length - 1))
        key = self.load(space.kind, self.element(keys, space.kind, last))
        digit = self.digit(key, turn)
        sought = self.choose(inside, digit, DIGITS)
        peers = self.alike(self.convert("trunc", sought, "i64", "i32"))
        in_front = self.ones(self.binary("and", peers, self.lanes_below(), "i32"))
        at = self.add(row, digit)
        before = self.get_word(counts, at)
        self.warp_barrier()
        is_first = self.both(inside, self.test("eq", in_front, 0))
        with self.when(is_first):
            self.put_word(counts, at, self.add(before, self.ones(peers)))
        self.warp_barrier()
        return inside, element, key, at, self.add(before, in_front)

    def _starts_of_warps(self, counts: str) -> None:
        """Where the elements of the thread's digit begin, warp by warp."""
        at = self.add(self.mul(self.block_x, DIGITS), self.thread)
        running = self.get_word(self.own(self.space._counts_at), at)
        for warp in range(WARPS):
            place = self.add(self.thread, warp * DIGITS)
            count = self.get_word(counts, place)
            self.put_word(counts, place, running)
            running = self.add(running, count)
