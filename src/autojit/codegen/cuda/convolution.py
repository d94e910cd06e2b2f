"""Convolutions on a GPU: products whose operands are seen through windows, tile by tile and never written out.

All three ops are one sum (`ops.convolution`) of image ``x[n, c, q]``, weight ``w[o, c, k]`` and output ``y[n, o, p]``,
group of channels by group::

    op                 matrices  rows  columns  depth    left operand  right operand
    convolution        n, group  o     p        c, k     w             x, at p * stride + k * dilation - padding
    its input          n, group  c     q        o, k     w             y, at (q + padding - k * dilation) / stride
    its weight         group     o     c, k     n, p     y             x, at p * stride + k * dilation - padding

Rows of matrices follow each other in the result as they are. An operand's line and its depth are row-major numbers of
several *digits*; a *window* makes a place along one axis of the image of a digit of each. What is outside of the
image, or between two of its elements, counts as zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from math import prod
from typing import ClassVar

from autojit.codegen.cuda.emitter import CONSTANT_SPACE
from autojit.codegen.cuda.grid_function import CudaKernel
from autojit.codegen.cuda.product_job import ProductJob, Shape, choice_of, has_copies
from autojit.codegen.cuda.product_kernel import ProductPrinter, printed
from autojit.codegen.cuda.product_operands import Stored
from autojit.codegen.cuda.products import EpiloguePrinter
from autojit.codegen.cuda.target import CudaTarget
from autojit.codegen.grid_text import GridText
from autojit.core.records import record
from autojit.core.sizes import surely_less
from autojit.core.types import Shape as Extents
from autojit.ir.graph import Node, Value
from autojit.ops.convolution import Convolution, ConvolutionInput, ConvolutionWeight, Trilinear
from autojit.schedule.kernels import Epilogue

TABLE = "@places"
MOST_ENTRIES = 2304
"""Of a table: 36 KiB of the 64 that constants have."""
DEEPEST = 256
"""No turn of a product's loop is deeper."""

NARROW = "i32"
"""What GPUs compute with."""


@record
class Digit:
    """A digit of a line or a depth: its extent, and how far apart in memory its values are."""

    extent: int
    stride: int = 0


@record
class Window:
    """The place along an axis of an image that a digit of the line and one of the depth see.

    It is ``(line_factor * line digit + depth_factor * depth digit + first) / step`` where that is whole and inside.

    Args:
        line, depth: which digits.
        extent: of the axis.
        stride: of the axis in memory.
    """

    line: int
    depth: int
    line_factor: int
    depth_factor: int
    first: int
    step: int
    extent: int
    stride: int


