"""Random nests of scans, loops and branches with closures: compiled values and derivatives equal eager ones.

A program is text in the form of nested tuples; ``run`` gives its meaning. Seeds are fixed; ``--slow`` draws more.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import autojit as aj
from tests.control_flow.agreement import agree

UNARY = {
    "sin": lambda a, w: a.sin(),
    "tanh": lambda a, w: a.tanh(),
    "product": lambda a, w: a @ w,
    "flip": lambda a, w: a.flip(0),
}
BINARY = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b * 0.5,
    "sub": lambda a, b: a - b,
    "mean": lambda a, b: a * 0.3 + b.sum() * 0.1,
    "where": lambda a, b: aj.where(a > 0.1, a * 0.7, b),
}


def expression(draw: random.Random, names: list[str], depth: int) -> Any:
    if depth == 0 or draw.random() < 0.2:
        return draw.choice(names)
    if draw.random() < 0.4:
        return draw.choice(list(UNARY)), expression(draw, names, depth - 1)
    return draw.choice(list(BINARY)), expression(draw, names, depth - 1), expression(draw, names, depth - 1)


def statement(draw: random.Random, names: list[str], depth: int) -> Any:
    kind = draw.choice(["plain", "scan", "while", "cond"]) if depth else "plain"
    if kind == "plain":
        return kind, expression(draw, names, 3)
    first = expression(draw, names, 1)
    if kind == "scan":
        body = program(draw, ["c", "x", *names], depth - 1, 2)
        return kind, first, body, draw.choice(names), draw.random() < 0.5, draw.randrange(1, 4)
    if kind == "while":
        return kind, first, program(draw, ["c", *names], depth - 1, 1), draw.randrange(4)
    return kind, first, program(draw, names, depth - 1, 1), program(draw, names, depth - 1, 1)


def program(draw: random.Random, names: list[str], depth: int, results: int) -> Any:
    names = list(names)
    lines = []
    for _ in range(draw.randrange(1, 3)):
        lines.append((f"t{depth}{len(names)}", statement(draw, names, depth)))
        names.append(lines[-1][0])
    return lines, [expression(draw, names[-3:], 1) for _ in range(results)]


def value(e: Any, known: dict[str, aj.Tensor], w: aj.Tensor) -> aj.Tensor:
    if isinstance(e, str):
        return known[e]
    operands = [value(part, known, w) for part in e[1:]]
    return UNARY[e[0]](operands[0], w) if e[0] in UNARY else BINARY[e[0]](*operands)


def line(s: Any, known: dict[str, aj.Tensor], w: aj.Tensor) -> aj.Tensor:
    first = value(s[1], known, w)
    if s[0] == "plain":
        return first
    if s[0] == "scan":
        stack = aj.stack([known[s[3]] * (0.3 * k + 0.1) for k in range(s[5])])

        def step(c: aj.Tensor, x: aj.Tensor) -> Any:
            c, y = run(s[2], {**known, "c": c, "x": x}, w)
            return c.tanh(), y

        last, ys = aj.scan(step, first, stack, reverse=s[4])
        return last + ys.sum(0) * 0.1
    if s[0] == "while":

        def body(c: aj.Tensor, n: aj.Tensor) -> Any:
            return run(s[2], {**known, "c": c}, w)[0].tanh() * 1.2 + 0.1, n + 1

        return aj.while_loop(lambda c, n: (n < s[3]) & (c.abs().sum() < 5), body, (first, aj.tensor(0)))[0]
    return aj.cond(first.sum() > 0, lambda: run(s[2], known, w)[0], lambda: run(s[3], known, w)[0])


def run(p: Any, known: dict[str, aj.Tensor], w: aj.Tensor) -> list[aj.Tensor]:
    known = dict(known)
    for name, s in p[0]:
        known[name] = line(s, known, w)
    return [value(e, known, w) for e in p[1]]


def check(seed: int) -> None:
    draw = random.Random(seed)
    text = program(draw, ["a", "b"], 2, 1)
    numbers = np.random.default_rng(seed)
    w = aj.tensor(numbers.standard_normal((3, 3)) / 2, requires_grad=True)
    a, b = (aj.tensor(numbers.standard_normal(3), requires_grad=True) for _ in range(2))

    def loss(a: aj.Tensor, b: aj.Tensor) -> aj.Tensor:
        return (run(text, {"a": a, "b": b}, w)[0] ** 2).sum()

    def reverse(a: aj.Tensor, b: aj.Tensor) -> Any:
        found = loss(a, b)
        options = {"allow_unused": True, "materialize_grads": True}
        first = aj.autograd.grad(found, (a, b, w), create_graph=True, **options)
        total = sum((g**2).sum() for g in first) + 0 * (a.sum() + b.sum() + w.sum())
        return found, first, aj.autograd.grad(total, (a, b, w), **options)

    def forward(a: aj.Tensor, b: aj.Tensor) -> Any:
        a, b = a.detach(), b.detach()
        return aj.func.jvp(loss, (a, b), (b, a)), aj.func.hessian(lambda a: loss(a, b))(a)

    def batches(a: aj.Tensor, b: aj.Tensor) -> Any:
        rows = aj.stack((a, b, a * b)).detach()
        return aj.vmap(aj.func.grad(lambda row: loss(row, b.detach())))(rows)

    agree((reverse, forward, batches)[seed % 3], a, b, rtol=1e-7)


@pytest.mark.parametrize("seed", range(12))
def test_compiled_programs_agree_with_eager_ones(seed: int) -> None:
    check(seed)


@pytest.mark.slow
def test_many_programs_agree() -> None:
    for seed in range(100, 300):
        check(seed)
