"""Scans as turns of a run: which memory each turn reads and writes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import autojit.ops  # noqa: F401
from autojit.codegen.cuda import unrolled
from autojit.codegen.cuda.lower import lower
from autojit.codegen.cuda.machine import CUDA_MACHINE
from autojit.codegen.lowered import DeviceCopy, DeviceRun, Launch, LoweredStep, Offset, Scratch
from autojit.ir import parse_graph
from autojit.ir.graph import Graph, Node, Value
from autojit.ops.scan_steps import Scan
from autojit.passes.pipeline import optimize
from autojit.schedule.scheduler import schedule
from tests.codegen.cuda.test_lower import TARGET, heads, on_host

X = "f32[8]@cuda:0"
BODIES = {
    "one kernel": (
        f"(c: {X}, x: {X}, w: {X}) {{ a: {X} = mul(c, w); b: {X} = add(a, x); s: {X} = sin(b); return s, b }}"
    ),
    "history": f"(c: {X}, x: {X}, w: {X}) {{ a: {X} = mul(c, w); b: {X} = add(a, x); return b, c }}",
    "twice": f"(c: {X}, x: {X}, w: {X}) {{ a: {X} = mul(c, w); b: {X} = add(a, x); return b, b }}",
    "product": (
        f"(c: {X}, x: {X}, w: f32[8, 8]@cuda:0) {{ r: f32[1, 8]@cuda:0 = reshape[shape=(1, 8)](c); "
        f"p: f32[1, 8]@cuda:0 = matmul(r, w); v: {X} = reshape[shape=(8,)](p); b: {X} = add(v, x); "
        f"s: {X} = sin(b); return s, c }}"
    ),
}


def scan(body: str, length: int, *, reverse: bool = False) -> LoweredStep:
    """A step that is a scan with a carry and a stack."""
    op = Scan(parse_graph(body), 1, 1, length, reverse)
    inputs = [Value(v.type) for v in op.body.inputs]
    inputs[1] = Value(inputs[1].type.with_shape((length, 8)))
    outputs = tuple([Value(t) for t in op.result_type(*[v.type for v in inputs])])
    graph = optimize(Graph(tuple(inputs), (Node(op, tuple(inputs), outputs),), outputs), CUDA_MACHINE)
    return unrolled_step(graph)


def unrolled_step(graph: Graph) -> LoweredStep:
    return lower(schedule(graph, CUDA_MACHINE), TARGET, on_host)


Part = tuple[Value | Scratch, int, int]


def _part(place: Value | Offset | Scratch) -> Part:
    if isinstance(place, Offset):
        assert place.size_bytes is not None
        return place.value, place.offset_bytes, place.offset_bytes + place.size_bytes
    return place, 0, place.size_bytes if isinstance(place, Scratch) else place.type.size_bytes


def accesses(run: DeviceRun) -> list[tuple[list[Part], list[Part]]]:
    """Of every launch of a run: what it reads, what it writes."""
    found: list[tuple[list[Part], list[Part]]] = []
    for item in run.work:
        if isinstance(item, DeviceCopy):
            found.append(([_part(item.source)], [_part(item.target)]))
            continue
        assert isinstance(item, Launch)
        pairs = list(zip(item.buffers, item.kernel.buffers, strict=True))
        reads = [_part(place) for place, buffer in pairs if buffer.role != "writes"]
        found.append((reads, [_part(place) for place, buffer in pairs if buffer.role != "reads"]))
    return found


def _overlap(a: Part, b: Part) -> bool:
    return a[0] is b[0] and a[1] < b[2] and b[1] < a[2]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [2, 5])
@pytest.mark.parametrize("name", BODIES)
def test_turns_write_every_slice_once_and_read_nothing_that_is_not_written(
    name: str, length: int, reverse: bool
) -> None:
    step = scan(BODIES[name], length, reverse=reverse)
    assert heads(step) == ["@aj_device"]
    (run,) = step.device_runs()
    first, stack = step.schedule.graph.outputs
    written: list[Part] = []
    for reads, writes in accesses(run):
        assert not any(_overlap(a, b) for a in reads for b in writes), (
            "a product reads all of its operands as it writes"
        )
        for part in reads:
            assert part[0] in step.schedule.graph.inputs or any(_overlap(part, other) for other in written)
        written += writes
    slices = sorted((start, end) for value, start, end in written if value is stack)
    assert slices == [(32 * k, 32 * k + 32) for k in range(length)]
    assert [value for value, *_ in written].count(first) >= 1
    last = next(part for part in reversed(written) if part[0] is first)
    assert last[1:] == (0, 32)


def read_slices(run: DeviceRun, stack: Value) -> list[int]:
    return [start // 32 for reads, _ in accesses(run) for value, start, _ in reads if value is stack]


def test_slices_are_read_in_the_order_of_the_turns() -> None:
    for reverse, expected in ((False, [0, 1, 2, 3]), (True, [3, 2, 1, 0])):
        step = scan(BODIES["one kernel"], 4, reverse=reverse)
        assert read_slices(step.device_runs()[0], step.schedule.graph.inputs[1]) == expected


@pytest.mark.parametrize(("length", "most", "rest"), [(7, 3, 1), (6, 3, 0), (5, 4, 1), (5, 1, 0)])
def test_what_is_too_long_is_a_loop_over_runs_and_what_is_left(
    length: int, most: int, rest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unrolled, "MOST_LAUNCHES", most)
    step = scan(BODIES["one kernel"], length)
    assert heads(step) == ["@aj_loop", *["@aj_device"] * (rest > 0)]
    (inner,) = step.plans_inside()
    (turns,) = inner.device_runs()
    assert sum(isinstance(item, Launch) for item in turns.work) == most
    launches = [item for run in step.device_runs() for item in run.work if isinstance(item, Launch)]
    assert len(launches) == rest


def test_turns_share_texts_and_the_memory_of_partial_results() -> None:
    body = (
        "(c: f32[]@cuda:0, x: f32[40000]@cuda:0) "
        "{ s: f32[]@cuda:0 = sum[axes=(0,)](x); d: f32[]@cuda:0 = add(c, s); return d }"
    )
    op = Scan(parse_graph(body), 1, 1, 6, False)
    inputs = Value(op.body.inputs[0].type), Value(op.body.inputs[1].type.with_shape((6, 40000)))
    output = Value(op.body.outputs[0].type)
    step = unrolled_step(Graph(inputs, (Node(op, inputs, (output,)),), (output,)))
    launches = [item for item in step.device_runs()[0].work if isinstance(item, Launch)]
    assert len({id(item.kernel) for item in launches}) == len(launches) // 6
    partials = [item.partials for item in launches if item.kernel.partial_bytes]
    assert len(partials) == 6 and len(set(map(id, partials))) == 1 and partials[0] is not None


@pytest.mark.parametrize(
    "body",
    [
        f"(c: f32[8], x: {X}) {{ y: {X} = sin(x); d: f32[8] = add(c, c); return d, y }}",
        f"(c: {X}, x: f32[8]) {{ y: f32[8] = sin(x); d: {X} = add(c, c); return d, y }}",
    ],
)
def test_a_scan_that_the_host_takes_part_in_is_turned_by_it(body: str) -> None:
    step = scan(body, 4)
    assert heads(step) == ["@aj_loop"] and not step.fallbacks
    assert step.plans_inside()[0].device_runs()


def test_a_loop_of_the_host_in_a_step_of_a_device_is_the_hosts() -> None:
    body = "(c: f32[8], x: f32[8]) { d: f32[8] = add(c, x); return d }"
    op = Scan(parse_graph(body), 1, 1, 4, False)
    types: Sequence[str] = ("f32[8]", "f32[4, 8]", X)
    given = parse_graph(f"({', '.join(f'v{k}: {t}' for k, t in enumerate(types))}) {{ y: {X} = sin(v2); return y }}")
    output = Value(op.body.outputs[0].type)
    node = Node(op, given.inputs[:2], (output,))
    step = unrolled_step(Graph(given.inputs, (*given.nodes, node), (*given.outputs, output)))
    assert sorted(heads(step)) == ["@aj_device", "@aj_loop"]
    assert not step.plans_inside()[0].device_runs()
