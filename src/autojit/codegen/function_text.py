"""Writing functions as LLVM text, for every target: fresh names, blocks, loops, branches, memory, calls.

`FunctionText` writes one function of a `ModuleText` from top to bottom. Values are strings, the names of LLVM; a number
may be a Python int, or a symbolic size, which is read where the function begins. A type (``kind``) is LLVM's word for
it and is left out where it is the index type::

    with f.when(f.test("slt", low, high)):
        f.call(COPY, to, f.at(source, f.mul(low, 8)), f.sub(high, low))
    with f.otherwise():
        f.store("i64", 0, to)

A block ends with a jump or a return; the methods below write both, and know (`FunctionText.is_ended`) when a body has
ended its block itself. Loops and branches are context managers, so the writer is indented as what it writes.

An address of another space than the generic one has it in front of its name, ``addrspace(1) %p0``, and so have the
addresses made from it. What else depends on the target is overridden: the type of indices, what loops say to LLVM, the
head, and where the values of symbolic sizes are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import ClassVar, Self

from autojit.codegen.module_text import ModuleText, Signature

Operand = str | int
"""A name, a literal, or a size."""

State = list[str]
"""The values that one turn of a loop hands to the next."""

SIZE_BYTES = {"i8": 1, "i16": 2, "i32": 4, "i64": 8, "float": 4, "double": 8, "ptr": 8}
"""Atomic accesses name their alignment, which is the size of what they access."""


class FunctionText:
    """One function, written top down; `finish` adds it to the module.

    Args:
        module: where it belongs.
        signature: its name, parameters and type.
        linkage: ``internal`` for what only its module calls.
        attributes: of the function.
    """

    index_type: ClassVar[str] = "i64"
    wrapping: ClassVar[str] = ""  # flags of whole-number arithmetic, after a space
    back_edge: ClassVar[str] = ""  # follows the jump to the next turn of a loop

    def __init__(
        self, module: ModuleText, signature: Signature, *, linkage: str = "", attributes: str = "nounwind"
    ) -> None:
        self.module = module
        self.signature = signature
        self.linkage = linkage
        self.attributes = attributes
        self.entry: list[str] = []  # local arrays, sizes: what comes before the lines
        self.lines: list[str] = []
        self.block = "entry"
        self.is_ended = False
        self.count = 0
        self.sizes_read: dict[int, str] = {}  # symbolic size -> the name that holds its value
        self._ends: list[str] = []  # of the branch before: the blocks that lead to here
        self._branch: tuple[int, int, str] = (0, 0, "")  # of the `when` before: see `otherwise`

    @classmethod
    def define(cls, module: ModuleText, signature: Signature, write: Callable[[Self], object], **how: str) -> None:
        """Add a function to a module: ``write`` writes what it does, ``how`` says its linkage and attributes."""
        f = cls(module, signature, **how)
        write(f)
        f.finish()

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the parameters."""
        return self.signature.names

    def head(self) -> str:
        """Everything between ``define`` and ``{``."""
        parts = [self.linkage, self.signature.returns, f"@{self.signature.symbol}({self.signature.listed})"]
        return " ".join(filter(None, [*parts, self.attributes]))

    def finish(self) -> None:
        """End the function and add it to its module."""
        if not self.is_ended:
            assert self.signature.returns == "void", "the value is missing"
            self.ret()
        self.entry += self.reading_of_sizes() if self.sizes_read else []
        lines = [f"define {self.head()} {{", "entry:", *self.entry, *self.lines, "}"]
        self.module.functions[self.signature.symbol] = "\n".join(lines)

    # -- lines and blocks

    def line(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def value(self, text: str) -> str:
        """Append ``%fresh = text`` and return the fresh name."""
        self.count += 1
        name = f"%t{self.count}"
        self.lines.append(f"  {name} = {text}")
        return name

    def fresh(self) -> str:
        self.count += 1
        return f"%t{self.count}"

    def label(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def start(self, label: str) -> None:
        """Begin a block; the one before is ended, or goes on here by a jump of its own."""
        self.lines.append(f"{label}:")
        self.block = label
        self.is_ended = False

    def jump(self, label: str) -> None:
        self._end(f"br label %{label}")

    def branch(self, condition: str, yes: str, no: str, attachment: str = "") -> None:
        self._end(f"br i1 {condition}, label %{yes}, label %{no}{attachment}")

    def ret(self, value: Operand | None = None) -> None:
        """Return, a value of the function's type if it has one."""
        self._end("ret void" if value is None else f"ret {self.signature.returns} {self.number(value)}")

    def _end(self, text: str) -> None:
        self.lines.append(f"  {text}")
        self.is_ended = True

    def phi(self, kind: str, *cases: tuple[Operand, str]) -> str:
        """The value that belongs to the block from which this one was reached: (value, block)."""
        return self.value(phi_text(kind, cases))

    # -- sizes

    def number(self, n: Operand) -> str:
        """An operand as LLVM writes it; a symbolic size is read from its word where the function begins."""
        if isinstance(n, str):
            return n
        if type(n) is int:
            return str(n)
        name = self.sizes_read.get(n)
        if name is None:
            word = self.module.sizes.setdefault(n, len(self.module.sizes))
            name = self.sizes_read[n] = f"%z{word}"
        return name

    def reading_of_sizes(self) -> list[str]:
        """The lines that read the symbolic sizes of which the function has asked."""
        lines = self.address_of_sizes()
        for size, name in self.sizes_read.items():
            place = f"  {name}.at = getelementptr i64, ptr %z, i64 {self.module.sizes[size]}"
            lines += [place, f"  {name} = load i64, ptr {name}.at, align 8"]
        return lines

    def address_of_sizes(self) -> list[str]:
        """The lines that make ``%z`` the address of the sizes' words; none where it is a parameter."""
        return []

    # -- numbers

    def binary(self, operation: str, a: Operand, b: Operand, kind: str = "") -> str:
        """Any instruction of two operands of one type: ``and``, ``or``, ``xor``, ``shl``, ``lshr``..."""
        left = a if type(a) is str else self.number(a)  # asked here, because most operands are names
        right = b if type(b) is str else self.number(b)
        return self.value(f"{operation} {kind or self.index_type} {left}, {right}")

    def add(self, a: Operand, b: Operand, kind: str = "") -> str:
        return self.binary("add" + self.wrapping, a, b, kind)

    def sub(self, a: Operand, b: Operand, kind: str = "") -> str:
        return self.binary("sub" + self.wrapping, a, b, kind)

    def mul(self, a: Operand, b: Operand, kind: str = "") -> str:
        return self.binary("mul" + self.wrapping, a, b, kind)

    def quotient(self, a: Operand, b: Operand, kind: str = "") -> str:
        """``a / b`` of numbers that are not negative."""
        return self.binary("udiv", a, b, kind)

    def remainder(self, a: Operand, b: Operand, kind: str = "") -> str:
        """``a % b`` of numbers that are not negative."""
        return self.binary("urem", a, b, kind)

    def least(self, a: Operand, b: Operand, kind: str = "") -> str:
        """The smaller of two signed numbers."""
        return self._intrinsic("smin", a, b, kind)

    def most(self, a: Operand, b: Operand, kind: str = "") -> str:
        """The greater of two signed numbers."""
        return self._intrinsic("smax", a, b, kind)

    def _intrinsic(self, name: str, a: Operand, b: Operand, kind: str) -> str:
        kind = kind or self.index_type
        return self.value(f"call {kind} @llvm.{name}.{kind}({kind} {self.number(a)}, {kind} {self.number(b)})")

    def round_up(self, a: Operand, step: int) -> str:
        """The next multiple of a power of two."""
        return self.binary("and", self.add(a, step - 1), -step)

    def test(self, relation: str, a: Operand, b: Operand, kind: str = "") -> str:
        """``icmp``: ``eq``, ``ne``, signed ``slt``..., unsigned ``ult``..."""
        return self.binary(f"icmp {relation}", a, b, kind)

    def both(self, a: str, b: str) -> str:
        return self.binary("and", a, b, "i1")

    def either(self, a: str, b: str) -> str:
        return self.binary("or", a, b, "i1")

    def negate(self, condition: str) -> str:
        return self.binary("xor", condition, "true", "i1")

    def choose(self, condition: str, a: Operand, b: Operand, kind: str = "") -> str:
        """``a`` if the condition holds, else ``b``; both are there."""
        kind, first = kind or self.index_type, self.number(a)
        return _beside(first, self.value(f"select i1 {condition}, {kind} {first}, {kind} {self.number(b)}"))

    def convert(self, how: str, value: Operand, kind: str, to: str = "") -> str:
        """``zext``, ``sext``, ``trunc``, ``inttoptr``, ``ptrtoint``... from one type to another."""
        return self.value(f"{how} {kind} {self.number(value)} to {to or self.index_type}")

    # -- memory

    def at(self, base: str, offset_bytes: Operand) -> str:
        """The address this many bytes behind another."""
        return self.element(base, "i8", offset_bytes)

    def element(self, base: str, kind: str, position: Operand) -> str:
        """The address of an element of an array."""
        at = position if type(position) is str else self.number(position)
        name = self.value(f"getelementptr {kind}, ptr {base}, {self.index_type} {at}")
        return name if base[0] == "%" else _beside(base, name)

    def load(self, kind: str, address: str, order: str = "", *, attributes: str = "") -> str:
        """What an address holds; ``order`` makes it atomic (``monotonic``, ``acquire``, ``seq_cst``)."""
        if order:
            return self.value(f"load atomic {kind}, ptr {address} {order}, align {SIZE_BYTES[kind]}")
        return self.value(f"load {kind}, ptr {address}{attributes}")

    def store(self, kind: str, value: Operand, address: str, order: str = "", *, attributes: str = "") -> None:
        """Write a value to an address; ``order`` as in `load`."""
        what, where = f"{kind} {self.number(value)}", f"ptr {address}"
        if order:
            self.line(f"store atomic {what}, {where} {order}, align {SIZE_BYTES[kind]}")
        else:
            self.line(f"store {what}, {where}{attributes}")

    def update(self, operation: str, address: str, value: Operand, order: str, kind: str = "") -> str:
        """Change memory in one atomic action (``add``, ``sub``, ``xchg``...); what it held before."""
        what = f"{kind or self.index_type} {self.number(value)}"
        return self.value(f"atomicrmw {operation} ptr {address}, {what} {order}")

    def exchange(self, address: str, expected: Operand, new: Operand, orders: str, kind: str = "") -> tuple[str, str]:
        """Put ``new`` where ``expected`` is, in one atomic action: what was there, and whether it was done.

        ``orders``: when it succeeds and when it fails, ``"acq_rel acquire"``.
        """
        kind = kind or self.index_type
        values = f"{kind} {self.number(expected)}, {kind} {self.number(new)}"
        pair = self.value(f"cmpxchg ptr {address}, {values} {orders}")
        found, is_done = (self.value(f"extractvalue {{ {kind}, i1 }} {pair}, {k}") for k in range(2))
        return found, is_done

    def local(self, what: str, align: int = 64) -> str:
        """Memory of the function's own: a variable or a small array; LLVM turns variables into registers."""
        name = self.fresh()
        self.entry.append(f"  {name} = alloca {what}, align {align}")
        return name

    def copy_bytes(self, target: str, source: str, size_bytes: Operand) -> None:
        """Copy between places that do not overlap."""
        n = f"{self.index_type} {self.number(size_bytes)}"
        self.line(f"call void @llvm.memcpy.p0.p0.{self.index_type}(ptr {target}, ptr {source}, {n}, i1 false)")

    def fill_bytes(self, target: str, byte: int, size_bytes: Operand) -> None:
        """Write one byte everywhere."""
        n = f"{self.index_type} {self.number(size_bytes)}"
        self.line(f"call void @llvm.memset.p0.{self.index_type}(ptr {target}, i8 {byte}, {n}, i1 false)")

    # -- calls

    def call(self, callee: Signature, *arguments: Operand, by: str = "") -> str:
        """Call a function, ``by`` a pointer to it or by its symbol, which the module then declares; its value.

        The address of the sizes' words is passed on to one that takes it.
        """
        if not by:
            self.module.declarations.setdefault(callee.symbol, callee.declaration)
        taken = (*arguments, "%z") if callee.takes_sizes else arguments
        given = ", ".join(f"{kind} {self.number(x)}" for kind, x in zip(callee.kinds, taken, strict=True))
        text = f"call {callee.returns} {by or f'@{callee.symbol}'}({given})"
        if callee.returns != "void":
            return self.value(text)
        self.line(text)
        return ""

    # -- branches

    @contextmanager
    def when(self, condition: str) -> Iterator[None]:
        """What is written inside runs only if the condition holds; `otherwise` may follow."""
        then, join = self.label("then"), self.label("join")
        position, before = len(self.lines), self.block
        self.branch(condition, then, join)
        self.start(then)
        yield
        self._ends = [*self._leave(join), before]
        self.start(join)
        self._branch = (position, len(self.lines), join)

    @contextmanager
    def otherwise(self) -> Iterator[None]:
        """After `when`: what runs if the condition does not hold."""
        position, length, join = self._branch
        assert length == len(self.lines), "otherwise follows when"
        ends = self._ends[:-1]
        label = self.label("else")
        self.lines[position] = self.lines[position].replace(f", label %{join}", f", label %{label}")
        self.lines.pop()
        self.start(label)
        yield
        self._ends = [*ends, *self._leave(join)]
        if self._ends:
            self.start(join)

    def merge(self, kind: str, *values: Operand) -> str:
        """After branches: the value of the one that ran, in their order (a `when` alone: inside, before)."""
        return self.phi(kind, *zip(values, self._ends, strict=True))

    @contextmanager
    def switch(self, number: str) -> Iterator[Callable[[int], AbstractContextManager[None]]]:
        """``with f.switch(n) as case: with case(0): ...``; other numbers do nothing."""
        kind, done, position, ends = self.index_type, self.label("done"), len(self.lines), [self.block]
        labels: dict[int, str] = {}
        self.lines.append("")

        @contextmanager
        def case(of: int) -> Iterator[None]:
            labels[of] = self.label("case")
            self.start(labels[of])
            yield
            ends[-1:-1] = self._leave(done)

        yield case
        cases = " ".join(f"{kind} {of}, label %{label}" for of, label in labels.items())
        self.lines[position] = f"  switch {kind} {number}, label %{done} [ {cases} ]"
        self._ends = ends
        self.start(done)

    def _leave(self, label: str) -> list[str]:
        """Go on at a label unless the block has ended; the blocks that do."""
        if self.is_ended:
            return []
        self.jump(label)
        return [self.block]

    def return_when(self, condition: str, value: Operand | None = None) -> None:
        leave, on = self.label("return"), self.label("on")
        self.branch(condition, leave, on)
        self.start(leave)
        self.ret(value)
        self.start(on)

    # -- loops

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
        """``for i in range(start, stop, step)`` with a positive step, from 0 on; yields ``i``.

        ``attachment`` gives what follows the jump to the next turn, told the number of the loop's first line.
        """
        attachment = attachment or self.after_turn
        kind, first, last = self.index_type, self.number(start), self.number(stop)
        head, body, done = self.label(stem + ".head"), self.label(stem + ".body"), self.label(stem + ".done")
        counter, following, before = self.fresh(), self.fresh(), self.block
        self.jump(head)
        self.start(head)
        position = len(self.lines)
        self.branch(self.test("slt", counter, last, kind), body, done)
        self.start(body)
        yield counter
        cases = [(first, before)]
        if not self.is_ended:
            self.line(f"{following} = add nuw nsw {kind} {counter}, {self.number(step)}")
            cases.append((following, self.block))
            self._end(f"br label %{head}{attachment(position)}")
        self.lines.insert(position, f"  {counter} = {phi_text(kind, cases)}")
        self.start(done)

    def after_turn(self, first_line: int) -> str:
        """What follows the jump to the next turn of a loop that says nothing else, from its first line on."""
        return self.back_edge

    def repeat(self, kinds: Sequence[str], first: Sequence[Operand], turn: Callable[[State], State]) -> State:
        """``do state = turn(state) while state[0] > 0``: the state is in registers; returns the last one."""
        body, done = self.label("body"), self.label("done")
        names, before, state = [self.fresh() for _ in kinds], self.block, list(map(self.number, first))
        self.jump(body)
        self.start(body)
        position = len(self.lines)
        later = turn(names)
        self.branch(self.test("sgt", later[0], 0, kinds[0]), body, done, self.back_edge)
        self._insert_phis(position, zip(names, kinds, state, later, strict=True), (before, self.block))
        self.start(done)
        return later

    def repeat_while(
        self,
        kinds: Sequence[str],
        first: Sequence[Operand],
        goes_on: Callable[[State], str],
        turn: Callable[[State], State],
    ) -> State:
        """``while goes_on(state): state = turn(state)``; returns the state after the loop."""
        head, body, done = self.label("head"), self.label("body"), self.label("done")
        names, before, state = [self.fresh() for _ in kinds], self.block, list(map(self.number, first))
        self.jump(head)
        self.start(head)
        position = len(self.lines)
        self.branch(goes_on(names), body, done)
        self.start(body)
        later = turn(names)
        self._end(f"br label %{head}{self.back_edge}")
        self._insert_phis(position, zip(names, kinds, state, later, strict=True), (before, self.block))
        self.start(done)
        return names

    def _insert_phis(self, position: int, rows: Iterable[tuple[str, str, str, str]], blocks: tuple[str, str]) -> None:
        before, after = blocks
        self.lines[position:position] = [
            f"  {name} = phi {kind} [ {first}, %{before} ], [ {later}, %{after} ]" for name, kind, first, later in rows
        ]


def _beside(address: str, name: str) -> str:
    """An address made from another: in the same space."""
    return f"{address.rpartition(' ')[0]} {name}" if address.startswith("addrspace") else name


def phi_text(kind: str, cases: Iterable[tuple[Operand, str]]) -> str:
    """The instruction that chooses a value by the block before: (value, block)."""
    return f"phi {kind} {', '.join([f'[ {value}, %{block} ]' for value, block in cases])}"
