"""Kernel descriptions: what runs, on which buffers; lowered by ``codegen`` for a target."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from autojit.core.device import CPU, Device
from autojit.core.records import record
from autojit.core.sizes import surely_less
from autojit.core.types import Shape, TensorType
from autojit.ir.graph import Node, Value
from autojit.ir.index import LoopVariable, linearize
from autojit.ops.base import Reindex
from autojit.schedule.loops import LoopProgram
from autojit.schedule.pull import loop_indices

if TYPE_CHECKING:
    from autojit.schedule.schedule import Schedule


@record
class Access:
    """A strided reading of a buffer: element ``offset + sum(stride * index)`` of ``value``'s storage."""

    value: Value
    offset: int
    strides: tuple[int, ...]  # in elements, one per axis of the value read


@record(eq=False, frozen=False)
class LoopKernel:
    """A fusion group. Arguments: loads, stores, accumulators."""

    program: LoopProgram
    nodes: list[Node]

    def reads(self) -> list[Value]:
        return list(self.program.loads)

    def writes(self) -> list[Value]:
        return [s.value for s in self.program.stores] + [a.value for a in self.program.accumulators]

    def overwrite(self, output: Value, old: Value) -> None:
        """Let a stored value take the memory of one that is read."""
        places = {**self.program.in_place, output: self.program.loads.index(old)}
        self.program = replace(self.program, in_place=places)


@record(eq=False, frozen=False)
class NodeKernel:
    """A kernel of one node."""

    node: Node

    @property
    def nodes(self) -> list[Node]:
        return [self.node]

    def writes(self) -> list[Value]:
        return list(self.node.outputs)


@record(eq=False)
class Epilogue:
    """Loops over a product's elements: the program's load ``slot`` is the product, which nobody else reads.

    They are flat, or fold over all rows what there is of each column (a bias's gradient).
    """

    program: LoopProgram
    slot: int
    nodes: tuple[Node, ...]

    def reads(self) -> list[Value]:
        """What the loops read besides the product."""
        return [value for slot, value in enumerate(self.program.loads) if slot != self.slot]

    def writes(self) -> list[Value]:
        """What the loops store and fold."""
        program = self.program
        return [store.value for store in program.stores] + [total.value for total in program.accumulators]


@record(eq=False, frozen=False)
class MatmulKernel(NodeKernel):
    """A (batched) matrix product of two strided operands into a contiguous result, added to ``init`` if given.

    With an epilogue its elements stay in registers, and the kernel stores what the epilogue stores, perhaps them too.
    """

    a: Access
    b: Access
    init: Value | None = None
    epilogue: Epilogue | None = None

    @property
    def nodes(self) -> list[Node]:
        return [self.node, *(() if self.epilogue is None else self.epilogue.nodes)]

    def reads(self) -> list[Value]:
        more = () if self.epilogue is None else self.epilogue.reads()
        return [self.a.value, self.b.value, *(() if self.init is None else (self.init,)), *more]

    def writes(self) -> list[Value]:
        return super().writes() if self.epilogue is None else self.epilogue.writes()

    def in_place(self) -> tuple[Value, Value] | None:
        """(a value the kernel overwrites, the result that takes its memory)."""
        return None if self.init is None or self.epilogue else (self.init, self.node.outputs[0])


@record(eq=False, frozen=False)
class StructuredKernel(NodeKernel):
    """Any other op on contiguous operands: scatters, scans, opaque calls; convolutions, perhaps with an epilogue.

    Attention reads strided ones.
    """

    operands: tuple[Value, ...]  # the stored values that hold the node's inputs
    clears: bool = False  # a scatter into zeros: the first operand has no storage, the result is cleared instead
    epilogue: Epilogue | None = None
    accesses: tuple[Access, ...] = ()  # of attention: how it reads each operand

    @property
    def nodes(self) -> list[Node]:
        return [self.node, *(() if self.epilogue is None else self.epilogue.nodes)]

    def in_place(self) -> tuple[Value, Value] | None:
        """See `MatmulKernel.in_place`."""
        return (self.operands[0], self.node.outputs[0]) if self.node.op.may_overwrite else None

    def reads(self) -> list[Value]:
        operands = self.operands[1:] if self.clears else self.operands
        return list(dict.fromkeys((*operands, *(() if self.epilogue is None else self.epilogue.reads()))))

    def writes(self) -> list[Value]:
        return super().writes() if self.epilogue is None else self.epilogue.writes()


