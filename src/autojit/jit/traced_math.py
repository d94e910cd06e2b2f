"""Functions of Python's ``math``, ``min`` and ``max``, and NumPy's of the same meaning, on numbers of a captured step.

C code asks a number for its digits, and a step that gives them away holds for these digits only. So while a function
is captured, these functions are replaced by ones that record what they compute of traced numbers and pass on
everything else. Where Python raises an error (``math.sqrt(-1.0)``), the step asks whether this is such a case, unless
the number's range tells.
"""

from __future__ import annotations

import builtins
import functools
import math
import operator
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from autojit.core.dtypes import float64, int64
from autojit.core.process_changes import WhileInside
from autojit.core.sizes import is_symbolic
from autojit.dispatch.dispatch import number
from autojit.functions import comparison as comparison
from autojit.functions import elementwise as elementwise
from autojit.functions import special as special
from autojit.jit import number_powers as number_powers
from autojit.jit.exact_numbers import is_wide
from autojit.jit.number_ranges import Range, compared
from autojit.jit.python_errors import is_sure
from autojit.jit.traced_number import WHEN_MADE, TracedNumber, span_of
from autojit.runtime.entry_spec import MISSING
from autojit.tensor.state import grad_mode, state
from autojit.tensor.tensor import Tensor

_LARGEST_EXPONENT = math.log(np.finfo(np.float64).max)  # above it ``math.exp`` overflows
_LEAST_POSITIVE = 5e-324


class Rule(NamedTuple):
    """How a function of a float is computed in a step: a float, without an error from ``low`` to ``high``."""

    function: Callable[..., Any]
    low: float = -math.inf
    high: float = math.inf
    is_increasing: bool = False
    needs_finite: bool = False  # infinity is an error
    values: Range = Range()


_UNIT = Range(-1.0, 1.0)
_EXP: dict[str, Any] = {"high": _LARGEST_EXPONENT, "is_increasing": True}
RULES: dict[str, Rule] = {
    "sqrt": Rule(elementwise.sqrt, low=0.0, is_increasing=True),
    "exp": Rule(elementwise.exp, **_EXP, values=Range(0.0)),
    "expm1": Rule(elementwise.expm1, **_EXP, values=Range(-1.0)),
    "exp2": Rule(elementwise.exp2, high=1023.9, is_increasing=True, values=Range(0.0)),
    "log": Rule(elementwise.log, low=_LEAST_POSITIVE, is_increasing=True),
    "log2": Rule(elementwise.log2, low=_LEAST_POSITIVE, is_increasing=True),
    "log10": Rule(elementwise.log10, low=_LEAST_POSITIVE, is_increasing=True),
    "log1p": Rule(elementwise.log1p, low=math.nextafter(-1.0, 0.0), is_increasing=True),
    "sin": Rule(elementwise.sin, needs_finite=True, values=_UNIT),
    "cos": Rule(elementwise.cos, needs_finite=True, values=_UNIT),
    "tan": Rule(elementwise.tan, needs_finite=True),
    "asin": Rule(elementwise.asin, low=-1.0, high=1.0, is_increasing=True),
    "acos": Rule(elementwise.acos, low=-1.0, high=1.0, values=Range(0.0, math.pi)),
    "atan": Rule(elementwise.atan, is_increasing=True, values=Range(-2.0, 2.0)),
    "sinh": Rule(elementwise.sinh, low=-_LARGEST_EXPONENT, high=_LARGEST_EXPONENT, is_increasing=True),
    "cosh": Rule(elementwise.cosh, low=-_LARGEST_EXPONENT, high=_LARGEST_EXPONENT, values=Range(1.0)),
    "tanh": Rule(elementwise.tanh, is_increasing=True, values=_UNIT),
    "fabs": Rule(elementwise.abs, values=Range(0.0)),
    "erf": Rule(special.erf, values=_UNIT),
    "erfc": Rule(special.erfc, values=Range(0.0, 2.0)),
}
_OF_ARRAYS = {"arcsin": "asin", "arccos": "acos", "arctan": "atan", "absolute": "fabs"}


def traced_function(name: str, x: TracedNumber, original: Callable[..., Any] | None) -> Any:
    """A function of ``math`` on a traced number; ``original`` raises Python's error, None: NumPy's rules, NaN."""
    rule = RULES[name]
    span = x.span
    if original is not None:
        if not _is_defined(rule, x, original):
            return original(x.concrete())
        is_asked = rule.needs_finite or rule.low > -math.inf or rule.high < math.inf
        span = Range(max(span.low, rule.low), min(span.high, rule.high), span.has_nan and not is_asked)
    values = Range(rule.values.low, rule.values.high, original is None or span.has_nan)
    if rule.is_increasing and original is not None:
        known = span.image(getattr(math, name))
        values = Range(max(values.low, known.low), min(values.high, known.high), values.has_nan)
    with grad_mode(False):
        return TracedNumber(x.trace, rule.function(x.as_operand().to(float64)), float, values)


