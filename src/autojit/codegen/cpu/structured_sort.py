"""Sorting: the stable order of every line along an axis, and of the rows of a matrix.

Elements become *keys*: unsigned integers in the order of the elements (NaN greatest, both zeros equal), complemented
where the order descends. A short line counts, for each key, how many come before it, which is its place: that
vectorises. A long one is sorted by the digits of its keys, eight bits at a time from the lowest (radix sort); digits
that all keys share are left out. Rows are sorted by their columns, the last one first. Chunks cut the lines.

How to read: `_Sorter.key`, then `_by_counting` and `_by_digits`, then the printers.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from autojit.codegen.cpu.chunks import MAX_CHUNKS, wanted_chunks
from autojit.codegen.cpu.kernel_text import KernelFunction, KernelModule, KernelText
from autojit.codegen.cpu.machine import aligned
from autojit.codegen.scalar import Scalar, is_half
from autojit.core.dtypes import DType, bool_, int64
from autojit.core.sizes import is_symbolic, size_max, typical
from autojit.ir.graph import Node
from autojit.ops.sorting import Sort

SHORT = 64  # lines up to this length are sorted by counting
BUCKETS = 256
COUNT_NS = 0.12  # one comparison of a short line
DIGIT_NS = 2.5  # one element in one pass over a digit
Body = Callable[[str], None]


class _Sorter(KernelFunction):
    """A kernel with two buffers of keys and places per worker, which passes over a digit fill by turns."""

    def __init__(self, dtype: DType, length: int) -> None:
        super().__init__(KernelModule(), "kernel")
        self.dtype = dtype
        self.length = length
        self.n = self.number(length)
        self.key_bytes = 4 if is_half(dtype) else dtype.size_bytes
        self.kind = f"i{8 * self.key_bytes}"
        keys, places = aligned(length * self.key_bytes), aligned(length * 8)
        self.offsets = (0, keys, 2 * keys, 2 * keys + places, 2 * (keys + places))
        self.scratch_bytes = self.offsets[-1] + aligned(self.key_bytes * BUCKETS * 8)

    def buffers(self, argument: int) -> None:
        """The worker's buffers: keys and places in turn, and how often each digit occurs."""
        skip = self.line(f"mul i64 %worker, {self.number(self.scratch_bytes)}")
        own = self.line(f"getelementptr i8, ptr %p{argument}, i64 {skip}")
        starts = [self.line(f"getelementptr i8, ptr {own}, i64 {self.number(o)}") for o in self.offsets]
        self.counts = starts.pop()
        self.slots = [self._alloca("ptr") for _ in starts]  # keys, other keys, places, other places
        self.starts = starts

    def reset(self) -> None:
        for slot, start in zip(self.slots, self.starts, strict=True):
            self.lines.append(f"  store ptr {start}, ptr {slot}")

    def buffer(self, number: int) -> str:
        return self.line(f"load ptr, ptr {self.slots[number]}")

    def at(self, pointer: str, kind: str, index: str) -> str:
        return self.line(f"load {kind}, ptr {self.line(f'getelementptr {kind}, ptr {pointer}, i64 {index}')}")

    def set(self, pointer: str, kind: str, index: str, value: str) -> None:
        self.lines.append(
            f"  store {kind} {value}, ptr {self.line(f'getelementptr {kind}, ptr {pointer}, i64 {index}')}"
        )

    def key(self, x: Scalar, descending: bool) -> str:
        """An element as an unsigned integer in the order of the elements."""
        kind, dtype = self.kind, self.dtype
        if dtype is bool_:
            key = self.line(f"zext i1 {x.text} to {kind}")
        elif dtype.kind in ("int", "uint"):
            key = x.text if dtype.kind == "uint" else self.line(f"xor {kind} {x.text}, {self._sign()}")
        else:
            real = "double" if self.key_bytes == 8 else "float"
            positive = self.line(f"fadd {real} {x.text}, 0.0")  # of both zeros
            bits = self.line(f"bitcast {real} {positive} to {kind}")
            flip = self.line(f"ashr {kind} {bits}, {8 * self.key_bytes - 1}")
            ordered = self.line(f"xor {kind} {bits}, {self.line(f'or {kind} {flip}, {self._sign()}')}")
            is_nan = self.line(f"fcmp uno {real} {x.text}, {x.text}")
            key = self.line(f"select i1 {is_nan}, {kind} -1, {kind} {ordered}")
        return self.line(f"xor {kind} {key}, -1") if descending else key

    def _sign(self) -> int:
        return -(1 << (8 * self.key_bytes - 1))

    def by_counting(self, take: Callable[[str, str], None]) -> None:
        """``take(place, position)`` for every key in the first buffer: its position, and its place in the order."""
        keys, kind = self.buffer(0), self.kind
        before = self.slot(int64)

        def count(relation: str, mine: str) -> Body:
            def compare(j: str) -> None:
                comes = self.line(f"icmp {relation} {kind} {self.at(keys, kind, j)}, {mine}")
                one = Scalar(self.line(f"zext i1 {comes} to i64"), int64)
                self.put(before, self.emit.add(self.get(before, int64), one))

            return compare

        def element(i: str) -> None:
            mine = self.at(keys, kind, i)
            self.put(before, self.emit.constant(0, int64))
            self.loop("before", "0", i, count("ule", mine))
            self.loop("behind", self.line(f"add i64 {i}, 1"), self.n, count("ult", mine))
            take(self.get(before, int64).text, i)

        self.loop("key", "0", self.n, element)

    def clear_counts(self) -> None:
        size = self.key_bytes * BUCKETS * 8
        self.lines.append(f"  call void @llvm.memset.p0.i64(ptr {self.counts}, i8 0, i64 {size}, i1 false)")

    def count_digits(self, key: str) -> None:
        """Count the digits of one key."""

        def digit(d: str) -> None:
            at = self._bucket(key, d)
            self.set(self.counts, "i64", at, self.line(f"add i64 {self.at(self.counts, 'i64', at)}, 1"))

        self.loop("digit", "0", str(self.key_bytes), digit)

    def _bucket(self, key: str, digit: str) -> str:
        """The place of the count of a key's digit."""
        shift: str = self.line(f"shl i64 {digit}, 3")
        wide = key if self.kind == "i64" else self.line(f"zext {self.kind} {key} to i64")
        low = self.line(f"and i64 {self.line(f'lshr i64 {wide}, {shift}')}, {BUCKETS - 1}")
        return self.line(f"add i64 {self.line(f'mul i64 {digit}, {BUCKETS}')}, {low}")

    def by_digits(self) -> None:
        """Sort the keys in the current buffer and their places, whose digits are counted: at least one element."""

        def one_pass(d: str) -> None:
            first = self._bucket(self.at(self.buffer(0), self.kind, "0"), d)
            is_shared = self.line(f"icmp eq i64 {self.at(self.counts, 'i64', first)}, {self.n}")
            with self.when(self.line(f"xor i1 {is_shared}, true")):
                self._starts(d)
                self._spread(d)

        self.loop("pass", "0", str(self.key_bytes), one_pass)

    def _starts(self, d: str) -> None:
        """From how often each digit occurs to where its elements begin."""
        total = self.slot(int64)
        self.put(total, self.emit.constant(0, int64))
        base = self.line(f"mul i64 {d}, {BUCKETS}")

        def bucket(b: str) -> None:
            at = self.line(f"add i64 {base}, {b}")
            count = self.at(self.counts, "i64", at)
            start = self.get(total, int64)
            self.set(self.counts, "i64", at, start.text)
            self.put(total, self.emit.add(start, Scalar(count, int64)))

        self.loop("bucket", "0", str(BUCKETS), bucket)

    def _spread(self, d: str) -> None:
        """Move every key with its place to where its digit stands; the buffers change roles."""
        keys, other_keys, places, other_places = map(self.buffer, range(4))

        def element(i: str) -> None:
            key = self.at(keys, self.kind, i)
            bucket = self._bucket(key, d)
            target = self.at(self.counts, "i64", bucket)
            self.set(self.counts, "i64", bucket, self.line(f"add i64 {target}, 1"))
            self.set(other_keys, self.kind, target, key)
            self.set(other_places, "i64", target, self.at(places, "i64", i))

        self.loop("element", "0", self.n, element)
        for slot, pointer in zip(self.slots, (other_keys, keys, other_places, places), strict=True):
            self.lines.append(f"  store ptr {pointer}, ptr {slot}")

    def either(self, condition: str, yes: Callable[[], None], no: Callable[[], None]) -> None:
        """One of two bodies."""
        with self.when(condition):
            yes()
        with self.when(self.line(f"xor i1 {condition}, true")):
            no()

    def text(self, chunks: int, estimate_ns: float) -> KernelText:
        self.finish()
        sizes = tuple(self.module.sizes)
        return KernelText(
            self.module.text(), chunks, 0, estimate_ns, reports=False, scratch_bytes=self.scratch_bytes, sizes=sizes
        )


