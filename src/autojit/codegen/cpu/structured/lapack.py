"""Decompositions that iterate, with LAPACK's signs and order: NumPy's loops around it, called from native code.

They are those of eager mode, so the results have its bits. A thread has a share of the matrices and makes one call for
them; of float32 one call for each, because NumPy computes in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from math import prod

from autojit.codegen.cpu.chunks import even_chunks
from autojit.codegen.cpu.kernel_text import CpuKernel, KernelModule, KernelText
from autojit.codegen.cpu.machine import aligned
from autojit.codegen.function_text import Operand
from autojit.codegen.module_text import Signature
from autojit.codegen.scalar import Scalar
from autojit.codegen.target import HostTarget
from autojit.core.dtypes import bool_, float32, float64, int32
from autojit.core.foreign_functions import FE_INVALID, ForeignFunction
from autojit.core.sizes import size_min, typical
from autojit.ir.graph import Node
from autojit.ops.decompositions import Qr

LOOP = Signature("loop", "ptr args, ptr dimensions, ptr steps, ptr data")
RAISED = Signature("raised", "i32 exceptions", "i32")
MATRIX_PS = 2_000_000  # of one of a few elements
FLOP_PS = 300  # as above, it only cuts work into chunks


def print_eigh(node: Node, target: HostTarget) -> KernelText | None:
    """The kernel of an ``Eigh``: the Hermitian part is made where the vectors will be."""
    n = node.inputs[0].type.shape[-1]
    f = _loops(node, "eigh_lo", "d->dd", (n,), values=1)
    if f is None:
        return None

    def hermitian(start: str, i: str, j: str) -> Scalar:
        one, other = (f.read(0, f.dtype, f.add(start, f.add(f.mul(a, n), b))) for a, b in ((i, j), (j, i)))
        return f.emit.mul(f.emit.add(one, other), f.emit.constant(0.5, f.dtype))

    return f.print((2, 1, 2), hermitian, 25 * n * n * n)


def print_svd(node: Node, target: HostTarget) -> KernelText | None:
    """The kernel of an ``Svd``."""
    rows, columns = node.inputs[0].type.shape[-2:]
    least = size_min(rows, columns)
    f = _loops(node, "svd_s", "d->ddd", (rows, columns, least), values=2)
    if f is None:
        return None

    def element(start: str, i: str, j: str) -> Scalar:
        return f.read(0, f.dtype, f.add(start, f.add(f.mul(i, columns), j)))

    is_wide = f.dtype is not float64
    return f.print((0, 1, 2, 3), element if is_wide else None, 20 * rows * columns * least)


def print_qr(node: Node, target: HostTarget) -> KernelText | None:
    """The kernel of a ``Qr``, or of a ``Geqrf``, which is its first half."""
    functions = *_pair("qr_r_raw", "d->d"), *_pair("qr_reduced", "dd->d")
    if node.inputs[0].type.dtype not in (float32, float64) or not _are_there(functions):
        return None
    rows, columns = node.inputs[0].type.shape[-2:]
    steps = size_min(rows, columns)
    f = LapackKernel(node, functions, [(rows, columns), (steps,)])
    matrix, factors = (f.kept[0], (rows, columns)), (f.kept[1], (steps,))
    with f.loop(*f.share(4 * rows * columns * steps), stem="matrix") as number:
        with f.parallel_loop(0, rows * columns, "element") as i:
            value = f.read(0, f.dtype, f.add(f.mul(number, rows * columns), i))
            f.emit.store(f.emit.cast(value, float64), f.address(f.kept[0], float64, i), f.access)
        with f.when(f.test("sgt", steps, 0)):
            f.call_loop(0, (rows, columns), [matrix, factors])
            if isinstance(node.op, Qr):
                _write_triangle(f, columns, number)
                f.call_loop(1, (rows, columns, steps), [matrix, factors, matrix])
        f.narrow(f.kept[0], 1, number)
        if not isinstance(node.op, Qr):
            f.narrow(f.kept[1], 2, number)
    return f.ended()


def _write_triangle(f: LapackKernel, n: int, number: str) -> None:
    """What is on and above the diagonal of the packed factors."""
    start = f.mul(number, n * n)
    with f.loop(0, n, stem="row") as i, f.parallel_loop(0, n, "column") as j:
        at = f.add(f.mul(i, n), j)
        wide = f.emit.load(f.address(f.kept[0], float64, at), float64, f.access)
        kept = f.emit.select(Scalar(f.test("sle", i, j), bool_), wide, f.emit.constant(0, float64))
        f.write(2, f.emit.cast(kept, f.dtype), f.add(start, at))


def _loops(node: Node, name: str, types: str, extents: tuple[int, ...], values: int) -> _LoopKernel | None:
    """The kernel's text, where NumPy has such a loop and its address is known."""
    if node.inputs[0].type.dtype not in (float32, float64):
        return None
    functions = *_pair(name, types), ForeignFunction("fetestexcept")
    return _LoopKernel(node, functions, extents, values) if _are_there(functions) else None


