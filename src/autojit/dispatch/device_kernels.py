"""Eager mode on a device whose memory only kernels reach: one compiled kernel per op, layouts of operands and device.

A kernel reads operands where they are: axes in another order, gaps and shared elements are index maps of its loops, not
copies made before. Its results are laid out as NumPy's would be (`tensor.memory_orders`). Writing into memory with gaps
rewrites what is between the first and the last element written, in one pass, because the compiler's values fill their
memory.

Kernels are for the extents at hand: a device's graphs have fixed sizes so far. `KEPT` of them are kept, and their
machine code by the object cache. Results that are as long as elements say, such as ``nonzero``'s: `counted_results`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from autojit.core.device_array import Array, DeviceArray, Space, host_copy, layout_in_memory, on_layout, share_memory
from autojit.core.dtypes import DType, bool_, int64
from autojit.core.errors import CompileError, UsageError
from autojit.core.product_precision import may_round_operands
from autojit.core.size_recorder import recording
from autojit.core.types import TensorType
from autojit.core.undivided_work import undivided
from autojit.dispatch.counted_results import can_count, counted
from autojit.ir.builder import GraphBuilder, Tracer
from autojit.ir.op import Op, bind
from autojit.ops.data_dependent import Bincount
from autojit.ops.elementwise_arithmetic import Cast, add, cast, where
from autojit.ops.loop_orders import in_order_of
from autojit.ops.reinterpret import AsStrided
from autojit.ops.scattering import IndexUpdate
from autojit.ops.shape import broadcast_to, pad, permute, reshape, slice_axis
from autojit.ops.sources import Full
from autojit.ops.views import ViewUpdate
from autojit.runtime.gate import Reentered
from autojit.tensor.memory_orders import order_of, outermost_first, places_of, result_order
from autojit.tensor.tensor import array_type

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from autojit.ir.graph import Graph
    from autojit.runtime.executable import Executable

KEPT = 1024
"""Kernels of one kind (ops, writes, sums) that a process keeps: some 50 KB each, a few programs' worth."""

Axes = tuple[int, ...]


class Memory(NamedTuple):
    """How the elements of an operand are in memory: what a kernel is compiled for.

    Args:
        axes: from the outermost in memory to the innermost, where they fill it in another order than row-major.
        steps: of each axis, in elements, where there are gaps between elements or some are shared.
    """

    type: TensorType
    axes: Axes | None = None
    steps: tuple[int, ...] | None = None


class Result(NamedTuple):
    """A result of a kernel: its shape in the order of its memory, its dtype, and where its axes go from there."""

    shape: tuple[int, ...]
    dtype: DType
    places: Axes | None


class Kernel(NamedTuple):
    """A compiled op."""

    executable: Executable
    graph: Graph
    results: tuple[Result, ...] = ()

    def run(self, operands: Sequence[Any], results: Sequence[Any]) -> None:
        """Compute into memory that fits."""
        try:
            self.executable.run_with(operands, results)
        except Reentered:  # a signal handler or finaliser in the middle of another call of the kernel
            _compiled(self.graph).run_with(operands, results)


