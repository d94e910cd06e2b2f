"""Functions of a kernel on the CPU, and the kernel as the plan takes it.

A kernel is ``void symbol(ptr args, i64 chunk, i64 worker)``; ``args`` is an array of pointers: the buffers, then what
reports take (see `codegen.kernel_function`), then, in a kernel that depends on sizes known only at a call, the address
of their values, 64-bit words in the order of ``KernelText.sizes``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar, Self

from autojit.codegen.function_text import Operand
from autojit.codegen.kernel_function import KernelFunction
from autojit.codegen.module_text import ModuleText
from autojit.core.config import config
from autojit.core.dtypes import DType
from autojit.core.foreign_functions import ForeignFunction
from autojit.core.records import record
from autojit.ir.op import Op

PARALLEL = ", !llvm.access.group !0"
"""Follows the loads and stores of a parallel loop."""

# Vectors that a loop with mathematical functions works on at a time (see `CpuKernel._vectorised`). Three or four were
# tried on a Zen 4 core and are no faster.
INTERLEAVE = 2
FOLDED_EXTREMES = 4  # and one that folds an extreme: amax of rows of 256 took 0.55 ns an element by one, 0.2 by four
VECTORISED_EXTENT = 8  # iterations from which a vector loop beats straight-line code: a vector of float32
# Iterations from which a loop is long, so that unrolling what is around it gains nothing: of 84 kernels over 8 and 256
# rows of 8 to 64 elements, rows of up to 16 take up to 15 % longer where the loop over rows is not unrolled, others the
# same time.
LONG_EXTENT = 24
# Iterations from which a vector loop without mathematical functions, which works on four vectors at a time already, is
# not unrolled either. A layer norm over rows of 200 takes 14 % longer where it is not, over rows of 128 a quarter less;
# from 256 on there is no difference on a Zen 4 core, whose model would have LLVM unroll up to 512 operations. With
# functions (exp over rows of 1024) the differences, up to 3 %, change their sign from process to process.
ROLLED_EXTENT = 256
# Iterations from which a loop with mathematical functions takes the widest vectors there are, where LLVM would take
# half of them because a processor runs slower with those (Intel's servers): what no vector holds is then a small part.
# Such a loop is arithmetic, so twice the lanes are worth more than a tenth of the clock: on a Skylake server core
# `softmax_layernorm` takes 20.7 instead of 31.0 ms, `black_scholes` 37.4 instead of 44.9, `gpt` 89.7 instead of 95.0.
# Others wait for memory and lose with wide reads, each of which touches two lines of a cache where it is not aligned
# (`heat`, a stencil: 8.2 -> 9.0 ms). Processor time, least of many calls in turns.
WIDE_EXTENT = 64
# What is spilled from vector registers is aligned only where LLVM may align the stack, and that it may only where a
# function has a frame pointer before registers are chosen. Else most spills of 64 bytes touch two lines of the cache: a
# Black-Scholes kernel with its second derivatives, 60 spills a turn, takes 3 to 4 % longer, and the transform of a tile
# of a filtered convolution, 100 spills, 14 % (Skylake server). It costs an address register, which few such functions
# miss; tiles of products need all of them and spill nothing.
ALIGNED_SPILLS = '"frame-pointer"="all"'
WIDEST = (
    f'attributes #0 = {{ nounwind {ALIGNED_SPILLS} "prefer-vector-width"="512" }}',
)  # as wide as the machine has them, up to 64 bytes


@record
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
        product: the type whose matrix product it calls; its address follows the scratch's.
        foreign: functions of other libraries that it calls; their addresses come next.
    """

    text: str
    chunks: int
    partial_bytes: int
    estimate_ns: float
    reports: bool
    scratch_bytes: int = 0
    sizes: tuple[int, ...] = ()
    failing: tuple[Op, ...] = ()
    product: DType | None = None
    foreign: tuple[ForeignFunction, ...] = ()


class KernelModule(ModuleText):
    """The module of a kernel: accesses of group ``!0`` are parallel in the loops that name ``!1``."""

    attributes = ("attributes #0 = { nounwind }",)

    def __init__(self) -> None:
        super().__init__()
        self.nodes += ["!0 = distinct !{}", '!1 = !{!"llvm.loop.parallel_accesses", !0}']


