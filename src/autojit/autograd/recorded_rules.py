"""Derivative rules that come again and again in passes whose own history is recorded (``create_graph``).

What a rule does between its ops depends on the types alone, so it is traced once, as in `known_rules`, and its ops are
written out as calls of dispatch on tensors (`dispatch.call_programs`). Each op records its node as always: the
gradient's history is that of the rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from autojit.autograd.known_rules import Key, known_rule, saved, trace_of
from autojit.autograd.turned_products import NOT_TURNED
from autojit.core.rule_places import in_rule
from autojit.dispatch.call_programs import calls_of_ops
from autojit.history.op_node import OpNode, connect_constants
from autojit.history.saved import connected
from autojit.ir.builder import Tracer
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
        self.run = calls_of_ops("p, r, b", [f"{'prb'[kind]}[{k}]" for kind, k in sources], builder, outputs)
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