def _pair(name: str, types: str) -> tuple[ForeignFunction, ForeignFunction]:
    """A loop and its data."""
    return ForeignFunction(name, types), ForeignFunction(name, types, True)


def _are_there(functions: Sequence[ForeignFunction]) -> bool:
    return all(function.is_there() for function in functions)


class LapackKernel(CpuKernel):
    """A kernel that calls loops. Its buffers are operands, results, scratch if there is some, and the functions.

    Args:
        kept: shapes of what each worker keeps, in float64.
    """

    def __init__(self, node: Node, functions: tuple[ForeignFunction, ...], kept: Sequence[tuple[int, ...]]) -> None:
        super().__init__(KernelModule(), "kernel")
        self.node, self.functions = node, functions
        self.types = [v.type for v in (*node.inputs, *node.outputs)]
        self.dtype = self.types[0].dtype
        self.shapes = [t.shape[self.types[0].ndim - 2 :] for t in self.types]
        self.matrices = prod(self.types[0].shape[:-2])
        ends = [0]
        for shape in kept:
            ends.append(ends[-1] + aligned(prod(shape) * float64.size_bytes))
        *offsets, self.scratch_bytes = ends
        scratch = [self.scratch_bytes] if kept else []
        self.pointers([*(t.size for t in self.types), *scratch, *[1] * len(functions)])
        if kept:
            own = self.at(self.buffers[len(self.types)], self.mul("%worker", self.scratch_bytes))
            self.kept = [self.at(own, offset) for offset in offsets]

    def share(self, flops: int) -> tuple[str, str]:
        """The matrices of the chunk, of so many operations each."""
        picoseconds = self.matrices * (MATRIX_PS + flops * FLOP_PS)
        self.estimate = typical(picoseconds) / 1000
        self.chunks, size = even_chunks(self.matrices, self.estimate, picoseconds)
        return self.chunk_bounds(size, self.matrices)

    def ended(self) -> KernelText:
        return self.finished(self.chunks, self.estimate, scratch_bytes=self.scratch_bytes, foreign=self.functions)

    def call_loop(
        self,
        number: int,
        extents: Sequence[Operand],
        operands: Sequence[tuple[str, tuple[int, ...]]],
        count: Operand = 1,
    ) -> None:
        """Call a loop by its number, for core dimensions and contiguous operands (address, shape of one)."""
        at, data = self.buffers[len(self.buffers) - len(self.functions) + 2 * number :][:2]
        shapes, size = [shape for _, shape in operands], float64.size_bytes
        dimensions = self._words("i64", [count, *extents])
        outer = [prod(shape) * size for shape in shapes]
        inner = [prod(shape[k + 1 :]) * size for shape in shapes for k in range(len(shape))]
        steps = self._words("i64", [*outer, *inner])
        self.call(LOOP, self._words("ptr", [place for place, _ in operands]), dimensions, steps, data, by=at)

    def _words(self, kind: str, values: Sequence[Operand]) -> str:
        """The address of some words on the stack."""
        words = self.local(f"[{len(values)} x {kind}]")
        for k, value in enumerate(values):
            self.store(kind, value, self.element(words, kind, k))
        return words

    def narrow(self, source: str, buffer: int, number: str) -> None:
        """A matrix of a result, of float64."""
        count = prod(self.shapes[buffer])
        start = self.mul(number, count)
        with self.parallel_loop(0, count, "element") as i:
            wide = self.emit.load(self.address(source, float64, i), float64, self.access)
            self.write(buffer, self.emit.cast(wide, self.dtype), self.add(start, i))


