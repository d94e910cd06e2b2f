"""From a lowered step to an executable bound to the memory of its state, and to other memory later."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from autojit.codegen.lowered import LoweredStep
from autojit.ir.graph import Value
from autojit.runtime.bodies import plan_object
from autojit.runtime.diagnosis import Diagnosis, out_of_memory
from autojit.runtime.executable import Executable, OutputSpec
from autojit.runtime.plan import PlanBuilder
from autojit.schedule.counts import upper_bound


def build_executable(
    lowered: LoweredStep,
    fixed_inputs: Mapping[int, int],
    fixed_outputs: Mapping[int, int],
    lasting: Collection[int] = (),
) -> Executable:
    """An Executable of the step; inputs and outputs in ``fixed_*`` (position -> address) move by `move_fixed` only.

    Outputs ``lasting`` are in memory that a call which fails leaves as it was.
    """
    schedule = lowered.schedule
    kept = {schedule.memory.home(schedule.outputs[k]) for k in lasting}
    try:
        builder = PlanBuilder(lowered, _fixed(lowered, fixed_inputs, fixed_outputs), lasting=kept)
        plan = builder.plan()
    except MemoryError as error:
        raise out_of_memory(lowered, error, {}) from None
    sizes = builder.sizes
    specs = [
        OutputSpec(v.type.shape, v.type.dtype.numpy, upper_bound(v.type.size, builder.bounds), place, v.type.device)
        for v, place in zip(schedule.graph.outputs, map(builder.late_slot, schedule.outputs), strict=True)
    ]
    executable = Executable(
        plan_object(),
        len(schedule.graph.inputs),
        specs,
        plan=plan,
        failures=builder.failures,
        sizes=sizes,
        lowered=lowered,
        keep=builder,
        devices=builder.devices,
    )
    executable.diagnosis = builder.failures.diagnosis = Diagnosis(
        lowered, executable.table, dict if sizes is None else sizes.values, lambda: builder.fixed
    )
    return executable


def move_fixed(executable: Executable, inputs: Mapping[int, int], outputs: Mapping[int, int]) -> bool:
    """Let fixed inputs and outputs be elsewhere; False where the executable has to be built again. Not in a call."""
    executable.gate.expect_mine()
    builder = executable.keep
    return isinstance(builder, PlanBuilder) and builder.move(_fixed(builder.lowered, inputs, outputs))


def _fixed(lowered: LoweredStep, inputs: Mapping[int, int], outputs: Mapping[int, int]) -> dict[Value, int]:
    schedule = lowered.schedule
    fixed = {schedule.graph.inputs[k]: address for k, address in inputs.items()}
    fixed.update((schedule.outputs[k], address) for k, address in outputs.items())
    return fixed
