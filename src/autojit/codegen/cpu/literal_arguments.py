"""Kernels of a step that differ in numbers alone are one kernel, which gets these numbers as an argument.

An unrolled loop with a factor of its own in each round would else be a kernel per round, 10 to 18 ms of processor time
each. What a number is changes no code where it is added, multiplied, compared or chosen; as an exponent it does.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any, NamedTuple

from autojit.codegen.rewriting import Rewriting
from autojit.core.dtypes import DType, float32, float64
from autojit.core.types import TensorType
from autojit.ir.graph import Value
from autojit.ir.index import Index
from autojit.ops.sources import Full
from autojit.schedule.expressions import Applied, Expr, FromSource, Load
from autojit.schedule.loops import Form, LoopProgram

LEAST = 4
"""Kernels that differ in numbers alone, from which on they are one: fewer may be faster with the numbers inside."""

ARITHMETIC = frozenset(("add", "sub", "mul", "div", "maximum", "minimum", "where", "lt", "le", "gt", "ge", "eq", "ne"))
"""Ops whose code is the same whatever number they read."""


class Lift(NamedTuple):
    """Which literals of the programs of one form are arguments: the places of their expressions."""

    places: tuple[int, ...]
    form: Form  # of all programs that become equal

    def program(self, given: LoopProgram) -> tuple[LoopProgram, list[tuple[int, ...]]]:
        """The program that reads its literals from further buffers, one for each dtype, and the words of these."""
        numbers: dict[DType, list[float]] = {given.exprs[place].dtype: [] for place in self.places}
        order = list(numbers)

        def lifted(place: int, expr: Expr) -> Expr | None:
            if place not in self.places:
                return None
            numbers[expr.dtype].append(expr.op.value)  # type: ignore[attr-defined]
            return _read(expr, len(given.loads) + order.index(expr.dtype), len(numbers[expr.dtype]) - 1)

        rewriting = Rewriting(given, lifted, self.form)
        buffers = [Value(TensorType((len(found),), dtype), "literals") for dtype, found in numbers.items()]
        return rewriting.program(given, buffers), [_words(found, dtype) for dtype, found in numbers.items()]


def _read(literal: Expr, buffer: int, place: int) -> Load:
    """What stands for a literal."""
    return Load(literal.serial, literal.dtype, (), (Index((), place),), (), literal.phase, buffer=buffer)


def _words(numbers: list[float], dtype: DType) -> tuple[int, ...]:
    """Numbers as they are in memory, in words of 64 bits."""
    code = "f" if dtype is float32 else "d"
    data = struct.pack(f"<{len(numbers)}{code}", *numbers)
    data += bytes(-len(data) % 8)
    return struct.unpack(f"<{len(data) // 8}q", data)


def lifts(programs: Iterable[LoopProgram]) -> dict[Form, Lift]:
    """By their forms, the programs that become equal to others by lifting literals. Time O(expressions)."""
    groups: dict[Any, list[tuple[LoopProgram, tuple[int, ...]]]] = {}
    for program in {program.form: program for program in programs}.values():
        places = _literals(program)
        if places:
            erased = list(program.structure())
            erased[1] = tuple([None if k in places else s for k, s in enumerate(erased[1])])
            groups.setdefault((tuple(erased), places), []).append((program, places))
    found: dict[Form, Lift] = {}
    for group in groups.values():
        numbers = [[repr(program.exprs[k].op.value) for k in places] for program, places in group]  # type: ignore[attr-defined]
        if len({tuple(row) for row in numbers}) < LEAST:
            continue
        differing = [len(set(column)) > 1 for column in zip(*numbers, strict=True)]
        lift = Lift(tuple([k for k, differs in zip(group[0][1], differing, strict=True) if differs]), Form())
        found |= {program.form: lift for program, _ in group}
    return found


def _literals(program: LoopProgram) -> tuple[int, ...]:
    """The places of literals that no code depends on."""
    roots = program.roots()
    found = {
        e: place
        for place, e in enumerate(program.exprs)
        if isinstance(e, FromSource) and _is_number(e) and e not in roots and not e.guards
    }
    if not found:
        return ()
    for expr in program.exprs:
        if not isinstance(expr, Applied) or expr.op.name not in ARITHMETIC:
            for arg in expr.args:
                found.pop(arg, None)  # type: ignore[call-overload]
    for expr in program.lookups.values():
        found.pop(expr, None)  # type: ignore[call-overload]
    return tuple(found.values())


def _is_number(expr: FromSource) -> bool:
    op = expr.op
    return type(op) is Full and expr.dtype in (float32, float64) and isinstance(op.value, int | float)
