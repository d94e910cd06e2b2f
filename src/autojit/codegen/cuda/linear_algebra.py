"""Linear algebra of real matrices: a block factorises one, in any batch.

Where an op refuses a matrix (a singular one, one that is not positive definite) the kernel reports it, and the step's
error is the one of eager mode. Derivatives are the ops' own, made of products and further solutions.
"""

from __future__ import annotations

from autojit.codegen.cuda.matrices import MatrixKernel, batch_of, is_native
from autojit.codegen.cuda.target import CudaTarget
from autojit.codegen.cuda.thread_items import ItemKernel
from autojit.codegen.grid_text import GridText
from autojit.codegen.scalar import Scalar
from autojit.core.dtypes import bool_, int32, int64
from autojit.ir.graph import Node
from autojit.ops.linalg import TriangularSolve
from autojit.ops.triangular_factors import LuPivots

COLUMNS = 32  # of right sides that a block has, where the matrix is only read


def print_cholesky(node: Node, target: CudaTarget) -> GridText | None:
    """The kernel of a ``Cholesky``."""
    if not is_native(node):
        return None
    f = _Cholesky(node)
    f.factorise()
    with f.each(0, f.rows, 0, f.rows) as (i, j):
        is_lower = Scalar(f.test("sle", j, i), bool_)
        f.set_result(0, i, j, f.emit.select(is_lower, f.cell(i, j), f.emit.constant(0, f.dtype)))
    f.refuse(f.test("ne", f.get(f.bad, int64).text, 0))
    return f.ended()


def print_first_bad_minor(node: Node, target: CudaTarget) -> GridText | None:
    """The kernel of a ``FirstBadMinor``: what a Cholesky factorisation stumbles on."""
    if not is_native(node):
        return None
    f = _Cholesky(node)
    f.factorise()
    f.set_number(0, f.emit.cast(f.get(f.bad, int64), int32))
    return f.ended()


class _Cholesky(MatrixKernel):
    """Factorises the symmetric part of a matrix, of which the lower triangle is kept."""

    def __init__(self, node: Node) -> None:
        count, n = batch_of(node)
        super().__init__(node, n, n, count)

    def factorise(self) -> None:
        """``bad`` is then the order of the first minor that is not positive, or 0."""
        self.bad = self.slot(int64)
        self.put(self.bad, Scalar("0", int64))
        self.fill(self._symmetric, 0, self.rows)
        self.barrier()
        with self.loop(0, self.rows, stem="step") as k:
            self._step(k)

    def _symmetric(self, i: str, j: str) -> Scalar:
        both = self.emit.add(self.operand(0, i, j), self.operand(0, j, i))
        return self.emit.mul(both, self.emit.constant(0.5, self.dtype))

    def _step(self, k: str) -> None:
        pivot, behind = self.cell(k, k), self.add(k, 1)
        known = self.get(self.bad, int64).text
        is_bad = self.both(self.negate(self.emit.gt(pivot, 0.0).text), self.test("eq", known, 0))
        self.put(self.bad, Scalar(self.choose(is_bad, behind, known), int64))
        root = self.emit.sqrt(pivot)
        self.barrier()
        with self.along(behind, self.rows) as i:
            self.set_cell(i, k, self.emit.div(self.cell(i, k), root))
        with self.when(self.is_first_thread()):
            self.set_cell(k, k, root)
        self.barrier()
        with self.each(behind, self.rows, behind, self.rows) as (i, j), self.when(self.test("sle", j, i)):
            self.subtract_product(i, j, self.cell(i, k), self.cell(j, k))
        self.barrier()


def print_solve(node: Node, target: CudaTarget) -> GridText | None:
    """The kernel of a ``Solve``: elimination goes through the right sides, too."""
    if not is_native(node):
        return None
    columns = node.inputs[1].type.shape[-1]
    f = _System(node, columns)
    f.fill(lambda i, j: f.operand(1, i, j), f.rows, f.columns)
    f.solve()
    return f.ended()


def print_inverse(node: Node, target: CudaTarget) -> GridText | None:
    """The kernel of an ``Inv``: the right sides are those of the identity."""
    if not is_native(node):
        return None
    f = _System(node, node.inputs[0].type.shape[-1])
    one, zero = (f.emit.constant(n, f.dtype) for n in (1, 0))
    f.fill(lambda i, j: f.emit.select(Scalar(f.test("eq", i, j), bool_), one, zero), f.rows, f.columns)
    f.solve()
    return f.ended()


class _System(MatrixKernel):
    """A square matrix with its right sides beside it."""

    def __init__(self, node: Node, right_sides: int) -> None:
        count, n = batch_of(node)
        super().__init__(node, n, n + right_sides, count)

    def solve(self) -> None:
        """Right sides are there; the result is written."""
        n = self.rows
        self.fill(lambda i, j: self.operand(0, i, j), 0, n)
        self.barrier()
        self.eliminate(n, exchanges=True)
        self.refuse(self.has_zero_pivot())
        self.substitute(n, n, lambda k: self.cell(k, k), self.cell, up=True)
        with self.each(0, n, n, self.columns) as (i, j):
            self.set_result(0, i, self.sub(j, n), self.cell(i, j))


def print_triangular_solve(node: Node, target: CudaTarget) -> GridText | None:
    """The kernel of a ``TriangularSolve``: blocks share the right sides."""
    op = node.op
    assert isinstance(op, TriangularSolve)
    if not is_native(node):
        return None
    return _Triangular(node, op).print()


