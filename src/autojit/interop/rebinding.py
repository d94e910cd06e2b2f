"""NumPy programs as they are, with tensors for the arrays they make."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import CellType, FunctionType
from typing import Any

import numpy as np

from autojit import numpy as over_tensors
from autojit.interop.numpy_creation import MAKERS


def on_tensors(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function written for NumPy, reading ``autojit.numpy`` wherever it names NumPy.

    So ``np.zeros(n)`` makes a tensor, and what slices assign to it keeps its gradient. Functions of the same module
    that it calls are read alike; those of other modules are not. Globals are read as they are now.

    Raises:
        TypeError: not a function written in Python.

    Example:
        >>> import autojit as aj
        >>> import numpy as np
        >>> def smoothed(x):
        ...     y = np.zeros(len(x))
        ...     y[1:] = (x[1:] + x[:-1]) / 2
        ...     return y
        >>> aj.func.jacrev(aj.interop.on_tensors(smoothed))(aj.ones(2, dtype=aj.float64))
        tensor([[0.0000, 0.0000],
                [0.5000, 0.5000]], dtype=autojit.float64)
    """
    if not isinstance(function, FunctionType):
        raise TypeError(f"on_tensors: expected a function written in Python, got {type(function).__name__}")
    return _rebound(function, _names_of(function))


def _names_of(function: FunctionType) -> dict[str, Any]:
    """The function's globals, NumPy's names exchanged, its module's functions reading them too."""
    before = function.__globals__
    names = {name: _exchanged(value) for name, value in before.items()}
    for name, value in before.items():
        if isinstance(value, FunctionType) and value.__globals__ is before:
            names[name] = _rebound(value, names)
    return names


def _exchanged(value: Any) -> Any:
    if value is np:
        return over_tensors
    found = _MAKERS.get(id(value))
    return value if found is None else found


_MAKERS = {id(getattr(np, name)): maker for name, maker in MAKERS.items()}


def _rebound(function: FunctionType, names: dict[str, Any]) -> FunctionType:
    cells = None if function.__closure__ is None else tuple(_cell(cell, names) for cell in function.__closure__)
    made = FunctionType(function.__code__, names, function.__name__, function.__defaults__, cells)
    made.__kwdefaults__ = function.__kwdefaults__
    functools.update_wrapper(made, function)
    return made


def _cell(cell: CellType, names: dict[str, Any]) -> CellType:
    try:
        value = cell.cell_contents
    except ValueError:
        return cell  # not assigned yet
    found = _exchanged(value)
    return cell if found is value else CellType(found)
