"""QR by Householder's reflections, with LAPACK's signs: a block has a matrix, a warp a column at a time."""

from __future__ import annotations

from collections.abc import Callable

from autojit.codegen.cuda.grid_function import WARP
from autojit.codegen.cuda.matrices import MatrixKernel, batch_of, is_native
from autojit.codegen.cuda.target import CudaTarget
from autojit.codegen.function_text import Operand
from autojit.codegen.grid_text import GridText
from autojit.codegen.scalar import Scalar
from autojit.core.dtypes import DType, bool_, float64
from autojit.ir.graph import Node


def print_geqrf(node: Node, target: CudaTarget) -> GridText | None:
    """The kernel of a ``Geqrf``: the triangle, the reflections below it, and their factors."""
    if not is_native(node):
        return None
    f = _Reflections(node, beside=0)
    f.factorise()
    with f.each(0, f.rows, 0, f.columns) as (i, j):
        f.set_result(0, i, j, f.cell(i, j))
    with f.along(0, f.steps) as k:
        f.write(2, f.factor(k), f.add(f.mul(f.block_x, f.steps), k))
    return f.ended()


def print_qr(node: Node, target: CudaTarget) -> GridText | None:
    """The kernel of a ``Qr``: the reflections, last one first, applied to the columns of the identity."""
    if not is_native(node):
        return None
    n = node.inputs[0].type.shape[-1]
    f = _Reflections(node, beside=n)
    one, zero = (f.emit.constant(number, f.dtype) for number in (1, 0))
    f.fill(lambda i, j: f.emit.select(Scalar(f.test("eq", i, j), bool_), one, zero), n, 2 * n)
    f.factorise()
    with f.loop(0, f.steps, stem="reflection") as number:
        k = f.sub(f.steps - 1, number)
        f.reflect(k, f.factor(k), n, 2 * n)
        f.barrier()
    with f.each(0, f.rows, 0, n) as (i, j):
        f.set_result(0, i, j, f.cell(i, f.add(j, n)))
    with f.each(0, n, 0, n) as (i, j):
        is_upper = Scalar(f.test("sle", i, j), bool_)
        f.set_result(1, i, j, f.emit.select(is_upper, f.cell(i, j), zero))
    return f.ended()


class _Reflections(MatrixKernel):
    """A matrix with columns beside it; ``factors`` of the reflections are shared."""

    def __init__(self, node: Node, *, beside: int) -> None:
        count, n = batch_of(node)
        rows = node.inputs[0].type.shape[-2]
        super().__init__(node, rows, n + beside, count)
        self.width, self.steps = n, min(rows, n)
        self.factors = self.shared(self.kind, max(self.steps, 1))

    def factor(self, k: str) -> Scalar:
        return self.emit.load(self.element(self.factors, self.kind, k), self.dtype)

    def factorise(self) -> None:
        """The triangle on and above the diagonal, the reflections' vectors below it, without their leading ones."""
        self.fill(lambda i, j: self.operand(0, i, j), 0, self.width)
        self.barrier()
        with self.loop(0, self.steps, stem="step") as k:
            factor = self._vector(k)
            self.reflect(k, factor, self.add(k, 1), self.width)
            self.barrier()

    def _vector(self, k: str) -> Scalar:
        """Make a reflection of a column, which leaves its first element alone; its factor (LAPACK's ``larfg``)."""
        emit, behind = self.emit, self.add(k, 1)
        first = self.cell(k, k)
        wide = emit.cast(first, float64)
        below = self._over_rows(behind, float64, lambda i, sum: emit.add(sum, self._square(self.cell(i, k))))
        length = emit.sqrt(emit.add(emit.mul(wide, wide), below))
        is_plain = emit.eq(below, 0.0)
        reached = emit.cast(emit.neg(emit.copysign(length, wide)), self.dtype)
        factor = emit.select(is_plain, emit.constant(0, self.dtype), emit.div(emit.sub(reached, first), reached))
        divisor = emit.select(is_plain, emit.constant(1, self.dtype), emit.sub(first, reached))
        self.barrier()
        with self.along(behind, self.rows) as i:
            self.set_cell(i, k, emit.div(self.cell(i, k), divisor))
        with self.when(self.is_first_thread()):
            self.set_cell(k, k, emit.select(is_plain, first, reached))
            emit.store(factor, self.element(self.factors, self.kind, k))
        self.barrier()
        return factor

    def _square(self, x: Scalar) -> Scalar:
        wide = self.emit.cast(x, float64)
        return self.emit.mul(wide, wide)

    def _over_rows(self, first: str, dtype: DType, more: Callable[[str, Scalar], Scalar]) -> Scalar:
        """A sum over rows from one on: lanes take turns, all of the warp have it. ``more`` adds a row's term to it."""
        total = self.slot(dtype)
        self.put(total, self.emit.constant(0, dtype))
        with self.loop(self.add(first, self.lane), self.rows, WARP, stem="sum") as i:
            self.put(total, more(i, self.get(total, dtype)))
        found = self.get(total, dtype)
        for bit in range(WARP.bit_length() - 1):
            found = self.emit.add(found, self.shuffle(found, 1 << bit))
        return found

    def reflect(self, k: str, factor: Scalar, first: Operand, stop: Operand) -> None:
        """Reflect columns in the vector of a step: each by a warp, in memory that no other warp touches."""
        emit, behind = self.emit, self.add(k, 1)
        with self.loop(self.add(first, self.warp), stop, self.grid.threads // WARP, stem="column") as j:
            own = self.cell(k, j)
            below = self._over_rows(
                behind, self.dtype, lambda i, sum: emit.multiply_add(self.cell(i, k), self.cell(i, j), sum)
            )
            share = emit.mul(factor, emit.add(own, below))
            self.warp_barrier()
            with self.when(self.test("eq", self.lane, 0)):
                self.set_cell(k, j, emit.sub(own, share))
            with self.loop(self.add(behind, self.lane), self.rows, WARP, stem="row") as i:
                self.subtract_product(i, j, share, self.cell(i, k))