def _is_defined(rule: Rule, x: TracedNumber, original: Callable[..., Any]) -> bool:
    """Whether Python raises nothing for the number: by its range, by what the step requires, or else as it decides."""
    span, number = x.span, x.tensor
    if span.low < rule.low:
        below = partial(original, min(2 * rule.low, rule.low - 1))
        if not (
            is_sure(x.trace, lambda: _inside(number < rule.low, number, -math.inf, original), below) or x >= rule.low
        ):
            return False
    if span.high > rule.high:
        above = partial(original, max(2 * rule.high, rule.high + 1))
        if not (
            is_sure(x.trace, lambda: _inside(number > rule.high, number, math.inf, original), above) or x <= rule.high
        ):
            return False
    if not rule.needs_finite or span.is_finite:
        return True
    is_finite = is_sure(x.trace, lambda: number.isinf().logical_not(), partial(original, math.inf))
    return is_finite or (-math.inf < x and x < math.inf)


def _inside(is_beyond: Tensor, number: Tensor, end: float, original: Callable[..., Any]) -> Tensor:
    """Whether a number is not beyond a bound, or is the ``end`` of all numbers, of which the function gives one."""
    try:
        original(end)
    except (ValueError, OverflowError):
        return is_beyond.logical_not()
    return is_beyond.logical_not() | (number == end)


def _is_traced(x: object) -> bool:
    return isinstance(x, TracedNumber) or is_symbolic(x) or (isinstance(x, Tensor) and x._array is None)


def _number(x: object) -> Any:
    """An open size, or a tensor of one element, as a number that a step computes."""
    if is_symbolic(x):
        assert state.trace is not None
        return state.trace.size_number(x)
    return x.item() if isinstance(x, Tensor) else x


def _instead(original: Callable[..., Any], count: int, ours: Callable[..., Any]) -> Callable[..., Any]:
    """``original``, which ``ours`` does for so many arguments with traced numbers among them."""

    @functools.wraps(original)
    def replaced(*args: object) -> Any:
        is_ours = state.trace is not None and len(args) == count and any(map(_is_traced, args))
        return ours(*args) if is_ours else original(*args)

    return replaced


def _of_number(original: Callable[..., Any], function: Callable[[TracedNumber], Any]) -> Callable[..., Any]:
    """A function or a question of one number, which ``function`` computes in a step."""

    def ours(x: object) -> Any:
        x = _number(x)
        return function(x) if isinstance(x, TracedNumber) else original(x)

    return _instead(original, 1, ours)


def _power(x: Any, y: Any) -> Any:
    x, y = _number(x), _number(y)
    if isinstance(x, int) and x > 0:
        x = float(x)
    return x**y * 1.0