class DeviceKernels:
    """The kernels of eager mode in one space, and what is computed by them.

    Args:
        space: where the arrays are; it keeps this object.
    """

    def __init__(self, space: Space) -> None:
        self._space = space
        self._of_op = lru_cache(KEPT)(_op_kernel)
        self._of_count = lru_cache(KEPT)(_count_kernel)
        self._of_write = lru_cache(KEPT)(_write_kernel)
        self._of_sum = lru_cache(KEPT)(_sum_kernel)

    def compute(self, op: Op, arrays: Sequence[Array]) -> list[DeviceArray]:
        """The results of an op on arrays in the space, and numbers (arrays of rank 0) on the host."""
        if type(op) is Full:
            return [self._filled(op)]
        if type(op) is Cast and op.dtype is array_type(arrays[0]).dtype:
            return [self._copied(arrays[0])]
        if op.needs_elements:
            if can_count(op, [array_type(array) for array in arrays]):
                return self._counted(op, arrays[0])
            with np.errstate(all="ignore"):  # who observes the thread is told by the caller
                found = op.eager(*map(host_copy, arrays))
            return [self._space.copied_in(np.asarray(one)) for one in (found if op.n_outputs != 1 else [found])]
        memories = tuple([memory_of(array) for array in arrays])
        kernel = self._of_op(op, memories, may_round_operands()) if _has_hash(op) else _op_kernel(op, memories)
        made = [self._space.allocate(result.shape, result.dtype.numpy) for result in kernel.results]
        if any(array.size for array in made) or op.may_fail(*[memory.type for memory in memories]):
            kernel.run([base_of(array, memory) for array, memory in zip(arrays, memories, strict=True)], made)
        return [
            array if result.places is None else array.transpose(result.places)
            for array, result in zip(made, kernel.results, strict=True)
        ]

    def _counted(self, op: Op, array: Array) -> list[DeviceArray]:
        """The results of an op that are as long as the elements say: when they are made, their length is read."""
        memory = memory_of(array)
        kernel, axes = self._of_count(op, memory)
        *made, length = [self._space.allocate(result.shape, result.dtype.numpy) for result in kernel.results]
        kernel.run([base_of(array, memory)], [*made, length])
        number = int(host_copy(length))
        if isinstance(op, Bincount):
            return [self._counts(array, number)]
        return [one if axis is None else _first(one, number, axis) for one, axis in zip(made, axes, strict=True)]

    def _counts(self, array: Array, length: int) -> DeviceArray:
        """How often numbers below a length occur; a negative one: some are negative."""
        if length < 0:
            raise UsageError("bincount only supports 1-d non-negative integral inputs.")
        (places,) = self.compute(Cast(int64), [array])
        none, ones = (self._filled(Full(n, int64, shape)) for shape, n in (((length,), 0), (places.shape, 1)))
        (found,) = self.compute(IndexUpdate(0, "add"), [none, ones, places])
        return found

    def write(self, target: DeviceArray, source: Array) -> None:
        """Replace the elements of an array by those of another, here or on the host, broadcast and converted."""
        if not target.size:
            return
        if type(source) is not DeviceArray:
            source = self._space.copied_in(source)
        elif share_memory(target, source):
            source = source.copy("K")
        into, read = memory_of(target), memory_of(source)
        base, operand = base_of(target, into), base_of(source, read)
        self._of_write(into, read).run([operand] if into.steps is None else [base, operand], [base])

    def add(self, total: DeviceArray, part: DeviceArray) -> None:
        """Add an array to another of its shape and dtype, in the memory of that."""
        if not total.size:
            return
        if share_memory(total, part):
            part = part.copy("K")
        into, read = memory_of(total), memory_of(part)
        base = base_of(total, into)
        self._of_sum(into, read).run([base, base_of(part, read)], [base])

    def _copied(self, array: Array) -> DeviceArray:
        """A copy laid out as a loop's result; it needs no kernel where the elements fill their memory."""
        layout = layout_in_memory(array)
        order = order_of(in_order_of([layout], layout.dtype))
        made: DeviceArray = self._space.allocate(layout.shape, layout.dtype, order)
        self._space.write(made, array)
        return made

    def _filled(self, op: Full) -> DeviceArray:
        """One number for all elements: an operand of the kernel, so that all numbers have the same."""
        made: DeviceArray = self._space.allocate(op.shape, op.dtype.numpy)
        self._space.write(made, np.full((), op.value, op.dtype.numpy))
        return made


def are_alike(target: DeviceArray, source: Array) -> bool:
    """Whether the bytes of an array are those that a target will have, so that writing copies them as they are.

    A space's ``write`` does that itself: what a kernel cannot compute is called back, and written by a copy.
    """
    if source.dtype != target.dtype or source.shape != target.shape or not is_packed(target.layout):
        return False
    return order_of(layout_in_memory(source)) == order_of(target.layout)


def is_packed(layout: NDArray[Any]) -> bool:
    """Whether elements fill their memory without gaps, in any order of the axes."""
    order = order_of(layout)
    return order is None or order[:1] != ("strides",)


