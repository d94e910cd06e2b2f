"""Branches and loops that a device decides by itself, as work of a run with conditions.

A loop's carries are in the memory of its results from the first turn to the last: the body is scheduled to write each
where it read it. So a turn is always the same launches on the same addresses, which is what a graph can repeat.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from autojit.codegen.cuda.moved_work import MovedWork, Place
from autojit.codegen.lowered import (
    Conditional,
    DeviceCopy,
    DeviceRun,
    DeviceWork,
    Launch,
    LoweredStep,
    Offset,
    Scratch,
    simple_work,
)
from autojit.core.device import CPU, Device
from autojit.core.errors import HostDecides
from autojit.ir.graph import Value
from autojit.ops.control_flow import Cond
from autojit.ops.while_sweeps import WhileLoop
from autojit.schedule.kernels import NestedKernel


def is_decided_there(kernel: NestedKernel) -> bool:
    """Whether the condition of a branch or loop has been left to the device."""
    op = kernel.node.op
    return isinstance(op, Cond | WhileLoop) and kernel.node.inputs[0].type.device != CPU


def decided_work(kernel: NestedKernel, bodies: Sequence[LoweredStep], *, commits: bool) -> list[DeviceWork]:
    """The work of a branch or loop.

    Args:
        kernel: the branch or loop.
        bodies: those that it chooses between, or its turn.
        commits: what they write lasts after the step.

    Raises:
        HostDecides: a body needs the host.
    """
    node, op = kernel.node, kernel.node.op
    device = node.inputs[0].type.device
    if isinstance(op, WhileLoop):
        (body,) = bodies
        places: dict[Value, Place] = {}
        for k, home in enumerate(node.outputs):
            places[body.schedule.graph.inputs[k]] = places[body.schedule.outputs[k]] = home
        pairs = zip(node.outputs, kernel.operands, strict=False)
        begin = [DeviceCopy(home, start, start.type.size_bytes, commits) for home, start in pairs]
        constants = body.schedule.graph.inputs[len(node.outputs) :]
        begin += _constants(constants, kernel.operands[len(node.outputs) :], device, places)
        return [*begin, Conditional(node.outputs[0], _moved(body, places, device, commits), repeats=True)]
    found: list[DeviceWork] = []
    taken: dict[Value, Place] = {}
    found += _constants(kernel.operands[1:], kernel.operands[1:], device, taken)
    for is_negated, body in zip((False, True), bodies, strict=True):
        places = {x: taken[given] for x, given in zip(body.schedule.graph.inputs, kernel.operands[1:], strict=True)}
        places.update(zip(body.schedule.outputs, node.outputs, strict=True))
        work = _moved(body, places, device, commits)
        found.append(Conditional(kernel.operands[0], work, repeats=False, is_negated=is_negated))
    return found


def _constants(
    inputs: Sequence[Value], operands: Sequence[Value], device: Device, places: dict[Value, Place]
) -> Iterator[DeviceCopy]:
    """Say where inputs of a body are that stay what they are; numbers of the host are copied to the device."""
    for value, operand in zip(inputs, operands, strict=True):
        places[value] = operand
        if operand.type.device == CPU:
            size_bytes = operand.type.size_bytes
            places[value] = scratch = Scratch(size_bytes, per_worker=False, device=device)
            yield DeviceCopy(scratch, operand, size_bytes)


def _moved(body: LoweredStep, places: Mapping[Value, Place], device: Device, commits: bool) -> tuple[DeviceWork, ...]:
    runs = [entry.arguments[0] for entry in body.single_entries()]
    work: list[DeviceWork] = []
    for run in runs:
        if not isinstance(run, DeviceRun) or run.device != device:
            raise HostDecides("the body of a branch or loop needs the host", {"body": str(body.schedule.graph)[:200]})
        work += run.work
    moved = _Places(body, places, work, device)
    return tuple(moved.moved(item, commits) for item in work)


class _Places(MovedWork):
    """Where the values of a body are: those of the step that it takes and gives, and memory for its own."""

    def __init__(
        self, body: LoweredStep, places: Mapping[Value, Place], work: Sequence[DeviceWork], device: Device
    ) -> None:
        def scratch(size_bytes: int) -> Scratch | None:
            return Scratch(size_bytes, per_worker=False, device=device) if size_bytes else None

        launches = [item for item in simple_work(work) if isinstance(item, Launch)]
        super().__init__({item: item.partials or scratch(item.kernel.partial_bytes) for item in launches})
        self._memory = body.schedule.memory
        self._known = places
        self._temporaries = scratch(self._memory.arenas.get(device, 0))

    def place_of(self, value: Value) -> Place:
        """See `MovedWork`."""
        home = self._memory.home(value)
        found = self._known.get(home)
        if found is not None:
            return found
        assert self._temporaries is not None, "a temporary has a place"
        return Offset(self._temporaries, self._memory.offsets[home], value.type.size_bytes)
