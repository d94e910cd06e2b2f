"""Programs that schedules of related graphs share."""

from __future__ import annotations

import numpy as np
import pytest

from autojit.compiler import Options, compile
from autojit.ir import evaluate, parse_graph
from autojit.schedule.forms import KnownForms
from tests.on_cpu import schedule

SOFTMAX = """(x: f32[{n}, 3]) {{
  m: f32[{n}] = sum[axes=(1,)](x);
  r: f32[{n}, 1] = reshape[shape=({n}, 1)](m); w: f32[{n}, 3] = broadcast_to[shape=({n}, 3)](r);
  d: f32[{n}, 3] = sub(x, w); e: f32[{n}, 3] = exp(d); s: f32[{n}] = sum[axes=(1,)](e);
  return {returned} }}"""


def test_equal_groups_of_two_graphs_have_one_program() -> None:
    known = KnownForms()
    first, second = (schedule(parse_graph(SOFTMAX.format(n=4, returned="s")), forms=known) for _ in range(2))
    programs = [kernel.program for plan in (first, second) for kernel in plan.kernels]  # type: ignore[union-attr]
    assert len({id(p.form) for p in programs}) == len(known) == len(programs) // 2
    assert {v.name for v in programs[0].loads} == {"x"} and programs[0].loads != programs[-1].loads


@pytest.mark.parametrize("returned", ["s", "e", "s, e", "e, s, d"])
def test_what_is_compiled_with_known_forms_computes_its_own_graph(returned: str) -> None:
    known = KnownForms()
    for n in (4, 5, 4):
        for wanted in ("s", returned, "d, s"):
            graph = parse_graph(SOFTMAX.format(n=n, returned=wanted))
            x = np.random.default_rng(n).standard_normal((n, 3)).astype(np.float32)
            for made, expected in zip(
                compile(graph, options=Options(known)).executable.run([x]), evaluate(graph, [x]), strict=True
            ):
                np.testing.assert_allclose(made, expected, rtol=1e-6, atol=1e-6)


def test_an_output_in_its_inputs_place_does_not_become_another_graphs() -> None:
    graph = parse_graph("(x: f32[4]) { y: f32[4] = tanh(x); return y }")
    known, x = KnownForms(), np.linspace(-1, 1, 4).astype(np.float32)
    for is_donated in (True, False, True):
        held = x.copy()
        address = held.ctypes.data
        places = ({0: 0}, {0: address}, {0: address}) if is_donated else (None, None, None)
        executable = compile(graph, *places, options=Options(known)).executable
        if is_donated:
            executable.run_with([], [])
            np.testing.assert_allclose(held, np.tanh(x), rtol=1e-6)
        else:
            np.testing.assert_allclose(executable.run([held])[0], np.tanh(x), rtol=1e-6)
            np.testing.assert_array_equal(held, x)


def test_open_sizes_are_not_shared() -> None:
    known = KnownForms()
    schedule(parse_graph("(x: f32[n]) { y: f32[n] = tanh(x); return y }"), forms=known)
    assert not known
