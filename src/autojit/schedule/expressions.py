"""The expressions of a loop program: one class per kind, hash-consed, so that identity is equality.

An expression is an element that is computed at each point of the loops that it depends on. Nothing in it changes, and
nothing in it says how a target goes through the loops: `refine` makes other expressions of other positions.
"""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn, TypeVar, cast

from autojit.core.dtypes import DType
from autojit.ir.index import Index, Opaque
from autojit.schedule.pull import Indices

Guard = tuple[Index, int, int]
"""A position, and the first and the last but one place where it is inside."""

Guards = tuple[Guard, ...]
Exprs = tuple["Expr", ...]

FIRST, LAST = "first", "last"
"""Which guard of a chain that covers all positions: the last one holds where none before it does."""


class Expr:
    """An element that is computed. Operands come before it in the program: ``serial`` is its place there."""

    # written out: a frozen `dataclass` with slots costs each process 0.25 ms a class
    __slots__ = ("args", "dtype", "guards", "phase", "positions", "serial")

    serial: int
    dtype: DType
    args: Exprs
    positions: Indices
    """Where in memory, or among the loops, it looks."""
    guards: Guards
    phase: int
    """How many passes over the inner loops must be done: row reductions that it depends on end one each."""

    own: ClassVar[str]
    """What its class adds."""

    def __init__(
        self, serial: int, dtype: DType, args: Exprs, positions: Indices, guards: Guards, phase: int, **own: Any
    ) -> None:
        _set_serial(self, serial)
        _set_dtype(self, dtype)
        _set_args(self, args)
        _set_positions(self, positions)
        _set_guards(self, guards)
        _set_phase(self, phase)
        for name, value in own.items():
            _set(self, name, value)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"an expression does not change: {type(self).__name__}.{name}")

    def __reduce__(self) -> tuple[Any, ...]:
        own = {self.own: getattr(self, self.own)}
        return _made_again, (
            type(self),
            own,
            self.serial,
            self.dtype,
            self.args,
            self.positions,
            self.guards,
            self.phase,
        )

    def __repr__(self) -> str:
        return f"<{self.serial}: {self.structure()}>"

    def structure(self) -> tuple[Any, ...]:
        """The same for expressions of two programs that print alike."""
        args = tuple([a.serial for a in self.args])
        own = getattr(self, self.own)
        return (type(self).__name__, self.dtype.short, args, self.positions, self.guards, own)


# ``object.__setattr__`` takes twice as long
_set_args, _set_dtype, _set_guards, _set_phase, _set_positions, _set_serial = (
    Expr.__dict__[name].__set__ for name in Expr.__slots__
)
_set: Any = object.__setattr__


def _made_again(kind: type[Expr], own: dict[str, Any], *parts: Any) -> Expr:
    return kind(*parts, **own)


class Load(Expr):
    """An element of a buffer, by its place among the program's loads and its position there."""

    __slots__ = ("buffer",)
    buffer: int
    own = "buffer"


class Applied(Expr):
    """An op on scalars."""

    __slots__ = ("op",)
    op: Any
    own = "op"


class FromSource(Expr):
    """An element of an op without operands, by its position."""

    __slots__ = ("op",)
    op: Any
    own = "op"


class Number(Expr):
    """A number that no op of the graph says: what is used where a piece has no element."""

    __slots__ = ("digits",)
    digits: tuple[str, object]
    own = "digits"

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
    end: str | None
    own = "end"


class RowResult(Expr):
    """What a row reduction has folded, by its number."""

    __slots__ = ("number",)
    number: int
    own = "number"


class LookUp(Expr):
    """A run-time index below ``extent``: its operand, checked."""

    __slots__ = ("extent",)
    extent: int
    own = "extent"


class RandomWord(Expr):
    """A word of the generator's stream: the operands are seed and offset."""

    __slots__ = ("op",)
    op: Any
    own = "op"


E = TypeVar("E", bound=Expr)


class Expressions:
    """The expressions of one program under construction; of equal parts there is one expression."""

    def __init__(self) -> None:
        self.made: list[Expr] = []
        self.lookups: dict[str, LookUp] = {}  # name of an opaque term -> the run-time index
        self._known: dict[Any, Expr] = {}

    def make(
        self,
        kind: type[E],
        dtype: DType,
        args: Exprs = (),
        positions: Indices = (),
        guards: Guards = (),
        *,
        phase: int = 0,
        **own: Any,
    ) -> E:
        """The expression of these parts: the known one if there is one.

        Args:
            phase: the least it can be; operands and run-time indices may be of later ones.
        """
        # Operands are compared by identity, which is equality here, so a key costs the same however deep they are.
        key = (kind, dtype.short, args, positions, guards, *own.values())
        found = self._known.get(key)
        if found is None:
            for arg in args:
                if arg.phase > phase:
                    phase = arg.phase
            if self.lookups:  # few programs have any, and positions need not be walked without
                phase = max(phase, self._looked_up(positions, guards))
            found = kind(len(self.made), dtype, args, positions, guards, phase, **own)
            self._known[key] = found
            self.made.append(found)
        return cast(E, found)

    def again(self, expr: E, args: Exprs, positions: Indices, guards: Guards) -> E:
        """An expression of another program on other operands, at other positions."""
        own = {expr.own: getattr(expr, expr.own)}
        return self.make(type(expr), expr.dtype, args, positions, guards, phase=expr.phase, **own)

    def _looked_up(self, positions: Indices, guards: Guards) -> int:
        """The phase in which the last run-time index of positions and guards is known."""
        indices = (*positions, *(index for index, _, _ in guards))
        terms = [term for index in indices for term in index.walk()]
        return max((self.lookups[term.text].phase for term in terms if isinstance(term, Opaque)), default=0)
