"""Kernels as they run: the fused nodes, what is read and written, how long each takes, measured or estimated.

A schedule's kernels have the numbers of ``show("schedule")``. What runs are the entries of the lowered step: one of
the host is of one kernel, of a band or of a batch; a device's kernels are in its runs. Their times go to the kernels
that they are of; a band's is shared out as the compiler's estimates are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from autojit.codegen.lowered import BandEntry, BatchEntry, Callback, DeviceRun, Entry, Launch, simple_work
from autojit.core.sizes import evaluate, expression_of, typical
from autojit.ir.graph import Node, Value
from autojit.jit.timing import KernelTime
from autojit.jit.view.graphs import Tables
from autojit.runtime.kernel_timing import entry_name, launch_row
from autojit.schedule.bands import Band
from autojit.schedule.batches import Batch
from autojit.schedule.kernels import Kernel, NestedKernel, device_of
from autojit.schedule.text import kernel_head

if TYPE_CHECKING:
    from autojit.codegen.lowered import LoweredStep
    from autojit.schedule.schedule import Schedule

Timed = Sequence[KernelTime]


def flat_kernels(schedule: Schedule) -> Iterator[tuple[Kernel, int, str]]:
    """Every kernel in order, with the place of its band or batch among the schedule's items, and what that is."""
    for place, item in enumerate(schedule.kernels):
        if isinstance(item, Band):
            kind = f"band of {len(item.kernels)} kernels in {item.slices.count} slices"
            yield from ((kernel, place, kind) for kernel in item.kernels)
        elif isinstance(item, Batch):
            yield from (
                (kernel, place, f"batch of {len(item.kernels)} kernels side by side") for kernel in item.kernels
            )
        else:
            yield item, place, ""


def kernels_of(schedule: Schedule) -> dict[Node, int]:
    """Node -> the number of the kernel that computes it."""
    found: dict[Node, int] = {}
    for number, (kernel, _, _) in enumerate(flat_kernels(schedule)):
        for node in kernel.nodes:
            found.setdefault(node, number)
    return found


