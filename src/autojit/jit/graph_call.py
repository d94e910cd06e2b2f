"""GraphCall: a graph that eager mode computes by native code, as are its derivatives and batches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from autojit.compiler import PLAIN, Compiled, Options, compile
from autojit.core.device_array import Array
from autojit.core.errors import SpecializeSize, TraceError, UndecidedSizeError
from autojit.core.types import TensorType
from autojit.ir.concrete import concrete, is_open, take_sizes
from autojit.ir.graph import Graph
from autojit.ir.op import Ndarray, Operands, bind
from autojit.ops.graph_op import GraphOp, Transform, as_tuple
from autojit.runtime.executable import Executable
from autojit.tensor.state import state

_LIMIT = 64  # sizes for which native code is kept where there is none for all


class CompiledGraph(GraphOp, abstract=True):
    """``outputs = graph(*inputs)`` by native code; compared by identity of the graph. Subclasses set ``graph``."""

    opened_by: ClassVar[None] = None

    graph: Graph
    n_outputs: int
    is_compiled = True
    spans_devices = True
    options: Options = PLAIN
    _compiled: Compiled | None = None
    _of_sizes: dict[tuple[tuple[str, int], ...], Executable] | None = None  # where sizes cannot be left open
    _calls: dict[Any, GraphCall] | None = None  # derivatives and batches

    @property
    def compiled(self) -> Compiled:
        """Every stage of the native code; made when it is first asked for."""
        if self._compiled is None:
            self._compiled = compile(self._laid_out_graph(), options=self.options)
        return self._compiled

    def executable(self, arrays: Sequence[Any]) -> Executable:
        """Native code for these operands; where it cannot leave sizes open (some derivatives), for theirs alone."""
        if self._of_sizes is None:
            try:
                return self.compiled.executable
            except (UndecidedSizeError, SpecializeSize):
                self._of_sizes = {}
        sizes = self.sizes_of(arrays)
        key = tuple(sizes.items())
        found = self._of_sizes.get(key)
        if found is None:
            if len(self._of_sizes) >= _LIMIT:
                self._of_sizes.clear()
            found = self._of_sizes[key] = compile(
                concrete(self._laid_out_graph(), sizes), options=self.options
            ).executable
        return found

    def _laid_out_graph(self) -> Graph:
        """What native code computes."""
        return self.graph

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.graph is self.graph

    def __hash__(self) -> int:
        return hash((type(self), id(self.graph)))

    def parameters(self) -> tuple[tuple[str, object], ...]:
        return (("nodes", len(self.graph.nodes)),)

    def result_type(self, *types: TensorType) -> Any:
        sizes = self.sizes_of(types)
        return self.one_or_all([self._result_type(v.type, sizes) for v in self.graph.outputs])

    def _result_type(self, kind: TensorType, sizes: dict[str, int]) -> TensorType:
        """A result's type; sizes that the graph counts stay open."""
        found: TensorType = concrete(kind, sizes)
        if state.trace is not None and is_open(found.shape):
            raise TraceError(
                "a result whose size a compiled step has counted is differentiated inside another step",
                {"result": kind},
                "call the function inside the step as well, or detach() its result",
            )
        return found

    def sizes_of(self, operands: Iterable[Any]) -> dict[str, int]:
        """The values that the graph's open sizes have for operands of these types, or for these arrays."""
        sizes: dict[str, int] = {}
        for value, operand in zip(self.graph.inputs, operands, strict=False):
            take_sizes(value.type, operand.shape, sizes)
        return sizes

    def graph_of(self, types: Sequence[TensorType]) -> Graph:
        """The graph without open sizes."""
        sizes = self.sizes_of(types)
        found: Graph = concrete(self.graph, sizes) if sizes else self.graph
        return found

    def through(self, operands: Operands, types: Sequence[TensorType], transform: Transform, *arguments: object) -> Any:
        key = (transform, arguments, *self.sizes_of(types).items())
        if self._calls is None:
            self._calls = {}
        call = self._calls.get(key)
        if call is None:
            if len(self._calls) >= _LIMIT:
                self._calls.clear()
            call = self._calls[key] = GraphCall(self.derived(types, transform, *arguments))
        return as_tuple(bind(call, *operands), call.n_outputs)

    def _run(self, arrays: Sequence[Any]) -> Any:
        given = [contiguous(a) for a in arrays]
        return self.one_or_all(self.executable(given).run(given))


class GraphCall(CompiledGraph):
    """A graph whose derivatives are graph transforms."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.n_outputs = len(graph.outputs)

    def eager(self, *arrays: Array) -> Any:
        return self._run(arrays)


def contiguous(array: Ndarray) -> Ndarray:
    """The array, or a copy that native code can address."""
    return array if array.flags.c_contiguous and array.flags.aligned else array.copy(order="C")
