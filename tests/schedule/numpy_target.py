"""A second target for schedules: NumPy, which walks all loops of a program at once, each as an axis of an array.

It takes a `Schedule` as the CPU's code generator does and shares nothing with it, so it says what a loop program means.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autojit.ir.graph import Value
from autojit.ir.index import Index, LoopVariable, Opaque, Quotient
from autojit.schedule.expressions import (
    Applied,
    Expr,
    FromSource,
    Guarded,
    Load,
    LookUp,
    Number,
    RandomWord,
    RowResult,
)
from autojit.schedule.kernels import Access, CopyKernel, Kernel, LoopKernel, MatmulKernel, StructuredKernel
from autojit.schedule.loops import Accumulator, LoopProgram
from autojit.schedule.schedule import Schedule

Array = NDArray[Any]


Loops = Callable[[LoopProgram, Mapping[Value, Array]], Mapping[Value, Array]]
"""What a loop program stores and accumulates."""


def run(found: Schedule, inputs: Sequence[Array], loops: Loops | None = None) -> list[Array]:
    """The results of a schedule; every value has memory of its own.

    Args:
        loops: another way to run loop programs.
    """
    memory = {v: np.array(x).reshape(-1) for v, x in zip(found.graph.inputs, inputs, strict=True)}
    with np.errstate(all="ignore"):
        for item in found.kernels:
            for kernel in getattr(item, "kernels", [item]):
                _run_kernel(kernel, memory, loops or (lambda program, known: _Nest(program, known).run()))
    return [memory[s].reshape(v.type.shape) for s, v in zip(found.outputs, found.graph.outputs, strict=True)]


def _run_kernel(kernel: Kernel, memory: dict[Value, Array], loops: Loops) -> None:
    if isinstance(kernel, LoopKernel):
        memory |= loops(kernel.program, memory)
        return
    if isinstance(kernel, CopyKernel):
        memory[kernel.target] = memory[kernel.source].copy()
        return
    node = kernel.nodes[0]
    shapes = [v.type.shape for v in node.inputs]
    if isinstance(kernel, MatmulKernel):
        operands = [_strided(a, shape, memory) for a, shape in zip((kernel.a, kernel.b), shapes, strict=False)]
        operands += [memory[kernel.init].reshape(shapes[2])] if kernel.init is not None else []
    else:
        assert isinstance(kernel, StructuredKernel)
        operands = [
            np.zeros(v.type.shape, v.type.dtype.numpy)
            if kernel.clears and not place
            else memory[stored].reshape(v.type.shape)
            for place, (v, stored) in enumerate(zip(node.inputs, kernel.operands, strict=True))
        ]
    made = node.op.eager(*operands)
    if isinstance(kernel, MatmulKernel) and kernel.epilogue is not None:
        (product,) = node.outputs
        memory |= loops(kernel.epilogue.program, {**memory, product: made.reshape(-1)})
        return
    for value, array in zip(node.outputs, made if len(node.outputs) > 1 else (made,), strict=True):
        memory[value] = np.asarray(array, value.type.dtype.numpy).reshape(-1)


def _strided(access: Access, shape: tuple[int, ...], memory: Mapping[Value, Array]) -> Array:
    flat = memory[access.value]
    if not prod(shape):
        return np.empty(shape, flat.dtype)
    steps = tuple(stride * flat.itemsize for stride in access.strides)
    return np.ascontiguousarray(np.lib.stride_tricks.as_strided(flat[access.offset :], shape, steps))


class _Nest:
    """One loop program: rows and inner loops are axes, in this order."""

    def __init__(self, program: LoopProgram, memory: Mapping[Value, Array]) -> None:
        self.program = program
        self.buffers = [memory[v] for v in program.loads]
        loops = (*program.rows, *program.inner)
        self.extents = tuple(v.extent for v in loops)
        self.counters = {
            v: np.arange(v.extent).reshape([v.extent if k == axis else 1 for k in range(len(loops))])
            for axis, v in enumerate(loops)
        }
        self.known: dict[Expr, Array] = {}
        self.results: list[Array] = []  # of row reductions

    def run(self) -> dict[Value, Array]:
        """What the program stores and accumulates."""
        program = self.program
        rows, inner = self.extents[: len(program.rows)], self.extents[len(program.rows) :]
        for reduction in program.reductions:
            lines = self._whole(self.of(reduction.expr), self.extents).reshape(prod(rows), prod(inner))
            self.results.append(_fold(reduction.op, lines, 1).reshape(*rows, *(1 for _ in inner)))
        made = {a.value: self._accumulated(a, rows, inner) for a in program.accumulators}
        for store in program.stores:
            place, element = np.broadcast_arrays(self.index(store.index), self.of(store.expr))
            made[store.value] = np.empty(store.value.type.size, store.value.type.dtype.numpy)
            made[store.value][place.reshape(-1)] = element.reshape(-1)
        return made

    def _accumulated(self, a: Accumulator, rows: tuple[int, ...], inner: tuple[int, ...]) -> Array:
        columns = inner if a.full else tuple(1 for _ in inner)
        elements = self._whole(self.of(a.expr), (*rows, *columns))
        if a.kind == "all":
            return _fold(a.op, elements.reshape(1, -1), 1)
        kept = prod(rows[: self.program.prefix])
        return _fold(a.op, elements.reshape(kept, prod(rows[self.program.prefix :]), prod(columns)), 1).reshape(-1)

    def _whole(self, array: Array, shape: tuple[int, ...]) -> Array:
        return np.broadcast_to(array, shape)

    def index(self, index: Index) -> Array:
        """A position at every point."""
        total = np.full((1,) * len(self.extents), index.offset)
        for term, coefficient in index.terms:
            if isinstance(term, LoopVariable):
                part = self.counters[term]
            elif isinstance(term, Opaque):
                part = self.of(self.program.lookups[term.text])
            else:
                base, divisor = self.index(term.base), term.divisor  # type: ignore[union-attr]
                part = base // divisor if isinstance(term, Quotient) else base % divisor
            total = total + coefficient * part
        return total

    def of(self, expr: Expr) -> Array:
        """An expression at every point that it depends on."""
        if expr not in self.known:
            self.known[expr] = np.asarray(self._computed(expr)).astype(
                np.int64 if isinstance(expr, LookUp) else expr.dtype.numpy, copy=False
            )
        return self.known[expr]

    def _computed(self, expr: Expr) -> Any:
        if isinstance(expr, Load):
            return self._read(self.buffers[expr.buffer], expr)
        if isinstance(expr, Applied):
            return expr.op.eager(*map(self.of, expr.args))
        if isinstance(expr, FromSource):
            whole = np.asarray(expr.op.eager())
            if not (whole.size and expr.positions):
                return np.zeros((1,) * len(self.extents), whole.dtype) if expr.positions else whole
            axes = zip(expr.positions, whole.shape, strict=True)
            return whole[tuple(np.clip(self.index(at), 0, n - 1) for at, n in axes)]  # anything behind a guard
        if isinstance(expr, Number):
            return expr.value
        if isinstance(expr, RowResult):
            return self.results[expr.number]
        if isinstance(expr, Guarded):
            places = [(self.index(index), low, high) for index, low, high in expr.guards]
            inside = np.all(np.broadcast_arrays(*[(low <= at) & (at < high) for at, low, high in places]), axis=0)
            return np.where(inside, *map(self.of, expr.args))
        if isinstance(expr, LookUp):
            (place,) = map(self.of, expr.args)
            return np.clip(np.where(place < 0, place + expr.extent, place), 0, max(expr.extent - 1, 0))
        assert isinstance(expr, RandomWord)
        seed, offset = map(self.of, expr.args)
        return self._read(expr.op.eager(np.array([seed.item(), offset.item()])).reshape(-1), expr)

    def _read(self, flat: Array, expr: Expr) -> Array:
        """Elements of a buffer; where a guard will not look, any."""
        (position,) = expr.positions
        if not flat.size:
            return np.zeros((1,) * len(self.extents), flat.dtype)
        return np.take(flat, self.index(position), mode="clip")


def _fold(op: Any, elements: Array, axis: int) -> Array:
    parameters = dict(op.parameters()) | {"axes": (axis,)}
    return np.asarray(type(op)(**parameters).eager(elements))
