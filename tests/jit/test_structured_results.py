"""What a step returns is put together from its leaves as it was taken apart, and made anew at every call."""

from __future__ import annotations

import random
from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from typing import Any

import pytest

import autojit as aj
from autojit.jit.pytree import flatten

Pair = namedtuple("Pair", "left right")


@dataclass
class Record:
    left: Any
    right: Any


def _nest(draw: random.Random, leaf: Any, depth: int = 3) -> Any:
    """A random nest, whose leaves ``leaf`` gives."""
    if depth == 0 or draw.random() < 0.2:
        return leaf()
    parts = [_nest(draw, leaf, depth - 1) for _ in range(draw.choice((0, 1, 2, 2, 3)))]
    kind: Any = draw.choice((tuple, list, dict, OrderedDict, Pair, Record))
    if kind in (tuple, list):
        return kind(parts)
    if kind in (dict, OrderedDict):
        return kind(zip("abc", parts, strict=False))
    return kind(leaf(), parts)


@pytest.mark.parametrize("seed", range(6))
def test_nests_are_put_together_as_they_were_taken_apart(seed: int) -> None:
    for k in range(20):
        numbers = iter(range(1000))
        nest = _nest(random.Random(100 * seed + k), lambda numbers=numbers: next(numbers))
        leaves, tree = flatten(nest)
        assert tree.assembler()(tuple(leaves)) == tree.unflatten(leaves) == nest


def test_steps_return_nests_of_any_form_anew_at_every_call() -> None:
    for seed in range(4):

        def step(x: Any, seed: int = seed) -> Any:
            draw = random.Random(seed)
            made = iter([x + k for k in range(3)] + [(x * 2).sum().item(), None, "a"] * 40)
            return [_nest(draw, lambda: next(made)), x * 0.5]

        compiled, x, kept = aj.jit(step), aj.arange(3.0), []
        for k in range(5):
            kept.append((compiled(x + k), step(x + k)))
        assert all(str(found) == str(wanted) for found, wanted in kept)
        assert len({id(found) for found, _ in kept}) == 5
        assert compiled.stats()["captures"] == 1
        assert compiled.stats()["native_calls"] == 4
