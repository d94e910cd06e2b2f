"""Sorting: the stable order of every line along an axis, and of the rows of a matrix.

Elements become *keys*: unsigned integers in the order of the elements (NaN greatest, both zeros equal), complemented
where the order descends. A short line counts, for each key, how many come before it, which is its place: that
vectorises. A long one is sorted by the digits of its keys, eight bits at a time from the lowest (radix sort); digits
that all keys share are left out. Rows are sorted by their columns, the last one first. Chunks cut the lines.

Where few places of the order are asked for (topk, a median), their keys are bounded first, bit by bit, by counting how
many do not exceed a bound; what is within the bounds is collected in its order, and sorted. Of a few places of a long
line the least keys of blocks tell the bound, and only blocks that have such keys are looked at again.

How to read: `sort_keys.sort_key`, then `by_counting` and `by_digits`, then the printers; `_LineSelector` for the last.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from autojit.codegen.cpu.chunks import even_chunks
from autojit.codegen.cpu.kernel_text import CpuKernel, KernelModule, KernelText
from autojit.codegen.cpu.machine import aligned
from autojit.codegen.function_text import Operand
from autojit.codegen.scalar import Scalar
from autojit.codegen.sort_keys import key_bytes, sort_key
from autojit.core.dtypes import DType, int64
from autojit.core.sizes import is_symbolic, typical
from autojit.ir.graph import Node
from autojit.ops.sorting import Sort

# By the times below counting costs as much as the passes over digits, with 256 counts each, at 57 elements of one byte
# and 143 of four; no measurement of other limits is recorded.
SHORT = 64  # lines up to this length are sorted by counting
BUCKETS = 256
COUNT_NS = 0.12  # one comparison of a short line
DIGIT_NS = 2.5  # one element in one pass over a digit
SELECT_NS = 0.1  # one element in one of the passes for a bound, a bit each: 6.7 for the 64 of a median of 50,257
FEWEST = 32  # keys from which places are selected: of fewer all are counted (of 10 that takes a fifth of the time)
BLOCKS = (8, 64)  # the fewest and the most keys of a line whose least one stands for them
BLOCKS_EACH = 4  # for each place that is asked for: what is looked at again is then a quarter of the line at most


class _Sorter(CpuKernel):
    """A kernel with two buffers of keys and places per worker, which passes over a digit fill alternately."""

    def __init__(self, dtype: DType, length: int) -> None:
        super().__init__(KernelModule(), "kernel")
        self.dtype = dtype
        self.length = length
        self.n = self.number(length)
        self.key_bytes = key_bytes(dtype)
        self.kind = f"i{8 * self.key_bytes}"
        keys, places = aligned(length * self.key_bytes), aligned(length * 8)
        self.offsets = (0, keys, 2 * keys, 2 * keys + places, 2 * (keys + places))
        self.scratch_bytes = self.offsets[-1] + aligned(self.key_bytes * BUCKETS * 8)

    def place_scratch(self, argument: int) -> None:
        """The worker's buffers: keys and places in turn, and how often each digit occurs."""
        skip = self.mul("%worker", self.scratch_bytes)
        own = self.at(self.buffers[argument], skip)
        starts = [self.at(own, o) for o in self.offsets]
        self.counts = starts.pop()
        self.slots = [self.local("ptr") for _ in starts]  # keys, other keys, places, other places
        self.starts = starts

    def reset(self) -> None:
        for slot, start in zip(self.slots, self.starts, strict=True):
            self.store("ptr", start, slot)

    def buffer(self, number: int) -> str:
        return self.load("ptr", self.slots[number])

    def item(self, pointer: str, kind: str, index: Operand) -> str:
        return self.load(kind, self.element(pointer, kind, index))

    def put_item(self, pointer: str, kind: str, index: Operand, value: str) -> None:
        self.store(kind, value, self.element(pointer, kind, index))

    def by_counting(self, take: Callable[[str, str], None]) -> None:
        """``take(place, position)`` for every key in the first buffer: its position, and its place in the order."""
        keys = self.buffer(0)
        before = self.slot(int64)

        def count(stem: str, relation: str, start: Operand, stop: Operand) -> None:
            with self.loop(start, stop, stem=stem) as j:
                comes = self.test(relation, self.item(keys, self.kind, j), mine, self.kind)
                one = Scalar(self.convert("zext", comes, "i1"), int64)
                self.put(before, self.emit.add(self.get(before, int64), one))

        with self.loop(0, self.n, stem="key") as i:
            mine = self.item(keys, self.kind, i)
            self.put(before, self.emit.constant(0, int64))
            count("before", "ule", 0, i)
            count("behind", "ult", self.add(i, 1), self.n)
            take(self.get(before, int64).text, i)

    def clear_counts(self) -> None:
        self.fill_bytes(self.counts, 0, self.key_bytes * BUCKETS * 8)

    def count_digits(self, key: str) -> None:
        """Count the digits of one key."""
        with self.loop(0, self.key_bytes, stem="digit") as d:
            at = self._bucket(key, d)
            self.put_item(self.counts, "i64", at, self.add(self.item(self.counts, "i64", at), 1))

    def _bucket(self, key: str, digit: str) -> str:
        """The place of the count of a key's digit."""
        shift: str = self.binary("shl", digit, 3)
        wide = key if self.kind == "i64" else self.convert("zext", key, self.kind)
        low = self.binary("and", self.binary("lshr", wide, shift), BUCKETS - 1)
        return self.add(self.mul(digit, BUCKETS), low)

    def by_digits(self) -> None:
        """Sort the keys in the current buffer and their places, whose digits are counted: at least one element."""
        with self.loop(0, self.key_bytes, stem="pass") as d:
            first = self._bucket(self.item(self.buffer(0), self.kind, 0), d)
            is_shared = self.test("eq", self.item(self.counts, "i64", first), self.n)
            with self.when(self.negate(is_shared)):
                self._starts(d)
                self._spread(d)

    def _starts(self, d: str) -> None:
        """From how often each digit occurs to where its elements begin."""
        total = self.slot(int64)
        self.put(total, self.emit.constant(0, int64))
        base = self.mul(d, BUCKETS)
        with self.loop(0, BUCKETS, stem="bucket") as b:
            at = self.add(base, b)
            count = self.item(self.counts, "i64", at)
            start = self.get(total, int64)
            self.put_item(self.counts, "i64", at, start.text)
            self.put(total, self.emit.add(start, Scalar(count, int64)))

    def _spread(self, d: str) -> None:
        """Move every key with its place to where its digit belongs; the buffers change roles."""
        keys, other_keys, places, other_places = map(self.buffer, range(4))
        with self.loop(0, self.n, stem="element") as i:
            key = self.item(keys, self.kind, i)
            bucket = self._bucket(key, d)
            target = self.item(self.counts, "i64", bucket)
            self.put_item(self.counts, "i64", bucket, self.add(target, 1))
            self.put_item(other_keys, self.kind, target, key)
            self.put_item(other_places, "i64", target, self.item(places, "i64", i))
        for slot, pointer in zip(self.slots, (other_keys, keys, other_places, places), strict=True):
            self.store("ptr", pointer, slot)


