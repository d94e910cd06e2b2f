"""Writing the runtime's own native code: functions that read and write records, and leave loops from the middle.

`NativeFunction` is a `FunctionText` with two things more. Fields of records are loaded and stored by name. A *junction*
is a block that several places lead to, each with values of its own; where a walk through checks ends early, they all go
to one::

    refused = f.junction("i64")
    with f.loop(0, count) as k:
        f.go_unless(check(k), refused, k)
    f.ret()
    (which,) = f.begin(refused)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autojit.codegen.function_text import SIZE_BYTES, FunctionText, Operand, phi_text
from autojit.codegen.module_text import ModuleText, Signature
from autojit.codegen.records import Field, Record


def body(symbol: str, context: str = "ptr context") -> Signature:
    """A function that entries of a plan run: what it works on, which of its chunks, on which thread."""
    return Signature(symbol, f"{context}, i64 chunk, i64 worker")


BODY = body("")
_ZERO = {"ptr": "null"}


class Junction:
    """A block that several places lead to.

    Args:
        label: its own.
        kinds: the types of the values that every place brings.
        names: the values as the block has them.
    """

    __slots__ = ("cases", "kinds", "label", "names")

    def __init__(self, label: str, kinds: Sequence[str], names: Sequence[str]) -> None:
        self.label = label
        self.kinds = kinds
        self.names = names
        self.cases: list[tuple[tuple[str, ...], str]] = []  # per place: what it brings, and its block

    def phis(self) -> list[str]:
        """The lines that choose the values."""
        columns = zip(*(values for values, _ in self.cases), strict=True)
        blocks = [block for _, block in self.cases]
        rows = zip(self.names, self.kinds, columns, strict=True)
        return [f"  {name} = {phi_text(kind, zip(values, blocks, strict=True))}" for name, kind, values in rows]


class NativeFunction(FunctionText):
    """See the module. These functions are compiled without LLVM's passes, so nothing else turns memory into registers.

    Args:
        attributes: none for what calls code that may unwind.
    """

    def __init__(
        self, module: ModuleText, signature: Signature, *, linkage: str = "", attributes: str = "nounwind"
    ) -> None:
        super().__init__(module, signature, linkage=linkage, attributes=attributes)
        self._begun: list[Junction] = []  # those that choose values

    def finish(self) -> None:
        """End the function and add it to its module; junctions know by now what leads to them."""
        for junction in self._begun:
            first = self.lines.index(f"{junction.label}:") + 1
            self.lines[first:first] = junction.phis()
        super().finish()

    # -- memory

    def load(self, kind: str, address: str, order: str = "", *, attributes: str = "") -> str:
        """See `FunctionText.load`; what is accessed is aligned to its size."""
        if order:
            return super().load(kind, address, order)
        return self.value(f"load {kind}, ptr {address}, align {SIZE_BYTES[kind]}{attributes}")

    def store(self, kind: str, value: Operand, address: str, order: str = "", *, attributes: str = "") -> None:
        """See `FunctionText.store`; what is accessed is aligned to its size."""
        super().store(kind, value, address, order, attributes=f", align {SIZE_BYTES[kind]}{attributes}")

    # -- records

    def get(self, record: str, word: Field[Any], order: str = "") -> str:
        """A word of a record; ``order`` as in `load`."""
        return self.load(word.kind, self.place_of(record, word), order)

    def put(self, record: str, word: Field[Any], value: Operand, order: str = "") -> None:
        """Write a word of a record; ``order`` as in `load`."""
        self.store(word.kind, value, self.place_of(record, word), order)

    def place_of(self, record: str, word: Field[Any]) -> str:
        """The address of a word of a record."""
        if not word.offset_bytes:
            return record
        return self.value(f"getelementptr i8, ptr {record}, i64 {word.offset_bytes}")

    def item(self, record: type[Record[Any]], first: str, position: Operand) -> str:
        """The address of one of several records in a row."""
        return self.value(f"getelementptr [{record.size_bytes} x i8], ptr {first}, i64 {self.number(position)}")

    def after(self, record: type[Record[Any]], address: str) -> str:
        """The address of what follows a record."""
        return self.at(address, record.size_bytes)

    # -- tests

    def is_zero(self, value: str, kind: str = "i64") -> str:
        return self.value(f"icmp eq {kind} {value}, {_ZERO.get(kind, 0)}")

    def is_set(self, value: str, kind: str = "i64") -> str:
        return self.value(f"icmp ne {kind} {value}, {_ZERO.get(kind, 0)}")

    def end_with(self, callee: Signature, *arguments: Operand) -> None:
        """Return what a function returns, which is called in place of this one."""
        value = self.call(callee, *arguments)
        self.lines[-1] = self.lines[-1].replace("= call", "= tail call")
        self.ret(value)

    def return_unless(self, condition: str, value: Operand | None = None) -> None:
        """Return unless the condition holds."""
        leave, on = self.label("return"), self.label("on")
        self.branch(condition, on, leave)
        self.start(leave)
        self.ret(value)
        self.start(on)

    def move_bytes(self, target: str, source: str, size_bytes: Operand) -> None:
        """Copy between places that may overlap."""
        self.line(
            f"call void @llvm.memmove.p0.p0.i64(ptr {target}, ptr {source}, i64 {self.number(size_bytes)}, i1 false)"
        )

    # -- junctions

    def junction(self, *kinds: str, stem: str = "junction") -> Junction:
        """A block to come, which places before it and after it lead to."""
        return Junction(self.label(stem), kinds, [self.fresh() for _ in kinds])

    def go(self, to: Junction, *values: Operand) -> None:
        """Go on at a junction with these values."""
        self._bring(to, values)
        self.jump(to.label)

    def go_when(self, condition: str, to: Junction, *values: Operand) -> None:
        """Go on at a junction with these values if the condition holds."""
        self._bring(to, values)
        on = self.label("on")
        self.branch(condition, to.label, on)
        self.start(on)

    def go_unless(self, condition: str, to: Junction, *values: Operand) -> None:
        """Go on at a junction with these values unless the condition holds."""
        self._bring(to, values)
        on = self.label("on")
        self.branch(condition, on, to.label)
        self.start(on)

    def begin(self, junction: Junction) -> Sequence[str]:
        """Write the junction's block from here on; its values."""
        self.start(junction.label)
        if junction.kinds:
            self._begun.append(junction)
        return junction.names

    def _bring(self, to: Junction, values: Sequence[Operand]) -> None:
        assert len(values) == len(to.kinds), "a junction takes as many values as it has types"
        to.cases.append((tuple(map(self.number, values)), self.block))
