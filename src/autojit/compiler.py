"""The compiler's one door: ``compile(graph) -> Executable``: passes, schedule, code generation, runtime in a row.

Passes and schedule are imported when a graph goes through them: a step that is found in the cache does without.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from autojit.backend import Backend, backend_of
from autojit.core.collector_pause import uncollected
from autojit.core.compile_notice import stage
from autojit.core.errors import HostDecides
from autojit.core.late_interrupts import late_interrupts
from autojit.core.lazy_modules import LazyNames
from autojit.core.machine import Machine
from autojit.core.records import record
from autojit.core.recursion import headroom
from autojit.core.undivided_work import undivided
from autojit.ir.graph import Graph
from autojit.runtime.executable import Executable
from autojit.runtime.kept_steps import found, keep, key_of_step

if TYPE_CHECKING:
    from autojit.codegen.lowered import LoweredStep
    from autojit.schedule.forms import KnownForms
    from autojit.schedule.schedule import Schedule

_NAMES = """allow_in_graph assume_constant_result cudagraph_mark_step_begin disable is_compiling is_dynamo_compiling
    is_exporting list_backends reset"""  # what torch has in its module of this name
__getattr__ = LazyNames(__name__, dict.fromkeys(_NAMES.split(), "autojit.top_level.compiler_names"))


@record
class Options:
    """How a graph is compiled, apart from what memory it is given.

    Attributes:
        forms: what related graphs were compiled to, and from now on this one; equal kernels are made once.
        memory_budget: bytes that temporaries may take; what is live over the peak is computed again, as far as needed.
    """

    forms: KnownForms | None = None
    memory_budget: int | None = None


PLAIN = Options()


@record
class Compiled:
    """An executable with every stage that led to it, and how long each took (seconds)."""

    graph: Graph
    schedule: Schedule
    lowered: LoweredStep
    executable: Executable
    elapsed_s: Mapping[str, float]


def compile(
    graph: Graph,
    donated: Mapping[int, int] | None = None,
    fixed_inputs: Mapping[int, int] | None = None,
    fixed_outputs: Mapping[int, int] | None = None,
    lasting: Collection[int] | None = None,
    options: Options = PLAIN,
) -> Compiled:
    """Compile a graph for the device that its values are on.

    Args:
        graph: a verified graph.
        donated: output position -> position of the input whose storage it overwrites.
        fixed_inputs, fixed_outputs: position -> address of memory that never moves (state).
        lasting: positions of outputs in memory that a call which fails leaves as it was; None: those that are fixed.
        options: see there.

    Raises:
        DeviceError: they are on several, or nothing compiles for it.
        SpecializeSize: the device's code is made for given values of some open size.
        CompileError: an op cannot be lowered; names it and carries the graph text.
    """
    with undivided, uncollected(), headroom():
        backend = backend_of(graph)
        how = donated, fixed_inputs or {}, fixed_outputs or {}, lasting, options
        try:
            return _compiled(graph, backend, backend.machine, *how)
        except HostDecides:
            return _compiled(graph, backend, replace(backend.machine, turns_loops=False), *how)


def _compiled(
    graph: Graph,
    backend: Backend,
    machine: Machine,
    donated: Mapping[int, int] | None,
    fixed_inputs: Mapping[int, int],
    fixed_outputs: Mapping[int, int],
    lasting: Collection[int] | None,
    options: Options,
) -> Compiled:
    """See `compile`; passes and schedule are told of this machine.

    Raises:
        HostDecides: it was taken to turn loops that it cannot turn.
    """
    kept = tuple(fixed_outputs if lasting is None else lasting)
    times = [time.perf_counter()]
    target = backend.target()
    key = key_of_step(graph, machine.kind, (donated, kept, options.memory_budget, machine, target))
    known = None if key is None else found(key)
    if known is not None:
        optimized, plan, lowered = known
        backend.begin(lowered.gemm_dtypes)
        times.append(time.perf_counter())
        executable = backend.build(lowered, fixed_inputs, fixed_outputs, kept)
        return Compiled(optimized, plan, lowered, executable, _elapsed(("found", "native"), times))
    from autojit.passes.pipeline import optimize
    from autojit.schedule.kinds import product_dtypes
    from autojit.schedule.recompute import within_budget
    from autojit.schedule.scheduler import schedule

    stage(f"passes over {len(graph.nodes)} ops")
    optimized = optimize(graph, machine)
    backend.begin(product_dtypes(optimized, machine))
    times.append(time.perf_counter())
    late_interrupts.poll()

    def scheduled(graph: Graph, repeats: bool = True) -> Schedule:
        return schedule(graph, machine, donated, kept, options.forms, repeats=repeats)

    stage(f"schedule of {len(optimized.nodes)} ops")
    plan = scheduled(optimized)
    if options.memory_budget is not None:
        optimized, plan = within_budget(optimized, plan, options.memory_budget, scheduled)
    times.append(time.perf_counter())
    late_interrupts.poll()
    stage(f"code of {len(plan.kernels)} kernels")
    lowered = backend.lower(plan, target)
    times.append(time.perf_counter())
    late_interrupts.poll()
    stage(f"machine code of {len(plan.kernels)} kernels")
    executable = backend.build(lowered, fixed_inputs, fixed_outputs, kept)
    elapsed = _elapsed(("passes", "schedule", "lower", "native"), times)
    if key is not None:
        keep(key, (optimized, plan, lowered))
    return Compiled(optimized, plan, lowered, executable, elapsed)


def _elapsed(stages: Sequence[str], times: Sequence[float]) -> dict[str, float]:
    """Seconds of each stage: from the one of these times to the next, of the last until now."""
    ends = (*times[1:], time.perf_counter())
    return {name: after - before for name, before, after in zip(stages, times, ends, strict=True)}
