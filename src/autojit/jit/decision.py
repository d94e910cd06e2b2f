"""A decision: a segment of a path that computes what Python asked for; what follows depends on the outcome."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from autojit.core.device_array import host_copy
from autojit.ir.calls_out import silent_nodes
from autojit.ir.concrete import is_open
from autojit.ir.graph import Value
from autojit.jit.segment import Segment, Write, allocate, needed_nodes
from autojit.jit.trace_entries import Split

if TYPE_CHECKING:
    from autojit.jit.decided_calls import NativeDecision
    from autojit.jit.step import Capture, CompiledStep


class Decision:
    """A segment that computes what Python decides on; ``children`` lists what was captured per outcome."""

    def __init__(self, capture: Capture, split: Split, carried: Mapping[Value, Any], later: Sequence[Value]) -> None:
        trace = capture.trace
        self.capture = capture
        self.split = split
        nodes = silent_nodes(trace.builder.nodes[: split.position])  # the step that follows calls users' functions
        mine = needed_nodes(nodes, [split.value], carried)
        computed = {v for node in mine for v in node.outputs} - {split.value}
        given = dict.fromkeys([*carried, *computed])
        rest = needed_nodes(trace.own_nodes, later, given)
        read = {v for node in rest for v in node.inputs} | set(later)
        self.exports = {v: allocate(v.type) for v in computed if v in read and not is_open(v.type.shape)}
        self.outcome = allocate(split.value.type)
        writes = [Write(split.value, self.outcome), *(Write(v, array) for v, array in self.exports.items())]
        self.segment = Segment(
            nodes, capture.inputs, carried, list(trace.state.values()), (), (), writes, options=capture.options
        )
        self.parts = [self.segment.compiled]
        self.children: dict[bytes, list[Decision | CompiledStep]] = {}
        self.taken: dict[bytes, Split] = {}  # the outcomes that have children
        self.waiting: dict[int, int] = {}  # hashes of outcomes that have come and not been captured, and how often
        self.calls = 0
        self.entry: NativeDecision | None = None
        self.bound_anew = 0  # how often its entry was made again, as memory was replaced

    def failure(self, leaves: Sequence[Any]) -> str | None:
        """Why the decision cannot be used for this call, or None."""
        return self.capture.other_order(leaves) or self.capture.following.failure(self.segment, is_decision=True)

    def failure_after_another(self, leaves: Sequence[Any]) -> str | None:
        """The same right after another decision of the capture in this call, which has seen to all but the memory."""
        bindings = int(self.segment.bindings[0])
        if self.capture.following.holders:
            return self.failure(leaves)
        reason = self.segment.failure()
        return reason if reason is not None or int(self.segment.bindings[0]) == bindings else self.failure(leaves)

    def decide(self, arrays: Sequence[Any]) -> Split:
        """The split with the outcome that it has for a call."""
        segment = self.segment
        with segment.gate:
            segment.run(arrays)
            segment.commit()
        self.calls += 1
        outcome = host_copy(self.outcome)
        known = self.taken.get(outcome.tobytes())
        return replace(self.split, outcome=outcome.copy()) if known is None else known
