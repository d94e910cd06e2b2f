"""What attention's kernels on the CPU have in common: blocks of queries, tiles of keys, products, scores.

A block of queries meets a tile of keys: their scores are a product into the worker's scratch, where they become weights
and are an operand of the next products. Nothing that is kept is as large as all scores. The products are those of
`products.gemm`, which the kernel is told the address of.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from autojit.codegen.attention_operands import AttentionOperands, origins
from autojit.codegen.cpu.kernel_text import CpuKernel, KernelModule
from autojit.codegen.cpu.machine import aligned
from autojit.codegen.cpu.products import blocks, gemm
from autojit.codegen.cpu.structured.attention_scores import Known, ScoreFunction
from autojit.codegen.function_text import Operand
from autojit.codegen.philox import block
from autojit.codegen.scalar import Scalar
from autojit.core.dtypes import bool_, float32, int64, uint64
from autojit.core.records import record
from autojit.ops.flex_attention import FlexAttending

QUERIES = 256
"""Of a block: enough that packing a tile's keys for them costs little."""

TILE_BYTES = 256 * 1024
"""Scores of a block and a tile: part of a second-level cache, beside what they are made of."""

SKIPPED = 128
"""Queries of a block, and keys of a tile, where a table says which are empty. Forward and backward of 8 heads of 64
elements, 2,048 tokens, one thread, over 256 by 256: a window of 256 keys 58 ms to 74, documents 56 to 80, causal 165 to
171; 128 by 256 and 256 by 128 skip less than they cost."""

GFLOPS = {4: 60.0, 8: 30.0}  # by bytes of an element, as of products: they only cut work into chunks
WEIGHT_NS = {4: 0.6, 8: 1.8}  # an exponential and what surrounds it
WORD_NS = 1.5  # a random word, of four at a time
WORDS = 4  # of a block of random numbers


