"""One number per axis from a number or a sequence, and torch's helpers of that kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import repeat
from typing import Any


def _ntuple(n: int, name: str = "parse") -> Callable[[Any], tuple[Any, ...]]:
    """A function that makes a tuple of ``n`` equal values of one value, and a tuple of a sequence."""

    def parse(x: Any) -> tuple[Any, ...]:
        return tuple(x) if isinstance(x, Iterable) else tuple(repeat(x, n))

    parse.__name__ = name
    return parse


_single = _ntuple(1, "_single")
_pair = _ntuple(2, "_pair")
_triple = _ntuple(3, "_triple")
_quadruple = _ntuple(4, "_quadruple")


def _reverse_repeat_tuple(t: tuple[Any, ...], n: int) -> tuple[Any, ...]:
    """The values from last to first, each ``n`` times: a padding as ``F.pad`` takes it."""
    return tuple(x for x in reversed(t) for _ in range(n))


def _list_with_default(out_size: Any, defaults: list[int]) -> Any:
    """``out_size`` with None replaced by the last of ``defaults``."""
    if isinstance(out_size, int | slice):
        return out_size
    if len(defaults) <= len(out_size):
        raise ValueError(f"Input dimension should be at least {len(out_size) + 1}")
    return [v if v is not None else d for v, d in zip(out_size, defaults[-len(out_size) :], strict=True)]


_size_any_t = _size_1_t = _size_2_t = _size_3_t = _size_4_t = _size_5_t = _size_6_t = int | tuple[int, ...]
_size_any_opt_t = _size_2_opt_t = _size_3_opt_t = int | None | tuple[int | None, ...]
_ratio_any_t = _ratio_2_t = _ratio_3_t = float | tuple[float, ...]