def print_sort(node: Node) -> KernelText:
    """The kernel of a ``Sort``."""
    op = node.op
    assert isinstance(op, Sort)
    length = node.inputs[0].type.shape[op.axis]
    selects = op.ranks is not None and not is_symbolic(length) and length > FEWEST
    return (_LineSelector if selects else _LineSorter)(node).print()


class _LineSorter(_Sorter):
    def __init__(self, node: Node) -> None:
        op, x = node.op, node.inputs[0].type
        assert isinstance(op, Sort)
        super().__init__(x.dtype, x.shape[op.axis])
        self.op, self.node = op, node
        self.outer, self.inner = prod(x.shape[: op.axis]), prod(x.shape[op.axis + 1 :])
        self.ranks = op.ranks or (0, self.length)
        self.kept = self.ranks[1] - self.ranks[0]

    def print(self) -> KernelText:
        self.pointers([*(v.type.size for v in (*self.node.inputs, *self.node.outputs)), self.scratch_bytes])
        self.place_scratch(3)
        lines = self.outer * self.inner
        estimate = 50.0 + typical(lines) * self._line_ns(typical(self.length))
        work = lines * self.length * round(1000 * DIGIT_NS) * self.key_bytes
        chunks, size = even_chunks(lines, estimate, work)
        bounds = self.chunk_bounds(size, lines)
        with self.when(self.test("sgt", self.n, 0)), self.loop(*bounds, stem="line") as number:
            self._line(number)
        return self.finished(chunks, estimate, scratch_bytes=self.scratch_bytes)

    def _line_ns(self, length: int) -> float:
        return length * length * COUNT_NS if length <= SHORT else self.key_bytes * (BUCKETS + DIGIT_NS * length)

    def _line(self, number: str) -> None:
        outer = self.quotient(number, self.inner)
        column = self.remainder(number, self.inner)
        start, target = (self.add(self.mul(outer, extent * self.inner), column) for extent in (self.length, self.kept))
        self._order(start, target)

    def _order(self, start: str, target: str) -> None:
        """Find the places of a line that begins at ``start``, and write what is asked for from ``target`` on."""
        self.reset()
        if is_symbolic(self.length):
            with self.when(self.test("sle", self.n, SHORT)):
                self._short(start, target)
            with self.otherwise():
                self._long(start, target)
        else:
            (self._short if self.length <= SHORT else self._long)(start, target)

    def _element(self, start: str, i: str) -> Scalar:
        step = self.mul(i, self.inner)
        return self.read(0, self.dtype, self.add(start, step))

    def _short(self, start: str, target: str) -> None:
        keys = self.buffer(0)
        with self.loop(0, self.n, stem="load") as i:
            self.put_item(keys, self.kind, i, sort_key(self, self._element(start, i), descending=self.op.descending))

        def take(place: str, i: str) -> None:
            if self.op.ranks is None:
                self._store(start, target, place, i)
                return
            rank = self.sub(place, self.ranks[0])
            with self.when(self.test("ult", rank, self.kept)):
                self._store(start, target, rank, i)

        self.by_counting(take)

    def _long(self, start: str, target: str) -> None:
        keys, places = self.buffer(0), self.buffer(2)
        self.clear_counts()
        with self.loop(0, self.n, stem="load") as i:
            key = sort_key(self, self._element(start, i), descending=self.op.descending)
            self.put_item(keys, self.kind, i, key)
            self.put_item(places, "i64", i, i)
            self.count_digits(key)
        self.by_digits()
        order = self.buffer(2)
        with self.loop(0, self.kept, stem="store") as i:
            rank = self.add(i, self.ranks[0])
            self._store(start, target, i, self.item(order, "i64", rank))

    def _store(self, start: str, target: str, rank: str, position: str) -> None:
        at = self.add(target, self.mul(rank, self.inner))
        self.write(1, self._element(start, position), at)
        self.write(2, Scalar(position, int64), at)


