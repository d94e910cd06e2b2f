"""Composites with reductions and changes of shape that eager mode computes by kernels and records as one node.

As in ``fused.py``, the composite is an ordinary function of operands, and its derivatives of every order are the
adjoints of its graph: one node. Large arrays go through a compiled step, small ones through the graph's ops one by one.
A captured step gets the composite itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

import autojit.ops.composites_arrays as composites  # by its full name: asking the package would load all of it
from autojit.core.dtypes import float64
from autojit.core.records import record
from autojit.core.types import TensorType
from autojit.ir.graph import Graph
from autojit.ir.inline import live
from autojit.ir.op import Ndarray, Op
from autojit.ops.fused import NamedComposite
from autojit.ops.graph_op import types_of
from autojit.ops.samples import Samples, draws
from autojit.ops.shape import Pad

if TYPE_CHECKING:
    from autojit.core.dtypes import DType

__all__ = ["ARRAY_COMPOSITES", "FusedArrays"]

ARRAY_COMPOSITES: dict[str, Callable[..., Any]] = {name: getattr(composites, name) for name in composites.__all__}


@record
class FusedArrays(NamedComposite):
    """The composite ``ARRAY_COMPOSITES[composite](*operands, *options)`` of any ops, or an adjoint of it.

    ``adjoints`` says of each adjoint taken so far of which operands it gives the cotangents, and whether those that it
    is given may be masked; ``wanted`` of which operands the next one does, None: of all that have one.
    """

    functions: ClassVar[Mapping[str, Callable[..., Any]]] = ARRAY_COMPOSITES

    def related(self, types: Sequence[TensorType]) -> tuple[TensorType, ...]:
        """The operands' types with those of cotangents stated by the extents of what they are cotangents of."""
        if not self.adjoints:
            return tuple(types)
        inner = self.after(self.adjoints[:-1])
        operands = inner.related(types[: len(types) - inner.n_outputs])
        return (*operands, *[v.type for v in inner.graph_of(operands).outputs])

    def eager(self, *arrays: Ndarray) -> Any:
        return self.one_or_all(self.program(arrays).run(arrays))

    def program(self, arrays: Sequence[Ndarray]) -> Program:
        """The NumPy calls that compute the op on arrays of these extents."""
        key = (self, *[(a.shape, a.dtype) for a in arrays])
        program = _programs.get(key)
        return _new_program(self, arrays, key) if program is None else program

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
        nodes = live(graph).nodes
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

    def run(self, arrays: Sequence[Ndarray], rules: Sequence[Callable[..., Any]] = ()) -> list[Ndarray]:
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
    def _own(found: Ndarray, taken: set[int]) -> Ndarray:
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


def _new_program(op: FusedArrays, arrays: Sequence[Ndarray], key: tuple[object, ...]) -> Program:
    if len(_programs) >= _PROGRAM_LIMIT:
        _programs.clear()
    made = _programs[key] = Program(op.graph_of(types_of(arrays)))
    return made
