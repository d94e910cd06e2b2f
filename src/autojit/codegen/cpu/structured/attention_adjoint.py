"""Attention's derivative on a CPU: a tile of keys walks the blocks of queries that see it.

Scores are computed again, and weights from them and the logarithms of sums. A *share* of a matrix's keys, every so
many tiles, is a chunk: it owns the cotangents of its keys and values, and adds those of the queries up in memory of its
own where there are several shares. These are added up in the order of the shares, of which there are as many as shapes
say, so the number of threads changes no bit.
"""

from __future__ import annotations

from autojit.codegen.cpu.kernel_text import KernelText
from autojit.codegen.cpu.machine import aligned
from autojit.codegen.cpu.structured.attention_kernel import AttentionKernel, CpuAttention

LEAST_CHUNKS = 8
"""Shares of all matrices: enough for a few threads and for balance."""


def shares_of(job: CpuAttention) -> int:
    """Into how many shares each matrix's keys are divided."""
    return min(job.tiles, -(-LEAST_CHUNKS // job.count))


def share_bytes(job: CpuAttention) -> int:
    """Memory for the cotangents of all queries of one share."""
    return aligned(job.count * job.extents[0] * job.extents[2] * job.dtype.size_bytes)


def print_adjoint(job: CpuAttention) -> KernelText:
    """The kernel of the derivative."""
    return _AdjointPrinter(job).print()


class _AdjointPrinter(AttentionKernel):
    def __init__(self, job: CpuAttention) -> None:
        self.shares = shares_of(job)
        beside = (self.shares * share_bytes(job),) if self.shares > 1 else ()
        super().__init__(job, tables=2, lines=job.extents[0], beside=beside)

    def print(self) -> KernelText:
        job = self.job
        self.begin(self.quotient("%chunk", self.shares))
        self.share = self.remainder("%chunk", self.shares)
        self._prepare()
        first = self.mul(self.share, job.tile)
        with self.loop(first, self.keys, job.tile * self.shares, stem="tile") as tile:
            self._tile(tile, self.least(self.sub(self.keys, tile), job.tile))
        chunks = job.count * self.shares
        return self.finished(chunks, job.nanoseconds((3, 2)), scratch_bytes=self.scratch_bytes)

    def _of_queries(self, line: str | int) -> tuple[str, int, int]:
        """Where the cotangents of the queries from one on are added up."""
        if self.shares == 1:
            return self.result("q_bar", (self.queries, self.key_width), line)
        place = self.mul(self.add(self.mul(self.matrix, self.queries), line), self.key_width)
        own = self.at(self.buffers[len(self.job.sizes)], self.mul(self.share, share_bytes(self.job)))
        return self.address(own, self.dtype, place), self.key_width, 1

    def _prepare(self) -> None:
        """No cotangents yet; and for each query the product of its values and their cotangents."""
        emit, dtype = self.emit, self.dtype
        own, width, _ = self._of_queries(0)
        self.fill_bytes(own, 0, self.queries * width * self.size_bytes)
        with self.loop(0, self.queries, stem="query") as query:
            (y, _, y_step), (y_bar, _, bar_step) = self.part("y", query), self.part("y_bar", query)
            total = self.total(0.0)
            with self.elements(self.value_width) as column:
                value = emit.load(self.address(y, dtype, self.mul(column, y_step)), dtype, self.access)
                bar = emit.load(self.address(y_bar, dtype, self.mul(column, bar_step)), dtype, self.access)
                self.add_to(total, emit.mul(value, bar))
            emit.store(self.get(total, dtype), self.address(self.by_query, dtype, query))

    def _tile(self, tile: str, columns: str) -> None:
        bars = [
            self.result(name, (self.keys, width), tile)
            for name, width in (("k_bar", self.key_width), ("v_bar", self.value_width))
        ]
        for bar, width, _ in bars:
            self.fill_bytes(bar, 0, self.mul(columns, width * self.size_bytes))
        block = self.job.block
        start = self.mul(self.quotient(tile, block), block) if self.op.is_causal else "0"
        with self.loop(start, self.queries, block, stem="block") as first:
            rows = self.least(self.sub(self.queries, first), block)
            with self.met((first, rows), (tile, columns)):
                self._meet(first, rows, tile, columns, bars)

    def _meet(self, first: str, rows: str, tile: str, columns: str, bars: list[tuple[str, int, int]]) -> None:
        """What a block of queries and a tile of keys add to the cotangents."""
        key_width, value_width = self.number(self.key_width), self.number(self.value_width)
        q, k, v, y_bar = (self.part(n, line) for n, line in (("q", first), ("k", tile), ("v", tile), ("y_bar", first)))
        weights, scores_bar = self.table(0), self.table(1)
        self.multiply((rows, columns, key_width), q, _turned(k), weights, 0)
        self.multiply((rows, columns, value_width), y_bar, _turned(v), scores_bar, 0)
        with self.loop(0, rows, stem="query") as row:
            self._scores(self.add(first, row), row, tile, columns)
        self.multiply((rows, key_width, columns), scores_bar, k, self._of_queries(first), 1)
        self.multiply((columns, key_width, rows), _turned(scores_bar), q, bars[0], 1)
        self.multiply((columns, value_width, rows), _turned(weights), y_bar, bars[1], 1)

    def _scores(self, query: str, row: str, tile: str, columns: str) -> None:
        """A query's weights again, as they multiplied values, and the cotangents of its scores."""
        emit, dtype = self.emit, self.dtype
        line, bar_line = (self.line_of(table, row) for table in self.tables)
        seen, mask = self.seen(query, tile, columns), self.of_mask(query, tile)
        spared = self.draw(query, tile, columns)
        number = self.job.number("lse")
        place = self.add(self.origins["lse"], self.mul(query, self.job.places[number][-1]))
        log = emit.load(self.address(self.buffers[number], dtype, place), dtype)
        if self.function is not None:  # of a query that sees no key: any number
            log = emit.select(emit.compare("eq", log, float("-inf")), emit.zero(log), log)
        self.begin_query(query, tile)
        inner = emit.load(self.address(self.by_query, dtype, query), dtype)
        with self.elements(seen) as column:
            at, bar_at = (self.address(x, dtype, column) for x in (line, bar_line))
            weight = emit.exp(emit.sub(self.score(at, mask, column), log))
            bar = self.times_spared(emit.load(bar_at, dtype, self.access), spared, column)
            score_bar = emit.mul(weight, emit.sub(bar, inner))
            if self.function is not None:
                score_bar = self.function.slope(self.of_place, score_bar)
            score_bar = emit.mul(score_bar, self.op.scale)
            emit.store(self.times_spared(weight, spared, column), at, self.access)
            emit.store(score_bar, bar_at, self.access)
        for one in (line, bar_line):
            self.clear(one, seen, columns)


def _turned(x: tuple[str, int, int]) -> tuple[str, int, int]:
    """An operand whose lines are its columns."""
    address, stride, step = x
    return address, step, stride
