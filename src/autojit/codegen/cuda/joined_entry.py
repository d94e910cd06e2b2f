"""The entry point of a launch that several kernels share (`joined_plan` says who runs what).

A block goes through the parts in order, and skips those that it takes no part in. A part's blocks are *virtual*: a
block of the launch runs several side by side (packs of its threads), and one after the other where there are more of
them than fit. Who meets at a part's barriers is the threads of one virtual block. Where phases end, all blocks meet::

    kernel:  part, part, @meet.grid, part, ...
    part:    if the block takes part: [barrier] [guard] for each of its virtual blocks: [if it has a pack]: body

Bodies are functions of their own in the module. One that occurs often is called, others are written in place. The
parts have their shared memory one after another: the largest is declared.

Blocks meet by counting: each adds one to a word, and waits until all have. The word is never set back: as every launch
adds a multiple of the number of blocks, the next launch finds a multiple of it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from itertools import accumulate
from math import prod

from autojit.codegen.cuda.entry_point import (
    BARRIER,
    REPORTED_WORD,
    WORD_BYTES,
    Known,
    Part,
    PartText,
    guard_lines,
    limits_text,
    shared_array,
    special,
)
from autojit.codegen.cuda.grid_function import GLOBAL, SHARED, WARP, body_parameters
from autojit.codegen.cuda.joined_plan import JoinedGrid, PlacedPart
from autojit.codegen.grid_text import GridText

CALLED_FROM = 3
"""A body that occurs this often is a function that is called: a call takes some ten instructions, a copy of the text
the compiler's time."""

_DEFINITIONS = re.compile(r"\n(?=define |declare |@|!|attributes )")
_SYMBOL = re.compile(r"@[A-Za-z_][\w.$]*")


def joined_text(grid: JoinedGrid, parts: Sequence[Part]) -> str:
    """The complete module of a launch.

    Args:
        grid: says which part runs where; the number of a part is its place in ``parts``.

    Parameters: those of the parts (`entry_point`), each once where parts have an order, and the address of the word by
    which blocks meet, if they do.
    """
    return _JoinedEntry(grid, parts).text()


def shared_bytes(kernel: GridText) -> int:
    """Of one of a kernel's blocks, in a launch that it shares."""
    return kernel.shared_places[-1]