class CpuKernel(KernelFunction):
    """One function of a kernel on the CPU."""

    takes: ClassVar[str] = "ptr noalias readonly args, i64 chunk, i64 worker"
    attribute_group: ClassVar[str] = "#0"
    opaque: ClassVar[str] = "%worker"
    shortest_vectorised: int = VECTORISED_EXTENT
    long_until: int = -1  # the last line so far of a long parallel loop
    rolled: str | None = None  # what loops around long ones say to LLVM

    @classmethod
    def alone(cls) -> Self:
        """The only function of its kernel."""
        return cls(KernelModule(), "kernel", is_checked=config.check)

    def kernel_text(
        self,
        chunks: int,
        estimate_ns: float,
        *,
        partial_bytes: int = 0,
        scratch_bytes: int = 0,
        product: DType | None = None,
        foreign: tuple[ForeignFunction, ...] = (),
    ) -> KernelText:
        """The kernel whose module is complete, this function its first."""
        return KernelText(
            self.module.text(),
            chunks,
            partial_bytes,
            estimate_ns,
            reports=self.reports,
            scratch_bytes=scratch_bytes,
            sizes=tuple(self.module.sizes),
            failing=tuple(self.failing),
            product=product,
            foreign=foreign,
        )

    def finished(
        self,
        chunks: int,
        estimate_ns: float,
        *,
        scratch_bytes: int = 0,
        product: DType | None = None,
        foreign: tuple[ForeignFunction, ...] = (),
    ) -> KernelText:
        """End the function, which is all of its kernel."""
        self.finish()
        return self.kernel_text(chunks, estimate_ns, scratch_bytes=scratch_bytes, product=product, foreign=foreign)

    def _argument(self, number: int, kind: str) -> str:
        """The instruction that gives an argument."""
        return f"load {kind}, ptr {self.element('%args', kind, number)}, align 8"

    def pointers(self, sizes: Sequence[int]) -> list[str]:
        """The first arguments are buffers of this many elements; their addresses."""
        self.sizes, self.buffers = sizes, [f"%p{k}" for k in range(len(sizes))]
        for k, name in enumerate(self.buffers):
            self.line(f"{name} = {self._argument(k, 'ptr')}")
        return self.buffers

    def report(self, site: int, position: str) -> None:
        """Note an error for the caller of the step."""
        words = self.value(self._argument(len(self.sizes), "ptr"))
        code = self.value(self._argument(len(self.sizes) + 1, "i64"))
        found = self.binary("or", self.binary("shl", code, 32), site)
        self.store("i64", found, words, attributes=", align 8")
        self.store("i64", position, self.element(words, "i64", 1), attributes=", align 8")

    def address_of_sizes(self) -> list[str]:
        """The lines that make ``%z`` the address of the sizes' words."""
        place = len(self.sizes) + (2 if self.reports or self.follows_reports else 0)
        return [f"  %z.at = getelementptr ptr, ptr %args, i64 {place}", "  %z = load ptr, ptr %z.at, align 8"]

    def chunk_bounds(self, size: int, total: Operand) -> tuple[str, str]:
        """The first of the chunk's items, and the first behind them."""
        low = self.mul("%chunk", size)
        return low, self.least(self.add(low, size), total)

    # -- parallel loops

    @contextmanager
    def parallel(self) -> Iterator[None]:
        """Accesses written inside belong to a parallel loop."""
        outside, self.access = self.access, PARALLEL
        yield
        self.access = outside

    @contextmanager
    def parallel_loop(self, start: Operand, stop: Operand, stem: str) -> Iterator[str]:
        """A loop whose iterations the vectoriser may take as independent."""

        def attachment(first_line: int) -> str:
            text = "\n".join(self.lines[first_line:])
            calls = " @aj." in text
            extent = int(high) - int(low) if low.isdigit() and high.isdigit() else None
            if extent is None or extent >= LONG_EXTENT:
                self.long_until = len(self.lines)
            if calls and (extent is None or extent >= WIDE_EXTENT):
                self.module.attributes = WIDEST
            waits = FOLDED_EXTREMES if " @llvm.maximum." in text or " @llvm.minimum." in text else 0
            return self._vectorised(calls, INTERLEAVE if calls else waits, extent)

        low, high = self.number(start), self.number(stop)
        outside = self.access
        with self.loop(low, high, stem=stem, attachment=attachment) as counter:
            self.access = PARALLEL
            yield counter
            self.access = outside

    def after_turn(self, first_line: int) -> str:
        """Loops around long ones are not unrolled.

        LLVM would write a vector loop out four times for four rows (a batch norm over four images takes 21 instead of
        105 ms to compile), which gains nothing: a turn is a long loop already.
        """
        if self.back_edge or self.long_until < first_line:  # else all loops say so
            return super().after_turn(first_line)
        if self.rolled is None:
            number = len(self.module.nodes)
            self.module.nodes.append("")
            disabled = self.module.node('!"llvm.loop.unroll.disable"')
            self.module.nodes[number] = f"!{number} = distinct !{{!{number}, {disabled}}}"
            self.rolled = f", !llvm.loop !{number}"
        return self.rolled

    def _vectorised(self, calls_functions: bool, interleave: int, extent: int | None) -> str:
        """The attachment of a parallel loop's back edge; ``extent`` is its number of iterations where that is fixed.

        Loops that evaluate mathematical functions work on two vectors at a time: each function is one long chain of
        dependent operations, and a second one fills its waits (3.9 against 3.3 ns per element of a kernel with six).
        Short loops are not unrolled before they are vectorised: as straight-line code they would stay scalar (a softmax
        over 16 elements takes a fifth of the time). Vectors' turns are parallel as well, and say so: else a later pass
        asks for each pair of the accesses whether they meet (a third of the time that an LSTM cell takes to compile).
        """
        nodes, number = self.module.nodes, len(self.module.nodes)
        nodes.append("")
        properties = [f"!{number}", "!1"]
        if interleave:
            properties.append(self.module.node(f'!"llvm.loop.interleave.count", i32 {interleave}'))
        if extent is None or extent >= self.shortest_vectorised:
            properties.append(self.module.node('!"llvm.loop.unroll.disable"'))
        if extent is not None and self.shortest_vectorised <= extent and (calls_functions or extent < ROLLED_EXTENT):
            done = self.module.node('!"llvm.loop.isvectorized", i32 1')
            properties.append(self.module.node(f'!"llvm.loop.vectorize.followup_all", !1, {done}'))
        nodes[number] = f"!{number} = distinct !{{{', '.join(properties)}}}"
        return f", !llvm.loop !{number}"
