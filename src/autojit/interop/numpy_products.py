"""NumPy's products, differences, integrals, interpolation and polynomials over tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import autojit as aj
from autojit.interop.registry import (
    NO_VALUE,
    alike,
    axes_of,
    axis_of,
    delivered,
    enter,
    host,
    implements,
    inexact,
    joined,
    operand,
    promoted,
    tensor_of,
)  # fmt: skip


@implements("dot")
def _dot(a: Any, b: Any, out: Any = None) -> Any:
    x, y = alike(a, b)
    if x.ndim == 0 or y.ndim == 0:
        found = x * y
    elif x.ndim <= 2 and y.ndim <= 2:
        found = aj.matmul(x, y)
    else:
        found = aj.tensordot(x, y, ([x.ndim - 1], [max(y.ndim - 2, 0)]))
    return delivered(found, out, "np.dot")


@implements("inner")
def _inner(a: Any, b: Any, /) -> Any:
    x, y = alike(a, b)
    return x * y if x.ndim == 0 or y.ndim == 0 else aj.tensordot(x, y, ([x.ndim - 1], [y.ndim - 1]))


@implements("vdot")
def _vdot(a: Any, b: Any, /) -> Any:
    x, y = alike(a, b)
    return aj.sum(aj.conj(x).reshape(-1) * y.reshape(-1), dtype=x.dtype)


@implements("outer", "linalg.outer")
def _outer(a: Any, b: Any, out: Any = None) -> Any:
    x, y = alike(a, b)
    return delivered(x.reshape(-1, 1) * y.reshape(1, -1), out, "np.outer")


@implements("tensordot", "linalg.tensordot")
def _tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    x, y = alike(a, b)
    if isinstance(axes, int | np.integer):
        return aj.tensordot(x, y, int(axes))
    ours, theirs = axes
    ours = [ours] if isinstance(ours, int | np.integer) else list(ours)
    theirs = [theirs] if isinstance(theirs, int | np.integer) else list(theirs)
    return aj.tensordot(x, y, ([axis_of(i, x.ndim) for i in ours], [axis_of(i, y.ndim) for i in theirs]))


@implements("einsum")
def _einsum(subscripts: Any, /, *operands: Any, out: Any = None, optimize: Any = False, **options: Any) -> Any:
    if not isinstance(subscripts, str):
        subscripts, operands = _as_text(subscripts, *operands)
    return delivered(aj.einsum(subscripts, *alike(*operands)), out, "np.einsum")


def _as_text(*arguments: Any) -> tuple[str, tuple[Any, ...]]:
    """The form ``einsum(x, [0, 1], y, [1, 2], [0, 2])`` in letters."""
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

    def word(labels: Sequence[Any]) -> str:
        return "".join("..." if label is Ellipsis else letters[int(label)] for label in labels)

    pairs = len(arguments) // 2
    text = ",".join(word(arguments[2 * i + 1]) for i in range(pairs))
    if len(arguments) % 2:
        text += "->" + word(arguments[-1])
    return text, tuple(arguments[0 : 2 * pairs : 2])


@implements("cross")
def _cross(a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: Any = None) -> Any:
    if axis is not None:
        axisa = axisb = axisc = axis
    x, y = alike(a, b)
    x, y = x.movedim(axisa, -1), y.movedim(axisb, -1)
    if x.shape[-1] not in (2, 3) or y.shape[-1] not in (2, 3):
        raise ValueError("Both input arrays must be (arrays of) 3-dimensional vectors, or 2-dimensional ones")
    planar = x.shape[-1] == 2 and y.shape[-1] == 2
    (x0, x1, x2), (y0, y1, y2) = (
        [v[..., 0], v[..., 1], v[..., 2] if v.shape[-1] == 3 else aj.zeros_like(v[..., 0])] for v in (x, y)
    )
    last = x0 * y1 - x1 * y0
    if planar:
        return last
    return aj.stack([x1 * y2 - x2 * y1, x2 * y0 - x0 * y2, last], -1).movedim(-1, axisc)


# ---- convolution


@implements("convolve")
def _convolve(a: Any, v: Any, mode: Any = "full") -> Any:
    """By a product with the Toeplitz matrix's rows: every element of the shorter one times a shifted longer one."""
    x, y = alike(a, v)
    if x.ndim != 1 or y.ndim != 1 or not x.numel() or not y.numel():
        raise ValueError("np.convolve takes vectors with at least one element")
    m, n = (x, y) if x.numel() >= y.numel() else (y, x)
    long, short = m.numel(), n.numel()
    padded = aj.nn.functional.pad(m, (short - 1, short - 1))
    full = aj.matmul(padded.unfold(0, short, 1), n.flip(0))
    if mode in ("full", 2):
        return full
    start = (short - 1) // 2 if mode in ("same", 1) else short - 1
    count = long if mode in ("same", 1) else long - short + 1
    return full[start : start + count]


