"""SymbolicSize: an extent that a compiled step leaves open.

It is an int with the value seen during the capture (the *hint*), so shape rules and NumPy run on it unchanged, and an
expression in named sizes, which its arithmetic carries on. Comparisons answer from the expression where all sizes agree
(a named size is at least 2). Where they differ, a capture in progress answers by the hint and notes the answer as a
`SizeGuard`; otherwise, inside the compiler, ``==`` says False (not known to be equal) and an order is an error, so
that nothing which depends on the hint gets into generated code. Also during a capture ``==`` says False when autojit's
own code asks (but about remainders): most often it looks for a special case. Where sizes have to agree it asks `agree`.
"""

from __future__ import annotations

import ast
import operator
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import gcd
from types import FrameType
from typing import Any, NamedTuple, Protocol, SupportsIndex

from autojit.core import size_expressions as expressions
from autojit.core.errors import UndecidedSizeError, int_expected
from autojit.core.size_expressions import Expression
from autojit.core.source import is_own


class SizeGuard(NamedTuple):
    """``(expression relation 0) == outcome``: what a capture assumed of its sizes."""

    expression: Expression
    relation: str  # "==" or "<"
    outcome: bool

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Whether the sizes of a call fit."""
        value = self.expression.evaluate(sizes)
        return (value == 0 if self.relation == "==" else value < 0) is self.outcome

    def __str__(self) -> str:
        positive = Expression(tuple(t for t in self.expression.terms if t[1] > 0))
        negative = expressions.scale(Expression(tuple(t for t in self.expression.terms if t[1] < 0)), -1)
        sign = {("==", True): "==", ("==", False): "!=", ("<", True): "<", ("<", False): ">="}
        return f"{positive} {sign[self.relation, self.outcome]} {negative}"


class Recorder(Protocol):
    """A capture in progress."""

    def decide_size(self, expression: Expression, relation: str) -> bool:
        """Whether ``expression relation 0`` ("==" or "<"): true for some sizes only, so the capture holds for those."""

    def size_digits(self, expression: Expression) -> int:
        """The value that an expression has in this call."""

    def size_number(self, size: SymbolicSize) -> Any:
        """The size as a number that changes from call to call, for arithmetic that gives no size."""


class _Recording(threading.local):
    recorder: Recorder | None = None


_recording = _Recording()


@contextmanager
def recording(recorder: Recorder | None) -> Iterator[None]:
    """Inside, comparisons that the expressions leave open ask the hint, and ``recorder`` notes them."""
    before, _recording.recorder = _recording.recorder, recorder
    try:
        yield
    finally:
        _recording.recorder = before


class SymbolicSize(int):
    """See the module. ``size(hint, expression)`` makes one, or a plain int of a constant."""

    expression: Expression

    @property
    def hint(self) -> int:
        """The value during the capture, a plain int."""
        return int.__int__(self)

    def evaluate(self, sizes: Mapping[str, int]) -> int:
        """The value for given symbols."""
        return self.expression.evaluate(sizes)

    def lower_bound(self) -> int | None:
        """The least value, as far as known."""
        return self.expression.lower_bound()

    def upper_bound(self) -> int | None:
        """The greatest value, as far as known."""
        return self.expression.upper_bound()

    # -- comparisons

    def __eq__(self, other: object) -> Any:
        return self._equals(other) if isinstance(other, int) else self._as_number(other, operator.eq)

    def __ne__(self, other: object) -> Any:
        return not self._equals(other) if isinstance(other, int) else self._as_number(other, operator.ne)

    def __hash__(self) -> int:
        return hash(self.expression)

    def _equals(self, other: int) -> bool:
        if _recording.recorder is not None and (_asked_by_user(sys._getframe(2)) or _is_divisibility(self, other)):
            return agree(self, other)
        return _known_equal(self, other) is True

    def __lt__(self, other: Any) -> Any:
        return _is_less(self, other) if isinstance(other, int) else self._as_number(other, operator.lt)

    def __ge__(self, other: Any) -> Any:
        return not _is_less(self, other) if isinstance(other, int) else self._as_number(other, operator.ge)

    def __gt__(self, other: Any) -> Any:
        return _is_less(other, self) if isinstance(other, int) else self._as_number(other, operator.gt)

    def __le__(self, other: Any) -> Any:
        return not _is_less(other, self) if isinstance(other, int) else self._as_number(other, operator.le)

    def __bool__(self) -> bool:
        return not self._equals(0)

    # -- leaving the realm of sizes

    def _as_number(self, other: object, function: Callable[[Any, Any], Any]) -> Any:
        if not isinstance(other, float | complex):
            return NotImplemented
        return function(self._number(), other)

    def _number(self) -> Any:
        if _recording.recorder is None:
            raise _undecided(self, "its value is asked for")
        return _recording.recorder.size_number(self)

    def __int__(self) -> int:
        if _recording.recorder is None:
            raise _undecided(self, "its digits are asked for")
        return _recording.recorder.size_digits(self.expression)

    def __float__(self) -> float:
        return float(self.__int__())

    def __truediv__(self, other: Any) -> Any:
        return self._number() / other if isinstance(other, int | float | complex) else NotImplemented

    def __rtruediv__(self, other: Any) -> Any:
        return other / self._number() if isinstance(other, int | float | complex) else NotImplemented

    # -- arithmetic

    def __add__(self, other: Any) -> Any:
        return _combined(self, other, operator.add, expressions.add)

    def __radd__(self, other: Any) -> Any:
        return _combined(other, self, operator.add, expressions.add)

    def __sub__(self, other: Any) -> Any:
        return _combined(self, other, operator.sub, expressions.subtract)

    def __rsub__(self, other: Any) -> Any:
        return _combined(other, self, operator.sub, expressions.subtract)

    def __mul__(self, other: Any) -> Any:
        return _combined(self, other, operator.mul, expressions.multiply)

    def __rmul__(self, other: Any) -> Any:
        return _combined(other, self, operator.mul, expressions.multiply)

    def __floordiv__(self, other: Any) -> Any:
        return _combined(self, other, operator.floordiv, expressions.quotient)

    def __rfloordiv__(self, other: Any) -> Any:
        return _combined(other, self, operator.floordiv, expressions.quotient)

    def __mod__(self, other: Any) -> Any:
        return _combined(self, other, operator.mod, expressions.remainder)

    def __rmod__(self, other: Any) -> Any:
        return _combined(other, self, operator.mod, expressions.remainder)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __pow__(self, other: Any, modulus: Any = None) -> Any:
        if type(other) is not int or other < 0 or modulus is not None:
            return self._number() ** (float(other) if type(other) is int else other)
        found: Any = 1
        for _ in range(other):
            found = found * self
        return found

    def __neg__(self) -> Any:
        return size(-self.hint, expressions.scale(self.expression, -1))

    def __pos__(self) -> SymbolicSize:
        return self

    def __abs__(self) -> Any:
        return -self if self < 0 else self

    def __trunc__(self) -> SymbolicSize:
        return self

    __floor__ = __ceil__ = __trunc__

    def __round__(self, digits: SupportsIndex | None = None) -> SymbolicSize:
        return self

    def __copy__(self) -> SymbolicSize:
        return self

    def __deepcopy__(self, memo: object) -> SymbolicSize:
        return self

    def __reduce__(self) -> Any:
        raise _undecided(self, "it is written to a file")

    def __repr__(self) -> str:
        return str(self.expression)

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)


def size(hint: int, expression: Expression) -> int:
    """An int that carries an expression; a plain int when that is constant."""
    fixed = expression.constant
    if fixed is not None:
        return fixed
    made = int.__new__(SymbolicSize, hint)
    made.expression = expression
    return made


def named_size(name: str, hint: int, least: int = expressions.LEAST) -> int:
    """A size that a step leaves open.

    Example:
        >>> n = named_size("s0", 64)
        >>> 4 * n + 1, (6 * n) // 3, n - n
        (4*s0+1, 2*s0, 0)
    """
    return size(hint, expressions.symbol(name, least))


def expression_of(n: int) -> Expression:
    """The expression of a size or of a number."""
    return n.expression if type(n) is SymbolicSize else expressions.constant(n)


def is_symbolic(n: object) -> bool:
    """Whether a size is left open."""
    return type(n) is SymbolicSize


def is_counted(n: int) -> bool:
    """Whether a size depends on how many elements the step itself finds: nothing but the step can decide about it."""
    return type(n) is SymbolicSize and any(a.kind == "symbol" and a.operands[1] == 0 for a in n.expression.atoms())


def evaluate(n: int, sizes: Mapping[str, int]) -> int:
    """A size for given symbols; plain numbers are themselves."""
    return n.expression.evaluate(sizes) if type(n) is SymbolicSize else n


def hint_of(n: int) -> int:
    """The value during the capture."""
    return n.hint if type(n) is SymbolicSize else n


def with_hints(shape: tuple[int, ...], sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The same open sizes with the values that they have for other symbols as hints."""
    return tuple(size(evaluate(n, sizes), expression_of(n)) for n in shape)


