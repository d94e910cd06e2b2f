"""The table of NumPy functions over tensors, and how their arguments and results are converted.

``implements("linalg.norm")`` enters a function under the NumPy function it stands for; it takes NumPy's arguments, in
NumPy's order, and computes with public autojit functions, so that it differentiates, batches and compiles as they do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np

import autojit as aj
from autojit.core.device import Device
from autojit.core.dtypes import DType, dtype_of_number, dtype_of_numpy, float64, promote_with_number, result_type
from autojit.functions.conversion import memory_of
from autojit.history.recording import wants_grad
from autojit.tensor.state import state
from autojit.tensor.tensor import Tensor, is_scalar_number

Function = Callable[..., Any]
FUNCTIONS: dict[Any, Function] = {}
NO_VALUE: Any = np._NoValue


def implements(*names: str) -> Callable[[Function], Function]:
    """Enter a function as the form that the NumPy functions of these names have for tensors."""

    def register(function: Function) -> Function:
        for name in names:
            found: Any = np
            for part in name.split("."):
                found = getattr(found, part, None)
            if found is not None:  # a name that this NumPy does not have yet
                FUNCTIONS[found] = function
        return function

    return register


def enter(module: str = "", /, **functions: Function) -> None:
    """Enter functions as the forms that the NumPy functions of their names (in a module of NumPy) have for tensors."""
    for name, function in functions.items():
        implements(f"{module}.{name}" if module else name)(function)


def tensor_of(x: Any, place: Device | None = None) -> Any:
    """A tensor of what NumPy takes for an array: as NumPy's dtype says, tensors inside of lists keep their history.

    Args:
        place: where numbers and arrays go; tensors stay where they are.
    """
    if isinstance(x, Tensor):
        return x
    if hasattr(type(x), "as_operand"):  # a number that a capture took from a tensor
        return x.as_operand()
    if isinstance(x, list | tuple) and holds_tensors(x):
        return joined(aj.stack, [tensor_of(part) for part in x])
    return aj.as_tensor(np.asarray(x), device=place)


def holds_tensors(x: Any) -> bool:
    """Whether a tensor is in nested lists or tuples."""
    if isinstance(x, list | tuple):
        return any(holds_tensors(part) for part in x)
    return isinstance(x, Tensor) or hasattr(type(x), "as_operand")


def joined(function: Function, parts: Sequence[Any], *arguments: Any, dtype: Any = None) -> Any:
    """``cat`` and its like of parts that are brought to one dtype."""
    tensors = [tensor_of(part) for part in parts]
    wanted = dtype_of(dtype)
    if wanted is None and tensors:
        wanted = reduce(aj.promote_types, [t.dtype for t in tensors])
    return function([t.to(wanted) for t in tensors], *arguments)


def operand(x: Any) -> Any:
    """A Python or NumPy number as it is, anything else as a tensor."""
    return x if is_scalar_number(x) and not isinstance(x, np.ndarray) else tensor_of(x)


def inexact(x: Any, dtype: Any = None) -> Any:
    """A tensor in the dtype that NumPy computes means and the like in: integers and bools in float64."""
    found = tensor_of(x)
    wanted = dtype_of(dtype)
    return found.to(wanted if wanted is not None else (float64 if found.dtype.category < 2 else found.dtype))


def promoted(operands: Sequence[Any]) -> DType:
    """The dtype of operands: tensors by their own rules; numbers raise the kind only, as in NumPy to float64."""
    pairs = [(x.dtype, x.ndim) for x in operands if isinstance(x, Tensor)]
    if not pairs:
        return dtype_of_numpy(np.result_type(*operands))
    dtype = result_type(pairs)
    for x in operands:
        if not isinstance(x, Tensor):
            is_raised = dtype.category < 2 and dtype_of_number(x).category >= 2
            dtype = dtype_of_numpy(np.asarray(x).dtype) if is_raised else promote_with_number(dtype, x)
    return dtype


def alike(*values: Any) -> list[Any]:
    """Operands as tensors of their common dtype."""
    operands = [operand(v) for v in values]
    dtype = promoted(operands)
    place = place_of(*operands)
    return [x.to(dtype) if isinstance(x, Tensor) else aj.tensor(x, dtype=dtype, device=place) for x in operands]


def dtype_of(dtype: Any) -> DType | None:
    """The dtype of what NumPy takes for one; None stays None."""
    if dtype is None or isinstance(dtype, DType):
        return dtype
    return dtype_of_numpy(np.dtype(dtype))


def sizes_of(shape: Any) -> tuple[int, ...]:
    """A shape given as an integer or a sequence."""
    return tuple(int(n) for n in shape) if isinstance(shape, Sequence | np.ndarray) else (int(shape),)


def axis_of(axis: Any, ndim: int) -> int:
    """An axis counted from the front; NumPy's AxisError when there is none."""
    return int(np.lib.array_utils.normalize_axis_index(int(axis), ndim))