class _LineSelector(_LineSorter):
    """Some places of the order of lines of a known length: only what may be there is sorted."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        first, behind = self.ranks
        fewest, most = BLOCKS
        together = 1 << (self.length // (BLOCKS_EACH * max(behind, 1))).bit_length() >> 1
        self.together = 1 if first or together < fewest else min(together, most)

    def _line_ns(self, length: int) -> float:
        passes = 8 * self.key_bytes * (1 + bool(self.ranks[0])) / self.together
        return length * (1.0 + passes * SELECT_NS) + self.kept * self.key_bytes * DIGIT_NS + 100.0

    def _order(self, start: str, target: str) -> None:
        if not self.kept:
            return
        self.reset()
        self._load_keys(start)
        count, skipped = self._collect()
        before, self.n = self.n, count

        def take(place: str, i: str) -> None:
            rank = self.sub(place, skipped)
            with self.when(self.test("ult", rank, self.kept)):
                self._store(start, target, rank, self.item(self.buffer(2), "i64", i))

        with self.when(self.test("sle", count, SHORT)):
            self.by_counting(take)
        with self.otherwise():
            self.clear_counts()
            with self.loop(0, count, stem="counted") as i:
                self.count_digits(self.item(self.buffer(0), self.kind, i))
            self.by_digits()
            order = self.buffer(2)
            with self.loop(0, self.kept, stem="store") as i:
                self._store(start, target, i, self.item(order, "i64", self.add(i, skipped)))
        self.n = before

    def _load_keys(self, start: str) -> None:
        """The keys of a line in the first buffer; the least of each block in the second."""
        keys, least = self.buffer(0), self.buffer(1)
        with self.parallel_loop(0, self.length, "load") as i:
            self.put_item(keys, self.kind, i, sort_key(self, self._element(start, i), descending=self.op.descending))
        if self.together == 1:
            return
        with self.loop(0, self.length // self.together, stem="block") as b:
            best, first = self.local(self.kind), self.mul(b, self.together)
            self.store(self.kind, -1, best)
            with self.loop(0, self.together, stem="key") as k:
                key = self.item(keys, self.kind, self.add(first, k))
                both = f"{self.kind} {self.load(self.kind, best)}, {self.kind} {key}"
                self.store(self.kind, self.value(f"call {self.kind} @llvm.umin.{self.kind}({both})"), best)
            self.put_item(least, self.kind, b, self.load(self.kind, best))

    def _bound(self, keys: str, count: Operand, wanted: int) -> str:
        """The least key that ``wanted`` of some keys do not exceed."""
        bound = self.local(self.kind)
        self.store(self.kind, -1, bound)
        with self.loop(0, 8 * self.key_bytes, stem="bit") as passed:
            shift = self.sub(8 * self.key_bytes - 1, passed)
            narrow = shift if self.kind == "i64" else self.convert("trunc", shift, "i64", self.kind)
            bit = self.binary("shl", 1, narrow, self.kind)
            tried = self.binary("xor", self.load(self.kind, bound), bit, self.kind)
            found = self._counted("ule", keys, count, tried)
            with self.when(self.test("sge", found, wanted)):
                self.store(self.kind, tried, bound)
        return self.load(self.kind, bound)

    def _counted(self, relation: str, keys: str, count: Operand, bound: str) -> str:
        """How many of some keys are below a bound."""
        found = self.local("i32")
        self.store("i32", 0, found)
        with self.loop(0, count, stem="counted") as k:
            is_below = self.test(relation, self.item(keys, self.kind, k), bound, self.kind)
            more = self.convert("zext", is_below, "i1", "i32")
            self.store("i32", self.binary("add", self.load("i32", found), more, "i32"), found)
        return self.convert("zext", self.load("i32", found), "i32")

    def _collect(self) -> tuple[str, str]:
        """Keys within the bounds and their positions, in the first buffers; how many, and the first one's place.

        Keys move towards the front, so none is overwritten that has not been looked at.
        """
        keys, least, places = self.buffer(0), self.buffer(1), self.buffer(2)
        first, behind = self.ranks
        blocks = self.length // self.together
        high = self._bound(keys if self.together == 1 else least, blocks, behind)
        low = self._bound(keys, self.length, first + 1) if first else None
        in_front = self.number(0) if low is None else self._counted("ult", keys, self.length, low)
        count = self.slot(int64)
        self.store("i64", 0, count)

        def look(start: Operand, stop: Operand) -> None:
            with self.loop(start, stop, stem="candidate") as i:
                key = self.item(keys, self.kind, i)
                is_inside = self.test("ule", key, high, self.kind)
                if low is not None:
                    is_inside = self.both(is_inside, self.test("uge", key, low, self.kind))
                at = self.load("i64", count)
                self.put_item(keys, self.kind, at, key)  # what is not inside is overwritten by the next
                self.put_item(places, "i64", at, i)
                self.store("i64", self.add(at, self.convert("zext", is_inside, "i1")), count)

        if self.together == 1:
            look(0, self.length)
        else:
            with self.loop(0, blocks, stem="block") as b:
                begin, is_near = (
                    self.mul(b, self.together),
                    self.test("ule", self.item(least, self.kind, b), high, self.kind),
                )
                with self.when(is_near):
                    look(begin, self.add(begin, self.together))
            look(blocks * self.together, self.length)
        return self.load("i64", count), self.sub(first, in_front)


def print_row_order(node: Node) -> KernelText:
    """The kernel of a ``RowOrder``: in one chunk."""
    rows, columns = node.inputs[0].type.shape
    sorter = _Sorter(node.inputs[0].type.dtype, rows)
    sorter.pointers([rows * columns, rows, sorter.scratch_bytes])
    sorter.place_scratch(2)
    sorter.reset()
    places = sorter.buffer(2)
    with sorter.loop(0, sorter.n, stem="place") as i:
        sorter.put_item(places, "i64", i, i)
    width = sorter.number(columns)
    with sorter.when(sorter.test("sgt", sorter.n, 0)), sorter.loop(0, width, stem="column") as k:
        column = sorter.sub(sorter.sub(width, 1), k)
        keys, order = sorter.buffer(0), sorter.buffer(2)
        sorter.clear_counts()
        with sorter.loop(0, sorter.n, stem="load") as i:
            row = sorter.mul(sorter.item(order, "i64", i), width)
            key = sort_key(sorter, sorter.read(0, sorter.dtype, sorter.add(row, column)), descending=False)
            sorter.put_item(keys, sorter.kind, i, key)
            sorter.count_digits(key)
        sorter.by_digits()
    order = sorter.buffer(2)
    with sorter.loop(0, sorter.n, stem="store") as i:
        sorter.write(1, Scalar(sorter.item(order, "i64", i), int64), i)
    estimate = 50.0 + typical(columns) * sorter.key_bytes * (BUCKETS + DIGIT_NS * typical(rows))
    return sorter.finished(1, estimate, scratch_bytes=sorter.scratch_bytes)
