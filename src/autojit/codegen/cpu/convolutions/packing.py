"""What the kernels of convolutions share: vectors of any dtype, and packing an image (see `layout`)."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from autojit.codegen.cpu.convolutions.layout import Layout
from autojit.codegen.cpu.convolutions.movers import Elements, Lanes, Mover, Pairs, pieces
from autojit.codegen.cpu.vector_text import INTERNAL, VectorText
from autojit.codegen.function_text import Operand
from autojit.codegen.module_text import ModuleText, Signature
from autojit.core.sizes import is_symbolic

VECTOR_BYTES = 32
"""Two registers on machines with 16-byte vectors, of which those with fused multiply-add have 32."""

MOST_COPIES = 16
"""Copies of a row that are written out one by one: wider kernels are rare. No measurement is recorded."""


def offset(text: VectorText, terms: Sequence[tuple[Operand, int]], constant: int = 0) -> Operand:
    """``constant + sum(value * factor)`` of i64 values."""
    total: Operand = constant
    for value, factor in terms:
        if value == 0 or factor == 0:
            continue
        part = value if factor == 1 else text.mul(value, factor)
        total = part if total == 0 else text.add(total, part)
    return total


def divide(text: VectorText, value: str, divisor: int) -> tuple[str, str]:
    """Quotient and remainder of an i64 that is not negative."""
    return text.quotient(value, divisor), text.remainder(value, divisor)


def pack_signature(layout: Layout) -> Signature:
    """What `write_pack` writes: pack channels that follow each other, for the band at ``start``.

    The target was cleared before: what is outside of the image is left alone. ``channels`` counts those of the image,
    of which two make one that is packed where there are pairs.
    """
    parameters = "i64 channels, ptr image, i64 start, ptr packed"
    return Signature("pack", parameters, takes_sizes=layout.is_open)


def write_pack(module: ModuleText, layout: Layout, lanes: Lanes) -> None:
    """Add the function."""
    text = VectorText(module, pack_signature(layout), linkage="internal", attributes=INTERNAL)
    start: list[Operand] = ["%start" if axis == layout.band_axis else 0 for axis in range(3)]
    size = lanes.dtype.size_bytes
    (_, rows, columns), (_, parts_h, parts_w) = layout.packed, layout.parts
    whole = prod(layout.packed)
    plane = prod(layout.image)
    channels = text.quotient(text.add("%channels", 1), 2) if lanes.of_pairs else "%channels"
    with (
        text.loop(0, channels) as channel,
        text.loop(0, layout.parts[0]) as f,
        text.loop(0, parts_h) as g,
        text.loop(0, layout.packed[0]) as qd,
        text.loop(0, rows) as qh,
    ):
        depth, row = (_source(text, layout, a, q, start[a], p) for a, q, p in ((0, qd, f), (1, qh, g)))
        with text.when(text.both(_inside(text, depth, layout.image[0]), _inside(text, row, layout.image[1]))):
            phases = [(f, parts_h * parts_w * whole), (g, parts_w * whole)]
            target = offset(text, [(channel, layout.plane), *phases, (qd, rows * columns), (qh, columns)])
            image_row = layout.image[2]
            first = text.mul(channel, 2) if lanes.of_pairs else channel
            lines = [(first, plane), (depth, layout.image[1] * image_row), (row, image_row)]
            to = text.at("%packed", text.mul(target, size))
            mover: Mover = Elements(text, lanes)
            if lanes.of_pairs:
                mover = Pairs(text, plane, text.test("slt", text.add(first, 1), "%channels"))
            source = text.at("%image", text.mul(offset(text, lines), mover.source_bytes))
            if copies_whole_rows(layout):
                for part in range(parts_w):
                    _copy_row(mover, layout, (text.at(to, part * whole * size), source), part * layout.apart)
            else:
                with text.loop(0, parts_w) as h:
                    phase = h if layout.apart == 1 else text.mul(h, layout.apart)
                    _pack_row(text, layout, mover, (text.at(to, text.mul(h, whole * size)), source), phase, start[2])
    text.finish()


def copies_whole_rows(layout: Layout) -> bool:
    """Whether what is packed of a row is one piece of it, or every second element of one, of a size that is known."""
    is_open = is_symbolic(layout.packed[2]) or is_symbolic(layout.image[2])
    return layout.step[2] <= 2 and layout.band_axis != 2 and not is_open and layout.parts[2] <= MOST_COPIES


def _copy_row(mover: Mover, layout: Layout, places: tuple[str, str], phase: int) -> None:
    """The elements of a row that are inside the image, whose packed places begin at ``phase`` of the padded one."""
    to, source = places
    low, extent, columns, step = layout.low[2] - phase, layout.image[2], layout.packed[2], layout.step[2]
    first, last = min(max(-(-low // step), 0), columns), max(0, min(columns, -(-(extent + low) // step)))
    if first >= last:
        return
    if step == 1:
        mover.row(mover.to(to, first), mover.source(source, first - low), last - first)
        return
    for place, lanes in pieces(last - first, mover.lanes):
        from_ = mover.source(source, 2 * (first + place) - low)
        mover.every_second(mover.to(to, first + place), from_, lanes)


def _source(text: VectorText, layout: Layout, axis: int, q: str, start: Operand, phase: str) -> str:
    at = text.add(q, start) if start != 0 else q
    return text.sub(text.add(text.mul(at, layout.step[axis]), phase), layout.low[axis])


def _inside(text: VectorText, position: str, extent: int) -> str:
    return text.test("ult", position, extent)


def _pack_row(
    text: VectorText, layout: Layout, mover: Mover, places: tuple[str, str], phase: str, start: Operand
) -> None:
    """The elements of a row that are inside the image."""
    step, low = layout.step[2], layout.low[2]
    extent, columns = layout.image[2], layout.packed[2]
    to, source = places
    begin, end = (_first_at(text, n, phase, step, start) for n in (low, extent + low))
    first_q = text.most(begin, 0)
    last_q = text.least(end, columns)
    if step == 1:
        count = text.most(text.sub(last_q, first_q), 0)
        from_ = mover.source(source, text.sub(text.add(text.add(first_q, start), phase), low))
        mover.row(mover.to(to, first_q), from_, count)
        return
    rest = first_q
    if step == 2:
        count = text.binary("and", text.most(text.sub(last_q, first_q), 0), -mover.lanes)
        rest = text.add(first_q, count)
        with text.loop(first_q, rest, mover.lanes) as q:
            from_ = mover.source(source, _source(text, layout, 2, q, start, phase))
            mover.every_second(mover.to(to, q), from_, mover.lanes)
    with text.loop(rest, last_q) as q:
        from_ = mover.source(source, _source(text, layout, 2, q, start, phase))
        mover.one((to, q), from_)


def _first_at(text: VectorText, position: int, phase: str, step: int, start: Operand) -> str:
    """The first packed element at or behind ``position`` of the padded image, of the part that begins at ``phase``."""
    ahead = text.sub(position + step - 1, phase)
    whole = text.binary("sdiv", ahead, step) if step > 1 else ahead
    return text.sub(whole, start)
