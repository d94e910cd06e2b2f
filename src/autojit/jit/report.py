"""What ``explain()`` and ``show()`` print."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from autojit.core.sizes import evaluate
from autojit.jit.captures import nodes_of
from autojit.jit.decision import Decision
from autojit.jit.device_report import device_entries, device_lines, grid_lines, kernel_count
from autojit.jit.guards import shown
from autojit.jit.line_by_line import AS_PIECES
from autojit.jit.needed_python import why_not_native
from autojit.jit.open_numbers import FIXED
from autojit.jit.read_objects import read_objects
from autojit.jit.step import CompiledStep
from autojit.jit.verdict import (
    LINE_BY_LINE,
    NO_ARRAYS,
    SETTLED,
    called_back,
    renamed,
    size_names,
    size_places,
    told_split,
    verdict,
)
from autojit.runtime.pool import get_num_threads

if TYPE_CHECKING:
    from autojit.compiler import Compiled
    from autojit.jit.function import JitFunction


class Page(str):
    """Text that notebooks show as it is, its first line above the rest."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        first, _, rest = self.partition("\n")
        return f"<div><b>{escape(first)}</b><pre>{escape(rest)}</pre></div>"


def statistics(function: JitFunction) -> dict[str, Any]:
    """What ``stats()`` gives."""
    nodes = [node for root in tuple(function.roots.values()) for node in nodes_of(root.branch)]
    counts = function.counts
    return {
        "captures": counts.captures,
        "forgotten": function.forgetting.captures,
        "python_calls": counts.calls,
        "native_calls": function.natives.total(),
        "eager_calls": counts.eager_calls,
        "specialised_sizes": function.open_sizes.specialised,
        "splits": sum(isinstance(node, Decision) for node in nodes),
        "fallbacks": counts.fallbacks,
        "capture_s": counts.capture_s,
        "compile_s": counts.compile_s,
        "kernels": sum(kernel_count(part.lowered) for node in nodes for part in node.parts),
        **_device_counts([part for node in nodes for part in node.parts]),
    }


def _device_counts(parts: Sequence[Compiled]) -> dict[str, int]:
    """Goes in which devices are told something, graphs made of these, how often these were launched; and of one call
    of each step the kernels launched, and the bytes of buffers that they read and write.
    """
    counts = [part.executable.device_counts() for part in parts]
    return {
        "device_entries": sum(device_entries(part.lowered) for part in parts),
        "graphs": sum(count.graphs for count in counts),
        "graph_launches": sum(count.graph_launches for count in counts),
        "launches": sum(count.launches for count in counts),
        "device_bytes": sum(count.bytes for count in counts),
    }


def memory_of(step: CompiledStep, arrays: Sequence[Any] | None = None) -> dict[str, int]:
    """What ``memory()`` gives: for the sizes of these arguments, or those of the last run."""
    sizes = step.segment.sizes()
    if arrays is not None:
        executable = step.segment.executable
        sizes.update(zip(executable.symbols, executable.sizes_of([a.shape for a in arrays]), strict=True))
    return {
        "arena_bytes": evaluate(step.compiled.schedule.memory.peak_bytes, sizes),
        "scratch_bytes": evaluate(step.compiled.lowered.scratch_bytes(max(get_num_threads(), 1)), sizes),
        "state_bytes": sum(e.array.nbytes for e in step.entries),
        "result_bytes": sum(evaluate(v.type.size_bytes, sizes) for v in step.results.values),
    }


MOST_STEPS = 4  # of each part of the page, so that it fits a screen of 40 lines
MOST_OBJECTS = 6
MOST_LINES = 2
MOST_UNGUARDED = 3
MOST_REASONS = 5
MOST_DEVICE_LINES = 6
MOST_CALLED_BACK = 4
MOST_CLASSES = 3


