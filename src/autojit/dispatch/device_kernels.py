"""Eager mode on a device whose memory only kernels reach: one compiled kernel per op, layouts of operands and device.

A kernel reads operands where they are: axes in another order, gaps and shared elements are index maps of its loops, not
copies made before. Its results are laid out as NumPy's would be (`tensor.memory_orders`). Writing into memory with gaps
rewrites what is between the first and the last element written, in one pass, because the compiler's values fill their
memory.

For which extents kernels are compiled is in `open_kernels`. `KEPT` of them are kept, and their machine code by the
object cache. Results that are as long as elements say, such as ``nonzero``'s: `counted_results`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from autojit.core.device_array import Array, DeviceArray, Space, host_copy, layout_in_memory, on_layout, share_memory
from autojit.core.dtypes import DType, bool_, int64
from autojit.core.errors import CompileError, UsageError
from autojit.core.product_precision import may_round_operands
from autojit.core.size_recorder import recording
from autojit.core.undivided_work import undivided
from autojit.dispatch.counted_results import can_count, counted
from autojit.dispatch.open_kernels import OpenKernels, OpenMemory
from autojit.dispatch.operand_memory import (
    Axes,
    Memory,
    base_of,
    hinted_memory,
    is_packed,
    memory_of,
    span,
    stand_in,
    view_of,
)
from autojit.ir.builder import GraphBuilder, Tracer
from autojit.ir.concrete import concrete, is_open
from autojit.ir.op import Op, bind
from autojit.ops.base import Elementwise
from autojit.ops.data_dependent import Bincount
from autojit.ops.elementwise_arithmetic import Cast, add, cast, where
from autojit.ops.loop_orders import in_order_of
from autojit.ops.scattering import IndexUpdate
from autojit.ops.shape import broadcast_to, pad, permute, reshape, slice_axis
from autojit.ops.sources import Full
from autojit.ops.views import ViewUpdate
from autojit.runtime.gate import Reentered
from autojit.tensor.memory_orders import order_of, outermost_first, places_of, result_order
from autojit.tensor.tensor import array_type

if TYPE_CHECKING:
    from autojit.ir.graph import Graph
    from autojit.runtime.executable import Executable

KEPT = 1024
"""Kernels of one kind (ops, writes, sums) that a process keeps: some 50 KB each, a few programs' worth."""


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

    def run(self, operands: Sequence[Any], results: Sequence[Any], opened: OpenMemory | None = None) -> None:
        """Compute into memory that fits."""
        self.run_at(operands, results, self.sizes(opened))

    def sizes(self, opened: OpenMemory | None) -> Sequence[int]:
        """The values of its open sizes."""
        return () if opened is None else [opened.values[name] for name in self.executable.symbols]

    def run_at(self, operands: Sequence[Any], results: Sequence[Any], sizes: Sequence[int]) -> None:
        """Compute with the addresses of arrays."""
        try:
            self.executable.run_with(operands, results, sizes)
        except Reentered:  # a signal handler or finaliser in the middle of another call of the kernel
            _compiled(self.graph).run_with(operands, results, sizes)

    def made(self, opened: OpenMemory | None) -> list[tuple[tuple[int, ...], Axes | None]]:
        """Shapes of the results in the order of their memory, and where their axes go from there."""
        if opened is None:
            return [(result.shape, result.places) for result in self.results]
        if opened.packed is not None:
            places = None if opened.axes is None else places_of(opened.axes)
            return [(opened.packed, places)] * len(self.results)
        return [(concrete(result.shape, opened.values), result.places) for result in self.results]


class Call(NamedTuple):
    """A call of a kernel whose operands are laid out as those of one before: all that is known of it.

    Args:
        sizes: the values of the kernel's open sizes.
        made: shape in the order of memory, dtype and places of the axes of each result.
        computes: whether there is anything to compute.
    """

    kernel: Kernel
    sizes: Sequence[int]
    made: Sequence[tuple[tuple[int, ...], Any, Axes | None]]
    computes: bool

    def run(self, space: Space, arrays: Sequence[Any]) -> list[DeviceArray]:
        """The results; operands begin where their first elements are."""
        made = [space.allocate(shape, dtype) for shape, dtype, _ in self.made]
        if self.computes:
            self.kernel.run_at(arrays, made, self.sizes)
        return [
            array if places is None else array.transpose(places)
            for array, (_, _, places) in zip(made, self.made, strict=True)
        ]


