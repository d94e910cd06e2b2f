"""Functions whose results have memory of their own, also where their values are the operand's unchanged.

What ops make of special cases (a roll by 0, a window of 1) may be a view, or the operand itself; torch copies, and a
caller may write to the result.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from autojit.core.device_array import DeviceArray, share_memory
from autojit.functions.argument_errors import raise_for_kinds
from autojit.functions.elementwise import clone
from autojit.functions.method_forms import F, called_like
from autojit.tensor.tensor import Tensor


def own_memory(function: F) -> F:
    """The function, whose result never shows memory of its first operand."""

    def call(*arguments: object, **options: object) -> Any:
        try:
            found = function(*arguments, **options)
        except Exception as error:
            if (redone := raise_for_kinds(function, arguments, options, error)) is not None:
                return redone[0]
            raise
        operand = arguments[0] if arguments else next(iter(options.values()))
        return clone(found) if isinstance(operand, Tensor) and _shows(found, operand) else found

    return called_like(function, call)


def _shows(found: object, operand: Tensor) -> bool:
    if not isinstance(found, Tensor):
        return False
    if found is operand or (found._storage is not None and found._storage is operand._storage):
        return True
    a, b = found._array, operand._array
    return all(type(x) in (np.ndarray, DeviceArray) for x in (a, b)) and share_memory(a, b)
