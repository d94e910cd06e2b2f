"""Functions whose results have memory of their own, also where their values are the operand's unchanged.

What ops make of special cases (a roll by 0, a window of 1) may be a view, or the operand itself; torch copies, and a
caller may write to the result. Others end in a view of an intermediate result (``max`` along an axis drops it): callers
may cut them off their history in place, and write to them whichever mode they were made in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from autojit.core.device_array import DeviceArray, share_memory
from autojit.dispatch.view_nodes import no_view
from autojit.functions.argument_errors import raise_for_kinds
from autojit.functions.elementwise import clone
from autojit.functions.method_forms import F, called_like
from autojit.tensor.tensor import Tensor


def own_memory(function: F) -> F:
    """The function, whose result never shows memory of its first operand."""
    return _finished(function, _with_own_memory)


def no_view_of_parts(function: F) -> F:
    """The function, whose results, made as views of what nobody else sees, are no views to its callers."""
    return _finished(function, _without_base)


def _finished(function: F, finish: Callable[[object, Tensor], object]) -> F:
    """The function, of whose result ``finish(result, first operand)`` makes what callers get."""

    def call(*arguments: object, **options: object) -> Any:
        try:
            found = function(*arguments, **options)
        except Exception as error:
            if (redone := raise_for_kinds(function, arguments, options, error)) is not None:
                return redone[0]
            raise
        operand = arguments[0] if arguments else next(iter(options.values()))
        return finish(found, operand) if isinstance(operand, Tensor) else found

    return called_like(function, call)


def _with_own_memory(found: object, operand: Tensor) -> object:
    return clone(found) if isinstance(found, Tensor) and _shows(found, operand) else found


def _without_base(found: object, operand: Tensor) -> object:
    for t in found if isinstance(found, tuple) else (found,):
        if isinstance(t, Tensor):
            no_view(t, operand)
    return found


def _shows(found: Tensor, operand: Tensor) -> bool:
    if found is operand or (found._storage is not None and found._storage is operand._storage):
        return True
    a, b = found._array, operand._array
    return all(type(x) in (np.ndarray, DeviceArray) for x in (a, b)) and share_memory(a, b)
