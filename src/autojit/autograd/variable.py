"""Variable: the old wrapper around tensors, which are differentiable themselves now."""

from __future__ import annotations

from typing import Any

import numpy as np

from autojit.autograd.engine import ExecutionEngine
from autojit.core.user_warnings import warn
from autojit.functions.factories import from_numpy
from autojit.functions.legacy import warn_volatile
from autojit.tensor import Tensor

_warned = False


class _VariableMeta(type):
    """Makes every tensor an instance of Variable."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, Tensor)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return cls is subclass or issubclass(subclass, Tensor)


class Variable(metaclass=_VariableMeta):
    """``Variable(data, requires_grad=False)``: a leaf tensor that shares memory with ``data``.

    Kept for old programs; warns once per process. Write ``tensor(...)``, ``x.detach()`` or ``x.requires_grad_()``.
    ``volatile`` has no effect: write ``with no_grad():`` (``autojit.compat.v0_3`` implements it).

    Raises:
        TypeError: ``data`` is neither a tensor nor a NumPy array.
        RuntimeError: gradients are asked for and the dtype has none.

    Example:
        >>> import warnings
        >>> import autojit as aj
        >>> with warnings.catch_warnings(action="ignore"):
        ...     v = aj.autograd.Variable(aj.ones(2), requires_grad=True)
        >>> type(v) is aj.Tensor, v.requires_grad, isinstance(v, aj.autograd.Variable)
        (True, True, True)
    """

    _execution_engine = ExecutionEngine()

    def __new__(cls, data: Any = None, requires_grad: bool = False, volatile: bool = False) -> Any:
        """A Tensor."""
        global _warned
        if not _warned:
            _warned = True
            warn(
                "Variable is deprecated: tensors are differentiable themselves. Drop the call, or write "
                "tensor(..., requires_grad=True)",
                DeprecationWarning,
                is_once=True,
            )
        if volatile:
            warn_volatile()
        return leaf_of(data, requires_grad)


def leaf_of(data: Any, requires_grad: bool = False) -> Tensor:
    """A leaf that shares memory with a tensor or a NumPy array; None gives an empty one.

    Raises:
        TypeError: ``data`` is something else.
    """
    if data is None:
        data = np.empty(0, np.float32)
    if isinstance(data, np.ndarray):
        made: Tensor = from_numpy(data)
    elif isinstance(data, Tensor):
        made = data.detach()
    else:
        raise TypeError(f"Variable data has to be a tensor, but got {type(data).__name__}")
    if requires_grad:
        made.requires_grad_(True)
    return made
