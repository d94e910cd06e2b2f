"""Derivative rules that come again and again in eager passes, as functions of arrays (`dispatch.rule_program`).

Where a pass as a whole comes again and again, it is one native call (`jit.known_passes`). Where its shape changes from
pass to pass (recursion over trees, loops of random lengths), its rules do not: what a rule does depends on the op, the
types of its operands, which of their cotangents are wanted and whether a mask is behind it. So a node shares ``rules``
with all nodes of its op and types, and here the walk looks up what such a node does.

Between nodes whose rules are known, a cotangent is an array that nobody outside of the pass has seen; whoever else
needs it gets a tensor of it (`as_tensor`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np

from autojit.core.device import CPU
from autojit.core.dtypes import bfloat16
from autojit.core.errors import UnsupportedError
from autojit.core.size_recorder import recording
from autojit.core.types import TensorType
from autojit.dispatch.dispatch import apply_pair
from autojit.dispatch.rule_program import RuleProgram
from autojit.functions.elementwise import add
from autojit.history.op_node import OpNode
from autojit.ir.builder import GraphBuilder, Tracer
from autojit.ops.cotangent_masks import under_mask
from autojit.ops.elementwise_arithmetic import Add
from autojit.ops.loop_orders import as_loop
from autojit.ops.matmul import turned_operands
from autojit.tensor import Tensor
from autojit.tensor.node import ZERO, AccumulateGrad, type_of_meta
from autojit.tensor.state import quietly, state
from autojit.tensor.tensor import type_of, wrap
from autojit.transforms.adjoint import accumulate

__all__ = [
    "Key",
    "KnownRule",
    "as_tensor",
    "known_rule",
    "rules_as_written",
    "saved",
    "serves_here",
    "sum_of",
    "trace_of",
]

_OFTEN = 32  # times that a rule has run as Python; recording it and writing it out takes as long as 15 to 30 of them
_NEVER: Any = object()  # of a rule that is Python only
_ADD = Add()
_ARRAY = vars(Tensor)["_array"]  # of tensors that are nothing but their elements
_ndarray, _BFLOAT16 = np.ndarray, bfloat16.numpy


def serves_here() -> bool:
    """Whether a pass that begins now computes at once, without a history, and nobody watches its ops."""
    now = state.__dict__
    is_plain = now["divert"] is None and now["observer"] is None and not now["layers"]
    return is_plain and not (now["grad_enabled"] or now["reference"] or now["anomaly"])


class KnownRule:
    """What the rule of a kind of nodes computes: where its arrays are, the function, where cotangents come from.

    A source is a kind (0: saved operands, 1: saved results, 2: cotangents that have arrived) and a position.
    """

    __slots__ = ("bars", "ends", "kept", "reads", "run", "run_rows")

    def __init__(self, node: OpNode, key: Key) -> None:
        builder, sources, cotangents = trace_of(node, key)
        program = RuleProgram(builder, [x.value if isinstance(x, Tracer) else None for x in cotangents])
        self.run, self.run_rows = program.run, program.run_rows
        self.reads = [sources[k] for k in program.reads]
        # per operand: None or ZERO, or a source or the number of a result of ``run``, and the views of it
        self.ends: list[Any] = [
            (ZERO if is_wanted else None)
            if place is None
            else (sources[place.number] if place.is_operand else place.number, place.views)
            for place, is_wanted in zip(program.places, key[2], strict=True)
        ]
        read = {*self.reads, *[sources[p.number] for p in program.places if p is not None and p.is_operand]}
        kept = [(0, k) for k, x in enumerate(node.primals) if isinstance(x, Tensor)]
        kept += [(1, k) for k, x in enumerate(node.results) if isinstance(x, Tensor)]
        self.kept = [source for source in kept if source not in read]
        types = [(k, type_of_meta(meta)) for k, meta in enumerate(node.out_metas) if (2, k) in read]
        self.bars = [(k, t.shape, t.dtype.numpy) for k, t in types]

    def cotangents(self, node: OpNode, grads: list[Any], as_arrays: bool) -> list[Any] | None:
        """The cotangents of the node's operands; None where the rule has to run as it is written, or to complain.

        ``as_arrays``: those in fresh memory are arrays.
        """
        for k, shape, dtype in self.bars:
            array = grads[k]
            if type(array) is not _ndarray:
                array = array._array if getattr(type(array), "_array", None) is _ARRAY else None
            if type(array) is not _ndarray or array.shape != shape or array.dtype != dtype:
                return None
        for kind, k in self.kept:
            if saved(node, kind, k) is None:
                return None
        made: list[Any] = []
        if self.run is not None:
            found = self._made(node, grads)
            if found is None:
                return None
            made = found if as_arrays else [wrap(array) for array in found]
        return self._at_ends(node, grads, made)

    def _made(self, node: OpNode, grads: list[Any]) -> list[Any] | None:
        """What the function gives."""
        arrays = []
        run: Any = self.run_rows
        for kind, k in self.reads:
            entry = grads[k] if kind == 2 else saved(node, kind, k)
            array = entry if type(entry) is _ndarray else None if entry is None else entry._array
            if type(array) is not _ndarray:
                return None
            if not array.flags.c_contiguous:
                run = self.run
            arrays.append(array)
        try:
            found: list[Any] = quietly(run, *arrays)
        except Exception:
            return None  # the rule as it is written says what is wrong
        return found

    def _at_ends(self, node: OpNode, grads: list[Any], made: list[Any]) -> list[Any] | None:
        """The cotangents, with the views that a rule ends with."""
        found: list[Any] = []
        for end in self.ends:
            if type(end) is not tuple:
                found.append(end)
                continue
            source, views = end
            if type(source) is int:
                x_bar = made[source]
            else:
                kind, k = source
                x_bar = grads[k] if kind == 2 else saved(node, kind, k)
                if x_bar is None:
                    return None
            for view in views:
                x_bar = view.eager(x_bar) if type(x_bar) is _ndarray else x_bar._bind(view, (x_bar,))
            found.append(x_bar)
        return found


def saved(node: OpNode, kind: int, k: int) -> Any:
    """A saved tensor that is as it was; None of one that the node has to look at."""
    entry = (node.primals if kind == 0 else node.results)[k]
    if getattr(type(entry), "_array", None) is not _ARRAY:
        return None
    storage = entry._storage
    if storage is not None and storage.version != node.versions[k if kind == 0 else len(node.primals) + k]:
        return None
    if kind == 0 and entry._grad_fn is None and not entry._requires_grad:
        edge = node.edges[k]
        if edge is not None and type(edge[0]) is not AccumulateGrad:
            return None
    return entry


class _Unread(Tracer):
    """An operand of which the node has kept the type alone: the rule does not read it."""

    __slots__ = ()
    is_type_only: ClassVar[bool] = True


Key = tuple[bool, tuple[bool, bool], tuple[bool, ...], tuple[bool, ...]]
"""What a rule depends on: whether a mask is behind it, the turned operands, what is wanted and what has arrived."""
Rule = TypeVar("Rule")


def known_rule(node: OpNode, rules: dict[Any, Any], key: tuple[Any, ...], kind: Callable[..., Rule]) -> Rule | None:
    """The rule under a key, which begins with a `Key`, as ``kind`` makes it of a node; None: it is run as written."""
    rule: Any = rules.get(key)
    if type(rule) is kind:
        known: Rule = rule
        return known
    if rule is _NEVER:
        return None
    times = rules[key] = 1 if rule is None else rule + 1
    if times < _OFTEN:
        return None
    if not all(isinstance(entry, Tensor | tuple | TensorType) for entry in (*node.primals, *node.results)):
        rules[key] = 0  # packed by a hook, or freed: another node may tell
        return None
    try:
        made = rules[key] = kind(node, key[:4])
        return made
    except Exception as error:  # of a rule that looks at elements, or has something to complain about
        rules[key] = _NEVER
        _as_written[node.op.name] = _as_written.get(node.op.name, (0, ""))[0] + 1, str(error).partition("\n")[0]
        return None


_as_written: dict[str, tuple[int, str]] = {}
"""By an op's name: how many kinds of its nodes run their rule as it is written, and what kept the last from a trace."""


