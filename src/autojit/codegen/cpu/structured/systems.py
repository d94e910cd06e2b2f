"""Ops that rest on Gaussian elimination: systems of equations, inverses, determinants, LU factors."""

from __future__ import annotations

from autojit.codegen.cpu.chunks import even_chunks
from autojit.codegen.cpu.kernel_text import CpuKernel, KernelText
from autojit.codegen.cpu.structured.elimination import EliminationKernel
from autojit.codegen.cpu.structured.matrices import is_native
from autojit.codegen.scalar import Scalar
from autojit.codegen.target import HostTarget
from autojit.core.dtypes import int32, int64
from autojit.core.sizes import size_min, typical
from autojit.ir.graph import Node
from autojit.ops.linalg import Inv
from autojit.ops.triangular_factors import LuPivots


def print_solve(node: Node, target: HostTarget) -> KernelText | None:
    """The kernel of a ``Solve`` or an ``Inv``, whose right sides are those of the identity."""
    if not is_native(node):
        return None
    n, right_sides = node.inputs[0].type.shape[-1], node.inputs[-1].type.shape[-1]
    f = EliminationKernel(node, target, n, right_sides=right_sides)

    def solve(number: str) -> None:
        f.fill(number)
        if isinstance(node.op, Inv):
            f.fill_identity()
        else:
            f.fill_right(number)
        f.eliminate()
        f.refuse(number, f.has_zero_pivot())
        f.solve_right()
        f.write_rows(f.matrix_of(len(node.inputs), number), right_sides, f.right)

    return f.for_each(f.flops + f.matrices * n * n * right_sides, solve)


def print_determinant(node: Node, target: HostTarget) -> KernelText | None:
    """The kernel of a ``Det``."""
    if not is_native(node):
        return None
    f = EliminationKernel(node, target, node.inputs[0].type.shape[-1])

    def determine(number: str) -> None:
        f.fill(number)
        sign = f.take_sign()
        f.write(1, f.over_diagonal(f.get(sign, f.dtype), f.emit.mul), number)

    return f.for_each(f.flops, determine)


def print_log_determinant(node: Node, target: HostTarget) -> KernelText | None:
    """The kernel of a ``Slogdet``."""
    if not is_native(node):
        return None
    f = EliminationKernel(node, target, node.inputs[0].type.shape[-1])
    emit = f.emit

    def sign_of(x: Scalar) -> Scalar:
        """1, 0 or -1; 1 of NaN, as in eager mode."""
        return emit.select(emit.isnan(x), f.constant(1), emit.sign(x))

    def determine(number: str) -> None:
        f.fill(number)
        sign = f.take_sign()
        signs = f.over_diagonal(f.get(sign, f.dtype), lambda a, b: emit.mul(a, sign_of(b)))
        logarithm = f.over_diagonal(f.constant(0), lambda a, b: emit.add(a, emit.log(emit.abs(b))))
        f.write(1, signs, number)
        f.write(2, logarithm, number)

    return f.for_each(f.flops, determine)


def print_lu_pivots(node: Node, target: HostTarget) -> KernelText | None:
    """The kernel of a ``LuPivots``: columns behind the last step change nothing."""
    op = node.op
    assert isinstance(op, LuPivots)
    if not is_native(node):
        return None
    steps = size_min(*node.inputs[0].type.shape[-2:])
    f = EliminationKernel(node, target, steps)

    def factorise(number: str) -> None:
        def taken(step: str, row: str) -> None:
            with f.when(f.test("slt", step, steps)):
                pivot = f.emit.cast(Scalar(f.add(row, 1), int64), int32)
                f.write(1, pivot, f.add(f.mul(number, steps), step))

        f.fill(number)
        f.eliminate(taken)
        if op.is_checked:
            f.refuse(number, f.has_zero_pivot())

    return f.for_each(f.flops, factorise)


def print_lu_square(node: Node, target: HostTarget) -> KernelText | None:
    """The kernel of a ``LuSquare``."""
    if not is_native(node):
        return None
    n = node.inputs[0].type.shape[-1]
    f = EliminationKernel(node, target, n, exchanges=False)

    def factorise(number: str) -> None:
        f.fill(number)
        f.eliminate()
        f.write_rows(f.matrix_of(1, number), n, 0)

    return f.for_each(f.flops, factorise)


def print_pivot_order(node: Node) -> KernelText:
    """The kernel of a ``PivotOrder``: exchanges of rows' numbers, in the result."""
    steps, rows = node.inputs[0].type.shape[-1], node.outputs[0].type.shape[-1]
    f = CpuKernel.alone()
    f.pointers([v.type.size for v in (*node.inputs, *node.outputs)])
    lists = 1
    for extent in node.outputs[0].type.shape[:-1]:
        lists *= extent
    picoseconds = 1000 * lists * (2 * rows + 10)
    estimate = 50.0 + typical(picoseconds) / 1000
    chunks, size = even_chunks(lists, estimate, picoseconds)
    with f.loop(*f.chunk_bounds(size, lists), stem="list") as number:
        start = f.mul(number, rows)
        with f.parallel_loop(0, rows, "row") as i:
            f.write(1, Scalar(i, int64), f.add(start, i))
        with f.loop(0, steps, stem="exchange") as k:
            pivot = f.emit.cast(f.read(0, int32, f.add(f.mul(number, steps), k)), int64)
            one, other = f.add(start, k), f.add(start, f.sub(pivot.text, 1))
            first, second = (f.read(1, int64, place) for place in (one, other))
            f.write(1, second, one)
            f.write(1, first, other)
    return f.finished(chunks, estimate)
