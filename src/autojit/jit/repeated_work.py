"""Captures that are not worth compiling: parts between decisions repeat each other, or serve no other call.

A part hands on what it has computed, so that a path of many decisions is compiled, and runs, in time that grows with
its nodes. Values whose sizes come from data have no memory that waits for them (``Decision.exports``): every part
behind them computes them again. Where a loop makes one such value of another and decides on it in each turn, the last
turns compute all turns before them: 60 turns of four lines took 42 s to compile.

A step holds for the very digits that Python has asked for (`sorted` by scores, `tolist()`). Of many floats that follow
from arguments no other call has the same, and compiled code itself rounds some of them in another way: the first call
of a beam search was captured four times, which took 4 s, and every later one ran line by line.
"""

from __future__ import annotations

from collections.abc import Collection

from autojit.ir.calls_out import silent_nodes
from autojit.ir.concrete import is_open
from autojit.ir.graph import Value
from autojit.jit.line_by_line import ManyDecisions, ManyDigits
from autojit.jit.segment import needed_nodes
from autojit.jit.trace import Trace

REPEATED = 256
"""Nodes that the parts of one capture may compute again: some 0.5 s of compiling."""


MOST_DIGITS = 32
"""Floats of arguments that a step may hold for the digits of."""


def check_digits(trace: Trace, arguments: Collection[Value]) -> None:
    """Before a path is compiled that no other call takes; ``arguments`` are the values of the call.

    Raises:
        ManyDigits: Python has asked for the digits of more than ``MOST_DIGITS`` floats that follow from arguments, or
            from state that the step changes.
    """
    asked = [split for split in trace.splits if split.outcome.dtype.kind in "fc"]
    if sum(split.outcome.size for split in asked) <= MOST_DIGITS:
        return
    changing = {*arguments, *(entry.input for entry in trace.state.values() if entry.is_modified)}
    for node in trace.builder.nodes:
        if not changing.isdisjoint(node.inputs):
            changing.update(node.outputs)
    count = sum(split.outcome.size for split in asked if split.value in changing)
    if count > MOST_DIGITS:
        raise ManyDigits(count, asked[-1].source)


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
