"""Lowered steps on disk: what is found is what was kept, for who records the same; and nothing else is."""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit import compiler
from autojit.core.config import config
from autojit.core.device import CPU
from autojit.core.dtypes import float32
from autojit.ir import Graph, Node, Op, parse_graph
from autojit.runtime import kept_steps
from autojit.runtime.kept_steps import StepKey, key_of_step
from autojit.runtime.object_cache import ObjectCache
from tests.acceptance.programs import PROGRAMS
from tests.golden.further_steps import STEPS
from tests.golden.printing import Printer
from tests.ops.laws import graph_of

from .programs import run_python

ALWAYS = ("scan_gradient", "cond_gradient", "open_size_scan", "sort_and_gather")  # --slow takes all


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[bool]]:
    """Steps are kept in a cache of the test's own; of each graph that is compiled, whether it was found there."""
    outcomes: list[bool] = []
    cache = ObjectCache(tmp_path / "steps")

    def counted(key: StepKey) -> Any:
        step = kept_steps.found(key)
        outcomes.append(step is not None)
        return step

    monkeypatch.setattr(config, "keep_steps", True)
    monkeypatch.setattr(kept_steps, "default_cache", lambda: cache)
    monkeypatch.setattr(compiler, "found", counted)
    yield outcomes


def printed(step: Any) -> tuple[str, dict[str, str]]:
    printer = Printer()
    return printer.step(step[2]), printer.kernels


def program(name: str) -> Callable[[], None]:
    if name in STEPS:
        return STEPS[name]

    def run() -> None:
        made = PROGRAMS[name].build("tiny")
        aj.jit(made.step)(*made.args)

    return run


