"""Functions of a kernel module under construction, as LLVM text.

A kernel is ``void symbol(ptr args, i64 chunk, i64 worker)``; ``args`` is an array of pointers. `KernelModule` holds
what the functions of one module share (definitions of mathematical functions, metadata); `KernelFunction` appends
blocks, loops, loads and stores to one function.

Reports. A kernel that can meet a bad index takes two more arguments at the end: the address of the step's error words
and its own code in that step. Word 0, ``code << 32 | site``, says who found what; word 1 is the offending position
where it is known. Sites from ``ACCESS_SITE`` on are accesses of a checked kernel, those from ``FAILURE_SITE`` on are
linked functions that failed (``KernelText.failing``; word 1 is the failure's number), others are look-ups (1, 2, ...).

Symbolic sizes. A kernel that depends on sizes known only at a call takes one more argument, the last: the address of
their values, 64-bit words in the order of ``KernelText.sizes``. `KernelFunction.number` gives a size as an operand, a
literal or the name of such a word.

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
from autojit.core.sizes import is_symbolic, size_max
from autojit.ir.op import Op

PARALLEL = ", !llvm.access.group !0"
"""Follows the loads and stores of a parallel loop."""

ACCESS_SITE = 1 << 16
FAILURE_SITE = 1 << 15


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
        sizes: symbolic sizes that the last argument gives the values of, if any.
        failing: the ops behind the sites from ``FAILURE_SITE`` on.
    """

    text: str
    chunks: int
    partial_bytes: int
    estimate_ns: float
    reports: bool
    scratch_bytes: int = 0
    sizes: tuple[int, ...] = ()
    failing: tuple[Op, ...] = ()


INTERLEAVE = 2  # vectors a loop with mathematical functions works on at a time
VECTORISED_EXTENT = 8  # iterations from which a vector loop beats straight-line code


class KernelModule:
    """What the functions of one module share."""

    def __init__(self) -> None:
        self.definitions: dict[str, str] = {}
        self.nodes: list[str] = []
        self.functions: list[str] = []
        self.sizes: dict[int, int] = {}  # symbolic size -> its word

    def parallel_loop(self, calls_functions: bool, extent: int | None) -> str:
        """The attachment of a parallel loop's back edge; ``extent`` is its number of iterations where that is fixed.

        Loops that evaluate mathematical functions work on two vectors at a time: each function is one long chain of
        dependent operations, and a second one fills its waits (3.9 against 3.3 ns per element of a kernel with six).
        Short loops are not unrolled before they are vectorised: as straight-line code they would stay scalar (a softmax
        over 16 elements takes a fifth of the time).
        """
        number = 2 + len(self.nodes)
        self.nodes.append("")
        properties = [f"!{number}", "!1"]
        if calls_functions:
            properties.append(self._property(f'!"llvm.loop.interleave.count", i32 {INTERLEAVE}'))
        if extent is not None and extent >= VECTORISED_EXTENT:
            properties.append(self._property('!"llvm.loop.unroll.disable"'))
            done = self._property('!"llvm.loop.isvectorized", i32 1')
            properties.append(self._property(f'!"llvm.loop.vectorize.followup_all", {done}'))
        self.nodes[number - 2] = f"!{number} = distinct !{{{', '.join(properties)}}}"
        return f", !llvm.loop !{number}"

    def _property(self, text: str) -> str:
        """The name of a node of metadata."""
        number = 2 + len(self.nodes)
        self.nodes.append(f"!{number} = !{{{text}}}")
        return f"!{number}"

    def text(self) -> str:
        """The module, functions first: a body that opens with ``@`` names a built-in."""
        metadata = ["!0 = distinct !{}", '!1 = !{!"llvm.loop.parallel_accesses", !0}', *self.nodes]
        return "\n".join([*self.functions, *self.definitions.values(), "attributes #0 = { nounwind }", *metadata])


