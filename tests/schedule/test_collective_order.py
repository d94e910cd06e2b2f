"""Collectives are effects: each runs once, in the program's order, whatever passes and schedule do around them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.compiler import Options, compile
from autojit.core.communicator import join, leave
from autojit.core.config import config
from autojit.distributed import functional
from autojit.ir import Graph, evaluate, parse_graph, verify
from autojit.passes.common_subexpressions import eliminate_common_subexpressions
from autojit.passes.dead_code import eliminate_dead_code
from autojit.transforms.adjoint import adjoint
from tests.distributed.native_world import Noting

W = "group='noting', size=1"


@pytest.fixture
def group() -> Iterator[Noting]:
    made = Noting("noting")
    join(made)
    yield made
    leave("noting")


def random_graph(seed: int) -> Graph:
    """Independent chains of loops, reductions and collectives, of several sizes, some of them read by nobody."""
    draw = np.random.default_rng(seed)
    lines, pool = [], [("x0", 4), ("x1", 64), ("x2", 2048)]
    for k in range(int(draw.integers(6, 18))):
        name, n = pool[int(draw.integers(len(pool)))]
        way = int(draw.integers(5))
        if way < 2:
            combine = ("sum", "max")[way]
            lines.append(f"v{k}: f32[{n}] = all_reduce[{W}, combine='{combine}', is_replicated=False]({name})")
        elif way == 2:
            lines.append(f"v{k}: f32[{n}] = send_recv[{W}, pairs=((0, 0),)]({name})")
        else:
            lines.append(f"v{k}: f32[{n}] = {('tanh', 'cos')[way - 3]}({name})")
        pool.append((f"v{k}", n))
    outputs = ", ".join(dict.fromkeys([pool[-1][0], pool[int(draw.integers(len(pool)))][0]]))
    return verify(parse_graph(f"(x0: f32[4], x1: f32[64], x2: f32[2048]) {{ {'; '.join(lines)}; return {outputs} }}"))


def calls_of(group: Noting, run: Callable[..., Any], *given: Any) -> list[str]:
    group.calls.clear()
    run(*given)
    return [call for call, _ in group.calls]


@pytest.mark.parametrize("seed", range(12))
def test_compiled_code_calls_as_the_interpreter_does(group: Noting, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = random_graph(seed)
    inputs = [np.linspace(-1, 1, n, dtype=np.float32) for n in (4, 64, 2048)]
    expected = calls_of(group, evaluate, graph, inputs)
    back = adjoint(graph)
    bars = [np.ones(v.type.shape, np.float32) for v in graph.outputs]
    wanted = calls_of(group, evaluate, eliminate_dead_code(back), [*inputs, *bars])
    for passes in ("all", "none"):
        monkeypatch.setattr(config, "passes", passes)
        for budget in (None, 1):
            made = compile(graph, options=Options(memory_budget=budget))
            assert calls_of(group, made.executable.run, inputs) == expected
        found = calls_of(group, compile(back).executable.run, [*inputs, *bars])
        assert found == wanted or (passes == "all" and _is_part(found, wanted))


def _is_part(found: list[str], whole: list[str]) -> bool:
    """Whether calls are those of the whole, in order, but for repeated ones."""
    rest = iter(whole)
    return all(call in rest for call in found)


def test_equal_collectives_are_two_and_those_nobody_reads_stay(group: Noting) -> None:
    op = f"all_reduce[{W}, combine='sum', is_replicated=True]"
    graph = verify(
        parse_graph(f"(x: f32[2]) {{ a: f32[2] = {op}(x); b: f32[2] = {op}(x); c: f32[2] = {op}(x); return a, b }}")
    )
    assert len(eliminate_common_subexpressions(graph).nodes) == 3
    assert len(eliminate_dead_code(graph).nodes) == 3
    made = compile(graph)
    assert len(calls_of(group, made.executable.run, [np.ones(2, np.float32)])) == 3


def test_what_a_derivative_computes_again_is_computed_once_where_it_is_there(group: Noting) -> None:
    op = f"all_reduce[{W}, combine='sum', is_replicated=False"
    graph = verify(
        parse_graph(f"(x: f32[2]) {{ a: f32[2] = {op}](x); b: f32[2] = {op}, again=True](x); return a, b }}")
    )
    assert len(eliminate_common_subexpressions(graph).nodes) == 1
    alone = verify(parse_graph(f"(x: f32[2]) {{ b: f32[2] = {op}, again=True](x); return x }}"))
    assert not eliminate_dead_code(alone).nodes


def test_a_step_with_its_gradient_calls_as_eager_mode_does(group: Noting) -> None:
    def reduce(x: Any) -> Any:
        return functional.all_reduce(x, replicated=False, group="noting")

    def loss(x: Any) -> Any:
        y = reduce(x.tanh())
        reduce(x * 3)  # nobody reads it
        z = reduce(y * x)
        return (z * z).sum() + functional.all_gather(x.sum(), group="noting").sum()

    def gradient(x: Any) -> Any:
        value = loss(x)
        (slope,) = aj.autograd.grad(value, (x,))
        return value.detach(), slope

    x = aj.tensor([0.5, -1.0, 2.0], requires_grad=True)
    expected = calls_of(group, gradient, x)
    step = aj.jit(gradient)
    step(x)
    for _ in range(2):
        assert calls_of(group, step, x) == expected


def test_a_loop_calls_in_every_round_and_its_derivative_does_not_repeat_them(group: Noting) -> None:
    def rounds(x: Any) -> Any:
        def body(c: Any, scale: Any) -> tuple[Any, Any]:
            c = functional.all_reduce((c * scale).sin(), replicated=False, group="noting")
            return c, c.sum()

        last, sums = aj.scan(body, x, aj.tensor([1.0, 2.0, 3.0]))
        return last.sum() + (sums * sums).sum()

    def gradient(x: Any) -> Any:
        return aj.autograd.grad(rounds(x), (x,))[0]

    x = aj.tensor([0.5, -1.0], requires_grad=True)
    step = aj.jit(gradient)
    expected = gradient(x)
    found = step(x)
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-6)
    assert len(calls_of(group, step, x)) == 3 + 3  # there and back
