"""Functions with explicit vectors: products and convolutions, which choose what the registers hold.

Counters, extents and byte strides are ``i64``; addresses are a ``ptr`` plus a number of bytes. The text is unrolled and
vectorised as far as it pays, so LLVM is told to leave the loops as they are: more would only cost compile time.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import ClassVar

from autojit.codegen.cpu.kernel_text import ALIGNED_SPILLS, CpuKernel, KernelModule
from autojit.codegen.function_text import FunctionText, Operand, State
from autojit.core.dtypes import DType
from autojit.core.records import record

INTERNAL = "nounwind noinline"
"""Attributes of a function that others of its module call often: inlined, each call would be compiled again."""

SPILLING = f"{INTERNAL} {ALIGNED_SPILLS}"
"""Attributes of one that needs more vectors than there are registers: transforms of whole tiles."""


@record
class Vector:
    """``<lanes x element>``, the contents of one vector register.

    Args:
        dtype: float32 or float64; bfloat16 as its bits.
        lanes: how many elements.
    """

    dtype: DType
    lanes: int

    @property
    def element(self) -> str:
        return {8: "double", 4: "float", 2: "i16"}[self.dtype.size_bytes]

    @cached_property
    def text(self) -> str:
        return f"<{self.lanes} x {self.element}>"

    @property
    def suffix(self) -> str:
        """How intrinsics spell the type."""
        return f"v{self.lanes}{'i16' if self.dtype.size_bytes == 2 else self.dtype.short}"

    @property
    def mask(self) -> str:
        return f"<{self.lanes} x i1>"

    @property
    def size_bytes(self) -> int:
        return self.lanes * self.dtype.size_bytes


class VectorModule(KernelModule):
    """A module of such functions; ``head``: its first line, if any (`WRITTEN_OUT`, `WALKED`)."""

    def __init__(self, head: str = "") -> None:
        super().__init__()
        self.head = head
        self.nodes += [
            "!2 = distinct !{!2, !3, !4}",
            '!3 = !{!"llvm.loop.unroll.disable"}',
            '!4 = !{!"llvm.loop.vectorize.enable", i1 false}',
        ]

    def text(self) -> str:
        """The module, functions first."""
        return f"{self.head}\n{super().text()}" if self.head else super().text()


class Vectors(FunctionText):
    """What functions with vectors write."""

    def mask_below(self, vector: Vector, count: str, first: int = 0) -> str:
        """Mask of the lanes ``first + lane < count`` (an i64)."""
        lane = "i64" if vector.dtype.size_bytes == 8 else "i32"
        narrow = self.convert("trunc", count, "i64", "i32") if lane == "i32" else count
        kind = f"<{vector.lanes} x {lane}>"
        limit = self.splat(narrow, lane, vector.lanes)
        numbers = ", ".join(f"{lane} {first + i}" for i in range(vector.lanes))
        return self.value(f"icmp slt {kind} <{numbers}>, {limit}")

    def splat(self, scalar: str, element: str, lanes: int) -> str:
        """All lanes equal to one scalar."""
        kind = f"<{lanes} x {element}>"
        single = self.value(f"insertelement {kind} poison, {element} {scalar}, i64 0")
        return self.value(f"shufflevector {kind} {single}, {kind} poison, <{lanes} x i32> zeroinitializer")

    def load_vector(self, vector: Vector, address: str) -> str:
        return self.value(f"load {vector.text}, ptr {address}, align {vector.dtype.size_bytes}")

    def store_vector(self, vector: Vector, value: str, address: str) -> None:
        self.line(f"store {vector.text} {value}, ptr {address}, align {vector.dtype.size_bytes}")

    def masked_load(self, vector: Vector, address: str, mask: str, otherwise: str = "zeroinitializer") -> str:
        return self.value(
            f"call {vector.text} @llvm.masked.load.{vector.suffix}.p0(ptr align {vector.dtype.size_bytes} {address}, "
            f"{vector.mask} {mask}, {vector.text} {otherwise})"
        )

    def masked_store(self, vector: Vector, value: str, address: str, mask: str) -> None:
        self.line(
            f"call void @llvm.masked.store.{vector.suffix}.p0({vector.text} {value}, "
            f"ptr align {vector.dtype.size_bytes} {address}, {vector.mask} {mask})"
        )

    def shuffle(self, vector: Vector, a: str, b: str, lanes: Sequence[int]) -> str:
        picked = ", ".join(f"i32 {lane}" for lane in lanes)
        return self.value(f"shufflevector {vector.text} {a}, {vector.text} {b}, <{len(lanes)} x i32> <{picked}>")

    def multiply_add(self, vector: Vector, a: str, b: str, total: str, *, fused: bool) -> str:
        """``a * b + total``, in one rounding where the machine has the instruction."""
        v = vector.text
        if fused:
            return self.value(f"call {v} @llvm.fma.{vector.suffix}({v} {a}, {v} {b}, {v} {total})")
        return self.value(f"fadd {v} {total}, {self.value(f'fmul {v} {a}, {b}')}")

    def add_dots(self, vector: Vector, a: str, b: str, total: str) -> str:
        """``total`` of float32 plus, lane by lane, the dot product of the two bfloat16 that ``a`` and ``b`` hold there.

        AVX512_BF16: sums are float32 rounded to nearest whatever the mode, denormals count as zero, in operands too.
        """
        v, halves = vector.text, f"<{2 * vector.lanes} x bfloat>"
        pairs = [self.convert("bitcast", x, v, halves) for x in (a, b)]
        operands = f"{v} {total}, {halves} {pairs[0]}, {halves} {pairs[1]}"
        return self.value(f"call {v} @llvm.x86.avx512bf16.dpbf16ps.{8 * vector.size_bytes}({operands})")


class VectorText(Vectors):
    """A function with vectors.

    What is known when it is written is not left to LLVM: numbers are worked out, and a loop of one turn is its body.
    """

    wrapping: ClassVar[str] = " nsw"
    back_edge: ClassVar[str] = ", !llvm.loop !2"

    def binary(self, operation: str, a: Operand, b: Operand, kind: str = "") -> str:
        """See `FunctionText.binary`; of literal numbers of the index type, the result."""
        compute = _KNOWN.get(operation) if kind in ("", self.index_type) else None
        right = literal(b) if compute is not None else None
        if compute is None or right is None:
            return super().binary(operation, a, b, kind)
        left = literal(a)
        if left is not None and (right > 0 or operation not in _OF_POSITIVES):
            return str(compute(left, right))
        if right == _NEUTRAL[operation]:
            return self.number(a)
        if right == _ANNIHILATES.get(operation):
            return "0"
        return super().binary(operation, a, b, kind)

    def least(self, a: Operand, b: Operand, kind: str = "") -> str:
        """The smaller of two signed numbers."""
        low, high = literal(a), literal(b)
        return super().least(a, b, kind) if low is None or high is None else str(min(low, high))

    def at(self, base: str, offset_bytes: Operand) -> str:
        """The address this many bytes behind another."""
        return base if literal(offset_bytes) == 0 else super().at(base, offset_bytes)

    @contextmanager
    def loop(
        self,
        start: Operand,
        stop: Operand,
        step: Operand = 1,
        *,
        stem: str = "loop",
        attachment: Callable[[int], str] | None = None,
    ) -> Iterator[str]:
        """See `FunctionText.loop`."""
        first, last, stride = literal(start), literal(stop), literal(step)
        if first is not None and last is not None and stride is not None and first < last <= first + stride:
            yield str(first)
            return
        with super().loop(start, stop, step, stem=stem, attachment=attachment) as counter:
            yield counter

    def while_left(
        self, at_least: int, kinds: Sequence[str], first: Sequence[Operand], turn: Callable[[State], State]
    ) -> State:
        """``while state[0] >= at_least: state = turn(state)``."""
        return self.repeat_while(kinds, first, lambda state: self.test("sge", state[0], at_least), turn)


class VectorKernel(VectorText, CpuKernel):
    """A kernel's first function, with vectors."""


_KNOWN: dict[str, Callable[[int, int], int]] = {
    "add nsw": operator.add,
    "sub nsw": operator.sub,
    "mul nsw": operator.mul,
    "udiv": operator.floordiv,
    "urem": operator.mod,
}
_NEUTRAL = {"add nsw": 0, "sub nsw": 0, "mul nsw": 1, "udiv": 1, "urem": None}
_ANNIHILATES = {"mul nsw": 0, "urem": 1}
_OF_POSITIVES = ("udiv", "urem")


def literal(n: Operand) -> int | None:
    """The number that an operand is, unless it is only known when the function runs."""
    if type(n) is int:
        return n
    return int(n) if isinstance(n, str) and n.lstrip("-").isdecimal() else None
