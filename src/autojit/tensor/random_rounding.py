"""Eager ops that round at random: how far a result moves tells how much of a difference rounding can explain.

Rounding in the middle of a function may be all that a result is made of: tanh near 1 hides any change of its operand,
and one minus its square is what tanh was rounded by; the gradient of a bias before batch norm is a sum of terms that
cancel. So the ops themselves are shaken, not their operands alone. Source: Parker, Monte Carlo arithmetic, 1997.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from autojit.tensor.state import state


@contextmanager
def rounding_at_random(places: np.random.Generator) -> Iterator[None]:
    """Inside, every number that an eager op of this thread computes is off by up to one unit in its last place."""
    run = state.run
    state.run = lambda function, *operands: _rounded(run(function, *operands), operands, places)
    try:
        yield
    finally:
        state.run = run


def _rounded(found: Any, operands: tuple[Any, ...], places: np.random.Generator) -> Any:
    """An op's results, each number off by up to one unit in its last place.

    Numbers that were moved and not computed (an operand's, but for their sign) and whole numbers are exact.
    """
    if isinstance(found, tuple | list):
        return type(found)(_rounded(part, operands, places) for part in found)
    array = np.asarray(found)
    if array.dtype.char not in "efdFD" or not array.size:
        return found
    with np.errstate(all="ignore"):
        size = np.abs(array)
        given = [np.abs(x).ravel() for x in map(np.asarray, operands) if x.dtype.char in "efdFD"]
        exact = np.isin(size, np.concatenate(given)) if given else np.zeros(array.shape, bool)
        unit = float(np.finfo(array.dtype).eps) * places.uniform(-1, 1, array.shape)
        moved = (array + array * unit).astype(array.dtype)
    return np.where(exact | (size == np.rint(size)), array, moved)
