"""Derivative rules that come again and again in passes whose own history is recorded (``create_graph``).

A rule is Python over operands: between its ops it looks at types, makes ops and asks for plans, which costs as much as
the ops. All of that depends on the types alone, so a rule is traced once, as in `known_rules`, and its ops are written
out as calls of dispatch on tensors. Each op records its node as always: the gradient's history is that of the rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from autojit.autograd.known_rules import Key, known_rule, saved, trace_of
from autojit.autograd.turned_products import NOT_TURNED
from autojit.core.dtypes import bfloat16
from autojit.core.rule_places import in_rule
from autojit.dispatch.dispatch import apply, apply_pair, apply_single, literal_of, number
from autojit.history.op_node import OpNode, connect_constants
from autojit.history.saved import connected
from autojit.ir.builder import Tracer
from autojit.ir.graph import Graph, Node, Value
from autojit.ir.inline import live
from autojit.ops.numpy_program import function_of
from autojit.ops.sources import Full
from autojit.tensor import Tensor
from autojit.tensor.node import ZERO, type_of_meta
from autojit.tensor.state import state

__all__ = ["RecordedRule", "records_here", "run_recorded"]

_ndarray = np.ndarray


def records_here() -> bool:
    """Whether a pass that begins now computes at once and records what it computes, and nobody watches its ops."""
    now = state.__dict__
    is_plain = now["divert"] is None and now["observer"] is None and now["recording_hooks"] is None
    return bool(is_plain and now["grad_enabled"]) and not (now["layers"] or now["reference"] or now["anomaly"])


class RecordedRule:
    """The rule of a kind of nodes as calls of dispatch.

    ``primals`` and ``results`` are the places of the saved tensors that the node looks at; ``bars`` the types of the
    cotangents that have arrived; ``nothing`` the places of operands that the cotangents do not depend on.
    """

    __slots__ = ("bars", "nothing", "primals", "results", "run")

    def __init__(self, node: OpNode, key: Key) -> None:
        builder, sources, found = trace_of(node, key)
        outputs = [x.value if isinstance(x, Tracer) else None for x in found]
        made = tuple(dict.fromkeys([v for v in outputs if v is not None]))
        graph = live(Graph(tuple(builder.inputs), tuple(builder.nodes), made))
        self.run = function_of(_Calls(graph, sources, outputs))
        types = [type_of_meta(meta) for meta in node.out_metas]
        self.bars = [(k, types[k].shape, types[k].dtype.numpy) for k, is_there in enumerate(key[3]) if is_there]
        self.primals = [k for k, x in enumerate(node.primals) if isinstance(x, Tensor)]
        self.results = [k for k, x in enumerate(node.results) if isinstance(x, Tensor)]
        self.nothing = [k for k, (v, is_wanted) in enumerate(zip(outputs, key[2], strict=True)) if is_wanted and not v]

    def cotangents(self, node: OpNode, grads: Sequence[Any]) -> list[Any] | None:
        """As ``OpNode.run``; None where that has to, or to complain."""
        for k, shape, dtype in self.bars:
            array = grads[k]._array
            if type(array) is not _ndarray or array.shape != shape or array.dtype != dtype:
                return None
        primals = node.primals
        for k in self.primals:
            if saved(node, 0, k) is None:
                return None
        results = node.results
        if self.results:
            results = results[:]
            for k in self.results:
                entry = saved(node, 1, k)
                if entry is None:
                    return None
                results[k] = connected(entry, (node, k))
        in_rule.place = in_rule.of_pass
        try:
            found: list[Any] = self.run(primals, results, grads)
        finally:
            in_rule.place = None
        for x_bar in found:
            if x_bar is not None and not x_bar._requires_grad:
                connect_constants(found, [primals[k] for k in self.primals] + [results[k] for k in self.results])
                break
        for k in self.nothing:
            found[k] = ZERO
        return found


def run_recorded(node: OpNode, grads: list[Any], wanted: tuple[bool, ...], is_masked: bool) -> Sequence[Any]:
    """Run a node by the calls of dispatch that are known of its rule, or else as the rule is written."""
    rules = node.rules
    if rules is not None:
        arrived = tuple([g is not None and g is not ZERO for g in grads])
        rule = known_rule(node, rules, (is_masked, NOT_TURNED, wanted, arrived, "recorded"), RecordedRule)
        results = None if rule is None else rule.cotangents(node, grads)
        if results is not None:
            return results
    return node.run(grads, wanted)


class _Calls:
    """The text of a graph's function of tensors ``run(primals, results, y_bars)``, and what it names ``k0``, ``k1``."""

    def __init__(self, graph: Graph, sources: Sequence[tuple[int, int]], outputs: Sequence[Value | None]) -> None:
        self.constants: list[Any] = []
        self._names: dict[Value, str] = {}
        read = {v for node in graph.nodes for v in node.inputs}.union(graph.outputs)
        lines = []
        for number_, (value, (kind, k)) in enumerate(zip(graph.inputs, sources, strict=True)):
            if value in read:
                self._names[value] = f"a{number_}"
                lines.append(f"a{number_} = {'prb'[kind]}[{k}]")
        for node in graph.nodes:
            lines += self._lines(node)
        returned = ", ".join("None" if v is None else self._names[v] for v in outputs)
        self._lines_of_all = [*lines, f"return [{returned}]"]

    def source(self) -> str:
        return "def run(p, r, b):\n" + "".join(f"    {line}\n" for line in self._lines_of_all)

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
