"""The programs of a step: the decisions on its way, the step itself, what a caller differentiates, bodies of loops."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from autojit.ir.graph import Graph, Value
from autojit.jit.captures import Branch
from autojit.jit.decision import Decision
from autojit.jit.stages import kernel_texts, stage_of, state_names
from autojit.jit.step import CompiledStep
from autojit.jit.view.graphs import Tables, graph_data
from autojit.jit.view.kernels import Costs, Timed, flat_kernels, kernel_data, kernels_of
from autojit.jit.view.memory import memory_data
from autojit.schedule.kernels import NestedKernel

if TYPE_CHECKING:
    from autojit.compiler import Compiled
    from autojit.jit.function import JitFunction
    from autojit.schedule.schedule import Schedule

Told = Mapping[Value, str]


class Texts:
    """Texts of kernels, each once, up to a size: ``left_out`` counts the characters of those that were not kept."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.kept: list[dict[str, str]] = []
        self.left_out = 0
        self._numbers: dict[str, int] = {}

    def add(self, text: str, assembly: str) -> int:
        """The number of a text."""
        known = self._numbers.get(text)
        if known is None:
            known = self._numbers[text] = len(self.kept)
            size = len(text) + len(assembly)
            is_kept = size <= self.most
            self.most -= size if is_kept else 0
            self.left_out += 0 if is_kept else size
            told = "left out, so that the page stays small: step.show() prints it"
            self.kept.append({"llvm": text if is_kept else told, "asm": assembly if is_kept else told})
        return known


class Programs:
    """Makes the data of each program of a function's last step."""

    def __init__(self, function: JitFunction, tables: Tables, texts: Texts, assembly: Any) -> None:
        self.function = function
        self.tables = tables
        self.texts = texts
        self.assembly = assembly  # gives the assembly of a kernel's text

    def all(self, step: CompiledStep) -> list[dict[str, Any]]:
        """In the order in which they run."""
        told = state_names(step)
        found: list[dict[str, Any]] = []
        for number, decision in enumerate(self._decisions(step), 1):
            label = f"decision {number} at {decision.split.source}"
            segment = decision.segment
            found += self._compiled(label, segment.graph, segment.compiled, told, segment.sizes())
        if step.call is None:
            found += self._compiled("step", step.segment.graph, step.segment.compiled, told, step.segment.sizes())
            return found
        for number, part in enumerate(step.parts, 1):
            label = "forward" if number == 1 else f"part {number} of what the caller differentiates"
            found += self._compiled(label, step.segment.graph if number == 1 else part.graph, part, told, {})
        return found

    def _decisions(self, step: CompiledStep) -> list[Decision]:
        for root in self.function.roots.values():
            path = _path_to(step, root.branch)
            if path is not None:
                return path
        return []

    def _compiled(
        self, label: str, captured: Graph, compiled: Compiled, told: Told, sizes: Mapping[str, int]
    ) -> list[dict[str, Any]]:
        timing = self.function.timed
        table = compiled.executable.table_address
        timed: Timed = [] if timing is None else timing.of_step(table)
        listed = kernel_texts(compiled.lowered)
        numbers = {text: self.texts.add(text, self.assembly(text)) for text in listed}
        costs = Costs.of(compiled.lowered, numbers, timed)
        made = self._scheduled(label, compiled.schedule, costs, told, sizes)
        made["captured"] = graph_data(captured, self.tables, told, {})
        made["schedule"] = stage_of(compiled, "schedule")
        made["ptx"] = stage_of(compiled, "ptx")
        made["compile_s"] = dict(compiled.elapsed_s)
        return [made, *self._bodies(label, compiled.schedule, told, sizes)]

    def _bodies(self, label: str, schedule: Schedule, told: Told, sizes: Mapping[str, int]) -> Iterator[dict[str, Any]]:
        """Loops and branches inside, whose schedules run as often as the data decide."""
        for number, (kernel, _, _) in enumerate(flat_kernels(schedule)):
            if not isinstance(kernel, NestedKernel):
                continue
            for place, inner in enumerate(kernel.schedules, 1):
                name = f"{label}: body {place} of kernel {number}, {kernel.node.op.shown_name}"
                yield self._scheduled(name, inner, Costs(inner), told, sizes)
                yield from self._bodies(name, inner, told, sizes)

    def _scheduled(
        self, label: str, schedule: Schedule, costs: Costs, told: Told, sizes: Mapping[str, int]
    ) -> dict[str, Any]:
        graph = schedule.graph
        values = {value: k for k, value in enumerate(_values(graph))}
        nodes = {node: k for k, node in enumerate(graph.nodes)}
        return {
            "label": label,
            "captured": None,
            "optimised": graph_data(graph, self.tables, told, kernels_of(schedule)),
            "kernels": kernel_data(schedule, values, nodes, costs, self.tables, sizes),
            "memory": memory_data(schedule, values, lambda node: self.tables.part(node.source.part), sizes),
            "schedule": "",
            "ptx": "",
        }


def _values(graph: Graph) -> Iterator[Value]:
    yield from graph.inputs
    for node in graph.nodes:
        yield from node.outputs


def _path_to(step: CompiledStep, branch: Branch) -> list[Decision] | None:
    """The decisions that lead to a step."""
    waiting: list[tuple[Sequence[Decision], Branch]] = [((), branch)]
    while waiting:
        path, nodes = waiting.pop()
        for node in tuple(nodes):
            if node is step:
                return list(path)
            if isinstance(node, Decision):
                waiting += [((*path, node), children) for children in tuple(node.children.values())]
    return None
