"""Sorting what fits into the shared memory of a block, by a network of comparisons (Batcher's bitonic one).

Elements are sorted by key, equal ones by position, so the order is the stable one whatever the network does. Several
short lines share a block: a line has a power of two of places, and comparisons stay inside of it.

K. E. Batcher, "Sorting networks and their applications", AFIPS 1968.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autojit.codegen.cuda.counting import CountingKernel
from autojit.codegen.cuda.grid_function import WARP, Grid
from autojit.codegen.grid_text import Buffer
from autojit.core.records import record

MOST_ELEMENTS = 4096
"""Of a line: 12 bytes for each are the 48 KB of shared memory that every block has without asking for more."""
BLOCK_ELEMENTS = 512  # of several short lines
MOST_THREADS = 512


@record
class Network:
    """How lines are spread over blocks.

    Args:
        lines: how many are sorted, each by itself.
        length: elements of a line.
    """

    lines: int
    length: int

    @property
    def places(self) -> int:
        """Of a line in shared memory."""
        return 1 << max(self.length - 1, 1).bit_length()

    @property
    def lines_at_once(self) -> int:
        """Of a block: a power of two."""
        at_most = max(1, BLOCK_ELEMENTS // self.places)
        return min(at_most, 1 << max(self.lines - 1, 0).bit_length())

    @property
    def total(self) -> int:
        """Places of a block."""
        return self.places * self.lines_at_once

    @property
    def grid(self) -> Grid:
        threads = min(MOST_THREADS, max(WARP, self.total // 2))
        return Grid(threads, (-(-self.lines // self.lines_at_once), 1, 1))


class NetworkKernel(CountingKernel):
    """A kernel that sorts lines in shared memory.

    Args:
        network: how lines are spread.
        key_bytes: of a key, an unsigned number.
        buffers: what the chain of kernels does with each buffer.
        sizes: their elements.
        partial_bytes: of the chain's memory, if it has any.
    """

    def __init__(
        self, network: Network, key_bytes: int, buffers: Sequence[Buffer], sizes: Sequence[int], partial_bytes: int = 0
    ) -> None:
        super().__init__(network.grid, buffers, sizes, partial_bytes)
        self.begin_network(network, key_bytes)

    def begin_network(self, network: Network, key_bytes: int) -> None:
        """Where another class has begun the kernel."""
        self.network, self.key_bytes, self.kind = network, key_bytes, f"i{8 * key_bytes}"
        self.is_packed = key_bytes <= 4  # a key and a position are one word
        self.words = self.shared("i64", network.total)
        self.positions = self.words if self.is_packed else self.shared("i32", network.total)

    # -- elements: (a word by which they are compared, a position that breaks ties)

    def fill(self, key_of: Callable[[str, str], str]) -> None:
        """Put all elements into shared memory: ``key_of(line, position)`` gives a key."""
        network = self.network
        with self.strided(network.total, "put") as place:
            number, position = self.quotient(place, network.places), self.remainder(place, network.places)
            line = self.add(self.mul(self.block_x, network.lines_at_once), number)
            self._put(place, "-1", position)
            is_there = self.test("slt", position, network.length)
            if network.lines % network.lines_at_once:
                is_there = self.both(is_there, self.test("slt", line, network.lines))
            with self.when(is_there):
                key = key_of(line, position)
                self._put(place, key if self.kind == "i64" else self.convert("zext", key, self.kind), position)
        self.barrier()

    def _put(self, place: str, key: str, position: str) -> None:
        if self.is_packed:
            upper = key if key == "-1" else self.binary("shl", key, 32)
            self.put_word(self.words, place, self._beside(upper, position), "i64")
            return
        self.put_word(self.words, place, key, "i64")
        self.put_word(self.positions, place, position)

    def _beside(self, upper: str, position: str) -> str:
        """A word of a key and a position; places without an element come behind all that have one."""
        return self.binary("or", position, "-4294967296") if upper == "-1" else self.binary("or", upper, position)

    def sort(self) -> None:
        """Compare and exchange until the places of each line are in order; all have seen it then."""
        network = self.network
        with self.loop(0, network.places.bit_length() - 1, stem="merge") as number:
            run = self.binary("shl", 2, number)  # what is in order behind this turn
            with self.loop(0, self.add(number, 1), stem="step") as halved:
                distance = self.binary("lshr", run, self.add(halved, 1))
                with self.strided(network.total // 2, "pair") as pair:
                    self._exchange(pair, run, distance)
                self.barrier()

    def _exchange(self, pair: str, run: str, distance: str) -> None:
        """Put two places in order: runs take turns in rising and falling, the whole line rises."""
        inside = self.binary("and", pair, self.sub(distance, 1))
        low = self.add(self.mul(self.sub(pair, inside), 2), inside)
        high = self.add(low, distance)
        here = self.binary("and", low, self.network.places - 1)
        falls = self.test("ne", self.binary("and", here, run), 0)
        one, other = (self.get_word(self.words, at, "i64") for at in (low, high))
        if self.is_packed:
            is_greater = self.test("ugt", one, other)
            with self.when(self.test("ne", is_greater, falls, "i1")):
                self.put_word(self.words, low, other, "i64")
                self.put_word(self.words, high, one, "i64")
            return
        first, second = (self.get_word(self.positions, at) for at in (low, high))
        is_tie = self.both(self.test("eq", one, other), self.test("ugt", first, second))
        is_greater = self.either(self.test("ugt", one, other), is_tie)
        with self.when(self.test("ne", is_greater, falls, "i1")):
            for array, at, value, kind in (
                (self.words, low, other, "i64"),
                (self.words, high, one, "i64"),
                (self.positions, low, second, "i32"),
                (self.positions, high, first, "i32"),
            ):
                self.put_word(array, at, value, kind)

    def take(self, use: Callable[[str, str, str], None]) -> None:
        """``use(line, rank, position)`` for every element in order."""
        network = self.network
        with self.strided(network.total, "take") as place:
            number, rank = self.quotient(place, network.places), self.remainder(place, network.places)
            line = self.add(self.mul(self.block_x, network.lines_at_once), number)
            is_there = self.test("slt", rank, network.length)
            if network.lines % network.lines_at_once:
                is_there = self.both(is_there, self.test("slt", line, network.lines))
            with self.when(is_there):
                use(line, rank, self.position_at(place))

    def position_at(self, place: str) -> str:
        """The position of what is in a place."""
        if not self.is_packed:
            return self.get_word(self.positions, place)
        return self.binary("and", self.get_word(self.words, place, "i64"), (1 << 32) - 1)

    def key_at(self, place: str) -> str:
        """Its key, as an index."""
        word = self.get_word(self.words, place, "i64")
        return self.binary("lshr", word, 32) if self.is_packed else word
