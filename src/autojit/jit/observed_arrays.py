"""What users' code does with arrays of the step, as the hooks of instrumented code tell it (see ``numpy_arrays.py``).

To autojit's own code an array is a tensor and NumPy's numbers are numbers; users' functions get it as it is; NumPy's
functions, operators, items and attributes are those of arrays. What else an array goes into could look at it in any
way: such calls run line by line.
"""

from __future__ import annotations

import builtins
import math
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from autojit.core.ports import ports
from autojit.core.source import is_own
from autojit.core.wrapping import own
from autojit.dispatch.dispatch import value_of
from autojit.history.recording import shows_grad
from autojit.jit.guards import WordsGuard
from autojit.jit.numpy_arrays import (
    DTYPES,
    OfNumPy,
    TracedArray,
    as_operand,
    called,
    digits,
    followed,
    holds_arrays,
    number_of,
    plain,
    refused,
)
from autojit.jit.numpy_methods import ArrayMethod, ArrayOperand, cast, item, rows
from autojit.jit.observed_functions import is_module, is_own_class, is_user_class, is_users, plain_function
from autojit.jit.places import is_a
from autojit.jit.pytree import flatten
from autojit.jit.traced_number import TracedNumber
from autojit.tensor.state import outside_trace, state
from autojit.tensor.tensor import Tensor, alias, type_of

if TYPE_CHECKING:
    from autojit.jit.observed_calls import ObservedCalls
    from autojit.jit.trace import Trace

_AS_USUAL = (getattr, hasattr, setattr, print, len, enumerate, zip, tuple, list, dict, reversed, iter, next, partial,
             SimpleNamespace, OrderedDict, defaultdict, deque, range, slice)  # fmt: skip
_OF_ARRAYS = (getattr, hasattr, setattr, print, len, partial, SimpleNamespace, range, slice)  # of an array itself
_HOLDING = frozenset(("append", "appendleft", "insert", "setdefault", "get", "update", "__setitem__"))
_BY_KEY = frozenset(("insert", "setdefault", "get", "__setitem__"))
_NUMBERS = (float, int, bool, complex)
TO_NUMPY: Any = plain_function(Tensor.numpy)
_OF_MEMORY = frozenset(("from_numpy", "from_dlpack"))
_ARRAY_MAKERS = frozenset(("tensor", "as_tensor", "asarray", "from_numpy", "from_dlpack"))


