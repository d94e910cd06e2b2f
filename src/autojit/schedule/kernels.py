"""Kernel descriptions: what runs, on which buffers; lowered by ``codegen`` for a target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from autojit.core.dtypes import float32, float64
from autojit.core.sizes import surely_less
from autojit.core.types import Shape
from autojit.ir.graph import Node, Value
from autojit.ir.index import Index, LoopVariable, linearize
from autojit.ops.base import Reindex
from autojit.schedule.fusion import Fuser
from autojit.schedule.loops import LoopProgram
from autojit.schedule.pull import leaves, loop_indices

if TYPE_CHECKING:
    from autojit.schedule.schedule import Schedule


@dataclass(frozen=True)
class Access:
    """A strided reading of a buffer: element ``offset + sum(stride * index)`` of ``value``'s storage."""

    value: Value
    offset: int
    strides: tuple[int, ...]  # in elements, one per axis of the value read


@dataclass(eq=False)
class LoopKernel:
    """A fusion group. Arguments: loads, stores, accumulators."""

    program: LoopProgram
    nodes: list[Node]

    def reads(self) -> list[Value]:
        return list(self.program.loads)

    def writes(self) -> list[Value]:
        return [s.value for s in self.program.stores] + [a.value for a in self.program.accumulators]


@dataclass(eq=False)
class MatmulKernel:
    """A (batched) matrix product of two strided operands into a contiguous result, added to ``init`` if given."""

    node: Node
    a: Access
    b: Access
    init: Value | None = None

    @property
    def nodes(self) -> list[Node]:
        return [self.node]

    def reads(self) -> list[Value]:
        return [self.a.value, self.b.value, *(() if self.init is None else (self.init,))]

    def writes(self) -> list[Value]:
        return [self.node.outputs[0]]

    def in_place(self) -> tuple[Value, Value] | None:
        """(a value the kernel overwrites, the result that takes its memory)."""
        return None if self.init is None else (self.init, self.node.outputs[0])


@dataclass(eq=False)
class StructuredKernel:
    """Any other op on contiguous operands: scatters, scans, opaque calls."""

    node: Node
    operands: tuple[Value, ...]  # the stored values behind the node's inputs
    clears: bool = False  # a scatter into zeros: the first operand has no storage, the result is cleared instead

    @property
    def nodes(self) -> list[Node]:
        return [self.node]

    def reads(self) -> list[Value]:
        return list(dict.fromkeys(self.operands[1:] if self.clears else self.operands))

    def writes(self) -> list[Value]:
        return list(self.node.outputs)


@dataclass(eq=False)
class CopyKernel:
    """Bytes of one buffer into another of the same size."""

    source: Value
    target: Value
    nodes: list[Node] = field(default_factory=list)

    def reads(self) -> list[Value]:
        return [self.source]

    def writes(self) -> list[Value]:
        return [self.target]


@dataclass(eq=False)
class NestedKernel:
    """A branch or loop on contiguous operands: its graphs have schedules of their own, run as often as it takes."""

    node: Node
    operands: tuple[Value, ...]  # the stored values behind the node's inputs
    schedules: tuple[Schedule, ...]

    @property
    def nodes(self) -> list[Node]:
        return [self.node]

    def reads(self) -> list[Value]:
        return list(dict.fromkeys(self.operands))

    def writes(self) -> list[Value]:
        return list(self.node.outputs)


Kernel = LoopKernel | MatmulKernel | StructuredKernel | CopyKernel | NestedKernel


MAX_BATCH_AXES = 2  # strides of the batch that a product's kernel takes


def is_gemm(node: Node) -> bool:
    """Whether the node is a matrix product with tile code of its own; other dtypes are structured ops."""
    return node.op.name in ("matmul", "matmul_add") and node.outputs[0].type.dtype in (float32, float64)


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
        if extent == 1:
            continue
        strides = tuple(access.strides[axis] for access in accesses)
        if merged and merged[-1][1] == tuple(stride * extent for stride in strides):
            merged[-1] = (merged[-1][0] * extent, strides)
        else:
            merged.append((extent, strides))
    return merged


def strided_access(value: Value, definitions: dict[Value, Node], inline: set[Value]) -> Access | None:
    """How to read ``value`` with strides (none negative) from stored memory, or None when no such strides exist."""
    index = loop_indices(value.type.shape)
    found = list(leaves(value, index, definitions, inline))
    if len(found) != 1 or _has_guards(value, definitions, inline):
        return None
    leaf, position = found[0]
    if leaf.type.dtype is not value.type.dtype:
        return None
    access = _affine(linearize(position, leaf.type.shape), index, leaf)
    return access if access is not None and all(surely_less(-1, stride) for stride in access.strides) else None


def _has_guards(value: Value, definitions: dict[Value, Node], inline: set[Value]) -> bool:
    index = loop_indices(value.type.shape)
    while value in inline:
        node = definitions[value]
        if not isinstance(node.op, Reindex):
            return True
        if node.op.valid(index, node.inputs[0].type):
            return True
        index = node.op.source_index(index, node.inputs[0].type)
        value = node.inputs[0]
    return False


def _affine(address: Index, axes: tuple[Index, ...], leaf: Value) -> Access | None:
    strides: dict[object, int] = {}
    for term, coefficient in address.terms:
        if not isinstance(term, LoopVariable):
            return None
        strides[term] = coefficient
    return Access(leaf, address.offset, tuple(strides.get(a.terms[0][0], 0) if a.terms else 0 for a in axes))


def fuser_access(fuser: Fuser, value: Value) -> Access | None:
    """``strided_access`` under a fuser's choice of inline values."""
    return strided_access(value, fuser.definitions, fuser.inline)