class KernelFunction:
    """One function, block by block. ``sizes[k]`` is the number of elements behind argument ``k`` (for checks)."""

    def __init__(
        self, module: KernelModule, symbol: str, *, is_checked: bool = False, follows_reports: bool = False
    ) -> None:
        self.module = module
        self.symbol = symbol
        self.is_checked = is_checked
        self.follows_reports = follows_reports  # takes another function's arguments, those of reports among them
        self.lines: list[str] = []
        self.entry: list[str] = []
        self.emit = ScalarEmitter(self.lines)
        self.emit.number = self.number
        self.fold = FoldEmitter(self.lines)
        self.block = "entry"
        self.count = 0
        self.attrs = ""
        self.sizes: list[int] = []
        self.sites = 0
        self.flags: list[tuple[int, str]] = []  # (site, slot of an i1) of look-ups
        self.read_sizes: dict[int, str] = {}  # symbolic size -> the name that holds it
        self.failing: dict[Op, str] = {}  # op that can fail -> slot of the greatest number of a failure

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
        self._load_sizes()
        self.module.definitions.update({**self.emit.definitions, **self.fold.definitions})
        head = f"define void @{self.symbol}(ptr noalias readonly %args, i64 %chunk, i64 %worker) #0 {{"
        self.module.functions.append("\n".join([head, "entry:", *self.entry, *self.lines, "}"]))

    # -- sizes

    def number(self, size: int) -> str:
        """A size as an operand."""
        if not is_symbolic(size):
            return str(size)
        name = self.read_sizes.get(size)
        if name is None:
            word = self.module.sizes.setdefault(size, len(self.module.sizes))
            name = self.read_sizes[size] = f"%z{word}"
        return name

    def _load_sizes(self) -> None:
        """Read the sizes that were used where the function begins."""
        if not self.read_sizes:
            return
        place = len(self.sizes) + (2 if self.reports or self.follows_reports else 0)
        lines = [f"  %z.at = getelementptr ptr, ptr %args, i64 {place}", "  %z = load ptr, ptr %z.at, align 8"]
        for size, name in self.read_sizes.items():
            lines.append(f"  {name}.at = getelementptr i64, ptr %z, i64 {self.module.sizes[size]}")
            lines.append(f"  {name} = load i64, ptr {name}.at, align 8")
        self.entry += lines

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
        extent = int(high) - int(low) if low.isdigit() and high.isdigit() else None
        self.lines.append(f"  br label %{head}{self.module.parallel_loop(calls, extent) if is_parallel else ''}")
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
        outside = self.line(f"icmp uge i64 {index}, {self.number(self.sizes[argument])}")
        with self.when(outside):
            self.report(ACCESS_SITE + self.sites, index)
        return self.when(self.line(f"xor i1 {outside}, true"))

    # -- reports

    @property
    def reports(self) -> bool:
        return self.is_checked or bool(self.flags) or bool(self.failing)

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
        shifted = self.line(f"add i64 {index}, {self.number(extent)}")
        wrapped = self.line(f"select i1 {negative}, i64 {shifted}, i64 {index}")
        last = self.number(size_max(extent - 1, 0))
        inside = self.line(f"call i64 @llvm.umin.i64(i64 {wrapped}, i64 {last})")
        left = self.line(f"zext i1 {self.line(f'icmp uge i64 {wrapped}, {self.number(extent)}')} to i8")
        before = self.line(f"load i8, ptr {flag}")
        self.lines.append(f"  store i8 {self.line(f'or i8 {before}, {left}')}, ptr {flag}")
        return inside

    def collect_failures(self, op: Op) -> None:
        """Keep the numbers of failures that lowering ``op`` left behind, for a report at the end.

        A zero that LLVM does not know to be one is mixed in: it would make two loops of one that only goes on counting
        where a function fails, and vectorise neither.
        """
        slot = self.failing.get(op)
        if slot is None:
            slot = self.failing[op] = self._alloca("i32")
            self.entry += [
                f"  store i32 0, ptr {slot}",
                f"  {slot}.sign = lshr i64 %worker, 63",
                f"  {slot}.zero = trunc i64 {slot}.sign to i32",
            ]
        for number in self.emit.failures:
            before = self.line(f"load i32, ptr {slot}")
            mixed = self.line(f"or i32 {number.text}, {slot}.zero")
            greatest = self.line(f"call i32 @llvm.umax.i32(i32 {before}, i32 {mixed})")
            self.lines.append(f"  store i32 {greatest}, ptr {slot}")
        self.emit.failures.clear()

    def _report_lookups(self) -> None:
        for site, flag in self.flags:
            seen = self.line(f"load i8, ptr {flag}")
            with self.when(self.line(f"icmp ne i8 {seen}, 0")):
                self.report(site, "0")
        for site, slot in enumerate(self.failing.values(), start=FAILURE_SITE):
            number = self.line(f"load i32, ptr {slot}")
            with self.when(self.line(f"icmp ne i32 {number}, 0")):
                self.report(site, self.line(f"zext i32 {number} to i64"))
