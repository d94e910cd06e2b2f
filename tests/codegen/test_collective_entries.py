"""Collectives of compiled steps: native calls with the group's words, in pieces, with errors; call-backs without."""

from __future__ import annotations

import ctypes
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.compiler import compile
from autojit.core.communicator import COLLECTIVES, communicator, join, leave
from autojit.core.errors import ArgumentError, UsageError
from autojit.dispatch.dispatch import apply
from autojit.distributed import functional
from autojit.ir import evaluate, parse_graph, verify
from autojit.ops.collectives import AllReduce, Wait
from tests.distributed.every_collective import every_collective
from tests.distributed.native_world import Failed, NativeAlone, Noting

W = "group='native', size=1"
KINDS = ("f64", "f32", "f16", "bf16", "i8", "u8", "i16", "i32", "i64", "bool", "c64", "c128")


@pytest.fixture
def group(request: pytest.FixtureRequest) -> Iterator[NativeAlone]:
    made = NativeAlone(getattr(request, "param", 2**31 - 1), "native")
    join(made)
    yield made
    leave("native")


@pytest.mark.parametrize("group", [2**31 - 1, 7], indirect=True)
@pytest.mark.parametrize("kind", KINDS)
def test_native_calls_give_what_eager_ones_give(group: NativeAlone, kind: str) -> None:
    for n in (0, 5, 23) if kind == "f64" else (23,):
        graph = every_collective(kind, n, 1, "native")
        x = np.random.default_rng(0).standard_normal(n).astype(np.float32)
        x[n // 2 : n // 2 + 1] = np.nan if kind[0] in "fb" and kind != "bool" else 0
        given = x.astype(graph.inputs[0].type.dtype.numpy)
        made = compile(graph)
        assert made.lowered.fallbacks == ()
        found = made.executable.run([given, given[None]])
        for v, a, b in zip(graph.outputs, evaluate(graph, [given, given[None]]), found, strict=True):
            assert np.array_equal(a.astype(np.complex128), b.astype(np.complex128), equal_nan=True), v
        assert n > 0 or ("all_reduce", 0) in group.calls  # ranks that run line by line make the call, too
        assert all(count <= group.made.most for _, count in group.calls)


BEGUN = f"all_reduce[{W}, combine='sum', is_replicated=True, manner='begun']"
WAIT = f"wait[{W}, is_replicated=True]"


def test_what_is_begun_is_there_after_its_wait_and_its_operand_stays_until_then(group: NativeAlone) -> None:
    """Whatever is computed, and has its memory, in between."""
    waits = " ".join(f"w{k}: f32[5000] = {WAIT}(b{k}, t{k});" for k in (2, 0, 1))
    begun = [f"b{k}: f32[5000] = {BEGUN}(t{k});" for k in range(3)]
    text = (
        f"(x: f32[5000]) {{ t0: f32[5000] = tanh(x); {begun[0]} t1: f32[5000] = exp(x); {begun[1]} "
        f"t2: f32[5000] = sin(t1); {begun[2]} u: f32[5000] = exp(t2); v: f32[5000] = cos(u); {waits} "
        "y: f32[5000] = add(w0, w1); z: f32[5000] = mul(y, w2); o: f32[5000] = add(z, v); return o }"
    )
    graph = verify(parse_graph(text))
    made = compile(graph)
    assert made.lowered.fallbacks == ()
    x = np.linspace(-1, 1, 5000, dtype=np.float32)
    for _ in range(3):
        np.testing.assert_allclose(made.executable.run([x])[0], evaluate(graph, [x])[0], rtol=1e-5, atol=1e-5)
        assert not group.begun
    assert group.calls[-3:] == [("begun all_reduce", 5000)] * 3


@pytest.mark.parametrize("group", [2**31 - 1, 20_000, 7], indirect=True)
def test_all_that_can_be_begun_is(group: NativeAlone) -> None:
    """In whatever order it is waited for; what one call cannot take is done at once, in pieces."""
    x, p = "f32[5000]", "f32[1, 5000]"
    ops = {
        f"all_gather[{W}, is_replicated=True": ("t", p, "True"),
        f"broadcast[{W}, root=0, is_replicated=True": ("t", x, "True"),
        f"reduce_scatter[{W}": ("u", x, "False"),
        f"all_to_all[{W}": ("u", p, "False"),
        f"all_reduce[{W}, combine='prod', is_replicated=False": ("t", x, "False"),
    }
    begun = "".join(f"b{k}: {of[1]} = {op}, manner='begun']({of[0]}); " for k, (op, of) in enumerate(ops.items()))
    kinds = list(enumerate(ops.values()))[::-1]
    waits = "".join(f"w{k}: {of[1]} = wait[{W}, is_replicated={of[2]}](b{k}, {of[0]}); " for k, of in kinds)
    graph = verify(
        parse_graph(
            f"(x: {x}) {{ t: {x} = tanh(x); u: {p} = reshape[shape=(1, 5000)](x); {begun} v: {x} = exp(t); "
            f"{waits} return v, {', '.join(f'w{k}' for k, _ in kinds)} }}"
        )
    )
    made = compile(graph)
    assert made.lowered.fallbacks == ()
    given = np.linspace(-1, 1, 5000, dtype=np.float32)
    for _ in range(3):
        group.calls.clear()
        for found, expected in zip(made.executable.run([given]), evaluate(graph, [given]), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
        assert not group.begun
        waited = [name for name, _ in group.calls if name.startswith("begun")]
        if group.made.most > 20_000:
            assert waited == ["begun all_reduce", *(f"begun {op.partition('[')[0]}" for op in list(ops)[-2::-1])]
        assert all(count <= group.made.most for _, count in group.calls)


@pytest.mark.parametrize("ending", ["y: f32[9] = exp(b); return y", "return b", "return t"])
def test_what_is_not_awaited_ends_where_it_began(group: NativeAlone, ending: str) -> None:
    graph = verify(parse_graph(f"(x: f32[9]) {{ t: f32[9] = tanh(x); b: f32[9] = {BEGUN}(t); {ending} }}"))
    made = compile(graph)
    x = np.linspace(-1, 1, 9, dtype=np.float32)
    np.testing.assert_allclose(made.executable.run([x])[0], evaluate(graph, [x])[0], rtol=1e-6)
    assert group.calls[-1] == ("begun all_reduce", 9)  # ranks that wait for it later make the same call
    assert not group.begun


def test_a_step_that_fails_leaves_nothing_begun(group: NativeAlone) -> None:
    """Its buffers may be somebody else's memory afterwards."""

    @aj.jit
    def step(x: aj.Tensor, at: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
        y = x * 2
        pending = apply(AllReduce("native", 1, "sum", True, manner="begun"), y)
        found = x[at]
        return apply(Wait("native", 1, True), pending, y), found

    x = aj.arange(3.0)
    for _ in range(2):
        assert step(x, aj.tensor([1]))[0].tolist() == [0, 2, 4]
        group.calls.clear()
        with pytest.raises(IndexError):
            step(x, aj.tensor([5]))
        assert (group.calls, group.begun) == ([("begun all_reduce", 3)], {})


def test_what_a_function_returns_is_an_error_and_state_is_as_before(group: NativeAlone) -> None:
    state = aj.zeros(3)

    @aj.jit
    def step(x: aj.Tensor) -> aj.Tensor:
        state.add_(1)
        total = functional.all_reduce(x * 2, group="native")
        state.mul_(total)
        return total

    assert step(aj.ones(3)).tolist() == [2, 2, 2]
    assert state.tolist() == [2, 2, 2]
    assert step.stats()["fallbacks"] == 0
    group.returned = 5
    for _ in range(2):
        with pytest.raises(Failed, match="all_reduce returned 5"):
            step(aj.ones(3))
        assert state.tolist() == [2, 2, 2]
    group.returned = 0
    step(aj.ones(3))
    assert state.tolist() == [6, 6, 6]


def test_a_watchdog_is_told_which_call_a_step_is_in(group: NativeAlone) -> None:
    def calls(x: aj.Tensor) -> aj.Tensor:
        x = functional.all_reduce(functional.all_gather(x, group="native").sum(0), group="native")
        return functional.broadcast(functional.all_reduce(x, "max", group="native"), group="native")

    step = aj.jit(calls)
    step(aj.ones(3))
    group.seen.clear()
    first = int(group.watched[0])
    step(aj.ones(3))
    numbers = [1 + COLLECTIVES.index(name) for name in ("all_gather", "all_reduce", "all_reduce", "broadcast")]
    assert group.seen == [(first + k, number) for k, number in enumerate(numbers, 1)]
    assert group.watched.tolist() == [first + 4, 0]
    group.returned = 3
    with pytest.raises(Failed):
        step(aj.ones(3))
    assert group.watched[1] == 0


@pytest.mark.skipif(sys.platform != "linux", reason="semaphores without names are Linux's")
def test_other_threads_run_while_a_step_waits_for_other_ranks(group: NativeAlone) -> None:
    """However short the step: the watchdog is such a thread. The group's all-reduce waits until a thread has come."""
    semaphore, library = ctypes.create_string_buffer(64), ctypes.CDLL(None)
    library.sem_init(semaphore, 0, 0)
    waiting: Any = ctypes.cast(library.sem_wait, ctypes.c_void_p).value
    group.made = replace(group.made, all_reduce=waiting, in_place=ctypes.addressof(semaphore))
    join(group)
    is_done = threading.Event()

    def come() -> None:
        while not is_done.wait(0.001):
            if group.watched[1]:
                library.sem_post(semaphore)

    thread = threading.Thread(target=come)
    thread.start()
    before = signal.signal(signal.SIGALRM, lambda *_: None)  # ends the wait by an error where no thread can run
    signal.alarm(20)
    try:
        step = aj.jit(lambda x: functional.all_reduce(x * 2, group="native"))
        for _ in range(3):
            assert step(aj.ones(3)).tolist() == [2, 2, 2]
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        is_done.set()
        thread.join()


def test_a_step_uses_the_group_that_has_the_name_now(group: NativeAlone) -> None:
    step = aj.jit(lambda x: functional.all_reduce(x, group="native"))
    step(aj.ones(3))
    step(aj.ones(3))
    again = NativeAlone(name="native")
    join(again)
    before = len(group.calls)
    assert step(aj.ones(3)).tolist() == [1, 1, 1]
    assert again.calls == [("all_reduce", 3)]
    assert len(group.calls) == before
    leave("native")
    with pytest.raises((UsageError, ArgumentError), match="has not joined"):
        step(aj.ones(3))
    join(again)
    again.size = 2
    join(again)
    with pytest.raises(ArgumentError, match="has 2 ranks now"):
        step(aj.ones(3))


def test_a_group_without_functions_is_called_back_and_counted() -> None:
    join(Noting("noting"))
    try:
        step = aj.jit(lambda x: functional.all_reduce(aj.tanh(x), group="noting"))
        for _ in range(3):
            assert step(aj.zeros(2)).tolist() == [0, 0]
        assert step.stats()["fallbacks"] == 1
        assert "called back: all_reduce" in step.explain()
        assert communicator("noting").calls == [("all_reduce sum float32[2]", 0.0)] * 3  # type: ignore[attr-defined]
    finally:
        leave("noting")


def test_open_sizes_are_told_at_the_call(group: NativeAlone) -> None:
    step = aj.jit(lambda x: functional.all_gather(x * 2, group="native").sum())
    for n in (3, 5, 8, 21):
        assert float(step(aj.ones(n))) == 2 * n
    assert step.stats()["captures"] == 2
    assert group.calls[-1] == ("all_gather", 4 * 21)


@pytest.mark.parametrize("combine", ["sum", "max"])
def test_a_temporary_is_combined_where_it_is(group: NativeAlone, combine: str) -> None:
    reduce = f"all_reduce[{W}, combine='{combine}', is_replicated=True]"
    text = f"(x: f32[5000]) {{ t: f32[5000] = tanh(x); a: f32[5000] = {reduce}(t); y: f32[5000] = exp(a); %s }}"
    x = np.linspace(-1, 1, 5000, dtype=np.float32)
    for end, size in ("return y", 20_000), ("z: f32[5000] = add(y, t); return z", 40_000):
        graph = verify(parse_graph(text % end))
        made = compile(graph)
        assert size <= made.schedule.memory.peak_bytes < size + 1000  # one buffer where nobody reads it afterwards
        np.testing.assert_allclose(made.executable.run([x])[0], evaluate(graph, [x])[0], rtol=1e-6, atol=1e-6)
    graph = verify(parse_graph(f"(x: f32[50]) {{ a: f32[50] = {reduce}(x); return a }}"))
    found = compile(graph).executable.run([x[:50]])
    np.testing.assert_array_equal(found[0], x[:50])
    np.testing.assert_array_equal(x[:50], np.linspace(-1, 1, 5000, dtype=np.float32)[:50])  # arguments are the caller's
