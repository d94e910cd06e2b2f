"""Refining and collapsing the loops of a LoopProgram so that addresses become plain affine sums.

``refine`` splits a loop variable where an index divides it (a reshape inside the nest); ``collapse`` merges
neighbouring loops that every address walks as one. Both keep the row-major order of iteration.

Loops are split and merged on a `_Nest`, which holds every different position once; the expressions are made again at
the end, of the positions that came out of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from autojit.core.sizes import surely_divides, surely_less
from autojit.ir.index import Index, LoopVariable, Quotient, Remainder, Term, size_rank
from autojit.schedule.expressions import Expr, Expressions, Guard
from autojit.schedule.loops import LoopProgram


def settle(program: LoopProgram) -> LoopProgram:
    """The program with its loops split and merged and its guards coarsened; itself where nothing changes."""
    nest = _Nest(program)
    refine(nest)
    collapse(nest)
    guards = {guard: _coarsened(nest.now[guard[0]], *guard[1:]) for expr in program.exprs for guard in expr.guards}
    is_same = nest.is_as_built and all(guard == coarse for guard, coarse in guards.items())
    return program if is_same else _rebuilt(program, nest, guards)


class _Nest:
    """The loops of a program while they are split and merged, and what each position has become."""

    def __init__(self, program: LoopProgram) -> None:
        self.kept = list(program.rows[: program.prefix])
        self.folded = list(program.rows[program.prefix :])
        self.inner = list(program.inner)
        self.now = {index: index for index in _indices_of(program)}
        self.is_as_built = True

    def rewrite(self, change: Callable[[Index], Index]) -> None:
        """Change every position."""
        self.is_as_built = False
        self.now = {index: change(before) for index, before in self.now.items()}


def _indices_of(program: LoopProgram) -> Iterator[Index]:
    """Every index expression of the program."""
    for expr in program.exprs:
        yield from expr.positions
        for index, _, _ in expr.guards:
            yield index
    for store in program.stores:
        yield store.index


def refine(nest: _Nest) -> None:
    """Split variables at the divisors found in indices, as long as something splits."""
    while True:  # a division that simplifies may leave one of a part, or of a sum that is one variable now
        found: dict[LoopVariable, set[int]] = {}
        for index in nest.now.values():
            _divisors(index, found)
        if not found:
            return
        parts = {variable: _split(variable, sorted(divisors, key=size_rank)) for variable, divisors in found.items()}
        for loops in (nest.kept, nest.folded, nest.inner):
            loops[:] = [part for variable in loops for part in parts.get(variable, [variable])]
        values: dict[Term, Index] = {}
        for variable, its_parts in parts.items():
            values[variable] = Index()
            for part in its_parts:
                values[variable] = values[variable] * part.extent + Index.of(part)
        nest.rewrite(partial(Index.replaced, change=values.get))


def _divisors(index: Index, found: dict[LoopVariable, set[int]]) -> None:
    for term in index.walk():
        if not isinstance(term, Quotient | Remainder):
            continue
        base = term.base
        if len(base.terms) == 1 and base.offset == 0 and base.terms[0][1] == 1:
            variable = base.terms[0][0]
            if isinstance(variable, LoopVariable) and variable.extent % term.divisor == 0:
                found.setdefault(variable, set()).add(term.divisor)


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


def collapse(nest: _Nest) -> None:
    """Merge neighbouring loops of the same class wherever every address allows it."""
    divided = {variable for index in nest.now.values() for variable in index.divided_variables()}
    for loops in (nest.kept, nest.folded, nest.inner):
        _collapse_list(nest, loops, divided)


def _collapse_list(nest: _Nest, loops: list[LoopVariable], divided: set[LoopVariable]) -> None:
    position = 0
    while position + 1 < len(loops):
        outer, inner = loops[position], loops[position + 1]
        # Inside a division a variable has no coefficient to compare, and `_merge` changes plain terms alone.
        if outer in divided or inner in divided or not _walks_as_one(nest, outer, inner):
            position += 1
            continue
        merged = LoopVariable(f"{outer.name}{inner.name}", outer.extent * inner.extent)
        nest.rewrite(partial(_merge, outer=outer, inner=inner, merged=merged))
        loops[position : position + 2] = [merged]
        position = max(position - 1, 0)  # the merged loop may go with the one before


def _walks_as_one(nest: _Nest, outer: LoopVariable, inner: LoopVariable) -> bool:
    for index in nest.now.values():
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


def _coarsened(index: Index, low: int, high: int) -> Guard:
    """``unit * outer + inner`` in [low, high) as ``outer`` in [low / unit, high / unit), for the largest such unit.

    Only the outer digits of a position are asked where a piece begins and ends with whole digits.
    """
    units = {coefficient for _, coefficient in index.terms if surely_less(1, coefficient)}
    # The guard is then the same throughout an inner loop: it can be asked once a row, and addresses chosen by it.
    for unit in sorted(units, key=size_rank, reverse=True):
        if surely_divides(unit, low) and surely_divides(unit, high):
            outer = index // unit
            if {term for term, _ in outer.terms} < {term for term, _ in index.terms}:
                return outer, low // unit, high // unit
    return index, low, high


def _rebuilt(program: LoopProgram, nest: _Nest, guards: dict[Guard, Guard]) -> LoopProgram:
    """The program on the loops of a nest."""
    now = nest.now
    # Made again in their order, so each follows its operands; two that have become one are one (hash-consing).
    exprs = Expressions()
    new: dict[Expr, Expr] = {}
    for expr in program.exprs:
        new[expr] = exprs.again(
            expr,
            tuple([new[arg] for arg in expr.args]),
            tuple([now[index] for index in expr.positions]),
            tuple([guards[guard] for guard in expr.guards]),
        )
    return replace(
        program,
        rows=(*nest.kept, *nest.folded),
        inner=tuple(nest.inner),
        prefix=len(nest.kept),
        exprs=tuple(exprs.made),
        reductions=tuple([replace(r, expr=new[r.expr]) for r in program.reductions]),
        stores=tuple([replace(s, expr=new[s.expr], index=now[s.index]) for s in program.stores]),
        accumulators=tuple([replace(a, expr=new[a.expr]) for a in program.accumulators]),
        lookups={name: new[expr] for name, expr in program.lookups.items()},
    )