def memory_of(array: Array) -> Memory:
    """How the elements of an array are in memory."""
    layout, kind = layout_in_memory(array), array_type(array)
    order = order_of(layout)
    if order is None:
        return Memory(kind)
    if order[:1] != ("strides",):
        return Memory(kind, axes=order)
    if any(step % layout.itemsize for step in layout.strides):
        raise UsageError(
            "the elements of the tensor are not at multiples of their size",
            {"tensor": kind, "strides in bytes": layout.strides},
            "take the view of a contiguous tensor",
        )
    return Memory(kind, steps=tuple([step // layout.itemsize for step in layout.strides]))


def base_of(array: Array, memory: Memory) -> Any:
    """The memory of an array as a kernel takes it: axes by falling strides; with gaps, all from first to last."""
    if memory.axes is not None:
        return array.transpose(memory.axes)
    if memory.steps is None:
        return array
    layout = layout_in_memory(array)
    lowest = layout[tuple([slice(None, None, -1 if step < 0 else 1) for step in layout.strides])]
    return on_layout(array, as_strided(lowest, (_span(memory),), (layout.itemsize,)))


def _span(memory: Memory) -> int:
    assert memory.steps is not None
    return 1 + sum((n - 1) * abs(step) for n, step in zip(memory.type.shape, memory.steps, strict=True))


def _has_hash(op: Op) -> bool:
    try:
        hash(op)
    except TypeError:
        return False
    return True


# -- graphs


def _op_kernel(op: Op, memories: tuple[Memory, ...], may_round: bool = False) -> Kernel:
    """The kernel of an op. ``may_round`` tells those apart that are compiled under other precisions of products."""
    builder = GraphBuilder()
    operands = [_shown(builder, memory) for memory in memories]
    values = builder.apply(op, [operand.value for operand in operands])
    layouts = [None if m.axes is None and m.steps is None else _stand_in(m) for m in memories]
    results, outputs = [], []
    for value in values:
        stand_in = None  # views that strides do not allow are fresh, in row-major order
        if not op.is_view:
            stand_in = result_order(op, layouts, [memory.type for memory in memories], value.type)
        axes: Axes | None = None if stand_in is None else order_of(stand_in)
        found = builder.tracer(value)
        if axes is not None:
            found = permute(found, axes)
        outputs.append(found)
        results.append(Result(found.spec.shape, found.spec.dtype, None if axes is None else places_of(axes)))
    return _kernel(builder, outputs, results=tuple(results))


def _count_kernel(op: Op, memory: Memory) -> tuple[Kernel, tuple[int | None, ...]]:
    """Room for the longest results of an op, filled, with the number that says how much of it there is."""
    builder = GraphBuilder()
    found = counted(op, _shown(builder, memory))
    outputs = [*found.results, found.number]
    results = tuple([Result(output.spec.shape, output.spec.dtype, None) for output in outputs])
    return _kernel(builder, outputs, results), found.axes


def _first(array: DeviceArray, count: int, axis: int) -> DeviceArray:
    """A copy of so much of the first axis, which belongs at another place."""
    found = on_layout(array, array.layout[:count]).copy()
    order = [*range(1, axis + 1), 0, *range(axis + 1, found.ndim)]
    moved: DeviceArray = found.transpose(order)
    return moved


def _write_kernel(into: Memory, read: Memory) -> Kernel:
    """The target's memory, if it has gaps, and the source -> that memory with the source's elements in it."""
    builder = GraphBuilder()
    base = None if into.steps is None else builder.tracer(builder.input(into.type.with_shape((_span(into),))))
    piece = broadcast_to(cast(_shown(builder, read), into.type.dtype), into.type.shape)
    if base is None:
        return _kernel(builder, [piece if into.axes is None else permute(piece, into.axes)])
    return _kernel(builder, [_overwritten(base, piece, into)], in_place=True)


def _sum_kernel(into: Memory, read: Memory) -> Kernel:
    """The total's memory and the addend -> that memory with the sum in it."""
    builder = GraphBuilder()
    if into.steps is not None:
        base = builder.tracer(builder.input(into.type.with_shape((_span(into),))))
        total = bind(_view_of(into), base)
        return _kernel(builder, [_overwritten(base, add(total, _shown(builder, read)), into)], in_place=True)
    total = _shown(builder, into)
    found = add(total, _shown(builder, read))
    return _kernel(builder, [found if into.axes is None else permute(found, into.axes)], in_place=True)


def _kernel(
    builder: GraphBuilder, outputs: Sequence[Tracer], results: tuple[Result, ...] = (), in_place: bool = False
) -> Kernel:
    """``in_place``: the result takes the memory of the first operand."""
    graph = builder.finish([output.value for output in outputs])
    return Kernel(_compiled(graph, in_place), graph, results)


def _compiled(graph: Graph, in_place: bool = False) -> Executable:
    with undivided:
        from autojit.compiler import compile  # the compiler is loaded when a kernel is first needed

    with recording(None):  # a capture in progress has nothing to do with this graph
        found = compile(graph, donated={0: 0} if in_place else None)
    for wanted, made in zip(graph.outputs, found.graph.outputs, strict=True):
        if wanted.type.device != made.type.device:  # a composite that computes with numbers of the CPU alone
            raise CompileError(f"a result is made on {made.type.device}, not on {wanted.type.device}", {"graph": graph})
    return found.executable


def _shown(builder: GraphBuilder, memory: Memory) -> Tracer:
    """An operand of a graph, as the op sees it, from the memory that it is in."""
    if memory.steps is not None:
        return bind(_view_of(memory), builder.tracer(builder.input(memory.type.with_shape((_span(memory),)))))
    if memory.axes is None:
        return builder.tracer(builder.input(memory.type))
    packed = memory.type.with_shape(tuple([memory.type.shape[axis] for axis in memory.axes]))
    return permute(builder.tracer(builder.input(packed)), places_of(memory.axes))


def _view_of(memory: Memory) -> AsStrided:
    steps = memory.steps
    assert steps is not None
    lowest = sum((n - 1) * step for n, step in zip(memory.type.shape, steps, strict=True) if step < 0)
    return AsStrided(memory.type.shape, steps, -lowest, _span(memory))


def _stand_in(memory: Memory) -> NDArray[Any]:
    """An array of the same layout that nobody reads."""
    size, shape = memory.type.dtype.size_bytes, memory.type.shape
    if memory.axes is not None:
        packed = np.empty([shape[axis] for axis in memory.axes], memory.type.dtype.numpy)
        return packed.transpose(places_of(memory.axes))
    flat = np.empty(_span(memory), memory.type.dtype.numpy)
    view = _view_of(memory)
    return as_strided(flat[view.offset :], shape, [step * size for step in view.strides])


def _overwritten(base: Tracer, piece: Tracer, into: Memory) -> Tracer:
    """A line of memory in which the elements of a piece are at the places of a layout with gaps."""
    steps = into.steps
    assert steps is not None
    axes = [axis for axis in outermost_first(_stand_in(into)) if into.type.shape[axis] != 1]
    if not _is_nested([into.type.shape[axis] for axis in axes], [steps[axis] for axis in axes]):
        return bind(ViewUpdate((_view_of(into),)), base, piece)
    others = [axis for axis in range(piece.spec.ndim) if axis not in axes]
    packed = reshape(permute(piece, [*axes, *others]), [into.type.shape[axis] for axis in axes])
    covered = packed._literal(True, packed.spec.with_dtype(bool_))
    outer = [steps[axis] for axis in axes]
    return where(_line(covered, outer), _line(packed, outer), base)


def _is_nested(shape: Sequence[int], steps: Sequence[int]) -> bool:
    """Whether every axis, outermost first, steps over all that the axes inside reach."""
    reached = 1
    for n, step in zip(reversed(shape), reversed(steps), strict=True):
        if step < reached:
            return False
        reached += (n - 1) * step
    return True


def _line(piece: Tracer, steps: Sequence[int]) -> Tracer:
    """The elements of an array at the places of these steps, and zeros between."""
    line = reshape(piece, (*piece.spec.shape, 1))
    for step in reversed(steps):
        *outer, n, reached = line.spec.shape
        spread = pad(line, [0] * line.spec.ndim, [0] * (line.spec.ndim - 1) + [step - reached])
        line = slice_axis(reshape(spread, (*outer, n * step)), -1, 0, (n - 1) * step + reached)
    return line