def axes_of(axis: Any, ndim: int) -> tuple[int, ...]:
    """Axes counted from the front: None is all of them."""
    if axis is None:
        return tuple(range(ndim))
    given = axis if isinstance(axis, tuple | list) else (axis,)
    if ndim == 0 and tuple(given) in ((0,), (-1,)):
        return ()  # NumPy lets a single number be reduced along its first axis
    return tuple(np.lib.array_utils.normalize_axis_tuple([int(a) for a in given], ndim))


def along(a: Any, axis: Any) -> tuple[Any, int]:
    """A tensor and an axis of it counted from the front: None is the only axis of the tensor flattened."""
    x = tensor_of(a)
    return (x.reshape(-1), 0) if axis is None else (x, axis_of(axis, x.ndim))


def host(x: Any) -> Any:
    """Values for NumPy: a tensor's array, tensors in lists and dicts likewise; in a capture this splits the trace."""
    if isinstance(x, Tensor):
        return x.__array__() if x.is_sparse else memory_of(x.detach())
    if isinstance(x, list | tuple) and holds_tensors(x):
        return type(x)(host(part) for part in x)
    if hasattr(type(x), "as_operand"):
        return host(x.as_operand())
    return x


def place_of(*values: Any) -> Device | None:
    """The device of the first tensor; None, for the default device, where there is none."""
    return next((value.device for value in values if isinstance(value, Tensor)), None)


def carries_more(x: Any) -> bool:
    """Whether a tensor has a gradient to lose, or no value yet, so that a NumPy array cannot stand for it."""
    if isinstance(x, list | tuple):
        return any(carries_more(part) for part in x)
    if hasattr(type(x), "as_operand"):
        return True
    return isinstance(x, Tensor) and ((state.grad_enabled and wants_grad(x)) or x._array is None or bool(state.layers))


def delivered(result: Any, out: Any = None, name: str = "out=") -> Any:
    """The result, or ``out`` with the result written into it."""
    if out is None:
        return result
    target = out[0] if isinstance(out, tuple) and len(out) == 1 else out
    if isinstance(target, Tensor):
        if target.shape != result.shape:
            raise ValueError(f"{name}: output has shape {tuple(target.shape)}, the result {tuple(result.shape)}")
        return target.copy_(result)
    if carries_more(result):
        raise TypeError(
            f"{name}: a tensor's gradient cannot follow into a NumPy array that is changed in place; make the array a "
            "tensor first (np.zeros_like(x), np.zeros(n, like=x), aj.as_tensor(array)), or detach() the operand"
        )
    np.copyto(target, host(result), casting="same_kind")
    return target


def apart(arguments: tuple[Any, ...], out: Any) -> tuple[Any, ...]:
    """Arguments that do not share memory with ``out``: what history keeps of them must not change when it is filled."""
    written = [t for t in (out if isinstance(out, tuple) else (out,)) if isinstance(t, Tensor)]
    if not written:
        return arguments
    shared = {id(t) for t in written} | {id(t._storage) for t in written if t._storage is not None}
    return tuple(
        a.clone() if isinstance(a, Tensor) and (id(a) in shared or id(a._storage) in shared) else a for a in arguments
    )