@record
class Windowed(Stored):
    """An operand by digits and windows.

    Args:
        steps: from matrix to matrix, which say how positions are aligned.
    """

    lines: int
    depth: int
    line_digits: tuple[Digit, ...]
    depth_digits: tuple[Digit, ...]
    windows: tuple[Window, ...]
    is_deep: bool
    steps: tuple[int, ...]

    @property
    def has_table(self) -> bool:
        """Whether what depths add to places is looked up: lines are next to each other, so a warp looks up one depth.

        A table costs a load where digits of a depth cost three instructions each, for every element.
        """
        is_whole = all(window.step == 1 for window in self.windows)
        return (
            bool(self.windows) and is_whole and not self.is_deep and self.depth <= MOST_ENTRIES and self.kind == NARROW
        )

    def _table(self) -> list[tuple[int, ...]]:
        """Of every depth what it adds to the position, and to the place along each window's axis."""
        found = []
        for depth in range(self.depth):
            values, rest = list[int](), depth
            for digit in reversed(self.depth_digits):
                values.insert(0, rest % digit.extent)
                rest //= digit.extent
            seen = [window.depth_factor * values[window.depth] for window in self.windows]
            strides = [digit.stride for digit in self.depth_digits] + [window.stride for window in self.windows]
            position = sum(value * stride for value, stride in zip((*values, *seen), strides, strict=True))
            found.append((position, *seen))
        return found

    def _by_table(self, kernel: CudaKernel, line: str, depth: str) -> tuple[str, str | None]:
        width = 1 << len(self.windows).bit_length()
        kind = f"[{width} x {NARROW}]"
        if TABLE not in kernel.module.definitions:
            rows = [(*row, *[0] * (width - len(row))) for row in self._table()]
            rows += [(0,) * width] * (-len(rows) % DEEPEST)  # parts may be deeper than what is left
            text = ", ".join(f"{kind} [{', '.join(f'{NARROW} {number}' for number in row)}]" for row in rows)
            kernel.module.definitions[TABLE] = (
                f"{TABLE} = internal {CONSTANT_SPACE}constant [{len(rows)} x {kind}] [{text}], align {4 * width}"
            )
        entry = kernel.element(f"{CONSTANT_SPACE}{TABLE}", kind, depth)
        words = [kernel.load(NARROW, kernel.element(entry, NARROW, k)) for k in range(1 + len(self.windows))]
        lines = _digits(kernel, kernel.convert("trunc", line, kernel.index_type, NARROW), self.line_digits, NARROW)
        is_zero: list[str] = []
        terms = [(value, digit.stride) for value, digit in zip(lines, self.line_digits, strict=True) if digit.stride]
        for window, seen in zip(self.windows, words[1:], strict=True):
            first = kernel.add(kernel.mul(lines[window.line], window.line_factor, NARROW), window.first, NARROW)
            terms.append((first, window.stride))
            is_zero.append(kernel.test("uge", kernel.add(first, seen, NARROW), window.extent, NARROW))
        before = reduce(lambda a, b: kernel.add(a, b, NARROW), [kernel.mul(v, by, NARROW) for v, by in terms])
        position = kernel.add(before, words[0], NARROW)
        return kernel.convert("sext", position, NARROW), reduce(kernel.either, is_zero)

    @property
    def kind(self) -> str:
        """The type of positions: narrow, where all are less than 2^31, what is outside of the image as well."""
        digits = (*self.line_digits, *self.depth_digits)
        reach = sum(digit.extent * digit.stride for digit in digits)
        for window in self.windows:
            lines, depths = self.line_digits[window.line].extent, self.depth_digits[window.depth].extent
            most = lines * abs(window.line_factor) + depths * abs(window.depth_factor) + abs(window.first)
            reach += most * window.stride
        return NARROW if surely_less(reach + self.lines + self.depth, 1 << 31) else "i64"

    @property
    def runs_deep(self) -> bool:
        """As it was said: of digits of one stride each there is no smaller one."""
        return self.is_deep

    def step(self) -> int | None:
        """Windows are not in rows."""
        return None

    def most_neighbours(self, width: int) -> int:
        """As far as the last digit's values are next to each other and begin at multiples, all or none of them there.

        One, where a window looks by that digit: what is next to an element may be outside of the image.
        """
        own = self.depth_digits if self.is_deep else self.line_digits
        seen = {w.depth if self.is_deep else w.line for w in self.windows}
        if own[-1].stride != 1 or len(own) - 1 in seen:
            return 1
        others = [d.stride for d in (*self.line_digits, *self.depth_digits)]
        others.remove(1)
        extents = own[-1].extent, *others, *self.steps, *(window.stride for window in self.windows)
        while any(n % width for n in extents):
            width //= 2
        return width

    def place(self, kernel: CudaKernel, line: str, depth: str) -> tuple[str, str | None]:
        """The sum of what digits and windows say."""
        if self.has_table:
            return self._by_table(kernel, line, depth)
        kind, wide = self.kind, kernel.index_type
        if kind != wide:
            line, depth = (kernel.convert("trunc", number, wide, kind) for number in (line, depth))
        lines, depths = _digits(kernel, line, self.line_digits, kind), _digits(kernel, depth, self.depth_digits, kind)
        terms: list[str] = []
        for values, digits in ((lines, self.line_digits), (depths, self.depth_digits)):
            for value, digit in zip(values, digits, strict=True):
                if digit.stride:
                    terms.append(kernel.mul(value, digit.stride, kind))
        is_zero: str | None = None
        for window in self.windows:
            place, outside = _seen(kernel, window, lines[window.line], depths[window.depth], kind)
            terms.append(kernel.mul(place, window.stride, kind))
            is_zero = outside if is_zero is None else kernel.either(is_zero, outside)
        position = reduce(lambda a, b: kernel.add(a, b, kind), terms)
        return position if kind == wide else kernel.convert("sext", position, kind), is_zero


def _digits(kernel: CudaKernel, number: str, digits: Sequence[Digit], kind: str) -> list[str]:
    """The digits of a row-major number; the first one takes what is left."""
    found: list[str] = []
    for digit in reversed(digits[1:]):
        found.append(kernel.remainder(number, digit.extent, kind))
        number = kernel.quotient(number, digit.extent, kind)
    return [number, *reversed(found)]


