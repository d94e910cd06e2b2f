"""TracedNumber: what ``tensor.item()`` gives while a step is captured.

It stands for a Python number that changes from call to call: one taken from a tensor, or an argument. Arithmetic, the
functions of ``math`` (``traced_math.py``) and comparisons stay in the graph; returned from the step it is a fresh
number at every call. Only when Python needs the digits (``float``, ``int``, ``hash``, formatting) the capture splits on
the value; a comparison used in an ``if`` splits on its outcome alone.

It is no subclass of ``float``: C code reads a float's digits without asking, and would bake in those of the first call.
"""

from __future__ import annotations

import math
import numbers
import operator
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from autojit.core.dtypes import HALVES, default_dtype, float64, int64
from autojit.core.errors import TraceError
from autojit.core.sizes import is_symbolic
from autojit.core.source import SourceLocation, here
from autojit.dispatch.dispatch import value_of
from autojit.jit.exact_numbers import (
    as_compared,
    exact,
    is_wide,
    require_exact_in_floats,
    require_negative_exists,
    require_whole,
)
from autojit.jit.number_offsets import Offset, distance, known_span, moved_by
from autojit.jit.number_ranges import ANY, INT64, Range, combined, compared, may_wrap, within_64_bits
from autojit.jit.python_errors import is_sure
from autojit.tensor.state import grad_mode, state
from autojit.tensor.tensor import Tensor, type_of

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from autojit.jit.trace import Trace

WHEN_MADE: list[Callable[[], None]] = []
"""Called when a traced number is made (`traced_math`)."""


_OTHERS: Any = str | bytes | None | list | tuple | dict | set
"""What is repeated as often as an int says, or makes an error that names the kind of number."""


