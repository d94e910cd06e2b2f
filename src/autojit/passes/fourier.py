"""Fourier transforms made of those that a machine has kernels for: along one axis, of few points, of several lines.

Several axes are transformed one after the other. A line that is long, or has few others beside it, is a table: columns
and rows are transformed, with a turn of each element between (Bailey, "FFTs in external or hierarchical memory", 1990).
Points whose number has a large prime factor are convolved with a chirp (Bluestein, 1970), by transforms of a size that
has none. Where a number of points is open, an op is left as it is.
"""

from __future__ import annotations

import math
from functools import partial
from math import prod
from typing import Any

from autojit.core.dtypes import float64, int64
from autojit.core.machine import Machine, Transforms
from autojit.core.sizes import is_symbolic
from autojit.ir.builder import Tracer
from autojit.ir.op import bind
from autojit.ops.elementwise_arithmetic import cast, mul
from autojit.ops.elementwise_complex import complex, conj, real
from autojit.ops.elementwise_rounding import remainder
from autojit.ops.elementwise_trigonometric import cos, sin
from autojit.ops.fourier import Fft, Irfft, Rfft
from autojit.ops.joining import concatenate
from autojit.ops.reversal import flip
from autojit.ops.shape import pad, permute, reshape, slice_axis
from autojit.ops.sources import iota, zeros, zeros_like
from autojit.passes.rewrite import Rewriter, Rule

TURNS = 16
"""Rows of a table for which turns are computed; those of others are products of two."""


def transform_rules(machine: Machine) -> dict[str, Rule]:
    """By op; none where the machine has no kernels."""
    known = machine.transforms
    if known is None:
        return {}
    return {"fft": partial(_fft, known), "rfft": partial(_rfft, known), "irfft": partial(_irfft, known)}


def _fft(known: Transforms, rewriter: Rewriter, op: Fft, operands: tuple[Tracer, ...]) -> Any:
    (x,) = operands
    if any(is_symbolic(x.spec.shape[axis]) for axis in op.axes):
        return None
    for axis in reversed(op.axes):
        x = _along(known, Fft((axis,), op.is_inverse, op.norm), x)
    return x


