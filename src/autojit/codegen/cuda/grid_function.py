"""Functions of kernels on a GPU: the body that every thread of a grid runs.

A kernel's module defines ``@body`` over the addresses of its buffers; the entry point around it is written once it is
known where the buffers are and which kernels share a launch (`codegen.cuda.entry_point`). So a body asks no register
who runs it: it is told (`body_parameters`), is given the block's shared memory, and calls ``@meet``, which the entry
point defines, where its threads wait for each other. Addresses have the space of global memory in front of their names,
and so has everything made from them: of generic addresses LLVM merges no accesses into wide ones.

``thread`` is the thread's number in its block, ``block_x`` the block's number along the first axis of the grid, both of
the index type and of known range: LLVM then computes indices in 32 bits where they fit, and a GPU has no others.

All threads of a block must reach every `barrier`, and all lanes of a warp every `shuffle`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import ClassVar

from autojit.codegen.cuda.emitter import CudaEmitter, CudaFold
from autojit.codegen.cuda.shared_copies import definition, symbol_of
from autojit.codegen.emitter import ScalarEmitter
from autojit.codegen.function_text import SIZE_BYTES, Operand
from autojit.codegen.grid_text import MOST_BLOCKS, Buffer, GridText, SharedCopy
from autojit.codegen.kernel_function import KernelFunction
from autojit.codegen.module_text import ModuleText, Signature
from autojit.codegen.scalar import Scalar, register_type
from autojit.core.dtypes import DType
from autojit.core.records import record
from autojit.core.sizes import is_symbolic

WARP = 32
"""Lanes that run together, on every GPU so far."""

MOST_REGISTERS = 168
"""Of a thread that holds much: a processor then has room for three blocks of 128 threads."""

GLOBAL, SHARED = "addrspace(1)", "addrspace(3)"
_ERROR_ORDER = 'syncscope("device") monotonic monotonic'


@record
class Grid:
    """How many threads run a kernel: blocks along three axes, an open size or a number, of this many threads each."""

    threads: int
    blocks: tuple[int, int, int]


_BUFFERS = re.compile(r"%p(\d+)\b")


def most_blocks(blocks: int) -> int:
    """Of a grid along an axis, where their number may be an open size."""
    return MOST_BLOCKS if is_symbolic(blocks) else max(blocks, 1)


def body_parameters(threads: int, blocks: tuple[int, int, int]) -> list[str]:
    """The first parameters of every body: thread, block along three axes, what tells ``@meet`` who is to be met."""
    along = [f"i32 range(i32 0,{most_blocks(n)}) block.{axis}.32" for axis, n in zip("xyz", blocks, strict=True)]
    return [f"i32 range(i32 0,{threads}) thread.32", *along, "i32 meeting"]


class CudaKernel(KernelFunction):
    """The body of one kernel.

    Args:
        grid: the threads that run it; ``@body`` holds for no other number of them.
        is_checked: whether accesses are compared with the sizes of buffers.
        follows_reports: it takes another kernel's arguments, those of reports among them.
    """

    emitter: ClassVar[type[ScalarEmitter]] = CudaEmitter
    folder: ClassVar[Callable[[list[str]], ScalarEmitter]] = CudaFold
    takes: ClassVar[str] = ""
    opaque: ClassVar[str] = "%thread"
    wrapping: ClassVar[str] = " nsw"
    partials: ClassVar[str] = f"{GLOBAL} %partials"
    """The address of partial results, in a kernel that has some."""
    most_registers = 0
    """Of a thread; 0: the assembler decides, who takes fewer than a kernel needs where more blocks fit by that."""

    def __init__(self, grid: Grid, *, is_checked: bool = False, follows_reports: bool = False) -> None:
        super().__init__(ModuleText(), "body", is_checked=is_checked, follows_reports=follows_reports)
        self.run_by(grid)

    def run_by(self, grid: Grid) -> None:
        """Begin the body of a kernel that this grid runs."""
        self.linkage, self.attributes = "internal", "alwaysinline convergent nounwind"
        self.grid = grid
        self.has_reported = False
        self.copies: list[SharedCopy] = []
        self.shared_bytes: list[int] = []  # of each array that the threads of a block have in common
        self.thread, self.block_x, self.block_y, self.block_z = map(
            self._widened, ("%thread", "%block.x", "%block.y", "%block.z")
        )

    def _widened(self, name: str) -> str:
        """A number that the body is told, of the index type."""
        self.entry.append(f"  {name} = zext nneg i32 {name}.32 to i64")
        return name

    def loop_hint(self, hint: str) -> Callable[[int], str]:
        """What attaches to a loop (``attachment``) what LLVM is to know of it, by the text of a node of metadata."""

        def attach(first_line: int) -> str:
            known, nodes = self.module.node(hint), self.module.nodes
            name = f"!{len(nodes)}"
            nodes.append(f"{name} = distinct !{{{name}, {known}}}")
            return f", !llvm.loop {name}"

        return attach

    # -- arguments

    def pointers(self, sizes: Sequence[int]) -> list[str]:
        """The first arguments are buffers of this many elements; their addresses."""
        self.sizes, self.buffers = sizes, [f"{GLOBAL} %p{k}" for k in range(len(sizes))]
        return self.buffers

    def finished(
        self, buffers: Sequence[Buffer], *, partial_bytes: int = 0, combine: GridText | None = None
    ) -> GridText:
        """End the function, which is all of its kernel.

        Args:
            buffers: what is done with each of `pointers`.
            partial_bytes: memory for partial results; 0: ``partials`` is no argument.
            combine: the kernel that makes results of them.
        """
        assert len(buffers) == len(self.sizes), "every buffer has a role"
        reports = self.reports or self.follows_reports
        parameters = body_parameters(self.grid.threads, self.grid.blocks)
        parameters += [f"ptr {SHARED} shared{k}" for k in range(len(self.shared_bytes))]
        parameters += [f"ptr {GLOBAL} p{k}" for k in range(len(buffers))]
        parameters += [f"i64 z{k}" for k in range(len(self.module.sizes))]
        parameters += [f"ptr {self.partials.replace('%', '')}"] * bool(partial_bytes)
        parameters += [f"ptr {GLOBAL} errors", "i64 code"] * reports
        self.signature = Signature("body", ", ".join(parameters))
        self.finish()
        return GridText(
            self.module.text(),
            self._touched(buffers),
            self.grid.threads,
            self.grid.blocks,
            partial_bytes,
            combine,
            reports,
            tuple(self.failing),
            shared=tuple(self.shared_bytes),
            copies=tuple(self.copies),
            most_registers=self.most_registers,
            sizes=tuple(self.module.sizes),
        )

    def reading_of_sizes(self) -> list[str]:
        """None: sizes are arguments."""
        return []

    def _touched(self, buffers: Sequence[Buffer]) -> tuple[Buffer, ...]:
        """What is done with each; nothing with those that are only passed, as to one of several kernels of an op."""
        named = {int(number) for line in self.lines for number in _BUFFERS.findall(line)}
        return tuple(
            [b if k in named else Buffer("takes", b.element_bytes, b.in_pieces) for k, b in enumerate(buffers)]
        )

    def read(self, argument: int, dtype: DType, position: str) -> Scalar:
        """An element of a buffer; of one without elements nothing is read, wherever a look-up points."""
        if self.sizes[argument] == 0:
            return self.emit.constant(0, dtype)
        return super().read(argument, dtype, position)

    # -- positions

    def offset(self, a: Operand, b: Operand) -> str:
        """``a + b`` of positions, which are never negative."""
        if a == 0 or b == 0:
            return self.number(b if a == 0 else a)
        return self.binary("add nuw nsw", a, b)

    def scaled(self, a: Operand, by: int) -> str:
        """``a * by`` of a position."""
        return self.number(a) if by == 1 else self.binary("mul nuw nsw", a, by)

    def at_most(self, position: str, last: Operand) -> str:
        """The position, or the last one there is."""
        return self.value(f"call i64 @llvm.umin.i64(i64 {position}, i64 {self.number(last)})")

    def all_of(self, *conditions: str | None) -> str | None:
        """The condition that all of some hold; None holds always."""
        found: str | None = None
        for condition in conditions:
            if condition is not None:
                found = condition if found is None else self.both(found, condition)
        return found

    def perhaps(self, condition: str | None) -> AbstractContextManager[None]:
        """What is written inside runs only if the condition holds; None holds always."""
        return nullcontext() if condition is None else self.when(condition)

    def as_aligned(self, address: str, buffers: Iterable[str], most: int) -> str:
        """An address that has no lower bit set, below ``most``, than the addresses of these buffers have: the same.

        LLVM knows how each of them is aligned, and by this that the address is, too, however it was made.
        """
        bits: str | None = None
        for buffer in buffers:
            own = self.convert("ptrtoint", buffer, "ptr", "i64")
            bits = own if bits is None else self.binary("or", bits, own)
        mask = self.number(-most) if bits is None else self.binary("or", bits, -most)
        return f"{GLOBAL} " + self.value(f"call ptr {GLOBAL} @llvm.ptrmask.p1.i64(ptr {address}, i64 {mask})")

    # -- reports

    @property
    def reports(self) -> bool:
        return self.has_reported or super().reports

    def report(self, site: int, position: str) -> None:
        """Note an error for the caller of the step: the first thread that finds one claims the words."""
        self.has_reported = True
        words = f"{GLOBAL} %errors"
        found = self.binary("or", self.binary("shl", "%code", 32), site)
        _, is_first = self.exchange(words, 0, found, _ERROR_ORDER)
        with self.when(is_first):
            self.store("i64", position, self.element(words, "i64", 1), attributes=", align 8")

    # -- what threads share

    def shared(self, kind: str, count: int) -> str:
        """An array that the threads of a block have in common; its address."""
        self.shared_bytes.append(SIZE_BYTES[kind] * count)
        return f"{SHARED} %shared{len(self.shared_bytes) - 1}"

    def copy_to_shared(self, copy: SharedCopy, target: str, source: str, is_zero: str | None) -> None:
        """Begin to copy from a buffer; zeros are there instead if the condition holds."""
        if copy not in self.copies:
            self.copies.append(copy)
            self.module.definitions[symbol_of(copy)] = definition(copy, copy.element_bytes)
        more = f", i1 {is_zero}" if copy.fills else ""
        self.line(f"call void {symbol_of(copy)}(ptr {target}, ptr {source}{more})")

    def end_copies(self) -> None:
        """What this thread has begun to copy since the last time is a group."""
        self.line("call void @llvm.nvvm.cp.async.commit.group()")

    def wait_for_copies(self, left: int) -> None:
        """Until all groups of this thread are there but this many of the latest; others need a barrier as well."""
        self.line(f"call void @llvm.nvvm.cp.async.wait.group(i32 {left})")

    def barrier(self) -> None:
        """Wait for all threads of the block; what they wrote before is seen by all."""
        self.line("call void @meet(i32 %meeting)")

    def barrier_any(self, condition: str) -> str:
        """Wait for all threads of the block, as `barrier` does; whether a condition holds in any of them."""
        threads = self.grid.threads
        if threads == WARP:
            found = self.value(f"call i1 @llvm.nvvm.vote.any.sync(i32 -1, i1 {condition})")
            self.barrier()
            return found
        return self.value(
            f"call i1 @llvm.nvvm.barrier.cta.red.or.aligned.count(i32 %meeting, i32 {threads}, i1 {condition})"
        )

    def shuffle(self, value: Scalar, distance: int) -> Scalar:
        """The value of the lane whose number differs in this power of two."""
        return self._from_lane(value, distance, "bfly")

    def shuffle_up(self, value: Scalar, distance: int) -> Scalar:
        """The value of the lane that is this many in front; the first ones get their own."""
        return self._from_lane(value, distance, "up")

    def _from_lane(self, value: Scalar, distance: int, how: str) -> Scalar:
        """The value of another lane, 32 bits at a time."""
        kind = register_type(value.dtype)
        limit = 0 if how == "up" else 31

        def exchanged(bits: str) -> str:
            call = f"@llvm.nvvm.shfl.sync.{how}.i32(i32 -1, i32 {bits}, i32 {distance}, i32 {limit})"
            return self.value(f"call i32 {call}")

        if kind == "i32":
            return Scalar(exchanged(value.text), value.dtype)
        if kind == "float":
            bits = exchanged(self.convert("bitcast", value.text, kind, "i32"))
            return Scalar(self.convert("bitcast", bits, "i32", kind), value.dtype)
        if kind in ("i1", "i8", "i16"):
            wide = exchanged(self.convert("zext", value.text, kind, "i32"))
            return Scalar(self.convert("trunc", wide, "i32", kind), value.dtype)
        bits = self.convert("bitcast", value.text, kind, "i64") if kind == "double" else value.text
        halves = [self.convert("trunc", part, "i64", "i32") for part in (bits, self.binary("lshr", bits, 32))]
        low, high = (self.convert("zext", exchanged(half), "i32") for half in halves)
        joined = self.binary("or", self.binary("shl", high, 32), low)
        return Scalar(self.convert("bitcast", joined, "i64", kind) if kind == "double" else joined, value.dtype)