class _JoinedEntry:
    """The module under construction."""

    def __init__(self, grid: JoinedGrid, parts: Sequence[Part]) -> None:
        self.grid, self.parts = grid, parts
        known: dict[Hashable, Known] | None = {} if grid.has_order else None
        nodes = accumulate((len(part.moving) for part in parts), initial=1 << 30)
        self.said = [
            PartText(part, f"%k{k}.", first, meets=grid.has_order, known=known)
            for k, (part, first) in enumerate(zip(parts, nodes, strict=False))
        ]
        self.bodies = _Bodies(parts)

    def text(self) -> str:
        """All of it."""
        grid = self.grid
        parameters = [text for said in self.said for text in said.parameters]
        if grid.meets:
            parameters.append(f"ptr {GLOBAL} align {WORD_BYTES} %meeting")
        lines, phase = list[str](), 0
        for placed in grid.parts:
            if placed.phase > phase:
                phase = placed.phase
                lines += [f"  call void @meet.grid(ptr {GLOBAL} %meeting, i32 %thread)"] if grid.meets else [BARRIER]
            lines += self._part(placed)
        limits = limits_text(grid.threads, grid.most_registers)
        head = f"define ptx_kernel void @kernel({', '.join(parameters)}) {limits} {{"
        reads = [f"  %thread = {special('tid.x', grid.threads)}", f"  %block = {special('ctaid.x', grid.blocks)}"]
        function = [head, "entry:", *reads, *lines, "  ret void", "}"]
        meet = [_meet_all(grid.blocks)] if grid.meets else []
        nodes = [node for said in self.said for node in said.nodes]
        return "\n".join([*self.bodies.definitions(), *self._arrays(), *meet, *function, *nodes])

    def _arrays(self) -> list[str]:
        most = max(placed.packs * shared_bytes(self.parts[placed.number].kernel) for placed in self.grid.parts)
        guards = [REPORTED_WORD] if any(p.is_guarded and p.kernel.reports for p in self.parts) else []
        return [*([f"@shared = {shared_array(most)}"] if most else []), *guards]

    def _part(self, placed: PlacedPart) -> Iterator[str]:
        """What a block does for one part."""
        number = placed.number
        part, said, name = self.parts[number], self.said[number], f"k{number}."
        blocks = prod(part.kernel.blocks)
        if not blocks:
            return
        yield from self._own_number(placed, f"%{name}own")
        yield f"  %{name}takes.part = icmp ult i32 %{name}own, {placed.spread}"
        yield f"  br i1 %{name}takes.part, label %{name}begin, label %{name}leave"
        yield f"{name}begin:"
        if placed.waits:
            yield BARRIER
        if part.is_guarded:
            yield from guard_lines(said, "%thread", f"%{name}", is_block_wide=part.kernel.reports)
            yield f"{name}go:"
        yield from said.loads
        yield from self._turns(placed, blocks)
        yield f"{name}leave:"

    def _own_number(self, placed: PlacedPart, name: str) -> Iterator[str]:
        """The block's number among those that take part; too large for one that does not."""
        blocks = self.grid.blocks
        yield f"  {name}.0 = sub i32 %block, {placed.first}"
        if placed.first + placed.spread > blocks:
            yield f"  {name}.1 = add i32 {name}.0, {blocks}"
            yield f"  {name}.2 = icmp slt i32 {name}.0, 0"
            yield f"  {name} = select i1 {name}.2, i32 {name}.1, i32 {name}.0"
        else:
            yield f"  {name} = add i32 {name}.0, 0"

    def _turns(self, placed: PlacedPart, blocks: int) -> Iterator[str]:
        """The virtual blocks of a block's packs, then to the label ``leave``."""
        name, kernel = f"k{placed.number}.", self.parts[placed.number].kernel
        leave, step = f"label %{name}leave", placed.spread * placed.packs
        yield f"  %{name}pack = udiv i32 %thread, {kernel.threads}"
        yield f"  %{name}lane = urem i32 %thread, {kernel.threads}"
        yield f"  %{name}is.in = icmp ult i32 %{name}pack, {placed.packs}"
        yield f"  %{name}before = mul nuw nsw i32 %{name}own, {placed.packs}"
        yield f"  %{name}first = add nuw nsw i32 %{name}before, %{name}pack"
        if step >= blocks:
            yield f"  %{name}is.there = icmp ult i32 %{name}first, {blocks}"
            yield f"  %{name}both = and i1 %{name}is.in, %{name}is.there"
            yield f"  br i1 %{name}both, label %{name}run, {leave}"
            yield f"{name}run:"
            yield from self._call(placed, f"%{name}first", blocks)
            yield f"  br {leave}"
            return
        yield f"  br i1 %{name}is.in, label %{name}packed, {leave}"
        yield f"{name}packed:"
        yield f"  br label %{name}turn"
        yield f"{name}turn:"
        yield f"  %{name}virtual = phi i32 [ %{name}first, %{name}packed ], [ %{name}next, %{name}run ]"
        yield f"  %{name}is.there = icmp ult i32 %{name}virtual, {blocks}"
        yield f"  br i1 %{name}is.there, label %{name}run, {leave}"
        yield f"{name}run:"
        yield from self._call(placed, f"%{name}virtual", blocks)
        yield f"  %{name}next = add nuw nsw i32 %{name}virtual, {step}"
        if kernel.shared:  # the threads of the pack have done with what the next virtual block writes
            yield f"  call void @{self.bodies.meet(kernel.threads)}(i32 %{name}meeting)"
        yield f"  br label %{name}turn"

    def _call(self, placed: PlacedPart, virtual: str, blocks: int) -> Iterator[str]:
        """Run one virtual block."""
        name, said = f"k{placed.number}.", self.said[placed.number]
        kernel = self.parts[placed.number].kernel
        yield f"  %{name}meeting = add nuw nsw i32 %{name}pack, 1"
        # the number is less than that of blocks anyway: LLVM computes indices in 32 bits where it knows
        yield f"  %{name}block = call i32 @llvm.umin.i32(i32 {virtual}, i32 {blocks - 1})"
        along = [f"%{name}block", "0", "0"]
        if kernel.blocks[1:] != (1, 1):
            x, y, _ = kernel.blocks
            yield f"  %{name}x = urem i32 %{name}block, {x}"
            yield f"  %{name}row = udiv i32 %{name}block, {x}"
            yield f"  %{name}y = urem i32 %{name}row, {y}"
            yield f"  %{name}z = udiv i32 %{name}row, {y}"
            along = [f"%{name}x", f"%{name}y", f"%{name}z"]
        arguments = [f"i32 {operand}" for operand in (f"%{name}lane", *along, f"%{name}meeting")]
        if kernel.shared:
            yield f"  %{name}shared = mul nuw nsw i32 %{name}pack, {shared_bytes(kernel)}"
        for k, offset in enumerate(kernel.shared_places[:-1]):
            yield f"  %{name}shared{k}.at = add nuw nsw i32 %{name}shared, {offset}"
            yield f"  %{name}shared{k} = getelementptr i8, ptr {SHARED} @shared, i32 %{name}shared{k}.at"
            arguments.append(f"ptr {SHARED} %{name}shared{k}")
        yield f"  call void @{self.bodies.symbols[placed.number]}({', '.join([*arguments, *said.arguments])})"


