"""How a convolution is laid out for its kernels: three spatial axes, packed images, bands, taps as offsets.

An image is *packed* before it is read: inside zeros, and split into phases where the stride is not 1, so that what one
tap sees from neighbouring places is side by side. Packed element ``q`` of phase ``f`` along an axis is element ``(q +
start) * step + f - low`` of the image. Then tap ``k`` of a convolution reads place ``j`` at ``j + offset(k)``, whatever
the stride and dilation are, and also across the ends of rows: a *run* of places may cover several rows, with a few
places of no meaning between them.

The transposed convolution is the same with the roles changed: the places of the image fall into phases (one per residue
modulo the stride), each of which sees a few taps of an image without phases.

An image may also be packed once per column of the kernel, moved so that a tap reads place ``j`` at ``j``: then rows of
places follow each other without gaps, and a run of all of them has no places of no meaning.

A *band* is a range of places along the first spatial axis, small enough for its packed image to stay in the cache.

Extents may be symbolic, also those of bands and of packed images, which follow from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import product
from math import prod

from autojit.core.records import record
from autojit.core.sizes import is_symbolic, size_max
from autojit.core.types import Shape
from autojit.ops.convolution import Convolution, ConvolutionInput, ConvolutionWeight

PACKED_BYTES = 400 << 10
"""Size of a packed image: part of the second-level cache of most cores (512 KiB and more)."""

AXES = 3


@record
class Phase:
    """Places ``first + step * j`` of the result, their number per axis, and every tap's offsets (weight, packed).

    Taps come in lines of ``line`` along the last axis. Line ``g`` of a kernel without depth sees, from row ``j`` of
    places, row ``step * j + rows[g]`` of the image, ``step`` being the layout's.
    """

    first: Shape
    counts: Shape
    taps: tuple[tuple[int, int], ...]
    line: int
    rows: tuple[int, ...]


@record
class Layout:
    """A packed image and the places that see it.

    Args:
        image: extents of the image.
        places: extents of the grid of places, of one phase.
        band: places of a band; equal to ``places`` but along ``band_axis``.
        step: between packed elements of a part.
        parts: phases per axis, or copies along the last one.
        apart: between the first elements of parts along the last axis.
        low: zeros before the image.
        packed: extents of one packed phase of a band.
        phases: the result's phases.
        result_step: between the places of a phase of the result.
        result: extents of the result.
    """

    image: Shape
    places: Shape
    band: Shape
    band_axis: int
    step: Shape
    parts: Shape
    apart: int
    low: tuple[int, ...]
    packed: Shape
    phases: tuple[Phase, ...]
    result_step: Shape
    result: Shape

    @property
    def plane(self) -> int:
        """Elements of a packed channel."""
        return prod(self.parts) * prod(self.packed)

    @property
    def bands(self) -> int:
        return -(-self.places[self.band_axis] // self.band[self.band_axis])

    def seen(self, phase: Phase, row: int) -> tuple[int, int]:
        """The lines of taps (first, behind the last) that see the image, not zeros, from a row of places."""
        places = [row * self.step[1] + tap for tap in phase.rows]
        inside = [g for g, place in enumerate(places) if 0 <= place < self.image[1]]
        return (inside[0], inside[-1] + 1) if inside else (0, 0)

    @property
    def is_flat(self) -> bool:
        """Whether places and kernel have no depth, so that a row of places sees rows of the image."""
        return self.places[0] == 1 and all(len(p.taps) == p.line * len(p.rows) for p in self.phases)

    @property
    def span(self) -> int:
        """Packed elements from the first place of a band to its last."""
        (d, h, w), (_, rows, columns) = self.band, self.packed
        return ((d - 1) * rows + h - 1) * columns + w

    @property
    def reach(self) -> int:
        """The greatest offset of a tap."""
        return reduce(size_max, (offset for phase in self.phases for _, offset in phase.taps), 0)

    @property
    def is_open(self) -> bool:
        """Whether an extent is symbolic."""
        return any(map(is_symbolic, (*self.image, *self.places, *self.result)))


def three(values: Sequence[int], fill: int) -> Shape:
    """One number per axis, with leading axes up to three."""
    return (*(fill,) * (AXES - len(values)), *values)


def forward_layout(
    op: Convolution | ConvolutionWeight, image: Shape, kernel: Shape, places: Shape, row: int, copies: bool = False
) -> Layout:
    """The layout of a convolution's image; ``row`` is the bytes of one packed position of all channels of a unit.

    With ``copies`` the image is packed once per column of the kernel.
    """
    axis = AXES - len(image)
    grid, stride, dilation = three(places, 1), three(op.stride, 1), three(op.dilation, 1)
    reach = [_shifts(k, s, d) for k, s, d in zip(three(kernel, 1), stride, dilation, strict=True)]
    parts, apart = stride, 1
    if copies:
        reach[2] = [(k, 0) for k in range(len(reach[2]))]
        parts, apart = (*stride[:2], len(reach[2])), dilation[2]
    extra = [max(shift for _, shift in line) for line in reach]
    band = _band(grid, axis, row * prod(parts), extra)
    packed = tuple(b + e for b, e in zip(band, extra, strict=True))
    taps = []
    for number, taps_at in enumerate(product(*reach)):
        phase, offset = 0, 0
        for (f, shift), s, q in zip(taps_at, parts, packed, strict=True):
            phase, offset = phase * s + f, offset * q + shift
        taps.append((number, phase * prod(packed) + offset))
    low = three(op.padding, 0)
    rows = tuple(shift * stride[1] + phase - low[1] for phase, shift in reach[1])
    whole = Phase((0,) * AXES, grid, tuple(taps), len(reach[2]), rows)
    return Layout(three(image, 1), grid, band, axis, stride, parts, apart, low, packed, (whole,), (1,) * AXES, grid)


def _shifts(kernel: int, stride: int, dilation: int) -> list[tuple[int, int]]:
    """(phase, shift) of every tap along one axis."""
    return [(k * dilation % stride, k * dilation // stride) for k in range(kernel)]


def transposed_layout(op: ConvolutionInput, image: Shape, kernel: Shape, row: int, copies: bool = False) -> Layout:
    """The layout of a transposed convolution, whose packed image is what it is applied to; as `forward_layout`."""
    axis = AXES - len(image)
    result, stride = three(op.extents, 1), three(op.stride, 1)
    grid = tuple(-(-n // s) for n, s in zip(result, stride, strict=True))
    windows = zip(three(kernel, 1), stride, three(op.dilation, 1), three(op.padding, 0), strict=True)
    lines = [_seen_taps(*window) for window in windows]
    every = [[shift for phase in line for _, shift in phase] for line in lines]
    low = tuple(-min(shifts, default=0) for shifts in every)
    extra = [max(shifts, default=0) + first for shifts, first in zip(every, low, strict=True)]
    parts = (1,) * AXES
    if copies:
        parts, extra[2] = (1, 1, extra[2] + 1), 0
    band = _band(grid, axis, row * prod(parts), extra)
    packed = tuple(b + e for b, e in zip(band, extra, strict=True))
    kernel_axes = three(kernel, 1)
    phases = []
    for first in product(*map(range, stride)):
        counts = tuple(size_max(0, -(-(n - f) // s)) for n, f, s in zip(result, first, stride, strict=True))
        taps = []
        for chosen in product(*(line[f] for line, f in zip(lines, first, strict=True))):
            tap, offset = 0, 0
            for (k, shift), extent, q, zeros in zip(chosen, kernel_axes, packed, low, strict=True):
                tap, offset = tap * extent + k, offset * q + shift + zeros
            if copies:  # the shift along the last axis chooses the copy
                moved = chosen[2][1] + low[2]
                offset += moved * (prod(packed) - 1)
            taps.append((tap, offset))
        if prod(counts):
            rows = tuple(shift for _, shift in lines[1][first[1]])
            phases.append(Phase(first, counts, tuple(taps), len(lines[2][first[2]]), rows))
    ones = (1,) * AXES
    return Layout(three(image, 1), grid, band, axis, ones, parts, 1, low, packed, tuple(phases), stride, result)


def _seen_taps(kernel: int, stride: int, dilation: int, padding: int) -> list[list[tuple[int, int]]]:
    """For every phase of the result the taps (k, shift) that place ``j`` of the phase sees at ``j + shift``."""
    found = []
    for first in range(stride):
        whole = [(k, first + padding - k * dilation) for k in range(kernel)]
        found.append([(k, distance // stride) for k, distance in whole if distance % stride == 0])
    return found


def _band(grid: Shape, axis: int, row: int, extra: list[int]) -> Shape:
    """The grid cut along ``axis`` into even bands whose packed image is small enough."""
    across = prod(n + e for k, (n, e) in enumerate(zip(grid, extra, strict=True)) if k != axis)
    most = size_max(1, PACKED_BYTES // size_max(row * across, 1) - extra[axis])
    count = -(-grid[axis] // most) if grid[axis] else 1
    size = size_max(1, -(-grid[axis] // count))
    return tuple(size if k == axis else n for k, n in enumerate(grid))
