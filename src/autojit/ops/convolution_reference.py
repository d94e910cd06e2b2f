"""The three convolutions in NumPy: windows as strided views, products by matrix products, loops over taps at most.

Images go through a block at a time, so that the copied windows of a block stay in the cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from autojit.core.records import record
from autojit.core.types import Shape

if TYPE_CHECKING:
    from numpy.typing import NDArray

BLOCK_BYTES = 1 << 20
"""Size of the windows of a block of images: part of a second-level cache, many images if they are small."""

Array = "NDArray[Any]"


@record
class Geometry:
    """How windows are placed on an image; one entry per spatial axis."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    def reach(self, places: Shape, kernel: Shape) -> Shape:
        """Extents of the padded image that the windows touch."""
        spans = zip(places, kernel, self.stride, self.dilation, strict=True)
        return tuple(max(n - 1, 0) * s + (k - 1) * d + 1 for n, k, s, d in spans)


def evaluate(x: NDArray[Any], w: NDArray[Any], geometry: Geometry, places: Shape) -> NDArray[Any]:
    """``y`` from ``x`` and ``w``."""
    x, w, dtype = _widened(x, w)
    groups, outputs, inputs, kernel = _weight_parts(w, geometry)
    y = np.zeros((x.shape[0], groups, outputs, prod(places)), w.dtype)
    weight = w.reshape(groups, outputs, inputs * prod(kernel))
    if y.size and weight.size:
        for rows, columns in _windows(x, geometry, places, kernel):
            np.matmul(weight, columns, out=y[rows])
    return np.asarray(y.reshape(x.shape[0], groups * outputs, *places).astype(dtype, copy=False))


def evaluate_weight(x: NDArray[Any], y: NDArray[Any], geometry: Geometry, kernel: Shape) -> NDArray[Any]:
    """``w`` from ``x`` and ``y``."""
    x, y, dtype = _widened(x, y)
    groups, places = geometry.groups, y.shape[2:]
    inputs, outputs = x.shape[1] // groups, y.shape[1] // groups
    w = np.zeros((groups, outputs, inputs * prod(kernel)), x.dtype)
    grouped = y.reshape(y.shape[0], groups, outputs, prod(places))
    if grouped.size and w.size:
        for rows, columns in _windows(x, geometry, places, kernel):
            w += np.matmul(grouped[rows], np.swapaxes(columns, -1, -2)).sum(0)
    return np.asarray(w.reshape(groups * outputs, inputs, *kernel).astype(dtype, copy=False))


def evaluate_input(y: NDArray[Any], w: NDArray[Any], geometry: Geometry, image: Shape) -> NDArray[Any]:
    """``x`` from ``y`` and ``w``: the products of each tap are added where the tap looks."""
    y, w, dtype = _widened(y, w)
    groups, outputs, inputs, kernel = _weight_parts(w, geometry)
    places = y.shape[2:]
    reach = geometry.reach(places, kernel)
    whole = tuple(max(n, p + m) for n, p, m in zip(reach, geometry.padding, image, strict=True))
    padded = np.zeros((y.shape[0], groups, inputs, *whole), w.dtype)
    grouped = y.reshape(y.shape[0], groups, outputs, prod(places))
    weight = np.ascontiguousarray(np.moveaxis(w.reshape(groups, outputs, inputs, prod(kernel)), 1, 3))
    if grouped.size and padded.size:
        for tap, k in enumerate(product(*map(range, kernel))):
            part = np.matmul(weight[:, :, tap], grouped).reshape(y.shape[0], groups, inputs, *places)
            padded[_trailing(*_seen_by(k, places, geometry))] += part
    kept = tuple(slice(p, p + n) for p, n in zip(geometry.padding, image, strict=True))
    x = padded[_trailing(*kept)].reshape(y.shape[0], groups * inputs, *image)
    return np.asarray(np.ascontiguousarray(x).astype(dtype, copy=False))


def _seen_by(k: tuple[int, ...], places: Shape, geometry: Geometry) -> tuple[slice, ...]:
    """The elements of the padded image that tap ``k`` sees from all places."""
    found = []
    for at, n, step, d in zip(k, places, geometry.stride, geometry.dilation, strict=True):
        found.append(slice(at * d, at * d + (n - 1) * step + 1, step))
    return tuple(found)


def _widened(a: NDArray[Any], b: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], np.dtype[Any]]:
    """Halves are multiplied and accumulated in float32 and rounded once."""
    if a.dtype.itemsize == 2 and a.dtype.kind not in "iu":
        return a.astype(np.float32), b.astype(np.float32), a.dtype
    return a, b, a.dtype


def _weight_parts(w: NDArray[Any], geometry: Geometry) -> tuple[int, int, int, Shape]:
    """(groups, outputs of a group, inputs of a group, kernel)."""
    return geometry.groups, w.shape[0] // geometry.groups, w.shape[1], w.shape[2:]


def _windows(x: NDArray[Any], geometry: Geometry, places: Shape, kernel: Shape) -> Iterator[tuple[slice, NDArray[Any]]]:
    """Blocks of images as matrices (image, group, channel and tap, place)."""
    groups, inputs = geometry.groups, x.shape[1] // geometry.groups
    padded = _padded(x, geometry, geometry.reach(places, kernel))
    strides = padded.strides
    spatial = zip(strides[2:], geometry.stride, geometry.dilation, strict=True)
    steps = [(stride * step, stride * d) for stride, step, d in spatial]
    view = as_strided(
        padded,
        (x.shape[0], groups, inputs, *kernel, *places),
        (strides[0], strides[1] * inputs, strides[1], *(d for _, d in steps), *(s for s, _ in steps)),
        writeable=False,
    )
    rows, columns = inputs * prod(kernel), prod(places)
    per_image = groups * rows * columns * x.itemsize
    count = max(1, BLOCK_BYTES // max(per_image, 1))
    for first in range(0, x.shape[0], count):
        block = view[first : first + count]
        yield slice(first, first + count), block.reshape(block.shape[0], groups, rows, columns)


def _padded(x: NDArray[Any], geometry: Geometry, reach: Shape) -> NDArray[Any]:
    """The image inside zeros, from the first element that a window sees to the last."""
    image = x.shape[2:]
    if not any(geometry.padding) and all(n <= m for n, m in zip(reach, image, strict=True)):
        return x
    padded = np.zeros((*x.shape[:2], *reach), x.dtype)
    inner, outer = [], []
    for p, n, m in zip(geometry.padding, image, reach, strict=True):
        kept = max(0, min(n, m - p))
        inner.append(slice(0, kept))
        outer.append(slice(min(p, m), min(p, m) + kept))
    padded[_trailing(*outer)] = x[_trailing(*inner)]
    return padded


def _trailing(*places: slice) -> Any:
    """An index into the last axes."""
    return (..., *places)
