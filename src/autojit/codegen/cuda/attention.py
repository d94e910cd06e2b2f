"""Attention on a GPU: a block has some queries and walks the keys that they see, tile by tile.

Source: Dao, arXiv:2307.08691. A lane holds four elements of a tile's scores for each eight keys, those of two queries;
the largest score and the sum of exponentials so far are with its lanes. What was added up before a larger score was met
is scaled. While a tile's scores are computed its values are on their way, and the next keys while these are multiplied.

How to read: `_ForwardPrinter.print`; `_tile`, what becomes of a tile.
"""

from __future__ import annotations

from functools import lru_cache

from autojit.codegen.cuda.attention_adjoint import print_adjoint
from autojit.codegen.cuda.attention_kernel import LEAST_WEIGHT, AttentionKernel
from autojit.codegen.cuda.attention_plan import SPLIT_DEPTH, AttentionJob, fragment_for, job_of, padded, plan_of
from autojit.codegen.cuda.product_steps import Totals
from autojit.codegen.cuda.product_tiles import LANES
from autojit.codegen.cuda.target import CudaTarget
from autojit.codegen.grid_text import GridText
from autojit.codegen.scalar import Scalar
from autojit.core.dtypes import float32
from autojit.schedule.kernels import StructuredKernel

LOWEST = float("-inf")

MOST_TOTALS = 64
"""Columns of attended values in the registers of a warp; half of it where lanes multiply by themselves."""


def print_attention(kernel: StructuredKernel, target: CudaTarget) -> GridText:
    """The kernels of attention, or of its derivative; layers of a model share them."""
    return _printed(job_of(kernel, target))


@lru_cache(maxsize=256)
def _printed(job: AttentionJob) -> GridText:
    return _ForwardPrinter(job).print() if job.op.name == "attention" else print_adjoint(job)


