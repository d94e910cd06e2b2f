"""The order in which one point of a loop computes its expressions.

Long loop bodies are limited by registers and by how far the processor looks ahead. So of the expressions whose operands
are there, one that ends the life of its operands comes first; among those that make a new value, the one with the
longest way to a result, so that quotients are under way while functions keep the other units busy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush

from autojit.schedule.expressions import Applied, Expr, Load

FEWEST = 24  # expressions; a shorter body fits the registers in any order. No measurement is recorded
# Of a mathematical function or a quotient, in additions. The order as a whole brought 3 % to a Black-Scholes kernel
# with its second derivatives; no measurement of other numbers is recorded.
FUNCTION_LATENCY = 12


def emission_order(roots: Sequence[Expr], is_known: Callable[[Expr], bool]) -> list[Expr]:
    """The ops below ``roots``, operands first; whatever ``is_known`` needs no place. Empty for short bodies.

    Time O(n log n) in the number of expressions and their operands.
    """
    exprs = _reachable(roots, is_known)
    return [] if len(exprs) < FEWEST else _Ordering(exprs, set(roots)).run()


class _Ordering:
    """The sweep: what is ready, and who still reads what."""

    def __init__(self, exprs: Sequence[Expr], results: set[Expr]) -> None:
        self.results = results  # stored at once
        self.operands = {e: list(dict.fromkeys(e.args)) for e in exprs}
        self.readers: dict[Expr, list[Expr]] = {e: [] for e in exprs}
        for expr in exprs:
            self.operands[expr] = [a for a in self.operands[expr] if a in self.readers]
            for operand in self.operands[expr]:
                self.readers[operand].append(expr)
        self.unread = {e: len(users) for e, users in self.readers.items()}
        self.missing = {e: len(operands) for e, operands in self.operands.items()}
        self.heights = _heights(exprs, self.readers)
        self.ready: list[tuple[int, int, int, Expr]] = []

    def run(self) -> list[Expr]:
        for expr, missing in self.missing.items():
            if not missing:
                self._offer(expr)
        order: dict[Expr, None] = {}
        while self.ready:
            expr = heappop(self.ready)[-1]
            if expr in order:  # offered again when it became the last reader of an operand
                continue
            order[expr] = None
            for reader in self.readers[expr]:
                self.missing[reader] -= 1
                if not self.missing[reader]:
                    self._offer(reader)
            for operand in self.operands[expr]:
                self.unread[operand] -= 1
                if self.unread[operand] == 1:
                    last = next(r for r in self.readers[operand] if r not in order)
                    if not self.missing[last]:
                        self._offer(last)
        return list(order)

    def _offer(self, expr: Expr) -> None:
        ended = sum(self.unread[a] == 1 for a in self.operands[expr])
        grows = (expr not in self.results) > ended
        heappush(self.ready, (int(grows), -self.heights[expr], expr.serial, expr))


def _reachable(roots: Sequence[Expr], is_known: Callable[[Expr], bool]) -> list[Expr]:
    """Loads and ops below the roots, each after its operands."""
    found: dict[Expr, None] = {}
    opened: set[Expr] = set()
    stack = list(reversed(roots))
    while stack:
        expr = stack[-1]
        if expr in found or not isinstance(expr, Load | Applied) or is_known(expr):
            stack.pop()
        elif expr in opened:
            found[expr] = None
            stack.pop()
        else:
            opened.add(expr)
            stack.extend(reversed(expr.args))
    return list(found)


def _heights(exprs: Sequence[Expr], readers: dict[Expr, list[Expr]]) -> dict[Expr, int]:
    """How long the chain from an expression to a result is."""
    heights: dict[Expr, int] = {}
    for expr in reversed(exprs):
        heights[expr] = max((heights[reader] + _latency(reader) for reader in readers[expr]), default=0)
    return heights


def _latency(expr: Expr) -> int:
    return FUNCTION_LATENCY if isinstance(expr, Applied) and not expr.op.is_cheap else 1
