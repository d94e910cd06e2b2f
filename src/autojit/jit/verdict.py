"""The line of ``explain()`` that matters first; and how it names call-backs and sizes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from autojit.codegen.lowered import Callback, LoweredStep
from autojit.core.sizes import expression_of
from autojit.jit.arguments import leaf_names
from autojit.jit.needed_python import why_not_native

if TYPE_CHECKING:
    from autojit.jit.function import JitFunction
    from autojit.jit.step import CompiledStep
    from autojit.jit.trace_entries import Split

OFTEN = 4  # captures from which on their number is the news: three serve every batch size
LINE_BY_LINE = "line by line"
SETTLED = ("assigned ", "changing between calls", "done after every call")
"""How reasons begin that hold once: from then on the step does at every call what the function does."""
BATCH = "batch"


def verdict(function: JitFunction) -> str:
    """What somebody should know first: what is slow, or that nothing is."""
    steps, reasons = function.steps(), function.counts.reasons
    line_by_line = next((reason for reason in reversed(reasons) if LINE_BY_LINE in reason), None)
    if not steps:
        return f"nothing is compiled: {line_by_line}" if line_by_line else "nothing is compiled yet: call it"
    step = function.last_step()
    back = [text for part in step.parts for text in called_back(part.lowered)]
    if line_by_line:
        return f"some calls run {LINE_BY_LINE}: {line_by_line}"
    if back:
        return f"{len(back)} op(s) of a call are computed by Python: {back[0]}{', ...' if len(back) > 1 else ''}"
    arrays = next((split for split in step.trace.splits if split.outcome.size != 1), None)
    if function.counts.captures >= OFTEN and arrays is not None:
        return f"captured {function.counts.captures} times: Python asks for {told_split(arrays)} ({NO_ARRAYS})"
    lasting = [reason for reason in reasons if not reason.startswith(SETTLED)]
    if function.counts.captures >= OFTEN and lasting:
        return f"captured {function.counts.captures} times, last because {lasting[-1]}"
    if not step.is_whole:
        count, place = len(step.trace.splits), step.trace.splits[0].source
        return f"Python decides {count} time(s) in a call, first at {place} (aj.cond and aj.where stay in native code)"
    if step.entry is None and step.calls > 1:
        return f"compiled, but calls go through Python: {why_not_native(step) or 'its first calls do'}"
    return "compiled: a call is one native call"


NO_ARRAYS = "other numbers are captured again: use a function of autojit's there, or ask outside of the step"


def told_split(split: Split) -> str:
    """What Python asked for: an outcome, or the numbers of a whole array."""
    if split.outcome.size == 1:
        return f"{split.value.type} == {split.outcome!s:.40} at {split.source}"
    return f"all numbers of {split.value.type} at {split.source}"


def called_back(lowered: LoweredStep) -> Iterator[str]:
    """The ops that native code calls Python for, each with its line, those of bodies of loops and branches too."""
    for entry in lowered.single_entries():
        if isinstance(entry.body, Callback):
            node = entry.body.kernel.node
            yield f"{node.op.shown_name} at {node.source.described()}"
    for plan in lowered.plans_inside():
        yield from called_back(plan)


def size_names(function: JitFunction, step: CompiledStep) -> dict[str, str]:
    """What sizes that are left open are called: "batch" if one is the first axis of arguments, else by an argument."""
    places = size_places(function, step)
    told = {symbol: found[0] for symbol, found in places.items()}
    first = [symbol for symbol, found in places.items() if all(place.endswith(".shape[0]") for place in found)]
    return told if len(first) != 1 else {**told, first[0]: BATCH}


def size_places(function: JitFunction, step: CompiledStep) -> dict[str, list[str]]:
    """Where the sizes are that a step leaves open: symbol -> ``x.shape[0]``, ..."""
    found: dict[str, list[str]] = {}
    names = leaf_names(function.function, step.capture.argument_tree)
    for place, leaf in enumerate(step.capture.arguments):
        for axis, extent in enumerate(() if leaf.value is None else leaf.value.type.shape):
            symbols = expression_of(extent).symbols()
            if len(symbols) == 1 and str(extent) == symbols[0]:  # the axis is of that size, not of one made of it
                name = names[place] if place < len(names) else f"argument {place}"
                found.setdefault(symbols[0], []).append(f"{name}.shape[{axis}]")
    return found


def renamed(text: str, names: Mapping[str, str]) -> str:
    """A text with sizes under their names.

    Example:
        >>> renamed("f32[s0, 4*s1]", {"s0": "batch"})
        'f32[batch, 4*s1]'
    """
    return re.sub(r"\b[su]\d+\b", lambda found: names.get(found.group(), found.group()), text) if names else text
