"""Laws of every schedule, on random graphs: order, memory, donation, and that no node is lost or computed twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autojit.codegen.cpu.machine import CPU_MACHINE
from autojit.core.machine import Machine
from autojit.ir import evaluate
from autojit.ir.graph import Value
from autojit.schedule.bands import Band
from autojit.schedule.expressions import Load
from autojit.schedule.kernels import CopyKernel, Epilogue, Kernel, LoopKernel, MatmulKernel, StructuredKernel
from autojit.schedule.schedule import Schedule
from autojit.schedule.scheduler import schedule
from tests.codegen.agreement import disagreement, donations
from tests.fuzz_graphs import ULPS, graph_case
from tests.on_cpu import cpu_with, optimize
from tests.schedule import numpy_target
from tests.schedule.shown import kernels as text_of
from tests.schedule.shown import machine

MACHINES: dict[str, Machine] = {
    "usual": CPU_MACHINE,
    "fine bands": cpu_with(least_bytes=1, slice_bytes=1024, least_slices=2, least_open_kernels=2),
    "whole": machine(bands=None, batch_bytes=0, small_domain=0),
    "few buffers": machine(most_buffers=3, alignment=256, expansion=1 << 30),
    "epilogues": machine(bands=None, epilogue_expressions=96),
}

SEEDS = st.integers(0, 100_000)


def every_machine(law: Callable[[Schedule], None]) -> Callable[[str], None]:
    """The law as a test on random graphs, each scheduled for a machine, with and without donated inputs."""

    @pytest.mark.parametrize("how", MACHINES)
    @settings(max_examples=40)
    @given(seed=SEEDS, is_donated=st.booleans())
    def test(how: str, seed: int, is_donated: bool) -> None:
        graph = optimize(graph_case(seed)[0])
        donated = donations(graph) if is_donated else {}
        found = schedule(graph, MACHINES[how], donated)
        try:
            law(found)
        except AssertionError as error:
            raise AssertionError(f"{error}\nseed {seed}\n{graph}\n{text_of(found)}") from error

    test.__name__ = test.__qualname__ = law.__name__
    test.__doc__ = law.__doc__
    return test  # type: ignore[return-value]


def timed(found: Schedule) -> list[tuple[int, Kernel]]:
    """Every kernel with the place of its item; those of a band or a batch run at the same time."""
    return [(time, k) for time, item in enumerate(found.kernels) for k in getattr(item, "kernels", [item])]


@every_machine
def test_values_are_written_before_they_are_read(found: Schedule) -> None:
    written = set(found.graph.inputs)
    for _, kernel in timed(found):
        assert written.issuperset(kernel.reads())
        written.update(kernel.writes())
    assert written.issuperset(found.outputs)


@every_machine
def test_every_node_is_in_one_kernel_or_computed_where_it_is_read(found: Schedule) -> None:
    count = Counter(node for _, kernel in timed(found) for node in kernel.nodes)
    assert set(count) <= set(found.graph.nodes)
    assert all(times == 1 for times in count.values())
    stored = Counter(value for _, kernel in timed(found) for value in set(kernel.writes()))
    assert all(times == 1 for times in stored.values())
    for node in found.graph.nodes:
        if node not in count:
            assert stored.keys().isdisjoint(node.outputs)
            assert not node.is_kept


@every_machine
def test_a_kernel_writes_what_its_nodes_make(found: Schedule) -> None:
    for _, kernel in timed(found):
        if not isinstance(kernel, CopyKernel):
            made = {value for node in kernel.nodes for value in node.outputs}
            assert made.issuperset(kernel.writes())


@every_machine
def test_buffers_in_use_at_the_same_time_do_not_overlap(found: Schedule) -> None:
    memory = found.memory
    spans: dict[Value, list[int]] = {}
    for time, item in enumerate(found.kernels):
        for value in (*item.writes(), *item.reads()):
            home = memory.home(value)
            if home in memory.offsets:
                spans.setdefault(home, []).append(time)
    ends = {v: memory.offsets[v] + v.type.size_bytes for v in spans}
    for v, mine in spans.items():
        assert memory.offsets[v] % memory.machine.alignment == 0
        assert ends[v] <= memory.arena_bytes
        for w, others in spans.items():
            if v is not w and mine[0] <= others[-1] and others[0] <= mine[-1]:
                assert ends[v] <= memory.offsets[w] or ends[w] <= memory.offsets[v]


@every_machine
def test_everything_that_is_stored_has_one_place(found: Schedule) -> None:
    """A temporary is in the arena, or inside a band; an argument or a result has memory of the caller's."""
    memory = found.memory
    inside = {value for item in found.kernels if isinstance(item, Band) for value in item.offsets}
    assert inside.isdisjoint(memory.offsets)
    for _, kernel in timed(found):
        for value in (*kernel.reads(), *kernel.writes()):
            places = [value in found.graph.inputs, value in found.outputs, value in inside]
            assert sum([*places, memory.home(value) in memory.offsets]) == 1 or (places[0] and places[1])


@every_machine
def test_donated_inputs_are_written_only_after_their_last_reading(found: Schedule) -> None:
    """Kernels of one item run side by side or slice by slice, so the writer's item reads it nowhere but in place."""
    for output in found.overwriting:
        source = _memory_of(found, output)
        (when,) = [time for time, kernel in timed(found) if output in kernel.writes()]
        for time, kernel in timed(found):
            if source not in kernel.reads():
                continue
            assert time <= when
            if time == when:
                assert output in kernel.writes()
                assert _writes_what_it_read(kernel, source, output)


@pytest.mark.parametrize("how", MACHINES)
@settings(max_examples=40)
@given(seed=SEEDS)
def test_a_target_of_another_kind_computes_what_the_graph_means(how: str, seed: int) -> None:
    """NumPy, all loops at once: nothing in a loop program says how a CPU goes through it."""
    graph, inputs = graph_case(seed)
    found = schedule(optimize(graph), MACHINES[how])
    with np.errstate(all="ignore"):
        expected = evaluate(graph, inputs)
    for place, (made, reference) in enumerate(zip(numpy_target.run(found, inputs), expected, strict=True)):
        wrong = disagreement(made, reference, ULPS)
        assert not wrong, f"output {place}: {wrong}\nseed {seed}\n{graph}\n{text_of(found)}"


def _memory_of(found: Schedule, output: Value) -> Value:
    """The input whose memory an output takes; outputs and inputs are paired by their order of donation."""
    places = donations(found.graph)
    return found.graph.inputs[places[found.outputs.index(output)]]


def _writes_what_it_read(kernel: Kernel, source: Value, output: Value) -> bool:
    loops = kernel.epilogue if isinstance(kernel, MatmulKernel) else kernel
    if isinstance(kernel, MatmulKernel) and loops is not None:
        assert source not in (kernel.a.value, kernel.b.value, kernel.init), "other threads read the operands"
    if isinstance(loops, LoopKernel | Epilogue):
        program = loops.program
        buffer = program.in_place[output]
        (store,) = [store for store in program.stores if store.value is output]
        reads = [e.positions for e in program.exprs if isinstance(e, Load) and e.buffer == buffer]
        return program.loads[buffer] is source and all(positions == (store.index,) for positions in reads)
    if isinstance(kernel, StructuredKernel):
        return kernel.operands.index(source) == 0
    return isinstance(kernel, MatmulKernel | CopyKernel) and kernel.reads()[-1] is source
