"""What cannot be a library, with the op and the line."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from autojit.codegen.lowered import Entry, ForeignAddress, LoweredStep
from autojit.core.device import CPU
from autojit.core.errors import UnsupportedError
from autojit.ir.graph import Graph, Node
from autojit.jit.function import JitFunction
from autojit.jit.result_places import Place
from autojit.jit.step import CompiledStep
from autojit.schedule.counts import count_bounds, counted_by, is_counting, late_sizes


class ExportError(UnsupportedError):
    """A step, or an op in it, that cannot leave the process."""


class Refusal(NamedTuple):
    """What stands in the way, where, and what to do instead."""

    what: str
    at: object
    fix: str


def require_platform() -> None:
    """ExportError where no library can be written for this machine."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        facts = {"this machine": f"{sys.platform}, {platform.machine()}"}
        raise ExportError("export: libraries are written for Linux on x86-64 alone", facts)


def check_function(function: JitFunction) -> None:
    """ExportError for a function whose calls do something in Python beside the step."""
    for draw in () if function.rebinding is None else function.rebinding.plans.current.draws:
        name = getattr(draw.function, "__name__", str(draw.function))
        fix = "pass what it gives as an argument"
        raise ExportError(f"export: {name}() is asked by Python before every call", {"at": draw.source}, fix)


def check_step(step: CompiledStep) -> None:
    """ExportError for the first thing that keeps a step from being a library."""
    found = next(_refusals(step), None)
    if found is not None:
        raise ExportError(f"export: {found.what}", {"at": found.at}, found.fix)


def _refusals(step: CompiledStep) -> Iterator[Refusal]:
    trace, capture = step.trace, step.capture
    for split in trace.splits:
        fix = "use aj.where, aj.cond or aj.while_loop, which are part of the step"
        yield Refusal("Python decides on a tensor of the step, which splits it", split.source, fix)
    for guard in trace.number_guards:
        fix = "pass the number as a tensor and use aj.where or aj.cond"
        yield Refusal("Python decides on a number among the arguments", guard.source, fix)
    first = next((n.source for n in step.segment.graph.nodes), None)
    devices = {v.type.device for v in (*step.segment.graph.inputs, *step.segment.graph.outputs)}
    if devices - {CPU}:
        yield Refusal(
            f"the step runs on {', '.join(map(str, devices - {CPU}))}", first, "move model and data to the CPU"
        )
    yield from _of_effects(step, first)
    yield from _of_code(step.segment.compiled.lowered)
    if capture.modes_left is not None:
        yield Refusal("it leaves another gradient mode than it finds", first, "use the mode as a context manager")
    if step.segment.carried:
        yield Refusal("it reads what an earlier part of the step has computed", first, "")
    yield from _unbounded(step.segment.graph)


def _unbounded(graph: Graph) -> Iterator[Refusal]:
    """Results for which no caller can have enough memory ready."""
    bounds = count_bounds(graph)
    for k, value in enumerate(graph.outputs):
        for name in sorted(late_sizes(value.type.size_bytes, bounds)):
            node = next(n for n in graph.nodes if is_counting(n) and counted_by(n) == name)
            fix = "return a part of it that has a bound, as y[:1000], or use a mask in its place"
            yield Refusal(f"{node.op.shown_name} counts the size of result {k}, which nothing bounds", node.source, fix)


_WRITES = {"array": "it changes", "grad": "it adds to the gradient of", "new grad": "it leaves a gradient for"}


def _of_effects(step: CompiledStep, first: object) -> Iterator[Refusal]:
    effects, arguments = step.effects, step.capture.arguments
    for write in effects.writes:
        fix = "return the new value, or change state that the function reaches by itself"
        yield Refusal(f"{_WRITES.get(write.what, 'it changes the history of')} argument {write.index}", first, fix)
    for made in effects.gradients.in_parts:
        yield Refusal("it leaves a sparse gradient", made.leaf.shape, "use a dense gradient: sparse=False")
    if any(leaf.grad_value is not None for leaf in arguments):
        yield Refusal("it reads the gradient of an argument", first, "pass the gradient as an argument of its own")
    if effects.asked.passes:
        yield Refusal("it differentiates what the caller has recorded", first, "detach() the arguments")
    if any(not leaf.is_leaf and leaf.requires_grad for leaf in arguments) and step.call is None:
        yield Refusal("arguments have a history that it reads", first, "detach() the arguments")
    if step.trace.asks_attributes or step.trace.offsets_asked:
        yield Refusal("it asks for attributes of its arguments", first, "pass what it needs as tensors")


def check_results(places: Sequence[Place], first_leaf: int) -> None:
    """ExportError for a result that is not memory of its own."""
    for number, place in enumerate(places):
        is_state = place.kind == "argument" and place.index < first_leaf
        if place.kind in ("result", "number", "same", "constant", "argument") and not place.chain and not is_state:
            continue
        what = "a view" if place.chain else "memory of the state or of an argument"
        raise ExportError(f"export: result {number} is {what}", {}, "return its clone()")


def _of_code(lowered: LoweredStep) -> Iterator[Refusal]:
    for op in lowered.called_back:
        place = next((n.source for n in _nodes(lowered) if n.op == op), None)
        if op.calls_out:
            yield Refusal(f"{op.shown_name} calls Python", place, "leave the call out of the function that is exported")
        else:
            yield Refusal(f"{op.shown_name} is computed by Python", place, "compute it outside and pass the result")
    for node in _nodes(lowered):
        if getattr(node.op, "of_ranks", False):
            fix = "leave the group out of the function that is exported"
            yield Refusal(f"{node.op.shown_name} works together with other processes", node.source, fix)
    for entry, nodes in _entries(lowered):
        foreign = [a.function for a in entry.arguments if isinstance(a, ForeignAddress) and a.function.types]
        if foreign:
            name = next((n.op.shown_name for n in nodes), foreign[0].name)
            place = next((n.source for n in nodes), None)
            fix = "compute it outside and pass the result"
            yield Refusal(f"{name} is computed by NumPy's LAPACK ({foreign[0].name})", place, fix)


def _nodes(lowered: LoweredStep) -> Iterator[Node]:
    yield from lowered.schedule.graph.nodes
    for inner in lowered.plans_inside():
        yield from _nodes(inner)


def _entries(lowered: LoweredStep) -> Iterator[tuple[Entry, tuple[Node, ...]]]:
    for k, entry in enumerate(lowered.entries):
        nodes = lowered.origins[k] if k < len(lowered.origins) else ()
        parts = (entry,) if isinstance(entry, Entry) else entry.entries
        yield from ((part, nodes) for part in parts)
    for inner in lowered.plans_inside():
        yield from _entries(inner)