def as_extent(n: Any) -> int:
    """What a caller gave as an extent or a position, as an int that keeps its expression."""
    if type(n) is SymbolicSize or type(n) is int:
        return n
    if isinstance(n, float | str | complex) or n is None:
        raise int_expected(n)
    return int(n)


def as_size(n: Any) -> int:
    """`as_extent` of what is no position: a number that a step computes becomes a size that it counts."""
    if type(n) is int or type(n) is SymbolicSize:
        return n
    sized = getattr(n, "as_size", None)
    return as_extent(n) if sized is None else sized()


def size_min(a: int, b: int) -> int:
    """The smaller of two sizes, without asking which."""
    if type(a) is not SymbolicSize and type(b) is not SymbolicSize:
        return min(a, b)
    return size(min(hint_of(a), hint_of(b)), expressions.minimum(expression_of(a), expression_of(b)))


def size_max(a: int, b: int) -> int:
    """The larger of two sizes, without asking which."""
    if type(a) is not SymbolicSize and type(b) is not SymbolicSize:
        return max(a, b)
    return size(max(hint_of(a), hint_of(b)), expressions.maximum(expression_of(a), expression_of(b)))


TYPICAL = 256
"""What an open size counts as where costs are weighed: equal graphs give equal code whatever sizes came first."""