@implements("correlate")
def _correlate(a: Any, v: Any, mode: Any = "valid") -> Any:
    x, y = alike(a, v)
    return _convolve(x, aj.conj(y).flip(0), mode)


# ---- differences, integrals, interpolation


@implements("diff")
def _diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Any:
    x = tensor_of(a)
    place = axis_of(axis, x.ndim)
    first, last = [_end(x, e, place) if np.isscalar(e) else e for e in (prepend, append)]
    parts = [p for p in (first, x, last) if p is not None and p is not NO_VALUE]
    return aj.diff(joined(aj.cat, parts, place) if len(parts) > 1 else x, n, place)


def _end(x: Any, value: Any, axis: int) -> Any:
    shape = [1 if place == axis else n for place, n in enumerate(x.shape)]
    return aj.full(shape, value, dtype=promoted([x, value]), device=x.device)


@implements("ediff1d")
def _ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    x = tensor_of(ary).reshape(-1)
    middle = x[1:] - x[:-1]
    parts = [None if p is None else tensor_of(p).reshape(-1).to(x.dtype) for p in (to_begin, to_end)]
    return aj.cat([p for p in (parts[0], middle, parts[1]) if p is not None])


@implements("gradient")
def _gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    x = inexact(f)
    axes = axes_of(axis, x.ndim)
    spacings = list(varargs) if len(varargs) == len(axes) else [varargs[0] if varargs else 1.0] * len(axes)
    if len(varargs) not in (0, 1, len(axes)):
        raise TypeError("invalid number of arguments")
    found = [_slope(x, place, operand(h), edge_order) for place, h in zip(axes, spacings)]
    return found[0] if len(found) == 1 else tuple(found)


def _slope(x: Any, axis: int, spacing: Any, edge_order: int) -> Any:
    y = x.movedim(axis, -1)
    if y.shape[-1] < edge_order + 1:
        raise ValueError(
            "Shape of array too small to calculate a numerical gradient, at least (edge_order + 1) elements are "
            "required."
        )
    count = y.shape[-1]
    uneven = isinstance(spacing, aj.Tensor) and spacing.ndim == 1
    steps = spacing[1:] - spacing[:-1] if uneven else spacing * y.new_ones((count - 1,), dtype=y.dtype.to_real())
    before, after = steps[:-1], steps[1:]
    inner = (
        -after / (before * (before + after)) * y[..., :-2]
        + (after - before) / (before * after) * y[..., 1:-1]
        + before / (after * (before + after)) * y[..., 2:]
    )
    ends = _edge(y, steps, edge_order), _edge(y.flip(-1), -steps.flip(0), edge_order)
    return aj.cat([ends[0], inner, ends[1]], -1).movedim(-1, axis).to(y.dtype)


def _edge(y: Any, steps: Any, order: int) -> Any:
    """The one-sided derivative at the first point."""
    if order == 1:
        return (y[..., 1:2] - y[..., :1]) / steps[0]
    h, k = steps[0], steps[1]
    first = -(2 * h + k) / (h * (h + k)) * y[..., :1] + (h + k) / (h * k) * y[..., 1:2]
    return first - h / (k * (h + k)) * y[..., 2:3]


