"""The corpus itself: what its texts show, and that another kernel is seen. ``make golden`` compares all of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import autojit as aj
from autojit.ir import Graph, parse_graph, verify
from tests.golden import archive
from tests.golden.corpus import cases, is_shared
from tests.golden.printing import Printer, lowered_for_target, watched


def graph(op: str = "tanh") -> Graph:
    return verify(parse_graph(f"(x: f32[300]) {{ y: f32[300] = {op}(x); return y }}"))


def test_every_step_is_recorded_and_nothing_else() -> None:
    recorded, _ = archive.read()
    assert {n for n in recorded if not is_shared(n)} == {n for n in cases() if not is_shared(n)}
    assert len(recorded) >= 60


@pytest.mark.parametrize("name", ["op_tanh", "op_matmul", "op_scan", "op_sort"])
def test_an_op_is_as_recorded(name: str) -> None:
    recorded, kernels = archive.read()
    printer = Printer()
    found = {name: cases()[name](printer)}
    assert archive.differences(found, printer.kernels, {name: recorded[name]}, kernels) == {}


def test_a_text_names_no_object_of_the_process() -> None:
    recorded, kernels = archive.read()
    for text in (*recorded.values(), *kernels.values()):
        assert " object at 0x" not in text
        assert str(Path.home()) not in text


def test_another_kernel_is_a_difference_with_its_text(tmp_path: Path) -> None:
    first, second = Printer(), Printer()
    old = {"step": first.step(lowered_for_target(graph("tanh")))}
    new = {"step": second.step(lowered_for_target(graph("exp")))}
    archive.write(old, first.kernels, tmp_path)
    assert archive.read(tmp_path) == (old, first.kernels)
    assert archive.differences(old, first.kernels, *archive.read(tmp_path)) == {}
    (shown,) = archive.differences(new, second.kernels, *archive.read(tmp_path)).values()
    assert all("define" in text for text in shown)
    archive.write(new, second.kernels, tmp_path)
    assert archive.read(tmp_path) == (new, second.kernels)


def test_what_is_compiled_inside_is_seen_and_nothing_after() -> None:
    step = aj.jit(lambda x: (x * 2).sum())
    with watched(Printer()) as texts:
        step(aj.tensor(np.ones(5)))
        step(aj.tensor(np.ones(5)))
    assert len(texts) == 1
    aj.jit(lambda x: x + 3)(aj.tensor(np.ones(5)))
    assert len(texts) == 1
