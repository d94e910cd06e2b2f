"""The derivative of attention on a GPU: two kernels, neither of which adds to what another block adds to.

With weights ``p = exp(s - lse)``, computed again, and ``c = sum over d of y y_bar``, the cotangent of a score is
``p (y_bar v^T - c) scale`` (Dao, arXiv:2307.08691). The first kernel has queries as lines, walks the keys, and gives
the cotangent of q; it leaves every ``c`` for the second, which has keys as lines, walks the queries that see them, and
gives those of k and v. So both are sums in one order, whatever the grid.

How to read: `_Derivative`, what both do with a tile; `_OfQueries` and `_OfKeys`, what they add up.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from autojit.codegen.cuda.attention_kernel import LEAST_WEIGHT, AttentionKernel
from autojit.codegen.cuda.attention_plan import AttentionJob, padded, plan_of
from autojit.codegen.cuda.product_steps import Totals
from autojit.codegen.function_text import Operand
from autojit.codegen.grid_text import GridText
from autojit.codegen.scalar import Scalar
from autojit.core.dtypes import bool_, float32

MOST_TOTALS = 64
"""Elements of a line of float32 results that two warps side by side have in their registers; of more, four have."""


def print_adjoint(job: AttentionJob) -> GridText:
    """The first kernel; the second is launched behind it."""
    return _OfQueries(job).print()


class _Derivative(AttentionKernel):
    """One of the two kernels.

    Args:
        down: all lines of the blocks' side.
    """

    operands: ClassVar[tuple[str, str]]
    """Of the blocks' lines: what scores are made of, and what their cotangents are made of."""
    others: ClassVar[tuple[str, str]]
    """Of the lines of tiles."""

    def __init__(self, job: AttentionJob, down: int) -> None:
        widths = padded(job.extents[2]), padded(job.extents[3])
        across = 4 if job.dtype is float32 and max(widths) > MOST_TOTALS else 2
        super().__init__(job, plan_of(job, down, sum(widths), sum(widths), across), down)

    @property
    def partial_bytes(self) -> int:
        """Of every query's ``c``."""
        return 4 * self.queries * self.job.count

    def bring_lines(self) -> None:
        """Bring what stays, and make room for the rest."""
        self.own = [self.part(name, self.plan.lines) for name in self.operands]
        self.tiles = [self.part(name, self.plan.columns) for name in self.others]
        for part in self.own:
            part.bring(self.first)
        self.sent()
        self.wait(0)
        self.strays_of_own = self.strays(self.own)

    def walk(self, start: Operand, stop: Operand) -> None:
        """All tiles, from one line of the other side up to another."""
        with self.loop(start, stop, self.plan.columns, stem="tile") as tile:
            self.barrier()  # the tile before has been read by all
            for part in self.tiles:
                part.bring(tile)
            self.sent()
            self.wait(0)
            met = self.meet(self.strays(self.tiles), self.strays_of_own)
            scores, bars = self.zeros(self.score_share), self.zeros(self.score_share)
            for totals, own, other, width in zip(
                (scores, bars), self.own, self.tiles, (self.key_width, self.value_width), strict=True
            ):
                self.multiply(own.lines, other.lines, totals, met, contracted=width, parts=self.plan.sharing)
            self.gather(self._leave_weights(tile, scores, bars, met))

    @abstractmethod
    def gather(self, met: str | None) -> None:
        """Add what a tile's weights make of the other side, once they are in shared memory."""

    @abstractmethod
    def pair(self, own: str, other: str) -> tuple[str, str]:
        """Query and key of a line of the blocks' side and one of the other."""

    @abstractmethod
    def of_weight(self, number: int, query: str) -> tuple[Scalar, Scalar]:
        """A query's logarithm of its sum and its ``c``, for one of a lane's weights."""

    @abstractmethod
    def leave_both(self, place: tuple[str, str], weight: Scalar, bar: Scalar) -> None:
        """Put a weight and the cotangent of its score into shared memory, as far as they are multiplied."""

    @abstractmethod
    def multiplied(self, weight: Scalar, bar: Scalar) -> list[Scalar]:
        """Those of the two that are."""

    def _leave_weights(self, tile: str, scores: Totals, bars: Totals, met: str | None) -> str | None:
        """A tile's weights and cotangents of scores; whether one of them, or of the operands, cannot be split."""
        emit = self.emit
        spared = self.spared(self.pair, tile, len(scores)) if self.op.draws else None
        found: list[tuple[tuple[str, str], Scalar, Scalar]] = []
        for number, (line, column) in enumerate(self.score_elements()):
            query, key = self.pair(self.offset(self.first, line), self.offset(tile, column))
            lse, inner = self.of_weight(number, query)
            weight = self._weight(self.get(scores[number], float32), (query, key), lse)
            bar = self.times_spared(self.get(bars[number], float32), spared, number)
            bar = emit.mul(emit.mul(weight, emit.sub(bar, inner)), self.op.scale)
            found.append(((line, column), self.times_spared(weight, spared, number), bar))
        is_mine = None
        if self.plan.sharing < self.plan.warps[1]:  # warps have the same
            is_mine = self.test("ult", self.warp_across, self.plan.sharing)
        with self.perhaps(is_mine):
            for place, weight, bar in found:
                self.leave_both(place, weight, bar)
        strays = self.strays((), others=[value for _, *pair in found for value in self.multiplied(*pair)])
        meeting = self.meet(strays)
        return None if met is None or meeting is None else self.either(met, meeting)

    def _weight(self, total: Scalar, place: tuple[str, str], lse: Scalar) -> Scalar:
        """A weight again, 0 where there is no query."""
        emit, (query, _) = self.emit, place
        weight = emit.exp(emit.sub(self.score(total, *place), lse))
        none = emit.compare("lt", weight, LEAST_WEIGHT)
        if self.queries % self.plan.lines:
            none = Scalar(self.either(none.text, self.test("uge", query, self.queries)), bool_)
        return emit.select(none, emit.zero(weight), weight)


