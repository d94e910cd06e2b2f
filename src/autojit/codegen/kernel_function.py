"""Functions of kernels, for every target: buffers, scalars of ops, checks, reports of what went wrong.

`KernelFunction` is a `FunctionText` whose arguments are buffers. An expression is written by ``emit`` (ops speak to it,
see `codegen.emitter`) or, where a reduction folds, by ``fold``.

Reports. A kernel that can meet a bad index takes two more arguments after the buffers: the address of the step's error
words and its own code in that step. Word 0, ``code << 32 | site``, says who found what; word 1 is the offending
position where it is known; for the sites see `report_sites`.

In the checked form (``AUTOJIT_CHECK=1``) every load and store compares its position with the buffer's size; an access
outside is reported and skipped.

A target says how arguments are reached (``takes``, `pointers`, `report`, `address_of_sizes`), what accesses and loops
say to LLVM (``access``, `parallel_loop`) and who emits (``emitter``, ``folder``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import ClassVar, Protocol, runtime_checkable

from autojit.codegen.emitter import ScalarEmitter
from autojit.codegen.folding import FoldEmitter
from autojit.codegen.function_text import FunctionText, Operand
from autojit.codegen.module_text import ModuleText, Signature
from autojit.codegen.report_sites import ACCESS_SITE, FAILURE_SITE
from autojit.codegen.scalar import Scalar, memory_type, register_type
from autojit.core.dtypes import DType
from autojit.core.sizes import size_max
from autojit.ir.graph import Node
from autojit.ir.op import Op


@runtime_checkable
class WritesKernel(Protocol):
    """An op that writes its own kernel: ``numba_ops`` makes such ops of functions that another compiler printed."""

    def write_kernel(self, kernel: KernelFunction, node: Node) -> float | None:
        """Write all but the end, and give the time of one thread in nanoseconds; None: call the op back instead."""


class KernelFunction(FunctionText, ABC):
    """One function of a kernel.

    Args:
        symbol: its name.
        is_checked: whether accesses are compared with the sizes of buffers.
        follows_reports: it takes another function's arguments, those of reports among them.
    """

    emitter: ClassVar[type[ScalarEmitter]] = ScalarEmitter
    folder: ClassVar[Callable[[list[str]], ScalarEmitter]] = FoldEmitter  # who combines elements of a fold
    takes: ClassVar[str]  # the parameters
    attribute_group: ClassVar[str] = "nounwind"
    opaque: ClassVar[str]  # an operand that is never negative, which LLVM does not know

    def __init__(
        self, module: ModuleText, symbol: str, *, is_checked: bool = False, follows_reports: bool = False
    ) -> None:
        super().__init__(module, Signature(symbol, self.takes), attributes=self.attribute_group)
        self.is_checked = is_checked
        self.follows_reports = follows_reports
        self.emit = self.emitter(self.lines)
        self.emit.number = self.number
        self.fold = type(self).folder(self.lines)
        self.access = ""  # what the target says to LLVM about loads and stores
        self.buffers: list[str] = []  # their addresses
        self.sizes: Sequence[int] = ()  # the elements of each
        self.sites = 0
        self.flags: list[tuple[int, str]] = []  # (site, slot of an i1) of look-ups
        self.failing: dict[Op, str] = {}  # op that can fail -> slot of the greatest number of a failure

    def finish(self) -> None:
        """Report what was met, end the function and add it to the module."""
        self._report_lookups()
        self.module.definitions.update({**self.emit.definitions, **self.fold.definitions})
        super().finish()

    # -- arguments

    @abstractmethod
    def pointers(self, sizes: Sequence[int]) -> list[str]:
        """The first arguments are buffers of this many elements; their addresses."""

    # -- loops

    @contextmanager
    def parallel_loop(self, start: Operand, stop: Operand, stem: str) -> Iterator[str]:
        """A loop whose iterations do not depend on each other."""
        with self.loop(start, stop, stem=stem) as counter:
            yield counter

    # -- variables and buffers

    def slot(self, dtype: DType) -> str:
        """A local variable."""
        return self.local(register_type(dtype))

    def array(self, dtype: DType, count: int) -> str:
        """A local array."""
        return self.local(f"[{count} x {memory_type(dtype)}]")

    def get(self, slot: str, dtype: DType) -> Scalar:
        return Scalar(self.load(register_type(dtype), slot), dtype)

    def put(self, slot: str, value: Scalar) -> None:
        self.store(register_type(value.dtype), value.text, slot)

    def address(self, pointer: str, dtype: DType, position: Operand) -> str:
        """The address of an element."""
        return self.element(pointer, memory_type(dtype), position)

    def read(self, argument: int, dtype: DType, position: str) -> Scalar:
        """An element of a buffer."""
        if not self.is_checked:
            return self.emit.load(self.address(self.buffers[argument], dtype, position), dtype, self.access)
        slot = self.slot(dtype)
        self.put(slot, self.emit.constant(0, dtype))
        with self._checked(argument, position):
            self.put(slot, self.emit.load(self.address(self.buffers[argument], dtype, position), dtype))
        return self.get(slot, dtype)

    def write(self, argument: int, value: Scalar, position: str) -> None:
        """Change an element of a buffer."""
        if not self.is_checked:
            self.emit.store(value, self.address(self.buffers[argument], value.dtype, position), self.access)
            return
        with self._checked(argument, position):
            self.emit.store(value, self.address(self.buffers[argument], value.dtype, position))

    def _checked(self, argument: int, position: str) -> AbstractContextManager[None]:
        self.sites += 1
        outside = self.test("uge", position, self.sizes[argument])
        with self.when(outside):
            self.report(ACCESS_SITE + self.sites, position)
        return self.when(self.negate(outside))

    # -- reports

    @property
    def reports(self) -> bool:
        return self.is_checked or bool(self.flags) or bool(self.failing)

    @abstractmethod
    def report(self, site: int, position: str) -> None:
        """Note an error for the caller of the step."""

    def clamped(self, position: str, extent: int, site: int) -> str:
        """A run-time index wrapped once if negative and kept inside the axis; leaving it is reported at the end.

        The test is folded into one bit per look-up, so loops over look-ups still vectorise.
        """
        flag = next((slot for known, slot in self.flags if known == site), None)
        if flag is None:
            flag = self.local("i8")
            self.entry.append(f"  store i8 0, ptr {flag}")
            self.flags.append((site, flag))
        negative = self.test("slt", position, 0)
        wrapped = self.choose(negative, self.add(position, extent), position)
        last = self.number(size_max(extent - 1, 0))
        inside = self.value(f"call i64 @llvm.umin.i64(i64 {wrapped}, i64 {last})")
        left = self.convert("zext", self.test("uge", wrapped, extent), "i1", "i8")
        self.store("i8", self.binary("or", self.load("i8", flag), left, "i8"), flag)
        return inside

    def collect_failures(self, op: Op) -> None:
        """Keep the numbers of failures that lowering ``op`` left behind, for a report at the end.

        A zero that LLVM does not know to be one is mixed in: it would make two loops of one that only goes on counting
        where a function fails, and vectorise neither.
        """
        slot = self.failing.get(op)
        if slot is None:
            slot = self.failing[op] = self.local("i32")
            self.entry += [
                f"  store i32 0, ptr {slot}",
                f"  {slot}.sign = lshr i64 {self.opaque}, 63",
                f"  {slot}.zero = trunc i64 {slot}.sign to i32",
            ]
        for number in self.emit.failures:
            before = self.load("i32", slot)
            mixed = self.binary("or", number.text, f"{slot}.zero", "i32")
            greatest = self.value(f"call i32 @llvm.umax.i32(i32 {before}, i32 {mixed})")
            self.store("i32", greatest, slot)
        self.emit.failures.clear()

    def _report_lookups(self) -> None:
        for site, flag in self.flags:
            with self.when(self.test("ne", self.load("i8", flag), 0, "i8")):
                self.report(site, "0")
        for site, slot in enumerate(self.failing.values(), start=FAILURE_SITE):
            number = self.load("i32", slot)
            with self.when(self.test("ne", number, 0, "i32")):
                self.report(site, self.convert("zext", number, "i32"))
