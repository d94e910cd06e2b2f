"""The entry point of a launch of one kernel.

``@kernel`` hands its parameters to ``@body``, which LLVM writes in its place. What is true of the buffers of one step
is said here: how their addresses are aligned, which of them come out of the step's device table because they move from
call to call, and whether the kernel does nothing once the step has reported an error.

The parameters, in this order: of each buffer its address, or the place of its address in the device table and the
bytes that it begins behind it; sizes that are open; the address of partial results, the address of the error words, the
kernel's code; each where it is needed (see `GridText`). So a kernel's text says nothing of where in a table its
addresses are, and all turns of a loop have the same. The parameters of a launch of several kernels are those of one
after those of another (`joined_entry`).
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence

from autojit.codegen.cuda.copies import access_bytes
from autojit.codegen.cuda.grid_function import GLOBAL, SHARED, most_blocks
from autojit.codegen.cuda.shared_copies import widened
from autojit.codegen.grid_text import LARGE_ALIGNMENT, Buffer, GridText, shared_alignment
from autojit.core.records import record

WORD_BYTES = 8  # of a slot of the device table
PARTIAL_ALIGNMENT = 256  # blocks of a device's memory begin at its multiples
BARRIER = "  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)"
"""All threads of a block meet."""


_ALONE = {"reads": "noalias readonly", "writes": "noalias", "takes": ""}


def alignment_of(buffer: Buffer, size_bytes: int, *addresses: int) -> int:
    """What the address of a buffer may be said to be a multiple of, as far as accesses can use it.

    LLVM reads whole aligned pieces of 16 bytes for some of their elements. So that none is read behind a buffer, no
    more is said of one than divides its size, unless it is known to be read in whole pieces.
    """
    return access_bytes(0 if buffer.in_pieces else size_bytes, *addresses)


@record(eq=False)
class Part:
    """A kernel and where its buffers are.

    Args:
        alignments: what the address of each buffer is a multiple of, at least the size of its elements. From 16 on
            LLVM makes one access of four.
        moving: the buffers whose addresses change from call to call, and whether they begin some bytes behind these.
        is_guarded: it does nothing if an error has been reported, because it writes what outlives the step. Nothing
            else that runs at the same time reports; where the kernel itself does, each block goes or stays whole.
        keys: of its parameters, in their order: those with equal ones, other than None, are always the same.
    """

    kernel: GridText
    alignments: Sequence[int]
    moving: Mapping[int, bool]
    is_guarded: bool = False
    keys: Sequence[Hashable] = ()

    @property
    def is_lasting(self) -> bool:
        """Whether it writes what outlives the step.

        An argument of the step may be that very memory, so nothing is said of who else has a buffer; four accesses are
        one all the same, because a tile is read before it is written.
        """
        return self.is_guarded or any(buffer.role == "updates" for buffer in self.kernel.buffers)

    @property
    def text(self) -> str:
        """The module of the body, which copies to shared memory as the alignments allow."""
        return widened(self.kernel.text, self.kernel.copies, self.alignments)

    def alone(self, buffer: Buffer) -> str:
        """What LLVM may take for granted of who else has a buffer while the part runs."""
        return "" if self.is_lasting else _ALONE[buffer.role]


@record(eq=False, frozen=False)
class Known:
    """A parameter that parts of a launch have in common: its name, what is said of it, and where that stands."""

    name: str
    said: str
    parameters: list[str]
    place: int


def _promised(said: str) -> int:
    """The alignment in what is said of a parameter; the most where it says none."""
    found = re.search(r"align (\d+)", said)
    return int(found[1]) if found else 1 << 30


class PartText:
    """What an entry point says of one part.

    Args:
        prefix: of its names.
        first_node: the number of its first node of metadata.
        meets: others run before or behind it in the same launch, and may have what it has: only the call of the body
            says then who else has a buffer.

        known: parameters of the launch by their keys, to which this part adds its own; if others are to use them.

    Attributes:
        parameters: of the launch, those that no part before has.
        loads: what is read before the body is called.
        arguments: of the body, behind shared memory.
        errors: the address of the error words.
        nodes: of metadata.
    """

    def __init__(
        self,
        part: Part,
        prefix: str = "%",
        first_node: int = 1 << 30,
        *,
        meets: bool = False,
        known: dict[Hashable, Known] | None = None,
    ) -> None:
        assert len(part.alignments) == len(part.kernel.buffers), "every buffer has an alignment"
        self.part, self.meets, self._prefix, self._first_node = part, meets, prefix, first_node
        self._keys, self._known = iter(part.keys), known
        self.parameters: list[str] = []
        self.loads: list[str] = []
        self.arguments: list[str] = []
        self.nodes: list[str] = []
        kernel, errors = part.kernel, (f"ptr {GLOBAL}", f"align {WORD_BYTES}", "errors")
        self.errors = ""
        for number, buffer in enumerate(kernel.buffers):
            self._buffer(number, buffer)
        for word in range(len(kernel.sizes)):
            self._pass_on("i64", "", f"z{word}")
        if kernel.partial_bytes:
            alone = "" if meets else "noalias "
            self._pass_on(f"ptr {GLOBAL}", f"{alone}align {PARTIAL_ALIGNMENT}", "partials")
        if kernel.reports or kernel.tells or kernel.heeds:
            self.errors = self._pass_on(*errors)
        if kernel.decides:
            self._pass_on("i64", "", "handle")
        elif kernel.reports:
            self._pass_on("i64", "", "code")
        elif kernel.tells:
            self._pass_on(f"ptr {GLOBAL}", f"align {WORD_BYTES}", "told")
        elif part.is_guarded:
            self.errors = self._parameter(*errors)

    def _parameter(self, kind: str, attributes: str, name: str) -> str:
        """A parameter of the launch; its name."""
        key = None if self._known is None else next(self._keys)
        full = f"{self._prefix}{name}"
        if self._known is not None and key is not None:
            before = self._known.get(key)
            if before is not None:  # it is said of it what is true for all that use it
                before.said = min(before.said, attributes, key=_promised)
                before.parameters[before.place] = " ".join(filter(None, [kind, before.said, before.name]))
                return before.name
            self._known[key] = Known(full, attributes, self.parameters, len(self.parameters))
        self.parameters.append(" ".join(filter(None, [kind, attributes, full])))
        return full

    def _pass_on(self, kind: str, attributes: str, name: str) -> str:
        """A parameter that the body takes as it is; its name."""
        full = self._parameter(kind, attributes, name)
        self.arguments.append(f"{kind} {full}")
        return full

    def _buffer(self, number: int, buffer: Buffer) -> None:
        """The address of a buffer: a parameter, or out of the table."""
        alignment, kind, name = self.part.alignments[number], f"ptr {GLOBAL}", f"{self._prefix}b{number}"
        assert alignment % buffer.element_bytes == 0, "elements are aligned"
        alone = self.part.alone(buffer)
        if number not in self.part.moving:
            said = f"align {alignment}" if self.meets else f"{alone} align {alignment}".strip()
            full = self._parameter(kind, said, f"b{number}")
            self.arguments.append(" ".join(filter(None, [kind, alone if self.meets else "", full])))
            return
        at = self._parameter(kind, f"noalias readonly align {WORD_BYTES}", f"b{number}.at")
        node = f"!{self._first_node + len(self.nodes)}"
        self.nodes.append(f"{node} = !{{i64 {alignment}}}")
        loaded = f"{name}.start" if self.part.moving[number] else name
        self.loads.append(f"  {loaded} = load {kind}, {kind} {at}, align {WORD_BYTES}, !align {node}")
        if self.part.moving[number]:
            behind = self._parameter("i64", "", f"b{number}.bytes")
            self.loads += [
                f"  {name}.behind = and i64 {behind}, -{alignment}",  # so LLVM knows the sum to be aligned
                f"  {name} = getelementptr i8, {kind} {loaded}, i64 {name}.behind",
            ]
        self.arguments.append(" ".join(filter(None, [kind, alone, name])))


def limits_text(threads: int, most_registers: int) -> str:
    """What is said of a kernel's blocks: how many threads they have, and what each may take if that is limited."""
    most = f' "nvvm.maxnreg"="{most_registers}"' if most_registers else ""
    return f'"nvvm.maxntid"="{threads}"{most}'