class _ForwardPrinter(AttentionKernel):
    """Prints attention."""

    def __init__(self, job: AttentionJob) -> None:
        queries, _, key_width, value_width = job.extents
        widths = padded(key_width), padded(value_width)
        most = MOST_TOTALS // 2 if fragment_for(job, SPLIT_DEPTH) is LANES else MOST_TOTALS
        across = 2 if widths[1] > most else 1
        plan = plan_of(job, queries, widths[0], sum(widths), across, folds=True)
        super().__init__(job, plan, queries)

    def print(self) -> GridText:
        plan = self.plan
        self.q, self.k, self.v = self.part("q", plan.lines), self.part("k", plan.columns), self.part("v", plan.columns)
        self.weights = self.weights_shelf()
        self.largest = [self.slot(float32) for _ in range(2)]
        self.sums = [self.slot(float32) for _ in range(2)]
        for slots, value in ((self.largest, LOWEST), (self.sums, 0.0)):
            for slot in slots:
                self.put(slot, self.emit.constant(value, float32))
        totals = self.zeros(self.share(self.value_width))
        self.q.bring(self.first)
        self.k.bring("0")
        self.sent()
        self.wait(0)
        self.strays_of_queries = self.strays([self.q])
        stop = self.keys if not self.op.is_causal else self.at_most(self.offset(self.first, plan.lines), self.keys)
        with self.loop(0, stop, plan.columns, stem="tile") as tile:
            self._tile(tile, str(stop), totals)
        self._finish(totals)
        return self.finished(self.roles())

    def _tile(self, tile: str, stop: str, totals: Totals) -> None:
        """Scores, weights and what they attend to of the keys from ``tile`` on, which are there or on their way."""
        columns = self.plan.columns
        self.wait(0)
        met = self.meet(self.strays([self.k]), self.strays_of_queries)
        self.v.bring(tile)
        self.sent()
        scores = self.zeros(self.score_share)
        spared = self.spared(lambda query, key: (query, key), tile, len(scores)) if self.op.draws else None
        self.multiply(self.q.lines, self.k.lines, scores, met, contracted=self.key_width, parts=1)
        self._weights(tile, scores, totals, spared)
        self.wait(0)
        met = self.meet(self.strays([self.v]), self._strays_of_weights())
        following = self.offset(tile, columns)
        with self.when(self.test("slt", following, stop)):
            self.k.bring(following)
        self.sent()
        parts = self.parts_of(self.value_width)
        self.multiply(self.weights, self.v.depths, totals, met, contracted=self.keys, parts=parts)

    def _weights(self, tile: str, scores: Totals, totals: Totals, spared: str | None) -> None:
        """Exponentials of a tile's scores, over the largest so far; they are left in shared memory."""
        emit = self.emit
        places = self.score_elements()
        for row in range(2):
            mine = [number for number in range(len(scores)) if number // 2 % 2 == row]
            found = []
            for number in mine:
                line, column = places[number]
                query, key = self.offset(self.first, line), self.offset(tile, column)
                found.append(self.score(self.get(scores[number], float32), query, key))
            base = self._rise(row, found, totals)
            total = self.get(self.sums[row], float32)
            weights = {}
            for number, score in zip(mine, found, strict=True):
                weight = emit.exp(emit.sub(score, base))
                total = emit.add(total, weight)
                weights[number] = self.times_spared(self._or_zero(weight), spared, number)
            self.put(self.sums[row], total)
            self._share_weights(weights, places)

    def _share_weights(self, weights: dict[int, Scalar], places: list[tuple[str, str]]) -> None:
        """The weights of a row in shared memory; where warps have the same, each leaves its part."""
        across = self.plan.warps[1]
        for warp in range(across):
            mine = None if across == 1 else self.test("eq", self.warp_across, warp)
            with self.perhaps(mine):
                for number, weight in weights.items():
                    if number * across // len(places) == warp:
                        self.leave(self.weights, places[number], weight)

    def _strays_of_weights(self) -> str | None:
        """Whether a weight cannot be split: they are 0 or large enough, and at most 1, or NaN."""
        if self.strays_of_queries is None:
            return None
        found = [self.emit.isnan(self.get(slot, float32)).text for slot in self.sums]
        return self.either(*found)

    def _or_zero(self, weight: Scalar) -> Scalar:
        """The weight if it is large enough to be split."""
        emit = self.emit
        return emit.select(emit.compare("lt", weight, LEAST_WEIGHT), emit.zero(weight), weight)

    def _rise(self, row: int, scores: list[Scalar], totals: Totals) -> Scalar:
        """The largest score of a query so far, or 0 if it has seen none; what was added up before is scaled."""
        emit = self.emit
        best = scores[0]
        for score in scores[1:]:
            best = emit.fmax(best, score)
        best = self.over_columns("fmax", best)
        before = self.get(self.largest[row], float32)
        best = emit.fmax(before, best)
        self.put(self.largest[row], best)
        base = emit.select(emit.compare("eq", best, LOWEST), emit.constant(0.0, float32), best)
        factor = emit.exp(emit.sub(before, base))
        self.put(self.sums[row], emit.mul(self.get(self.sums[row], float32), factor))
        for number, slot in enumerate(totals):
            if number // 2 % 2 == row:
                self.put(slot, emit.mul(self.get(slot, float32), factor))
        return base

    def _finish(self, totals: Totals) -> None:
        """Attended values over the sums of weights, and the logarithms of these sums."""
        emit = self.emit
        sums = [self.over_columns("add", self.get(slot, float32)) for slot in self.sums]
        zero, one = emit.constant(0.0, float32), emit.constant(1.0, float32)
        factors = [emit.div(one, total) for total in sums]
        logs = []
        for total, slot in zip(sums, self.largest, strict=True):
            logs.append(emit.add(self.get(slot, float32), emit.log(total)))
        if self.op.has_mask:  # a query that sees no key gets zeros
            sees_none = [emit.compare("eq", total, 0.0) for total in sums]
            factors = [emit.select(none, zero, factor) for none, factor in zip(sees_none, factors, strict=True)]
            logs = [emit.select(none, zero, value) for none, value in zip(sees_none, logs, strict=True)]
        values = [emit.mul(self.get(slot, float32), factors[number // 2 % 2]) for number, slot in enumerate(totals)]
        self.write_lines("y", values, (self.queries, self.value_width))
        for row in range(2):
            query = self.offset(self.first, self.offset(self.places.row, 8 * row))
            is_first = self.both(self.test("eq", self.places.member, 0), self.test("eq", self.warp_across, 0))
            with self.when(self.both(is_first, self.test("ult", query, self.queries))):
                line = self.offset(self.scaled(self.matrix, self.queries), query)
                self.write(self.job.number("lse"), logs[row], line)