class _LoopKernel(LapackKernel):
    """Calls a loop for the matrices of a chunk.

    Args:
        extents: the loop's core dimensions.
        values: the buffer in which NaN comes first for a matrix that has failed.
    """

    def __init__(
        self, node: Node, functions: tuple[ForeignFunction, ...], extents: tuple[int, ...], values: int
    ) -> None:
        types = [v.type for v in (*node.inputs, *node.outputs)]
        self.is_wide = types[0].dtype is not float64
        super().__init__(node, functions, [t.shape[types[0].ndim - 2 :] for t in types] if self.is_wide else [])
        self.extents, self.values = extents, values

    def print(self, buffers: Sequence[int], first: Callable[[str, str, str], Scalar] | None, flops: int) -> KernelText:
        """The kernel that calls the loop on some buffers.

        Args:
            first: an element of what the loop reads, of the operand's matrix that begins at a place; None: the operand.
            flops: of a matrix.
        """
        low, high = self.share(flops)
        is_some = self.both(self.test("slt", low, high), self.test("sgt", self.extents[-1], 0))
        with self.when(is_some):
            if self.is_wide:
                with self.loop(low, high, stem="matrix") as number:
                    self._one(buffers, first, number)
            else:
                self._all(buffers, first, low, high)
        return self.ended()

    def _all(
        self, buffers: Sequence[int], first: Callable[[str, str, str], Scalar] | None, low: str, high: str
    ) -> None:
        """One call for all matrices of the chunk."""
        if first is not None:
            with self.loop(low, high, stem="matrix") as number:
                start = self.mul(number, prod(self.shapes[buffers[0]]))
                self._fill(self.address(self.buffers[buffers[0]], self.dtype, start), first, start)
        starts = [self.mul(low, prod(self.shapes[k])) for k in buffers]
        places = [self.address(self.buffers[k], self.dtype, start) for k, start in zip(buffers, starts, strict=True)]
        operands = [(place, self.shapes[k]) for place, k in zip(places, buffers, strict=True)]
        self.call_loop(0, self.extents, operands, self.sub(high, low))
        with self._failed(), self.loop(low, high, stem="matrix") as number:
            self._refuse(number)

    def _one(self, buffers: Sequence[int], first: Callable[[str, str, str], Scalar] | None, number: str) -> None:
        """One matrix, in float64 in the worker's scratch."""
        assert first is not None
        self._fill(self.kept[buffers[0]], first, self.mul(number, prod(self.shapes[0])))
        self.call_loop(0, self.extents, [(self.kept[k], self.shapes[k]) for k in buffers])
        for k in buffers[1:]:
            self.narrow(self.kept[k], k, number)
        with self._failed():
            self._refuse(number)

    def _fill(self, target: str, first: Callable[[str, str, str], Scalar], start: str) -> None:
        """What the loop reads of a matrix."""
        rows, columns = self.shapes[0]
        with self.loop(0, rows, stem="row") as i, self.parallel_loop(0, columns, "column") as j:
            at = self.address(target, float64, self.add(self.mul(i, columns), j))
            self.emit.store(self.emit.cast(first(start, i, j), float64), at, self.access)

    def _failed(self) -> AbstractContextManager[None]:
        """Only where the call has failed for some matrix."""
        raised = self.call(RAISED, FE_INVALID, by=self.buffers[-1])
        return self.when(self.test("ne", raised, 0, "i32"))

    def _refuse(self, matrix: str) -> None:
        value = self.read(self.values, self.dtype, self.mul(matrix, self.types[self.values].shape[-1]))
        number = self.add(matrix, 2) if self.types[0].ndim > 2 else "1"
        found = self.convert("trunc", self.choose(self.emit.isnan(value).text, number, 0), "i64", "i32")
        self.emit.failures.append(Scalar(found, int32))
        self.collect_failures(self.node.op)
