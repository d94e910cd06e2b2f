"""Kernels in which a block has a matrix: eliminating, factorising and substituting in memory that its threads share.

The matrix is in shared memory where it fits, else in memory of the device, which the block has for itself; the text is
the same. Threads are laid out as rows and columns. A barrier stands between writing what others read and reading it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from autojit.codegen.cuda.counting import CountingKernel
from autojit.codegen.cuda.grid_function import WARP, Grid
from autojit.codegen.cuda.thread_items import roles_of
from autojit.codegen.function_text import Operand
from autojit.codegen.scalar import Scalar, memory_type, register_type
from autojit.core.dtypes import DType, bool_, float32, float64, int32, int64
from autojit.ir.graph import Node

SHARED_BYTES = 47 * 1024  # of the 48 KB that a block has without asking; the rest is left to reports
MOST_THREADS = 512
MOST_ROWS = 1024  # of a matrix that one block works on; beyond, a host's libraries are faster [not measured]
ELEMENTS_EACH = 8  # of the matrix for a thread, where there are enough


def _power(n: int) -> int:
    """The next power of two."""
    return 1 << max(n - 1, 0).bit_length()


class MatrixKernel(CountingKernel):
    """The kernel of a node that works on a matrix for each block.

    Args:
        node: its operands are read, its results written.
        rows: of the matrix.
        columns: of the matrix.
        blocks: how many there are.
    """

    def __init__(self, node: Node, rows: int, columns: int, blocks: int) -> None:
        self.node, self.rows, self.columns, self.blocks = node, rows, columns, blocks
        self.dtype: DType = node.inputs[0].type.dtype
        self.kind = memory_type(self.dtype)
        wanted = _power(-(-rows * columns // ELEMENTS_EACH))
        threads = min(MOST_THREADS, max(WARP, wanted))
        size_bytes = rows * columns * self.dtype.size_bytes
        self.is_shared = size_bytes <= SHARED_BYTES
        sizes = [v.type.size for v in (*node.inputs, *node.outputs)]
        room = 0 if self.is_shared else blocks * size_bytes
        super().__init__(Grid(threads, (blocks, 1, 1)), roles_of(node), sizes, room)
        self.across = min(WARP, _power(columns))  # threads side by side
        if self.is_shared:
            self.matrix = self.shared(self.kind, max(rows * columns, 1))
        else:
            self.matrix = self.at(self.partials, self.mul(self.block_x, size_bytes))

    # -- elements

    def cell(self, row: Operand, column: Operand) -> Scalar:
        """An element of the block's matrix."""
        return self.emit.load(self._place(row, column), self.dtype)

    def set_cell(self, row: Operand, column: Operand, value: Scalar) -> None:
        self.emit.store(value, self._place(row, column))

    def _place(self, row: Operand, column: Operand) -> str:
        return self.element(self.matrix, self.kind, self.add(self.mul(row, self.columns), column))

    def operand(self, number: int, row: Operand, column: Operand) -> Scalar:
        """An element of the block's matrix of an operand."""
        return self.read(number, self.dtype, self._in_batch(self.node.inputs[number].type.shape[-2:], row, column))

    def set_result(self, number: int, row: Operand, column: Operand, value: Scalar) -> None:
        """Write an element of the block's matrix of a result."""
        place = self._in_batch(self.node.outputs[number].type.shape[-2:], row, column)
        self.write(len(self.node.inputs) + number, value, place)

    def _in_batch(self, shape: tuple[int, ...], row: Operand, column: Operand) -> str:
        rows, columns = shape
        return self.add(self.mul(self.block_x, rows * columns), self.add(self.mul(row, columns), column))

    def set_number(self, number: int, value: Scalar) -> None:
        """Write the result that a matrix has one of; one thread does."""
        with self.when(self.is_first_thread()):
            self.write(len(self.node.inputs) + number, value, self.block_x)

    # -- threads

    def is_first_thread(self) -> str:
        return self.test("eq", self.thread, 0)

    @contextmanager
    def each(self, first_row: Operand, rows: Operand, first: Operand, columns: Operand) -> Iterator[tuple[str, str]]:
        """Every element from a row and a column on, up to others: one for a thread at a time."""
        down = self.grid.threads // self.across
        row, column = self.quotient(self.thread, self.across), self.remainder(self.thread, self.across)
        lines = self.loop(self.add(first_row, row), rows, down, stem="row")
        with lines as i, self.loop(self.add(first, column), columns, self.across, stem="column") as j:
            yield i, j

    @contextmanager
    def along(self, first: Operand, stop: Operand) -> Iterator[str]:
        """Every number of a range, one for a thread at a time."""
        with self.loop(self.add(first, self.thread), stop, self.grid.threads, stem="along") as i:
            yield i

    def fill(self, value: Callable[[str, str], Scalar], first: int, stop: int) -> None:
        """Put values into the columns of the matrix from one up to another."""
        with self.each(0, self.rows, first, stop) as (i, j):
            self.set_cell(i, j, value(i, self.sub(j, first)))

    def refuse(self, condition: str) -> None:
        """The op has no result for the block's matrix if a condition holds: the error says for which."""
        is_batch = self.node.inputs[0].type.ndim > 2
        number = self.add(self.block_x, 2) if is_batch else "1"
        found = self.convert("trunc", self.choose(condition, number, 0), "i64", "i32")
        self.emit.failures.append(Scalar(found, int32))
        self.collect_failures(self.node.op)

    def over_diagonal(
        self, start: Scalar, fold: Callable[[Scalar, Scalar], Scalar], count: int | None = None
    ) -> Scalar:
        """The (first) elements of the diagonal folded into a start, in order; all threads have it."""
        total = self.slot(start.dtype)
        self.put(total, start)
        with self.loop(0, min(self.rows, self.columns) if count is None else count, stem="diagonal") as k:
            self.put(total, fold(self.get(total, start.dtype), self.cell(k, k)))
        return self.get(total, start.dtype)

    def has_zero_pivot(self) -> str:
        """Whether there is a zero on the diagonal."""
        none = self.emit.constant(False, bool_)
        return self.over_diagonal(none, lambda so_far, x: self.emit.logical_or(so_far, self.emit.eq(x, 0.0))).text

    def is_zero(self, x: Scalar) -> str:
        return self.emit.eq(x, 0.0).text

    def subtract_product(self, row: str, column: str, a: Scalar, b: Scalar) -> None:
        """An element less a product."""
        less = self.emit.multiply_add(self.emit.neg(a), b, self.cell(row, column))
        self.set_cell(row, column, less)

    # -- elimination

    def eliminate(
        self, steps: int, *, exchanges: bool, taken: Callable[[str, str], None] = lambda step, row: None
    ) -> None:
        """Gaussian elimination: multipliers below the diagonal, what is left on and above it.

        Args:
            steps: columns that are eliminated; those behind go along.
            exchanges: the row with the largest element comes first, and a column of zeros stays as it is.
            taken: is told the step, and the row that was exchanged with its own; all threads are there.
        """
        with self.loop(0, steps, stem="step") as k:
            if exchanges:
                self.exchange_rows(k, taken)
            self.eliminate_column(k, keeps_zeros=exchanges)

    def eliminate_column(self, k: str, *, keeps_zeros: bool) -> None:
        """One step; ``keeps_zeros``: a column under a pivot of zero, which is then zero itself, stays as it is."""
        behind, pivot = self.add(k, 1), self.cell(k, k)
        with self.along(behind, self.rows) as i:
            value = self.cell(i, k)
            quotient = self.emit.div(value, pivot)
            if keeps_zeros:
                quotient = self.emit.select(Scalar(self.is_zero(pivot), bool_), value, quotient)
            self.set_cell(i, k, quotient)
        self.barrier()
        with self.each(behind, self.rows, behind, self.columns) as (i, j):
            self.subtract_product(i, j, self.cell(i, k), self.cell(k, j))
        self.barrier()

    def exchange_rows(self, k: str, taken: Callable[[str, str], None]) -> None:
        """Bring the row with the largest element of a column to its step."""
        best = self.best_start(k)
        with self.loop(self.add(k, self.lane), self.rows, WARP, stem="candidate") as i:
            self.consider(best, self.cell(i, k), i)
        row = self.best_of_warp(best)
        taken(k, row)
        self.barrier()
        with self.when(self.test("ne", row, k)), self.along(0, self.columns) as j:
            one, other = self.cell(k, j), self.cell(row, j)
            self.set_cell(k, j, other)
            self.set_cell(row, j, one)
        self.barrier()

    # -- the largest of some elements, for which every warp looks by itself

    def best_start(self, number: str) -> tuple[str, str]:
        """Nothing is found yet; ``number`` stands for it."""
        best, where = self.slot(int64), self.slot(int64)
        self.put(best, Scalar("-1", int64))
        self.put(where, Scalar(number, int64))
        return best, where

    def consider(self, best: tuple[str, str], x: Scalar, number: str) -> None:
        """Another element of the lane's."""
        size = self._magnitude(x)
        is_larger = self.test("sgt", size, self.get(best[0], int64).text)
        for slot, new in zip(best, (size, number), strict=True):
            self.put(slot, Scalar(self.choose(is_larger, new, self.get(slot, int64).text), int64))

    def best_of_warp(self, best: tuple[str, str]) -> str:
        """The number of the largest element, the least of several; all lanes have it."""
        most, number = (self.get(slot, int64) for slot in best)
        for bit in range(WARP.bit_length() - 1):
            other, other_number = self.shuffle(most, 1 << bit), self.shuffle(number, 1 << bit)
            is_tie = self.test("eq", other.text, most.text)
            is_before = self.both(is_tie, self.test("slt", other_number.text, number.text))
            wins = self.either(self.test("sgt", other.text, most.text), is_before)
            most = Scalar(self.choose(wins, other.text, most.text), int64)
            number = Scalar(self.choose(wins, other_number.text, number.text), int64)
        return number.text

    def _magnitude(self, x: Scalar) -> str:
        """A whole number in the order of absolute values; that of NaN is the largest, so that it is not left behind."""
        bits = self.convert(
            "bitcast", self.emit.abs(x).text, register_type(self.dtype), f"i{8 * self.dtype.size_bytes}"
        )
        return bits if self.dtype.size_bytes == 8 else self.convert("zext", bits, "i32")

    # -- substitution

    def substitute(
        self,
        n: int,
        first: int,
        diagonal: Callable[[str], Scalar] | None,
        factor: Callable[[str, str], Scalar],
        *,
        up: bool,
    ) -> None:
        """Solve a triangular system for the columns of the matrix from ``first`` on, in their place.

        Args:
            diagonal: elements of the triangle's diagonal; None: they are 1.
            factor: elements of the triangle beside it.
            up: from the last row on.
        """
        with self.loop(0, n, stem="substitute") as step:
            k = self.sub(n - 1, step) if up else step
            if diagonal is not None:
                pivot = diagonal(k)
                with self.along(first, self.columns) as j:
                    self.set_cell(k, j, self.emit.div(self.cell(k, j), pivot))
                self.barrier()
            rows: tuple[Operand, Operand] = (0, k) if up else (self.add(k, 1), n)
            with self.each(*rows, first, self.columns) as (i, j):
                self.subtract_product(i, j, factor(i, k), self.cell(k, j))
            self.barrier()


def is_native(node: Node) -> bool:
    """Whether blocks can have the matrices of a node's first operand."""
    x = node.inputs[0].type
    return x.dtype in (float32, float64) and max(x.shape[-2:]) <= MOST_ROWS


def batch_of(node: Node) -> tuple[int, int]:
    """(matrices, columns of one) of a node's first operand."""
    shape: Any = node.inputs[0].type.shape
    count = 1
    for extent in shape[:-2]:
        count *= extent
    return count, shape[-1]
