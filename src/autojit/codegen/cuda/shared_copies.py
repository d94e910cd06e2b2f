"""Copies from global to shared memory that a GPU does by itself (``cp.async``), as functions that bodies call.

How wide a copy may be depends on where the operand is, which is not known while a body is written. So a body calls a
function of its module, which copies as addresses allow that are aligned to their elements; an entry point that knows
more puts the wider form in its place (`codegen.cuda.entry_point`).
"""

from __future__ import annotations

from collections.abc import Sequence

from autojit.codegen.grid_text import SharedCopy

LEAST_BYTES, MOST_BYTES = 4, 16
"""Of one copy; less goes through registers."""


def symbol_of(copy: SharedCopy) -> str:
    """The name of the function."""
    return f"@{'filled' if copy.fills else 'copied'}.{copy.buffer}.{copy.size_bytes}"


def definition(copy: SharedCopy, alignment: int) -> str:
    """The function for addresses that are multiples of ``alignment``.

    It takes where the bytes go, where they are, and, if it fills, whether they are zeros instead.
    """
    width = min(copy.size_bytes, alignment, MOST_BYTES)
    write = _asynchronous if width >= LEAST_BYTES else _through_registers
    lines = [line for at in range(0, copy.size_bytes, width) for line in write(copy, at, width)]
    more = ", i1 %is.zero" * copy.fills
    head = f"define internal void {symbol_of(copy)}(ptr addrspace(3) %to, ptr addrspace(1) %from{more})"
    return "\n".join([f"{head} alwaysinline nounwind {{", "entry:", *lines, "  ret void", "}"])


def widened(text: str, copies: Sequence[SharedCopy], alignments: Sequence[int]) -> str:
    """The module of a body whose copies are as wide as the alignments of its buffers allow."""
    for copy in copies:
        if alignments[copy.buffer] > copy.element_bytes:
            known = definition(copy, copy.element_bytes)
            assert known in text, "a body defines what it calls"
            text = text.replace(known, definition(copy, alignments[copy.buffer]))
    return text


def _places(at: int) -> list[str]:
    return [
        f"  %to.{at} = getelementptr i8, ptr addrspace(3) %to, i64 {at}",
        f"  %from.{at} = getelementptr i8, ptr addrspace(1) %from, i64 {at}",
    ]


def _asynchronous(copy: SharedCopy, at: int, width: int) -> list[str]:
    way = "cg" if width == MOST_BYTES else "ca"  # past the first cache, where nobody would look for them
    name, given = (
        f"@llvm.nvvm.cp.async.{way}.shared.global.{width}",
        f"ptr addrspace(3) %to.{at}, ptr addrspace(1) %from.{at}",
    )
    if not copy.fills:
        return [*_places(at), f"  call void {name}({given})"]
    taken = f"  %taken.{at} = select i1 %is.zero, i32 0, i32 {width}"
    return [*_places(at), taken, f"  call void {name}.s({given}, i32 %taken.{at})"]


def _through_registers(copy: SharedCopy, at: int, width: int) -> list[str]:
    kind, value = f"i{8 * width}", f"%bits.{at}"
    lines = [*_places(at), f"  {value} = load {kind}, ptr addrspace(1) %from.{at}, align {width}"]
    if copy.fills:
        lines.append(f"  %given.{at} = select i1 %is.zero, {kind} 0, {kind} {value}")
        value = f"%given.{at}"
    return [*lines, f"  store {kind} {value}, ptr addrspace(3) %to.{at}, align {width}"]
