"""SymbolicSize: an extent that a compiled step leaves open.

It has the value seen during the capture (the *hint*), and an expression in named sizes, which its arithmetic carries
on. It passes for an int (``isinstance``) but is not a subclass of one: C code reads an int's digits without asking, and
would bake in those of the first call. Here it has to ask (``__index__``), and whoever asks fixes the size.

Comparisons answer from the expression where all sizes agree (a named size is at least 2). Where they differ, a capture
in progress answers by the hint and notes the answer as a `SizeGuard`. Outside, in the compiler, ``==`` says False (not
known to be equal) and an order is an error, so that nothing which depends on the hint gets into generated code.

So a size behaves in a capture as the int of this call, whoever asks. What the compiler asks instead has a name:
`structure` is what types, ops and keys are compared by (whether they are written alike); `surely_equal` looks for a
special case and leaves the capture general; `seems_equal` takes a size that the step counts for general; `fit` is what
rules ask that give an error.
"""

from __future__ import annotations

import numbers
import operator
import sys
from collections.abc import Callable, Iterable, Mapping
from math import gcd
from types import FrameType
from typing import TYPE_CHECKING, Any, SupportsIndex, SupportsInt, TypeGuard

import numpy as np

from autojit.core import size_expressions as expressions
from autojit.core.errors import UndecidedSizeError, int_expected
from autojit.core.size_expressions import Expression
from autojit.core.size_recorder import asked, is_for_user
from autojit.core.wrapping import named

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

    _Int = int  # what it passes for, to annotations and to ``isinstance``
else:
    _Int = object


class SymbolicSize(_Int):
    """See the module. ``size(hint, expression)`` makes one, or a plain int of a constant."""

    __slots__ = ("expression", "hint")

    expression: Expression
    hint: int  # the value during the capture, a plain int

    def __new__(cls, hint: int, expression: Expression) -> SymbolicSize:
        made: SymbolicSize = object.__new__(cls)
        made.hint = hint
        made.expression = expression
        return made

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """``isinstance`` tells what it stands for, as well as what it is."""
        return int

    def __hash__(self) -> int:
        return hash(self.expression if asked.recorder is None else self._digits())

    def __bool__(self) -> bool:
        return not agree(self, 0)

    # -- leaving the realm of sizes

    def _number(self) -> Any:
        """A number that changes from call to call, for arithmetic with one that is not a size."""
        if asked.recorder is None:
            raise _undecided(self, "its value is asked for")
        return asked.recorder.size_number(self)

    def _digits(self) -> int:
        """The plain number; the capture holds for sizes alone that give the same."""
        if asked.recorder is None:
            raise _undecided(self, "its digits are asked for")
        return asked.recorder.size_digits(self.expression)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self._digits(), dtype)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: object, **options: object) -> Any:
        """A NumPy function of sizes: of integers what Python's operator gives, else of the digits."""
        operation = _OPERATORS_OF_NUMPY.get(ufunc.__name__)
        if method == "__call__" and not options and operation is not None and None not in map(_whole, inputs):
            return operation(*map(_whole, inputs))
        return getattr(ufunc, method)(*(x._digits() if type(x) is SymbolicSize else x for x in inputs), **options)

    def __truediv__(self, other: object) -> Any:
        return self._number() / other if isinstance(other, int | float | complex) else NotImplemented

    def __rtruediv__(self, other: object) -> Any:
        return other / self._number() if isinstance(other, int | float | complex) else NotImplemented

    # -- arithmetic that is more than the operation of expressions; the rest is below the functions that it calls

    def __rmod__(self, other: object) -> Any:
        if isinstance(other, str | bytes):
            return other % self._digits()
        return _combined(other, self, operator.mod, expressions.remainder)

    def __divmod__(self, other: int) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: int) -> Any:
        return other // self, other % self

    def __pow__(self, other: int, modulus: int | None = None) -> Any:
        if modulus is not None:
            return pow(self._digits(), other, modulus)
        if type(other) is SymbolicSize:
            return self._digits() ** other._digits()
        if type(other) is not int or other < 0:
            return self._number() ** (float(other) if type(other) is int else other)
        found: Any = 1
        for _ in range(other):
            found = found * self
        return found

    def __rpow__(self, other: Any, modulus: int | None = None) -> Any:
        if modulus is None and isinstance(other, float):
            return other ** self._number()
        return pow(other, self._digits(), modulus)

    def __lshift__(self, other: int) -> Any:
        return self * 2**other if type(other) is int and other >= 0 else self._digits() << other

    def __rshift__(self, other: int) -> Any:
        return self // 2**other if type(other) is int and other >= 0 else self._digits() >> other

    def __and__(self, other: int) -> Any:
        """With as many low bits as ``other`` has ones, if that is all it has, a remainder."""
        if type(other) is int and other > 0 and other & (other + 1) == 0:
            return self % (other + 1)
        return self._digits() & other

    __rand__ = __and__

    def __invert__(self) -> Any:
        return -self - 1

    def __neg__(self) -> Any:
        return size(-self.hint, expressions.scale(self.expression, -1))

    def __abs__(self) -> Any:
        return -self if self < 0 else self

    def __trunc__(self) -> SymbolicSize:
        return self

    __pos__ = __floor__ = __ceil__ = __copy__ = conjugate = __trunc__
    real = numerator = property(__trunc__)
    imag = property(lambda self: 0)
    denominator = property(lambda self: 1)

    def __round__(self, digits: SupportsIndex | None = None) -> int:
        return self if digits is None or digits.__index__() >= 0 else round(self._digits(), digits)

    def __deepcopy__(self, memo: object) -> SymbolicSize:
        return self

    def __reduce__(self) -> Any:
        raise _undecided(self, "it is written to a file")

    # -- text

    def __repr__(self) -> str:
        return str(self._shown(sys._getframe(1)))

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(self._shown(sys._getframe(1)), spec)

    def _shown(self, frame: FrameType) -> int | str:
        """What a text shows: its digits to users, to autojit the expression."""
        is_user = asked.recorder is not None and is_for_user(frame)
        return self._digits() if is_user else str(self.expression)


