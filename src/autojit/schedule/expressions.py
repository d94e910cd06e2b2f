"""The expressions of a loop program: one class per kind, hash-consed, so that identity is equality.

An expression is computed at each point of the loops that it depends on. ``settle`` (in ``refine``) rewrites addresses
and says how an expression depends on the loops; nothing changes after it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from autojit.core.dtypes import DType
from autojit.ir.index import Index
from autojit.schedule.pull import Indices

Guard = tuple[Index, int, int]
"""A position, and the first and the last but one place where it is inside."""

Rewrite = Callable[[Index], Index]

FIRST, LAST = "first", "last"
"""Which guard of a chain that covers all positions: the last one holds where none before it does."""


class Expr:
    """An element that is computed. Operands come before it in the program: ``serial`` is its place there."""

    __slots__ = ("args", "cost", "dtype", "guards", "inner", "phase", "positions", "serial")

    own: ClassVar[tuple[str, ...]] = ()
    """What its class adds."""

    def __init__(
        self,
        serial: int,
        dtype: DType,
        args: tuple[Expr, ...] = (),
        positions: Indices = (),
        guards: tuple[Guard, ...] = (),
    ) -> None:
        self.serial = serial
        self.dtype = dtype
        self.args = args
        self.positions = positions  # where in memory, or among the loops, it looks
        self.guards = guards
        self.cost = 0  # arithmetic steps, those of the operands included
        self.phase = 0  # row reductions of earlier phases are done
        self.inner = False  # it varies along the inner loops

    def rewrite(self, change: Rewrite) -> None:
        """Change every index."""
        if self.positions:
            self.positions = tuple(change(i) for i in self.positions)
        if self.guards:
            self.guards = tuple((change(i), low, high) for i, low, high in self.guards)

    def structure(self) -> tuple[Any, ...]:
        """The same for expressions of two programs that print alike."""
        parts = tuple(getattr(self, name) for name in self.own)
        args = tuple(a.serial for a in self.args)
        return (type(self).__name__, self.dtype.short, args, self.positions, self.guards, *parts)


class Load(Expr):
    """An element of a buffer, by its place among the program's loads and its position there."""

    __slots__ = ("buffer",)
    own = ("buffer",)

    def __init__(self, serial: int, dtype: DType, buffer: int, positions: Indices) -> None:
        super().__init__(serial, dtype, positions=positions)
        self.buffer = buffer


class Applied(Expr):
    """An op on scalars."""

    __slots__ = ("op",)
    own = ("op",)

    def __init__(self, serial: int, dtype: DType, op: Any, args: tuple[Expr, ...]) -> None:
        super().__init__(serial, dtype, args)
        self.op = op
        self.cost = 1 + (0 if op.is_cheap else 6) + sum(a.cost for a in args)


class FromSource(Expr):
    """An element of an op without operands, by its position."""

    __slots__ = ("op",)
    own = ("op",)

    def __init__(self, serial: int, dtype: DType, op: Any, positions: Indices) -> None:
        super().__init__(serial, dtype, positions=positions)
        self.op = op


class Number(Expr):
    """A number that no op of the graph says: what stands where a piece has no element."""

    __slots__ = ("digits",)
    own = ("digits",)

    def __init__(self, serial: int, dtype: DType, digits: tuple[str, object]) -> None:
        super().__init__(serial, dtype)
        self.digits = digits

    @staticmethod
    def digits_of(value: object) -> tuple[str, object]:
        """Equal for numbers that are one: -0.0 is not 0.0, NaN is NaN."""
        return type(value).__name__, repr(value) if isinstance(value, float) else value

    @property
    def value(self) -> Any:
        kind, digits = self.digits
        return float(str(digits)) if kind == "float" else digits


class Guarded(Expr):
    """The first operand where all guards hold, else the second; ``end`` is its place in a chain that leaves no rest."""

    __slots__ = ("end",)
    own = ("end",)

    def __init__(
        self, serial: int, dtype: DType, args: tuple[Expr, Expr], guards: tuple[Guard, ...], end: str | None
    ) -> None:
        super().__init__(serial, dtype, args, guards=guards)
        self.end = end
        self.cost = args[0].cost + args[1].cost + 2


class RowResult(Expr):
    """What a row reduction has folded, by its number."""

    __slots__ = ("number",)
    own = ("number",)

    def __init__(self, serial: int, dtype: DType, number: int) -> None:
        super().__init__(serial, dtype)
        self.number = number


class LookUp(Expr):
    """A run-time index below ``extent``: its operand, checked."""

    __slots__ = ("extent",)
    own = ("extent",)

    def __init__(self, serial: int, dtype: DType, args: tuple[Expr], extent: int) -> None:
        super().__init__(serial, dtype, args)
        self.extent = extent


class RandomWord(Expr):
    """A word of the generator's stream: the operands are seed and offset."""

    __slots__ = ("op",)
    own = ("op",)

    def __init__(self, serial: int, dtype: DType, op: Any, args: tuple[Expr, ...], positions: Indices) -> None:
        super().__init__(serial, dtype, args, positions)
        self.op = op
        self.cost = 40
