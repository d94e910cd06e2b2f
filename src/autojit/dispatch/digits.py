"""Numbers as ops take them: those of a captured step by their digits, whole ones as their dtype holds them."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from autojit.core.dtypes import DType
from autojit.core.number_ranges import in_range
from autojit.ir.op import Op
from autojit.tensor.state import quietly

if TYPE_CHECKING:
    from numpy.typing import NDArray


def is_of_step(value: object) -> bool:
    """Whether a value is a number of a captured step: by its real class, for it passes for an int or a float."""
    return hasattr(type(value), "as_operand")


def digits(value: Any) -> Any:
    """Parameters of an op, with the digits of numbers of a step: ops are compared, and kept by tables that outlive it.

    The step is one for these digits then, as `SymbolicSize` tells sizes apart.
    """
    if type(value) is tuple:
        found = tuple([digits(item) for item in value])
        return value if all(map(operator.is_, found, value)) else found
    return value.concrete() if is_of_step(value) else value


def with_digits(op: Op) -> Op:
    """The op with the digits of its parameters."""
    given = [getattr(op, name) for name in op.__match_args__]
    found = list(map(digits, given))
    return op if all(map(operator.is_, found, given)) else type(op)(*found)


def exact(value: object, dtype: DType) -> NDArray[Any]:
    """A Python number as an array."""
    array = quietly(np.asarray, in_range(value, dtype))
    return array.astype(dtype.numpy) if dtype.kind != "bool" else np.asarray(bool(value))


def plain(value: object) -> Any:
    """Python's number for NumPy's."""
    return value.item() if isinstance(value, np.generic | np.ndarray) else value
