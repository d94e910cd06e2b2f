"""The entry point of a kernel: what a launch calls.

``@kernel`` hands its parameters to ``@body``, which LLVM writes in its place. What is true of the buffers of one step
is said here: how their addresses are aligned, which of them come out of the step's device table because they move from
call to call, and whether the kernel does nothing once the step has reported an error.

The parameters, in this order: the device table if anything moves, the buffers that do not move, the address of partial
results, the address of the error words, the kernel's code; each where it is needed (see `GridText`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autojit.codegen.cuda.copies import access_bytes
from autojit.codegen.cuda.emitter import CONSTANT_SPACE
from autojit.codegen.cuda.grid_function import ALIGNMENT, GLOBAL, SHARED
from autojit.codegen.grid_text import Buffer, GridText

WORD_BYTES = 8  # of a slot of the device table
PARTIAL_ALIGNMENT = 256  # blocks of a device's memory begin at its multiples


def alignment_of(buffer: Buffer, size_bytes: int, address: int) -> int:
    """What the address of a buffer may be said to be a multiple of, as far as accesses can use it.

    LLVM reads whole aligned pieces of 16 bytes for some of their elements. So that none is read behind a buffer, no
    more is said of one than divides its size, unless it is known to be read in whole pieces.
    """
    return access_bytes(0 if buffer.in_pieces else size_bytes, address)


def entry_text(kernel: GridText, alignments: Sequence[int], moving: Mapping[int, int], *, guarded: bool = False) -> str:
    """The complete module of a kernel.

    Args:
        alignments: what the address of each buffer is a multiple of, at least the size of its elements. From 16 on
            LLVM makes one access of four.
        moving: of buffers whose addresses change from call to call, the slots of the device table that hold them.
        guarded: return at once if an error has been reported, because the kernel writes what outlives the step. Nothing
            else that runs at the same time reports; where the kernel itself does, each block goes or stays whole.
    """
    writer = _Entry(kernel, alignments, moving, is_lasting=guarded or any(b.role == "updates" for b in kernel.buffers))
    for number, buffer in enumerate(kernel.buffers):
        writer.buffer(number, buffer)
    if kernel.partial_bytes:
        writer.pass_on(f"ptr {GLOBAL}", f"noalias align {PARTIAL_ALIGNMENT}", "%partials")
    if kernel.reports:
        writer.pass_on(f"ptr {GLOBAL}", f"align {WORD_BYTES}", "%errors")
        writer.pass_on("i64", "", "%code")
    elif guarded:
        writer.parameter(f"ptr {GLOBAL}", f"align {WORD_BYTES}", "%errors")
    told = [
        f"@{ALIGNMENT}{number} = internal {CONSTANT_SPACE}constant i64 {alignment}"
        for number, alignment in enumerate(alignments)
        if ALIGNMENT in kernel.text
    ]
    return "\n".join([kernel.text, *told, *writer.text(guarded)])


class _Entry:
    """The entry point of one kernel under construction.

    Args:
        is_lasting: it writes what outlives the step. An argument of the step may be that very memory, so nothing is
            said of who else has a buffer; four accesses are one all the same, because a tile is read before it is
            written.
    """

    def __init__(
        self, kernel: GridText, alignments: Sequence[int], moving: Mapping[int, int], *, is_lasting: bool
    ) -> None:
        assert len(alignments) == len(kernel.buffers), "every buffer has an alignment"
        self.kernel = kernel
        self.alignments = alignments
        self.moving = moving
        self.is_lasting = is_lasting
        self.parameters: list[str] = []
        self.loads: list[str] = []
        self.arguments: list[str] = []
        self.nodes: list[str] = []
        if moving:
            self.parameter(f"ptr {GLOBAL}", f"noalias readonly align {WORD_BYTES}", "%table")

    def parameter(self, kind: str, attributes: str, name: str) -> None:
        self.parameters.append(" ".join(filter(None, [kind, attributes, name])))

    def pass_on(self, kind: str, attributes: str, name: str) -> None:
        """A parameter that the body takes as it is."""
        self.parameter(kind, attributes, name)
        self.arguments.append(f"{kind} {name}")

    def buffer(self, number: int, buffer: Buffer) -> None:
        """The address of a buffer: a parameter, or out of the table."""
        alignment, kind = self.alignments[number], f"ptr {GLOBAL}"
        assert alignment % buffer.element_bytes == 0, "elements are aligned"
        is_alone = "" if self.is_lasting else {"reads": "noalias readonly", "writes": "noalias"}[buffer.role]
        name = f"%b{number}"
        if number not in self.moving:
            self.parameter(kind, f"{is_alone} align {alignment}".strip(), name)
            self.arguments.append(f"{kind} {name}")
            return
        node = f"!{_FIRST_NODE + len(self.nodes)}"
        self.nodes.append(f"{node} = !{{i64 {alignment}}}")
        self.loads += [
            f"  {name}.at = getelementptr i64, {kind} %table, i64 {self.moving[number]}",
            f"  {name} = load {kind}, {kind} {name}.at, align {WORD_BYTES}, !align {node}",
        ]
        self.arguments.append(f"{kind} {is_alone} {name}".replace("  ", " "))

    def text(self, guarded: bool) -> list[str]:
        """The function and the nodes of metadata that it names."""
        threads = self.kernel.threads
        call = [*self.loads, f"  call void @body({', '.join(self.arguments)})", "  ret void"]
        lines, shared = ["entry:", *call], list[str]()
        if guarded:
            read = _WORD_OF_BLOCK if self.kernel.reports else [f"  %reported = load i64, {_ERRORS}, align {WORD_BYTES}"]
            shared = [_SHARED_WORD] if self.kernel.reports else []
            test = ["  %goes.on = icmp eq i64 %reported, 0", "  br i1 %goes.on, label %run, label %leave"]
            lines = ["entry:", *read, *test, "run:", *call, "leave:", "  ret void"]
        head = f'define ptx_kernel void @kernel({", ".join(self.parameters)}) "nvvm.maxntid"="{threads}" {{'
        return [*shared, head, *lines, "}", *self.nodes]


_FIRST_NODE = 1 << 30  # metadata of kernels has lower numbers
_ERRORS = f"ptr {GLOBAL} %errors"
_BARRIER = "  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)"

_SHARED_WORD = f"@reported = internal {SHARED} global i64 undef, align {WORD_BYTES}"
# The word may change while a kernel runs that itself reports. Its blocks go or stay whole: one thread reads for all.
_WORD_OF_BLOCK = [
    "  %thread = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()",
    "  %is.first = icmp eq i32 %thread, 0",
    "  br i1 %is.first, label %read, label %meet",
    "read:",
    f'  %word = load atomic i64, {_ERRORS} syncscope("device") monotonic, align {WORD_BYTES}',
    f"  store i64 %word, ptr {SHARED} @reported, align {WORD_BYTES}",
    "  br label %meet",
    "meet:",
    _BARRIER,
    f"  %reported = load i64, ptr {SHARED} @reported, align {WORD_BYTES}",
]
