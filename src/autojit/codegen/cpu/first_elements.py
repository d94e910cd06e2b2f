"""Buffers that a kernel reads from some place on begin there: slices at different places are read by one kernel.

An unrolled loop reads step ``t`` of its input in round ``t``. With ``t`` steps' elements in each address every round is
a kernel of its own (13 to 40 ms of processor time); as part of the buffer's address, which is an argument anyway, they
cost nothing at all.
"""

from __future__ import annotations

from autojit.codegen.cpu.rewriting import Rewriting
from autojit.core.config import config
from autojit.ir.index import Index
from autojit.schedule.expressions import Expr, Load
from autojit.schedule.loops import Form, LoopProgram


def from_first_elements(program: LoopProgram) -> tuple[LoopProgram, tuple[int, ...]]:
    """The program on buffers that begin at the first element that is read, and how many elements are before it in each.

    Checked kernels compare positions with the size of the whole buffer, and keep it. Time O(expressions), once a form.
    """
    if config.check:
        return program, (0,) * len(program.loads)
    known = program.form.rewritten
    overwritten = frozenset(program.in_place.values())
    found = known.get(overwritten)
    if found is None:
        found = known[overwritten] = _worked_out(program, overwritten)
    rewriting, firsts = found
    return (program if rewriting is None else rewriting.program(program)), firsts


def _worked_out(program: LoopProgram, overwritten: frozenset[int]) -> tuple[Rewriting | None, tuple[int, ...]]:
    """How programs of a form are rewritten (None: not at all), and the first elements read.

    What is overwritten in place begins where the result does.
    """
    least: dict[int, int] = {}
    for expr in program.exprs:
        if isinstance(expr, Load):
            offset = expr.positions[0].offset
            first = offset if type(offset) is int else 0  # of symbolic size else
            least[expr.buffer] = min(first, least.get(expr.buffer, first))
    firsts = tuple([0 if k in overwritten else max(0, least.get(k, 0)) for k in range(len(program.loads))])
    if not any(firsts):
        return None, firsts

    def moved(place: int, expr: Expr) -> Expr | None:
        if not isinstance(expr, Load) or not firsts[expr.buffer]:
            return None
        (position,) = expr.positions
        there = Index(position.terms, position.offset - firsts[expr.buffer])
        return Load(expr.serial, expr.dtype, (), (there,), expr.guards, expr.phase, buffer=expr.buffer)

    return Rewriting(program, moved, Form()), firsts
