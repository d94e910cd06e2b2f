"""``make_tensor``: random tensors to test with, of any shape, dtype and layout in memory."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

import autojit as aj
from autojit.core.device import Device
from autojit.core.user_warnings import warn
from autojit.functions.shape import sizes_of

DEFAULT_RANGE = (-9, 9)  # bool: 0 and 1; uint8: 0 to 9; integers reach both ends, as in PyTorch


def make_tensor(
    *shape: int | Sequence[int],
    dtype: aj.dtype,
    device: str | Device = "cpu",
    low: float | None = None,
    high: float | None = None,
    requires_grad: bool = False,
    noncontiguous: bool = False,
    exclude_zero: bool = False,
    memory_format: aj.memory_format | None = None,
) -> aj.Tensor:
    """A tensor of uniform random numbers in ``[low, high)``, drawn from the default generator.

    By default the range is [-9, 9], for integers the whole numbers of it; [0, 9] for uint8; both truth values for bool.
    Real and imaginary parts of complex numbers are drawn alike.

    Args:
        noncontiguous: leave gaps between neighbours in memory (where there is more than one element).
        memory_format: the order of the axes in memory.
        exclude_zero: replace zeros by the smallest positive normal number, or 1 in integers.

    Raises:
        ValueError: the range is empty or not a number, ``noncontiguous`` and ``memory_format`` are both given, or
            gradients are asked of an integer dtype.

    Example:
        >>> import autojit as aj
        >>> _ = aj.manual_seed(0)
        >>> x = make_tensor(2, 3, dtype=aj.float64, low=0, high=1, noncontiguous=True)
        >>> x.shape, x.is_contiguous(), bool((x >= 0).all())
        (autojit.Size([2, 3]), False, True)
    """
    size: tuple[int, ...] = sizes_of(shape)
    if requires_grad and not (dtype.is_floating_point or dtype.is_complex):
        raise ValueError(
            f"`requires_grad=True` is not supported for boolean and integral dtypes, but got dtype={dtype}"
        )
    if noncontiguous and memory_format is not None:
        raise ValueError("The parameters `noncontiguous` and `memory_format` are mutually exclusive")
    made = _drawn(size, dtype, *_range(dtype, low, high))
    if exclude_zero:
        made = aj.where(made == 0, aj.tensor(_smallest(dtype), dtype=dtype, device=made.device), made)
    if noncontiguous and made.numel() > 1:
        made = made.repeat_interleave(2, -1)[..., ::2]
    if memory_format is not None:
        made = made.contiguous(memory_format=memory_format)
    return made.detach().to(device).requires_grad_(requires_grad)


def _drawn(size: tuple[int, ...], dtype: aj.dtype, first: float, last: float) -> aj.Tensor:
    if dtype.is_complex:
        part = aj.float64 if dtype is aj.complex128 else aj.float32
        return aj.complex(*[aj.rand(size, dtype=part) * (last - first) + first for _ in range(2)])
    if dtype.is_floating_point:
        made = (aj.rand(size, dtype=aj.float64) * (last - first) + first).to(dtype)
        return made.clamp(first, last)  # rounding may have left the range
    return aj.randint(int(first), max(int(last), int(first) + 1), size, dtype=aj.int64).to(dtype)


def _range(dtype: aj.dtype, low: float | None, high: float | None) -> tuple[float, float]:
    for bound in (low, high):
        if bound is not None and math.isnan(bound):
            raise ValueError(f"`low` and `high` cannot be NaN, but got {low=} and {high=}")
    is_real = dtype.is_floating_point or dtype.is_complex
    lowest, highest = DEFAULT_RANGE
    if dtype is aj.bool:
        lowest, highest = 0, 2
    elif dtype is aj.uint8:
        lowest, highest = 0, 10
    elif not is_real:
        highest += 1
    first = lowest if low is None else low
    last = highest if high is None else high
    if first == last and is_real:
        warn(f"Passing `low==high` is deprecated: every element is {low}", FutureWarning)
    elif first >= last:
        raise ValueError(f"`low` must be less than `high`, but got {first} >= {last}")
    if not is_real:
        return math.ceil(first), math.ceil(last)
    return first, last


def _smallest(dtype: aj.dtype) -> float:
    if dtype.is_floating_point:
        return aj.finfo(dtype).tiny
    return float(np.finfo(np.float32).tiny) if dtype.is_complex else 1
