"""Composites with reductions and changes of shape that eager mode computes by kernels and records as one node.

As in ``fused.py``, the composite is an ordinary function of operands, and its derivatives of every order are the
adjoints of its graph: one node. Large arrays go through a compiled step, small ones through the graph's ops one by one.
A captured step gets the composite itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

import autojit.ops.composites_arrays as composites  # by its full name: asking the package would load all of it
from autojit.core.dtypes import dtype_of_numpy, float64
from autojit.core.ports import transforms_port
from autojit.core.records import record
from autojit.core.types import TensorType
from autojit.ir.builder import GraphBuilder
from autojit.ir.graph import Graph
from autojit.ir.inline import inline
from autojit.ir.op import Op, Operands, bind
from autojit.ops.cotangent_masks import masking
from autojit.ops.fused import zeroes_cotangents
from autojit.ops.samples import Samples, draws
from autojit.ops.shape import Pad
from autojit.ops.sources import zeros_like

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from autojit.core.dtypes import DType

__all__ = ["ARRAY_COMPOSITES", "FusedArrays"]

Adjoint = tuple[tuple[int, ...], bool]
ARRAY_COMPOSITES: dict[str, Callable[..., Any]] = {name: getattr(composites, name) for name in composites.__all__}


@record
class FusedArrays(Op):
    """The composite ``ARRAY_COMPOSITES[composite](*operands, *options)``, of ``results`` results, or an adjoint of it.

    ``adjoints`` says of which operands each of the adjoints taken so far gives the cotangents, and whether those it is
    given may be masked: of n operands and m results it takes these operands and then m cotangents. ``wanted`` names
    the operands whose cotangents the VJP rule is asked for; None: all that have one.
    """

    composite: str
    options: tuple[Any, ...]
    wanted: tuple[int, ...] | None = None
    adjoints: tuple[Adjoint, ...] = ()
    results: int = 1

    lowering: ClassVar[str] = "composite"
    reads_operands: ClassVar[bool] = True

    @property
    def masks_cotangents(self) -> bool:
        return bool(self.adjoints) or zeroes_cotangents(self.composite, self.options)

    @property
    def shown_name(self) -> str:
        return self.composite

    @property
    def n_outputs(self) -> int:
        return len(self.adjoints[-1][0]) if self.adjoints else self.results

    def result_type(self, *types: TensorType) -> Any:
        found = tuple([v.type for v in self.graph(types).outputs])
        return found[0] if self.n_outputs == 1 else found

    def graph(self, types: Sequence[TensorType]) -> Graph:
        """The composite as a graph of operands of these types."""
        return _graph_of(self.composite, self.options, self.adjoints, self.results, tuple(types))

    def related(self, types: Sequence[TensorType]) -> tuple[TensorType, ...]:
        """The operands' types with those of cotangents stated by the extents of what they are cotangents of."""
        return _related(self.composite, self.options, self.adjoints, self.results, tuple(types))

    def expand(self, *operands: Any) -> Any:
        """The composite on operands."""
        found = inline(self.graph([x.spec for x in operands]), operands, operands[0])
        return found[0] if self.n_outputs == 1 else tuple(found)

    def eager(self, *arrays: NDArray[Any]) -> Any:
        results = self.program(arrays).run(arrays)
        return results[0] if self.n_outputs == 1 else tuple(results)

    def program(self, arrays: Sequence[NDArray[Any]]) -> Program:
        """The NumPy calls that compute the op on arrays of these extents."""
        key = (self, *[(a.shape, a.dtype) for a in arrays])
        program = _programs.get(key)
        return _new_program(self, arrays, key) if program is None else program

    def vjp(self, primals: Operands, result: Any, y_bar: Any) -> Sequence[Any]:
        results, bars = ((result,), (y_bar,)) if self.n_outputs == 1 else (result, y_bar)
        given = [zeros_like(y) if bar is None else bar for y, bar in zip(results, bars, strict=True)]
        wanted = self.wanted
        if wanted is None:
            wanted = tuple([i for i, x in enumerate(primals) if x.spec.dtype.is_differentiable])
        adjoints = (*self.adjoints, (wanted, masking.is_on))
        adjoint = FusedArrays(self.composite, self.options, None, adjoints, self.results)
        found = bind(adjoint, *primals, *given)
        places = dict(zip(wanted, (found,) if adjoint.n_outputs == 1 else found, strict=True))
        return [places.get(i) for i in range(len(primals))]

    def jvp(self, primals: Operands, result: Any, tangents: Operands) -> Any:
        moved = [i for i, t in enumerate(tangents) if t is not None]
        graph = transforms_port().jvp(self.graph([x.spec for x in primals]), moved)
        found = inline(graph, [*primals, *[tangents[i] for i in moved]], primals[0])[self.n_outputs :]
        return found[0] if self.n_outputs == 1 else tuple(found)

    def batch(self, args: Operands, batched: tuple[bool, ...]) -> Any:
        shapes = [x.spec.shape[flag:] for x, flag in zip(args, batched, strict=True)]
        size = next(x.spec.shape[0] for x, flag in zip(args, batched, strict=True) if flag)
        graph = self.graph([x.spec.with_shape(shape) for x, shape in zip(args, shapes, strict=True)])
        found = inline(transforms_port().vmap(graph, batched, size), args, args[0])
        return found[0] if self.n_outputs == 1 else tuple(found)

    @staticmethod
    def samples(dtype: DType) -> Samples:
        if dtype is not float64:  # a kernel and NumPy round differently
            return []
        x, w, y = draws((3, 4), dtype, 1), draws((4,), dtype, 2), draws((3, 4), dtype, 3)
        norm = FusedArrays("normalized", ((1,), 1e-5, True, False), (0, 1))
        return [
            (FusedArrays("normalized", ((0,), 1e-5, False, False)), (x,)),
            (norm, (x, w)),
            (FusedArrays("normalized", norm.options, None, (((0, 1), False),)), (x, w, y)),
        ]