def print_sort(node: Node) -> KernelText:
    """The kernel of a ``Sort``."""
    return _LineSorter(node).print()


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
        self.buffers(3)
        lines = self.outer * self.inner
        estimate = 50.0 + typical(lines) * self._line_ns(typical(self.length))
        work = lines * self.length * round(1000 * DIGIT_NS) * self.key_bytes
        wanted = wanted_chunks(estimate, work, MAX_CHUNKS)
        size = size_max(1, -(-lines // wanted))
        low = self.line(f"mul i64 %chunk, {self.number(size)}")
        top = self.line(f"add i64 {low}, {self.number(size)}")
        high = self.line(f"call i64 @llvm.smin.i64(i64 {top}, i64 {self.number(lines)})")
        with self.when(self.line(f"icmp sgt i64 {self.n}, 0")):
            self.loop("line", low, high, self._line)
        return self.text(size_max(1, -(-lines // size)), estimate)

    def _line_ns(self, length: int) -> float:
        return length * length * COUNT_NS if length <= SHORT else self.key_bytes * (BUCKETS + DIGIT_NS * length)

    def _line(self, number: str) -> None:
        outer = self.line(f"udiv i64 {number}, {self.number(self.inner)}")
        column = self.line(f"urem i64 {number}, {self.number(self.inner)}")
        start, target = (
            self.line(f"add i64 {self.line(f'mul i64 {outer}, {self.number(extent * self.inner)}')}, {column}")
            for extent in (self.length, self.kept)
        )
        self.reset()
        if is_symbolic(self.length):
            is_short = self.line(f"icmp sle i64 {self.n}, {SHORT}")
            self.either(is_short, lambda: self._short(start, target), lambda: self._long(start, target))
        else:
            (self._short if self.length <= SHORT else self._long)(start, target)

    def _element(self, start: str, i: str) -> Scalar:
        step = self.line(f"mul i64 {i}, {self.number(self.inner)}")
        return self.load(0, self.dtype, self.line(f"add i64 {start}, {step}"))

    def _short(self, start: str, target: str) -> None:
        keys = self.buffer(0)
        self.loop(
            "load", "0", self.n,
            lambda i: self.set(keys, self.kind, i, self.key(self._element(start, i), self.op.descending)),
        )  # fmt: skip

        def take(place: str, i: str) -> None:
            if self.op.ranks is None:
                self._store(start, target, place, i)
                return
            rank = self.line(f"sub i64 {place}, {self.number(self.ranks[0])}")
            with self.when(self.line(f"icmp ult i64 {rank}, {self.number(self.kept)}")):
                self._store(start, target, rank, i)

        self.by_counting(take)

    def _long(self, start: str, target: str) -> None:
        keys, places = self.buffer(0), self.buffer(2)
        self.clear_counts()

        def load(i: str) -> None:
            key = self.key(self._element(start, i), self.op.descending)
            self.set(keys, self.kind, i, key)
            self.set(places, "i64", i, i)
            self.count_digits(key)

        self.loop("load", "0", self.n, load)
        self.by_digits()
        order = self.buffer(2)

        def store(i: str) -> None:
            rank = self.line(f"add i64 {i}, {self.number(self.ranks[0])}")
            self._store(start, target, i, self.at(order, "i64", rank))

        self.loop("store", "0", self.number(self.kept), store)

    def _store(self, start: str, target: str, rank: str, position: str) -> None:
        at = self.line(f"add i64 {target}, {self.line(f'mul i64 {rank}, {self.number(self.inner)}')}")
        self.store(1, self._element(start, position), at)
        self.store(2, Scalar(position, int64), at)


def print_row_order(node: Node) -> KernelText:
    """The kernel of a ``RowOrder``: in one chunk."""
    rows, columns = node.inputs[0].type.shape
    sorter = _Sorter(node.inputs[0].type.dtype, rows)
    sorter.pointers([rows * columns, rows, sorter.scratch_bytes])
    sorter.buffers(2)
    sorter.reset()
    places = sorter.buffer(2)
    sorter.loop("place", "0", sorter.n, lambda i: sorter.set(places, "i64", i, i))
    width = sorter.number(columns)

    def by_column(k: str) -> None:
        column = sorter.line(f"sub i64 {sorter.line(f'sub i64 {width}, 1')}, {k}")
        keys, order = sorter.buffer(0), sorter.buffer(2)
        sorter.clear_counts()

        def load(i: str) -> None:
            row = sorter.line(f"mul i64 {sorter.at(order, 'i64', i)}, {width}")
            x = sorter.load(0, sorter.dtype, sorter.line(f"add i64 {row}, {column}"))
            key = sorter.key(x, False)
            sorter.set(keys, sorter.kind, i, key)
            sorter.count_digits(key)

        sorter.loop("load", "0", sorter.n, load)
        sorter.by_digits()

    with sorter.when(sorter.line(f"icmp sgt i64 {sorter.n}, 0")):
        sorter.loop("column", "0", width, by_column)
    order = sorter.buffer(2)
    sorter.loop("store", "0", sorter.n, lambda i: sorter.store(1, Scalar(sorter.at(order, "i64", i), int64), i))
    estimate = 50.0 + typical(columns) * sorter.key_bytes * (BUCKETS + DIGIT_NS * typical(rows))
    return sorter.text(1, estimate)
