"""What attention's kernels have in common: operands in shared memory, products of them, scores and weights.

An operand's part has a row for each of its lines (queries or keys), which holds all of the line. The same rows serve
two products: as lines, where elements are contracted, and as depth, where lines are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from autojit.codegen.attention_operands import origins
from autojit.codegen.cuda.attention_plan import (
    COLUMNS,
    SPLIT_DEPTH,
    AttentionJob,
    AttentionPlan,
    fragment_for,
    padded,
)
from autojit.codegen.cuda.grid_function import WARP, CudaKernel, Grid
from autojit.codegen.cuda.product_fragments import Places
from autojit.codegen.cuda.product_groups import steps_of
from autojit.codegen.cuda.product_operands import Strided, Supply
from autojit.codegen.cuda.product_shelves import Shelf
from autojit.codegen.cuda.product_steps import SplitSteps, Totals
from autojit.codegen.cuda.product_tiles import LANES, SPLIT
from autojit.codegen.grid_text import Buffer
from autojit.codegen.philox import philox, uniform
from autojit.codegen.scalar import Scalar
from autojit.core.dtypes import bool_, float32, int64, uint32, uint64
from autojit.core.sizes import surely_divides

ACROSS = 4
"""Fragments of a row that are multiplied together: more would need more registers than a lane has."""

LEAST_WEIGHT = 2.0**-100
"""Smaller weights count as 0: float32 in two parts has none, and beside a weight of 1 they are no part of a sum."""


class Part:
    """A part of an operand in shared memory.

    Args:
        supply: brings it.
        matrix: where the block's matrix begins in the operand.
        width: elements of a line.
    """

    def __init__(self, supply: Supply, matrix: str, width: int) -> None:
        self.supply, self.matrix, self.width = supply, matrix, width

    @property
    def lines(self) -> Shelf:
        """The part where elements are contracted."""
        return self.supply.shelf

    @property
    def depths(self) -> Shelf:
        """The part where lines are contracted."""
        return replace(self.supply.shelf, is_deep=not self.supply.shelf.is_deep)

    def bring(self, first_line: str) -> None:
        """Begin to copy the part that begins with a line."""
        self.supply.put(0, self.supply.bring(0, self.matrix, first_line, 0))


class AttentionKernel(CudaKernel):
    """One kernel of attention.

    Args:
        down: all lines of the side whose lines are the blocks'.
    """

    def __init__(self, job: AttentionJob, plan: AttentionPlan, down: int) -> None:
        blocks = -(-down // plan.lines)
        super().__init__(Grid(plan.threads, (blocks * job.count, 1, 1)))
        self.job, self.plan, self.op, self.dtype = job, plan, job.op, job.dtype
        self.queries, self.keys, self.key_width, self.value_width = job.extents
        self.pointers(job.sizes)
        self.matrix = self.quotient(self.block_x, blocks)
        self.first = self.scaled(self.remainder(self.block_x, blocks), plan.lines)
        self.origins = origins(self, job, self.matrix)
        self.places = Places(self, plan.tile(LANES, 1, 1))

    @property
    def warp_across(self) -> str:
        """The number of the warp among those that share lines."""
        return self.remainder(self.quotient(self.thread, WARP), self.plan.warps[1])

    # -- operands

    def part(self, name: str, lines: int) -> Part:
        """Shared memory for some lines of an operand."""
        job = self.job
        number = job.number(name)
        offset, line_stride, stride = job.places[number]
        all_lines = self.queries if name in ("q", "y", "y_bar") else self.keys
        width = self.key_width if name in ("q", "k") else self.value_width
        moves = [strides[job.batched.index(name)] for _, strides in job.batch]
        stored = Strided(all_lines, width, line_stride, stride, (offset, *moves))
        fragment = fragment_for(job, width)
        tile = self.plan.tile(fragment, 1, padded(width))
        supply = Supply(self, number, stored, self.dtype, lines=lines, stages=1, tile=tile, copies=job.copies)
        if fragment_for(job, SPLIT_DEPTH) is SPLIT:  # whose rows are read both ways
            supply.shelf = replace(supply.shelf, turn=2)
        self.shelf = supply.shelf
        return Part(supply, self.origins[name], width)

    def weights_shelf(self) -> Shelf:
        """Shared memory for the weights of a tile."""
        lines, columns = self.plan.lines, self.plan.columns
        base = self.shared(f"i{8 * self.dtype.size_bytes}", lines * columns)
        return Shelf(base, self.dtype, lines, columns, is_deep=True, turn=1)

    def wait(self, left: int) -> None:
        """Until this thread's copies are there but so many groups of them."""
        if self.job.copies:
            self.wait_for_copies(left)

    def sent(self) -> None:
        """What this thread has begun to copy is a group."""
        if self.job.copies:
            self.end_copies()

    def strays(self, parts: Sequence[Part], *, others: Sequence[Scalar] = ()) -> str | None:
        """Whether this thread has brought, or computed, an element that cannot be split; None: nothing is split."""
        if fragment_for(self.job, SPLIT_DEPTH) is not SPLIT:
            return None
        words = [word for part in parts for word in part.supply.own_words(0)]
        words += [self.convert("bitcast", value.text, "float", "i32") for value in others]
        steps = SplitSteps(self, self.dtype, self.places, self.shelf, self.shelf)
        return steps.cannot_split(words)

    def meet(self, *strays: str | None) -> str | None:
        """Wait for all threads; whether any of them met an element that cannot be split."""
        found = [condition for condition in strays if condition is not None]
        if not found:
            self.barrier()
            return None
        mine = found[0]
        for condition in found[1:]:
            mine = self.either(mine, condition)
        return self.barrier_any(mine)

    # -- products

    def zeros(self, share: int) -> Totals:
        """Totals of a lane that has elements of so many fragments in a row."""
        found = [self.slot(float32) for _ in range(4 * share)]
        for slot in found:
            self.put(slot, self.emit.constant(0, float32))
        return found

    def parts_of(self, width: int) -> int:
        """Into how many parts warps that are side by side divide lines of this many elements."""
        return min(padded(width) // COLUMNS, self.plan.warps[1])

    def share(self, width: int) -> int:
        """Fragments of a warp in a row of so many columns."""
        return padded(width) // COLUMNS // self.parts_of(width)

    @property
    def score_share(self) -> int:
        """Fragments of a warp in a row of a tile's scores."""
        return self.plan.columns // COLUMNS // self.plan.sharing

    def multiply(self, a: Shelf, b: Shelf, totals: Totals, met: str | None, *, contracted: int, parts: int = 0) -> None:
        """Add the product of two parts to the totals, some columns of a warp after the other: scores, or results.

        Args:
            contracted: how many products are added up in all parts.
            parts: how many warps divide the columns.
        """
        fragment = fragment_for(self.job, contracted)
        depth = a.along if a.is_deep else a.rows
        step = depth if fragment is not SPLIT else min(depth, SPLIT_DEPTH)
        share = len(totals) // 4
        for first in range(0, share, ACROSS):
            across = min(ACROSS, share - first)
            places = Places(self, self.plan.tile(fragment, across, step))
            places.first_column, places.column = self.columns_of(share, parts)
            steps = steps_of(fragment)(self, self.dtype, places, a, b)
            steps.skipped = first
            if isinstance(steps, SplitSteps):
                assert met is not None, "who splits has looked"
                steps.met = met
            for begin in range(0, depth, step):
                steps.begin = begin
                steps.multiply((0, 0), totals[4 * first : 4 * (first + across)])

    def columns_of(self, share: int, parts: int) -> tuple[str, str]:
        """The first column of the warp, and of the lane, where so many warps have so many fragments in a row each."""
        first = self.scaled(self.remainder(self.warp_across, parts), share * COLUMNS)
        return first, self.offset(first, self.scaled(self.places.member, 2))

    def score_elements(self) -> list[tuple[str, str]]:
        """Line and column in the block's tile of each of a lane's scores."""
        return self.elements(self.score_share, self.plan.sharing)

    def elements(self, share: int, parts: int) -> list[tuple[str, str]]:
        """Line and column in the block's tile of each of a lane's totals, of so many fragments across."""
        _, start = self.columns_of(share, parts)
        lines = [self.offset(self.places.row, down) for down in (0, 8)]
        columns = {y: self.offset(start, y) for y in (COLUMNS * y + x for y in range(share) for x in range(2))}
        return [(lines[row], columns[COLUMNS * y + x]) for y in range(share) for row in range(2) for x in range(2)]

    def leave(self, shelf: Shelf, place: tuple[str, str], value: Scalar) -> None:
        """Put a weight of a tile into shared memory."""
        at = shelf.position(self, *place)
        self.emit.store(self.emit.rounded(value, self.dtype), self.address(shelf.base, self.dtype, at))

    # -- scores

    def score(self, total: Scalar, query: str, key: str) -> Scalar:
        """A score from the product of a query and a key; -inf where the query does not see the key."""
        emit, op = self.emit, self.op
        score = emit.mul(total, op.scale)
        hidden: str | None = None
        if not surely_divides(self.plan.columns, self.keys) or not surely_divides(self.plan.lines, self.keys):
            hidden = self.test("uge", key, self.keys)
        if op.is_causal:
            behind = self.test("ugt", key, query)
            hidden = behind if hidden is None else self.either(hidden, behind)
        if op.has_mask:
            mask = self._mask_at(query, key)
            if mask.dtype is bool_:
                removed = self.negate(mask.text)
                hidden = removed if hidden is None else self.either(hidden, removed)
            else:
                score = emit.add(score, mask)
        if hidden is None:
            return score
        return emit.select(Scalar(hidden, bool_), float("-inf"), score)

    def _mask_at(self, query: str, key: str) -> Scalar:
        job = self.job
        number = job.number("mask")
        _, row_stride, stride = job.places[number]
        row, column = self.at_most(query, self.queries - 1), self.at_most(key, self.keys - 1)
        place = self.add(self.add(self.origins["mask"], self.mul(row, row_stride)), self.mul(column, stride))
        assert job.mask is not None
        return self.read(number, job.mask, place)

    def spared(self, place: Callable[[str, str], tuple[str, str]], tile: str, count: int) -> str:
        """Which of a lane's weights of a tile are not dropped, as bits; by a loop, because each takes many registers.

        Args:
            place: query and key of a line of the block and a line of the tile.
            tile: the first line of the tile.
            count: of a lane's weights.
        """
        bits = self.local("i32", align=4)
        self.store("i32", 0, bits)
        _, start = self.columns_of(self.score_share, self.plan.sharing)
        with self.loop(0, count, stem="weight") as number:
            line = self.offset(self.places.row, self.scaled(self.remainder(self.quotient(number, 2), 2), 8))
            across = self.offset(self.scaled(self.quotient(number, 4), COLUMNS), self.remainder(number, 2))
            query, key = place(self.offset(self.first, line), self.offset(tile, self.offset(start, across)))
            kept = self.convert("zext", self._is_spared(query, key), "i1", "i32")
            kept = self.binary("shl", kept, self.convert("trunc", number, "i64", "i32"), "i32")
            self.store("i32", self.binary("or", self.load("i32", bits), kept, "i32"), bits)
        return self.load("i32", bits)

    def times_spared(self, weight: Scalar, bits: str | None, number: int) -> Scalar:
        """A lane's weight times what keeps the mean of all, or 0 if it is dropped; without bits nothing is."""
        if bits is None:
            return weight
        emit = self.emit
        is_kept = self.test("ne", self.binary("and", bits, 1 << number, "i32"), 0, "i32")
        return emit.select(Scalar(is_kept, bool_), emit.mul(weight, 1.0 / (1.0 - self.op.dropped)), emit.zero(weight))

    def _is_spared(self, query: str, key: str) -> str:
        """Whether a weight is not dropped: word i of the draw is that of weight i."""
        emit, job = self.emit, self.job
        number = job.number("key")
        offset, stride = job.places[number]
        seed, start = (self.read(number, int64, str(offset + k * stride)) for k in range(2))
        line = self.offset(self.scaled(self.matrix, self.queries), self.at_most(query, self.queries - 1))
        place = self.offset(self.scaled(line, self.keys), self.at_most(key, self.keys - 1))
        block = Scalar(self.binary("add", start.text, self.quotient(place, 4)), uint64)
        wide, zero = Scalar(seed.text, uint64), emit.constant(0, uint32)
        (c0, c1), key_words = (
            (emit.cast(x, uint32), emit.cast(emit.shift_right(x, 32), uint32)) for x in (block, wide)
        )
        words = philox(emit, (c0, c1, zero, zero), key_words)
        which, word = self.remainder(place, 4), words[3]
        for k in (2, 1, 0):
            word = emit.select(Scalar(self.test("eq", which, k), bool_), words[k], word)
        return emit.compare("ge", uniform(emit, float32, word), self.op.dropped).text

    # -- results

    def write_lines(self, name: str, values: Sequence[Scalar], extents: tuple[int, int]) -> None:
        """A lane's elements of the block's lines of a result, of which there are so many lines and elements of each."""
        number, (lines, width) = self.job.number(name), extents
        parts = self.parts_of(width)
        places = self.elements(len(values) // 4, parts)
        is_mine = None if parts == self.plan.warps[1] else self.test("ult", self.warp_across, parts)
        for row in range(2):
            line = self.offset(self.first, self.offset(self.places.row, 8 * row))
            is_line = None if lines % self.plan.lines == 0 else self.test("ult", line, lines)
            start = self.scaled(self.offset(self.scaled(self.matrix, lines), line), width)
            with self.perhaps(self.all_of(is_line, is_mine)):
                for place, value in enumerate(values):
                    if place // 2 % 2 != row:
                        continue
                    _, column = places[place]
                    inside = self.test("ult", column, width) if width % padded(width) else None
                    with self.perhaps(inside):
                        self.write(number, self.emit.rounded(value, self.dtype), self.offset(start, column))

    def of_query(self, name: str, query: str) -> Scalar:
        """The logarithm of a query's sum of exponentials."""
        number = self.job.number(name)
        place = self.add(self.origins[name], self.mul(query, self.job.places[number][-1]))
        return self.read(number, float32, place)

    def element_of(self, name: str, line: str, column: str) -> Scalar:
        """An element of an operand, as float32."""
        number = self.job.number(name)
        _, line_stride, stride = self.job.places[number]
        place = self.add(self.origins[name], self.add(self.mul(line, line_stride), self.mul(column, stride)))
        return Scalar(self.read(number, self.dtype, place).text, float32)

    def roles(self) -> list[Buffer]:
        """What is done with each buffer: operands are read, results written."""
        job = self.job
        sizes = {"mask": job.mask.size_bytes if job.mask else 0, "key": 8, "lse": 4}
        return [
            Buffer("reads" if number < len(job.places) else "writes", sizes.get(name, self.dtype.size_bytes))
            for number, name in enumerate(job.names)
        ]

    def over_columns(self, name: str, value: Scalar) -> Scalar:
        """A value of every lane of a line folded: ``maximum`` or ``add``."""
        for distance in (1, 2):
            value = getattr(self.emit, name)(value, self.shuffle(value, distance))
        return value
