"""Functions and steps that are exported by the tests: name -> what makes (function, arguments of each call)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import autojit as aj

F = aj.nn.functional
Program = tuple[Callable[..., Any], list[tuple[Any, ...]]]


def _rng() -> np.random.Generator:
    return np.random.default_rng(0)


def _normal(*shape: int, dtype: Any = np.float32) -> aj.Tensor:
    return aj.tensor(_rng().normal(size=shape).astype(dtype))


def dropout_and_adam() -> Program:
    model = aj.nn.Sequential(aj.nn.Linear(6, 8), aj.nn.ReLU(), aj.nn.Dropout(0.3), aj.nn.Linear(8, 3))
    optimizer = aj.optim.AdamW(model.parameters(), lr=1e-2)

    def step(x: aj.Tensor, y: aj.Tensor) -> aj.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, [(_normal(5, 6), aj.tensor([0, 1, 2, 1, 0]))]


def batchnorm_and_momentum() -> Program:
    model = aj.nn.Sequential(aj.nn.Conv2d(2, 3, 3), aj.nn.BatchNorm2d(3), aj.nn.Flatten(), aj.nn.Linear(48, 2))
    optimizer = aj.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)

    def step(x: aj.Tensor) -> dict[str, aj.Tensor]:
        optimizer.zero_grad()
        out = model(x)
        loss = (out**2).mean()
        loss.backward()
        optimizer.step()
        return {"loss": loss.detach(), "out": out.detach()}

    return step, [(_normal(4, 2, 6, 6),)]


def accumulated_gradients() -> Program:
    weight = aj.tensor([1.0, 2.0, 3.0], requires_grad=True)
    weight.grad = aj.zeros(3)

    def step(x: aj.Tensor) -> aj.Tensor:
        (weight * x).sum().backward()
        return weight.grad.sum()

    return step, [(_normal(3),)]


def loops() -> Program:
    def body(carry: aj.Tensor, x: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
        carry = aj.tanh(carry + x)
        return carry, carry * 2

    def grown(x: aj.Tensor) -> aj.Tensor:
        total, _ = aj.scan(body, aj.zeros(3), x)
        (y,) = aj.while_loop(lambda y: y.abs().sum() < 100, lambda y: (y * 1.5 + 1,), (total,))
        return aj.cond(y.sum() > 0, lambda y: y + 1, lambda y: y - 1, (y,))

    def step(x: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
        x = x.detach().requires_grad_()
        y = aj.scan(body, aj.zeros(3), x)[1].sum()
        return grown(x.detach()), aj.autograd.grad(y, x)[0]

    return step, [(_normal(40, 3),), (-_normal(40, 3),)]


def open_loops() -> Program:
    """A loop whose length depends on the data, differentiated: its tape grows."""

    def step(x: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
        x = x.detach().requires_grad_()
        (y,) = aj.while_loop(lambda y: y.abs().sum() < 1e6, lambda y: (y * 1.2 + aj.tanh(y),), (x,))
        return y.detach(), aj.autograd.grad(y.sum(), x)[0]

    return step, [(_normal(3),), (_normal(3) / 100,), (_normal(3),)]


def counted_sizes() -> Program:
    def step(x: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor, aj.Tensor]:
        places = aj.nonzero(x > 0)
        return places, x[x > 0] * 2, x.sum()

    return step, [(_normal(7),), (-_normal(7),), (aj.zeros(7),), (aj.ones(7),)]


def dtypes() -> Program:
    def step(a: aj.Tensor, b: aj.Tensor, c: aj.Tensor, d: aj.Tensor, e: aj.Tensor) -> tuple[aj.Tensor, ...]:
        return a * a, b + 1, c.conj() * c, d & True, e * 2 - 1

    halves = _normal(5).to(aj.bfloat16), _normal(5).to(aj.float16)
    parts = _rng().normal(size=(4,)) + 1j
    return step, [(*halves, aj.tensor(parts), aj.tensor([True, False]), aj.tensor([1, 2], dtype=aj.uint8))]


def orders() -> Program:
    kept = _normal(3, 4).T  # state that is not row-major

    def step(x: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
        kept.mul_(1.5)
        return (x @ kept).T, x.permute(2, 0, 1) * 2

    return step, [(_normal(2, 3, 4),)]


def sorting() -> Program:
    def step(x: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor, aj.Tensor]:
        values, places = aj.sort(x, dim=1)
        return values, places, aj.cumsum(x, 0)

    return step, [(_normal(30, 20),)]


def random_numbers() -> Program:
    generator = aj.Generator().manual_seed(3)

    def step(x: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor, aj.Tensor]:
        return x + aj.randn(4), aj.rand(3, generator=generator), aj.randperm(6)

    return step, [(_normal(4),)]


def special_functions() -> Program:
    def step(x: aj.Tensor) -> tuple[aj.Tensor, ...]:
        return aj.erf(x), aj.lgamma(x.abs() + 1), aj.fmod(x, 0.7), aj.atan2(x, x + 1), aj.pow(x.abs(), 1.7)

    return step, [(_normal(50, dtype=np.float64),)]


def without_arguments() -> Program:
    counter = aj.zeros(2, dtype=aj.int64)

    def step() -> aj.Tensor:
        counter.add_(1)
        return counter * 3

    return step, [()]


def large_parallel() -> Program:
    weight = _normal(256, 256, dtype=np.float64).requires_grad_()

    def step(x: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
        y = (aj.tanh(x @ weight) ** 2).sum()
        (slope,) = aj.autograd.grad(y, weight)
        return y.detach(), slope

    return step, [(_normal(300, 256, dtype=np.float64),)]


class _Machine:
    """What a user's object keeps between steps."""

    def __init__(self) -> None:
        self.hidden = aj.zeros(3)
        self.mean: Any = aj.zeros(())
        self.count = 0
        self.rate = 0.5


def assigned_attributes() -> Program:
    """Tensors and numbers that Python would assign after every step."""
    kept, cell = _Machine(), aj.nn.RNNCell(4, 3)

    def step(x: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
        with aj.no_grad():
            kept.hidden = cell(x, kept.hidden)
            kept.mean = 0.9 * kept.mean + 0.1 * x.mean()
            kept.count += 1
            kept.rate = kept.rate * 0.75
            return kept.hidden * kept.rate, kept.mean / kept.count

    return step, [(_normal(4),), (_normal(4) * 2,)]


def swapped_state() -> Program:
    kept = _Machine()
    kept.hidden, kept.mean = aj.ones(3), aj.zeros(3)

    def step(x: aj.Tensor) -> aj.Tensor:
        kept.hidden, kept.mean = kept.mean + x, kept.hidden * 2
        return kept.hidden - kept.mean

    return step, [(_normal(3),)]


PROGRAMS = {
    made.__name__: made
    for made in (
        dropout_and_adam, batchnorm_and_momentum, accumulated_gradients, loops, open_loops, counted_sizes, dtypes,
        orders, sorting, random_numbers, special_functions, without_arguments, large_parallel,
        assigned_attributes, swapped_state,
    )
}  # fmt: skip
