"""Ops that a function applies, which types alone decide about, written out as calls of dispatch on tensors.

A function of ``ops`` is Python over operands: between its ops it looks at types, makes ops and asks for plans, which
costs small operands as much as the ops. Traced once for operands of certain types it is one function of tensors that
calls `apply` for one op after the other: results, histories and memory are those of the function.

Derivative rules in passes with ``create_graph`` (`autograd.recorded_rules`) and formulas of eager mode
(`by_calls`) run in this form.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autojit.core.dtypes import bfloat16
from autojit.core.size_recorder import recording
from autojit.dispatch.dispatch import apply, apply_pair, apply_single, literal_of, number
from autojit.ir.builder import GraphBuilder, Tracer
from autojit.ir.graph import Graph, Node, Value
from autojit.ir.inline import live
from autojit.ops.numpy_program import function_of
from autojit.ops.sources import Full
from autojit.tensor.state import computes_at_once, state
from autojit.tensor.tensor import Tensor, type_of

__all__ = ["by_calls", "calls_of_ops"]

_ndarray = np.ndarray


def calls_of_ops(
    parameters: str, names: Sequence[str], builder: GraphBuilder, outputs: Sequence[Value | None]
) -> Callable[..., list[Any]]:
    """A function of ``parameters`` that calls the ops a builder has recorded and gives the outputs in a list.

    ``names`` are expressions of the parameters, one for each of the builder's inputs.
    """
    made = tuple(dict.fromkeys([v for v in outputs if v is not None]))
    graph = live(Graph(tuple(builder.inputs), tuple(builder.nodes), made))
    return function_of(_Calls(parameters, dict(zip(graph.inputs, names, strict=True)), graph, outputs))


class _Calls:
    """The text of the function ``run``, and what it names ``k0``, ``k1``, ..."""

    def __init__(self, parameters: str, names: dict[Value, str], graph: Graph, outputs: Sequence[Value | None]) -> None:
        self.constants: list[Any] = []
        self._names = names
        lines: list[str] = []
        for node in graph.nodes:
            lines += self._lines(node)
        returned = ", ".join("None" if v is None else self._names[v] for v in outputs)
        self._text = "\n    ".join([f"def run({parameters}):", *lines, f"return [{returned}]\n"])

    def source(self) -> str:
        return self._text

    def _constant(self, value: Any) -> str:
        self.constants.append(value)
        return f"k{len(self.constants) - 1}"

    def _lines(self, node: Node) -> list[str]:
        """The call of dispatch that ``bind`` makes of operands of these types."""
        op, inputs = node.op, [self._names[v] for v in node.inputs]
        names = [f"v{len(self._names) + k}" for k in range(len(node.outputs))]
        self._names.update(zip(node.outputs, names, strict=True))
        if isinstance(op, Full):
            kind = node.outputs[0].type
            if not kind.shape:
                self._names[node.outputs[0]] = self._constant(number(op.value, op.dtype))
                return []
            return [f"{names[0]} = {self._constant(literal_of)}({self._constant(op.value)}, {self._constant(kind)})"]
        told = self._constant(op)
        if op.of_pair is not None and node.inputs[0].type.dtype is not bfloat16:
            call = f"{self._constant(apply_pair)}({told}, {self._constant(op.of_pair)}, {inputs[0]}, {inputs[1]})"
        elif len(inputs) == 1 and op.n_outputs == 1 and not op.is_view:
            call = f"{self._constant(apply_single)}({told}, {inputs[0]})"
        else:
            call = f"{self._constant(apply)}({', '.join([told, *inputs])})"
        return [f"{', '.join(names)} = {call}"]


_PROGRAMS: dict[Any, Any] = {}
_NAMING = frozenset((str, int))
_LIMIT = 4096
_OFTEN = 4  # times that operands of a kind have come; a trace costs as much as some ten calls save


def by_calls(what: tuple[Any, ...], function: Callable[..., Any], *operands: Tensor) -> Any:
    """``function(*operands)``, one tensor, of which ``what`` and the operands' types say everything but elements.

    Where ``what`` holds other things than names and ints (not truth values, which are equal to ints), nothing is kept.
    """
    now = state.__dict__
    if (
        (now["divert"] is not None and not computes_at_once())
        or now["observer"] is not None
        or not _NAMING.issuperset(map(type, what))
    ):
        return function(*operands)
    key: tuple[Any, ...] = what
    for t in operands:
        array = t._array
        if type(array) is not _ndarray:
            return function(*operands)
        key += array.shape, array.dtype
    known = _PROGRAMS.get(key, 0)
    if type(known) is not int:
        return known(*operands)[0]
    made = function(*operands)
    if len(_PROGRAMS) >= _LIMIT:
        _PROGRAMS.clear()
    _PROGRAMS[key] = known + 1 if known < _OFTEN else _traced(function, operands)
    return made


_NEVER = -(1 << 62)


def _traced(function: Callable[..., Any], operands: Sequence[Tensor]) -> Any:
    """The calls of a function that has just served these operands; `_NEVER` where a type rule refuses what NumPy takes,
    which is no error of a user's: the function goes on to serve.
    """
    builder = GraphBuilder()
    try:
        with recording(None):
            found: Tracer = function(*[builder.tracer(builder.input(type_of(t))) for t in operands])
    except Exception:
        return _NEVER
    names = [f"a{k}" for k in range(len(operands))]
    return calls_of_ops(", ".join(names), names, builder, [found.value])