def typical(n: int) -> int:
    """The size with ``TYPICAL`` for every open size: for estimates only."""
    if type(n) is not SymbolicSize:
        return n
    return n.expression.evaluate(dict.fromkeys(n.expression.symbols(), TYPICAL))


def surely_less(a: int, b: int) -> bool:
    """Whether ``a < b`` whatever the open sizes are; False where that is not known."""
    if type(a) is not SymbolicSize and type(b) is not SymbolicSize:
        return a < b
    high = expressions.subtract(expression_of(a), expression_of(b)).upper_bound()
    return high is not None and high < 0


def size_gcd(a: int, b: int) -> int:
    """A common divisor: the greatest of numbers; of open sizes one that is seen, at least that of the coefficients."""
    if type(a) is not SymbolicSize and type(b) is not SymbolicSize:
        return gcd(a, b)
    for small, large in ((a, b), (b, a)):
        if small != 0 and surely_divides(small, large):
            return small
    return size(gcd(hint_of(a), hint_of(b)), expressions.common_factor(expression_of(a), expression_of(b)))


def surely_divides(divisor: int, n: int) -> bool:
    """Whether ``n`` is a multiple of ``divisor`` whatever the open sizes are."""
    rest = n % divisor
    return type(rest) is not SymbolicSize and rest == 0