def rules_as_written() -> list[str]:
    """A line for each op with rules that could not be traced: how many kinds of nodes it has, and why."""
    return [
        f"rules of {name} run as they are written for {count} kind{'s' * (count > 1)} of operands: {why}"
        for name, (count, why) in _as_written.items()
    ]


def trace_of(node: OpNode, key: Key) -> tuple[GraphBuilder, list[tuple[int, int]], list[Any]]:
    """A node's rule as a builder records it: the builder, what its inputs are (`KnownRule`), and the cotangents."""
    is_masked, turned, wanted, arrived = key
    builder = GraphBuilder()
    sources: list[tuple[int, int]] = []

    def entered(kind: int, entries: Sequence[Any]) -> list[Any]:
        found: list[Any] = []
        for k, entry in enumerate(entries):
            if isinstance(entry, Tensor):
                found.append(builder.tracer(builder.input(type_of(entry))))
            else:
                found.append(_Unread(builder, builder.input(type_of_meta(entry))))
            sources.append((kind, k))
        return found

    primals, results = entered(0, node.primals), entered(1, node.results)
    bars = [builder.tracer(x.value) for x in entered(2, node.out_metas)]
    if any(v.type.device != CPU for v in builder.inputs):
        raise UnsupportedError("rules are traced for operands on the CPU", {"op": node.op})
    y_bars = [bar if is_there else None for bar, is_there in zip(bars, arrived, strict=True)]
    before = turned_operands.flags
    turned_operands.flags = turned
    try:
        with recording(None), under_mask(is_masked):
            found = accumulate(node.op, primals, results, y_bars, wanted)
    finally:
        turned_operands.flags = before
    return builder, sources, found


def as_tensor(x: Any) -> Any:
    """A cotangent as those see it who are no known rules."""
    return wrap(x) if type(x) is _ndarray else x


def sum_of(x: Any, y: Any, as_array: bool) -> Any:
    """The sum of two cotangents, an array if that is allowed."""
    if as_array:
        a: Any = x._array if type(x) is Tensor else x
        b: Any = y._array if type(y) is Tensor else y
        is_plain = type(a) is type(b) is _ndarray and a.dtype == b.dtype and a.shape == b.shape
        if is_plain and a.dtype is not _BFLOAT16:
            found = quietly(np.add, a, b)
            if type(found) is not _ndarray:
                return np.asarray(found)
            return found if a.flags.c_contiguous and b.flags.c_contiguous else as_loop(found, (a, b))
    if type(x) is type(y) is Tensor and type(x._array) is type(y._array) is _ndarray:
        a, b = x._array, y._array
        if a.dtype is b.dtype and a.shape == b.shape and a.dtype is not _BFLOAT16 and state.observer is None:
            return apply_pair(_ADD, np.add, x, y)
    return add(as_tensor(x), as_tensor(y))
