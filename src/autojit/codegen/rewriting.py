"""Programs with other expressions in the place of some: what all programs of one form become, worked out once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from autojit.ir.graph import Value
from autojit.schedule.expressions import Expr
from autojit.schedule.loops import Accumulator, Form, LoopProgram, RowReduction, Store


class Rewriting:
    """Exchanges expressions of programs of one form.

    Args:
        given: one of them.
        change: by place and expression, what stands for it; None: itself, on exchanged operands. It keeps serials.
        form: of the programs that it makes.
    """

    def __init__(self, given: LoopProgram, change: Callable[[int, Expr], Expr | None], form: Form) -> None:
        self.form = form
        self._new: dict[Expr, Expr] = {}
        for place, expr in enumerate(given.exprs):
            self._new[expr] = change(place, expr) or self._on_new_operands(expr)
        self._exprs = tuple(self._new.values())

    def _on_new_operands(self, expr: Expr) -> Expr:
        args = tuple([self._new[a] for a in expr.args])
        if all(new is old for new, old in zip(args, expr.args, strict=True)):
            return expr
        own = {expr.own: getattr(expr, expr.own)}
        return type(expr)(expr.serial, expr.dtype, args, expr.positions, expr.guards, expr.phase, **own)

    def program(self, given: LoopProgram, more_loads: Sequence[Value] = ()) -> LoopProgram:
        """The program with exchanged expressions, which may read further buffers."""
        new = self._new
        return replace(
            given,
            exprs=self._exprs,
            reductions=tuple([RowReduction(r.number, r.value, r.op, new[r.expr]) for r in given.reductions]),
            stores=tuple([Store(s.value, new[s.expr], s.index) for s in given.stores]),
            accumulators=tuple(
                [Accumulator(a.value, a.op, new[a.expr], a.kind, a.prefix, a.full) for a in given.accumulators]
            ),
            loads=(*given.loads, *more_loads),
            lookups={name: new[e] for name, e in given.lookups.items()},
            form=self.form,
        )
