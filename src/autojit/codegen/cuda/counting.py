"""Kernels that count and place: what threads of a block have before each other, who of a warp has the same digit.

Everything here is of whole numbers, so it is the same in whatever order threads come.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from autojit.codegen.cuda.grid_function import WARP, CudaKernel, Grid
from autojit.codegen.function_text import Operand
from autojit.codegen.grid_text import Buffer, GridText
from autojit.codegen.scalar import Scalar
from autojit.core.dtypes import int32

IN_BLOCK = 'syncscope("block") monotonic'


class CountingKernel(CudaKernel):
    """A kernel on a node's buffers and, behind them, memory of its own that a chain of kernels has in common.

    Args:
        grid: the threads that run it.
        buffers: what kernels of the chain do with each buffer: all say the same.
        sizes: the elements of each buffer.
        partial_bytes: of the memory in common.
    """

    def __init__(self, grid: Grid, buffers: Sequence[Buffer], sizes: Sequence[int], partial_bytes: int) -> None:
        super().__init__(grid)
        self.begin_counting(buffers, sizes, partial_bytes)

    def begin_counting(self, buffers: Sequence[Buffer], sizes: Sequence[int], partial_bytes: int) -> None:
        """Take the buffers as arguments; where another class has begun the kernel."""
        self.roles, self.partial_bytes = tuple(buffers), partial_bytes
        self.pointers(sizes)

    def ended(self, then: GridText | None = None) -> GridText:
        """The finished kernel, and what follows it."""
        return self.finished(self.roles, partial_bytes=self.partial_bytes, combine=then)

    # -- memory in common

    def own(self, offset_bytes: int) -> str:
        """An address in the memory of the chain."""
        return self.at(self.partials, offset_bytes)

    def get_word(self, base: str, position: Operand, kind: str = "i32") -> str:
        """A whole number of an array, as an index."""
        found = self.load(kind, self.element(base, kind, position))
        return found if kind == "i64" else self.convert("zext", found, kind)

    def put_word(self, base: str, position: Operand, value: Operand, kind: str = "i32") -> None:
        """Write an index to an array of whole numbers."""
        narrow = value if kind == "i64" else self.convert("trunc", value, "i64", kind)
        self.store(kind, narrow, self.element(base, kind, position))

    # -- threads

    @contextmanager
    def numbered(self, items: int) -> Iterator[str]:
        """What is written inside is run by the threads that have an item; yields its number in the grid."""
        threads = self.grid.threads
        number = self.add(self.mul(self.block_x, threads), self.thread)
        with self.perhaps(None if items % threads == 0 else self.test("ult", number, items)):
            yield number

    @contextmanager
    def strided(self, count: int, stem: str) -> Iterator[str]:
        """A loop of the block over so many items, one for each thread at a time: turns are equal if they fit."""
        with self.loop(self.thread, count, self.grid.threads, stem=stem) as item:
            yield item

    @property
    def lane(self) -> str:
        return self.remainder(self.thread, WARP)

    @property
    def warp(self) -> str:
        return self.quotient(self.thread, WARP)

    def ones(self, word: str) -> str:
        """How many bits of a 32-bit word are set."""
        return self.convert("zext", self.value(f"call i32 @llvm.ctpop.i32(i32 {word})"), "i32")

    def lanes_below(self) -> str:
        """The bits of the lanes in front of this one."""
        lane = self.convert("trunc", self.lane, "i64", "i32")
        return self.binary("sub", self.binary("shl", 1, lane, "i32"), 1, "i32")

    def alike(self, word: str) -> str:
        """The bits of the lanes that have this 32-bit word; all lanes ask at once."""
        return self.value(f"call i32 @llvm.nvvm.match.any.sync.i32(i32 -1, i32 {word})")

    def ballot(self, condition: str) -> str:
        """The bits of the lanes for which a condition holds; all lanes ask at once."""
        return self.value(f"call i32 @llvm.nvvm.vote.ballot.sync(i32 -1, i1 {condition})")

    def warp_barrier(self) -> None:
        """What the lanes of a warp wrote before is seen by all of them."""
        self.line("call void @llvm.nvvm.bar.warp.sync(i32 -1)")

    def before_in_block(self, value: str) -> tuple[str, str]:
        """The sum of what threads in front of this one have, and that of all: numbers below 2^31.

        All threads of the block ask at once. Shared memory is asked for anew, so not inside a loop's text twice.
        """
        warps = self.grid.threads // WARP
        inside = self._up_to_lane(self.convert("trunc", value, "i64", "i32"))
        totals = self.shared("i32", warps)
        with self.when(self.test("eq", self.lane, WARP - 1)):
            self.store("i32", inside, self.element(totals, "i32", self.warp))
        self.barrier()
        before, total = "0", "0"
        for number in range(warps):
            found = self.get_word(totals, number)
            before = self.choose(self.test("ult", number, self.warp), self.add(total, found), before)
            total = self.add(total, found)
        self.barrier()  # the totals may be asked for again
        up_to_this = self.add(before, self.convert("zext", inside, "i32"))
        return self.sub(up_to_this, value), total

    def _up_to_lane(self, value: str) -> str:
        """The sum of 32-bit numbers of lanes up to this one."""
        lane, distance = self.lane, 1
        while distance < WARP:
            both = self.binary("add", value, self.shuffle_up(Scalar(value, int32), distance).text, "i32")
            value = self.choose(self.test("uge", lane, distance), both, value, "i32")
            distance *= 2
        return value
