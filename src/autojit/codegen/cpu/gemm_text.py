"""Writing one LLVM function as text: fresh names, counted loops, branches, vectors.

`FunctionText` appends lines in order and remembers the current basic block, which a loop's phi needs. Counters, extents
and byte strides are all ``i64``; addresses are a ``ptr`` plus a number of bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from autojit.core.dtypes import DType
from autojit.core.sizes import is_symbolic

NO_UNROLL = "!llvm.loop !0"
"""Attached to every back edge: the text is unrolled as far as it pays, and more would only cost compile time."""

MODULE_TAIL = """attributes #0 = { nounwind }
attributes #1 = { nounwind noinline }
!0 = distinct !{!0, !1, !2}
!1 = !{!"llvm.loop.unroll.disable"}
!2 = !{!"llvm.loop.vectorize.enable", i1 false}"""


@dataclass(frozen=True)
class Vector:
    """``<lanes x element>``, the contents of one vector register.

    Args:
        dtype: float32 or float64.
        lanes: how many elements.
    """

    dtype: DType
    lanes: int

    @property
    def element(self) -> str:
        return "double" if self.dtype.size_bytes == 8 else "float"

    @property
    def text(self) -> str:
        return f"<{self.lanes} x {self.element}>"

    @property
    def suffix(self) -> str:
        """How intrinsics spell the type."""
        return f"v{self.lanes}{self.dtype.short}"

    @property
    def mask(self) -> str:
        return f"<{self.lanes} x i1>"

    @property
    def size_bytes(self) -> int:
        return self.lanes * self.dtype.size_bytes


class SizeWords:
    """The symbolic sizes of a module, in the order of the words that hold them."""

    def __init__(self) -> None:
        self.words: dict[int, int] = {}

    def word(self, size: int) -> int:
        """The number of a size's word."""
        return self.words.setdefault(size, len(self.words))


