"""What the parts between decisions compute again: a capture whose parts repeat each other too often is given up.

A part hands on what it has computed, so that a path of many decisions is compiled, and runs, in time that grows with
its nodes. Values whose sizes come from data have no memory that waits for them (``Decision.exports``): every part
behind them computes them again. Where a loop makes one such value of another and decides on it in each turn, the last
turns compute all turns before them: 60 turns of four lines took 42 s to compile.
"""

from __future__ import annotations

from autojit.ir.calls_out import silent_nodes
from autojit.ir.concrete import is_open
from autojit.jit.line_by_line import ManyDecisions
from autojit.jit.segment import needed_nodes
from autojit.jit.trace import Trace

REPEATED = 256
"""Nodes that the parts of one capture may compute again: some 0.5 s of compiling."""


def check_repeated(trace: Trace) -> None:
    """Before a path is compiled whose parts compute the same again and again.

    Raises:
        ManyDecisions: they do so for more than ``REPEATED`` nodes.
    """
    handed_on = set(trace.builder.inputs)
    computed = set(handed_on)
    repeated = 0
    for place, split in enumerate(trace.splits):
        nodes = silent_nodes(trace.builder.nodes[: split.position])
        mine = needed_nodes(nodes, [split.value], dict.fromkeys(handed_on))
        if place >= len(trace.forced):  # the others are compiled
            repeated += sum(not computed.isdisjoint(node.outputs) for node in mine)
        if repeated > REPEATED:
            raise ManyDecisions(place + 1, split.source)
        values = {v for node in mine for v in node.outputs}
        computed |= values
        handed_on |= {v for v in values if not is_open(v.type.shape)} | {split.value}