def special(register: str, count: int) -> str:
    """A special register, which is less than ``count``, in the function that is launched."""
    return f"call range(i32 0, {count}) i32 @llvm.nvvm.read.ptx.sreg.{register}()"


def entry_text(
    kernel: GridText, alignments: Sequence[int], moving: Mapping[int, bool], *, guarded: bool = False
) -> str:
    """The complete module of a launch of one kernel; the arguments are those of `Part`."""
    part = Part(kernel, alignments, moving, guarded)
    said = PartText(part)
    arrays, shared = _shared(kernel)
    reads = [
        f"  %thread = {special('tid.x', kernel.threads)}",
        *(f"  %block.{a} = {special(f'ctaid.{a}', most_blocks(n))}" for a, n in zip("xyz", kernel.blocks, strict=True)),
    ]
    arguments = ["i32 %thread", "i32 %block.x", "i32 %block.y", "i32 %block.z", "i32 0"]
    arguments += [*(f"ptr {SHARED} {address}" for address in shared), *said.arguments]
    run = [*said.loads, f"  call void @body({', '.join(arguments)})"]
    lines = ["entry:", *reads, *run, "  ret void"]
    if guarded:
        arrays += [REPORTED_WORD] if kernel.reports else []
        test = guard_lines(said, "%thread", "%", is_block_wide=kernel.reports)
        lines = ["entry:", *reads, *test, "go:", *run, "  br label %leave", "leave:", "  ret void"]
    limits = limits_text(kernel.threads, kernel.most_registers)
    head = f"define ptx_kernel void @kernel({', '.join(said.parameters)}) {limits} {{"
    meet = ["define internal void @meet(i32 %0) alwaysinline convergent {", BARRIER, "  ret void", "}"]
    return "\n".join([part.text, *meet, *arrays, head, *lines, "}", *said.nodes])