class TracedNumber:
    """An int or float of a captured step; ``tensor`` is its 0-d float64 or int64 tensor, ``kind`` int or float.

    ``span`` is what is known of its value, so that dividing by it and its powers need no look at its digits.
    """

    __array_priority__ = 2000
    __slots__ = ("kind", "offset", "source", "span", "tensor", "trace")

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """``isinstance`` tells what it stands for, as well as what it is."""
        return self.kind

    def __init__(self, trace: Trace, tensor: Tensor, kind: type, span: Range = ANY) -> None:
        self.trace = trace
        trace.has_numbers = True
        self.span = span if kind is float else within_64_bits(span)
        self.tensor, self.kind = tensor, kind
        self.offset: Offset | None = None  # what is known of it beside others
        self.source: SourceLocation = here()
        for told in WHEN_MADE:
            told()

    def _check(self, in_body: bool = False) -> None:
        """``in_body``: also where the body of a branch or loop of its step is captured."""
        trace: Any = state.trace
        while in_body and trace is not None and trace is not self.trace:
            trace = trace.outer
        if trace is not self.trace:
            raise TraceError(
                "a number that a captured step took from a tensor is used outside the step",
                {"made": self.source},
                "return it from the step, or assign it to an attribute or a variable; a list is appended to once only",
            )

    def concrete(self) -> Any:
        """The plain number; the capture from here on holds for this value only."""
        self._check()
        return self.kind(self.trace.concretize(value_of(self.tensor)).item())

    def within(self, low: float, high: float) -> TracedNumber:
        """The number itself, which a guard of the step keeps in this range."""
        self.span = Range(low, high)
        return self

    def as_operand(self) -> Tensor:
        """The number as a 0-d tensor, for functions that take tensors or numbers."""
        self._check(in_body=True)
        return self.tensor

    def as_size(
        self,
        most: int | None = None,
        refusal: str = "a size is negative",
        is_place: bool = False,
        is_settled: bool = False,
    ) -> int:
        """The number as an extent, at most ``most``, which the step leaves open until it has computed it.

        ``refusal``: the message of the error if it is negative; ``is_place``: it is an IndexError; ``is_settled``: it
        is known that it is neither negative nor too great.
        """
        if self.kind is not int:
            raise TypeError("'float' object cannot be interpreted as an integer")
        self._check()
        return self.trace.size_of_number(value_of(self.tensor), most, refusal, is_place, is_settled)

    def known_span(self, start: object, stop: object, extent: int) -> tuple[int, int] | None:
        """Where a slice is in an axis, one of whose bounds the number is, if that is known."""
        return known_span(start, stop, extent)

    def _beside(self, other: Tensor) -> Tensor:
        """As the operand of a tensor: a number does not widen the tensor's dtype within its category."""
        self._check()
        dtype = type_of(other).dtype
        if dtype.category >= 2 or (dtype.category == 1 and self.kind is int):
            return self.tensor.to(dtype)
        return self.tensor.to(int64 if self.kind is int else default_dtype())

    def _behind(self, other: object, function: Callable[[Any, Any], Any]) -> Any:
        """``function`` of another operand and this one, whose digits count unless the other is a tensor."""
        return function(other, self._beside(other) if isinstance(other, Tensor) else self.concrete())

    def _combine(self, other: object, function: Callable[[Any, Any], Any], kind: type | None, swapped: bool) -> Any:
        if isinstance(other, Tensor):
            mine = self._beside(other)
            if function is operator.truediv and not swapped and type_of(other).dtype in HALVES:
                return other.reciprocal() * mine  # as eager mode rounds a number over halves
            return function(other, mine) if swapped else function(mine, other)
        if isinstance(other, np.ndarray | complex | _OTHERS):
            return function(other, self.concrete()) if swapped else function(self.concrete(), other)
        if not isinstance(other, int | float | TracedNumber | np.integer | np.floating):
            return NotImplemented
        self._check()
        theirs = other.kind if isinstance(other, TracedNumber) else (int if isinstance(other, int) else float)
        wide = kind or (int if self.kind is int and theirs is int else float)
        if function is operator.sub and isinstance(other, TracedNumber):
            apart = distance(self, other)
            if apart is not None:
                return apart
        divisor = self if swapped else other
        spans = (span_of(other), self.span) if swapped else (self.span, span_of(other))
        if wide is int and (is_wide(other) or may_wrap(function.__name__, *spans)):
            plain = other.concrete() if isinstance(other, TracedNumber) else other
            return function(plain, self.concrete()) if swapped else function(self.concrete(), plain)
        if function is operator.truediv and span_of(divisor).low <= 0.0 <= span_of(divisor).high:
            raises = partial(operator.truediv, 1 if self.kind is theirs is int else 1.0, 0)
            is_known = isinstance(divisor, TracedNumber) and is_sure(self.trace, divisor.tensor.bool, raises)
            if not is_known and divisor == 0:
                raises()  # Python's own error
        with grad_mode(False):
            a, b = _operand(self, wide), _operand(other, wide)
            a, b = (b, a) if swapped else (a, b)
            found, span = function(a, b), combined(function.__name__, *spans)
        if wide is int:
            span = exact(self.trace, function.__name__, a, b, found, spans, span)
        made = TracedNumber(self.trace, found, wide, span)
        made.offset = (
            moved_by(function.__name__, *((other, self) if swapped else (self, other))) if wide is int else None
        )
        return made

    def _compare(self, other: object, function: Callable[[Any, Any], Any]) -> Any:
        if isinstance(other, Tensor):
            return function(self._beside(other), other)
        if isinstance(other, _OTHERS) and function not in (operator.eq, operator.ne):
            return function(self.concrete(), other)  # Python's own error
        if not isinstance(other, int | float | TracedNumber | np.integer | np.floating):
            return NotImplemented
        self._check()
        known = compared(function.__name__, self.span, span_of(other))
        if known is not None:
            return known
        theirs = other.kind if isinstance(other, TracedNumber) else type(other)
        if self.kind is int and theirs is float and not isinstance(other, TracedNumber) and math.isfinite(other):
            other = as_compared(function, float(other))
            if other is None:
                return function is operator.ne
            theirs = int
        if self.kind is int and is_wide(other):
            return function(0, other)  # as all that have 64 bits
        if self.kind is float and type(other) is int and (is_wide(other) or float(other) != other):
            return function(self.concrete(), other)
        whole = self.kind is theirs is int
        with grad_mode(False):
            kind = int if whole else float
            found = function(_operand(self, kind), _operand(other, kind))
        for number in (self, other) if not whole else ():
            if isinstance(number, TracedNumber) and number.kind is int:
                require_exact_in_floats(self.trace, number.tensor, number.span)
        return bool(found)

    def __eq__(self, other: object) -> Any:
        return self._compare(other, operator.eq)

    def __ne__(self, other: object) -> Any:
        return self._compare(other, operator.ne)

    def __lt__(self, other: object) -> Any:
        return self._compare(other, operator.lt)

    def __le__(self, other: object) -> Any:
        return self._compare(other, operator.le)

    def __gt__(self, other: object) -> Any:
        return self._compare(other, operator.gt)

    def __ge__(self, other: object) -> Any:
        return self._compare(other, operator.ge)

    def __bool__(self) -> bool:
        return bool(self._compare(0, operator.ne))

    def __neg__(self) -> TracedNumber:
        self._require_negative()
        return TracedNumber(self.trace, -self.as_operand(), self.kind, self.span.negative())

    def _require_negative(self) -> None:
        if self.kind is int:
            require_negative_exists(self.trace, self.as_operand(), self.span)

    def __invert__(self) -> Any:
        if self.kind is float:
            return ~self.concrete()
        with grad_mode(False):
            return TracedNumber(self.trace, self.as_operand().bitwise_not(), int, self.span.complement())

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __abs__(self) -> TracedNumber:
        self._require_negative()
        return TracedNumber(self.trace, self.as_operand().abs(), self.kind, self.span.magnitude())

    def __float__(self) -> float:
        return float(self.concrete())

    def __int__(self) -> int:
        if self.kind is int:
            return int(self.concrete())
        self._check()
        if not (self._is_known_to_fit or (INT64.low < self and self < INT64.high)):
            return int(self.concrete())  # an int of any size, or Python's own error
        with grad_mode(False):
            return int(TracedNumber(self.trace, self.tensor.to(int64), int).concrete())

    def __trunc__(self) -> int:
        return int(self)

    def __floor__(self) -> Any:
        return self.whole(math.floor)

    def __ceil__(self) -> Any:
        return self.whole(math.ceil)

    def __round__(self, digits: int | None = None) -> Any:
        return self.whole(round) if digits is None else round(self.concrete(), digits)

    @property
    def _is_known_to_fit(self) -> bool:
        """Whether a float is known to have 64 bits as an int."""
        return self.span.magnitude().high < INT64.high and not self.span.has_nan

    def whole(self, function: Callable[[Any], int]) -> Any:
        """The next int by ``floor``, ``ceil``, ``trunc`` or ``round``; the step requires that it has 64 bits."""
        if self.kind is int:
            return self
        if not self._is_known_to_fit:
            require_whole(self.trace, self.as_operand())
        with grad_mode(False):
            found = getattr(self.as_operand(), function.__name__)().to(int64)
        return TracedNumber(self.trace, found, int, self.span.image(function))

    def __complex__(self) -> complex:
        return complex(self.concrete())

    def __index__(self) -> int:
        if self.kind is not int:
            raise TypeError("'float' object cannot be interpreted as an integer")
        return int(self.concrete())

    def __hash__(self) -> int:
        return hash(self.concrete())

    def __repr__(self) -> str:
        return repr(self.concrete())

    def __str__(self) -> str:
        return str(self.concrete())

    def __format__(self, spec: str) -> str:
        return format(self.concrete(), spec)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> Any:
        return np.asarray(self.concrete(), dtype)

    def __reduce_ex__(self, protocol: object) -> Any:
        return self.kind, (self.concrete(),)

    def __getattr__(self, name: str) -> Any:
        """What else ints and floats have (``bit_length``, ``hex``) is asked of the plain number."""
        if name.startswith("__") or not hasattr(self.kind, name):
            raise AttributeError(f"'{self.kind.__name__}' object has no attribute '{name}'")
        return getattr(self.concrete(), name)

    def item(self, *_: object) -> TracedNumber:
        """Itself, as NumPy's scalars."""
        return self

    __pos__ = __copy__ = __deepcopy__ = item


