"""Attention on a CPU: a block of queries walks the keys that they see, tile by tile.

Source: Milakov and Gimelshein, arXiv:1805.02867. The largest score and the sum of exponentials so far are in the
worker's scratch; what was added up before a larger score was met is scaled, in the memory of the result. Chunks cut the
blocks of all matrices; how they are cut changes no bit.
"""

from __future__ import annotations

from autojit.codegen.cpu.chunks import even_chunks
from autojit.codegen.cpu.kernel_text import KernelText
from autojit.codegen.cpu.structured.attention_kernel import AttentionKernel, CpuAttention
from autojit.codegen.scalar import Scalar
from autojit.core.dtypes import bool_

LOWEST = float("-inf")


def print_attention(job: CpuAttention) -> KernelText:
    """The kernel of attention."""
    return _ForwardPrinter(job).print()


class _ForwardPrinter(AttentionKernel):
    def __init__(self, job: CpuAttention) -> None:
        super().__init__(job, tables=1, lines=2 * job.block)
        self.largest = self.by_query
        self.sums = self.address(self.by_query, self.dtype, job.block)

    def print(self) -> KernelText:
        job = self.job
        estimate = job.nanoseconds((1, 1))
        units = job.count * job.blocks
        chunks, size = even_chunks(units, estimate, round(1000 * estimate))
        with self.loop(*self.chunk_bounds(size, units), stem="block") as unit:
            self.begin(self.quotient(unit, job.blocks))
            first = self.mul(self.remainder(unit, job.blocks), job.block)
            self._block(first, self.least(self.sub(self.queries, first), job.block))
        return self.finished(chunks, estimate, scratch_bytes=self.scratch_bytes)

    def _block(self, first: str, rows: str) -> None:
        stop = self.least(self.add(first, rows), self.keys) if self.op.is_causal else str(self.keys)
        if self.job.skips:  # the first tile may be skipped: then there is something before each
            self._begin_empty(first, rows)
        with self.loop(0, stop, self.job.tile, stem="tile") as tile:
            columns = self.least(self.sub(stop, tile), self.job.tile)
            with self.met((first, rows), (tile, columns)):
                self._tile(first, rows, tile, columns)
        with self.loop(0, rows, stem="query") as row:
            self._finish(first, row)

    def _begin_empty(self, first: str, rows: str) -> None:
        """Queries have seen nothing."""
        emit, dtype = self.emit, self.dtype
        y, width, _ = self.result("y", (self.queries, self.value_width), first)
        self.fill_bytes(y, 0, self.mul(rows, width * self.size_bytes))
        self.fill_bytes(self.sums, 0, self.mul(rows, self.size_bytes))
        with self.elements(rows) as row:
            emit.store(emit.constant(LOWEST, dtype), self.address(self.largest, dtype, row), self.access)

    def _tile(self, first: str, rows: str, tile: str, columns: str) -> None:
        k, stride, step = self.part("k", tile)
        products = (rows, columns, self.number(self.key_width))
        self.multiply(products, self.part("q", first), (k, step, stride), self.table(0), 0)
        is_later = "true" if self.job.skips else self.test("ne", tile, 0)
        with self.loop(0, rows, stem="query") as row:
            self._weights(first, row, tile, columns, is_later)
        y = self.result("y", (self.queries, self.value_width), first)
        attended = (rows, self.number(self.value_width), columns)
        self.multiply(attended, self.table(0), self.part("v", tile), y, self.convert("zext", is_later, "i1"))

    def _weights(self, first: str, row: str, tile: str, columns: str, is_later: str) -> None:
        """Exponentials of a query's scores over the largest so far."""
        emit, dtype = self.emit, self.dtype
        query, line = self.add(first, row), self.line_of(self.tables[0], row)
        seen, mask = self.seen(query, tile, columns), self.of_mask(query, tile)
        spared = self.draw(query, tile, columns)
        self.begin_query(query, tile)
        largest = self.address(self.largest, dtype, row)
        sums = self.address(self.sums, dtype, row)
        before = emit.select(self._truth(is_later), emit.load(largest, dtype), LOWEST)
        keeps = bool(mask) or self.function is not None  # what a product left is not yet the score
        best = self.slot(dtype)
        self.put(best, before)
        with self.elements(seen) as column:
            at = self.address(line, dtype, column)
            score = self.score(at, mask, column)
            if keeps:
                emit.store(score, at, self.access)
            self.put(best, self.fold.maximum(self.get(best, dtype), score))
        now = self.get(best, dtype)
        emit.store(now, largest)
        base = emit.select(emit.compare("eq", now, LOWEST), 0.0, now)
        total = self.total(0.0)
        with self.elements(seen) as column:
            at = self.address(line, dtype, column)
            score = emit.load(at, dtype, self.access) if keeps else self.score(at, mask, column)
            weight = emit.exp(emit.sub(score, base))
            self.add_to(total, weight)
            emit.store(self.times_spared(weight, spared, column), at, self.access)
        self.clear(line, seen, columns)
        factor = emit.exp(emit.sub(before, base))
        earlier = emit.select(self._truth(is_later), emit.mul(emit.load(sums, dtype), factor), 0.0)
        emit.store(emit.add(earlier, self.get(total, dtype)), sums)
        rises = self.both(is_later, emit.compare("ne", factor, 1.0).text)
        with self.when(rises):
            self._scale(query, factor)

    def _truth(self, condition: str) -> Scalar:
        return Scalar(condition, bool_)

    def _scale(self, query: str, factor: Scalar) -> None:
        """What a query attends to, times a factor."""
        y, _, _ = self.result("y", (self.queries, self.value_width), query)
        with self.elements(self.value_width) as column:
            at = self.address(y, self.dtype, column)
            self.emit.store(self.emit.mul(self.emit.load(at, self.dtype, self.access), factor), at, self.access)

    def _finish(self, first: str, row: str) -> None:
        """Attended values over the sums of weights, and the logarithms of these sums."""
        emit, dtype = self.emit, self.dtype
        total = emit.load(self.address(self.sums, dtype, row), dtype)
        factor = emit.div(emit.one(total), total)
        log = emit.add(emit.load(self.address(self.largest, dtype, row), dtype), emit.log(total))
        if self.may_see_none:  # a query that sees no key gets zeros
            sees_none = emit.compare("eq", total, 0.0)
            factor = emit.select(sees_none, emit.zero(factor), factor)
            log = emit.select(sees_none, emit.constant(0.0 if self.op.has_mask else LOWEST, dtype), log)
        query = self.add(first, row)
        self._scale(query, factor)
        place = self.add(self.mul(self.matrix, self.queries), query)
        emit.store(log, self.address(self.buffers[self.job.number("lse")], dtype, place))