def _seen(kernel: CudaKernel, window: Window, line: str, depth: str, kind: str) -> tuple[str, str]:
    """Where a window looks, and the condition that nothing is there."""
    place = kernel.add(kernel.mul(line, window.line_factor, kind), kernel.mul(depth, window.depth_factor, kind), kind)
    place = kernel.add(place, window.first, kind)
    if window.step == 1:
        return place, kernel.test("uge", place, window.extent, kind)
    before = kernel.test("slt", place, 0, kind)
    between = kernel.test("ne", kernel.remainder(place, window.step, kind), 0, kind)
    whole = kernel.quotient(place, window.step, kind)
    behind = kernel.test("uge", whole, window.extent, kind)
    return whole, kernel.either(before, kernel.either(between, behind))


def _strides(extents: Sequence[int]) -> tuple[int, ...]:
    return tuple(prod(extents[axis + 1 :]) for axis in range(len(extents)))


def _windowed(
    lines: Sequence[Digit],
    depth: Sequence[Digit],
    windows: Sequence[Window],
    steps: tuple[int, ...],
    *,
    is_deep: bool,
) -> Windowed:
    counts = [prod(digit.extent for digit in digits) for digits in (lines, depth)]
    lines, depth = list(lines), list(depth)
    left: list[Window] = []
    for window in windows:
        if _is_open(window, lines, depth):
            lines[window.line] = _seen_through(lines[window.line], window.line_factor * window.stride)
            depth[window.depth] = _seen_through(depth[window.depth], window.depth_factor * window.stride)
        else:
            left.append(window)
    if not left:  # else windows call digits by their numbers
        lines, depth = _joined(lines), _joined(depth)
    if is_deep and not left and lines[-1].stride == 1 != depth[-1].stride:
        is_deep = False
    return Windowed(counts[0], counts[1], tuple(lines), tuple(depth), tuple(left), is_deep, steps)


def _is_open(window: Window, lines: Sequence[Digit], depth: Sequence[Digit]) -> bool:
    """Whether a window has one tap or one place, and what it sees is a multiple of the other, inside of the image."""
    line, tap = lines[window.line].extent, depth[window.depth].extent
    if 1 not in (line, tap) or window.first != 0 or window.step != 1:
        return False
    pairs = (line, window.line_factor), (tap, window.depth_factor)
    far = sum((extent - 1) * factor for extent, factor in pairs)
    return all(extent == 1 or factor > 0 for extent, factor in pairs) and surely_less(far, window.extent)


def _seen_through(digit: Digit, stride: int) -> Digit:
    return Digit(digit.extent, digit.stride + stride * (digit.extent != 1))


def _joined(digits: Sequence[Digit]) -> list[Digit]:
    """Digits of which no two that follow each other in memory could be one; those of one value are left out."""
    found: list[Digit] = []
    for digit in digits:
        if found and digit.extent == 1:
            continue
        if found and (found[-1].extent == 1 or found[-1].stride == digit.extent * digit.stride):
            found[-1] = Digit(found[-1].extent * digit.extent, digit.stride)
        else:
            found.append(digit)
    return found


@record
class _Sum:
    """A convolution as products: its extents are those of one group."""

    shape: Shape
    left: Windowed
    right: Windowed