def explain_function(function: JitFunction, verbose: bool = False) -> Page:
    """A page about a jitted function: one screen, or everything."""
    stats = function.stats()
    steps = function.steps()
    lines = [
        f"{function.name}: {_one_line(verdict(function))}",
        f"{function.counts.captures} capture(s), {stats['splits']} split(s), {stats['fallbacks']} fallback(s), "
        f"{stats['native_calls']} native call(s), {stats['python_calls']} by Python",
        *_times(function),
    ]
    lines += function.pieces.explain(verbose)
    for step in steps if verbose else steps[-MOST_STEPS:]:
        told = _explain_step(function, step) if verbose else _summarize_step(function, step)
        names = size_names(function, step)
        lines += [renamed(line, names) for line in told]
    if not verbose:
        lines += _counted(len(steps) - MOST_STEPS, "more step(s)", "  ")
        lines += _part("reads", sorted(read_objects(function, steps), key=_is_code), MOST_OBJECTS, "object(s)")
    if function.counts.eager_calls:
        lines.append(f"ran eagerly  {function.counts.eager_calls} call(s), while steps were compiled beside")
    if function.forgetting.captures:
        kept = f"at most {function.forgetting.limit} kinds of arguments are kept"
        lines.append(f"forgotten    {function.forgetting.captures} capture(s), the least recently used: {kept}")
    unguarded = list(dict.fromkeys(text for step in steps for text in step.capture.unguarded))
    lines += _part("read, not guarded", unguarded, len(unguarded) if verbose else MOST_UNGUARDED, "place(s)")
    reasons = [f"{reason}{function.counts.told_at(reason)}" for reason in function.counts.reasons]
    lasting = [reason for reason in reasons[:-MOST_REASONS] if reason.startswith(FIXED)]  # why there are so many others
    shown = reasons if verbose else [*lasting, *reasons[-MOST_REASONS:]]
    if shown:
        title = (
            f"ran {LINE_BY_LINE}, or captured again,"
            if any(LINE_BY_LINE in reason for reason in shown)
            else "captured again"
        )
        lines += [f"{title} because", *(f"  {_one_line(reason)}" for reason in shown)]
        lines += _counted(len(reasons) - len(shown), "earlier reason(s)", "  ")
        lines += _advice(shown)
    if any(split.outcome.size != 1 for step in steps for split in step.trace.splits):
        lines.append(f"Python asks for the numbers of arrays; {NO_ARRAYS}")
    if not verbose:
        lines.append("explain(verbose=True) lists every guard, split and size")
    return Page("\n".join(lines))


_SIZES = re.compile(r"argument .*: (\w+)\[([^\]]*)\] -> (\w+)\[([^\]]*)\]")


def _advice(reasons: Sequence[str]) -> list[str]:
    """What to do about these reasons."""
    ran = [reason for reason in reasons if LINE_BY_LINE in reason and AS_PIECES not in reason]
    again = [reason for reason in reasons if LINE_BY_LINE not in reason and not reason.startswith(SETTLED)]
    lines = ["  to have it compiled: move that line out of the step, or return what it needs"] if ran else []
    if not all(map(_is_size, again)):
        lines.append("  to avoid it: pass changing values as tensors, or keep them constant between calls")
    elif not again and not ran:
        lines.append("  every call does it from then on: nothing to do")
    elif again:
        lines.append("  sizes that change are left open from then on: nothing to do, unless this goes on")
    return lines


def _is_size(reason: str) -> bool:
    """Whether a tensor came with other extents, and nothing else was different."""
    found = _SIZES.match(reason)
    return found is not None and found[1] == found[3] and found[2].count(",") == found[4].count(",")


def _times(function: JitFunction) -> list[str]:
    """What `timing` has measured: calls by percentile, and the kinds of kernels that take most."""
    timed = function.timed
    if timed is None or not (timed.calls_ns or timed.kernels):
        return []
    rows = timed.classes()
    total = sum(ns for _, _, ns in rows) or 1.0
    shown = [f"{100 * ns / total:.0f} % {name} ({count} times)" for name, count, ns in rows[:MOST_CLASSES]]
    return [timed.headline(), *([f"kernels: {', '.join(shown)}"] if shown else [])]