@pytest.mark.parametrize(
    "name", [n if n in ALWAYS else pytest.param(n, marks=pytest.mark.slow) for n in (*STEPS, *PROGRAMS)]
)
def test_what_is_found_is_what_was_kept(name: str, found: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []

    def compare(key: StepKey, step: object) -> None:
        kept_steps.keep(key, step)
        compared.append(printed(kept_steps.found(key)) == printed(step))

    monkeypatch.setattr(compiler, "keep", compare)
    program(name)()
    assert compared and all(compared)


def training() -> list[float]:
    """Dropout, open sizes, Adam, and a look-up; the losses of five steps, behind the number of captures."""
    aj.manual_seed(0)
    model = aj.nn.Sequential(aj.nn.Embedding(20, 8), aj.nn.Linear(8, 16), aj.nn.Dropout(0.2), aj.nn.Linear(16, 3))
    optimizer = aj.optim.Adam(model.parameters(), 1e-2)

    @aj.jit
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    losses = [step(aj.tensor(np.arange(n) % 20)).item() for n in (7, 7, 5, 9, 7)]
    return [step.stats()["captures"], *losses]


def test_a_step_that_is_recorded_again_is_found_and_computes_the_same_bits(found: list[bool]) -> None:
    first = training()
    assert not any(found)
    assert first[0] <= 2  # the size stays open
    count = len(found)  # with kernels of eager mode that no test has drawn numbers by before
    assert training() == first
    assert found[count:]
    assert all(found[count:])


def test_errors_of_a_found_step_name_the_line(found: list[bool]) -> None:
    def message() -> str:
        step = aj.jit(lambda table, k: (table[k] * 2).sum())
        with pytest.raises(IndexError) as raised:
            step(aj.ones(3), aj.tensor(np.array([1, 5])))
        return str(raised.value)

    assert message() == message()
    assert found[-1]


def test_keys_are_equal_where_graphs_say_the_same() -> None:
    texts: dict[str, str] = {}
    digests: dict[str, str] = {}
    for op_class in Op.registry.load().values():
        if not op_class.__module__.startswith("autojit.ops.") or not hasattr(op_class, "samples"):
            continue
        for op, inputs in op_class.samples(float32)[:3]:
            graph = graph_of(op, inputs)
            digest = StepKey(graph, CPU.type, ()).digest
            assert digests.setdefault(str(graph), digest) == digest
            assert texts.setdefault(digest, str(graph)) == str(graph)
    assert len(texts) > 100


def test_a_key_says_which_nodes_have_one_op() -> None:
    """What is kept names objects by their numbers, and these depend on it."""
    text = "(x: f32[3]) { y: f32[3] = tanh(x); z: f32[3] = tanh(y); return z }"
    apart = parse_graph(text)
    first, second = apart.nodes
    op = type(first.op)()
    nodes = [
        (Node(a, first.inputs, first.outputs), Node(b, second.inputs, second.outputs))
        for a, b in ((op, op), (op, type(op)()))
    ]
    digests = [StepKey(Graph(apart.inputs, made, apart.outputs), CPU.type, ()).digest for made in nodes]
    assert digests[0] != digests[1]


def test_a_key_says_what_the_step_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = parse_graph("(x: f32[3]) { y: f32[3] = tanh(x); return y }")
    digests = [
        StepKey(graph, CPU.type, facts).digest for facts in ((), ({0: 0},), (None, (0,)), (1 << 20,), (-0.0,), (0.0,))
    ]
    monkeypatch.setattr(config, "check", not config.check)
    digests.append(StepKey(graph, CPU.type, ()).digest)
    assert len(set(digests)) == len(digests)


def test_a_key_says_which_variables_are_set_but_for_those_that_change_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = parse_graph("(x: f32[3]) { y: f32[3] = tanh(x); return y }")
    digests = [StepKey(graph, CPU.type, ()).digest]
    for name in kept_steps._OF_RUNS:
        monkeypatch.setenv(name, "tried")
    assert StepKey(graph, CPU.type, ()).digest == digests[0]
    for name, text in (("AUTOJIT_PASSES", "tried"), ("AUTOJIT_UNHEARD_OF", "1"), ("AUTOJIT_UNHEARD_OF", "2")):
        monkeypatch.setenv(name, text)
        digests.append(StepKey(graph, CPU.type, ()).digest)
    assert len(set(digests)) == len(digests)


def test_what_only_this_process_has_is_compiled_and_not_kept(found: list[bool]) -> None:
    seen = []

    @aj.jit
    def step(x: Any) -> Any:
        aj.debug.callback(lambda v: seen.append(float(v)), x.sum())
        return x * 2

    for _ in range(2):
        assert step(aj.ones(3)).tolist() == [2, 2, 2]
    assert seen == [3, 3]
    assert not any(found)


def test_an_entry_that_names_anything_else_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = ObjectCache(tmp_path / "steps")
    monkeypatch.setattr(config, "keep_steps", True)
    monkeypatch.setattr(kept_steps, "default_cache", lambda: cache)
    graph = parse_graph("(x: f32[3]) { y: f32[3] = tanh(x); return y }")
    key = key_of_step(graph, CPU.type, ())
    assert key is not None
    for thing in (os.getcwd, io.BytesIO, pickle.loads):
        cache.put_blob(key.digest, pickle.dumps(thing))
        assert kept_steps.found(key) is None
    through = b"\x80\x04\x8c\x13autojit.core.config\x8c\x09os.getcwd\x93."  # what a module of autojit has imported
    cache.put_blob(key.digest, through)
    assert kept_steps.found(key) is None


def test_processes_find_each_others_steps(tmp_path: Path) -> None:
    code = """
    import autojit as aj
    def loop(x):
        return aj.scan(lambda c, row: (c + aj.tanh(row), c), aj.zeros(4), x)[0].sum()
    step = aj.jit(lambda x: loop(x) + x.sort().values[0].sum())
    step(aj.ones(5, 4))
    print("found" in step.explain(verbose=True))
    """
    asked = {"AUTOJIT_CACHE_DIR": str(tmp_path), "AUTOJIT_KEEP_STEPS": "1"}
    seen = [run_python(code, PYTHONHASHSEED=seed, **asked).strip() for seed in ("1", "2")]
    assert seen == ["False", "True"]
