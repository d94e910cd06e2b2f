"""Eager ops that round at random: how far a result moves tells how much of a difference rounding can explain.

Rounding in the middle of a function may be all that a result is made of: tanh near 1 hides any change of its operand,
and one minus its square is what tanh was rounded by; the gradient of a bias before batch norm is a sum of terms that
cancel. So the ops themselves are shaken, not their operands alone. Source: Parker, Monte Carlo arithmetic, 1997.

Functions that level off (tanh, sigmoid, erf) are exactly 1 there in one implementation, and the number beside 1 in
another, and then are so for all elements at once: the gradient behind them is 0, or anything but 0. Drawing for each
element by itself would not show it, so that every other run gives whole numbers for what is beside them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from autojit.tensor.state import state


@contextmanager
def rounding_at_random(places: np.random.Generator) -> Iterator[None]:
    """Inside, every number that an eager op of this thread computes is off by up to one unit in its last place."""
    run = state.run
    draw = _Draw(places, bool(places.integers(2)))
    state.run = lambda function, *operands: _rounded(run(function, *operands), operands, draw)
    try:
        yield
    finally:
        state.run = run


class _Draw(NamedTuple):
    """Where numbers of one run come from, and whether those beside a whole number become it."""

    places: np.random.Generator
    is_levelled: bool


def _rounded(found: object, operands: tuple[Any, ...], draw: _Draw) -> Any:
    """An op's results, each number off by up to one unit in its last place.

    Numbers that were moved and not computed (an operand's, except for their sign) and whole numbers are exact.
    """
    if isinstance(found, tuple | list):
        return type(found)(_rounded(part, operands, draw) for part in found)
    array = np.asarray(found)
    if array.dtype.char not in "efdFD" or not array.size:
        return found
    with np.errstate(all="ignore"):
        size = np.abs(array)
        given = [np.abs(x).ravel() for x in map(np.asarray, operands) if x.dtype.char in "efdFD"]
        exact = np.isin(size, np.concatenate(given)) if given else np.zeros(array.shape, bool)
        unit = float(np.finfo(array.dtype).eps)
        moved = (array + array * unit * draw.places.uniform(-1, 1, array.shape)).astype(array.dtype)
        if draw.is_levelled and array.dtype.kind == "f":
            whole = np.rint(array)
            moved = np.where(np.abs(array - whole) <= unit * np.abs(whole), whole, moved)
    return np.where(exact | (size == np.rint(size)), array, moved)
