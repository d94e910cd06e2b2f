"""``sample``: the numbers that programs work on, the same in every run and short to write in a script.

A run may be *shaken*: every number of the program, and every number that an eager op computes, is then multiplied by
1 + a few units in its last place. How far a result moves under this tells how much of a difference rounding can explain
(``verdicts.py``, ``tensor/random_rounding.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import autojit as aj
from autojit import nn
from autojit.tensor.random_rounding import rounding_at_random

SPREAD = 0.7  # of parameters: such a layer of four keeps the size of its input

_shaken_by: list[int] = []  # the seed of the shaking, while a run is shaken


@contextmanager
def shaken(seed: int) -> Iterator[None]:
    """Inside, ``sample`` gives numbers that differ in their last digits, and eager ops round at random."""
    _shaken_by.append(seed)
    try:
        with rounding_at_random(np.random.default_rng([seed, 1])):
            yield
    finally:
        _shaken_by.pop()


def sample(seed: int, *shape: int, dtype: aj.dtype = aj.float64, kind: str = "smooth") -> aj.Tensor:
    """A tensor of numbers that depend on ``seed`` and the shape alone.

    Args:
        kind: "smooth" numbers in (-2, 2) of which no two are equal; "positive" ones in (0.2, 2.2); "ties", small whole
            numbers with zeros among them.

    Example:
        >>> sample(1, 3)
        tensor([-1.9437, -1.4536, -0.1762], dtype=autojit.float64)
        >>> sample(1, 3, dtype=aj.int64)
        tensor([ 1, -1,  3])
    """
    is_whole = not (dtype.is_floating_point or dtype.is_complex)
    made: aj.Tensor = aj.tensor(sample_array(seed, *shape, kind="ties" if is_whole else kind)).to(dtype)
    return made


def sample_array(seed: int, *shape: int, kind: str = "smooth") -> Any:
    """The same numbers as a float64 array."""
    draws = np.random.default_rng([seed, *shape])
    if kind == "ties":
        return draws.integers(-1, 4, shape).astype(np.float64)
    made = np.round(draws.uniform(-2, 2, shape) if kind == "smooth" else draws.uniform(0.2, 2.2, shape), 4)
    if _shaken_by:
        places = np.random.default_rng([_shaken_by[-1], seed]).uniform(-4, 4, shape)
        made = made * (1 + _shake_size * places)
    return made


def filled(module: nn.Module, seed: int, dtype: aj.dtype = aj.float64) -> nn.Module:
    """The module in a dtype, its parameters made of such numbers.

    Example:
        >>> filled(aj.nn.Linear(2, 1), 1).bias
        Parameter containing:
        tensor([1.1050], dtype=autojit.float64, requires_grad=True)
    """
    module.to(dtype)
    for k, parameter in enumerate(module.parameters()):
        parameter.data.copy_(sample(seed + k, *parameter.shape, dtype=dtype) * SPREAD)
    return module


_shake_size = float(np.finfo(np.float64).eps)


def set_shake_size(size: float) -> None:
    """The relative size of one unit in the last place of the program's coarsest dtype."""
    global _shake_size
    _shake_size = size
