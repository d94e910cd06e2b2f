"""Functions, methods and their like that a step makes and lets out, taken apart: how they are made, and their state.

Every run of ``def f(): ...`` makes a function with cells of its own, so every call of a step does, too; what it closes
over, its defaults and its attributes are those of that call. Cells that several functions share stay shared.
"""

from __future__ import annotations

import sys
import types
import weakref
from collections import deque
from collections.abc import Iterator, Mapping
from types import BuiltinFunctionType, CellType, CodeType, FrameType, FunctionType, MethodType
from typing import Any

from autojit.core.errors import TraceError
from autojit.core.source import here
from autojit.core.wrapping import own
from autojit.jit.instrumented_code import as_written, is_instrumented
from autojit.jit.observed_functions import ObservedFunctions, is_module, is_user_class
from autojit.jit.places import attributes_of, cell_content, is_a
from autojit.jit.pytree import flatten
from autojit.jit.traced_number import TracedNumber
from autojit.runtime.entry_spec import MISSING
from autojit.tensor.tensor import Tensor

is_made_inside = ObservedFunctions.is_made_inside
_CONTAINERS = (list, dict, set, deque, str)


class _Function:
    """Makes functions with the code of one, on cells that it is given."""

    def __init__(self, function: FunctionType) -> None:
        self._code = as_written(function.__code__)
        self._globals, self._name = function.__globals__, function.__name__
        names = ("__qualname__", "__module__", "__doc__", "__annotations__", "__type_params__")
        self._more = {name: getattr(function, name) for name in names if hasattr(function, name)}

    def __call__(self, *cells: CellType) -> FunctionType:
        made = FunctionType(self._code, self._globals, self._name, None, cells)
        for name, value in self._more.items():
            setattr(made, name, dict(value) if type(value) is dict else value)
        return made


def reduced(value: object, outside: Mapping[int, Any]) -> tuple[Any, tuple[Any, ...], Any] | None:
    """(function, its arguments, state) for a value of these kinds that the step has made; None for all others."""
    if is_a(value, MethodType) and _is_made(value.__self__, outside):
        return MethodType, (value.__func__, value.__self__), None
    if is_a(value, BuiltinFunctionType) and type(value.__self__) in _CONTAINERS and id(value.__self__) not in outside:
        return getattr, (value.__self__, value.__name__), None
    if type(value) is FunctionType and (is_made_inside(value) or holds_of_step(value, outside)):
        cells = value.__closure__ or ()
        contents = [(k, cell_content(cell)) for k, cell in enumerate(cells) if id(cell) not in outside]
        filled = tuple([(k, content) for k, content in contents if content is not MISSING])
        return _Function(value), cells, (value.__defaults__, value.__kwdefaults__, vars(value), filled)
    if type(value) is CellType:
        return CellType, (), None
    if type(value) in (property, staticmethod, classmethod) and holds_of_step(value, outside):
        return type(value), tuple(_behind(value)), None
    if is_a(value, weakref.ref) and _is_made(value(), outside) and own(value, "__callback__", None) is None:
        return weakref.ref, (value(),), None
    return None


def give_function_state(made: FunctionType, state: tuple[Any, ...]) -> None:
    """What a function has besides its code: defaults, attributes, and what its cells hold."""
    defaults, named, attributes, contents = state
    made.__defaults__, made.__kwdefaults__ = defaults, named
    made.__dict__.update(attributes)
    for place, content in contents:
        made.__closure__[place].cell_contents = content  # type: ignore[index]


def _is_made(owner: object, outside: Mapping[int, Any]) -> bool:
    """Whether the object of a method is one that every call makes again."""
    if is_a(owner, Tensor):
        return owner._array is None
    if owner is None or id(owner) in outside or is_a(owner, type | types.ModuleType) or is_module(owner):
        return False
    return is_a(owner, TracedNumber) or is_user_class(type(owner)) or holds_of_step(owner, outside)


def holds_of_step(value: object, outside: Mapping[int, Any]) -> bool:
    """Whether tensors or numbers of the step are behind a function, a method, a class or a plain object."""
    seen = {id(value)}
    waiting = list(_behind(value))
    while waiting:
        for leaf in flatten(waiting.pop())[0]:
            if is_a(leaf, TracedNumber) or (is_a(leaf, Tensor) and leaf._array is None):
                return True
            is_known = id(leaf) in outside and not (type(leaf) is FunctionType and is_made_inside(leaf))
            if not is_known and id(leaf) not in seen:
                seen.add(id(leaf))
                waiting += _behind(leaf)
    return False


def _behind(value: Any) -> Iterator[Any]:
    """What an object holds that was made together with it."""
    if type(value) is FunctionType:
        if is_made_inside(value) or "<locals>" in value.__qualname__:
            yield from (cell_content(cell) for cell in value.__closure__ or ())
            yield from (value.__defaults__, value.__kwdefaults__, vars(value))
    elif is_a(value, MethodType):
        yield from (value.__func__, value.__self__)
    elif type(value) in (staticmethod, classmethod):
        yield value.__func__
    elif is_a(value, property):
        yield from (value.fget, value.fset, value.fdel)
    elif is_a(value, type):
        if "<locals>" in value.__qualname__:
            yield dict(vars(value))
    elif is_module(value):
        yield from (*value.parameters(), *value.buffers())
    elif not is_a(value, types.ModuleType):
        yield attributes_of(value)


def as_made(function: Any, outside: Mapping[int, Any]) -> Any:
    """A function that is called when the step runs: one that the step makes keeps what it closes over now.

    Variables of enclosing functions that are not part of the step stay shared.

    Raises:
        TraceError: it closes over tensors or numbers of the step.
    """
    if type(function) is not FunctionType or not is_made_inside(function):
        return function
    if holds_of_step(function, outside):
        raise TraceError(
            "a function that is called from the step closes over a tensor of the step",
            {"function": function.__qualname__, "at": here()},
            "give it the tensor as an argument",
        )
    names = as_written(function.__code__).co_freevars
    cells = [
        CellType(cell_content(cell)) if _is_of_step(name) and cell_content(cell) is not MISSING else cell
        for name, cell in zip(names, function.__closure__ or (), strict=True)
    ]
    made: FunctionType = _Function(function)(*cells)
    made.__defaults__, made.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
    made.__dict__.update(vars(function))
    return made


def _is_of_step(name: str) -> bool:
    """Whether a variable that a function of the step closes over is one of the step's own functions."""
    codes: list[CodeType] = []
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if is_instrumented(frame.f_code):
            codes.append(frame.f_code)
        frame = frame.f_back
    return any(name in code.co_cellvars for code in codes) or not any(name in code.co_freevars for code in codes)
