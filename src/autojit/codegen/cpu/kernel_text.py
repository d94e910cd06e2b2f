"""Functions of a kernel module under construction, as LLVM text.

A kernel is ``void symbol(ptr args, i64 chunk, i64 worker)``; ``args`` is an array of pointers. `KernelModule` holds
what the functions of one module share (definitions of mathematical functions, metadata); `KernelFunction` appends
blocks, loops, loads and stores to one function.

Reports. A kernel that can meet a bad index takes two more arguments at the end: the address of the step's error words
and its own code in that step. Word 0, ``code << 32 | site``, says who found what; word 1 is the offending position
where it is known. Sites from ``ACCESS_SITE`` on are accesses of a checked kernel, those below are look-ups (1, 2, ...).

In the checked form (``AUTOJIT_CHECK=1``) every load and store compares its position with the buffer's size; an access
outside is reported and skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from autojit.codegen.emitter import ScalarEmitter
from autojit.codegen.folding import FoldEmitter
from autojit.codegen.scalar import Scalar, memory_type, register_type
from autojit.core.dtypes import DType

PARALLEL = ", !llvm.access.group !0"
"""Follows the loads and stores of a parallel loop."""

ACCESS_SITE = 1 << 16


@dataclass(frozen=True)
class KernelText:
    """A printed kernel and what the plan must pass.

    Args:
        text: the LLVM module; it defines ``kernel`` and, with partial results, ``kernel_combine``.
        chunks: how many calls do the work.
        partial_bytes: of one chunk's partial results; 0 when there is nothing to combine.
        estimate_ns: single-thread time of the whole kernel.
        reports: whether the two arguments of reports follow the others.
        scratch_bytes: memory each worker needs; its address, common to all workers, follows the buffers.
    """

    text: str
    chunks: int
    partial_bytes: int
    estimate_ns: float
    reports: bool
    scratch_bytes: int = 0


INTERLEAVE = 2  # vectors a loop with mathematical functions works on at a time


class KernelModule:
    """What the functions of one module share."""

    def __init__(self) -> None:
        self.definitions: dict[str, str] = {}
        self.nodes: list[str] = []
        self.functions: list[str] = []

    def parallel_loop(self, calls_functions: bool) -> str:
        """The attachment of a parallel loop's back edge.

        Loops that evaluate mathematical functions work on two vectors at a time: each function is one long chain of
        dependent operations, and a second one fills its waits (3.9 against 3.3 ns per element of a kernel with six).
        """
        number = 2 + len(self.nodes)
        self.nodes.append("")
        interleave = ""
        if calls_functions:
            interleave = f", !{number + 1}"
            self.nodes.append(f'!{number + 1} = !{{!"llvm.loop.interleave.count", i32 {INTERLEAVE}}}')
        self.nodes[number - 2] = f"!{number} = distinct !{{!{number}, !1{interleave}}}"
        return f", !llvm.loop !{number}"

    def text(self) -> str:
        """The module, functions first: a body that opens with ``@`` names a built-in."""
        metadata = ["!0 = distinct !{}", '!1 = !{!"llvm.loop.parallel_accesses", !0}', *self.nodes]
        return "\n".join([*self.functions, *self.definitions.values(), "attributes #0 = { nounwind }", *metadata])


class KernelFunction:
    """One function, block by block. ``sizes[k]`` is the number of elements behind argument ``k`` (for checks)."""

    def __init__(self, module: KernelModule, symbol: str, *, is_checked: bool = False) -> None:
        self.module = module
        self.symbol = symbol
        self.is_checked = is_checked
        self.lines: list[str] = []
        self.entry: list[str] = []
        self.emit = ScalarEmitter(self.lines)
        self.fold = FoldEmitter(self.lines)
        self.block = "entry"
        self.count = 0
        self.attrs = ""
        self.sizes: list[int] = []
        self.sites = 0
        self.flags: list[tuple[int, str]] = []  # (site, slot of an i1) of look-ups

    # -- text

    def label(self, name: str) -> str:
        self.count += 1
        return f"{name}{self.count}"

    def start(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self.block = label

    def name(self) -> str:
        self.count += 1
        return f"%t{self.count}"

    def line(self, text: str) -> str:
        """Append ``%fresh = text``; the fresh name."""
        name = self.name()
        self.lines.append(f"  {name} = {text}")
        return name

    def slot(self, dtype: DType) -> str:
        """A local variable (LLVM turns it into a register)."""
        return self._alloca(register_type(dtype))

    def array(self, dtype: DType, count: int) -> str:
        """A local array."""
        return self._alloca(f"[{count} x {memory_type(dtype)}]")

    def _alloca(self, what: str) -> str:
        name = self.name()
        self.entry.append(f"  {name} = alloca {what}, align 64")
        return name

    def get(self, slot: str, dtype: DType) -> Scalar:
        return Scalar(self.line(f"load {register_type(dtype)}, ptr {slot}"), dtype)

    def put(self, slot: str, value: Scalar) -> None:
        self.lines.append(f"  store {register_type(value.dtype)} {value.text}, ptr {slot}")

    def finish(self) -> None:
        """Close the function and add it to the module."""
        self._report_lookups()
        self.lines.append("  ret void")
        self.module.definitions.update({**self.emit.definitions, **self.fold.definitions})
        head = f"define void @{self.symbol}(ptr noalias readonly %args, i64 %chunk, i64 %worker) #0 {{"
        self.module.functions.append("\n".join([head, "entry:", *self.entry, *self.lines, "}"]))

    # -- arguments

    def pointers(self, sizes: list[int]) -> None:
        """Load the pointers ``%p0``, ``%p1``, ... of buffers with so many elements."""
        self.sizes = sizes
        for k in range(len(sizes)):
            at = self.line(f"getelementptr ptr, ptr %args, i64 {k}")
            self.lines.append(f"  %p{k} = load ptr, ptr {at}, align 8")

    # -- control

    def loop(self, kind: str, low: str, high: str, body: Callable[[str], None], *, is_parallel: bool = False) -> None:
        """``for i in [low, high)``; parallel loops promise independent iterations to the vectoriser."""
        head, inside, done = self.label(f"{kind}.head"), self.label(f"{kind}.body"), self.label(f"{kind}.done")
        before = self.block
        counter = self.name()
        following = self.name()
        self.lines.append(f"  br label %{head}")
        self.start(head)
        position = len(self.lines)
        self.lines.append("")
        test = self.line(f"icmp slt i64 {counter}, {high}")
        self.lines.append(f"  br i1 {test}, label %{inside}, label %{done}")
        self.start(inside)
        start = len(self.lines)
        body(counter)
        self.lines.append(f"  {following} = add nuw nsw i64 {counter}, 1")
        calls = is_parallel and any(" @aj." in line for line in self.lines[start:])
        self.lines.append(f"  br label %{head}{self.module.parallel_loop(calls) if is_parallel else ''}")
        self.lines[position] = f"  {counter} = phi i64 [ {low}, %{before} ], [ {following}, %{self.block} ]"
        self.start(done)

    @contextmanager
    def when(self, condition: str) -> Iterator[None]:
        """What is appended inside runs only if the condition holds."""
        then, join = self.label("then"), self.label("join")
        self.lines.append(f"  br i1 {condition}, label %{then}, label %{join}")
        self.start(then)
        yield
        self.lines.append(f"  br label %{join}")
        self.start(join)

    @contextmanager
    def parallel(self) -> Iterator[None]:
        """Accesses appended inside belong to a parallel loop."""
        outside, self.attrs = self.attrs, PARALLEL
        yield
        self.attrs = outside

    # -- memory

    def element(self, pointer: str, dtype: DType, index: str) -> str:
        return self.line(f"getelementptr {memory_type(dtype)}, ptr {pointer}, i64 {index}")

    def load(self, argument: int, dtype: DType, index: str) -> Scalar:
        """Element ``index`` of a buffer argument."""
        if not self.is_checked:
            return self.emit.load(self.element(f"%p{argument}", dtype, index), dtype, self.attrs)
        slot = self.slot(dtype)
        self.put(slot, self.emit.constant(0, dtype))
        with self._checked(argument, index):
            self.put(slot, self.emit.load(self.element(f"%p{argument}", dtype, index), dtype))
        return self.get(slot, dtype)

    def store(self, argument: int, value: Scalar, index: str) -> None:
        """Write element ``index`` of a buffer argument."""
        if not self.is_checked:
            self.emit.store(value, self.element(f"%p{argument}", value.dtype, index), self.attrs)
            return
        with self._checked(argument, index):
            self.emit.store(value, self.element(f"%p{argument}", value.dtype, index))

    def copy_bytes(self, target: str, source: str, size_bytes: str) -> None:
        """Copy between places that do not overlap."""
        self.lines.append(f"  call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {source}, i64 {size_bytes}, i1 false)")

    def _checked(self, argument: int, index: str) -> AbstractContextManager[None]:
        self.sites += 1
        outside = self.line(f"icmp uge i64 {index}, {self.sizes[argument]}")
        with self.when(outside):
            self.report(ACCESS_SITE + self.sites, index)
        return self.when(self.line(f"xor i1 {outside}, true"))

    # -- reports

    @property
    def reports(self) -> bool:
        return self.is_checked or bool(self.flags)

    def report(self, site: int, position: str) -> None:
        """Note an error for the caller of the step."""
        words_at = self.line(f"getelementptr ptr, ptr %args, i64 {len(self.sizes)}")
        words = self.line(f"load ptr, ptr {words_at}, align 8")
        code_at = self.line(f"getelementptr i64, ptr %args, i64 {len(self.sizes) + 1}")
        code = self.line(f"load i64, ptr {code_at}, align 8")
        high = self.line(f"shl i64 {code}, 32")
        self.lines.append(f"  store i64 {self.line(f'or i64 {high}, {site}')}, ptr {words}, align 8")
        second = self.line(f"getelementptr i64, ptr {words}, i64 1")
        self.lines.append(f"  store i64 {position}, ptr {second}, align 8")

    def clamped(self, index: str, extent: int, site: int) -> str:
        """A run-time index wrapped once if negative and kept inside the axis; leaving it is reported at the end.

        The test is folded into one bit per look-up, so loops over look-ups still vectorise.
        """
        flag = next((slot for known, slot in self.flags if known == site), None)
        if flag is None:
            flag = self._alloca("i8")
            self.entry.append(f"  store i8 0, ptr {flag}")
            self.flags.append((site, flag))
        negative = self.line(f"icmp slt i64 {index}, 0")
        shifted = self.line(f"add i64 {index}, {extent}")
        wrapped = self.line(f"select i1 {negative}, i64 {shifted}, i64 {index}")
        inside = self.line(f"call i64 @llvm.umin.i64(i64 {wrapped}, i64 {max(extent - 1, 0)})")
        left = self.line(f"zext i1 {self.line(f'icmp ne i64 {wrapped}, {inside}')} to i8")
        before = self.line(f"load i8, ptr {flag}")
        self.lines.append(f"  store i8 {self.line(f'or i8 {before}, {left}')}, ptr {flag}")
        return inside

    def _report_lookups(self) -> None:
        for site, flag in self.flags:
            seen = self.line(f"load i8, ptr {flag}")
            with self.when(self.line(f"icmp ne i8 {seen}, 0")):
                self.report(site, "0")