def span_of(x: Any) -> Range:
    """What is known of a number."""
    if isinstance(x, TracedNumber):
        return x.span
    return ANY if is_symbolic(x) or x != x else Range(float(x), float(x))


def _operand(x: object, kind: type) -> Any:
    if is_symbolic(x):
        assert state.trace is not None
        x = state.trace.size_number(x)
    if isinstance(x, TracedNumber):
        return x.tensor.to(int64 if kind is int else float64)
    return kind(x)


def _arithmetic(name: str, kind: type | None = None) -> None:
    function = getattr(operator, name)

    def forward(self: TracedNumber, other: object) -> Any:
        return self._combine(other, function, kind, swapped=False)

    def reflected(self: TracedNumber, other: object) -> Any:
        return self._combine(other, function, kind, swapped=True)

    setattr(TracedNumber, f"__{name}__", forward)
    setattr(TracedNumber, f"__r{name}__", reflected)


def _on_digits(name: str) -> None:
    """Operators whose type or error depends on the digits: computed by Python on the plain number."""
    function = getattr(operator, name)

    def forward(self: TracedNumber, other: Any) -> Any:
        if type(other) in (int, float) and other != 0 and name != "pow" and not is_wide(other):
            if other == -1 and name == "floordiv":
                self._require_negative()
            kind = int if self.kind is type(other) is int else float
            with grad_mode(False):  # a number, and no error, whatever the digits: every tenth step
                found = function(self.as_operand().to(int64 if kind is int else float64), other)
                if name == "mod" and kind is float:  # of a zero, too, Python's remainder has the divisor's sign
                    found = found.copysign(float(other))
            span = Range(0.0, float(other)) if name == "mod" and other > 0 else ANY
            if name == "floordiv" and kind is int and self.span.high < INT64.high:
                span = Range(-self.span.magnitude().high - 1, self.span.magnitude().high)
            return TracedNumber(self.trace, found, kind, span)
        return function(self._beside(other) if isinstance(other, Tensor) else self.concrete(), other)

    def reflected(self: TracedNumber, other: object) -> Any:
        return self._behind(other, function)

    setattr(TracedNumber, f"__{name}__", forward)
    setattr(TracedNumber, f"__r{name}__", reflected)


