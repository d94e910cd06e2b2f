"""Buffers that a kernel reads from some place on begin there: slices at different places are read by one kernel.

An unrolled loop reads step ``t`` of its input in round ``t``. With ``t`` steps' elements in each address every round is
a kernel of its own (13 to 40 ms of processor time); as part of the buffer's address, which is an argument anyway, they
cost nothing at all.
"""

from __future__ import annotations

from autojit.codegen.rewriting import Rewriting
from autojit.core.config import config
from autojit.core.sizes import surely_less
from autojit.ir.index import Index, LoopVariable
from autojit.schedule.expressions import Expr, Load
from autojit.schedule.loops import Form, LoopProgram


def from_first_elements(
    program: LoopProgram, *, step_bytes: int = 1, whole: frozenset[int] = frozenset(), reads_pieces: bool = False
) -> tuple[LoopProgram, tuple[int, ...]]:
    """The program on buffers that begin at the first element that is read, and how many elements are before it in each.

    Checked kernels compare positions with the size of the whole buffer, and keep it. Time O(expressions), once a form.

    Args:
        step_bytes: buffers begin at multiples of so many bytes, where wider accesses than an element depend on that.
        whole: the loads whose buffers begin where they do, besides those that are overwritten in place, which begin
            where the result does.
        reads_pieces: what a guard hides is read all the same, at the nearest place in the buffer: a buffer of which a
            place may be behind the end begins where it does, so that the kernel knows the end.
    """
    if config.check:
        return program, (0,) * len(program.loads)
    known = program.form.rewritten
    kept = whole.union(program.in_place.values())
    found = known.get((kept, step_bytes, reads_pieces))
    if found is None:
        hidden = _reaching_beyond(program) if reads_pieces else frozenset()
        found = known[kept, step_bytes, reads_pieces] = _worked_out(program, kept | hidden, step_bytes)
    rewriting, firsts = found
    return (program if rewriting is None else rewriting.program(program)), firsts


def first_element(place: int, size_bytes: int, step_bytes: int) -> int:
    """The last element not behind a place that begins at a multiple of some bytes; 0 if the place is not known."""
    if type(place) is not int or place < 0:  # of symbolic size, or hidden by a guard
        return 0
    step = max(1, step_bytes // size_bytes)
    return place // step * step


def _least(index: Index) -> int:
    """A place in front of which nothing is read, as far as is known."""
    found = index.offset
    for term, stride in index.terms:
        if type(stride) is int and stride < 0:  # no other term is below 0
            if not isinstance(term, LoopVariable) or type(term.extent) is not int:
                return 0
            found += stride * (term.extent - 1)
    return found if type(found) is int else 0


def _reaching_beyond(program: LoopProgram) -> frozenset[int]:
    """The buffers of which a place that is computed may be behind the last element."""
    reads = [(expr.buffer, expr.positions[0].bounds()[1]) for expr in program.exprs if isinstance(expr, Load)]
    sizes = [value.type.size for value in program.loads]
    return frozenset([k for k, last in reads if k < len(sizes) and not surely_less(last, sizes[k])])


def _worked_out(
    program: LoopProgram, kept: frozenset[int], step_bytes: int
) -> tuple[Rewriting | None, tuple[int, ...]]:
    """How programs of a form are rewritten (None: not at all), and the first elements read."""
    least: dict[int, int] = {}
    for expr in program.exprs:
        if isinstance(expr, Load):
            first = _least(expr.positions[0])
            least[expr.buffer] = min(first, least.get(expr.buffer, first))
    sizes = [value.type.dtype.size_bytes for value in program.loads]
    firsts = tuple(
        [0 if k in kept else first_element(least.get(k, 0), size, step_bytes) for k, size in enumerate(sizes)]
    )
    if not any(firsts):
        return None, firsts

    def moved(place: int, expr: Expr) -> Expr | None:
        if not isinstance(expr, Load) or not firsts[expr.buffer]:
            return None
        (position,) = expr.positions
        there = Index(position.terms, position.offset - firsts[expr.buffer])
        return Load(expr.serial, expr.dtype, (), (there,), expr.guards, expr.phase, buffer=expr.buffer)

    return Rewriting(program, moved, Form()), firsts
