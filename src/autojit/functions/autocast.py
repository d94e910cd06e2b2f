"""Mixed precision: while ``state.autocast`` is set, products compute in a narrower dtype and some functions in float32.

A function of either list starts with ``if state.autocast is not None: return state.autocast.lower(..)``, or is
decorated where a call takes long or has many arguments; ops know nothing of it. What runs inside such a function is not
cast again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from autojit.core.device import CPU
from autojit.core.dtypes import DType, bfloat16, float16, float32
from autojit.core.source import relay
from autojit.dispatch.promotion import cast
from autojit.functions.argument_errors import raise_for_kinds
from autojit.functions.method_forms import called_like
from autojit.tensor.state import state
from autojit.tensor.tensor import Tensor, type_of

R = TypeVar("R")

F = TypeVar("F", bound=Callable[..., Any])

_ELIGIBLE = frozenset({float16, bfloat16, float32})  # float64 and complex numbers stay as they are


class Mode:
    """What ``state.autocast`` holds: the narrower dtype per kind of device. Equal modes give equal steps."""

    __slots__ = ("dtypes",)

    def __init__(self, dtypes: Mapping[str, DType]) -> None:
        self.dtypes = tuple(sorted(dtypes.items()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mode) and other.dtypes == self.dtypes

    def __hash__(self) -> int:
        return hash(tuple([(kind, dtype.name) for kind, dtype in self.dtypes]))

    def lower(self, function: Callable[..., R], *arguments: object, **options: object) -> R:
        """Call a function with its floats in the narrower dtype of their device."""
        return _call(function, arguments, options, dict(self.dtypes).get(_kind_among((*arguments, *options.values()))))

    def full(self, function: Callable[..., R], *arguments: object, **options: object) -> R:
        """Call a function with its floats in float32, where the mode is on for their device."""
        is_on = _kind_among((*arguments, *options.values())) in dict(self.dtypes)
        return _call(function, arguments, options, float32 if is_on else None)

    def is_on_device(self, *arguments: object) -> bool:
        """Whether operands are on CUDA and the mode is on there: torch's lists for it are longer than for the CPU."""
        kind = _kind_among(arguments)
        return kind != CPU.type and kind in dict(self.dtypes)

    def full_on_devices(self, function: Callable[..., R], *arguments: object, **options: object) -> R:
        """Call a function with its floats in float32 on CUDA devices alone, and as it is on the CPU."""
        if self.is_on_device(*arguments, *options.values()):
            return self.full(function, *arguments, **options)
        return function(*arguments, **options)

    def lower_on_devices(self, function: Callable[..., R], *arguments: object, **options: object) -> R:
        """Call a function with its floats in the narrower dtype on CUDA devices alone, and as it is on the CPU."""
        if self.is_on_device(*arguments, *options.values()):
            return self.lower(function, *arguments, **options)
        return function(*arguments, **options)


def _kind_among(given: Iterable[object]) -> str:
    """The kind of device of the first tensor."""
    for value in given:
        if isinstance(value, Tensor):
            return type_of(value).device.type
        if isinstance(value, list | tuple) and any(isinstance(item, Tensor) for item in value):
            return _kind_among(value)
    return CPU.type


def _call(function: Callable[..., R], arguments: tuple[Any, ...], options: dict[str, Any], dtype: DType | None) -> R:
    before, state.autocast = state.autocast, None
    try:
        if dtype is None:
            return function(*arguments, **options)
        given = [converted(value, dtype) for value in arguments]
        return function(*given, **{name: converted(value, dtype) for name, value in options.items()})
    finally:
        state.autocast = before


def converted(value: Any, dtype: DType) -> Any:
    """A tensor, or those in a list or tuple, in a dtype, where mixed precision applies to them."""
    if isinstance(value, Tensor):
        return cast(value, dtype) if type_of(value).dtype in _ELIGIBLE else value
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return type(value)([converted(item, dtype) for item in value])
    return value


def in_full_precision(function: F) -> F:
    """The function, which computes in float32 where mixed precision is on."""
    return _converting(function, Mode.full)


def in_full_precision_on_devices(function: F) -> F:
    """The function, which computes in float32 where mixed precision is on for CUDA: torch's list for it is longer."""
    return _converting(function, Mode.full_on_devices)


def in_lower_precision_on_devices(function: F) -> F:
    """The function, which computes in the narrower dtype where mixed precision is on for CUDA."""
    return _converting(function, Mode.lower_on_devices)


def in_lower_precision(function: F) -> F:
    """The function, which computes in the narrower dtype where mixed precision is on."""
    return _converting(function, Mode.lower)


def _converting(function: F, precision: Callable[..., Any]) -> F:
    def call(*arguments: object, **options: object) -> Any:
        try:
            if state.autocast is None:
                return function(*arguments, **options)
            return precision(state.autocast, function, *arguments, **options)
        except Exception as error:
            if (redone := raise_for_kinds(function, arguments, options, error)) is not None:
                return redone[0]
            raise

    relay(call)
    return called_like(function, call)
