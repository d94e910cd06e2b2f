"""Printing the expressions of a LoopProgram, for every target: scalars, addresses, look-ups, guards.

How to read: ``expr`` (memo, what is kept) -> ``_computed`` (one kind after the other) -> ``index`` (addresses). A memo
maps expressions, indices and index terms to what holds them; ``row_memo`` lives for a row, others for one loop body.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any

from autojit.codegen.kernel_function import KernelFunction
from autojit.codegen.module_text import ModuleText
from autojit.codegen.philox import block
from autojit.codegen.piecewise import arms, below, is_whole, shared_walk
from autojit.codegen.scalar import Scalar, register_type
from autojit.codegen.walk import Walk
from autojit.core.dtypes import bool_, int64, uint32, uint64
from autojit.core.sizes import surely_less
from autojit.ir.index import Index, LoopVariable, Opaque, Quotient, Remainder
from autojit.schedule.expressions import (
    Applied,
    Expr,
    FromSource,
    Guard,
    Guarded,
    Load,
    LookUp,
    Number,
    RandomWord,
    RowResult,
)
from autojit.schedule.loops import Store

Memo = dict[Any, Any]


class ExpressionPrinter(KernelFunction):
    """A kernel function whose blocks compute expressions of a program.

    A target that keeps values in memory from one phase of a row to the next says which (`is_kept`, `kept`).
    """

    def __init__(self, module: ModuleText, symbol: str, walk: Walk, *, is_checked: bool) -> None:
        super().__init__(module, symbol, is_checked=is_checked)
        self.walk = walk
        self.program = program = walk.program
        self.variables: dict[LoopVariable, str] = {}
        self.row_memo: Memo = {}
        self.has_guards = any(e.guards for e in program.exprs)
        self.answers: dict[Guard, bool] = {}  # what guards say throughout the loop that is being printed
        self.lookup_sites = {e: site for site, e in enumerate(program.lookups.values(), start=1)}

    # -- loops

    def set_counters(self, loops: Sequence[LoopVariable], position: str) -> None:
        """Set the counters of loops by the row-major position in them."""
        rest = position
        for variable in reversed(loops[1:]):
            extent = self.number(variable.extent)
            self.variables[variable] = self.remainder(rest, extent)
            rest = self.quotient(rest, extent)
        if loops:
            self.variables[loops[0]] = rest

    # -- expressions

    def read_overwritten(self, store: Store, memo: Memo) -> None:
        """Read what a buffer holds before it is overwritten, for those that still need it."""
        place = self.program.in_place.get(store.value)
        if place is None:
            return
        for load in self.program.exprs:
            if isinstance(load, Load) and load.buffer == place:
                self.expr(load, memo, store.expr.phase)

    def hoist(self, expr: Expr, phase: int, seen: set[Expr]) -> None:
        """Compute what does not vary inside before the inner loops start."""
        stack = [expr]
        while stack:
            expr = stack.pop()
            if expr in seen:
                continue
            seen.add(expr)
            if expr not in self.walk.varying:
                self.expr(expr, self.row_memo, phase)
            elif not (isinstance(expr, Guarded) or self.is_kept(expr, phase)):
                stack.extend(reversed(expr.args))
                stack.extend(self.walk.lookups_of(expr.positions))

    def pick_addresses(
        self,
        roots: Iterable[Expr],
        phase: int,
        inner: Sequence[LoopVariable] | None = None,
        memo: Memo | None = None,
        width: int = 1,
    ) -> None:
        """Where guards depend on the row alone, choose what the inner loops read before they start.

        Args:
            inner: the loops inside; None: those of the walk.
            memo: what is known outside of them; None: what is known of the row.
            width: neighbours that need one answer (`shared_walk`).
        """
        if self.is_checked or not self.has_guards:  # a checked load knows which buffer it reads
            return
        inner = self.walk.inner if inner is None else inner
        known = self.row_memo if memo is None else memo
        overwritten = self.program.in_place.values()
        done: set[Expr] = set()
        for expr in below(roots, lambda e: e not in self.walk.varying or e in done or self.is_kept(e, phase)):
            if ("address", expr) in self.row_memo or ("address", expr) in known or not is_whole(expr):
                continue
            walk = shared_walk(expr, inner, overwritten, width)
            if walk is not None:
                known["address", expr] = self._picked(expr, phase, inner, known), walk
                done.update(expr.args)

    def _picked(self, expr: Expr, phase: int, inner: Sequence[LoopVariable], known: Memo) -> str:
        """The address that a guard starts from in this row; nothing is read yet."""
        if isinstance(expr, Load):
            (position,) = expr.positions
            of_row = tuple(pair for pair in position.terms if pair[0] not in inner)
            start = self.index(Index(of_row, position.offset), known, phase)
            return self.address(self.buffers[expr.buffer], expr.dtype, start)
        assert isinstance(expr, Guarded), "only guards have one address of several"
        addresses = [self._picked(arm, phase, inner, known) for arm in arms(expr)]
        if len(addresses) == 1:
            return addresses[0]
        holds = self.conditions(expr.guards, known, phase)
        return self.choose(holds.text, addresses[0], addresses[1], "ptr")

    def picked_address(self, expr: Guarded, start: str, position: str, known: Memo) -> str:
        """The address of what a guard stands for, this far from the one that was picked; ``known``: at the point."""
        return self.address(start, expr.dtype, position)

    def is_kept(self, expr: Expr, phase: int) -> bool:
        """Whether an earlier phase of the row wrote the expression to memory."""
        return False

    def kept(self, expr: Expr, memo: Memo) -> Scalar:
        """An expression that is kept."""
        raise AssertionError("nothing is kept here")

    def expr(self, expr: Expr, memo: Memo, phase: int) -> Scalar:
        """The value of an expression at the current point. Chains of ops are walked without recursion."""
        stack = [expr]
        while True:
            current = stack[-1]
            found = self._known(current, memo, phase)
            if found is None and isinstance(current, Applied):
                missing = [a for a in current.args if isinstance(a, Applied) and self._known(a, memo, phase) is None]
                if missing:
                    stack.extend(reversed(missing))
                    continue
            if found is None:
                found = memo[current] = self._computed(current, memo, phase)
            stack.pop()
            if not stack:
                return found

    def _known(self, expr: Expr, memo: Memo, phase: int) -> Scalar | None:
        """The value if it was computed at this point already, or is kept in row scratch."""
        found: Scalar | None = memo.get(expr)
        if found is None and expr not in self.walk.varying:
            found = self.row_memo.get(expr)
        if found is None and isinstance(expr, RowResult):
            found = self.row_memo["row", expr.number]
        if found is None and phase and self.is_kept(expr, phase):
            found = memo[expr] = self.kept(expr, memo)
        return found

    def _computed(self, expr: Expr, memo: Memo, phase: int) -> Scalar:
        emit = self.emit
        if isinstance(expr, Load):
            return self.read(expr.buffer, expr.dtype, self.index(expr.positions[0], memo, phase))
        if isinstance(expr, Applied):
            args = [self.expr(a, memo, phase) for a in expr.args]
            value = expr.op.lower(emit, *args)
            if emit.failures:
                self.collect_failures(expr.op)
            return Scalar(value.text, expr.dtype)
        if isinstance(expr, Number):
            return emit.constant(expr.value, expr.dtype)
        if isinstance(expr, FromSource):
            where = tuple(Scalar(self.index(i, memo, phase), int64) for i in expr.positions)
            return Scalar(expr.op.lower(emit, where).text, expr.dtype)
        if isinstance(expr, Guarded):
            return self._guarded(expr, memo, phase)
        if isinstance(expr, LookUp):
            index = emit.cast(self.expr(expr.args[0], memo, phase), int64).text
            return Scalar(self.clamped(index, expr.extent, self.lookup_sites[expr]), int64)
        assert isinstance(expr, RandomWord), expr
        seed, offset = (self.expr(a, memo, phase) for a in expr.args)
        return self._random_word(seed, offset, Scalar(self.index(expr.positions[0], memo, phase), int64))

    def _random_word(self, seed: Scalar, offset: Scalar, position: Scalar) -> Scalar:
        """Word ``position % 4`` of the Philox block of counter ``offset + position // 4`` (see ``ops.random``)."""
        emit = self.emit
        wide = Scalar(position.text, uint64)
        number = emit.add(Scalar(offset.text, uint64), emit.shift_right(wide, emit.constant(2, uint64)))
        words = block(emit, Scalar(seed.text, uint64), number)
        which = emit.bitwise_and(emit.cast(wide, uint32), emit.constant(3, uint32))
        value = words[3]
        for k in (2, 1, 0):
            value = emit.select(emit.eq(which, emit.constant(k, uint32)), words[k], value)
        return value

    # -- guards

    def _guarded(self, expr: Guarded, memo: Memo, phase: int) -> Scalar:
        inside, outside = expr.args
        picked = memo.get(("address", expr)) or self.row_memo.get(("address", expr))
        if picked is not None:
            start, walk = picked
            address = self.picked_address(expr, start, self.index(walk, memo, phase), memo)
            return self.emit.load(address, expr.dtype, self.access)
        answers = {self.answers.get(guard) for guard in expr.guards}
        if False in answers or answers == {True}:
            return self.expr(outside if False in answers else inside, memo, phase)
        condition = self.conditions([g for g in expr.guards if g not in self.answers], memo, phase)
        otherwise = self.expr(outside, memo, phase)
        if not _reads_memory(inside):
            return self.emit.select(condition, self.expr(inside, memo, phase), otherwise)
        kept = self.row_memo
        self.row_memo = dict(self.row_memo)  # what is computed in here is not known outside
        with self.when(condition.text):
            value = self.expr(inside, dict(memo), phase)
        self.row_memo = kept
        return Scalar(self.merge(register_type(expr.dtype), value.text, otherwise.text), expr.dtype)

    def conditions(self, guards: Iterable[Guard], memo: Memo, phase: int) -> Scalar:
        """Whether all guards hold at the current point."""
        parts: list[str] = []
        for index, low, high in guards:
            at = self.index(index, memo, phase)
            least, greatest = index.bounds()
            if not surely_less(low - 1, least):
                parts.append(self.test("sge", at, low))
            if not surely_less(greatest, high) or not parts:
                parts.append(self.test("slt", at, high))
        return Scalar(reduce(self.both, parts), bool_)

    # -- addresses

    def index(self, index: Index, memo: Memo, phase: int = 0) -> str:
        """A position at the current point, as an i64."""
        found: str | None = memo.get(index)
        if found is not None:
            return found
        total: str | None = None
        for term, coefficient in index.terms:
            part = self._term(term, memo, phase)
            if coefficient != 1:
                part = self.binary("mul nsw", part, coefficient)
            total = part if total is None else self.binary("add nsw", total, part)
        if total is None:
            total = self.number(index.offset)
        elif index.offset:
            total = self.binary("add nsw", total, index.offset)
        memo[index] = total
        return total

    def _term(self, term: Any, memo: Memo, phase: int) -> str:
        if isinstance(term, LoopVariable):
            return self.variables[term]
        if isinstance(term, Quotient | Remainder):
            found = memo.get(term)
            if found is None:
                base = self.index(term.base, memo, phase)
                opcode = "udiv" if isinstance(term, Quotient) else "urem"
                found = memo[term] = self.binary(opcode, base, self._divisor(term.divisor))
            return found
        return self.expr(self.program.lookups[term.text], memo, phase).text

    def _divisor(self, size: int) -> str:
        """A size to divide by: 1 where it is 0 as the step counts it, for an index that points at nothing."""
        if surely_less(0, size):
            return self.number(size)
        return self.value(f"call i64 @llvm.umax.i64(i64 {self.number(size)}, i64 1)")


def _reads_memory(expr: Expr) -> bool:
    """Whether computing the expression reads a buffer, perhaps for a position."""
    stack, met = [expr], {expr}
    while stack:
        found = stack.pop()
        looks_up = any(isinstance(term, Opaque) for index in found.positions for term in index.walk())
        if looks_up or isinstance(found, Load | LookUp):
            return True
        for part in found.args:
            if part not in met:
                met.add(part)
                stack.append(part)
    return False
