"""How a convolution by minimal filtering is cut into tiles and blocks, and whether it is worth it."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from autojit.codegen.cpu.convolutions.minimal_filtering import MOST_TAPS, Filtering, filtering
from autojit.codegen.target import HostTarget
from autojit.core.dtypes import DType, bfloat16, float32
from autojit.core.records import record
from autojit.core.sizes import is_symbolic, size_max, typical
from autojit.core.types import Shape
from autojit.ir.graph import Node
from autojit.ops.convolution import ConvolutionInput, Trilinear

BLOCK_POINTS = 32 * 36
"""Points of a channel that are made before they are multiplied: of 32 tiles of two axes, of 192 of a line."""

CHANNELS = 64
"""Most channels of a block, of either operand: with `BLOCK_POINTS` a block's data stay in a second-level cache."""

WIDEST = 256
"""Tiles of a row: a block has whole rows, and its memory should not be that of an image."""

LANES = 16
"""Channels that arithmetic is estimated for, on every machine: all compute an element by the same sums."""

TILE_CYCLES, WEIGHT_CYCLES = 7, 8
"""Cycles per point to transform `LANES` channels: of a tile (packing included), and of the weights of one channel.

Fitted to 27 convolutions of 16 to 512 channels on a Zen 4 core with AVX-512; the estimates are right to some 20 %.
"""

SUM_CYCLES = 4
"""Of one weight of a plain derivative by the weight: a sum across lanes."""

WORTH, LEAST_CYCLES = 0.85, 20_000
"""The part of a plain convolution's time, and the cycles, that must be saved: a few microseconds are left alone."""


@record
class Window:
    """A convolution of two axes without stride and dilation: ``result[p] = sum over k of image[p + k - padding]``.

    Args:
        images: how many.
        groups: of channels.
        steps: channels of a group that are added up.
        lanes: channels of a group that the result has.
        image: extents.
        result: extents.
        kernel: taps per axis.
        padding: zeros before the image; may be negative.
        operand: float32, or bfloat16, which is computed in float32.
    """

    images: int
    groups: int
    steps: int
    lanes: int
    image: Shape
    result: Shape
    kernel: Shape
    padding: tuple[int, ...]
    operand: DType

    @property
    def taps(self) -> int:
        return prod(self.kernel)

    @property
    def forms(self) -> tuple[Filtering, Filtering]:
        """Of the rows and of the columns."""
        height, width = (filtering(k) for k in self.kernel)
        return height, width

    @property
    def seen(self) -> tuple[int, int]:
        """Extents of what a tile sees."""
        height, width = (form.points for form in self.forms)
        return height, width

    @property
    def made(self) -> tuple[int, int]:
        """Places of a tile."""
        height, width = (form.places for form in self.forms)
        return height, width

    @property
    def tiles(self) -> tuple[int, int]:
        """How many there are along each axis."""
        height, width = (-(-n // m) for n, m in zip(self.result, self.made, strict=True))
        return height, width


def window_of(node: Node) -> Window | None:
    """The convolution that a node is: transposed, of its images; a derivative by the weight, the one it belongs to.

    None where minimal filtering has nothing for it.
    """
    op = node.op
    assert isinstance(op, Trilinear)
    types = dict(zip(op.roles, (v.type for v in (*node.inputs, *node.outputs)), strict=True))
    x, w, y = types["x"].shape, types["w"].shape, types["y"].shape
    fixed = (*x[1:], *w, *y[1:])
    is_float32 = node.outputs[0].type.dtype is float32
    if not is_float32 or len(w) > 4 or any(map(is_symbolic, fixed)) or 0 in fixed or x[0] == 0:
        return None
    kernel = _two(w[2:], 1)
    if {*op.stride, *op.dilation} != {1} or max(kernel) > MOST_TAPS or max(kernel) == 1:
        return None
    image, result, padding = _two(x[2:], 1), _two(y[2:], 1), _two(op.padding, 0)
    steps, lanes = x[1] // op.groups, y[1] // op.groups
    if isinstance(op, ConvolutionInput):
        image, result, steps, lanes = result, image, lanes, steps
        padding = tuple(k - 1 - p for k, p in zip(kernel, padding, strict=True))
    return Window(x[0], op.groups, steps, lanes, image, result, kernel, padding, node.inputs[0].type.dtype)


def _two(values: Sequence[int], fill: int) -> Shape:
    """One number per axis. A line is a column, for blocks have whole rows."""
    return (*values, *(fill,) * (2 - len(values)))


def is_worth_filtering(window: Window, *, by_weight: bool) -> bool:
    """Whether transforms cost less than the products that they save; depends on shapes alone."""
    tiles = typical(window.images) * prod(window.tiles)
    if window.tiles[1] > WIDEST:
        return False
    places = typical(window.images) * prod(window.result)
    plain = 1.1 * places * window.taps * window.steps * window.lanes / LANES
    if window.operand is bfloat16:  # two products at a time
        plain /= 2
    plain += SUM_CYCLES * window.taps * window.steps * window.lanes if by_weight else 0
    blocks = -(-window.lanes // LANES)
    products = 1.15 * tiles * window.steps * blocks
    seen_again = -(-window.lanes // CHANNELS)
    transforms = TILE_CYCLES * tiles * (-(-window.steps // LANES) * seen_again + blocks)
    filtered = prod(window.seen) * (products + transforms + WEIGHT_CYCLES * blocks * window.steps)
    worth = 1.0 if window.operand is bfloat16 else WORTH  # casts are fused with transforms
    return filtered < worth * plain and window.groups * (plain - filtered) > LEAST_CYCLES


@record
class Blocks:
    """Blocks of tiles: ``images`` images; of their ``all_rows`` rows of ``columns`` tiles, ``rows`` per band."""

    images: int
    rows: int
    columns: int
    all_rows: int
    bands: int
    count: int

    @property
    def of_image(self) -> int:
        """Tiles of one image."""
        return self.rows * self.columns

    @property
    def tiles(self) -> int:
        return self.images * self.of_image


def blocks_of(window: Window) -> Blocks:
    """Several images with few tiles, or some rows of tiles of one."""
    height, width = window.tiles
    most = BLOCK_POINTS // prod(window.seen)
    if height * width <= most:
        images = max(1, min(typical(window.images), most // (height * width)))
        return Blocks(images, height, width, height, 1, -(-window.images // images))
    bands = -(-height // max(1, most // width))
    rows = -(-height // bands)
    bands = -(-height // rows)
    return Blocks(1, rows, width, height, bands, bands * window.images)


def register_tile(target: HostTarget, rows: int, vectors: int) -> tuple[int, int]:
    """Rows and vectors of the sums in registers: few rows that nothing is left of, and as many as there is room for."""
    sums = 3 * target.vector_registers // 4
    width = 2 if vectors > 1 else 1
    heights = range(1, max(1, min(sums // width, rows)) + 1)
    return min(heights, key=lambda h: (-(-rows // h) * max(h * width + 2, 9), -h)), width


def cut_evenly(extent: int, most: int, step: int) -> tuple[int, int]:
    """(size, number) of equal blocks of at most ``most``, whose size is a multiple of ``step``."""
    count = -(-extent // most)
    size = -(-extent // count)
    size = -(-size // step) * step
    return size, -(-extent // size)


def part_of(count: int, parts: int) -> int:
    """The size of even parts."""
    return size_max(1, -(-count // parts))
