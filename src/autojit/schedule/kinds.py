"""Kinds of nodes: what may become of each when kernels are formed.

- INLINE: reindexing, sources, gathers; readers follow them to the values that are stored.
- POINTWISE: an element is computed from elements of the operands at positions known before running.
- REDUCTION: folds axes, in a loop nest.
- PRODUCT: a matrix product with tile code of its own.
- SINGLE: anything else has a kernel of its own.
"""

from __future__ import annotations

from enum import Enum
from math import prod

from autojit.core.dtypes import HALVES, float32, float64
from autojit.core.machine import Machine
from autojit.core.sizes import typical
from autojit.ir.graph import Graph, Node
from autojit.ops.base import Elementwise, Reduction, Reindex, Source
from autojit.ops.elementwise_complex import Complex, Imag, Real
from autojit.ops.formula import is_lowered
from autojit.ops.indexing import Gathering
from autojit.ops.joining import Concatenate
from autojit.ops.matmul import Matmul, MatmulAdd
from autojit.ops.random import RandomBits
from autojit.ops.shape import SliceUpdate

# The passes compute with parts. Where complex numbers are in memory, elements are taken apart and put together.
_OF_PAIRS = Real, Imag, Complex, Reindex, Source, Gathering
_PRODUCTS = Matmul, MatmulAdd
# An element of these is computed from elements at positions that are known, which is all that fusion asks. They are not
# `Elementwise` because these positions are not their own.
_STITCHED = Concatenate, SliceUpdate, RandomBits
OF_HOSTS = frozenset((float32, float64))
"""What hosts of devices have tile code for, whatever the device has."""

_FOLLOWED = Reindex, Source, Gathering


class Kind(Enum):
    """See the module."""

    INLINE = "inline"
    POINTWISE = "pointwise"
    REDUCTION = "reduction"
    PRODUCT = "product"
    SINGLE = "single"

    __hash__ = object.__hash__


def kinds_of(graph: Graph, machine: Machine) -> dict[Node, Kind]:
    """The kind of every node. Time O(nodes)."""
    return {node: _kind(node, machine) for node in graph.nodes}


def product_dtypes(graph: Graph, machine: Machine) -> set[str]:
    """The short names of the dtypes for which products of the graph need tile code."""
    found = [node for node in graph.nodes if isinstance(node.op, _PRODUCTS) and _has_tiles(node, machine)]
    return {node.inputs[0].type.dtype.short for node in found}


def _has_tiles(product: Node, machine: Machine) -> bool:
    """Whether the machine multiplies these operands into this result."""
    operand, result = product.inputs[0].type.dtype, product.outputs[0].type.dtype
    if product.outputs[0].type.device.type != machine.kind:
        return operand is result and operand in OF_HOSTS
    widens = operand in machine.dot_dtypes or (operand in HALVES and operand in machine.product_dtypes)
    return result in machine.product_dtypes and (operand is result or widens)


def is_opaque(node: Node) -> bool:
    """Whether generated code cannot compute the node: complex numbers, floats of a byte, ops without a lowering."""
    for value in (*node.inputs, *node.outputs):
        kind = value.type.dtype.kind
        if kind == "float8" or (kind == "complex" and not isinstance(node.op, _OF_PAIRS)):
            return True
    return isinstance(node.op, Elementwise) and not is_lowered(type(node.op))


def _kind(node: Node, machine: Machine) -> Kind:
    op = node.op
    if isinstance(op, _PRODUCTS):
        return Kind.PRODUCT if _has_tiles(node, machine) else Kind.SINGLE
    if isinstance(op, Elementwise) and not op.has_code(machine.kind):
        return Kind.SINGLE
    is_stitched = isinstance(op, _STITCHED) and not _joins_blocks(node, machine)
    if isinstance(op, Elementwise) or is_stitched:
        found = Kind.POINTWISE
    elif isinstance(op, _FOLLOWED):
        found = Kind.INLINE
    elif isinstance(op, Reduction):
        found = Kind.REDUCTION
    else:
        return Kind.SINGLE
    return Kind.SINGLE if is_opaque(node) else found


def _joins_blocks(node: Node, machine: Machine) -> bool:
    """Whether a node joins enough blocks of memory that copying them beats asking each element which one it is in."""
    # Only along the outermost axis is each operand one block of the result. Copies are a kernel of their own, so what
    # reads the whole is not fused with it: that is given up where many long pieces are joined.
    if not isinstance(node.op, Concatenate) or len(node.inputs) < machine.many_blocks:
        return False
    whole = node.outputs[0].type
    return (
        prod(whole.shape[: node.op.axis]) == 1 and typical(whole.size_bytes) >= len(node.inputs) * machine.block_bytes
    )