class _OfQueries(_Derivative):
    """The cotangent of q, and every query's ``c``."""

    operands, others = ("q", "y_bar"), ("k", "v")

    def __init__(self, job: AttentionJob) -> None:
        super().__init__(job, job.extents[0])

    def print(self) -> GridText:
        self.bring_lines()
        self.bars = self.weights_shelf()
        self.totals = self.zeros(self.share(self.key_width))
        self.of_lines = [self._line(row) for row in range(2)]
        end = self.offset(self.first, self.plan.lines)
        self.walk(0, self.at_most(end, self.keys) if self.op.is_causal else self.keys)
        values = [self.get(slot, float32) for slot in self.totals]
        self.write_lines("q_bar", values, (self.queries, self.key_width))
        behind = _OfKeys(self.job).print()
        return self.finished(self.roles(), partial_bytes=self.partial_bytes, combine=behind)

    def _line(self, row: int) -> tuple[Scalar, Scalar]:
        """A query's logarithm of its sum and its ``c``, which is left for the other kernel."""
        emit = self.emit
        place = self.offset(self.first, self.offset(self.places.row, 8 * row))
        query = self.at_most(place, self.queries - 1)
        total = self.slot(float32)
        self.put(total, emit.constant(0, float32))
        with self.loop(0, self.value_width, 4, stem="element") as start:
            column = self.offset(start, self.places.member)
            with self.perhaps(self.test("ult", column, self.value_width) if self.value_width % 4 else None):
                y, y_bar = (self.element_of(name, query, column) for name in ("y", "y_bar"))
                self.put(total, emit.fma(y, y_bar, self.get(total, float32)))
        inner = self.over_columns("add", self.get(total, float32))
        is_first = self.both(self.test("eq", self.places.member, 0), self.test("eq", self.warp_across, 0))
        with self.when(self.both(is_first, self.test("ult", place, self.queries))):
            at = self.offset(self.scaled(self.matrix, self.queries), place)
            emit.store(inner, self.address(self.partials, float32, at))
        return self.of_query("lse", query), inner

    def pair(self, own: str, other: str) -> tuple[str, str]:
        return own, other

    def of_weight(self, number: int, query: str) -> tuple[Scalar, Scalar]:
        return self.of_lines[number // 2 % 2]

    def leave_both(self, place: tuple[str, str], weight: Scalar, bar: Scalar) -> None:
        self.leave(self.bars, place, bar)

    def multiplied(self, weight: Scalar, bar: Scalar) -> list[Scalar]:
        return [bar]

    def gather(self, met: str | None) -> None:
        parts = self.parts_of(self.key_width)
        self.multiply(self.bars, self.tiles[0].depths, self.totals, met, contracted=self.keys, parts=parts)


class _OfKeys(_Derivative):
    """The cotangents of k and v."""

    operands, others = ("k", "v"), ("q", "y_bar")

    def __init__(self, job: AttentionJob) -> None:
        super().__init__(job, job.extents[1])

    def print(self) -> GridText:
        self.bring_lines()
        self.weights, self.bars = self.weights_shelf(), self.weights_shelf()
        self.of_k, self.of_v = (self.zeros(self.share(width)) for width in (self.key_width, self.value_width))
        self.walk(self.first if self.op.is_causal else 0, self.queries)
        for name, totals, width in (("k_bar", self.of_k, self.key_width), ("v_bar", self.of_v, self.value_width)):
            self.write_lines(name, [self.get(slot, float32) for slot in totals], (self.keys, width))
        return self.finished(self.roles(), partial_bytes=self.partial_bytes)

    def pair(self, own: str, other: str) -> tuple[str, str]:
        return other, own

    def of_weight(self, number: int, query: str) -> tuple[Scalar, Scalar]:
        at = self.at_most(query, self.queries - 1)
        place = self.offset(self.scaled(self.matrix, self.queries), at)
        inner = self.emit.load(self.address(self.partials, float32, place), float32)
        return self.of_query("lse", at), inner

    def leave_both(self, place: tuple[str, str], weight: Scalar, bar: Scalar) -> None:
        self.leave(self.weights, place, weight)
        self.leave(self.bars, place, bar)

    def multiplied(self, weight: Scalar, bar: Scalar) -> list[Scalar]:
        return [weight, bar]

    def gather(self, met: str | None) -> None:
        q, y_bar = self.tiles
        for weights, other, totals, width in (
            (self.weights, y_bar, self.of_v, self.value_width),
            (self.bars, q, self.of_k, self.key_width),
        ):
            parts = self.parts_of(width)
            self.multiply(weights, other.depths, totals, met, contracted=self.queries, parts=parts)
