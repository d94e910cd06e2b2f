"""What ``explain()`` and ``show()`` print."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from autojit.core.errors import ArgumentError
from autojit.core.sizes import evaluate
from autojit.ir.text import print_graph
from autojit.jit.captures import nodes_of
from autojit.jit.guards import shown
from autojit.jit.step import CompiledStep, Decision
from autojit.schedule.text import print_schedule

if TYPE_CHECKING:
    from autojit.jit.function import JitFunction

STAGES = ("graph", "adjoint", "schedule", "llvm", "asm")


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
        "python_calls": counts.calls,
        "native_calls": sum(native.entry.calls() for native in function.natives),
        "specialised_sizes": function.open_sizes.specialised,
        "splits": sum(isinstance(node, Decision) for node in nodes),
        "fallbacks": counts.fallbacks,
        "capture_s": counts.capture_s,
        "compile_s": counts.compile_s,
        "kernels": sum(len(node.segment.compiled.lowered.entries) for node in nodes),
    }


def memory_of(step: CompiledStep) -> dict[str, int]:
    """What ``memory()`` gives."""
    sizes = step.segment.sizes()
    return {
        "arena_bytes": evaluate(step.compiled.schedule.memory.peak_bytes, sizes),
        "state_bytes": sum(e.array.nbytes for e in step.entries),
        "result_bytes": sum(evaluate(v.type.size_bytes, sizes) for v in step.results.values),
    }


def explain_function(function: JitFunction) -> Page:
    """A page about a jitted function."""
    stats = function.stats()
    lines = [
        f"{function.name}: {function.counts.captures} capture(s), {stats['splits']} split(s), "
        f"{stats['fallbacks']} fallback(s)"
    ]
    for step in function.steps():
        lines += _explain_step(step)
    if function.counts.reasons:
        lines.append("captured again because")
        lines += [f"  {reason}" for reason in function.counts.reasons]
        lines.append("  to avoid it: pass changing values as tensors, or keep them constant between calls")
    return Page("\n".join(lines))


def _explain_step(step: CompiledStep) -> list[str]:
    compiled = step.compiled
    inputs = ", ".join(str(leaf.value.type) for leaf in step.capture.arguments if leaf.value is not None)
    modified = step.effects.written
    elapsed = ", ".join(f"{name} {1e3 * s:.1f} ms" for name, s in compiled.elapsed_s.items())
    lines = [
        f"step({inputs})",
        f"  graph      {len(step.graph.nodes)} nodes captured, {len(compiled.graph.nodes)} after passes",
        f"  kernels    {len(compiled.lowered.entries)}, {_how_called(step)}",
        f"  state      {len(step.entries)} tensors, {len(modified)} updated in place, "
        f"{len(step.effects.gradients.all)} gradients",
        f"  memory     arena {compiled.schedule.memory.peak_bytes} bytes",
        f"  compile    {elapsed}",
        f"  entry      {'native' if step.entry is not None else 'Python'}",
    ]
    if compiled.lowered.fallbacks:
        lines.append(f"  fallbacks  ops called back from the step: {', '.join(compiled.lowered.fallbacks)}")
    lines += [f"  split      {s.value.type} == {s.outcome!s:.40} at {s.source}" for s in step.trace.splits]
    lines += [f"  sizes      {guard} at {source}" for guard, source in step.trace.size_guards]
    lines.append(f"  guards     {len(step.capture.guards)}")
    lines += [f"    {guard.name} == {shown(guard.expected)}" for guard in step.capture.guards[:40]]
    return lines


def _how_called(step: CompiledStep) -> str:
    if step.is_whole:
        return "one native call per step"
    calls = len(step.trace.splits) + 1
    return f"{calls} native calls per step, Python decides between them (aj.cond and aj.while_loop: one)"


def show_stage(function: JitFunction, stage: str) -> str:
    """The text of one stage of the step captured last."""
    if stage not in STAGES:
        raise ArgumentError(f"show: unknown stage {stage!r}", {"stages": ", ".join(STAGES)})
    step = function.last_step()
    compiled = step.compiled
    if stage == "graph":
        return print_graph(step.graph, sources=True)
    if stage == "adjoint":
        return print_graph(compiled.graph, sources=True)
    if stage == "schedule":
        return print_schedule(compiled.schedule)
    texts = _kernel_texts(compiled)
    if stage == "llvm":
        return "\n\n".join(texts)
    from autojit.runtime.host import cached_host_target
    from autojit.runtime.llvm import assembly

    return "\n\n".join(assembly(text, cached_host_target()) for text in texts)


def _kernel_texts(compiled: Any) -> list[str]:
    bodies = [e.body for e in compiled.lowered.entries if isinstance(e.body, str) and not e.body.startswith("@")]
    return list(dict.fromkeys(bodies))