def _part(title: str, rows: Sequence[str], most: int, what: str) -> list[str]:
    if not rows:
        return []
    return [title, *(f"  {_one_line(row)}" for row in rows[:most]), *_counted(len(rows) - most, f"more {what}", "  ")]


def _is_code(line: str) -> bool:
    """Whether a line is about code: what changes least is told last."""
    return line.startswith("code of ")


def _counted(number: int, what: str, indent: str) -> list[str]:
    return [f"{indent}... {number} {what}"] if number > 0 else []


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _summarize_step(function: JitFunction, step: CompiledStep) -> list[str]:
    """Inputs; calls with the reason why they are not native; what runs and what is updated; what Python decides."""
    compiled = step.compiled
    native = function.natives.of(step)
    reason = why_not_native(step) if step.entry is None else None
    calls = f"{native} native, {step.calls} by Python" + (f" ({reason})" if reason else "")
    back = list(called_back(compiled.lowered))
    more = [f"... {len(back) - MOST_CALLED_BACK} more"] if len(back) > MOST_CALLED_BACK else []
    fallbacks = f", called back: {', '.join([*back[:MOST_CALLED_BACK], *more])}" if back else ""
    lines = [
        _headline(step),
        f"  calls      {calls}",
        f"  runs       {kernel_count(compiled.lowered)} kernels, {_how_called(step)}{fallbacks}",
        *device_lines(compiled.lowered)[:MOST_DEVICE_LINES],
        f"  state      {len(step.entries)} tensors, {len(step.effects.written)} updated in place, "
        f"{len(step.effects.gradients.all)} gradients; arena {memory_of(step)['arena_bytes']} bytes",
    ]
    decided = _decided(step)
    return [*lines, *decided[:MOST_LINES], *_counted(len(decided) - MOST_LINES, "more split(s) and size(s)", "  ")]


def _headline(step: CompiledStep) -> str:
    return f"step({', '.join(str(leaf.value.type) for leaf in step.capture.arguments if leaf.value is not None)})"


def _decided(step: CompiledStep) -> list[str]:
    lines = [f"  split      {told_split(split)}" for split in step.trace.splits]
    lines += [f"  decided    {g.outcome} of numbers at {g.source}" for g in step.trace.number_guards]
    return lines + [f"  sizes      {guard} at {source}" for guard, source in step.trace.size_guards]


def _explain_step(function: JitFunction, step: CompiledStep) -> list[str]:
    compiled = step.compiled
    modified = step.effects.written
    elapsed = ", ".join(f"{name} {1e3 * s:.1f} ms" for name, s in compiled.elapsed_s.items())
    lines = [
        _headline(step),
        f"  graph      {len(step.segment.graph.nodes)} nodes captured, {len(compiled.graph.nodes)} after passes",
        f"  kernels    {kernel_count(compiled.lowered)}, {_how_called(step)}",
        *device_lines(compiled.lowered),
        *(f"    {line}" for line in grid_lines(compiled.lowered, compiled.executable.device_lines())),
        f"  state      {len(step.entries)} tensors, {len(modified)} updated in place, "
        f"{len(step.effects.gradients.all)} gradients",
        f"  memory     arena {memory_of(step)['arena_bytes']} bytes",
        f"  compile    {elapsed}",
        f"  entry      {'native' if step.entry is not None else f'Python ({why_not_native(step)})'}",
    ]
    lines += [f"  fallback   called back from the step: {text}" for text in called_back(compiled.lowered)]
    lines += _decided(step)
    names = size_names(function, step)
    for symbol, places in size_places(function, step).items():
        lines.append(f"  where      {names[symbol]} is {', '.join(places)}")
    lines.append(f"  guards     {len(step.capture.guards)}")
    lines += [f"    {guard.name} == {shown(guard.expected)}" for guard in step.capture.guards]
    return lines


def _how_called(step: CompiledStep) -> str:
    if step.is_whole:
        return "one native call per step"
    calls = len(step.trace.splits) + 1
    return f"{calls} native calls per step, Python decides between them (aj.cond and aj.while_loop: one)"
