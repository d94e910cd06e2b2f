"""Bodies that change tensors from outside and read them again: as in eager mode, or refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj
from tests.jit.agreement import Program, agree

STATEMENTS: dict[str, Callable[[aj.Tensor, aj.Tensor], Any]] = {
    "add": lambda s, z: s.add_(z),
    "part": lambda s, z: s[1:].add_(z),
    "through a view": lambda s, z: s.view(-1)[::2].mul_(z + 1),
    "fill": lambda s, z: s.fill_(2),
    "copy": lambda s, z: s.copy_(z * 3),
    "detached": lambda s, z: s.detach().sub_(z),
}


@pytest.mark.parametrize("second", STATEMENTS)
@pytest.mark.parametrize("first", STATEMENTS)
def test_a_scan_reads_what_it_has_written(first: str, second: str) -> None:
    def make() -> Program:
        s = aj.tensor([1.0, 2.0, 3.0])

        def body(c: aj.Tensor, z: aj.Tensor) -> Any:
            STATEMENTS[first](s, z)
            read = c + s * z
            STATEMENTS[second](s, z)
            return read - s, (s.clone(), s[:1] + c.sum())

        return Program(lambda x: aj.scan(body, aj.zeros(3), x), [(aj.tensor([1.0, 0.5, -1.0]),)] * 2, [s])

    agree(make)


@pytest.mark.parametrize("statement", STATEMENTS)
def test_loops_and_branches_read_what_they_have_written(statement: str) -> None:
    def make() -> Program:
        s = aj.tensor([1.0, 2.0, 3.0])

        def write(x: aj.Tensor) -> aj.Tensor:
            STATEMENTS[statement](s, x[:1])
            return x * 0.5 + s

        def step(x: aj.Tensor) -> Any:
            rounds = aj.tensor(0)
            _, y = aj.while_loop(lambda n, x: (n < 4) & (s.sum() < 40), lambda n, x: (n + 1, write(x) + 1), (rounds, x))
            return aj.cond(y.sum() > 30, write, lambda y: y - s, (y,))

        return Program(step, [(aj.ones(3),), (aj.ones(3) * 7,), (aj.ones(3),)], [s])

    agree(make)


def test_a_gradient_flows_through_what_a_body_has_written_turn_by_turn() -> None:
    def run(wrap: Callable[[Any], Any]) -> list[Any]:
        s = aj.zeros(())

        def step(x: aj.Tensor) -> aj.Tensor:
            s.zero_().detach_()
            total = aj.scan(lambda c, z: (s.add_(z), (c + s, c))[1], aj.zeros(()), x)[0]
            return aj.autograd.grad(total, x)[0]

        return [wrap(step)(aj.ones(3, requires_grad=True)).tolist(), s.item()]

    assert run(aj.jit) == run(lambda f: f)


NUMBERS = {
    "cond": "aj.cond(x.sum() > 0, lambda z: z * v, lambda z: z - v, (x,))",
    "while_loop": "aj.while_loop(lambda i, z: i < 2, lambda i, z: (i + 1, z * v), (aj.tensor(0), x))[1]",
    "scan": "aj.scan(lambda z, t: (z + t * v, z - v), x.sum(), x)[1]",
    "cond in scan": "aj.scan(lambda z, t: (aj.cond(t > 1, lambda a: a * v, lambda a: a + v, (z,)), z), x.sum(), x)[1]",
    "vmap": "aj.vmap(lambda z: z * v)(x)",
}


@pytest.mark.parametrize("where", NUMBERS)
@pytest.mark.parametrize("number", ("x.sum().item()", "held[0]", "len(x) * 0.5"))
def test_bodies_compute_with_numbers_of_the_step(where: str, number: str) -> None:
    def shown(jit: Callable[[Any], Any]) -> list[Any]:
        names: dict[str, Any] = {"aj": aj, "held": [0.5]}
        exec(f"def step(x):\n    v = {number}\n    held[0] = v + 1\n    return {NUMBERS[where]}", names)
        step, found = jit(names["step"]), []
        for k in range(5):
            found.append((step(aj.arange(3.0 + k % 2) - k), names["held"][0]))
            if k == 2:
                names["held"][0] = -1.5
        return [(t.tolist(), number) for t, number in found]

    assert repr(shown(aj.jit)) == repr(shown(lambda function: function))
