"""Neighbours that begin anywhere: slices, rims and paddings, in whatever place of a buffer, are what they were."""

from __future__ import annotations

import numpy as np
import pytest

from tests.codegen.cuda.grids import LANE_ORDERS, LARGE, SMALL
from tests.codegen.cuda.test_grid_forms import check, programs_of
from tests.codegen.cuda.test_machine_code import accesses, entries, program_of
from tests.ptxas import ptx_of

DTYPES = ("f32", "bf16", "bool", "i8", "f64", "f16", "i64", "i32")


def windows(rng: np.random.Generator, dtype: str, columns: int) -> str:
    """Parts of a matrix, each of the same shape and somewhere else, some of them beyond its edges."""
    rows, wide = int(rng.choice((1, 2, 6))), columns + int(rng.choice((0, 2, 4, 5)))
    full, part = f"{dtype}[{rows + 2}, {wide}]", f"{dtype}[{rows}, {columns}]"
    lines, names = [], list[str]()
    for number in range(3):
        top, left = int(rng.integers(0, 3)), int(rng.integers(0, wide - columns + 1))
        ends = f"starts=({top}, {left}), stops=({top + rows}, {left + columns}), steps=(1, 1)"
        lines.append(f"s{number}: {part} = slice[{ends}](x);")
        names.append(f"s{number}")
    for number in range(2):
        before = int(rng.integers(0, min(4, columns)))
        short = columns - before - int(rng.integers(0, min(3, columns - before)))
        high = columns - before - short
        begin, top = (wide - short) * number, 2 * number  # up to a corner of the buffer
        ends = f"starts=({top}, {begin}), stops=({top + rows}, {begin + short}), steps=(1, 1)"
        around = f"low=(0, {before}), high=(0, {high}), interior=(0, 0), value={number}"
        lines.append(
            f"c{number}: {dtype}[{rows}, {short}] = slice[{ends}](x); p{number}: {part} = pad[{around}](c{number});"
        )
        names.append(f"p{number}")
    op = "bitwise_or" if dtype in ("bool", "i8", "i64", "i32") else "add"
    total = names[0]
    for number, name in enumerate(names[1:]):
        lines.append(f"y{number}: {part} = {op}({total}, {name});")
        total = f"y{number}"
    folded = (
        f"t: {part.replace(str(columns) + ']', '1]')} = slice[starts=(0, 0), stops=({rows}, 1), steps=(1, 1)]({total});"
    )
    return f"(x: {full}) {{ {' '.join(lines)} {folded} return {total}, t }}"


@pytest.mark.parametrize("number", range(24))
def test_windows_anywhere_are_what_they_were(number: int) -> None:
    rng = np.random.default_rng(number)
    columns = int(rng.integers(1, 12)) * (1, 4, 8)[number % 3]
    text = windows(rng, DTYPES[number % len(DTYPES)], columns)
    check(text, (LARGE, SMALL)[number % 2], LANE_ORDERS[number // 2 % 2])


@pytest.mark.parametrize("dtype", ["c64", "c128"])
@pytest.mark.parametrize("left", [0, 1, 2])
def test_parts_of_complex_windows_are_what_they_were(dtype: str, left: int) -> None:
    """A lane computes several parts, and reads whole numbers for them."""
    half, wide = f"f{int(dtype[1:]) // 2}[3, 8]", 8 + left + left % 2
    check(
        f"(x: {dtype}[3, {wide}]) {{ "
        f"s: {dtype}[3, 8] = slice[starts=(0, {left}), stops=(3, {left + 8}), steps=(1, 1)](x); "
        f"re: {half} = real(s); im: {half} = imag(s); return re, im }}",
        LARGE,
    )


@pytest.mark.parametrize("wide", [513, 514, 515])
def test_views_without_a_rim_are_read_in_pieces(wide: int) -> None:
    """Where a row begins in a piece of 16 bytes differs from row to row."""
    part = "f32[64, 512]"
    program = program_of(
        f"(x: f32[64, {wide}]) {{ l: {part} = slice[starts=(0, 0), stops=(64, 512), steps=(1, 1)](x); "
        f"r: {part} = slice[starts=(0, {wide - 512}), stops=(64, {wide}), steps=(1, 1)](x); "
        f"y: {part} = sub(l, r); return y }}"
    )
    (ptx,) = ptx_of(entries(program), "sm_90")
    found = accesses(ptx)
    assert all(".v" in kind for kind in found), found
    assert found["ld.global.nc.v4.b32"] >= 2


def test_what_is_padded_beside_itself_is_read_without_branches() -> None:
    text = (
        "(x: f32[64, 512]) { p: f32[64, 514] = pad[low=(0, 1), high=(0, 1), interior=(0, 0), value=0](x); "
        "l: f32[64, 512] = slice[starts=(0, 0), stops=(64, 512), steps=(1, 1)](p); "
        "r: f32[64, 512] = slice[starts=(0, 2), stops=(64, 514), steps=(1, 1)](p); "
        "a: f32[64, 512] = add(l, r); y: f32[64, 512] = sub(a, x); return y }"
    )
    _, (program,) = programs_of(text)
    (ptx,) = ptx_of(entries(program), "sm_90")
    found = accesses(ptx)
    loads = {kind: count for kind, count in found.items() if kind.startswith("ld")}
    assert loads["ld.global.nc.v4.b32"] == 1 and sum(loads.values()) <= 3, (
        found
    )  # the lane's own, and one on either side
