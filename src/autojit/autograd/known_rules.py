"""Derivative rules that come again and again in eager backward passes, as functions of arrays (`ops.rule_program`).

Where a pass as a whole comes again and again, it is one native call (`jit.known_passes`). Where its shape changes from
pass to pass (recursion over trees, loops of random lengths), its rules do not: what a rule does depends on the op, the
types of its operands, which of their cotangents are wanted and whether a mask is behind it. So a node shares ``rules``
with all nodes of its op and types, and here the walk looks up what such a node does.

Between nodes whose rules are known, a cotangent is an array that nobody outside of the pass has seen; whoever else
needs it gets a tensor of it (`as_tensor`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from autojit.core.device import CPU
from autojit.core.dtypes import bfloat16
from autojit.core.size_recorder import recording
from autojit.core.types import TensorType
from autojit.history.op_node import OpNode
from autojit.ir.builder import GraphBuilder, Tracer
from autojit.ops.cotangent_masks import under_mask
from autojit.ops.loop_orders import as_loop
from autojit.ops.matmul import turned_operands
from autojit.ops.rule_program import RuleProgram
from autojit.tensor import Tensor
from autojit.tensor.node import ZERO, AccumulateGrad, type_of_meta
from autojit.tensor.state import quietly, state
from autojit.tensor.tensor import type_of, wrap
from autojit.transforms.adjoint import accumulate

__all__ = ["KnownRule", "as_tensor", "known_rule", "serves_here", "sum_of_arrays"]

_OFTEN = 32  # times that a rule has run as Python; recording it and writing it out takes as long as 50 to 100 of them
_NEVER: Any = object()  # of a rule that is Python only
_ndarray, _BFLOAT16 = np.ndarray, bfloat16.numpy


def serves_here() -> bool:
    """Whether a pass that begins now computes at once, without a history, and nobody watches its ops."""
    now = state.__dict__
    is_plain = now["divert"] is None and now["observer"] is None and not now["layers"]
    return is_plain and not (now["grad_enabled"] or now["reference"] or now["anomaly"])


class KnownRule:
    """What the rule of a kind of nodes computes: where its arrays are, the function, where cotangents come from."""

    __slots__ = ("bars", "kept", "places", "reads", "run")

    def __init__(self, node: OpNode, program: RuleProgram, given: Sequence[tuple[int, int]]) -> None:
        self.run = program.run if program.count else None
        self.reads = [given[k] for k in program.reads]  # 0: operands, 1: results, 2: cotangents, and the position
        self.places = [
            None if p is None else (p.is_operand, given[p.number] if p.is_operand else p.number, p.views)
            for p in program.places
        ]
        read = {*self.reads, *[p[1] for p in self.places if p is not None and p[0]]}
        kept = [(0, k) for k, x in enumerate(node.primals) if isinstance(x, Tensor)]
        kept += [(1, k) for k, x in enumerate(node.results) if isinstance(x, Tensor)]
        self.kept = [(kind, k) for kind, k in kept if (kind, k) not in read]
        types = [(k, type_of_meta(meta)) for k, meta in enumerate(node.out_metas) if (2, k) in read]
        self.bars = [(k, t.shape, t.dtype.numpy) for k, t in types]

    def cotangents(self, node: OpNode, grads: list[Any], as_arrays: bool) -> list[Any] | None:
        """The cotangents of the node's operands; None where the rule has to run as it is written, or to complain.

        ``as_arrays``: those in fresh memory are arrays.
        """
        for k, shape, dtype in self.bars:
            array = grads[k] if type(grads[k]) is _ndarray else grads[k]._array
            if type(array) is not _ndarray or array.shape != shape or array.dtype != dtype:
                return None
        arrays = []
        for kind, k in self.reads:
            entry = grads[k] if kind == 2 else _saved(node, kind, k)
            array = entry if type(entry) is _ndarray else None if entry is None else entry._array
            if type(array) is not _ndarray:
                return None
            arrays.append(array)
        for kind, k in self.kept:
            if _saved(node, kind, k) is None:
                return None
        if self.run is None:
            made: list[Any] = []
        else:
            try:
                made = quietly(self.run, *arrays)
            except Exception:
                return None  # the rule as it is written says what is wrong
            if not as_arrays:
                made = [wrap(array) for array in made]
        found: list[Any] = []
        for place in self.places:
            if place is None:
                found.append(ZERO)
                continue
            is_operand, where, views = place
            if is_operand:
                kind, k = where
                x_bar = grads[k] if kind == 2 else _saved(node, kind, k)
                if x_bar is None:
                    return None
            else:
                x_bar = made[where]
            for view in views:
                x_bar = view.eager(x_bar) if type(x_bar) is _ndarray else x_bar._bind(view, (x_bar,))
            found.append(x_bar)
        return found


def _saved(node: OpNode, kind: int, k: int) -> Any:
    """A saved tensor that is as it was; None of one that the node has to look at."""
    entry = (node.primals if kind == 0 else node.results)[k]
    if not isinstance(entry, Tensor):
        return None
    storage = entry._storage
    if storage is not None and storage.version != node.versions[k if kind == 0 else len(node.primals) + k]:
        return None
    if kind == 0 and entry._grad_fn is None and not entry._requires_grad:
        edge = node.edges[k]
        if edge is not None and type(edge[0]) is not AccumulateGrad:
            return None
    return entry


def known_rule(node: OpNode, rules: dict[Any, Any], key: tuple[Any, ...]) -> KnownRule | None:
    """The rule under a key: whether a mask is behind it, the turned operands, what is wanted and what has arrived."""
    rule = rules.get(key)
    if type(rule) is KnownRule:
        return rule
    if rule is _NEVER:
        return None
    times = rules[key] = 1 if rule is None else rule + 1
    if times < _OFTEN:
        return None
    rule = rules[key] = _made(node, *key)
    return rule if type(rule) is KnownRule else None


def _made(
    node: OpNode, is_masked: bool, turned: tuple[bool, bool], wanted: tuple[bool, ...], arrived: tuple[bool, ...]
) -> Any:
    """The rule of a node, recorded; `_NEVER` where it has to run as it is written."""
    builder = GraphBuilder()
    given: list[tuple[int, int]] = []

    def entered(kind: int, entries: Sequence[Any]) -> list[Any]:
        found: list[Any] = []
        for k, entry in enumerate(entries):
            spec = type_of(entry) if isinstance(entry, Tensor) else _type_of(entry)
            found.append(builder.tracer(builder.input(spec)))
            given.append((kind, k))
        return found

    before = turned_operands.flags
    try:
        primals, results, bars = entered(0, node.primals), entered(1, node.results), entered(2, node.out_metas)
        if any(v.type.device != CPU for v in builder.inputs):
            return _NEVER
        y_bars = [bar if is_there else None for bar, is_there in zip(bars, arrived, strict=True)]
        turned_operands.flags = turned
        with recording(None), under_mask(is_masked):
            found = accumulate(node.op, primals, results, y_bars, wanted)
            program = RuleProgram(builder, [x.value if isinstance(x, Tracer) else None for x in found])
    except Exception:  # of a rule that looks at elements, or has something to complain about
        return _NEVER
    finally:
        turned_operands.flags = before
    return KnownRule(node, program, given)


def _type_of(entry: Any) -> TensorType:
    if not isinstance(entry, tuple | TensorType):
        raise TypeError("packed by a hook, or freed")
    return type_of_meta(entry)


def as_tensor(x: Any) -> Any:
    """A cotangent as those see it who are no known rules."""
    return wrap(x) if type(x) is _ndarray else x


def sum_of_arrays(x: Any, y: Any) -> Any:
    """The sum of two cotangents that are arrays of one type; None where an op has to make it."""
    if x.dtype != y.dtype or x.shape != y.shape or x.dtype is _BFLOAT16:
        return None
    found = quietly(np.add, x, y)
    return as_loop(found, (x, y)) if type(found) is _ndarray else np.asarray(found)