@record
class CpuAttention(AttentionOperands):
    """What is printed for a CPU."""

    @property
    def skips(self) -> bool:
        """Whether a table says which blocks are empty."""
        return isinstance(self.op, FlexAttending) and self.op.has_table

    @property
    def block(self) -> int:
        """Queries that are looked at together."""
        return max(1, min(self.extents[0], SKIPPED if self.skips else QUERIES))

    @property
    def tile(self) -> int:
        """Keys that are looked at together."""
        most = SKIPPED if self.skips else TILE_BYTES // (self.dtype.size_bytes * self.block)
        return max(1, min(self.extents[1], most))

    @property
    def blocks(self) -> int:
        return -(-self.extents[0] // self.block)

    @property
    def tiles(self) -> int:
        return -(-self.extents[1] // self.tile)

    def nanoseconds(self, products: tuple[int, int]) -> float:
        """Of one thread: so many products as wide as keys, and as values."""
        queries, keys, *widths = self.extents
        scores = queries * keys * self.count * (0.5 if self.op.is_causal else 1.0)
        flops = sum(2.0 * width * times for width, times in zip(widths, products, strict=True))
        size = self.dtype.size_bytes
        return 200.0 + scores * (flops / GFLOPS[size] + WEIGHT_NS[size] + (WORD_NS if self.op.draws else 0.0))


class AttentionKernel(CpuKernel):
    """One kernel of attention. Its buffers are operands, results, what comes ``beside`` them, scratch and a product.

    Args:
        lines: elements that each worker keeps for queries.
        tables: how many tables of scores it has.
    """

    tile_of_scores: str
    of_query: Known
    of_place: Known

    def __init__(self, job: CpuAttention, *, tables: int, lines: int, beside: tuple[int, ...] = ()) -> None:
        super().__init__(KernelModule(), "kernel")
        self.job, self.op, self.dtype = job, job.op, job.dtype
        self.size_bytes = job.dtype.size_bytes
        self.queries, self.keys, self.key_width, self.value_width = job.extents
        tile, room = job.block * job.tile, job.tile + 2 * WORDS
        parts = [*[tile] * tables, lines, room if self.op.draws else 0]
        starts = [0]
        for part in parts:
            starts.append(starts[-1] + aligned(part * self.size_bytes))
        self.scratch_bytes = starts[-1] + aligned(self._product_bytes())
        self.pointers([*job.sizes, *beside, self.scratch_bytes, 1])
        self.function = ScoreFunction(self, job, job.op) if isinstance(job.op, FlexAttending) else None
        self.gemm = self.buffers[-1]
        own = self.at(self.buffers[-2], self.mul("%worker", self.scratch_bytes))
        *self.tables, self.by_query, self.spared, self.product_scratch = (self.at(own, start) for start in starts)

    def _product_bytes(self) -> int:
        rows, columns = self.job.block, self.job.tile
        widths = self.key_width, self.value_width
        extents = [
            (m, n, k) for w in widths for m, n, k in ((rows, columns, w), (rows, w, columns), (columns, w, rows))
        ]
        return max(gemm.scratch_bytes(self.dtype, m, n, k) for m, n, k in extents)

    # -- operands

    def begin(self, matrix: str) -> None:
        """What follows is about one matrix of each operand."""
        self.matrix = matrix
        self.origins = origins(self, self.job, matrix)
        if self.op.draws:
            number = self.job.number("key")
            offset, stride = self.job.places[number]
            seed, start = (self.read(number, int64, str(offset + k * stride)) for k in range(2))
            self.seed, self.start_of_words = Scalar(seed.text, uint64), start.text

    def part(self, name: str, line: Operand) -> tuple[str, int, int]:
        """Where an operand's lines from one on are, and the strides of lines and elements."""
        number = self.job.number(name)
        _, stride, step = self.job.places[number]
        place = self.add(self.origins[name], self.mul(line, stride))
        return self.address(self.buffers[number], self.dtype, place), stride, step

    def result(self, name: str, extents: tuple[int, int], line: Operand) -> tuple[str, int, int]:
        """The same of a result, whose matrices have so many lines and elements."""
        lines, width = extents
        place = self.mul(self.add(self.mul(self.matrix, lines), line), width)
        return self.address(self.buffers[self.job.number(name)], self.dtype, place), width, 1

    def table(self, number: int) -> tuple[str, int, int]:
        """One of the worker's tables of scores."""
        return self.tables[number], self.job.tile, 1

    def multiply(
        self,
        extents: tuple[Operand, Operand, Operand],
        a: tuple[str, int, int],
        b: tuple[str, int, int],
        c: tuple[str, int, int],
        accumulate: Operand,
    ) -> None:
        """``c = a b``, or ``c += a b``, of (lines, columns, summed) elements."""
        callee = blocks.signature(self.dtype, "gemm")
        self.call(callee, *extents, *a, *b, *c, accumulate, self.product_scratch, by=self.gemm)

    # -- scores

    def seen(self, query: str, tile: str, columns: str) -> str:
        """How many keys of a tile a query sees, by their numbers."""
        if not self.op.is_causal:
            return columns
        return self.most(self.least(columns, self.sub(self.add(query, 1), tile)), 0)

    def of_mask(self, query: str, tile: str) -> str:
        """The address of the mask's line of a query, from the tile's first key on; any where there is no mask."""
        if self.job.mask is None:
            return ""
        number = self.job.number("mask")
        _, stride, step = self.job.places[number]
        place = self.add(self.origins["mask"], self.add(self.mul(query, stride), self.mul(tile, step)))
        return self.address(self.buffers[number], self.job.mask, place)

    @property
    def may_see_none(self) -> bool:
        """Whether a query may see no key."""
        return self.op.has_mask or self.function is not None

    def begin_query(self, query: str, tile: str) -> None:
        """What follows is about the scores of one query, of the keys from one on."""
        self.tile_of_scores = tile
        if self.function is not None:
            self.of_query = self.function.of_query(self.matrix, query)

    def score(self, address: str, mask: str, column: str) -> Scalar:
        """The score that a product left at an address, changed by a function; -inf where a mask removes the key."""
        emit = self.emit
        score = emit.mul(emit.load(address, self.dtype, self.access), self.op.scale)
        if self.function is not None:
            key = self.add(self.tile_of_scores, column)
            score, self.of_place = self.function.at_place(self.of_query, score, key)
            return score
        if self.job.mask is None:
            return score
        step = self.job.places[self.job.number("mask")][-1]
        masking = emit.load(self.address(mask, self.job.mask, self.mul(column, step)), self.job.mask, self.access)
        if masking.dtype is bool_:
            return emit.select(masking, score, float("-inf"))
        return emit.add(score, masking)

    @contextmanager
    def met(self, queries: tuple[str, str], keys: tuple[str, str]) -> Iterator[None]:
        """What (first, number of) queries and keys have to do with each other: nothing where a table says so."""
        if self.function is None or not self.job.skips:
            yield
            return
        with self.when(self.function.is_looked_at(self.matrix, queries, keys)):
            yield

    # -- random numbers

    def draw(self, query: str, tile: str, columns: str) -> str:
        """What the weights of a query and a tile are multiplied by, in scratch: the address of the first factor.

        Word i of the draw is weight i's, and words come in fours.
        """
        if not self.op.draws:
            return ""
        emit = self.emit
        line = self.add(self.mul(self.matrix, self.queries), query)
        place = self.add(self.mul(line, self.keys), tile)
        first = self.quotient(place, WORDS)
        count = self.add(self.quotient(self.sub(self.add(place, columns), 1), WORDS), 1)
        kept = emit.constant(1.0 / (1.0 - self.op.dropped), self.dtype)
        with self.parallel_loop(0, self.sub(count, first), "words") as number:
            block_number = self.add(self.start_of_words, self.add(first, number))
            words = block(emit, self.seed, Scalar(block_number, uint64))
            for k, word in enumerate(words):
                is_kept = emit.compare("ge", emit.uniform(float32, word), self.op.dropped)
                at = self.address(self.spared, self.dtype, self.add(self.mul(number, WORDS), k))
                emit.store(emit.select(is_kept, kept, emit.zero(kept)), at, self.access)
        return self.address(self.spared, self.dtype, self.sub(place, self.mul(first, WORDS)))

    def times_spared(self, value: Scalar, spared: str, column: str) -> Scalar:
        """A value times its weight's factor; itself where nothing is dropped."""
        if not spared:
            return value
        return self.emit.mul(value, self.emit.load(self.address(spared, self.dtype, column), self.dtype, self.access))

    # -- lines

    @contextmanager
    def elements(self, count: Operand) -> Iterator[str]:
        """A loop over the elements of a line."""
        with self.parallel_loop(0, count, "element") as column:
            yield column

    def clear(self, line: str, first: str, stop: str) -> None:
        """Elements of a line of scores are 0."""
        start = self.address(line, self.dtype, first)
        self.fill_bytes(start, 0, self.mul(self.sub(stop, first), self.size_bytes))

    def line_of(self, table: str, row: str) -> str:
        """Where a query's scores begin in a table."""
        return self.address(table, self.dtype, self.mul(row, self.job.tile))

    def total(self, value: float) -> str:
        """A variable that folds."""
        slot = self.slot(self.dtype)
        self.put(slot, self.emit.constant(value, self.dtype))
        return slot

    def add_to(self, slot: str, value: Scalar) -> None:
        self.put(slot, self.fold.add(self.get(slot, self.dtype), value))
