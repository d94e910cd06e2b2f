"""Gradients with respect to what a step has changed in place: arguments and state, returned or not, to second order."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj

# clones, so that no derivative needs what a later line changes
IN_PLACE: list[Callable[[aj.Tensor, aj.Tensor], Any]] = [
    lambda t, u: t.mul_(u.clone()),
    lambda t, u: t.add_(u.clone() ** 2),
    lambda t, u: t.mul_(1.5).neg_(),
    lambda t, u: t.__setitem__(0, u[1].clone() * t[1].clone()),
    lambda t, u: t.copy_(u.clone() * t.clone()),
    lambda t, u: t.view(-1)[1:].mul_(u[1:].clone()),
]
OUT_OF_PLACE: list[Callable[[aj.Tensor, aj.Tensor], aj.Tensor]] = [
    lambda t, u: (t.clone() ** 2 * u.clone()).sum(),
    lambda t, u: t.clone().sin() * u.clone(),
    lambda t, u: t.detach().clone() * u.clone() + t,
    lambda t, u: t[1:] * 3,
]


class _Program:
    """Two arguments and two tensors outside, some of which are changed; which results there are."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        self.lines: list[tuple[bool, Any, int, int]] = []
        for _ in range(rng.randint(2, 6)):
            t, u = rng.sample(range(4), 2)
            if rng.random() < 0.5:
                self.lines.append((True, rng.choice(IN_PLACE), t, u))
            else:
                self.lines.append((False, rng.choice(OUT_OF_PLACE), t, u))
        self.lines.append((False, rng.choice(OUT_OF_PLACE), *rng.sample(range(4), 2)))
        self.returned = [k for k in range(4) if rng.random() < 0.3]
        self.weights = [rng.uniform(0.5, 2) for _ in range(20)]

    def run(self, jit: Any) -> list[Any]:
        generator = aj.Generator().manual_seed(3)
        leaves = [aj.rand(3, generator=generator, dtype=aj.float64).requires_grad_() for _ in range(4)]
        changed = [leaf * 1.5 for leaf in leaves]

        @jit
        def step(x: aj.Tensor, y: aj.Tensor) -> Any:
            all_of_them = [x, y, changed[2], changed[3]]
            results = []
            for is_in_place, line, t, u in self.lines:
                made = line(all_of_them[t], all_of_them[u])
                if not is_in_place:
                    results.append(made)
            return (*results, *(all_of_them[k] for k in self.returned))

        results = step(changed[0], changed[1])
        loss = aj.zeros((), dtype=aj.float64)
        for weight, result in zip(self.weights, results, strict=False):
            loss = loss + weight * (result * result).sum()
        found: list[Any] = [t.tolist() for t in changed]
        targets = [*changed, *leaves]
        first = aj.autograd.grad(loss, targets, create_graph=True, allow_unused=True)
        found += [None if g is None else g.tolist() for g in first]
        again = sum((g * g).sum() for g in first if g is not None and g.requires_grad)
        if isinstance(again, aj.Tensor):
            second = aj.autograd.grad(again, targets, allow_unused=True)
            found += [[0.0] * 3 if g is None else g.tolist() for g in second]
        return found


def _flat(found: list[Any]) -> list[float]:
    return [number for part in found for number in ([0.0] * 3 if part is None else part)]


@pytest.mark.parametrize("seed", range(60))
def test_they_are_those_of_eager_mode(seed: int) -> None:
    eager = _Program(seed).run(lambda function: function)
    compiled = _Program(seed).run(aj.jit)
    assert not any(a is None and b is not None and any(b) for a, b in zip(compiled, eager, strict=False))
    assert _flat(compiled) == pytest.approx(_flat(eager), rel=1e-9, abs=1e-9)
