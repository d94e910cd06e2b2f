"""Kernels that factorise matrices or solve with them: a thread has a matrix, most of its work is in matrix products.

Blocks of ``SIDE`` rows are updated by one product with all that is known (left-looking), then substituted column by
column: a column's ``SIDE`` elements are in registers, and a vector has as many columns as lanes. So that products,
which only add, can subtract, what is not finished yet is kept *negated*; negation is exact, so no bit depends on it.

The products are those of `products.gemm`, which the kernel is told the address of. Their bits, and so all others,
depend on shapes alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from math import prod

from autojit.codegen.cpu.kernel_text import KernelText
from autojit.codegen.cpu.machine import aligned
from autojit.codegen.cpu.products import blocks, gemm
from autojit.codegen.cpu.products.packing import transposed
from autojit.codegen.cpu.products.tiles import tile_set
from autojit.codegen.cpu.vector_text import INTERNAL, Vector, VectorKernel, VectorModule, VectorText
from autojit.codegen.function_text import Operand
from autojit.codegen.module_text import Signature
from autojit.codegen.scalar import Scalar
from autojit.codegen.target import HostTarget
from autojit.core.dtypes import float32, float64, int32
from autojit.core.sizes import is_symbolic
from autojit.ir.graph import Node

SIDE = 8
"""Rows of a block: with their columns they fit the 16 vector registers of AVX2."""

OUTER = 96
"""Rows that share a product with all that is known: it packs its operands then. A multiple of ``SIDE``."""

GFLOPS = {4: 30.0, 8: 15.0}  # by bytes of an element; they only cut work into chunks

Place = tuple[str, Operand, Operand]
"""An address, and the strides of rows and columns in elements."""


def is_native(node: Node) -> bool:
    """Whether there are products of the type of a node's first operand."""
    return node.inputs[0].type.dtype in (float32, float64)