class ObservedArrays:
    """The arrays of one capture, as its observer meets them."""

    def __init__(self, observer: ObservedCalls) -> None:
        self.observer = observer
        self.are_there = False  # whether any has entered: else nobody looks for them

    @contextmanager
    def followed(self, trace: Trace) -> Iterator[None]:
        """While the function of a capture runs.

        Raises:
            OfNumPy: it did something that only NumPy can, whatever became of that in the function.
        """
        self.are_there = bool(trace.arrays)
        refusal: Any = None
        try:
            yield
        except BaseException as error:
            refusal = trace.given_up or error
            if not isinstance(refusal, OfNumPy):
                raise
        finally:
            for array in trace.arrays:
                array.shadow = None
        refusal = refusal or trace.given_up
        if isinstance(refusal, OfNumPy):
            guards = self.observer.all_guards()  # except for code: a capture that is not tried again is not a fault
            refusal.guards = [guard for guard in guards if not isinstance(guard.native, WordsGuard)]
            refusal.asked = refusal
            raise refusal

    def taken(self, t: Tensor, numpy: Callable[..., Any], **given: object) -> Any:
        """The array of a tensor (``t.numpy()``): of what the step computes one of the step, else what eager mode gives.

        ``numpy``: the function that is called, with what it is ``given``.
        """
        trace: Any = state.trace
        is_traced = trace is not None and not trace.runs_often and type(t) is Tensor and t._value is not None
        if given or not is_traced or not trace.is_fresh(t):
            return numpy(**given)
        if shows_grad(t) or type_of(t).dtype.numpy not in DTYPES:
            return numpy()
        self.are_there = True
        return followed(trace, alias(t.detach()), trace.evaluate(value_of(t)).copy())

    def taken_by(self, function: Callable[..., Any], t: Tensor, **options: object) -> Any:
        """The same by a function of NumPy's: ``np.asarray(t)``, and ``np.array(t)``, which copies."""
        if options:
            return function(t, **options)
        return self.taken(t.clone() if function is np.array else t, lambda: function(t))

    def instead(self, function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
        """What is called instead of a function that is given arrays; NotImplemented: what else is known of it."""
        if function is builtins.len:
            return NotImplemented
        if type(function) is ArrayMethod:
            self.observer.contents.escape(tuple(arguments))
            return None
        trace: Any = state.trace
        if trace is not None and (function is isinstance or function is type):
            trace.looks_at_arrays = True  # a call that runs line by line is given the arrays themselves
        if function is isinstance:
            return lambda value, kind: isinstance(value.shadow if type(value) is TracedArray else value, kind)
        if function is type and len(arguments) == 1:
            return lambda array: type(array.shadow)
        if function in (abs, *_NUMBERS) if is_a(function, type | BuiltinFunctionType) else False:
            return partial(_number, function)
        if _is_numpys(function):
            self.observer.contents.escape(tuple(arguments))
            return partial(_of_numpy, function)
        is_made_by_user = is_a(function, type) and is_user_class(function)
        if function is partial or is_user_class(type(function)) or is_users(function) or is_made_by_user:
            return NotImplemented
        module = own(function, "__module__", "")  # also of those that stand for them while a capture has numbers
        if module == "math":
            return partial(_of_math, function)
        if module != "builtins" and _is_autojits(function):
            return self._of_autojit(function, arguments)
        return self._held(function, arguments)

    def _held(self, function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
        """Functions that only hold what they are given, or that the observer knows."""
        is_itself = any(type(argument) is TracedArray for argument in arguments)
        known = _OF_ARRAYS if is_itself else _AS_USUAL
        if own(function, "__name__", "") in ("min", "max") and all(map(_is_number, arguments)):
            return NotImplemented  # Python chooses by comparing
        owner = own(function, "__self__", None)
        is_holding = is_a(owner, list | dict | deque) and function.__name__ in _HOLDING
        if type(arguments[0]) is TracedArray and function is setattr:
            raise refused("setattr()")
        if type(arguments[0]) is TracedArray and is_holding and function.__name__ in _BY_KEY:
            inner = self.observer.replacement(function, [_digits(arguments[0]), *arguments[1:]]) or function
            return lambda key, *rest: inner(_digits(key), *rest)
        if is_holding or any(function is one for one in known):
            return NotImplemented
        raise refused(f"{own(function, '__name__', type(function).__name__)}()")

    def _of_autojit(self, function: object, arguments: Sequence[Any]) -> Any:
        """Arrays are tensors and NumPy's numbers are numbers, except for layers, which may be made of users'."""
        owner = own(function, "__self__", None)
        if is_a(function, FunctionType | MethodType) and not is_a(owner, Tensor):
            leaves, _ = flatten(list(arguments))
            if any(map(is_module, leaves)):
                return NotImplemented
            if (is_a(owner, type) and is_user_class(owner)) or any(
                callable(leaf) and not is_a(leaf, Tensor | type) for leaf in leaves
            ):
                raise refused(f"{function.__name__}() of a function")
        if not is_a(function, FunctionType | MethodType | BuiltinFunctionType | type) or hasattr(owner, "forward"):
            return NotImplemented  # a layer
        convert: Callable[[Any], Any] = as_operand
        if own(function, "__name__", "") in _OF_MEMORY:
            convert = partial(_shown, function)
        elif own(function, "__name__", "") in _ARRAY_MAKERS:
            convert = lambda value: plain(value) if type(value) is TracedArray else value
        leaves, tree = flatten(list(arguments))
        if own(function, "__name__", "") in _OF_MEMORY and any(type(x) is TracedArray and x.is_scalar for x in leaves):
            raise refused(f"{function.__name__}()")  # which refuses numbers
        changed = [convert(leaf) for leaf in leaves]
        inner = self.observer.replacement(function, tree.unflatten(changed)) or function

        def converted(*args: object, **kwargs: object) -> Any:
            leaves, tree = flatten((args, kwargs))
            args, kwargs = tree.unflatten([convert(leaf) for leaf in leaves])
            return inner(*args, **kwargs)

        return converted

    # -- what instructions do

    def two(self, left: object, right: object) -> tuple[Any, Any]:
        """The operands of an operator or a comparison, one of them an array, as they are to be given to it."""
        if is_a(left, str | bytes | list | tuple | dict) or is_a(right, list | tuple | dict):
            raise refused("an operator with a container")
        for value in (left, right):
            if type(value) is not TracedArray and not is_a(value, np.ndarray):  # those are followed as state
                self.observer.contents.looked_at(value)
        with_tensor = any(is_a(x, Tensor) and type(x) is not TracedArray for x in (left, right))
        change: Callable[[Any], Any] = as_operand if with_tensor else _operand
        return change(left), change(right)

    def in_place(self, left: object, right: object) -> tuple[Any, Any]:
        """Those of an operator in place."""
        if is_a(left, list | np.ndarray) or (type(left) is TracedArray and not left.is_scalar):
            raise refused("a change in place")
        return self.two(left, right)

    def item(self, container: object, key: object) -> Any:
        """``container[key]``, where one is an array, or holds some."""
        if type(container) is TracedArray:
            return item(container, key)
        if is_a(container, Tensor):
            return container[_key(key)]
        return self.observer.item(container, _digits(key))

    def takes_part(self, left: object, right: object) -> bool:
        """Whether an operand is an array of the step; a number of it and a scalar of NumPy's give such a one."""
        numbers = type(left) is TracedNumber or type(right) is TracedNumber
        if numbers and (isinstance(left, np.generic) or isinstance(right, np.generic)):
            self.are_there = True
            return True
        return self.are_there and (type(left) is TracedArray or type(right) is TracedArray)

    def operand(self, value: object) -> Any:
        """The operand of a unary operator."""
        return ArrayOperand(value) if is_a(value, TracedArray) else value

    def iterated(self, value: object) -> Any:
        """Something that is walked: an array gives its rows."""
        return rows(value) if is_a(value, TracedArray) else value

    def assigned(self, container: object, key: object, value: object) -> tuple[Any, Any]:
        """The key and the value of ``container[key] = value``."""
        if not self.are_there:
            return key, value
        if type(container) is TracedArray:
            raise refused("a change in place")
        if is_a(container, Tensor):
            return _key(key), as_operand(value)
        return _digits(key), value

    def identified(self, left: object, right: object) -> None:
        """``left is right``."""
        if type(left) is TracedArray and type(right) is TracedArray and left is not right:
            raise refused("the identity")

    def refuse(self, what: str, *values: object) -> None:
        """OfNumPy, if there is an array among these."""
        if self.are_there and any(map(holds_arrays, values)):
            raise refused(what)


def _shown(function: Callable[..., Any], value: object) -> Any:
    """What ``from_numpy`` is given for an array: a tensor on its memory, unless it refuses an array of that layout."""
    if type(value) is not TracedArray:
        return value
    trace: Any = state.trace
    trace.looks_at_arrays = True  # a call that runs line by line is refused as well
    with outside_trace():
        function(value.shadow)
    return plain(value)


def _operand(value: object) -> Any:
    return ArrayOperand(value) if type(value) is TracedArray or isinstance(value, np.generic) else value


def _is_number(value: object) -> bool:
    return value.is_scalar if type(value) is TracedArray else is_a(value, int | float)


def _digits(key: object) -> Any:
    """What a container is indexed by, which needs its value; only scalars have one to look for."""
    if type(key) is TracedArray:
        if not key.is_scalar:
            raise refused("an item by it")
        return digits(key)
    if isinstance(key, slice):
        return slice(_digits(key.start), _digits(key.stop), _digits(key.step))
    return tuple(map(_digits, key)) if type(key) is tuple else key


def _key(key: object) -> Any:
    if type(key) is tuple:
        return tuple(map(_key, key))
    if isinstance(key, slice):
        return slice(as_operand(key.start), as_operand(key.stop), as_operand(key.step))
    return as_operand(key)


def _number(function: Callable[..., Any], array: TracedArray) -> Any:
    if function is abs:
        return called(np.absolute, (array,), {})
    if function is bool:
        return bool(array)
    if array.shadow.size != 1 or array.shadow.ndim or array.shadow.dtype.kind == "b":
        raise refused(f"{function.__name__}()")
    number = number_of(array) if array.is_scalar else plain(array).item()
    return number if type(number) is TracedNumber and number.kind is function else function(number)


def _of_math(function: Callable[..., Any], *arguments: object) -> Any:
    if not all(a.is_scalar and a.shadow.dtype.kind in "if" for a in arguments if type(a) is TracedArray):
        raise refused(f"math.{function.__name__}()")
    numbers = [number_of(a) if type(a) is TracedArray else a for a in arguments]
    return getattr(math, function.__name__)(*numbers)  # which knows traced numbers from now on


def _is_numpys(function: object) -> bool:
    if isinstance(function, np.ufunc) or (is_a(function, type) and issubclass(function, np.generic)):
        return True
    return str(own(function, "__module__", "")).partition(".")[0] == "numpy" and (
        ports.numpy.form(function) is not None or own(function, "__self__", None) is None
    )


def _of_numpy(function: Callable[..., Any], *args: object, **kwargs: object) -> Any:
    if is_a(function, type):
        if len(args) != 1 or kwargs or type(args[0]) is not TracedArray:
            raise refused(f"np.{function.__name__}()")
        return cast(function, args[0])
    return called(function, args, kwargs)


def _is_autojits(function: object) -> bool:
    plain = plain_function(function)
    if plain is not None:
        return is_own(plain.__code__)
    owner = own(function, "__self__", None)
    return is_own_class(function if is_a(function, type) else type(function)) or is_a(owner, Tensor)
