"""Refining and collapsing the loops of a LoopProgram so that addresses become plain affine sums.

``refine`` splits a loop variable where an index divides it (a reshape inside the nest); ``collapse`` merges
neighbouring loops that every address walks as one. Both keep the row-major order of iteration.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from autojit.core.sizes import surely_divides, surely_less
from autojit.ir.index import Index, LoopVariable, Opaque, Quotient, Remainder, size_rank
from autojit.schedule.expressions import Expr, Rewrite, RowResult
from autojit.schedule.loops import LoopProgram


def indices_of(program: LoopProgram) -> Iterator[Index]:
    """Every index expression of the program."""
    for expr in program.exprs:
        yield from expr.positions
        for index, _, _ in expr.guards:
            yield index
    for store in program.stores:
        yield store.index


def _rewrite(program: LoopProgram, change: Rewrite) -> None:
    for expr in program.exprs:
        expr.rewrite(change)
    for store in program.stores:
        store.index = change(store.index)


def _divisors(index: Index, found: dict[LoopVariable, set[int]]) -> None:
    for term, _ in index.terms:
        if not isinstance(term, Quotient | Remainder):
            continue
        base = term.base
        if len(base.terms) == 1 and base.offset == 0 and base.terms[0][1] == 1:
            variable = base.terms[0][0]
            if isinstance(variable, LoopVariable) and variable.extent % term.divisor == 0:
                found.setdefault(variable, set()).add(term.divisor)
        _divisors(base, found)


def refine(program: LoopProgram) -> None:
    """Split variables at the divisors found in indices, as long as something splits."""
    while True:
        found: dict[LoopVariable, set[int]] = {}
        for index in indices_of(program):
            _divisors(index, found)
        if not found:
            return
        replaced: dict[LoopVariable, list[LoopVariable]] = {}
        values: dict[LoopVariable, Index] = {}
        for variable, divisors in found.items():
            parts = _split(variable, sorted(divisors, key=size_rank))
            replaced[variable] = parts
            total = Index()
            for part in parts:
                total = total * part.extent + Index.of(part)
            values[variable] = total
        if program.prefix:
            program.prefix = sum(len(replaced.get(v, [v])) for v in program.rows[: program.prefix])
        program.rows = [p for v in program.rows for p in replaced.get(v, [v])]
        program.inner = [p for v in program.inner for p in replaced.get(v, [v])]
        _rewrite(program, partial(Index.substitute, values=values))


def _split(variable: LoopVariable, divisors: list[int]) -> list[LoopVariable]:
    """Outer to inner parts; divisors that do not divide each other in a chain are left to division at run time."""
    parts: list[int] = []
    below = 1
    for divisor in divisors:
        if divisor % below == 0 and variable.extent % divisor == 0 and divisor != below:
            parts.append(divisor // below)
            below = divisor
    if variable.extent != below:
        parts.append(variable.extent // below)
    names = [LoopVariable(f"{variable.name}_{k}", extent) for k, extent in enumerate(reversed(parts))]
    return [n for n in names if n.extent != 1]


def collapse(program: LoopProgram) -> None:
    """Merge neighbouring loops of the same class wherever every address allows it."""
    indices = list(indices_of(program))
    nested: set[LoopVariable] = set()
    for index in indices:
        _nested(index, nested)
    prefix = program.rows[: program.prefix]
    folded = program.rows[program.prefix :]
    prefix = _collapse_list(program, prefix, nested)
    program.rows = prefix + _collapse_list(program, folded, nested)
    program.prefix = len(prefix)
    program.inner = _collapse_list(program, program.inner, nested)


def _nested(index: Index, found: set[LoopVariable]) -> None:
    for term, _ in index.terms:
        if isinstance(term, Quotient | Remainder):
            for inner, _ in term.base.terms:
                if isinstance(inner, LoopVariable):
                    found.add(inner)
            _nested(term.base, found)


def _collapse_list(program: LoopProgram, loops: list[LoopVariable], nested: set[LoopVariable]) -> list[LoopVariable]:
    position = 0
    loops = list(loops)
    while position + 1 < len(loops):
        outer, inner = loops[position], loops[position + 1]
        if outer in nested or inner in nested or not _walks_as_one(program, outer, inner):
            position += 1
            continue
        merged = LoopVariable(f"{outer.name}{inner.name}", outer.extent * inner.extent)
        _rewrite(program, lambda i, o=outer, n=inner, m=merged: _merge(i, o, n, m))  # type: ignore[misc]
        loops[position : position + 2] = [merged]
        position = max(position - 1, 0)
    return loops


def _walks_as_one(program: LoopProgram, outer: LoopVariable, inner: LoopVariable) -> bool:
    for index in indices_of(program):
        have = dict(index.terms)
        if have.get(outer, 0) != have.get(inner, 0) * inner.extent:
            return False
    return True


def _merge(index: Index, outer: LoopVariable, inner: LoopVariable, merged: LoopVariable) -> Index:
    coefficient = dict(index.terms).get(inner)
    if coefficient is None:
        return index
    terms = tuple((merged if t == inner else t, c) for t, c in index.terms if t != outer)
    return Index(terms, index.offset)


def coarsen_guards(program: LoopProgram) -> None:
    """Ask only the outer digits of a position where a piece begins and ends with whole digits."""
    for expr in program.exprs:
        if expr.guards:
            expr.guards = tuple(_coarsened(*guard) for guard in expr.guards)


def _coarsened(index: Index, low: int, high: int) -> tuple[Index, int, int]:
    """``unit * outer + inner`` in [low, high) as ``outer`` in [low / unit, high / unit), for the largest such unit."""
    units = {coefficient for _, coefficient in index.terms if surely_less(1, coefficient)}
    for unit in sorted(units, key=size_rank, reverse=True):
        if surely_divides(unit, low) and surely_divides(unit, high):
            outer = index // unit
            if {term for term, _ in outer.terms} < {term for term, _ in index.terms}:
                return outer, low // unit, high // unit
    return index, low, high


def choose_inner(program: LoopProgram) -> None:
    """Flat nests: the last loop becomes the inner (vector) loop."""
    if program.is_flat and program.rows:
        program.inner = [program.rows[-1]]
        program.rows = program.rows[:-1]
        program.prefix = 0


def settle(program: LoopProgram) -> None:
    """Refine, collapse, choose the vector loop, then compute each expression's phase and whether it varies inside."""
    refine(program)
    collapse(program)
    coarsen_guards(program)
    choose_inner(program)
    inner = set(program.inner)
    phase_of: dict[int, int] = {}
    by_expr: dict[Expr, list[int]] = {}
    for reduction in program.reductions:
        by_expr.setdefault(reduction.expr, []).append(reduction.number)
    for expr in program.exprs:
        if isinstance(expr, RowResult):
            expr.phase = phase_of[expr.number] + 1
        for arg in expr.args:
            expr.phase = max(expr.phase, arg.phase)
            expr.inner = expr.inner or arg.inner
        for index in (*expr.positions, *(g[0] for g in expr.guards)):
            _depend(expr, index, inner, program)
        for number in by_expr.get(expr, ()):
            phase_of[number] = expr.phase


def _depend(expr: Expr, index: Index, inner: set[LoopVariable], program: LoopProgram) -> None:
    for term, _ in index.terms:
        if isinstance(term, LoopVariable):
            expr.inner = expr.inner or term in inner
        elif isinstance(term, Quotient | Remainder):
            _depend(expr, term.base, inner, program)
        elif isinstance(term, Opaque):
            lookup = program.lookups[term.text]
            expr.inner = expr.inner or lookup.inner
            expr.phase = max(expr.phase, lookup.phase)
