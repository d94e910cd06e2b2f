"""The row cache: what a later phase of a row reads again and is dear to compute stays in memory.

Rows of known length have local arrays, as far as `ROW_SCRATCH_BYTES` go; rows of symbolic length have memory of the
worker, whose address is an argument.
"""

from __future__ import annotations

from autojit.codegen.cpu.kernel_text import CpuKernel, KernelModule
from autojit.codegen.cpu.loops.walk import CpuWalk
from autojit.codegen.cpu.machine import KEPT_COST, ROW_SCRATCH_BYTES, aligned
from autojit.codegen.expressions import ExpressionPrinter, Memo
from autojit.codegen.scalar import Scalar
from autojit.core.sizes import is_symbolic
from autojit.schedule.expressions import Expr, Load


class CachingPrinter(CpuKernel, ExpressionPrinter):
    """A kernel on the CPU whose blocks compute expressions of a program."""

    walk: CpuWalk

    def __init__(self, module: KernelModule, symbol: str, walk: CpuWalk, *, is_checked: bool) -> None:
        super().__init__(module, symbol, walk, is_checked=is_checked)
        self.cached: dict[Expr, tuple[int, str]] = {}  # expression -> (phase that computes it, its row scratch)
        self.cache_bytes: int = 0  # of a worker's row scratch where rows have symbolic length

    def plan_cache(self) -> None:
        """Expensive inner expressions read again in a later phase are kept in row scratch."""
        program, walk = self.program, self.walk
        roots: dict[int, list[Expr]] = {}
        for root in program.roots():
            roots.setdefault(root.phase, []).append(root)
        if len(roots) < 2:
            return
        first_seen: dict[Expr, int] = {}
        room = ROW_SCRATCH_BYTES
        for phase in sorted(roots):
            fresh: list[Expr] = []
            stack = list(roots[phase])
            visited: set[Expr] = set()
            while stack:
                expr = stack.pop()
                if expr in visited:
                    continue
                visited.add(expr)
                if expr in first_seen and self._is_worth_keeping(expr):
                    size = walk.inner_count * expr.dtype.size_bytes
                    if expr in self.cached:
                        continue
                    if is_symbolic(size):
                        self.cached[expr] = (first_seen[expr], "")
                        continue
                    if size <= room:
                        self.cached[expr] = (first_seen[expr], "")
                        room -= size
                        continue
                if expr not in first_seen:
                    fresh.append(expr)
                stack.extend(expr.args)
                stack.extend(walk.lookups_of(expr.positions))
            first_seen.update((expr, phase) for expr in fresh)
        if is_symbolic(walk.inner_count):
            self.cache_bytes = sum(self._cached_bytes(e) for e in self.cached)
            return
        for expr, (phase, _) in list(self.cached.items()):
            self.cached[expr] = (phase, self.array(expr.dtype, max(walk.inner_count, 2)))

    def _is_worth_keeping(self, expr: Expr) -> bool:
        return expr in self.walk.varying and self.walk.costs[expr] >= KEPT_COST and not isinstance(expr, Load)

    def _cached_bytes(self, expr: Expr) -> int:
        return aligned(self.walk.inner_count * expr.dtype.size_bytes)

    def place_cache(self, argument: int) -> None:
        """Rows of symbolic length are kept in memory of the worker, whose address is an argument."""
        at: int = 0
        skip = self.mul("%worker", self.cache_bytes)
        for expr, (phase, _) in list(self.cached.items()):
            start = self.add(skip, at)
            self.cached[expr] = (phase, self.at(self.buffers[argument], start))
            at += self._cached_bytes(expr)

    def _cache_address(self, expr: Expr, memo: Memo) -> str:
        return self.address(self.cached[expr][1], expr.dtype, self.index(self.walk.position, memo))

    def keep(self, expr: Expr, value: Scalar, memo: Memo) -> None:
        """Write an expression to its row scratch."""
        self.emit.store(value, self._cache_address(expr, memo), self.access)

    def is_kept(self, expr: Expr, phase: int) -> bool:
        """Whether an earlier phase wrote the expression to row scratch."""
        return expr in self.cached and self.cached[expr][0] < phase

    def kept(self, expr: Expr, memo: Memo) -> Scalar:
        """The expression from its row scratch."""
        return self.emit.load(self._cache_address(expr, memo), expr.dtype, self.access)
