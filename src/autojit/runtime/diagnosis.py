"""What a failed step failed on: the value, found by the reference; or the op whose result found no memory.

A kernel that meets a bad index says only which node it was; to note the value and its position would cost every call.
A step that fails changes nothing, so its inputs are still as they were when the error is raised. The op that failed,
and only what its operands depend on, is then evaluated by the ops' eager rules, which find the same fault and name it.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import numpy as np

from autojit.core.device import CPU, space_at
from autojit.core.device_array import host_copy
from autojit.core.errors import AutojitError, OutOfMemoryError, out_of_memory_in_step
from autojit.core.sizes import surely_equal
from autojit.ir.concrete import concrete, symbols_of
from autojit.ir.graph import Graph, Node, Value
from autojit.ir.interpreter import evaluate
from autojit.ops.base import Elementwise
from autojit.ops.counted_positions import Counting, Extent
from autojit.ops.shape import Reshape
from autojit.schedule.kernels import NestedKernel

if TYPE_CHECKING:
    from autojit.codegen.lowered import LoweredStep
    from autojit.core.types import TensorType
    from autojit.schedule.schedule import Schedule

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

    def out_of_memory(
        self, error: MemoryError, output: Value | None = None, shape: tuple[int, ...] = ()
    ) -> OutOfMemoryError:
        """The error for memory that was not there: for an output of a shape, or for what the step keeps in between."""
        return out_of_memory(self._lowered, error, self._sizes(), output, shape)

    def error_of(self, failed: Node) -> tuple[Exception, Node] | None:
        """What the reference says of the first node that fails where one has failed, and that node.

        Native code runs checks in an order of its own; in eager mode the first one of the program is the error. None
        where the reference cannot be asked, or finds no fault.
        """
        graph = self._lowered.schedule.graph
        node = _outermost(self._lowered.schedule, failed)
        if node is None:
            return None
        values = dict(self._sizes())
        earlier = list(takewhile(lambda n: n is not node, graph.nodes))
        needed = _needed([*(n for n in earlier if n.is_asked and not n.op.has_effect), node], graph.nodes)
        if not _can_run(needed, values):
            earlier, needed = [], _needed([node], graph.nodes)
            if not _can_run(needed, values):
                return None
        fixed = self._fixed()
        addresses = [fixed.get(v) or self._table[k] or 0 for k, v in enumerate(graph.inputs)]
        pairs = zip(addresses, graph.inputs, strict=True)
        inputs = [host_copy(array_at(address, concrete(v.type, values))) for address, v in pairs]
        found = _first_error(graph, needed, inputs)
        if found is not None and isinstance(found[0], AutojitError) and found[1].op.looks_up:
            shape = concrete(_as_given(found[1], graph).type, values).shape
            return found[0].of_shape(shape), found[1]
        return found


def _as_given(failed: Node, graph: Graph) -> Value:
    """The index of a look-up as its function got it, which may have laid its elements in one row."""
    place = failed.op.look_ups(*[v.type for v in failed.inputs])[0][0]
    definitions, index = graph.definitions(), failed.inputs[place]
    while index in definitions:
        node = definitions[index]
        if not isinstance(node.op, Reshape | Elementwise) or not node.source.is_call_of(failed.source):
            break
        before = max(node.inputs, key=lambda v: v.type.ndim)
        if not surely_equal(before.type.size, index.type.size):
            break
        index = before
    return index


def out_of_memory(
    lowered: LoweredStep,
    error: MemoryError,
    sizes: Mapping[str, int],
    output: Value | None = None,
    shape: tuple[int, ...] = (),
) -> OutOfMemoryError:
    """The error that names an op and its line: the one that makes ``output``, or the largest of all results."""
    if isinstance(error, OutOfMemoryError):
        return error
    largest: tuple[int, Node, Any] | None = None
    for node in lowered.schedule.graph.nodes:
        for value in node.outputs:
            kind = value.type.with_shape(shape) if value is output else concrete(value.type, sizes)
            size_bytes = kind.size_bytes if type(kind.size_bytes) is int else 0
            is_larger = not node.op.is_view and (largest is None or size_bytes > largest[0])
            if value is output or (output is None and is_larger):
                largest = size_bytes, node, kind
    if largest is None:
        return OutOfMemoryError(f"a compiled step: {error}")
    _, node, kind = largest
    return out_of_memory_in_step(error, node.source, node.op.name, kind)


def _elements(nodes: Sequence[Node], sizes: Mapping[str, int]) -> float:
    values = (v for n in nodes for v in (n.inputs if isinstance(n.op, Extent) else (*n.inputs, *n.outputs)))
    found = [concrete(v.type.size, sizes) for v in values]  # an extent has no elements, and is not known if it failed
    return math.inf if any(type(n) is not int for n in found) else sum(found)


def _can_run(nodes: Sequence[Node], sizes: Mapping[str, int]) -> bool:
    """Whether nodes may be computed again: a user's own op would run twice, and a large step take long."""
    return (
        not any((n.op.has_effect or n.op.calls_out) and not isinstance(n.op, Extent) for n in nodes)
        and _elements(nodes, sizes) <= LARGEST_SLICE
    )


def _needed(chosen: Sequence[Node], nodes: Sequence[Node]) -> list[Node]:
    """Nodes and what their operands depend on, in order; with what counts sizes that they are of."""
    roots = set(chosen)
    wanted: set[Value] = set()
    sizes: set[str] = set()
    found: list[Node] = []
    for node in reversed(nodes):
        counts = isinstance(node.op, Counting) and not sizes.isdisjoint(symbols_of(node.op.count))
        if counts or node in roots or not wanted.isdisjoint(node.outputs):
            found.append(node)
            wanted.update(node.inputs)
            sizes.update(symbols_of(node.op))
    return found[::-1]


def _first_error(graph: Graph, nodes: Sequence[Node], inputs: Sequence[Any]) -> tuple[Exception, Node] | None:
    """The first error of nodes that are computed one by one, and whose it is."""
    known = dict(zip(graph.inputs, inputs, strict=True))
    telling = list(graph.inputs)  # by their shapes: what the sizes are
    for node in nodes:
        given = tuple(dict.fromkeys((*telling, *node.inputs)))
        telling += node.outputs if isinstance(node.op, Counting) else ()
        try:
            results = evaluate(Graph(given, (node,), node.outputs), [known[v] for v in given])
            known.update(zip(node.outputs, results, strict=True))
        except AutojitError as error:
            return error, node
        except Exception as error:
            return (error, node) if node.op.may_refuse(*[v.type for v in node.inputs]) else None
    return None


def _outermost(schedule: Schedule, failed: Node) -> Node | None:
    """The node of a step's own graph that a node is, or is inside of."""
    if any(node is failed for node in schedule.graph.nodes):
        return failed
    loops = (kernel for kernel in schedule.kernels if isinstance(kernel, NestedKernel))
    return next((k.node for k in loops if any(_outermost(s, failed) is not None for s in k.schedules)), None)


def array_at(address: int, type: TensorType) -> Any:
    """The array of a type whose elements are at an address of its device."""
    layout = np.empty(type.shape, type.dtype.numpy)
    if type.size:
        raw: Any = (ctypes.c_char * type.size_bytes).from_address(address)
        layout = np.frombuffer(raw, type.dtype.numpy).reshape(type.shape)
    return layout if type.device == CPU else space_at(type.device).holding(layout)
