"""Random programs: straight-line code with views, in-place writes, branches, gradients and state, eager against compiled."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
from tests.jit.agreement import Program, agree

UNARY: list[Callable[[aj.Tensor], aj.Tensor]] = [
    aj.tanh, aj.sin, lambda t: t * t, lambda t: -t, lambda t: t.exp().clamp(max=3.0), lambda t: t.T.contiguous().T,
    lambda t: t.sum(0, keepdim=True).expand(t.shape), lambda t: t.softmax(1), lambda t: t.cumsum(1), lambda t: t.flip(0),
    lambda t: t.detach(), lambda t: aj.where(t > 0, t, t * 0.5), lambda t: t.reshape(-1).reshape(t.shape),
]  # fmt: skip
BINARY: list[Callable[[aj.Tensor, aj.Tensor], aj.Tensor]] = [
    lambda a, b: a + b, lambda a, b: a * b, lambda a, b: a - 0.5 * b, lambda a, b: (a @ b.T) @ b * 0.1, aj.maximum,
    lambda a, b: aj.cat([a[:2], b[2:]]), lambda a, b: a / (b.abs() + 1),
]  # fmt: skip
IN_PLACE: list[Callable[[aj.Tensor, aj.Tensor], Any]] = [
    lambda t, o: t.mul_(0.5), lambda t, o: t.add_(o), lambda t, o: t[0].copy_(o[1]), lambda t, o: t[:, 1:].mul_(o[:, 1:]),
    lambda t, o: t.copy_(o), lambda t, o: t.fill_(0.25), lambda t, o: t.__setitem__((slice(None), 0), o[:, 2]),
    lambda t, o: t.view(-1)[3:7].sub_(1.0),
]  # fmt: skip


def statements(seed: int) -> Callable[..., Any]:
    """A function of (parameters, buffers, arguments) that runs a fixed random program."""
    plan = random.Random(seed)
    steps = [
        (plan.choice(("u", "b", "b", "i", "s", "if", "item", "r")), plan.random(), plan.random(), plan.random())
        for _ in range(plan.randint(3, 12))
    ]
    wants_backward, has_grad_inside = plan.random() < 0.6, plan.random() < 0.3

    def program(params: list[aj.Tensor], buffers: list[aj.Tensor], args: list[aj.Tensor]) -> Any:
        pool = [*params, *args, *[b.clone() for b in buffers]]
        numbers: list[Any] = []

        def pick(x: float) -> aj.Tensor:
            return pool[int(x * len(pool))]

        for kind, x, y, z in steps:
            if kind == "u":
                pool.append(UNARY[int(z * len(UNARY))](pick(x)))
            elif kind == "b":
                pool.append(BINARY[int(z * len(BINARY))](pick(x), pick(y)))
            elif kind == "i":
                fresh = pick(x) * 1.0
                IN_PLACE[int(z * len(IN_PLACE))](fresh, pick(y))
                pool.append(fresh)
            elif kind == "s":
                with aj.no_grad():
                    IN_PLACE[int(z * len(IN_PLACE))](buffers[int(x * len(buffers))], pick(y).detach())
            elif kind == "if":
                pool.append(pick(y) * 2 if pick(x).sum() > 0 else pick(y) - 1)
            elif kind == "item":
                numbers.append(pick(x).mean().item())
                pool.append(pick(y) * numbers[-1])
            else:
                pool.append(pick(x) + aj.randn(3, 4, dtype=aj.float64))
        loss = sum((t.tanh() ** 2).mean() for t in pool[-4:])
        if has_grad_inside:
            found = aj.autograd.grad(loss, params, create_graph=True, allow_unused=True)
            loss = loss + sum((g**2).sum() for g in found if g is not None)
        if wants_backward and loss.requires_grad:
            loss.backward()
            with aj.no_grad():
                for p in params:
                    if p.grad is not None:
                        p.sub_(p.grad * 0.1)
        return loss.detach(), pool[-1].detach(), numbers

    return program


def make_program(seed: int) -> Callable[[], Program]:
    def make() -> Program:
        rng = np.random.default_rng(seed)

        def tensors(count: int) -> list[aj.Tensor]:
            return [aj.tensor(rng.standard_normal((3, 4))) for _ in range(count)]

        params = [t.requires_grad_() for t in tensors(2)]
        buffers = tensors(1)
        big = aj.tensor(rng.standard_normal((6, 4)))
        buffers.append(big[2:5])
        program = statements(seed)

        def function(*args: aj.Tensor) -> Any:
            return program(params, buffers, list(args))

        calls = [tuple(tensors(2)) for _ in range(3)]
        clear = (lambda k: [setattr(p, "grad", None) for p in params]) if seed % 2 else None
        return Program(function, calls, [*params, *buffers, big], clear)

    return make


@pytest.mark.parametrize("seed", range(24))
def test_a_random_program_agrees(seed: int) -> None:
    agree(make_program(seed))