class Program:
    """A graph of operands of fixed extents as a list of NumPy calls, without those that no result needs."""

    def __init__(self, graph: Graph) -> None:
        passes = [node.op for node in graph.nodes if not node.op.is_view]
        self.only_spreads = len(passes) == 1 and isinstance(passes[0], Pad) and any(passes[0].interior)
        self.size = max((v.type.size for node in graph.nodes for v in (*node.inputs, *node.outputs)), default=0)
        live = set(graph.outputs)
        nodes = []
        for node in reversed(graph.nodes):
            if not live.isdisjoint(node.outputs):
                live.update(node.inputs)
                nodes.append(node)
        nodes.reverse()
        places = {v: k for k, v in enumerate(graph.inputs)}
        for node in nodes:
            for v in node.outputs:
                places[v] = len(places)
        self.count = len(graph.inputs)
        self.known: list[Any] = [None] * (len(places) - self.count)  # what sources give, once and for all
        self.ops: list[Op] = []  # those of ``calls``
        self.calls: list[tuple[list[int], list[int]]] = []
        for node in nodes:
            inputs, outputs = [places[v] for v in node.inputs], [places[v] for v in node.outputs]
            if inputs:
                self.ops.append(node.op)
                self.calls.append((inputs, outputs))
            else:
                self.known[outputs[0] - self.count] = np.asarray(node.op.eager())
        self.rules = [op.eager for op in self.ops]
        self.results = [places[v] for v in graph.outputs]

    def run(self, arrays: Sequence[NDArray[Any]], rules: Sequence[Callable[..., Any]] = ()) -> list[NDArray[Any]]:
        """The graph's results; each in memory of its own. ``rules`` compute ``ops`` where it is not their ``eager``."""
        known: list[Any] = [*arrays, *self.known]
        for rule, (inputs, outputs) in zip(rules or self.rules, self.calls, strict=True):
            found = rule(*[known[k] for k in inputs])
            if len(outputs) == 1:
                known[outputs[0]] = found if type(found) is np.ndarray else np.asarray(found)
            else:
                for k, part in zip(outputs, found, strict=True):
                    known[k] = np.asarray(part)
        taken = {id(owner_of(known[k])) for k in range(len(arrays) + len(self.known)) if self._is_given(k)}
        return [self._own(known[k], taken) for k in self.results]

    def _is_given(self, place: int) -> bool:
        return place < self.count or self.known[place - self.count] is not None

    @staticmethod
    def _own(found: NDArray[Any], taken: set[int]) -> NDArray[Any]:
        """The array itself where it is all of a memory that nothing else has taken, else a copy."""
        owner = owner_of(found)
        if id(owner) in taken or owner.nbytes != found.nbytes or not found.flags.c_contiguous:
            return found.copy()
        taken.add(id(owner))
        return found


def owner_of(array: Any) -> Any:
    """Whose memory it is."""
    while type(array.base) is np.ndarray:
        array = array.base
    return array


_programs: dict[Any, Program] = {}
_PROGRAM_LIMIT = 4096


def _new_program(op: FusedArrays, arrays: Sequence[NDArray[Any]], key: Any) -> Program:
    if len(_programs) >= _PROGRAM_LIMIT:
        _programs.clear()
    graph = op.graph([TensorType(a.shape, dtype_of_numpy(a.dtype)) for a in arrays])
    made = _programs[key] = Program(graph)
    return made


def _related(
    composite: str,
    options: tuple[Any, ...],
    adjoints: tuple[Adjoint, ...],
    results: int,
    types: tuple[TensorType, ...],
) -> tuple[TensorType, ...]:
    if not adjoints:
        return types
    bars = len(adjoints[-2][0]) if len(adjoints) > 1 else results
    inner = _related(composite, options, adjoints[:-1], results, types[: len(types) - bars])
    return (*inner, *[v.type for v in _graph_of(composite, options, adjoints[:-1], results, inner).outputs])


@lru_cache(maxsize=1024)
def _graph_of(
    composite: str,
    options: tuple[Any, ...],
    adjoints: tuple[Adjoint, ...],
    results: int,
    types: tuple[TensorType, ...],
) -> Graph:
    if adjoints:
        bars = len(adjoints[-2][0]) if len(adjoints) > 1 else results
        inner = _graph_of(composite, options, adjoints[:-1], results, types[: len(types) - bars])
        wanted, is_masked = adjoints[-1]
        backward: Graph = transforms_port().adjoint(inner, wanted, is_masked=is_masked)
        return backward
    builder = GraphBuilder()
    operands = [builder.tracer(builder.input(t)) for t in types]
    found = ARRAY_COMPOSITES[composite](*operands, *options)
    return builder.finish([y.value for y in ((found,) if results == 1 else found)])