def _on_bits(name: str, function: Callable[[Any, Any], Any]) -> None:
    """Operators of ints: with a plain int that is not negative as arithmetic where it is, else of the digits."""

    def forward(self: TracedNumber, other: object) -> Any:
        if isinstance(other, Tensor):
            return function(self._beside(other), other)
        if self.kind is int and type(other) is int and other >= 0:
            if name == "lshift" and other < 64:
                return self * 2**other
            if name == "rshift" and other < 63:
                return self // 2**other
            if name == "and" and other < 2**62 and other & (other + 1) == 0:
                return operator.mod(self, other + 1)
        return function(self.concrete(), other.concrete() if isinstance(other, TracedNumber) else other)

    def reflected(self: TracedNumber, other: object) -> Any:
        return forward(self, other) if name == "and" and type(other) is int else self._behind(other, function)

    setattr(TracedNumber, f"__{name}__", forward)
    setattr(TracedNumber, f"__r{name}__", reflected)


for _name in ("lshift", "rshift", "and", "or", "xor"):
    _on_bits(_name, getattr(operator, f"__{_name}__"))
for _name in ("add", "sub", "mul"):
    _arithmetic(_name)
_arithmetic("truediv", float)
for _name in ("floordiv", "mod", "pow"):
    _on_digits(_name)
numbers.Real.register(TracedNumber)