@implements("trapezoid", "trapz")
def _trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Any:
    values = inexact(y)
    place = axis_of(axis, values.ndim)
    count = values.shape[place]
    if not values.shape[place]:
        return aj.zeros_like(values).sum(place)
    if x is None:
        widths = operand(dx)
    else:
        points = inexact(x)
        widths = points[1:] - points[:-1] if points.ndim == 1 else aj.diff(points, 1, place)
        widths = widths.reshape([-1] + [1] * (values.ndim - 1 - place)) if points.ndim == 1 else widths
    left, right = values.narrow(place, 0, count - 1), values.narrow(place, 1, count - 1)
    return (widths * (left + right) / 2.0).sum(place)


@implements("interp")
def _interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Any:
    at, points, values = inexact(x), inexact(xp), inexact(fp)
    if period is not None:
        at, points = aj.remainder(at, abs(period)), aj.remainder(points, abs(period))
        order = aj.argsort(points)
        points, values = points[order], values[order]
        points = aj.cat([points[-1:] - abs(period), points, points[:1] + abs(period)])
        values = aj.cat([values[-1:], values, values[:1]])
    place = aj.clamp(aj.searchsorted(points.detach(), at.detach(), right=True), 1, points.shape[0] - 1)
    x0, x1, y0, y1 = points[place - 1], points[place], values[place - 1], values[place]
    found = y0 + (y1 - y0) * (at - x0) / (x1 - x0)
    if period is None:
        found = aj.where(at < points[0], values[0] if left is None else operand(left), found)
        found = aj.where(at > points[-1], values[-1] if right is None else operand(right), found)
    return found


@implements("unwrap")
def _unwrap(p: Any, discont: Any = None, axis: int = -1, *, period: Any = 2 * np.pi) -> Any:
    x = inexact(p)
    if not x.numel():
        return x.clone()
    steps = aj.diff(x, 1, axis)
    limit = period / 2 if discont is None else discont
    folded = aj.remainder(steps.detach() + period / 2, period) - period / 2
    folded = aj.where((folded == -period / 2) & (steps > 0), period / 2, folded)
    turns = aj.where(aj.abs(steps) < limit, 0, folded - steps.detach())
    first = aj.zeros_like(x.narrow(axis, 0, 1))
    return x + aj.cat([first, aj.cumsum(turns, axis)], axis)


# ---- polynomials, highest power first


@implements("polyval")
def _polyval(p: Any, x: Any) -> Any:
    found: Any = aj.zeros_like(tensor_of(x))
    for coefficient in tensor_of(p).unbind(0):
        found = found * tensor_of(x) + coefficient
    return found


def _aligned(a1: Any, a2: Any) -> tuple[Any, Any]:
    x, y = alike(a1, a2)
    x, y = aj.atleast_1d(x), aj.atleast_1d(y)
    count = max(x.shape[0], y.shape[0])
    pad = aj.nn.functional.pad
    return pad(x, (count - x.shape[0], 0)), pad(y, (count - y.shape[0], 0))


@implements("poly")
def _poly(seq_of_zeros: Any) -> Any:
    zeros = inexact(seq_of_zeros)
    if zeros.ndim == 2:
        zeros = aj.linalg.eigvals(zeros)
    found = aj.ones(1, dtype=zeros.dtype, device=zeros.device)
    for zero in zeros.unbind(0):
        found = _convolve(found, aj.stack([aj.ones_like(zero), -zero]))
    return found


@implements("polydiv")
def _polydiv(u: Any, v: Any) -> Any:
    rest, divisor = alike(inexact(u), inexact(v))
    steps = rest.shape[0] - divisor.shape[0] + 1
    if steps < 1:
        return aj.zeros_like(rest[:1]), rest
    quotient = []
    for _ in range(steps):
        quotient.append(rest[0] / divisor[0])
        taken = aj.nn.functional.pad(quotient[-1] * divisor, (0, rest.shape[0] - divisor.shape[0]))
        rest = (rest - taken)[1:]
    return aj.stack(quotient), rest