def _rfft(known: Transforms, rewriter: Rewriter, op: Rfft, operands: tuple[Tracer, ...]) -> Any:
    """The half of a complex transform where there is no kernel for the real one."""
    (x,) = operands
    points = x.spec.shape[op.axis]
    if is_symbolic(points):
        return None
    if _is_plain(known, points // 2 if points % 2 == 0 else points, x, op.axis):
        return _moved(known, op, op.axis, lambda last: Rfft(last, op.norm), x)
    whole = _along(known, Fft((op.axis,), False, op.norm), complex(x, zeros_like(x)))
    return slice_axis(whole, x.spec.ndim + op.axis, 0, points // 2 + 1)


def _irfft(known: Transforms, rewriter: Rewriter, op: Irfft, operands: tuple[Tracer, ...]) -> Any:
    """The real part of a complex transform of both halves where there is no kernel."""
    (x,) = operands
    axis, n = x.spec.ndim + op.axis, op.n
    if is_symbolic(n) or is_symbolic(x.spec.shape[axis]) or x.spec.shape[axis] != n // 2 + 1:
        return None
    if _is_plain(known, n // 2 if n % 2 == 0 else n, x, op.axis):
        return _moved(known, op, op.axis, lambda last: Irfft(n, last, op.norm), x)
    mirrored = conj(flip(slice_axis(x, axis, 1, (n - 1) // 2 + 1), axis))
    return real(_along(known, Fft((op.axis,), True, op.norm), concatenate([x, mirrored], axis)))


def _largest_prime(n: int) -> int:
    largest, factor = 1, 2
    while factor * factor <= n:
        while n % factor == 0:
            largest, n = factor, n // factor
        factor += 1
    return max(largest, n) if n > 1 else largest


def _is_plain(known: Transforms, points: int, x: Tracer, axis: int) -> bool:
    """Whether a kernel takes a transform as it is."""
    if points > known.most_points or _largest_prime(points) > known.largest_prime:
        return False
    lines = prod(x.spec.shape[:axis]) * prod(x.spec.shape[x.spec.ndim + axis + 1 :])
    return points < known.least_points or is_symbolic(lines) or lines >= known.least_lines


def _moved(known: Transforms, op: Any, axis: int, along: Any, x: Tracer) -> Tracer | None:
    """The op with its axis last, where few lines are side by side or nobody knows how many; None: as it is."""
    ndim = x.spec.ndim
    inner = prod(x.spec.shape[ndim + axis + 1 :])
    if axis == -1 or (not is_symbolic(inner) and not 1 < inner < known.least_neighbours):
        return None
    order = [*range(ndim + axis), *range(ndim + axis + 1, ndim), ndim + axis]
    back = [order.index(k) for k in range(ndim)]
    return permute(bind(along(-1), permute(x, order)), back)


def _along(known: Transforms, op: Fft, x: Tracer) -> Tracer:
    """A complex transform along one axis."""
    (axis,) = op.axes
    points = x.spec.shape[axis]
    if _is_plain(known, points, x, axis):
        return _moved(known, op, axis, lambda last: Fft((last,), op.is_inverse, op.norm), x) or bind(op, x)
    ndim = x.spec.ndim
    order = [*range(ndim + axis), *range(ndim + axis + 1, ndim), ndim + axis]
    back = [order.index(k) for k in range(ndim)]
    lines = permute(x, order)
    by_chirp = _largest_prime(points) > known.largest_prime
    made = _by_convolution(known, op, lines) if by_chirp else _as_table(known, op, lines)
    return permute(made, back)


def _last(op: Fft, axis: int) -> Fft:
    return Fft((axis,), op.is_inverse, op.norm)


def _as_table(known: Transforms, op: Fft, x: Tracer) -> Tracer:
    """Lines along the last axis as tables: columns, turns, rows; the result is read by columns."""
    *lines, points = x.spec.shape
    rows = _divisor(points, min(known.most_points, math.isqrt(points)))
    columns = points // rows
    table = _along(known, _last(op, -2), reshape(x, (*lines, rows, columns)))
    step = max(d for d in range(1, TURNS + 1) if rows % d == 0)
    blocks = reshape(table, (*lines, rows // step, step, columns))
    far = _turns(x, (rows // step, columns), step, points, op.is_inverse)
    near = _turns(x, (step, columns), 1, points, op.is_inverse)
    turned = mul(mul(blocks, reshape(far, (rows // step, 1, columns))), near)
    done = _along(known, _last(op, -1), reshape(turned, (*lines, rows, columns)))
    count = len(lines)
    return reshape(permute(done, (*range(count), count + 1, count)), (*lines, points))


def _divisor(points: int, most: int) -> int:
    """The largest divisor up to a number."""
    return next(d for d in range(most, 0, -1) if points % d == 0)


def _turns(like: Tracer, shape: tuple[int, int], step: int, order: int, is_inverse: bool) -> Tracer:
    """``exp(-+ 2 pi i step k n / order)`` at the place (k, n)."""
    number = mul(mul(iota(like, shape, 0), step), iota(like, shape, 1))
    return _root(like, number, order, is_inverse)


def _root(like: Tracer, number: Tracer, order: int, is_inverse: bool) -> Tracer:
    """``exp(-+ 2 pi i number / order)``: the number of turns is reduced while it is whole."""
    angle = mul(cast(remainder(number, order), float64), 2 * math.pi / order)
    part = like.spec.dtype.to_real()
    im = sin(angle)
    return complex(cast(cos(angle), part), cast(im if is_inverse else mul(im, -1), part))


def _by_convolution(known: Transforms, op: Fft, x: Tracer) -> Tracer:
    """Lines along the last axis: ``2 k n = k**2 + n**2 - (k - n)**2`` makes a convolution of the sum."""
    *lines, points = x.spec.shape
    size = 1 << (2 * points - 2).bit_length()
    count = iota(x, (points,), 0, int64)
    chirp = _root(x, remainder(mul(count, count), 2 * points), 2 * points, op.is_inverse)
    last = len(lines)
    given = pad(mul(x, chirp), (0,) * (last + 1), (*(0,) * last, size - points), 0)
    swing = conj(chirp)
    gap = zeros(swing, (size - 2 * points + 1,))
    kernel = concatenate([swing, gap, flip(slice_axis(swing, 0, 1, points), 0)], 0)
    forward, back = Fft((-1,), False, "backward"), Fft((-1,), True, "backward")
    spectrum = mul(_along(known, forward, given), _along(known, forward, reshape(kernel, (*(1,) * last, size))))
    found = mul(slice_axis(_along(known, back, spectrum), last, 0, points), chirp)
    scale = {"ortho": points**-0.5, "backward": 1 / points if op.is_inverse else 1.0}.get(
        op.norm, 1.0 if op.is_inverse else 1 / points
    )
    return found if scale == 1.0 else mul(found, scale)
