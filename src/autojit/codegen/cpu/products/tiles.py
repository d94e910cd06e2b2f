"""The micro-kernels of the matrix product: a few rows of C held in vector registers while k runs.

A tile is ``rows x columns`` of C. Every step of k loads the tile's columns of one row of B (the last vector under a
mask), broadcasts one element of A per row, and adds ``rows x vectors`` fused products. Strides of A are arguments, so a
packed, a transposed and a plain A run through the same code; B's and C's columns are contiguous.

How to read it: `tile_set` chooses shapes for a machine; `write_tiles` writes one function per shape of columns,
which walks down all rows of C in tiles of falling height; `_RowTile` writes one tile.

An element of C is ``sum over blocks of k of (fma chain over the block, ascending from zero)`` whatever tile computes
it. That is why results do not depend on how rows are cut among threads.
"""

from __future__ import annotations

from functools import partial

from autojit.codegen.cpu.vector_text import Vector, VectorText
from autojit.codegen.module_text import Signature
from autojit.codegen.target import HostTarget
from autojit.core.dtypes import DType, bfloat16, float32
from autojit.core.records import record

WIDE_VECTORS = 8
"""Vectors of the single-row tile: enough sums to hide latency, and half the registers of the smallest machines.

Two multiply-adds a cycle of four cycles each keep eight sums under way.
"""

NEVER = 1 << 62
"""More steps than there are."""

STEPS_ALONG = 4
STEPS_ACROSS = 2
"""Steps of k written out in the tallest tile of the panel where the next element of a row, or of a column, of A
follows in memory: addresses then need an instruction a base and turn, not a step, and processors that begin four
instructions a cycle have time for the multiply-adds. Two to eight steps are equal within noise: on a Skylake server
core 96 x 256 x 32 runs at 131 GF/s step by step and at 136 by four; 96 x 256 x 256 with columns at 108 and 115.
"""

ROW_UNIT = 12
"""Rows of a packed panel of A, and what blocks of rows are cut in: the height of the tallest tile, or twice that."""

ROWS_PER_BASE = 3
"""Rows 0, 1 and 2 of A are addressed as base, base + stride, base + 2 * stride: one x86 address mode each."""


@record
class TileShape:
    """Columns of a tile as vectors from left to right, and the heights it exists in.

    Args:
        lanes: lanes of each vector.
        rows: heights in falling order, ending with 1.
        masked: whether the last vector is masked, so that the tile may stick out of B and C.
    """

    lanes: tuple[int, ...]
    rows: tuple[int, ...]
    masked: bool = True

    @property
    def columns(self) -> int:
        return sum(self.lanes)


@record
class TileSet:
    """All tiles of one dtype on one machine.

    Args:
        dtype: of C and of sums: float32 or float64.
        operand: of A and B: the same, or bfloat16. Two steps of k are then one element, a pair in 32 bits.
        whole: shapes to take while at least their columns are left, widest first. The first is the panel that B is
            packed for.
        rest: masked shapes for what is left then, narrowest first.
        wide: one row, many columns: reads a B that is not packed in long pieces, and hides the latency of its sums.
        fused: whether the machine has fused multiply-add; else products are rounded before the sum.
        registers: vector registers of the machine.
        transpose_lanes: side of the square blocks that packing transposes in registers.
    """

    dtype: DType
    operand: DType
    whole: tuple[TileShape, ...]
    rest: tuple[TileShape, ...]
    wide: TileShape
    fused: bool
    registers: int
    transpose_lanes: int

    @property
    def steps(self) -> int:
        """Steps of k in one element of a packed operand."""
        return self.dtype.size_bytes // self.operand.size_bytes

    def product(self, text: VectorText, vector: Vector, a: str, b: str, total: str) -> str:
        """``total`` plus the products of one element of A and of B, lane by lane."""
        if self.steps == 1:
            return text.multiply_add(vector, a, b, total, fused=self.fused)
        return text.add_dots(vector, a, b, total)

    @property
    def panel(self) -> int:
        """Columns of a packed panel of B."""
        return self.whole[0].columns

    @property
    def tallest(self) -> int:
        """Most rows of any tile."""
        return max(shape.rows[0] for shape in self.shapes)

    @property
    def shapes(self) -> tuple[TileShape, ...]:
        """Every shape once."""
        return tuple(dict.fromkeys((*self.whole, *self.rest, self.wide)))

    @property
    def widest(self) -> Vector:
        """The widest vector of all tiles."""
        return Vector(self.dtype, max(lanes for shape in self.shapes for lanes in shape.lanes))