def _meet_all(blocks: int) -> str:
    """The function by which all blocks meet; its fence and its acquire order what they did before and do behind."""
    return f"""define internal void @meet.grid(ptr {GLOBAL} %word, i32 %thread) noinline convergent nounwind {{
{BARRIER}
  %is.first = icmp eq i32 %thread, 0
  br i1 %is.first, label %arrive, label %leave
arrive:
  fence syncscope("device") acq_rel
  %before = atomicrmw add ptr {GLOBAL} %word, i64 1 syncscope("device") monotonic
  %meeting = udiv i64 %before, {blocks}
  %next = add i64 %meeting, 1
  %all = mul i64 %next, {blocks}
  br label %wait
wait:
  %now = load atomic i64, ptr {GLOBAL} %word syncscope("device") acquire, align {WORD_BYTES}
  %are.there = icmp uge i64 %now, %all
  br i1 %are.there, label %leave, label %wait
leave:
{BARRIER}
  ret void
}}"""


class _Bodies:
    """The functions of all parts in one module.

    Attributes:
        symbols: of each part, the name of its body.
    """

    def __init__(self, parts: Sequence[Part]) -> None:
        keys = [_key(part) for part in parts]
        counts = Counter(keys)
        self._taken: dict[str, str] = {}  # symbol -> its definition
        self._meets: set[int] = set()
        self._nodes = 0
        made: dict[object, str] = {}
        self.symbols: list[str] = []
        for part, key in zip(parts, keys, strict=True):
            if key not in made:
                made[key] = self._add(part, f"body.{len(made)}", is_called=counts[key] >= CALLED_FROM)
            self.symbols.append(made[key])

    def meet(self, threads: int) -> str:
        """The function in which the threads of a virtual block meet."""
        self._meets.add(threads)
        return f"meet.{threads}"

    def definitions(self) -> list[str]:
        """All functions, and what they refer to."""
        return [*self._taken.values(), *map(_meet_some, sorted(self._meets))]

    def _add(self, part: Part, symbol: str, *, is_called: bool) -> str:
        """Take over the definitions of a kernel under names that nothing else has; of equal ones there is one."""
        found = _DEFINITIONS.split(part.text.strip("\n"))
        renamed = {"@body": f"@{symbol}", "@meet": f"@{self.meet(part.kernel.threads)}"}
        renamed |= {name: f"{name}.{symbol}" for name in self._others(found)}
        nodes = sum(definition.startswith("!") for definition in found)
        for definition in found:
            text = _SYMBOL.sub(lambda match: renamed.get(match[0], match[0]), definition)
            if nodes:
                text = re.sub(r"!(\d+)", lambda match: f"!{int(match[1]) + self._nodes}", text)
            name = _name_of(text) or text
            self._taken[name] = _called(text, part) if is_called and name == f"@{symbol}" else text
        self._nodes += nodes
        return symbol

    def _others(self, definitions: Sequence[str]) -> set[str]:
        """The names of definitions that are others in this module, or refer to such."""
        named = {name: text for text in definitions if (name := _name_of(text)) not in (None, "@body")}
        found = {name for name, text in named.items() if self._taken.get(name, text) != text}
        while True:
            more = {name for name, text in named.items() if not found.isdisjoint(_SYMBOL.findall(text))}
            if more <= found:
                return found
            found |= more


def _key(part: Part) -> object:
    """What parts with one body have in common."""
    kernel = part.kernel
    return kernel.text, tuple(part.alignments), kernel.threads, kernel.blocks, part.is_lasting


def _name_of(definition: str) -> str | None:
    """The symbol that a text defines or declares."""
    if definition[0] in "!a":
        return None
    match = _SYMBOL.search(definition)
    return match[0] if match else None


def _called(definition: str, part: Part) -> str:
    """A body that is called: its parameters say of buffers what the call says where a body is written in place."""
    head, brace, rest = definition.partition("{")
    start, _, listed = head.partition("(")
    listed, _, attributes = listed.rpartition(")")
    parameters = listed.split(", ")
    first = len(body_parameters(1, (1, 1, 1))) + len(part.kernel.shared)
    for k, (buffer, alignment) in enumerate(zip(part.kernel.buffers, part.alignments, strict=True), first):
        kind, _, name = parameters[k].rpartition(" ")
        parameters[k] = " ".join(filter(None, [kind, part.alone(buffer), f"align {alignment}", name]))
    return f"{start}({', '.join(parameters)}){attributes.replace('alwaysinline', 'noinline')}{brace}{rest}"


def _meet_some(threads: int) -> str:
    """Meeting of the threads of one virtual block; of a warp, or less, by the warp's own barrier."""
    call = f"@llvm.nvvm.barrier.cta.sync.aligned.count(i32 %number, i32 {threads})"
    if threads <= WARP:
        call = "@llvm.nvvm.bar.warp.sync(i32 -1)"
    head = f"define internal void @meet.{threads}(i32 %number) alwaysinline convergent nounwind {{"
    return f"{head}\n  call void {call}\n  ret void\n}}"