def _of_two(original: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    def ours(*numbers: object) -> TracedNumber:
        a, b = map(_number, numbers)
        made_by = a if isinstance(a, TracedNumber) else b
        with grad_mode(False):
            return TracedNumber(made_by.trace, function(number(a, float64), number(b, float64)), float)

    return _instead(original, 2, ours)


def _choice(original: Callable[..., Any], relation: str) -> Callable[..., Any]:
    """``min`` or ``max`` of numbers of one kind: chosen in the step, where ``if`` would split it."""

    @functools.wraps(original)
    def replaced(*values: object, **options: object) -> Any:
        is_traced = TracedNumber in map(type, values)
        if is_traced and len(values) > 1 and not options and len({_kind(v) for v in values} | {None}) == 2:
            return functools.reduce(lambda a, b: _chosen(a, b, relation), values)
        return original(*values, **options)

    return replaced


def _kind(x: object) -> Any:
    if isinstance(x, TracedNumber):
        return x.kind
    return type(x) if type(x) in (int, float) else object()


def _chosen(a: Any, b: Any, relation: str) -> Any:
    """``b`` if it is less (greater) than ``a``, else ``a``."""
    spans = span_of(a), span_of(b)
    known = compared(relation, spans[1], spans[0])
    if known is not None:
        return b if known else a
    made_by = a if isinstance(a, TracedNumber) else b
    dtype = float64 if made_by.kind is float else int64
    fold = min if relation == "lt" else max
    span = Range(fold(spans[0].low, spans[1].low), fold(spans[0].high, spans[1].high), any(s.has_nan for s in spans))
    with grad_mode(False):
        if is_wide(a) or is_wide(b):
            return b if (b < a if relation == "lt" else b > a) else a
        x, y = number(a, dtype), number(b, dtype)
        takes = y < x if relation == "lt" else y > x
        return TracedNumber(made_by.trace, comparison.where(takes, y, x), made_by.kind, span)


def _length(original: Callable[[Any], int]) -> Callable[..., Any]:
    """``len``, which as C code would take the digits of a length that is open."""

    @functools.wraps(original)
    def replaced(x: object, /) -> int:
        if isinstance(x, Tensor) and type(x).__len__ is Tensor.__len__:
            return x.__len__()
        return original(x)

    return replaced


def _replacements() -> dict[str, Callable[..., Any]]:
    known = {name: getattr(math, name) for name in RULES if hasattr(math, name)}
    made = {name: _of_number(f, partial(traced_function, name, original=f)) for name, f in known.items()}
    log = made["log"]
    made["log"] = _instead(log, 2, lambda x, base: log(x) / log(base))
    made["pow"] = _instead(math.pow, 2, _power)
    made["atan2"] = _of_two(math.atan2, elementwise.atan2)
    made["hypot"] = _of_two(math.hypot, elementwise.hypot)
    made["isfinite"] = _of_number(math.isfinite, lambda x: x.span.is_finite or (-math.inf < x and x < math.inf))
    made["isinf"] = _of_number(math.isinf, lambda x: not x.span.is_finite and abs(x) == math.inf)
    made["isnan"] = _of_number(math.isnan, lambda x: not x.span.is_finite and x != x)
    return made


_REPLACED: list[tuple[ModuleType, dict[str, Callable[..., Any]]]] = [
    (math, _replacements()),
    (builtins, {"min": _choice(min, "lt"), "max": _choice(max, "gt"), "len": _length(len)}),
]
INSTEAD = {getattr(module, name): made[name] for module, made in _REPLACED for name in made}
"""By the functions themselves, which code may have fetched before the first number of the step was made."""
REPLACED_TABLES = frozenset(id(vars(module)) for module, _ in _REPLACED)
"""Namespaces that captures themselves change, and change back."""
_originals: list[dict[str, Callable[..., Any]]] = []


class _Captures(threading.local):
    """Of this thread, the innermost last: whether there have been traced numbers in it."""

    met: list[bool]

    def __init__(self) -> None:
        self.met = []


_captures = _Captures()


@contextmanager
def traced_math(has_numbers: bool) -> Iterator[None]:
    """Inside, from the first traced number on, ``math``, ``min`` and ``max`` know traced numbers.

    ``has_numbers``: there are some before it begins. A capture without such numbers leaves the modules alone. Captures
    in several threads may overlap.
    """
    _captures.met.append(False)
    try:
        if has_numbers:
            _meet()
        yield
    finally:
        if _captures.met.pop():
            _numbers.leave()


def _meet() -> None:
    """There is a traced number in the innermost capture of this thread."""
    met = _captures.met
    if not met or met[-1]:
        return
    met[-1] = True
    _numbers.enter()


def _replace() -> None:
    _originals[:] = [{name: getattr(module, name) for name in made} for module, made in _REPLACED]
    for module, made in _REPLACED:
        vars(module).update(made)


def _restore() -> None:
    for (module, made), before in zip(_REPLACED, _originals, strict=True):
        present = vars(module)
        present.update({name: before[name] for name in made if present.get(name) is made[name]})


def untraced(module: ModuleType, name: str) -> Any:
    """What a module holds under a name, outside of captures."""
    value = vars(module).get(name, MISSING)
    pairs = zip(_REPLACED, _originals, strict=False)
    return next((before[name] for (known, made), before in pairs if known is module and made.get(name) is value), value)


_numbers = WhileInside(_replace, _restore)
plain_math = _numbers.put_back
"""A context for a compiler that knows ``math``, ``min`` and ``max`` by identity: inside they are Python's own."""

WHEN_MADE.append(_meet)


_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add, "subtract": operator.sub, "multiply": operator.mul, "divide": operator.truediv,
    "power": operator.pow, "less": operator.lt, "less_equal": operator.le, "greater": operator.gt,
    "greater_equal": operator.ge, "equal": operator.eq, "not_equal": operator.ne,
}  # fmt: skip


def _array_ufunc(self: TracedNumber, ufunc: np.ufunc, method: str, *inputs: Any, **options: object) -> Any:
    """A NumPy function of numbers, some of them traced; with arrays the digits are used."""
    name = _OF_ARRAYS.get(ufunc.__name__, ufunc.__name__)
    if method == "__call__" and not options and not any(isinstance(x, np.ndarray) and x.ndim for x in inputs):
        numbers = [x.item() if isinstance(x, np.ndarray | np.generic) else x for x in inputs]
        if len(numbers) == 1 and name in RULES:
            return traced_function(name, numbers[0], None)
        if len(numbers) == 2 and name in _OPERATORS:
            return _OPERATORS[name](*numbers)
    digits = [x.concrete() if isinstance(x, TracedNumber) else x for x in inputs]
    return getattr(ufunc, method)(*digits, **options)


setattr(TracedNumber, "__array_ufunc__", _array_ufunc)  # noqa: B010  # this module knows the functions