_SHARED = "@shared"


def _shared(kernel: GridText) -> tuple[list[str], list[str]]:
    """Definitions of a kernel's shared memory, and where its arrays are: in one, if it is more than texts may have."""
    if not kernel.asked_bytes:
        names = [f"{_SHARED}{k}" for k in range(len(kernel.shared))]
        return [f"{name} = {shared_array(size)}" for name, size in zip(names, kernel.shared, strict=True)], names
    asked = f"{_SHARED} = external {SHARED} global [0 x i8], align {LARGE_ALIGNMENT}"
    places = kernel.shared_places[:-1]
    return [asked], [f"getelementptr (i8, ptr {SHARED} {_SHARED}, i64 {place})" for place in places]


REPORTED_WORD = f"@reported = internal {SHARED} global i64 undef, align {WORD_BYTES}"


def shared_array(size_bytes: int) -> str:
    """Shared memory, as a definition."""
    return f"internal {SHARED} global [{size_bytes} x i8] undef, align {shared_alignment(size_bytes)}"


def guard_lines(part: PartText, thread: str, prefix: str, *, is_block_wide: bool) -> list[str]:
    """Go on at the label ``go``, or at ``leave`` if an error was reported; ``prefix`` begins names and labels.

    The word may change while a kernel runs that itself reports. Its blocks go or stay whole: one thread reads for all.
    """
    label = prefix[1:]
    errors = f"ptr {GLOBAL} {part.errors}"
    load = f'load atomic i64, {errors} syncscope("device") monotonic, align {WORD_BYTES}'
    plain = f"load i64, {errors}, align {WORD_BYTES}"
    read = [f"  {prefix}reported = {load if part.meets else plain}"]
    if is_block_wide:
        read = [
            f"  {prefix}is.first = icmp eq i32 {thread}, 0",
            f"  br i1 {prefix}is.first, label %{label}read, label %{label}met",
            f"{label}read:",
            f"  {prefix}word = {load}",
            f"  store i64 {prefix}word, ptr {SHARED} @reported, align {WORD_BYTES}",
            f"  br label %{label}met",
            f"{label}met:",
            BARRIER,
            f"  {prefix}reported = load i64, ptr {SHARED} @reported, align {WORD_BYTES}",
        ]
    test = f"  {prefix}goes.on = icmp eq i64 {prefix}reported, 0"
    return [*read, test, f"  br i1 {prefix}goes.on, label %{label}go, label %{label}leave"]