numbers.Integral.register(SymbolicSize)

_NUMBERS = (float, complex, np.floating, np.complexfloating)
_OPERATORS_OF_NUMPY: dict[str, Callable[..., Any]] = {
    "add": operator.add, "subtract": operator.sub, "multiply": operator.mul, "negative": operator.neg,
    "floor_divide": operator.floordiv, "remainder": operator.mod, "equal": operator.eq, "not_equal": operator.ne,
    "less": operator.lt, "less_equal": operator.le, "greater": operator.gt, "greater_equal": operator.ge,
}  # fmt: skip


def _whole(x: Any) -> Any:
    """An operand of a size as a size or a plain int, or None: it is neither."""
    kind = type(x)
    if kind is SymbolicSize or issubclass(kind, int):
        return x
    return int(x) if issubclass(kind, np.integer | np.bool_) else None


def plain_text(n: int) -> str:
    """The digits of a number that a user is told; a size that is open is no longer open."""
    return str(n._digits() if type(n) is SymbolicSize and asked.recorder is not None else n)


def parts_of(size: SymbolicSize) -> tuple[int, Expression]:
    """What makes the size again, for what the compiler writes to files; users' files cannot hold one."""
    return size.hint, size.expression


def size(hint: int, expression: Expression) -> int:
    """An int that carries an expression; a plain int when that is constant."""
    fixed = expression.constant
    return SymbolicSize(hint, expression) if fixed is None else fixed


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


def is_symbolic(n: object) -> TypeGuard[SymbolicSize]:
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


def as_extent(n: SupportsInt | SupportsIndex | str | None) -> int:
    """What a caller gave as an extent or a position, as an int that keeps its expression."""
    if type(n) is SymbolicSize or type(n) is int:
        return n
    if isinstance(n, float | str | complex) or n is None:
        raise int_expected(n)
    return int(n)


def as_size(n: SupportsInt | str | None) -> int:
    """`as_extent` of what is not a position: a number that a step computes becomes a size that it counts."""
    if type(n) is int or type(n) is SymbolicSize:
        return n
    sized = getattr(type(n), "as_size", None)  # an object may answer every name
    return as_extent(n) if sized is None else sized(n)


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
    """Whether two sizes are equal; where they are for some alone, a capture holds for those that answer as its own."""
    known = _known_equal(a, b)
    if known is not None or asked.recorder is None:
        return known is True
    return asked.recorder.decide_size(_difference(a, b), "==")