class _Geometry:
    """Extents and strides of the three factors of a convolution."""

    def __init__(self, op: Trilinear, x: Extents, w: Extents, y: Extents) -> None:
        self.op = op
        self.images, self.groups = x[0], op.groups
        self.ins, self.outs = x[1] // op.groups, y[1] // op.groups
        self.image, self.taps, self.places = x[2:], w[2:], y[2:]
        self.axes = range(len(self.image))

    def convolution(self, sizes: tuple[int, ...]) -> _Sum:
        outs, ins, size, taps = self.outs, self.ins, prod(self.image), prod(self.taps)
        strides = (0, self.groups * ins * size), (outs * ins * taps, ins * size)
        batch = ((self.images, strides[0]), (self.groups, strides[1]))
        depth = [Digit(ins, size), *map(Digit, self.taps)]
        lefts, rights = zip(*strides, strict=True)
        left = _windowed([Digit(outs, ins * taps)], [Digit(ins * taps, 1)], (), lefts, is_deep=True)
        right = _windowed([*map(Digit, self.places)], depth, self._forward(0, 1), rights, is_deep=False)
        extents = outs, prod(self.places), ins * taps
        return _Sum(Shape(extents, batch, _NONE, _NONE, sizes), left, right)

    def input(self, sizes: tuple[int, ...]) -> _Sum:
        outs, ins, size, taps = self.outs, self.ins, prod(self.places), prod(self.taps)
        strides = (0, self.groups * outs * size), (outs * ins * taps, outs * size)
        batch = ((self.images, strides[0]), (self.groups, strides[1]))
        lefts, rights = zip(*strides, strict=True)
        left = _windowed([Digit(ins, taps)], [Digit(outs, ins * taps), Digit(taps, 1)], (), lefts, is_deep=True)
        depth = [Digit(outs, size), *map(Digit, self.taps)]
        right = _windowed([*map(Digit, self.image)], depth, self._backward(), rights, is_deep=False)
        return _Sum(Shape((ins, prod(self.image), outs * taps), batch, _NONE, _NONE, sizes), left, right)

    def weight(self, sizes: tuple[int, ...]) -> _Sum:
        outs, ins, size, places = self.outs, self.ins, prod(self.image), prod(self.places)
        batch = ((self.groups, (outs * places, ins * size)),)
        images = self.groups * outs * places, self.groups * ins * size
        ((_, (lefts, rights)),) = batch
        y_depth = [Digit(self.images, images[0]), Digit(places, 1)]
        left = _windowed([Digit(outs, places)], y_depth, (), (lefts,), is_deep=True)
        lines, depth = [Digit(ins, size), *map(Digit, self.taps)], [Digit(self.images, images[1])]
        windows = self._forward(1, 1, swapped=True)
        right = _windowed(lines, [*depth, *map(Digit, self.places)], windows, (rights,), is_deep=True)
        extents = outs, ins * prod(self.taps), self.images * places
        return _Sum(Shape(extents, batch, _NONE, _NONE, sizes), left, right)

    def _forward(self, line: int, depth: int, *, swapped: bool = False) -> list[Window]:
        """Windows on the image; their lines are places and their depths taps, unless these are swapped."""
        op, strides = self.op, _strides(self.image)
        found = []
        for a in self.axes:
            factors = (op.dilation[a], op.stride[a]) if swapped else (op.stride[a], op.dilation[a])
            found.append(Window(line + a, depth + a, *factors, -op.padding[a], 1, self.image[a], strides[a]))
        return found

    def _backward(self) -> list[Window]:
        """Windows on the places, from the image."""
        op, strides = self.op, _strides(self.places)
        return [
            Window(a, 1 + a, 1, -op.dilation[a], op.padding[a], op.stride[a], self.places[a], strides[a])
            for a in self.axes
        ]


_NONE = (0, 0, 0)  # the operands' places are those of digits


def _sum_of(node: Node, buffers: Sequence[Value]) -> _Sum:
    """A convolution as products, whose left operand is the node's second input."""
    op = node.op
    assert isinstance(op, Trilinear)
    shapes = dict(zip(op.roles, (value.type.shape for value in (*node.inputs, *node.outputs)), strict=True))
    sizes = tuple(value.type.size for value in buffers)
    geometry = _Geometry(op, shapes["x"], shapes["w"], shapes["y"])
    if isinstance(op, Convolution):
        return geometry.convolution(sizes)
    if isinstance(op, ConvolutionInput):
        return geometry.input(sizes)
    assert isinstance(op, ConvolutionWeight)
    return geometry.weight(sizes)


def buffers_of(node: Node, epilogue: Epilogue | None) -> tuple[Value, ...]:
    """The buffers of the kernel: operands, what an epilogue reads, results."""
    if epilogue is None:
        return (*node.inputs, *node.outputs)
    return (*node.inputs, *epilogue.reads(), *epilogue.writes())


def print_convolution(node: Node, target: CudaTarget, epilogue: Epilogue | None = None) -> GridText:
    """The kernel of a convolution, or of a derivative of one, and of the loops behind it."""
    found = _sum_of(node, buffers_of(node, epilogue))
    target = replace(target, rounds_operands=False)  # what users allow is of matrix products
    dtype = node.inputs[0].type.dtype
    choice = choice_of(found.shape, dtype, target)
    job = ProductJob(found.shape, choice, dtype, node.outputs[0].type.dtype, adds=False, copies=has_copies(target))
    if epilogue is None:
        return printed(job, lambda job: _ConvolutionPrinter(job, found))
    return printed(job, lambda job: _EpiloguePrinter(job, epilogue, found))


class _Seen(ProductPrinter):
    """A product whose operands are seen through windows."""

    operands: ClassVar[tuple[int, int]] = (1, 0)
    found: _Sum

    def stored(self) -> tuple[Stored, Stored]:
        """How weight and image, or output and image, are seen."""
        return self.found.left, self.found.right


class _ConvolutionPrinter(_Seen):
    """Prints one convolution."""

    def __init__(self, job: ProductJob, found: _Sum) -> None:
        super().__init__(job)
        self.found = found


class _EpiloguePrinter(_Seen, EpiloguePrinter):
    """Prints one convolution with an epilogue."""

    def __init__(self, job: ProductJob, epilogue: Epilogue, found: _Sum) -> None:
        EpiloguePrinter.__init__(self, job, epilogue)
        self.found = found
