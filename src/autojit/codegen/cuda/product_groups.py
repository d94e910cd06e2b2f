"""Products by groups of four warps (``wgmma``, compute capability 9.0): operands stay in shared memory.

A group multiplies 64 rows by all columns of the tile, and tensor cores read the operands where they are, by descriptors
of 64 bits: an address, the bytes from eight rows to the next, and of operands that do not run deep those from one panel
of 64 lines to the next. Of the layouts that they know the shelf's is one: rows of 128 bytes whose eight chunks are
turned by the row's number (`product_shelves`). Lanes have the elements of the result that they would have of
``mma``, so what follows a product knows of no difference.

LLVM has no such instructions. All products of a part are one text, from the fence that lets them have the totals to the
wait for their end: nothing may touch the totals in between, nor the compiler move them. Source: NVIDIA, PTX ISA 9.7.15.
"""

from __future__ import annotations

import re

from autojit.codegen.cuda.product_shelves import BANKS_BYTES, Shelf
from autojit.codegen.cuda.product_steps import LaneSteps, Parts, SingleSteps, SplitSteps, Steps, TensorSteps, Totals
from autojit.codegen.cuda.product_tiles import GROUP, GROUP_ROWS, LANES, SINGLE, SPLIT, Fragment
from autojit.codegen.function_text import Operand
from autojit.codegen.scalar import Scalar
from autojit.core.dtypes import bfloat16

_NO_ROWS = 1  # what stands for a distance that is not asked for
_TURNED = 1 << 62  # rows of 128 bytes, turned
_UNIT = 16  # bytes that addresses and distances are counted in
_ADDRESSES = 0x3FFF
_EIGHT_ROWS = 8 * BANKS_BYTES

_HEAD = re.compile(r"^\.version [\d.]+\n\.target sm_90$", re.M)


class GroupSteps(Steps):
    """A group of warps' instructions multiply the parts, and add to the totals themselves."""

    def before_meeting(self) -> None:
        """What threads have copied is to be seen by tensor cores, which read memory in a way of their own."""
        self.kernel.line('call void asm sideeffect "fence.proxy.async.shared::cta;", "~{memory}"()')

    def multiply(self, parts: Parts, totals: Totals) -> None:
        kernel, tile = self.kernel, self.tile
        lines, arguments = ["wgmma.fence.sync.aligned;"], list[str]()
        count = len(totals)
        listed = ", ".join(f"${k}" for k in range(count))
        kind = "bf16" if self.dtype is bfloat16 else "f16"
        name = f"wgmma.mma_async.sync.aligned.m{GROUP_ROWS}n{tile.columns}k{tile.fragment.depth}.f32.{kind}.{kind}"
        turned = ", ".join("0" if shelf.is_deep else "1" for shelf in (self.a, self.b))
        keeps = 2 * count + 2 * (tile.depth // tile.fragment.depth)
        left = self._described(self.a, parts[0], kernel.scaled(kernel.quotient(self.places.warp, 4), GROUP_ROWS))
        right = self._described(self.b, parts[1], 0)
        for depth in range(0, tile.depth, tile.fragment.depth):
            at = 2 * count + len(arguments)
            arguments += [f"i64 {kernel.offset(x, _deeper(s, depth))}" for s, x in ((self.a, left), (self.b, right))]
            lines.append(f"{name} {{{listed}}}, ${at}, ${at + 1}, ${keeps}, 1, 1, {turned};")
        lines += ["wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned 0;"]
        before = [f"float {kernel.get(slot, self.total).text}" for slot in totals]
        returned = f"{{ {', '.join(['float'] * count)} }}"
        said = ",".join(["=f"] * count + [str(k) for k in range(count)] + ["l"] * len(arguments) + ["b", "~{memory}"])
        given = ", ".join([*before, *arguments, "i1 true"])
        whole = kernel.value(f'call {returned} asm sideeffect "{" ".join(lines)}", "{said}"({given})')
        for k, slot in enumerate(totals):
            kernel.put(slot, Scalar(kernel.value(f"extractvalue {returned} {whole}, {k}"), self.total))

    def _described(self, shelf: Shelf, part: Operand, line: Operand) -> str:
        """The descriptor of lines of a part, from its first depth on."""
        kernel = self.kernel
        at = kernel.offset(part, self._first(shelf, line))
        address = kernel.value(f"ptrtoint ptr {shelf.base} to i32")
        address = kernel.add(kernel.convert("zext", address, "i32"), kernel.scaled(at, shelf.dtype.size_bytes))
        units = kernel.binary("and", kernel.quotient(address, _UNIT), _ADDRESSES)
        panels = _NO_ROWS if shelf.is_deep else shelf.panel_bytes // _UNIT
        return kernel.binary("or", units, _TURNED | _EIGHT_ROWS // _UNIT << 32 | panels << 16)

    def _first(self, shelf: Shelf, line: Operand) -> Operand:
        """Where a line that is a multiple of 64 begins in its part, in elements."""
        if line == 0:
            return 0
        if shelf.is_deep:
            return self.kernel.scaled(line, shelf.along)
        return self.kernel.scaled(line, shelf.panel_bytes // shelf.dtype.size_bytes // GROUP_ROWS)


def _deeper(shelf: Shelf, depth: int) -> int:
    """What is to be added to a descriptor, so that it begins deeper."""
    row_bytes = shelf.dtype.size_bytes if shelf.is_deep else BANKS_BYTES
    return depth * row_bytes // _UNIT


def steps_of(fragment: Fragment) -> type[Steps]:
    """The way to multiply that belongs to a tile's fragments."""
    if fragment is LANES:
        return LaneSteps
    if fragment is GROUP:
        return GroupSteps
    return {SPLIT: SplitSteps, SINGLE: SingleSteps}.get(fragment, TensorSteps)


def with_architecture(ptx: str) -> str:
    """A module that has such products is for this very architecture, and says so."""
    return _HEAD.sub(".version 8.0\n.target sm_90a", ptx, count=1) if "wgmma." in ptx else ptx