class FunctionText:
    """One function, written top down.

    Args:
        head: everything between ``define`` and ``{``.
        sizes: where symbolic sizes have their words, whose address is ``%z``.
    """

    def __init__(self, head: str, sizes: SizeWords | None = None) -> None:
        self.lines = [f"define {head} {{", "entry:"]
        self.block = "entry"
        self._count = 0
        self._sizes = sizes
        self._read: dict[int, str] = {}  # symbolic sizes -> the names that hold them
        self._read_at = len(self.lines)

    def finish(self) -> str:
        """The whole text, ended by ``ret void``."""
        loads = []
        for size, name in self._read.items():
            assert self._sizes is not None
            loads.append(f"  {name}.at = getelementptr i64, ptr %z, i64 {self._sizes.word(size)}")
            loads.append(f"  {name} = load i64, ptr {name}.at, align 8")
        self.lines[self._read_at : self._read_at] = loads
        return "\n".join([*self.lines, "  ret void", "}"])

    def read_sizes(self, argument: int) -> None:
        """The words of symbolic sizes lie where an argument of ``%args`` points."""
        self.line(f"%z = load ptr, ptr {self.at('%args', 8 * argument)}, align 8")
        self._read_at = len(self.lines)

    def number(self, n: str | int) -> str | int:
        """A number as an operand; a symbolic size is read from its word where the function begins."""
        if not is_symbolic(n):
            return n
        assert isinstance(n, int)
        assert self._sizes is not None
        return self._read.setdefault(n, f"%z{self._sizes.word(n)}")

    # -- lines

    def line(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def value(self, text: str) -> str:
        """Append ``%fresh = text`` and return the fresh name."""
        name = self.fresh("v")
        self.line(f"{name} = {text}")
        return name

    def fresh(self, stem: str) -> str:
        self._count += 1
        return f"%{stem}{self._count}"

    def label(self, stem: str) -> str:
        self._count += 1
        return f"{stem}{self._count}"

    def start(self, label: str) -> None:
        """Begin the block ``label``; the one before must have ended with a branch."""
        self.lines.append(f"{label}:")
        self.block = label

    def jump(self, label: str) -> None:
        self.line(f"br label %{label}")

    # -- whole numbers and addresses

    def add(self, a: str | int, b: str | int) -> str:
        return self.value(f"add nsw i64 {self.number(a)}, {self.number(b)}")

    def sub(self, a: str | int, b: str | int) -> str:
        return self.value(f"sub nsw i64 {self.number(a)}, {self.number(b)}")

    def mul(self, a: str | int, b: str | int) -> str:
        return self.value(f"mul nsw i64 {self.number(a)}, {self.number(b)}")

    def least(self, a: str | int, b: str | int) -> str:
        return self.value(f"call i64 @llvm.smin.i64(i64 {self.number(a)}, i64 {self.number(b)})")

    def most(self, a: str | int, b: str | int) -> str:
        return self.value(f"call i64 @llvm.smax.i64(i64 {self.number(a)}, i64 {self.number(b)})")

    def round_up(self, a: str, step: int) -> str:
        """The next multiple of a power of two."""
        return self.value(f"and i64 {self.add(a, step - 1)}, {-step}")

    def test(self, relation: str, a: str | int, b: str | int) -> str:
        """``icmp`` of two i64: ``slt``, ``eq``, ``ne``..."""
        return self.value(f"icmp {relation} i64 {self.number(a)}, {self.number(b)}")

    def both(self, a: str, b: str) -> str:
        return self.value(f"and i1 {a}, {b}")

    def either(self, a: str, b: str) -> str:
        return self.value(f"or i1 {a}, {b}")

    def choose(self, condition: str, a: str | int, b: str | int, kind: str = "i64") -> str:
        return self.value(f"select i1 {condition}, {kind} {a}, {kind} {b}")

    def at(self, base: str, offset_bytes: str | int) -> str:
        return self.value(f"getelementptr i8, ptr {base}, i64 {self.number(offset_bytes)}")

    def sizes(self, argument: int, sizes: Sequence[int]) -> list[str | int]:
        """Sizes as operands; the values of the symbolic ones lie, in order, where an argument of ``%args`` points."""
        if not any(map(is_symbolic, sizes)):
            return [*sizes]
        found: list[str | int] = []
        count = 0
        base = self.value(f"load ptr, ptr {self.at('%args', 8 * argument)}, align 8")
        for size in sizes:
            if is_symbolic(size):
                found.append(self.value(f"load i64, ptr {self.at(base, 8 * count)}, align 8"))
                count += 1
            else:
                found.append(size)
        return found

    # -- control

    @contextmanager
    def loop(self, start: str | int, stop: str | int, step: str | int) -> Iterator[str]:
        """``for i in range(start, stop, step)`` with a positive step; yields ``i``."""
        head, body, done = self.label("head"), self.label("body"), self.label("done")
        counter, following, before = self.fresh("i"), self.fresh("i"), self.block
        self.jump(head)
        self.start(head)
        phi_position = len(self.lines)
        self.lines.append("")
        self.line(f"br i1 {self.test('slt', counter, stop)}, label %{body}, label %{done}")
        self.start(body)
        yield counter
        self.line(f"{following} = add nsw i64 {counter}, {self.number(step)}")
        self.line(f"br label %{head}, {NO_UNROLL}")
        first = self.number(start)
        self.lines[phi_position] = f"  {counter} = phi i64 [ {first}, %{before} ], [ {following}, %{self.block} ]"
        self.start(done)

    def repeat(self, kinds: Sequence[str], first: Sequence[str], turn: Callable[[list[str]], list[str]]) -> list[str]:
        """``do state = turn(state) while state[0] > 0``: the state lives in registers; returns the last one."""
        body, done = self.label("body"), self.label("done")
        names, before = [self.fresh("s") for _ in kinds], self.block
        self.jump(body)
        self.start(body)
        phi_position = len(self.lines)
        later = turn(names)
        self.line(f"br i1 {self.test('sgt', later[0], 0)}, label %{body}, label %{done}, {NO_UNROLL}")
        self._insert_phis(phi_position, zip(names, kinds, first, later, strict=True), (before, self.block))
        self.start(done)
        return later

    def repeat_while(
        self, at_least: int, kinds: Sequence[str], first: Sequence[str], turn: Callable[[list[str]], list[str]]
    ) -> list[str]:
        """``while state[0] >= at_least: state = turn(state)``; returns the state after the loop."""
        head, body, done = self.label("head"), self.label("body"), self.label("done")
        names, before = [self.fresh("s") for _ in kinds], self.block
        self.jump(head)
        self.start(head)
        phi_position = len(self.lines)
        self.line(f"br i1 {self.test('sge', names[0], at_least)}, label %{body}, label %{done}")
        self.start(body)
        later = turn(names)
        self.line(f"br label %{head}, {NO_UNROLL}")
        self._insert_phis(phi_position, zip(names, kinds, first, later, strict=True), (before, self.block))
        self.start(done)
        return names

    def _insert_phis(self, position: int, rows: Iterable[tuple[str, str, str, str]], blocks: tuple[str, str]) -> None:
        before, end = blocks
        self.lines[position:position] = [
            f"  {name} = phi {kind} [ {first}, %{before} ], [ {later}, %{end} ]" for name, kind, first, later in rows
        ]

    @contextmanager
    def when(self, condition: str) -> Iterator[None]:
        """Run the body only if the i1 holds."""
        body, done = self.label("then"), self.label("done")
        self.line(f"br i1 {condition}, label %{body}, label %{done}")
        self.start(body)
        yield
        self.jump(done)
        self.start(done)

    def return_when(self, condition: str) -> None:
        body, on = self.label("return"), self.label("on")
        self.line(f"br i1 {condition}, label %{body}, label %{on}")
        self.start(body)
        self.line("ret void")
        self.start(on)

    # -- vectors

    def mask_below(self, vector: Vector, count: str, first: int = 0) -> str:
        """Mask of the lanes ``first + lane < count`` (an i64)."""
        lane = "i32" if vector.dtype.size_bytes == 4 else "i64"
        narrow = self.value(f"trunc i64 {count} to i32") if lane == "i32" else count
        kind = f"<{vector.lanes} x {lane}>"
        limit = self.splat(narrow, lane, vector.lanes)
        numbers = ", ".join(f"{lane} {first + i}" for i in range(vector.lanes))
        return self.value(f"icmp slt {kind} <{numbers}>, {limit}")

    def splat(self, scalar: str, element: str, lanes: int) -> str:
        """All lanes equal to one scalar."""
        kind = f"<{lanes} x {element}>"
        single = self.value(f"insertelement {kind} poison, {element} {scalar}, i64 0")
        return self.value(f"shufflevector {kind} {single}, {kind} poison, <{lanes} x i32> zeroinitializer")

    def load(self, vector: Vector, address: str) -> str:
        return self.value(f"load {vector.text}, ptr {address}, align {vector.dtype.size_bytes}")

    def store(self, vector: Vector, value: str, address: str) -> None:
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


def vector_declarations(vector: Vector) -> list[str]:
    """The intrinsics that `FunctionText` and the kernels call on one vector type."""
    v, s = vector.text, vector.suffix
    return [
        f"declare {v} @llvm.fma.{s}({v}, {v}, {v})",
        f"declare {v} @llvm.masked.load.{s}.p0(ptr, {vector.mask}, {v})",
        f"declare void @llvm.masked.store.{s}.p0({v}, ptr, {vector.mask})",
    ]


SCALAR_DECLARATIONS = [
    "declare i64 @llvm.smin.i64(i64, i64)",
    "declare i64 @llvm.smax.i64(i64, i64)",
    "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)",
    "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)",
]
