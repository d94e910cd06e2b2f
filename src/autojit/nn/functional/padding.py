"""Padding: constants natively, the other modes through index arithmetic along one axis at a time."""

from __future__ import annotations

from collections.abc import Sequence

import autojit as aj
from autojit import ops
from autojit.core.errors import ArgumentError, ShapeError, UsageError
from autojit.core.number_ranges import in_range
from autojit.core.sizes import seems_equal
from autojit.dispatch.kernels import in_one_step
from autojit.functions.formats import laid_out_as
from autojit.functions.own_memory import own_memory
from autojit.tensor import Tensor

_MODES = ("constant", "reflect", "replicate", "circular")


@own_memory
def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """Grow (or, with negative widths in constant mode, crop) the last axes.

    Args:
        pad: widths ``(last axis before, after, second to last before, after, ...)``.
        mode: ``constant``, ``reflect`` (without the edge), ``replicate`` or ``circular``.
        value: the constant; 0 by default.

    Raises:
        RuntimeError: an odd number of widths, more widths than axes, or a reflection wider than the axis.
        NotImplementedError: unknown mode.
    """
    widths = [int(width) for width in pad]
    if len(widths) % 2:
        raise UsageError("Padding length must be divisible by 2")
    if len(widths) // 2 > input.ndim:
        raise ShapeError(
            f"Padding length should be less than or equal to two times the input dimension but got padding length "
            f"{len(widths)} and input of dimension {input.ndim}"
        )
    if mode not in _MODES:
        raise NotImplementedError(f"Unrecognised padding mode {mode}")
    if mode == "constant":
        return laid_out_as(_constant(input, widths, 0.0 if value is None else value), input)
    if value is not None and value != 0:
        raise ArgumentError(f'Padding mode "{mode}" doesn\'t take in value argument')
    if mode != "circular":
        _require_elements(input, len(widths) // 2)
    found = input
    for place in range(len(widths) // 2):
        before, after = widths[2 * place], widths[2 * place + 1]
        if before or after:
            found = _indexed(found, input.ndim - 1 - place, before, after, mode)
    return found if mode == "circular" else laid_out_as(found, input)


def _constant(input: Tensor, widths: list[int], value: float) -> Tensor:
    """Concatenate constant blocks (crop where the width is negative), one axis at a time."""
    if min(widths, default=0) >= 0 and input.dtype.kind != "bool":
        low, high = [0] * input.ndim, [0] * input.ndim
        for place in range(len(widths) // 2):
            low[-1 - place], high[-1 - place] = widths[2 * place], widths[2 * place + 1]
        value = value if input.is_floating_point() or input.is_complex() else in_range(int(value), input.dtype)
        widths_given = (tuple(low), tuple(high), value)
        return in_one_step("pad", widths_given, input, node="ConstantPadNdBackward0", keeps=False)
    for place in range(len(widths) // 2):
        axis = input.ndim - 1 - place
        before, after = widths[2 * place], widths[2 * place + 1]
        size = input.shape[axis]
        if size + before + after < 0:
            raise ShapeError(
                f"The input size {size}, plus negative padding {before} and {after}, resulted in a negative output "
                f"size, which is invalid. Check dimension {axis} of your input."
            )
        start, stop = max(0, -before), size - max(0, -after)
        if (start, stop) != (0, size):
            input = input.narrow(axis, start, max(0, stop - start))
        parts = [_block(input, axis, before, value), input, _block(input, axis, after, value)]
        present = [part for part in parts if part is not None]
        if len(present) > 1:
            input = aj.cat(present, axis)
    return input


def _block(input: Tensor, axis: int, width: int, value: float) -> Tensor | None:
    if width <= 0:
        return None
    shape = list(input.shape)
    shape[axis] = width
    return aj.full(tuple(shape), value, dtype=input.dtype, device=input.device)


def _require_elements(input: Tensor, axes: int) -> None:
    """ShapeError for an image of nothing; a batch may have no images."""
    is_batch = input.ndim == axes + 2
    if not any(seems_equal(n, 0) for n in input.shape[is_batch:]):
        return
    raise ShapeError(
        f"Expected {axes + 1}D or {axes + 2}D (batch mode) tensor with possibly 0 batch size and other non-zero "
        f"dimensions for input, but got: {list(input.shape)}",
        {"input": input},
    )


def _indexed(input: Tensor, axis: int, before: int, after: int, mode: str) -> Tensor:
    size = input.shape[axis]
    if mode == "reflect" and (before >= size or after >= size):
        raise ShapeError(
            "Padding size should be less than the corresponding input dimension, but got: padding "
            f"({before}, {after}) at dimension {axis} of input {list(input.shape)}"
        )
    if mode == "circular" and (before > size or after > size):
        raise UsageError("Padding value causes wrapping around more than once.")
    if mode == "circular":
        if size + before + after <= 0:
            raise UsageError(
                "Negative padding value is resulting in an empty dimension",
                {"input": input, "axis": axis, "widths": (before, after)},
            )
        # negative widths crop first; what is left wraps around
        start, kept = max(0, -before), size - max(0, -before) - max(0, -after)
        chosen = [start + place % kept for place in range(-max(0, before), kept + max(0, after))]
        return ops.index_select(input, axis, aj.tensor(chosen, dtype=aj.int64, device=input.device))
    places = range(-before, size + after)
    if mode == "reflect":
        chosen = [place if 0 <= place < size else -place if place < 0 else 2 * (size - 1) - place for place in places]
    else:
        chosen = [min(max(place, 0), size - 1) for place in places]
    return ops.index_select(input, axis, aj.tensor(chosen, dtype=aj.int64, device=input.device))
