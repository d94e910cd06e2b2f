"""What ``show()`` prints: the text of each stage of a step, and the names of what a step keeps in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from autojit.codegen.lowered import Entry, LoweredStep
from autojit.core.errors import ArgumentError
from autojit.core.program_parts import BACKWARD
from autojit.ir.graph import Graph, Node, Value
from autojit.ir.printing import names_of, print_graph
from autojit.jit.device_report import grid_lines
from autojit.runtime.kernel_timing import entry_name

if TYPE_CHECKING:
    from autojit.compiler import Compiled
    from autojit.jit.step import CompiledStep

STAGES = ("captured", "adjoint", "optimised", "schedule", "llvm", "asm", "ptx")
OTHER_NAMES = {"graph": "captured", "optimized": "optimised", "assembly": "asm"}


def show_stage(step: CompiledStep, stage: str) -> str:
    """The text of one stage of a step.

    Raises:
        ArgumentError: there is no such stage.
    """
    name = OTHER_NAMES.get(stage.lower(), stage.lower())
    if name not in STAGES:
        raise ArgumentError(f"show: unknown stage {stage!r}", {"stages": ", ".join((*STAGES, *OTHER_NAMES))})
    compiled: Compiled = step.compiled
    if name == "captured":
        return print_graph(step.segment.graph, sources=True, told=state_names(step))
    if name == "adjoint":
        whole = step.segment.graph
        return print_graph(adjoint_of(whole), sources=True, told=state_names(step), names=names_of(whole))
    if name == "optimised":
        return print_graph(compiled.graph, sources=True, told=state_names(step))
    return stage_of(compiled, name)


def stage_of(compiled: Compiled, name: str) -> str:
    """The text of a stage that is made of the schedule."""
    if name == "schedule":
        lines = grid_lines(compiled.lowered, compiled.executable.device_lines())
        return "\n".join([str(compiled.schedule), *lines])
    if name == "ptx":
        return "\n\n".join(compiled.executable.device_texts("ptx"))
    texts = kernel_texts(compiled.lowered)
    if name == "llvm":
        told = [f"{_heading(users)}\n{text}".lstrip() for text, users in texts.items()]
        return "\n\n".join([*told, *compiled.executable.device_texts("llvm")])
    return "\n\n".join(f"{_heading(users, '#')}\n{assembly_of(text)}".lstrip() for text, users in texts.items())


def assembly_of(text: str) -> str:
    """The assembly that the host runs for a kernel's text, "" where the text is built in."""
    from autojit.runtime.host import cached_host_target
    from autojit.runtime.llvm import assembly

    return "" if text.startswith("@") else assembly(text, cached_host_target())


def kernel_texts(lowered: LoweredStep) -> dict[str, list[str]]:
    """The texts of the host's kernels, each once, with the names of the kernels that run it.

    Of a kernel that is built in (a matrix product) the text is its name, ``@aj_...``.
    """
    found: dict[str, list[str]] = {}
    for entry, name in named_entries(lowered):
        if isinstance(entry.body, str):
            names = found.setdefault(entry.body, [])
            if name not in names and entry.symbol != "kernel_combine":
                names.append(name)
    return found


def named_entries(lowered: LoweredStep) -> list[tuple[Entry, str]]:
    """Every entry of the host's plan with its name; those of bands and batches one by one."""
    found: list[tuple[Entry, str]] = []
    for entry, nodes in zip(lowered.entries, lowered.origins, strict=True):
        if isinstance(entry, Entry):
            found.append((entry, entry_name(entry.label, nodes)))
        else:
            found += [(part, entry_name(part.label, _nodes_behind(part, nodes))) for part in entry.entries]
    return found


def _nodes_behind(entry: Entry, nodes: Sequence[Node]) -> list[Node]:
    """Of the nodes of a band or a batch those that an entry may compute: their ops are in its label."""
    ops = set(entry.label.replace(" ", "+").split("+"))
    return [node for node in nodes if node.op.name in ops]


def _heading(users: Sequence[str], comment: str = ";") -> str:
    return "\n".join(f"{comment} kernel {name}" for name in users)


def adjoint_of(graph: Graph) -> Graph:
    """The nodes that backward passes recorded, as a graph: it reads what the rest of the step has computed."""
    nodes = [node for node in graph.nodes if node.source.part.phase == BACKWARD]
    made = {value for node in nodes for value in node.outputs}
    read = dict.fromkeys(v for node in nodes for v in node.inputs if v not in made)
    read_outside = {v for node in graph.nodes if node.source.part.phase != BACKWARD for v in node.inputs}
    outputs = [v for v in made if v in read_outside or v in set(graph.outputs)]
    order = {v: k for k, v in enumerate(v for node in nodes for v in node.outputs)}
    return Graph(tuple(read), tuple(nodes), tuple(sorted(outputs, key=order.__getitem__)))


def state_names(step: CompiledStep) -> dict[Value, str]:
    """What users know the memory by that a step reads: parameters and buffers by their modules, optimisers' state."""
    names = step.trace.parts.names()
    for holder, _ in step.trace.holders.values():
        names.update(_names_of_state(holder, names))
    return {e.input: names[id(e.owner)] for e in step.entries if e.owner is not None and id(e.owner) in names}


def _names_of_state(holder: Any, names: dict[int, str]) -> dict[int, str]:
    """Of an optimiser's tensors: ``exp_avg of 0.weight``."""
    state = vars(holder).get("state") if hasattr(holder, "__dict__") else None
    found: dict[int, str] = {}
    for owner, kept in dict(state or {}).items():
        known = names.get(id(owner))
        if known is not None and isinstance(kept, dict):
            found.update((id(value), f"{key} of {known}") for key, value in kept.items())
    return found
