"""The order in which a loop body computes: operands first, few values alive, the same numbers."""

from __future__ import annotations

import numpy as np
import pytest

import autojit.ops  # noqa: F401
from autojit.codegen.emission_order import FEWEST, FUNCTION_LATENCY, emission_order
from autojit.core.dtypes import float32
from autojit.ir import parse_graph
from autojit.ir.index import Index
from autojit.ir.op import Op
from autojit.schedule.expressions import Applied, Expr, Expressions, Load
from tests.codegen.agreement import check_compiled


class Body:
    """Expressions under construction."""

    def __init__(self) -> None:
        self.known = Expressions()
        self.exprs = self.known.made

    def load(self) -> Expr:
        return self.known.make(Load, float32, buffer=len(self.exprs), positions=(Index(),))

    def op(self, name: str, *args: Expr) -> Expr:
        return self.known.make(Applied, float32, args, op=Op.registry[name]())


def greatest_number_alive(order: list[Expr], roots: list[Expr]) -> int:
    """Values between their making and their last reading; a root is stored when it is made."""
    last = {a: place for place, expr in enumerate(order) for a in expr.args}
    alive: set[Expr] = set()
    most = 0
    for place, expr in enumerate(order):
        alive = {e for e in alive if last[e] > place} | ({expr} if expr not in roots else set())
        most = max(most, len(alive))
    return most


def sums_of_chains(body: Body, chains: int) -> list[Expr]:
    """Sums over chains of functions, each of a load of its own."""
    total = body.load()
    for _ in range(chains):
        total = body.op("add", total, body.op("exp", body.op("mul", body.load(), body.load())))
    return [total]


@pytest.mark.parametrize("chains", [8, 40, 400])
def test_every_expression_follows_its_operands_once(chains: int) -> None:
    body = Body()
    roots = sums_of_chains(body, chains)
    order = emission_order(roots, lambda e: False)
    assert sorted(e.serial for e in order) == list(range(len(body.exprs)))
    places = {e: place for place, e in enumerate(order)}
    assert all(places[a] < places[e] for e in order for a in e.args)


def test_operands_come_shortly_before_their_last_reader() -> None:
    body = Body()
    roots = sums_of_chains(body, 40)
    assert greatest_number_alive(emission_order(roots, lambda e: False), roots) <= FUNCTION_LATENCY + 4


def test_what_is_known_is_left_out_and_short_bodies_need_no_order() -> None:
    body = Body()
    roots = sums_of_chains(body, 40)
    known = {e for e in body.exprs if isinstance(e, Load)}
    assert not known & set(emission_order(roots, known.__contains__))
    short = Body()
    assert emission_order(sums_of_chains(short, FEWEST // 6), lambda e: False) == []


def test_long_bodies_with_several_results_agree_with_the_interpreter() -> None:
    """In float64, with room for what sixty ops in a row make of a rounding: another order would be wrong altogether."""
    rng = np.random.default_rng(5)
    lines, names = [], ["x", "y"]
    for k in range(60):
        a, b = (names[int(i)] for i in rng.integers(max(0, len(names) - 8), len(names), 2))
        op = str(rng.choice(["add", "mul", "sub", "tanh", "maximum"]))
        lines.append(f"v{k}: f64[1001] = {op}({a});" if op == "tanh" else f"v{k}: f64[1001] = {op}({a}, {b});")
        names.append(f"v{k}")
    bounded = " ".join(f"r{k}: f64[1001] = tanh({name});" for k, name in enumerate(names[-4:]))
    graph = parse_graph(f"(x: f64[1001], y: f64[1001]) {{ {' '.join(lines)} {bounded} return r0, r1, r2, r3 }}")
    check_compiled(graph, [rng.uniform(-1, 1, 1001) for _ in range(2)], ulps=2.0**20)