@record(eq=False, frozen=False)
class CopyKernel:
    """Bytes of one buffer into another of the same size."""

    source: Value
    target: Value
    nodes: list[Node] = field(default_factory=list)

    def reads(self) -> list[Value]:
        return [self.source]

    def writes(self) -> list[Value]:
        return [self.target]


@record(eq=False, frozen=False)
class NestedKernel(NodeKernel):
    """A branch or loop on contiguous operands: its graphs have schedules, which run as often as the data decide."""

    operands: tuple[Value, ...]  # the stored values that hold the node's inputs
    schedules: tuple[Schedule, ...]

    def reads(self) -> list[Value]:
        return list(dict.fromkeys(self.operands))


Kernel = LoopKernel | MatmulKernel | StructuredKernel | CopyKernel | NestedKernel


@record
class Apart:
    """Kernels that may fail, and kernels that write what outlives the step: they do not run side by side."""

    failing: frozenset[Kernel]
    committing: frozenset[Kernel]

    def separates(self, kernel: Kernel, others: Iterable[Kernel]) -> bool:
        """Whether a kernel must run after one of the others."""
        return kernel in self.committing and not self.failing.isdisjoint(others)


def device_of(kernel: Kernel) -> Device:
    """Where a kernel runs: where its results are. A copy to another device is one of that."""
    values = kernel.writes() or kernel.reads()
    return values[0].type.device if values else CPU


def contiguous_access(value: Value, shape: Shape) -> Access:
    """Storage read in row-major order as if it had ``shape``."""
    strides: list[int] = []
    below = 1
    for extent in reversed(shape):
        strides.append(below)
        below *= extent
    return Access(value, 0, tuple(reversed(strides)))


def joint_batch(accesses: Sequence[Access], shape: Shape) -> list[tuple[int, tuple[int, ...]]]:
    """The batch axes of a product as (extent, stride in each operand), outer to inner.

    Axes of extent 1 vanish, and neighbours that every operand walks as one are merged. ``shape`` is one operand's.
    """
    merged: list[tuple[int, tuple[int, ...]]] = []
    for axis, extent in enumerate(shape[:-2]):
        if extent == 1:  # its stride says nothing
            continue
        strides = tuple(access.strides[axis] for access in accesses)
        if merged and merged[-1][1] == tuple(stride * extent for stride in strides):
            merged[-1] = (merged[-1][0] * extent, strides)
        else:
            merged.append((extent, strides))
    return merged


def strided_access(value: Value, definitions: dict[Value, Node], inline: set[Value]) -> Access | None:
    """How to read ``value`` with strides (none negative) from stored memory, or None when no such strides exist."""
    chain: list[tuple[Reindex, TensorType]] = []
    leaf = value
    while leaf in inline:
        node = definitions[leaf]
        if not isinstance(node.op, Reindex):
            return None
        leaf = node.inputs[0]
        chain.append((node.op, leaf.type))
    if leaf.type.dtype is not value.type.dtype:
        return None
    found = _strides_through(value.type.shape, tuple(chain))
    return None if found is None else Access(leaf, *found)


@lru_cache(maxsize=4096)  # by form alone: layers of a model share their views (docs/design/deep_models.md)
def _strides_through(shape: Shape, chain: tuple[tuple[Reindex, TensorType], ...]) -> tuple[int, tuple[int, ...]] | None:
    """(offset, strides) in the storage that a chain of reindexing ops reads; each op comes with the type it reads."""
    axes = index = loop_indices(shape)
    stored = shape
    for op, operand in chain:
        if op.valid(index, operand):
            return None
        index = op.source_index(index, operand)
        stored = operand.shape
    address = linearize(index, stored)
    strides: dict[object, int] = {}
    for term, coefficient in address.terms:
        if not isinstance(term, LoopVariable) or not surely_less(-1, coefficient):
            return None
        strides[term] = coefficient
    return address.offset, tuple([strides.get(a.terms[0][0], 0) if a.terms else 0 for a in axes])