class _Triangular(MatrixKernel):
    """Some of the right sides of a triangular system. The triangle is read where it is."""

    def __init__(self, node: Node, op: TriangularSolve) -> None:
        count, n = batch_of(node)
        self.op = op
        self.right_sides = node.inputs[1].type.shape[-1]
        self.parts = max(1, -(-self.right_sides // COLUMNS))
        super().__init__(node, n, min(COLUMNS, self.right_sides), count * self.parts)

    def print(self) -> GridText:
        n = self.rows
        self.first = self.mul(self.remainder(self.block_x, self.parts), COLUMNS)
        self.block_x = self.quotient(self.block_x, self.parts)  # of the operands: the number of the matrix
        self.fill(self._right_side, 0, self.columns)
        self.barrier()
        self.substitute(n, 0, None if self.op.unit else self._diagonal, self._beside, up=self.op.upper)
        with self.each(0, n, 0, self.least(self.columns, self.sub(self.right_sides, self.first))) as (i, j):
            self.set_result(0, i, self.add(self.first, j), self.cell(i, j))
        if not self.op.unit:
            self._refuse_zeros()
        return self.ended()

    def _right_side(self, i: str, j: str) -> Scalar:
        return self.operand(1, i, self.least(self.add(self.first, j), self.right_sides - 1))

    def _diagonal(self, k: str) -> Scalar:
        return self.operand(0, k, k)

    def _beside(self, i: str, k: str) -> Scalar:
        return self.operand(0, i, k)

    def _refuse_zeros(self) -> None:
        with self.along(0, self.rows) as k:
            self.refuse(self.is_zero(self._diagonal(k)))


def print_determinant(node: Node, target: CudaTarget) -> GridText | None:
    """The kernel of a ``Det``."""
    if not is_native(node):
        return None
    f = _Determinant(node)
    f.factorise()
    f.set_number(0, f.over_diagonal(f.get(f.sign, f.dtype), f.emit.mul))
    return f.ended()


def print_log_determinant(node: Node, target: CudaTarget) -> GridText | None:
    """The kernel of a ``Slogdet``."""
    if not is_native(node):
        return None
    f = _Determinant(node)
    f.factorise()
    signs = f.over_diagonal(f.get(f.sign, f.dtype), lambda a, b: f.emit.mul(a, f.sign_of(b)))
    logarithm = f.over_diagonal(f.emit.constant(0, f.dtype), lambda a, b: f.emit.add(a, f.emit.log(f.emit.abs(b))))
    f.set_number(0, signs)
    f.set_number(1, logarithm)
    return f.ended()


class _Determinant(MatrixKernel):
    """Factorises a matrix, and knows the sign of the exchanges."""

    def __init__(self, node: Node) -> None:
        count, n = batch_of(node)
        super().__init__(node, n, n, count)

    def factorise(self) -> None:
        """``sign`` is then 1 or -1."""
        self.sign = self.slot(self.dtype)
        self.put(self.sign, self.emit.constant(1, self.dtype))
        self.fill(lambda i, j: self.operand(0, i, j), 0, self.rows)
        self.barrier()
        self.eliminate(self.rows, exchanges=True, taken=self._turn)

    def _turn(self, step: str, row: str) -> None:
        sign = self.get(self.sign, self.dtype)
        turned = Scalar(self.test("ne", step, row), bool_)
        self.put(self.sign, self.emit.select(turned, self.emit.neg(sign), sign))

    def sign_of(self, x: Scalar) -> Scalar:
        """1, 0 or -1; NaN of NaN."""
        return self.emit.select(self.emit.isnan(x), x, self.emit.sign(x))


def print_lu_pivots(node: Node, target: CudaTarget) -> GridText | None:
    """The kernel of a ``LuPivots``."""
    op = node.op
    assert isinstance(op, LuPivots)
    if not is_native(node):
        return None
    count, (rows, columns) = batch_of(node)[0], node.inputs[0].type.shape[-2:]
    steps = min(rows, columns)
    f = MatrixKernel(node, rows, columns, count)
    f.fill(lambda i, j: f.operand(0, i, j), 0, f.columns)
    f.barrier()

    def taken(step: str, row: str) -> None:
        with f.when(f.is_first_thread()):
            pivot = f.emit.cast(Scalar(f.add(row, 1), int64), int32)
            f.write(1, pivot, f.add(f.mul(f.block_x, steps), step))

    f.eliminate(steps, exchanges=True, taken=taken)
    if op.is_checked:
        f.refuse(f.has_zero_pivot())
    return f.ended()


def print_lu_square(node: Node, target: CudaTarget) -> GridText | None:
    """The kernel of a ``LuSquare``."""
    if not is_native(node):
        return None
    count, n = batch_of(node)
    f = MatrixKernel(node, n, n, count)
    f.fill(lambda i, j: f.operand(0, i, j), 0, n)
    f.barrier()
    f.eliminate(n, exchanges=False)
    with f.each(0, n, 0, n) as (i, j):
        f.set_result(0, i, j, f.cell(i, j))
    return f.ended()


def print_pivot_order(node: Node, target: CudaTarget) -> GridText:
    """The kernel of a ``PivotOrder``: a thread for each list of exchanges, in its result."""
    steps, rows = node.inputs[0].type.shape[-1], node.outputs[0].type.shape[-1]
    f = ItemKernel(node, node.outputs[0].type.size // max(rows, 1))
    with f.item() as number:
        start = f.mul(number, rows)
        with f.loop(0, rows, stem="row") as i:
            f.write(1, Scalar(i, int64), f.add(start, i))
        with f.loop(0, steps, stem="exchange") as k:
            pivot = f.emit.cast(f.read(0, int32, f.add(f.mul(number, steps), k)), int64)
            one, other = f.add(start, k), f.add(start, f.sub(pivot.text, 1))
            first, second = (f.read(1, int64, place) for place in (one, other))
            f.write(1, second, one)
            f.write(1, first, other)
    return f.text()
