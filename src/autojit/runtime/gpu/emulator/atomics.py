"""Atomic operations of many lanes: one after another, in an order that the caller chooses."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from autojit.ir.op import Ndarray
from autojit.runtime.gpu.emulator.arithmetic import greatest, least
from autojit.runtime.gpu.emulator.conversions import to_bfloat, widened

_Step = Callable[[Ndarray, Sequence[Ndarray]], Ndarray]


def _step(operation: str, kind: str) -> _Step:
    """One operation on words as numbers."""
    is_float = kind[0] in "fb"
    steps: dict[str, _Step] = {
        "add": lambda old, given: old + given[0],
        "min": lambda old, given: least(old, given[0]) if is_float else np.minimum(old, given[0]),
        "max": lambda old, given: greatest(old, given[0]) if is_float else np.maximum(old, given[0]),
        "and": lambda old, given: old & given[0],
        "or": lambda old, given: old | given[0],
        "xor": lambda old, given: old ^ given[0],
        "exch": lambda old, given: given[0],
        "cas": lambda old, given: np.where(old == given[0], given[1], old),
        "inc": lambda old, given: np.where(old >= given[0], 0, old + old.dtype.type(1)).astype(old.dtype),
        "dec": lambda old, given: np.where((old == 0) | (old > given[0]), given[0], old - old.dtype.type(1)),
    }
    return steps[operation]


def combine(
    operation: str, kind: str, words: Ndarray, position: Ndarray, values: Sequence[Ndarray], turns: Ndarray
) -> Ndarray:
    """Change ``words[position]`` by each lane's values; what each lane found there.

    Args:
        kind: how the bits are read: as numbers of this type, several in a word where the type is narrower.
        words: as unsigned integers.
        turns: the order of the lanes.

    Lanes that meet at one word take turns; the first ones of all words go together, then the second ones.
    """
    found = np.empty(len(position), words.dtype)
    step = _step(operation, kind)
    rank = _ranks(position[turns])
    for turn in range(int(rank.max()) + 1):
        lanes = turns[rank == turn]
        at = position[lanes]
        old = words[at]
        found[lanes] = old
        given = [_numbers(np.ascontiguousarray(value[lanes]), kind) for value in values]
        words[at] = _bits(step(_numbers(old, kind), given), kind, words.dtype)
    return found


def _ranks(position: Ndarray) -> Ndarray:
    """How many lanes before each, in this order, use the same word."""
    order = np.argsort(position, kind="stable")
    ordered = position[order]
    begins = np.concatenate(([True], ordered[1:] != ordered[:-1]))
    first = np.flatnonzero(begins)
    group = np.cumsum(begins) - 1
    ranks = np.empty(len(position), "i8")
    ranks[order] = np.arange(len(position)) - first[group]
    return ranks


def _numbers(bits: Ndarray, kind: str) -> Ndarray:
    return widened(bits.view("u2")) if kind == "bf" else bits.view(kind)


def _bits(values: Ndarray, kind: str, dtype: np.dtype[np.generic]) -> Ndarray:
    narrow = to_bfloat(values) if kind == "bf" else values
    return np.ascontiguousarray(narrow).view(dtype)
