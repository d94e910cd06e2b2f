"""The native code that works out the sizes of a call: part of the plan runner's module.

A *size program* (`SizeProgramWords`) belongs to a plan with symbolic sizes. Its table starts with the sizes a call
brings; instructions compute what depends on them, and each word of the plan that does is written again. Nothing happens
while the sizes stay those of the call before.

A size that the step counts itself has a program of its own, which runs as an entry of the plan after the kernel that
counts it. ``reserve`` is an instruction that asks for memory: where ``table[left]`` exceeds ``table[right]``, the
capacity, its target becomes the address of a new block. Whoever gives it is told the place of the capacity, and the
table.
"""

from __future__ import annotations

from collections.abc import Callable

from autojit.codegen.cpu.plan.records import OPERATIONS, Instruction, SizeProgramWords, WrittenWord
from autojit.codegen.module_text import Signature
from autojit.codegen.native_function import NativeFunction, body

SIZES = body("aj_sizes", "ptr program")
_GROW = Signature("", "i64 bytes, i64 capacity, ptr table", "i64")


def write_sizes(f: NativeFunction) -> None:
    """``aj_sizes``: run a size program."""
    program = f.parameters[0]
    count = f.get(program, SizeProgramWords.n_symbols)
    table = f.get(program, SizeProgramWords.table)
    with f.when(f.test("sge", count, 0)):
        _return_if_known(f, program, table, count)
    _run_instructions(f, program, table)
    _write_words(f, program, table)


def _return_if_known(f: NativeFunction, program: str, table: str, count: str) -> None:
    """Return if the symbols have the values of the call before; else these are the ones to compare with."""
    before = f.get(program, SizeProgramWords.before)
    changed = f.junction()
    with f.loop(0, count) as k:
        new, old = (f.load("i64", f.element(values, "i64", k)) for values in (table, before))
        f.go_when(f.test("ne", new, old), changed)
    f.ret()
    f.begin(changed)
    with f.loop(0, count) as k:
        f.store("i64", f.load("i64", f.element(table, "i64", k)), f.element(before, "i64", k))


def _run_instructions(f: NativeFunction, program: str, table: str) -> None:
    """Compute one place of the table after the other."""
    count = f.get(program, SizeProgramWords.n_instructions)
    instructions = f.get(program, SizeProgramWords.instructions)
    with f.loop(0, count) as k:
        instruction = f.item(Instruction, instructions, k)
        places = (f.get(instruction, place) for place in (Instruction.target, Instruction.left, Instruction.right))
        target, left, right = (f.element(table, "i64", place) for place in places)
        a, b = f.load("i64", left), f.load("i64", right)
        with f.switch(f.get(instruction, Instruction.operation)) as case:
            for name, compute in _ARITHMETIC.items():
                with case(OPERATIONS.index(name)):
                    f.store("i64", compute(f, a, b), target)
            with case(OPERATIONS.index("reserve")), f.when(f.test("sgt", a, b)):
                grow = f.get(program, SizeProgramWords.grow)
                place = f.get(instruction, Instruction.right)
                f.store("i64", f.call(_GROW, a, place, table, by=grow), target)


def _floor_division(f: NativeFunction, a: str, b: str) -> tuple[str, str]:
    """Quotient and remainder of the sign of the divisor; the divisor 0 counts as 1."""
    divisor = f.choose(f.is_zero(b), 1, b)
    quotient, rest = f.binary("sdiv", a, divisor), f.binary("srem", a, divisor)
    differ = f.test("slt", f.binary("xor", rest, divisor), 0)
    borrow = f.convert("zext", f.both(differ, f.is_set(rest)), "i1")
    return f.sub(quotient, borrow), f.add(rest, f.mul(borrow, divisor))


_ARITHMETIC: dict[str, Callable[[NativeFunction, str, str], str]] = {
    "add": NativeFunction.add,
    "multiply": NativeFunction.mul,
    "quotient": lambda f, a, b: _floor_division(f, a, b)[0],
    "remainder": lambda f, a, b: _floor_division(f, a, b)[1],
    "minimum": NativeFunction.least,
    "maximum": NativeFunction.most,
}


def _write_words(f: NativeFunction, program: str, table: str) -> None:
    """Write the words of the plan that depend on the sizes."""
    count = f.get(program, SizeProgramWords.n_written)
    written = f.get(program, SizeProgramWords.written)
    with f.loop(0, count) as k:
        word = f.item(WrittenWord, written, k)
        value = f.load("i64", f.element(table, "i64", f.get(word, WrittenWord.place)))
        f.store("i64", value, f.get(word, WrittenWord.address))
