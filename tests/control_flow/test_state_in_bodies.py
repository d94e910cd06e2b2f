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


def test_a_gradient_through_what_a_body_has_written_is_refused() -> None:
    s = aj.zeros(())
    step = aj.jit(lambda x: aj.scan(lambda c, z: (s.add_(z), (c + s, c))[1], aj.zeros(()), x)[0])
    with pytest.raises(RuntimeError, match="changes a tensor from outside to what requires gradients"):
        step(aj.ones(3, requires_grad=True))
    assert step(aj.ones(3)).item() == 6.0
    assert s.item() == 3.0