class Costs:
    """Of every kernel of a lowered step: its name, its text, the estimate, the measured time, call-backs."""

    def __init__(self, schedule: Schedule) -> None:
        """Of a schedule of which nothing more is known: the body of a loop."""
        self._of_node = kernels_of(schedule)
        self._nodes = [kernel.nodes for kernel, _, _ in flat_kernels(schedule)]
        count = len(self._nodes)
        self.names = [""] * count
        self.texts: list[list[int]] = [[] for _ in range(count)]
        self.estimates_ns = [0.0] * count
        self.measured_ns: list[float | None] = [None] * count
        self.called_back = [False] * count
        self._known_texts: Mapping[str, int] = {}
        self._rows: list[KernelTime] = []

    @staticmethod
    def of(lowered: LoweredStep, texts: Mapping[str, int], timed: Timed) -> Costs:
        """Of a lowered step, whose kernels' texts have these numbers, with the times of its rows."""
        made = Costs(lowered.schedule)
        made._known_texts, made._rows = texts, list(timed)
        made._lower(lowered)
        return made

    def _lower(self, lowered: LoweredStep) -> None:
        for entry, nodes in zip(lowered.entries, lowered.origins, strict=True):
            runs = [] if not isinstance(entry, Entry) else [a for a in entry.arguments if isinstance(a, DeviceRun)]
            if runs:
                self._launches(runs[0])
                continue
            numbers = self._numbers(nodes)
            time = self._next_time(entry_name(entry.label, nodes)) if entry.chunks != 0 else None
            if isinstance(entry, BandEntry | BatchEntry):
                self._several(entry.entries, numbers, time)
            elif numbers:
                self._one(numbers[0], entry, entry_name(entry.label, nodes), time)

    def _numbers(self, nodes: Sequence[Node]) -> list[int]:
        """The kernels that an entry for these nodes is of."""
        found = dict.fromkeys(self._of_node[node] for node in nodes if node in self._of_node)
        return list(found)

    def _next_time(self, name: str) -> float | None:
        """The time of the next row of this name; rows before it are of what a device does beside its kernels."""
        for place, timed in enumerate(self._rows):
            if timed.row.name == f"kernel {name}":
                del self._rows[: place + 1]
                return timed.median_ns
        return None

    def _one(self, number: int, entry: Entry, name: str, time: float | None) -> None:
        self.names[number] = self.names[number] or name
        self.estimates_ns[number] += entry.estimate_ns
        self.called_back[number] |= isinstance(entry.body, Callback)
        if isinstance(entry.body, str) and entry.body in self._known_texts:
            text = self._known_texts[entry.body]
            if text not in self.texts[number]:
                self.texts[number].append(text)
        if time is not None:
            self.measured_ns[number] = (self.measured_ns[number] or 0.0) + time

    def _several(self, entries: Sequence[Entry], numbers: Sequence[int], time: float | None) -> None:
        """The entries of a band or batch, in the order of its kernels; its time is shared out as the estimates are."""
        total = sum(entry.estimate_ns for entry in entries) or 1.0
        for place, entry in enumerate(entries):
            number = numbers[min(place, len(numbers) - 1)]
            share = None if time is None else time * entry.estimate_ns / total
            self._one(number, entry, entry_name(entry.label, self._nodes[number]), share)

    def _launches(self, run: DeviceRun) -> None:
        """A device's kernels; a launch of several has all their labels, and its time is shared out evenly."""
        waiting: dict[str, list[Sequence[int]]] = {}
        for part in simple_work(run.work):
            if isinstance(part, Launch):
                numbers = self._numbers(part.nodes)
                waiting.setdefault(part.label, []).append(numbers)
                for number in numbers:
                    self.names[number] = self.names[number] or launch_row(part.label, part.nodes).name[len("kernel ") :]
        for timed in list(self._rows):
            labels = timed.row.name.removeprefix("kernel ").partition(" (")[0].split("; ")
            found = [waiting[label].pop(0) for label in labels if waiting.get(label)]
            shared = [number for numbers in found for number in numbers]
            for number in shared:
                self.measured_ns[number] = (self.measured_ns[number] or 0.0) + timed.median_ns / len(shared)
            if shared:
                self._rows.remove(timed)


def kernel_data(
    schedule: Schedule, numbers: Mapping[Value, int], nodes: Mapping[Node, int], costs: Costs, tables: Tables,
    sizes: Mapping[str, int],
) -> list[dict[str, Any]]:  # fmt: skip
    """The kernels of a schedule in order; values and nodes by their numbers in the optimised graph."""
    found = []
    for number, (kernel, place, group) in enumerate(flat_kernels(schedule)):
        parts = [tables.part(node.source.part) for node in kernel.nodes]
        reads, writes = kernel.reads(), kernel.writes()
        found.append({
            "name": costs.names[number] or kernel_head(kernel),
            "head": kernel_head(kernel),
            "place": place,
            "group": group,
            "nodes": [nodes[node] for node in kernel.nodes if node in nodes],
            "reads": [numbers[v] for v in reads if v in numbers],
            "writes": [numbers[v] for v in writes if v in numbers],
            "read_bytes": sum(bytes_of(v, sizes) for v in reads),
            "written_bytes": sum(bytes_of(v, sizes) for v in writes),
            "part": max(dict.fromkeys(parts), key=parts.count) if parts else -1,
            "estimate_ns": round(costs.estimates_ns[number]),
            "ns": None if costs.measured_ns[number] is None else round(costs.measured_ns[number] or 0.0),
            "texts": costs.texts[number],
            "device": str(device_of(kernel)),
            "called_back": costs.called_back[number],
            "nested": isinstance(kernel, NestedKernel),
        })  # fmt: skip
    return found


def bytes_of(value: Value, sizes: Mapping[str, int]) -> int:
    """The bytes of a value for these sizes."""
    return extent_of(value.type.size_bytes, sizes)


def extent_of(n: int, sizes: Mapping[str, int]) -> int:
    """A size for these values of its symbols; a typical one where a value is not known, as in the body of a loop."""
    is_known = sizes.keys() >= set(expression_of(n).symbols())
    return int(evaluate(n, sizes) if is_known else typical(n))
