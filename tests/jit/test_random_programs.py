"""Random programs with views, in-place writes, branches, gradients and state: eager against compiled."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.tensor.state import reference_only
from tests.jit.agreement import Program, check_equal, plain

Unary = Callable[[aj.Tensor], aj.Tensor]
Binary = Callable[[aj.Tensor, aj.Tensor], aj.Tensor]
Writing = Callable[[aj.Tensor, aj.Tensor], Any]

UNARY: list[Unary] = [
    aj.tanh,
    aj.sin,
    lambda t: t * t,
    lambda t: t.exp().clamp(max=3.0),
    lambda t: t.T.contiguous().T,
    lambda t: t.sum(0, keepdim=True).expand(t.shape),
    lambda t: t.softmax(1),
    lambda t: t.cumsum(1),
    lambda t: t.flip(0),
    lambda t: t.detach(),
    lambda t: aj.where(t > 0, t, t * 0.5),
    lambda t: t.reshape(-1).reshape(t.shape),
    lambda t: t.T.reshape(-1).reshape(4, 3).T,
    lambda t: t.view(2, 6).view(t.shape),
    lambda t: t[[2, 0, 1]],
    lambda t: t[:],
    lambda t: t.mT.mT,
]
BINARY: list[Binary] = [
    lambda a, b: a + b,
    lambda a, b: a * b,
    lambda a, b: a - 0.5 * b,
    lambda a, b: (a @ b.T) @ b * 0.1,
    aj.maximum,
    lambda a, b: aj.cat([a[:2], b[2:]]),
    lambda a, b: a / (b.abs() + 1),
]
WRITING: list[Writing] = [
    lambda t, o: t.mul_(0.5),
    lambda t, o: t.add_(o),
    lambda t, o: t[0].copy_(o[1]),
    lambda t, o: t[:, 1:].mul_(o[:, 1:]),
    lambda t, o: t.copy_(o),
    lambda t, o: t.fill_(0.25),
    lambda t, o: t.__setitem__((slice(None), 0), o[:, 2]),
    lambda t, o: t.view(-1)[3:7].sub_(1.0),
    lambda t, o: t.T[1].add_(o.T[0]),
    lambda t, o: t[1:].tanh_(),
]
KINDS = ("unary", "unary", "binary", "binary", "write fresh", "write state", "write", "if", "item", "random")


class Recipe:
    """A fixed random program over (parameters, buffers, arguments), all of shape (3, 4)."""

    def __init__(self, seed: int) -> None:
        plan = random.Random(seed)
        self.steps = [
            (plan.choice(KINDS), plan.random(), plan.random(), plan.random()) for _ in range(plan.randint(3, 12))
        ]
        self.wants_backward = plan.random() < 0.6
        self.has_inner_gradient = plan.random() < 0.3
        self.returns_views = plan.random() < 0.5

    def run(self, params: list[aj.Tensor], buffers: list[aj.Tensor], args: list[aj.Tensor]) -> Any:
        pool = [*params, *args, *[b.clone() for b in buffers]]
        numbers: list[Any] = []
        for kind, x, y, z in self.steps:
            a, b = pool[int(x * len(pool))], pool[int(y * len(pool))]
            self._step(kind, a, b, z, pool, buffers, numbers)
        loss = self._loss(pool, params)
        if self.wants_backward and loss.requires_grad:
            loss.backward()
            _descend(params)
        last = pool[-1] if self.returns_views and not pool[-1].requires_grad else pool[-1].detach()
        return loss.detach(), last, numbers

    def _step(
        self,
        kind: str,
        a: aj.Tensor,
        b: aj.Tensor,
        z: float,
        pool: list[aj.Tensor],
        buffers: list[aj.Tensor],
        numbers: list[Any],
    ) -> None:
        write = WRITING[int(z * len(WRITING))]
        if kind == "unary":
            pool.append(UNARY[int(z * len(UNARY))](a))
        elif kind == "binary":
            pool.append(BINARY[int(z * len(BINARY))](a, b))
        elif kind == "write fresh":
            fresh = a * 1.0
            write(fresh, b)
            pool.append(fresh)
        elif kind == "write state":
            with aj.no_grad():
                write(buffers[int(z * 7) % len(buffers)], b.detach())
        elif kind == "write":
            with aj.set_grad_enabled(z > 0.3 and aj.is_grad_enabled()):
                write(a, b)
        elif kind == "if":
            pool.append(b * 2 if a.sum() > 0 else b - 1)
        elif kind == "item":
            numbers.append(a.mean().item())
            pool.append(b * numbers[-1])
        else:
            pool.append(a + aj.randn(3, 4, dtype=aj.float64))

    def _loss(self, pool: list[aj.Tensor], params: list[aj.Tensor]) -> aj.Tensor:
        loss: Any = sum((t.tanh() ** 2).mean() for t in pool[-4:])
        if self.has_inner_gradient and loss.requires_grad:
            found = aj.autograd.grad(loss, params, create_graph=True, allow_unused=True)
            loss = loss + sum((g**2).sum() for g in found if g is not None)
        return loss  # type: ignore[no-any-return]


def _descend(params: list[aj.Tensor]) -> None:
    with aj.no_grad():
        for p in params:
            if p.grad is not None:
                p.sub_(p.grad * 0.1)


def make_program(seed: int) -> Program:
    """The program of a seed with fresh state and arguments; some calls pass views, state or one tensor twice."""
    rng = np.random.default_rng(seed)

    def tensors(count: int) -> list[aj.Tensor]:
        return [aj.tensor(rng.standard_normal((3, 4))) for _ in range(count)]

    params = [t.requires_grad_() for t in tensors(2)]
    big = aj.tensor(rng.standard_normal((6, 4)))
    buffers = [*tensors(1), big[2:5]]
    recipe = Recipe(seed)
    calls: list[tuple[aj.Tensor, ...]] = [tuple(tensors(2)) for _ in range(3)]
    if seed % 5 == 0:
        other = tensors(1)[0]
        shared = aj.tensor(rng.standard_normal((5, 4)))
        calls += [(other, other), (shared[:3], shared[2:]), (big[:3], buffers[0])]

    def function(*args: aj.Tensor) -> Any:
        return recipe.run(params, buffers, list(args))

    def clear(k: int) -> None:
        for p in params:
            p.grad = None

    return Program(function, calls, [*params, *buffers, big], clear if seed % 2 else None)


def run_until_error(program: Program, function: Callable[..., Any]) -> list[Any]:
    """What ``agreement.run`` gives; an error ends it and is named by its type."""
    seen: list[Any] = []
    for k, arguments in enumerate(program.calls):
        if program.between is not None:
            program.between(k)
        try:
            result = function(*arguments)
        except Exception as error:
            seen.append(["error", type(error).__name__])
            break
        seen.append([plain(result), plain(list(arguments)), plain(list(program.state))])
    return seen


def check_seed(seed: int) -> bool:
    """Compare both modes; whether the program ran to its end."""
    aj.manual_seed(0)
    program = make_program(seed)
    with reference_only():
        eager = run_until_error(program, program.function)
    aj.manual_seed(0)
    program = make_program(seed)
    compiled = run_until_error(program, aj.jit(program.function))
    has_failed = eager[-1][0] == "error"  # what NumPy's strides of a result forbid (view), a capture may allow
    for k, (a, b) in enumerate(zip(eager[: len(eager) - has_failed], compiled, strict=False)):
        check_equal(a, b, f"seed {seed}, call {k}: ")
    return not has_failed


@pytest.mark.parametrize("seed", range(40))
def test_a_random_program_agrees(seed: int) -> None:
    check_seed(seed)


@pytest.mark.slow
def test_many_random_programs_agree() -> None:
    assert sum(check_seed(seed) for seed in range(40, 2000)) > 1000