class MatrixKernel(VectorKernel):
    """The kernel of a node that works on matrices, its operands and results, and in the worker's scratch.

    Args:
        elements: that each worker keeps.
        product: extents (rows, columns, summed) that its products do not exceed.
    """

    def __init__(self, node: Node, target: HostTarget, elements: int, product: tuple[int, int, int]) -> None:
        super().__init__(VectorModule(), "kernel")
        self.node, self.dtype = node, node.inputs[0].type.dtype
        self.size_bytes = self.dtype.size_bytes
        self.vector = Vector(self.dtype, target.vector_bytes // self.size_bytes)
        self.square = Vector(self.dtype, min(target.vector_bytes, 32) // self.size_bytes)  # as packing transposes
        self.fused = tile_set(self.dtype, target).fused
        kept = aligned(elements * self.size_bytes)
        self.scratch_bytes = kept + aligned(gemm.scratch_bytes(self.dtype, *product))
        types = [v.type for v in (*node.inputs, *node.outputs)]
        self.pointers([*(t.size for t in types), self.scratch_bytes, 1])
        self.gemm = self.buffers[-1]
        self.own = self.at(self.buffers[-2], self.mul("%worker", self.scratch_bytes))
        self.product_scratch = self.at(self.own, kept)
        self.matrices = prod(node.inputs[0].type.shape[:-2])

    def ended(self, chunks: int, estimate_ns: float) -> KernelText:
        return self.finished(chunks, estimate_ns, scratch_bytes=self.scratch_bytes, product=self.dtype)

    # -- elements

    def number_at(self, place: Place, row: Operand, column: Operand) -> str:
        """The address of an element."""
        base, down, across = place
        return self.address(base, self.dtype, self.add(self.mul(row, down), self.mul(column, across)))

    def moved(self, place: Place, row: Operand, column: Operand) -> Place:
        """The part of a matrix from a row and a column on."""
        return self.number_at(place, row, column), place[1], place[2]

    def cell(self, place: Place, row: Operand, column: Operand) -> Scalar:
        return self.emit.load(self.number_at(place, row, column), self.dtype, self.access)

    def set_cell(self, place: Place, row: Operand, column: Operand, value: Scalar) -> None:
        self.emit.store(value, self.number_at(place, row, column), self.access)

    def matrix_of(self, buffer: int, matrix: str) -> Place:
        """One matrix of an operand or a result, by its number in the batch."""
        values = (*self.node.inputs, *self.node.outputs)
        rows, columns = values[buffer].type.shape[-2:]
        start = self.address(self.buffers[buffer], self.dtype, self.mul(matrix, rows * columns))
        return start, columns, 1

    def constant(self, value: float) -> Scalar:
        return self.emit.constant(value, self.dtype)

    def refuse(self, matrix: str, condition: str) -> None:
        """The op has no result for a matrix if a condition holds: the error says for which."""
        is_batch = self.node.inputs[0].type.ndim > 2
        number = self.add(matrix, 2) if is_batch else "1"
        found = self.convert("trunc", self.choose(condition, number, 0), "i64", "i32")
        self.emit.failures.append(Scalar(found, int32))
        self.collect_failures(self.node.op)

    # -- products and substitution

    def add_product(self, extents: tuple[Operand, Operand, Operand], a: Place, b: Place, c: Place) -> None:
        """``c += a b``, of (rows, columns, summed) elements."""
        callee = blocks.signature(self.dtype, "gemm")
        self.call(callee, *extents, *a, *b, *c, 1, self.product_scratch, by=self.gemm)

    def substitute(self, rows: int, triangle: Place, x: Place, columns: Operand, *, is_unit: bool = False) -> None:
        """Solve ``triangle x = -x`` in place, for few rows and any columns, which are contiguous.

        The triangle is a lower one; an upper one is given from its last element on, with strides that go back.
        """
        name = f"substitute_{rows}{'_unit' * is_unit}"
        signature = Signature(name, "ptr a, i64 down, i64 across, ptr x, i64 line, i64 columns")
        if name not in self.module.functions:
            write = partial(_write_substitute, self.vector, rows, is_unit, self.fused)
            VectorText.define(self.module, signature, write, linkage="internal", attributes=INTERNAL)
        self.call(signature, *triangle, x[0], x[1], columns)

    # -- copying matrices

    @contextmanager
    def squares(self, rows: Operand, columns: Operand) -> Iterator[tuple[str, str]]:
        """The first rows and columns of square pieces that cover a matrix."""
        side = self.square.lanes
        with self.loop(0, rows, side, stem="rows") as i, self.loop(0, columns, side, stem="columns") as j:
            yield i, j

    def load_square(self, place: Place, extents: tuple[Operand, Operand], row: str, column: str) -> list[str]:
        """The rows of a square piece of a matrix with contiguous rows; zeros outside."""
        side = self.square.lanes
        base, line, _ = place
        found, zeros = [], self.sub(extents[1], column)
        for k in range(side):
            at = self.add(row, k)
            is_there = self.test("slt", at, extents[0])
            mask = self.mask_below(self.square, self.choose(is_there, zeros, 0))
            found.append(self.masked_load(self.square, self.number_at((base, line, 1), at, column), mask))
        return found

    def store_square(
        self, place: Place, extents: tuple[Operand, Operand], row: str, column: str, piece: Sequence[str]
    ) -> None:
        """Write a square piece as far as the matrix goes."""
        is_inside = self.both(
            self.test("sle", self.add(row, self.square.lanes), extents[0]),
            self.test("sle", self.add(column, self.square.lanes), extents[1]),
        )
        with self.when(is_inside):
            for k, value in enumerate(piece):
                self.store_vector(self.square, value, self.number_at(place, self.add(row, k), column))
        with self.otherwise():
            width = self.sub(extents[1], column)
            for k, value in enumerate(piece):
                at = self.add(row, k)
                mask = self.mask_below(self.square, self.choose(self.test("slt", at, extents[0]), width, 0))
                self.masked_store(self.square, value, self.number_at(place, at, column), mask)

    def turned(self, piece: Sequence[str]) -> list[str]:
        """A square piece transposed."""
        return transposed(self, self.square, list(piece))

    def splat_of(self, value: float) -> str:
        """A number in every lane of a row of a square piece."""
        return self.splat(self.constant(value).text, self.vector.element, self.square.lanes)


def padded(extent: int) -> int:
    """So many rows in whole blocks; of less than one, all."""
    if not is_symbolic(extent) and extent < SIDE:
        return extent
    return -(-extent // SIDE) * SIDE


def _write_substitute(vector: Vector, rows: int, is_unit: bool, fused: bool, f: VectorText) -> None:
    """The triangle is copied to where one instruction multiplies by an element of it, and its diagonal inverted."""
    element, size = vector.element, vector.dtype.size_bytes
    table = f.local(f"[{rows * rows} x {element}]")

    def entry(i: int, k: int) -> str:
        return f.at(table, (i * rows + k) * size)

    for i in range(rows):
        line = f.mul("%down", i)
        for k in range(i + (not is_unit)):
            value = f.load(element, f.element("%a", element, f.add(line, f.mul("%across", k))))
            f.store(element, value if k < i else f.value(f"fdiv {element} -1.0, {value}"), entry(i, k))

    lines = [f.element("%x", element, f.mul("%line", i)) for i in range(rows)]

    def solved(values: list[str]) -> list[str]:
        for k in range(rows):
            if is_unit:
                values[k] = f.value(f"fneg {vector.text} {values[k]}")
            else:
                factor = f.splat(f.load(element, entry(k, k)), element, vector.lanes)
                values[k] = f.binary("fmul", values[k], factor, vector.text)
            for i in range(k + 1, rows):
                factor = f.splat(f.load(element, entry(i, k)), element, vector.lanes)
                values[i] = f.multiply_add(vector, factor, values[k], values[i], fused=fused)
        return values

    whole = f.binary("and", "%columns", -vector.lanes)
    with f.loop(0, whole, vector.lanes) as column:
        places = [f.element(line, element, column) for line in lines]
        for place, value in zip(places, solved([f.load_vector(vector, place) for place in places]), strict=True):
            f.store_vector(vector, value, place)
    f.return_when(f.test("sge", whole, "%columns"))
    mask = f.mask_below(vector, f.sub("%columns", whole))
    places = [f.element(line, element, whole) for line in lines]
    for place, value in zip(places, solved([f.masked_load(vector, p, mask) for p in places]), strict=True):
        f.masked_store(vector, value, place, mask)