def tile_set(operand: DType, host: HostTarget) -> TileSet:
    """The shapes that fill the machine's registers: 32 with 64-byte vectors and on aarch64, else 16.

    Tiles of bfloat16 are those of float32; only machines with dot products of pairs have them (`HostTarget.has_dots`).
    With 64-byte vectors masks cost little and half a vector costs half, so there is a narrow tile of half a vector and
    one masked tile serves whole vectors too. Elsewhere masked stores are slow, so whole vectors have a tile without.
    """
    assert operand is not bfloat16 or host.has_dots, "passes keep such products from this machine"
    dtype = float32 if operand is bfloat16 else operand
    x86 = host.triple.startswith("x86_64")
    lanes = host.vector_bytes // dtype.size_bytes
    whole: tuple[TileShape, ...]
    rest: tuple[TileShape, ...]
    if host.vector_bytes == 64:
        vector, half = TileShape((lanes,), (12, 4, 2, 1)), TileShape((lanes // 2,), (12, 4, 2, 1))
        whole = TileShape((lanes, lanes), (12, 4, 2, 1), masked=False), vector
        rest = half, vector
    else:
        panel = TileShape((lanes,) * (2 if x86 else 4), (6, 4, 2, 1), masked=False)
        whole = panel, TileShape((lanes,), (12, 4, 2, 1), masked=False)
        rest = (TileShape((lanes,), (12, 4, 2, 1)),)
    return TileSet(
        dtype=dtype,
        operand=operand,
        whole=whole,
        rest=rest,
        wide=TileShape((lanes,) * WIDE_VECTORS, (1,), masked=False),
        fused=not x86 or "+fma" in host.features.split(","),
        registers=host.vector_registers,
        transpose_lanes=min(host.vector_bytes, 32) // dtype.size_bytes,
    )


def tiles_signature(tiles: TileSet, shape: TileShape) -> Signature:
    """What `write_tiles` writes: one column of tiles, all rows of C.

    Strides are in bytes, and so is ``skip``, what is between `ROW_UNIT` rows of A and the next ones beyond their
    stride (0 but in packed panels); ``k >= 1``; ``accumulate`` is 0 or 1; ``columns`` is `shape.columns`, or less if
    the shape is masked, but enough to reach its last vector.
    """
    return Signature(
        f"aj_tiles_{tiles.operand.short}_{shape.columns}{'m' if shape.masked else ''}",
        "i64 m, i64 k, ptr a, i64 rsa, i64 csa, i64 skip, ptr b, i64 ldb, ptr c, i64 ldc, i64 columns, i64 accumulate",
    )


def write_tiles(tiles: TileSet, shape: TileShape, text: VectorText) -> None:
    """What the function of one shape does."""
    columns = _Columns.begin(text, tiles, shape)
    state = ["%m", "%a", "%c"]
    for rows in shape.rows:
        state = text.while_left(rows, ("i64", "ptr", "ptr"), state, partial(_one_tile, text, columns, rows))


def _one_tile(text: VectorText, columns: _Columns, rows: int, state: list[str]) -> list[str]:
    """Write one tile; returns the rows left below it and where A and C go on."""
    rows_left, a, c = state
    _RowTile(text, columns, rows, a, c).write()
    later = text.sub(rows_left, rows)
    below = text.at(a, text.mul("%rsa", rows))
    if rows == columns.shape.rows[0]:  # lower tiles come last, and do not fill a panel
        below = text.at(below, _skip_after(text, rows, later))
    return [later, below, text.at(c, text.mul("%ldc", rows))]


def _skip_after(text: VectorText, rows: int, rows_left: str) -> str:
    """``skip`` where a panel of A ends behind a tile of the tallest height, else 0."""
    assert ROW_UNIT % rows == 0, "tiles fill panels"
    if rows == ROW_UNIT:
        return "%skip"
    done = text.sub("%m", rows_left)
    within = text.sub(done, text.mul(text.quotient(done, ROW_UNIT), ROW_UNIT))
    return text.choose(text.test("eq", within, 0), "%skip", 0)


@record
class _Columns:
    """What all tiles of a function share: vectors, the mask of the last one, whether C's old values count."""

    tiles: TileSet
    shape: TileShape
    vectors: tuple[Vector, ...]
    mask: str
    accumulate: str

    @classmethod
    def begin(cls, text: VectorText, tiles: TileSet, shape: TileShape) -> _Columns:
        vectors = tuple(Vector(tiles.dtype, lanes) for lanes in shape.lanes)
        accumulate = text.test("ne", "%accumulate", 0)
        mask = ""
        if shape.masked:
            mask = text.mask_below(vectors[-1], "%columns", shape.columns - shape.lanes[-1])
        return cls(tiles, shape, vectors, mask, accumulate)

    def load(self, text: VectorText, vector: int, address: str) -> str:
        """Read what belongs to the `vector`-th vector, of B or of C."""
        if self.mask and vector == len(self.vectors) - 1:
            return text.masked_load(self.vectors[vector], address, self.mask)
        return text.load_vector(self.vectors[vector], address)

    def store(self, text: VectorText, vector: int, value: str, address: str) -> None:
        if self.mask and vector == len(self.vectors) - 1:
            text.masked_store(self.vectors[vector], value, address, self.mask)
        else:
            text.store_vector(self.vectors[vector], value, address)


class _RowTile:
    """One tile of ``rows`` rows at ``a`` and ``c``."""

    def __init__(self, text: VectorText, columns: _Columns, rows: int, a: str, c: str) -> None:
        self.text = text
        self.columns = columns
        self.rows = rows
        self.a = a
        self.c = c
        self.count = rows * len(columns.vectors)  # accumulators, row by row

    def write(self) -> None:
        if self.rows == self.columns.shape.rows[0]:
            with self.text.when(self.columns.accumulate):
                self._prefetch()
        self._store(self._products())

    def _prefetch(self) -> None:
        """Ask for the tile's old values early: the rows of C are too far apart for the hardware to guess them."""
        bases = self._bases(self.c, "%ldc")
        last = sum(vector.size_bytes for vector in self.columns.vectors) - 1
        for row in range(self.rows):
            address = self._address(bases, "%ldc", row)
            for place in (address, self.text.at(address, last)):
                self.text.line(f"call void @llvm.prefetch.p0(ptr {place}, i32 1, i32 3, i32 1)")

    # -- the loop over k

    def _products(self) -> list[str]:
        text, size = self.text, self.columns.tiles.dtype.size_bytes
        bases = self._bases(self.a, "%rsa")
        state = ["%k", "%b", *bases, *["zeroinitializer"] * self.count]
        kinds = ["i64", *["ptr"] * (1 + len(bases)), *self._accumulator_types()]
        if self.columns.shape is self.columns.tiles.whole[0] and self.rows == self.columns.shape.rows[0]:
            for stride, steps, turn in (
                ("%csa", STEPS_ALONG, self._steps_along),
                ("%rsa", STEPS_ACROSS, self._steps_across),
            ):
                least = text.choose(text.test("eq", stride, size), steps, NEVER)
                state = text.repeat_while(kinds, state, partial(self._has, least), turn)
            return text.while_left(1, kinds, state, self._step)[2 + len(bases) :]
        return text.repeat(kinds, state, self._step)[2 + len(bases) :]

    def _accumulator_types(self) -> list[str]:
        return [vector.text for vector in self.columns.vectors] * self.rows

    # A loop's state: steps left, B, bases of A, accumulators.

    def _has(self, least: str, state: list[str]) -> str:
        return self.text.test("sge", state[0], least)

    def _step(self, state: list[str]) -> list[str]:
        """One step of k, whatever A's strides are."""
        text = self.text
        b, bases, sums = state[1], state[2 : -self.count], state[-self.count :]
        sums = self._added(b, [self._address(bases, "%rsa", row) for row in range(self.rows)], sums)
        later = [self._opaque(text.at(base, "%csa")) for base in bases]
        return [text.sub(state[0], 1), text.at(b, "%ldb"), *later, *sums]

    def _steps_along(self, state: list[str]) -> list[str]:
        """Some steps of k where elements of a row of A are side by side."""
        text, size = self.text, self.columns.tiles.dtype.size_bytes
        b, bases, sums = state[1], state[2 : -self.count], state[-self.count :]
        rows = [self._address(bases, "%rsa", row) for row in range(self.rows)]
        for step in range(STEPS_ALONG):
            sums = self._added(self._row_of_b(b, step), [text.at(row, step * size) for row in rows], sums)
        later = [self._opaque(text.at(base, STEPS_ALONG * size)) for base in bases]
        return [text.sub(state[0], STEPS_ALONG), self._opaque(self._row_of_b(b, STEPS_ALONG)), *later, *sums]

    def _steps_across(self, state: list[str]) -> list[str]:
        """Some steps of k where elements of a column of A are side by side, so that rows need one base."""
        text, size = self.text, self.columns.tiles.dtype.size_bytes
        b, first, sums = state[1], state[2], state[-self.count :]
        for step in range(STEPS_ACROSS):
            column = text.at(first, text.mul("%csa", step)) if step else first
            sums = self._added(self._row_of_b(b, step), [text.at(column, row * size) for row in range(self.rows)], sums)
        first = self._opaque(text.at(first, text.mul("%csa", STEPS_ACROSS)))
        bases = [text.at(first, row * size) for row in range(0, self.rows, ROWS_PER_BASE)]
        return [text.sub(state[0], STEPS_ACROSS), self._opaque(self._row_of_b(b, STEPS_ACROSS)), *bases, *sums]

    def _row_of_b(self, b: str, step: int) -> str:
        return self.text.at(b, self.text.mul("%ldb", step)) if step else b

    def _added(self, b: str, rows_of_a: list[str], sums: list[str]) -> list[str]:
        """The accumulators after one step."""
        text, vectors = self.text, self.columns.vectors
        row_of_b = self._load_b(b)
        new_sums = []
        for row, address in enumerate(rows_of_a):
            scalar = text.load(vectors[0].element, address)
            broadcast = {v.lanes: text.splat(scalar, v.element, v.lanes) for v in vectors}
            for k, vector in enumerate(vectors):
                factors = broadcast[vector.lanes], row_of_b[k]
                total = sums[row * len(vectors) + k]
                new_sums.append(self.columns.tiles.product(text, vector, *factors, total))
        return new_sums

    def _opaque(self, pointer: str) -> str:
        """The pointer through an empty piece of assembly, which keeps LLVM from relating it to the others.

        It would else see that all rows are one stride apart and step a single pointer from row to row, a chain of
        additions longer than the multiply-adds of a narrow tile, or keep an address per row and run out of registers.
        """
        return self.text.value(f'call ptr asm "", "=r,0"(ptr {pointer})')

    def _load_b(self, b: str) -> list[str]:
        columns, text = self.columns, self.text
        return [columns.load(text, k, text.at(b, self._offset(k))) for k in range(len(columns.vectors))]

    def _bases(self, first: str, stride: str) -> list[str]:
        """Addresses of every third row from ``first`` on."""
        bases = [first]
        if self.rows > ROWS_PER_BASE:
            skip = self.text.mul(stride, ROWS_PER_BASE)
            while len(bases) * ROWS_PER_BASE < self.rows:
                bases.append(self.text.at(bases[-1], skip))
        return bases

    def _address(self, bases: list[str], stride: str, row: int) -> str:
        base, within = bases[row // ROWS_PER_BASE], row % ROWS_PER_BASE
        if within == 0:
            return base
        return self.text.at(base, stride if within == 1 else self.text.mul(stride, within))

    def _offset(self, vector: int) -> int:
        return sum(v.size_bytes for v in self.columns.vectors[:vector])

    # -- the end of a tile

    def _store(self, sums: list[str]) -> None:
        """Add C's old values if asked, then write.

        All loads come before all stores: a row of C may begin where the masked store of the row before it ends, and a
        load that overlaps a store in flight waits for it.
        """
        totals = self._with_old_values(sums)
        for total, (k, _, address) in zip(totals, self._places(), strict=True):
            self.columns.store(self.text, k, total, address)

    def _places(self) -> list[tuple[int, Vector, str]]:
        """Position among the vectors, vector and address of every accumulator, row by row.

        Each block of code computes the addresses again: kept from one to the next they would be spilled.
        """
        bases = self._bases(self._opaque(self.c), "%ldc")
        places = []
        for row in range(self.rows):
            row_address = self._address(bases, "%ldc", row)
            for k, vector in enumerate(self.columns.vectors):
                places.append((k, vector, self.text.at(row_address, self._offset(k))))
        return places

    def _with_old_values(self, sums: list[str]) -> list[str]:
        text, kinds = self.text, self._accumulator_types()
        news = []
        with text.when(self.columns.accumulate):
            for total, (k, vector, address) in zip(sums, self._places(), strict=True):
                old = self.columns.load(text, k, address)
                news.append(text.binary("fadd", old, total, vector.text))
        return [text.merge(kind, new, total) for kind, new, total in zip(kinds, news, sums, strict=True)]