class DeviceKernels:
    """The kernels of eager mode in one space, and what is computed by them.

    Args:
        space: where the arrays are; it keeps this object.
    """

    def __init__(self, space: Space) -> None:
        self._space = space
        self._of_op = OpenKernels(lambda what, memories: _op_kernel(what[0], memories), KEPT)
        self._of_count = lru_cache(KEPT)(_count_kernel)
        self._of_write = OpenKernels(lambda _, memories: _write_kernel(*memories), KEPT)
        self._of_sum = OpenKernels(lambda _, memories: _sum_kernel(*memories), KEPT)
        self._calls: dict[Any, Call] = {}  # what was called before, by the layouts of the operands

    def compute(self, op: Op, arrays: Sequence[Array]) -> list[DeviceArray]:
        """The results of an op on arrays in the space, and numbers (arrays of rank 0) on the host."""
        key = _key_of(op, arrays)
        known = None if key is None else self._calls.get(key)
        return self._computed(op, arrays, key) if known is None else known.run(self._space, arrays)

    def _computed(self, op: Op, arrays: Sequence[Array], key: Any) -> list[DeviceArray]:
        """The same of operands that are met for the first time; ``key``: of what is known then, if it may be kept."""
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
        opened: OpenMemory | None = None
        if _has_hash(op):
            # those that are compiled under other precisions of products are others
            what, is_elementwise = (op, may_round_operands()), isinstance(op, Elementwise)
            kernel, opened = self._of_op.find(what, memories, is_elementwise=is_elementwise, is_fixed=op.fixes_sizes)
        else:
            kernel = _op_kernel(op, memories)
        results = zip(kernel.made(opened), kernel.results, strict=True)
        made = [(shape, result.dtype.numpy, places) for (shape, places), result in results]
        computes = any(map(prod, (shape for shape, _, _ in made))) or op.may_fail(*[m.type for m in memories])
        call = Call(kernel, kernel.sizes(opened), made, computes)
        if key is not None:
            if len(self._calls) >= KEPT:
                self._calls.clear()
            self._calls[key] = call
        return call.run(self._space, [base_of(array, memory) for array, memory in zip(arrays, memories, strict=True)])

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
        kernel, opened = self._of_write.find(None, (into, read), is_elementwise=True, is_fixed=False)
        kernel.run([base, operand] if opened is not None or into.steps is not None else [operand], [base], opened)

    def add(self, total: DeviceArray, part: DeviceArray) -> None:
        """Add an array to another of its shape and dtype, in the memory of that."""
        if not total.size:
            return
        if share_memory(total, part):
            part = part.copy("K")
        into, read = memory_of(total), memory_of(part)
        base = base_of(total, into)
        kernel, opened = self._of_sum.find(None, (into, read), is_elementwise=True, is_fixed=False)
        kernel.run([base, base_of(part, read)], [base], opened)

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


def _key_of(op: Op, arrays: Sequence[Array]) -> Any:
    """What a call of an op is known by: the layouts of its operands; None: they do not say where the memory begins."""
    key: list[Any] = [op, may_round_operands()]
    for array in arrays:
        layout = array.layout if type(array) is DeviceArray else array
        strides = layout.strides
        if strides and min(strides) < 0:
            return None
        key.append((type(array), layout.shape, strides, layout.dtype))
    found = tuple(key)
    try:
        hash(found)
    except TypeError:
        return None
    return found


def _has_hash(op: Op) -> bool:
    try:
        hash(op)
    except TypeError:
        return False
    return True


# -- graphs


def _op_kernel(op: Op, memories: tuple[Memory, ...]) -> Kernel:
    builder = GraphBuilder()
    operands = [_shown(builder, memory) for memory in memories]
    values = builder.apply(op, [operand.value for operand in operands])
    layouts = [None if m.axes is None and m.steps is None else stand_in(hinted_memory(m)) for m in memories]
    results, outputs = [], []
    for value in values:
        layout = None  # views that strides do not allow are fresh, in row-major order
        if not op.is_view:
            layout = result_order(op, layouts, [memory.type for memory in memories], value.type)
        axes: Axes | None = None if layout is None else order_of(layout)
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
    """The target's memory and the source -> that memory with the source's elements in it.

    Only where the memory has gaps are elements of it read; it says how large it is where extents are open, and is no
    operand where neither is so.
    """
    builder = GraphBuilder()
    is_operand = into.steps is not None or is_open((*into.type.shape, *read.type.shape))
    base = _memory(builder, into) if is_operand else None
    piece = broadcast_to(cast(_shown(builder, read), into.type.dtype), into.type.shape)
    if into.steps is None:
        return _kernel(builder, [piece if into.axes is None else permute(piece, into.axes)], in_place=is_operand)
    assert base is not None
    return _kernel(builder, [_overwritten(base, piece, into)], in_place=True)


def _sum_kernel(into: Memory, read: Memory) -> Kernel:
    """The total's memory and the addend -> that memory with the sum in it."""
    builder = GraphBuilder()
    if into.steps is not None:
        base = builder.tracer(builder.input(into.type.with_shape((span(into),))))
        total = bind(view_of(into), base)
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
    whole = _memory(builder, memory)
    if memory.steps is not None:
        return bind(view_of(memory), whole)
    return whole if memory.axes is None else permute(whole, places_of(memory.axes))


def _memory(builder: GraphBuilder, memory: Memory) -> Tracer:
    """The memory of an operand as it is: axes from the outermost on, or a line where there are gaps."""
    if memory.steps is not None:
        shape: tuple[int, ...] = (span(memory),)
    else:
        shape = memory.type.shape if memory.axes is None else tuple([memory.type.shape[k] for k in memory.axes])
    return builder.tracer(builder.input(memory.type.with_shape(shape)))


def _overwritten(base: Tracer, piece: Tracer, into: Memory) -> Tracer:
    """A line of memory in which the elements of a piece are at the places of a layout with gaps."""
    steps = into.steps
    assert steps is not None
    axes = [axis for axis in outermost_first(stand_in(into)) if into.type.shape[axis] != 1]
    if not _is_nested([into.type.shape[axis] for axis in axes], [steps[axis] for axis in axes]):
        return bind(ViewUpdate((view_of(into),)), base, piece)
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