def agree_on(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """`agree` for two shapes."""
    return a is b or (len(a) == len(b) and all(map(agree, a, b)))


def fit(a: int, b: int) -> bool:
    """`agree` for a rule that gives an error where they do not.

    A capture asks, and notes the answer. Passes, which apply rules again to parts of what was recorded, have nobody to
    ask: sizes that stood beside each other then have agreed (`agreed`), unless they surely differ.
    """
    return agree(a, b) or (asked.have_agreed and asked.recorder is None and _known_equal(a, b) is None)


def fit_together(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """`fit` for two shapes."""
    return a is b or (len(a) == len(b) and all(map(fit, a, b)))


def distinct(sizes: Iterable[int]) -> list[int]:
    """Sizes without those that `agree` with one before."""
    found: list[int] = []
    for n in sizes:
        if not any(agree(n, m) for m in found):
            found.append(n)
    return found


def surely_equal(a: int | tuple[int, ...], b: int | tuple[int, ...]) -> bool:
    """Whether two sizes or two shapes are equal whatever the open sizes are; False where that is not known.

    For code that looks for a special case, of which the general form gives the same: it leaves the capture general.
    """
    if type(a) is int and type(b) is int:
        return a == b
    if isinstance(a, tuple) and isinstance(b, tuple):
        return a is b or (len(a) == len(b) and all(map(surely_equal, a, b)))
    return not isinstance(a, tuple) and not isinstance(b, tuple) and _known_equal(a, b) is True


def seems_equal(a: int, b: int) -> bool:
    """`agree` for a rule that treats one case apart: a size that the step counts is taken for another than that.

    An answer would split the step, and the general form serves all counts. Not so where sizes are compared up to
    multiples: that is not a special case, but tells two cases apart.
    """
    is_counting = is_counted(a) or is_counted(b)
    if is_counting and not any(atom.kind == "remainder" for n in (a, b) for atom in expression_of(n).atoms()):
        return surely_equal(a, b)
    return agree(a, b)


def _known_equal(a: int, b: int) -> bool | None:
    """Whether two sizes are equal for all values of the symbols, or for none; None: that depends."""
    if type(a) is not SymbolicSize and type(b) is not SymbolicSize:
        return bool(a == b)
    difference = _difference(a, b)
    if not difference.terms:
        return True
    low, high = difference.bounds()
    return False if (low is not None and low > 0) or (high is not None and high < 0) else None


def _difference(a: int, b: int) -> Expression:
    return expressions.subtract(expression_of(a), expression_of(b))


def _combined(
    a: object, b: object, operation: Callable[[Any, Any], Any], function: Callable[[Expression, Expression], Expression]
) -> Any:
    left, right = _whole(a), _whole(b)
    if left is None or right is None:
        if not isinstance(a if left is None else b, _NUMBERS):
            return NotImplemented
        return operation(a if left is None else left._number(), b if right is None else right._number())
    hints = hint_of(left), hint_of(right)
    if (
        hints[1] == 0
        and operation in (operator.floordiv, operator.mod)
        and asked.recorder is None
        and type(right) is SymbolicSize
    ):
        hints = 0, 1  # outside a capture a hint means nothing, so it may be what the size never is
    return size(operation(*hints), function(expression_of(left), expression_of(right)))


def _is_less(a: int, b: int) -> bool:
    difference = _difference(a, b)
    low, high = difference.bounds()
    if high is not None and high < 0:
        return True
    if low is not None and low >= 0:
        return False
    if asked.recorder is None:
        raise _undecided(difference, "whether it is negative is asked")
    return asked.recorder.decide_size(difference, "<")


def _undecided(what: object, why: str) -> UndecidedSizeError:
    return UndecidedSizeError(
        "a size that the compiled step leaves open has no one value here",
        {"size": what, "reason": why},
        "inside the step, compute with it; outside, ask the tensor for its shape",
    )


def _define(name: str, method: Callable[..., object]) -> None:
    """Give sizes a method, which messages know by its name, unless the class has one that does more."""
    if name not in vars(SymbolicSize):
        setattr(SymbolicSize, name, named(method, name, method.__doc__))


def _define_comparison(name: str, of_sizes: Callable[[int, int], bool]) -> None:
    operation = getattr(operator, name)

    def compare(self: SymbolicSize, other: object) -> object:
        whole = _whole(other)
        if whole is not None:
            return of_sizes(self, whole)
        return operation(self._number(), other) if isinstance(other, _NUMBERS) else NotImplemented

    _define(f"__{name}__", compare)


def _define_arithmetic(name: str, function: Callable[[Expression, Expression], Expression]) -> None:
    operation = getattr(operator, name)
    _define(f"__{name}__", lambda self, other: _combined(self, other, operation, function))
    _define(f"__r{name}__", lambda self, other: _combined(other, self, operation, function))


def _define_on_digits(name: str) -> None:
    """A method of ints that needs the digits: it has no meaning for a size which is open."""
    _define(name, lambda self, *values, **options: getattr(self._digits(), name)(*values, **options))


_define_comparison("eq", agree)
_define_comparison("ne", lambda a, b: not agree(a, b))
_define_comparison("lt", _is_less)
_define_comparison("ge", lambda a, b: not _is_less(a, b))
_define_comparison("gt", lambda a, b: _is_less(b, a))
_define_comparison("le", lambda a, b: not _is_less(b, a))
_define_arithmetic("add", expressions.add)
_define_arithmetic("sub", expressions.subtract)
_define_arithmetic("mul", expressions.multiply)
_define_arithmetic("floordiv", expressions.quotient)
_define_arithmetic("mod", expressions.remainder)
_define("__complex__", lambda self: complex(self._digits()))
for _name in ("int", "index", "float", "or", "ror", "xor", "rxor", "rlshift", "rrshift"):
    _define_on_digits(f"__{_name}__")
for _name in ("bit_length", "bit_count", "to_bytes", "as_integer_ratio"):
    _define_on_digits(_name)