@implements("polyder")
def _polyder(p: Any, m: int = 1) -> Any:
    x = tensor_of(p)
    for _ in range(m):
        x = x[:-1] * aj.arange(x.shape[0] - 1, 0, -1, device=x.device)
    return x


@implements("polyint")
def _polyint(p: Any, m: int = 1, k: Any = None) -> Any:
    x = inexact(p)
    constants = [0.0] * m if k is None else list(np.broadcast_to(host(k), (m,)))
    for constant in constants:
        x = aj.cat([x / aj.arange(x.shape[0], 0, -1, device=x.device), x.new_full((1,), float(constant))])
    return x


@implements("polyfit")
def _polyfit(x: Any, y: Any, deg: int, rcond: Any = None, full: bool = False, w: Any = None, cov: Any = False) -> Any:
    if full or cov:
        raise TypeError("np.polyfit: full= and cov= have no form for tensors")
    points, values = alike(x, y)
    matrix = aj.vander(points, deg + 1)
    if w is not None:
        weights = tensor_of(w).to(points.dtype)
        matrix, values = matrix * weights[:, None], (values.T * weights).T
    scale = aj.sqrt((matrix * matrix).sum(0))
    flat = values if values.ndim == 2 else values[:, None]
    found = aj.linalg.lstsq(matrix / scale, flat).solution / scale[:, None]
    return found if values.ndim == 2 else found[:, 0]


@implements("roots")
def _roots(p: Any) -> Any:
    x = tensor_of(p)
    kept = np.flatnonzero(host(x))
    if not len(kept):
        return aj.zeros(0, dtype=x.dtype, device=x.device)
    trailing = x.shape[0] - 1 - int(kept[-1])
    x = x[int(kept[0]) : int(kept[-1]) + 1]
    degree = x.shape[0] - 1
    if degree < 1:
        return aj.zeros(trailing, dtype=x.dtype, device=x.device)
    below = aj.eye(degree, dtype=x.dtype, device=x.device)[:-1]
    found = aj.linalg.eigvals(aj.cat([(-x[1:] / x[0])[None], below], 0))
    return aj.cat([found, aj.zeros(trailing, dtype=found.dtype, device=found.device)]) if trailing else found


# ---- functions applied along axes


@implements("apply_along_axis")
def _apply_along_axis(func1d: Callable[..., Any], axis: int, arr: Any, *args: Any, **kwargs: Any) -> Any:
    x = tensor_of(arr)
    place = axis_of(axis, x.ndim)
    rows = x.movedim(place, -1)
    found = [tensor_of(func1d(row, *args, **kwargs)) for row in rows.reshape(-1, rows.shape[-1]).unbind(0)]
    stacked = joined(aj.stack, found).reshape(*rows.shape[:-1], *found[0].shape)
    made = list(range(rows.ndim - 1, stacked.ndim))
    kept = list(range(rows.ndim - 1))
    return stacked.permute(*kept[:place], *made, *kept[place:])


@implements("apply_over_axes")
def _apply_over_axes(func: Callable[..., Any], a: Any, axes: Any) -> Any:
    x = tensor_of(a)
    for axis in axes_of(axes, x.ndim):
        found = func(x, axis)
        x = found if found.ndim == x.ndim else found.unsqueeze(axis)
    return x


# ---- what only brings its arguments to one of ours


enter(
    kron=lambda a, b: aj.kron(*alike(a, b)),
    polyadd=lambda a1, a2: aj.add(*_aligned(a1, a2)),
    polysub=lambda a1, a2: aj.sub(*_aligned(a1, a2)),
    polymul=lambda a1, a2: _convolve(aj.atleast_1d(tensor_of(a1)), aj.atleast_1d(tensor_of(a2))),
)
enter("linalg", cross=lambda x1, x2, /, *, axis=-1: _cross(x1, x2, axis=axis))
