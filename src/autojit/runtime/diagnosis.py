"""What a failed step failed on: the value, found by the reference; or the op whose result found no memory.

A kernel that meets a bad index says only which node it was; to note the value and its position would cost every call.
A step that fails changes nothing, so its inputs are still as they were when the error is raised. The op that failed,
and only what its operands depend on, is then evaluated by the ops' eager rules, which find the same fault and name it.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from autojit.core.errors import AutojitError, OutOfMemoryError, out_of_memory_in_step
from autojit.ir.concrete import concrete
from autojit.ir.graph import Node, Value
from autojit.ir.interpreter import evaluate

if TYPE_CHECKING:
    from autojit.codegen.cpu.lowered import LoweredStep
    from autojit.core.types import TensorType

LARGEST_SLICE = 1 << 26
"""Elements that are computed again at most, some seconds of NumPy; a larger step's error does without the value."""


class Diagnosis:
    """Finds the error of a step's node in words of the reference.

    Args:
        lowered: the step.
        table: the words that hold the addresses of its inputs, in order.
        sizes: gives the values of its open sizes.
        fixed: gives the addresses of inputs that are not in the table: state, and what earlier segments have computed.
    """

    def __init__(
        self,
        lowered: LoweredStep,
        table: Any,
        sizes: Callable[[], Mapping[str, int]],
        fixed: Callable[[], Mapping[Value, int]],
    ) -> None:
        self._lowered = lowered
        self._table = table
        self._sizes = sizes
        self._fixed = fixed

    def out_of_memory(self, error: MemoryError, output: Value | None = None) -> OutOfMemoryError:
        """The error for memory that was not there: for an output, or for what the step keeps in between."""
        return out_of_memory(self._lowered, error, self._sizes(), output)

    def error_of(self, failed: Node) -> AutojitError | None:
        """What the reference says of a node that has failed; None where it cannot be asked, or finds no fault."""
        graph = self._lowered.schedule.graph
        node = _outermost(self._lowered, failed)
        if node is None:
            return None
        needed = _needed(node, graph.nodes)
        if any(n.op.has_effect for n in needed):
            return None  # a user's own op would run twice
        values = dict(self._sizes())
        if _elements(needed, values) > LARGEST_SLICE:
            return None
        fixed = self._fixed()
        addresses = [fixed.get(v) or self._table[k] or 0 for k, v in enumerate(graph.inputs)]
        pairs = zip(addresses, graph.inputs, strict=True)
        inputs = [array_at(address, concrete(v.type, values)) for address, v in pairs]
        try:
            evaluate(replace(graph, nodes=tuple(needed), outputs=node.outputs), inputs)
        except AutojitError as error:
            return error
        return None


def out_of_memory(
    lowered: LoweredStep, error: MemoryError, sizes: Mapping[str, int], output: Value | None = None
) -> OutOfMemoryError:
    """The error that names an op and its line: the one that makes ``output``, or the largest of all results."""
    if isinstance(error, OutOfMemoryError):
        return error
    largest: tuple[int, Node, Any] | None = None
    for node in lowered.schedule.graph.nodes:
        for value in node.outputs:
            kind = concrete(value.type, sizes)
            size_bytes = kind.size_bytes if type(kind.size_bytes) is int else 0
            is_larger = not node.op.is_view and (largest is None or size_bytes > largest[0])
            if value is output or (output is None and is_larger):
                largest = size_bytes, node, kind
    if largest is None:
        return OutOfMemoryError(f"a compiled step: {error}")
    _, node, kind = largest
    return out_of_memory_in_step(error, node.source, node.op.name, kind)


def _elements(nodes: Sequence[Node], sizes: Mapping[str, int]) -> float:
    found = [concrete(v.type.size, sizes) for n in nodes for v in (*n.inputs, *n.outputs)]
    return math.inf if any(type(n) is not int for n in found) else sum(found)


def _needed(node: Node, nodes: Sequence[Node]) -> list[Node]:
    """A node and what its operands depend on, in order."""
    wanted: set[Value] = set(node.inputs)
    found = [node]
    for other in reversed(nodes):
        if other is not node and not wanted.isdisjoint(other.outputs):
            found.append(other)
            wanted.update(other.inputs)
    return found[::-1]


def _outermost(lowered: LoweredStep, failed: Node) -> Node | None:
    """The node of the step's own graph that a node is, or is inside of."""
    if any(node is failed for node in lowered.schedule.graph.nodes):
        return failed
    for entry, nodes in zip(lowered.entries, lowered.origins, strict=False):
        plans = [p for p in replace(lowered, entries=(entry,)).plans_inside() if _outermost(p, failed) is not None]
        if plans and len(nodes) == 1:
            return nodes[0]
    return None


def array_at(address: int, type: TensorType) -> Any:
    """The array of a type whose elements are at an address."""
    if type.size == 0:
        return np.empty(type.shape, type.dtype.numpy)
    raw: Any = (ctypes.c_char * type.size_bytes).from_address(address)
    return np.frombuffer(raw, type.dtype.numpy).reshape(type.shape)