def agree(a: int, b: int) -> bool:
    """Whether two sizes are equal, for those that must be: a capture holds only for sizes that answer as the hints."""
    known = _known_equal(a, b)
    if known is not None or _recording.recorder is None:
        return known is True
    return _recording.recorder.decide_size(expressions.subtract(expression_of(a), expression_of(b)), "==")


def agree_on(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """`agree` for two shapes."""
    return a == b or (len(a) == len(b) and all(map(agree, a, b)))


def _known_equal(a: int, b: int) -> bool | None:
    """Whether two sizes are equal for all values of the symbols, or for none; None: that depends."""
    if type(a) is not SymbolicSize and type(b) is not SymbolicSize:
        return a == b
    difference = expressions.subtract(expression_of(a), expression_of(b))
    if not difference.terms:
        return True
    low, high = difference.bounds()
    return False if (low is not None and low > 0) or (high is not None and high < 0) else None


def _is_divisibility(a: int, b: int) -> bool:
    """Whether sizes are compared up to multiples: that is no special case, but tells two cases apart."""
    atoms = (*expression_of(a).atoms(), *expression_of(b).atoms())
    return any(atom.kind == "remainder" for atom in atoms)


def _asked_by_user(frame: FrameType) -> bool:
    """Whether a comparison stands in a user's code; generated methods of records count as autojit's."""
    return not (frame.f_code.co_filename.startswith("<") or is_own(frame.f_code))


def parse_size(tree: ast.expr) -> int:
    """A size from the syntax tree of its text; names beginning with "u" may be 0, as those that a step counts itself.

    Raises:
        ValueError: the text is no size.
    """
    match tree:
        case ast.Constant(value=int(value)):
            return value
        case ast.Name(id=name):
            return named_size(name, 61, 0 if name.startswith("u") else expressions.LEAST)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -parse_size(operand)
        case ast.BinOp(left=left, op=operation, right=right) if type(operation) in _SYNTAX:
            return _SYNTAX[type(operation)](parse_size(left), parse_size(right))  # type: ignore[no-any-return]
        case ast.Call(func=ast.Name(id=("min" | "max") as name), args=[left, right]):
            return (size_min if name == "min" else size_max)(parse_size(left), parse_size(right))
    raise ValueError(f"no size: {ast.unparse(tree)}")


_SYNTAX: dict[type, Callable[[int, int], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


_DIVISIONS = (operator.floordiv, operator.mod)


def _combined(
    a: Any, b: Any, operation: Callable[[Any, Any], Any], function: Callable[[Expression, Expression], Expression]
) -> Any:
    if not isinstance(a, int) or not isinstance(b, int):
        if isinstance(a, float | complex):
            return operation(a, b._number())
        if isinstance(b, float | complex):
            return operation(a._number(), b)
        return NotImplemented
    hints = hint_of(a), hint_of(b)
    if hints[1] == 0 and operation in _DIVISIONS and _recording.recorder is None and type(b) is SymbolicSize:
        hints = 0, 1  # outside a capture a hint means nothing, so it may be what the size never is
    return size(operation(*hints), function(expression_of(a), expression_of(b)))


def _is_less(a: int, b: int) -> bool:
    difference = expressions.subtract(expression_of(a), expression_of(b))
    low, high = difference.bounds()
    if high is not None and high < 0:
        return True
    if low is not None and low >= 0:
        return False
    if _recording.recorder is None:
        raise _undecided(difference, "whether it is negative is asked")
    return _recording.recorder.decide_size(difference, "<")


def _undecided(what: object, why: str) -> UndecidedSizeError:
    return UndecidedSizeError(
        "a size that the compiled step leaves open has no one value here",
        {"size": what, "reason": why},
        "inside the step, compute with it; outside, ask the tensor for its shape",
    )
