"""Cofactors of matrices, also of singular ones: elimination with exchanges of rows and columns.

With ``P A Q = L U``, the last pivot ``d`` of ``U`` and its other rows and columns ``U1`` (``v`` above ``d``), the
adjugate is ``det(P) det(Q) det(U1) Q X`` where the last row of ``X`` is that of ``L^-1 P``, and the others solve
``U1 x = d y - v z`` for the rows ``y`` and the last one ``z`` of that matrix: nothing is divided by the last pivot.
Small pivots come last, so if another one is zero, the rank is too small for any cofactor.
"""

from __future__ import annotations

from autojit.codegen.cuda.grid_function import WARP
from autojit.codegen.cuda.matrices import MatrixKernel, batch_of, is_native
from autojit.codegen.cuda.target import CudaTarget
from autojit.codegen.grid_text import GridText
from autojit.codegen.scalar import Scalar
from autojit.core.dtypes import bool_
from autojit.ir.graph import Node


def print_cofactors(node: Node, target: CudaTarget) -> GridText | None:
    """The kernel of a ``Cofactor``."""
    return _Cofactors(node).print() if is_native(node) else None


class _Cofactors(MatrixKernel):
    """A matrix with the identity beside it; ``order`` says which column has come to each place."""

    def __init__(self, node: Node) -> None:
        count, n = batch_of(node)
        super().__init__(node, n, 2 * n, count)
        self.order = self.shared("i32", max(n, 1))
        self.sign = self.slot(self.dtype)

    def print(self) -> GridText:
        n, emit = self.rows, self.emit
        one, zero = (emit.constant(number, self.dtype) for number in (1, 0))
        self.put(self.sign, one)
        self.fill(lambda i, j: self.operand(0, i, j), 0, n)
        self.fill(lambda i, j: emit.select(Scalar(self.test("eq", i, j), bool_), one, zero), n, 2 * n)
        with self.along(0, n) as j:
            self.put_word(self.order, j, j)
        self.barrier()
        with self.loop(0, max(n - 1, 0), stem="step") as k:
            self._bring(k)
            self.eliminate_column(k, keeps_zeros=True)
        if n:
            self._finish(n - 1, zero)
        return self.ended()

    def _bring(self, k: str) -> None:
        """Bring the row and the column of the largest element that is left to a step."""
        column = self._column_of_largest(k)
        self.barrier()
        with self.along(0, self.rows) as i:
            one, other = self.cell(i, k), self.cell(i, column)
            self.set_cell(i, k, other)
            self.set_cell(i, column, one)
        with self.when(self.is_first_thread()):
            first, second = self.get_word(self.order, k), self.get_word(self.order, column)
            self.put_word(self.order, k, second)
            self.put_word(self.order, column, first)
        self.barrier()
        self._turn_if(self.test("ne", column, k))
        self.exchange_rows(k, lambda step, row: self._turn_if(self.test("ne", row, step)))

    def _turn_if(self, condition: str) -> None:
        sign = self.get(self.sign, self.dtype)
        self.put(self.sign, self.emit.select(Scalar(condition, bool_), self.emit.neg(sign), sign))

    def _column_of_largest(self, k: str) -> str:
        """Of the elements from a row and a column on; all warps look for it."""
        begin = self.add(k, self.lane)
        best = self.best_start(k)
        with self.loop(k, self.rows, stem="row") as i, self.loop(begin, self.rows, WARP, stem="candidate") as j:
            self.consider(best, self.cell(i, j), j)
        return self.best_of_warp(best)

    def _finish(self, last: int, zero: Scalar) -> None:
        """Substitute, and write what the exchanges leave where."""
        n, emit = self.rows, self.emit
        pivot = self.cell(last, last)
        with self.each(0, last, n, 2 * n) as (i, j):
            scaled = emit.mul(pivot, self.cell(i, j))
            self.set_cell(i, j, emit.sub(scaled, emit.mul(self.cell(i, last), self.cell(last, j))))
        self.barrier()
        self.substitute(last, n, lambda k: self.cell(k, k), self.cell, up=True)
        product = self.over_diagonal(self.get(self.sign, self.dtype), emit.mul, last)
        is_empty = emit.eq(self.over_diagonal(emit.constant(1, self.dtype), self._least, last), 0.0)
        with self.each(0, n, 0, n) as (i, j):
            found = emit.mul(product, self.cell(i, self.add(j, n)))
            self.set_result(0, j, self.get_word(self.order, i), emit.select(is_empty, zero, found))

    def _least(self, so_far: Scalar, pivot: Scalar) -> Scalar:
        """1, or 0 from a pivot of zero on."""
        return self.emit.select(self.emit.eq(pivot, 0.0), self.emit.constant(0, self.dtype), so_far)
