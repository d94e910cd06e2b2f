"""What an array of a step gives to users' code: attributes, methods, items, operators (see ``numpy_arrays.py``)."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from autojit.core.dtypes import dtype_of_numpy
from autojit.core.ports import ports
from autojit.core.sizes import is_symbolic
from autojit.jit.numpy_arrays import TracedArray, called, computed, plain, refused, require_sure
from autojit.tensor.state import state
from autojit.tensor.tensor import Tensor, type_of

ROWS_LIMIT = 1024  # of an array that Python walks
_TOLD: dict[str, Callable[[TracedArray], Any]] = {
    "dtype": lambda a: a.shadow.dtype,
    "ndim": lambda a: a.shadow.ndim,
    "itemsize": lambda a: a.shadow.itemsize,
    "shape": lambda a: tuple(type_of(a).shape),
    "size": lambda a: _size(a),
    "nbytes": lambda a: _size(a) * a.shadow.itemsize,
    "T": lambda a: _transposed(a),
    "__class__": lambda a: type(a.shadow),
}
_AS_FUNCTIONS = frozenset((
    "sum", "prod", "mean", "std", "var", "min", "max", "argmin", "argmax", "any", "all", "cumsum", "cumprod", "clip",
    "round", "repeat", "dot", "trace", "diagonal", "squeeze", "swapaxes", "ravel", "take", "conj", "conjugate",
))  # fmt: skip
"""Methods that do what the functions of ``np`` do that have their names."""


def attribute(array: TracedArray, name: str) -> Any:
    """``array.name`` in users' code.

    Raises:
        AttributeError: NumPy's arrays have none.
        OfNumPy: it is NumPy's alone.
    """
    trace: Any = state.trace
    trace.looks_at_arrays = True
    told = _TOLD.get(name)
    if told is not None:
        return told(array)
    if not hasattr(array.shadow, name):
        getattr(array.shadow, name)  # raises
    if name not in _AS_FUNCTIONS and name not in _FORMS and name not in ("item", "tolist"):
        raise refused(f".{name}")
    return ArrayMethod(array, name)


def _size(array: TracedArray) -> Any:
    found: Any = 1
    for n in type_of(array).shape:
        found = found * n
    return found


def _transposed(array: TracedArray, *axes: object) -> Any:
    by_numpy: Callable[..., Any] = lambda a, *axes: a.transpose(*axes)
    return computed(".transpose()", by_numpy, _FORMS["transpose"], (array, *axes), {})


class ArrayMethod:
    """A method of an array, to be called."""

    def __init__(self, array: TracedArray, name: str) -> None:
        self.__self__ = array
        self.__name__ = name

    def __call__(self, *args: object, **kwargs: object) -> Any:
        array, name = self.__self__, self.__name__
        if name in ("item", "tolist"):
            if args or kwargs or array.shadow.dtype.kind not in "fi" or (name == "item" and array.shadow.size != 1):
                raise refused(f".{name}()")
            found = plain(array)
            return found.item() if name == "item" else found.tolist()
        form = _FORMS.get(name) or ports.numpy.form(getattr(np, name, None))
        if form is None or "out" in kwargs or "where" in kwargs:
            raise refused(f".{name}()")
        require_sure(getattr(np, name, None), [array, *args, *kwargs.values()], f".{name}()")
        by_numpy: Callable[..., Any] = lambda a, *args, **kwargs: getattr(a, name)(*args, **kwargs)
        return computed(f".{name}()", by_numpy, form, (array, *args), kwargs)


def _axes_reversed(t: Tensor, *axes: object) -> Tensor:
    order = axes[0] if len(axes) == 1 and isinstance(axes[0], tuple | list) else axes
    found: Tensor = t.permute(*(order or reversed(range(t.ndim))))
    return found


def _astype(t: Tensor, dtype: np.dtype[Any] | type, copy: bool = True) -> Any:
    return t.to(dtype_of_numpy(np.dtype(dtype)))


_FORMS: dict[str, Callable[..., Any]] = {
    "reshape": lambda t, *shape: t.reshape(*shape),
    "flatten": lambda t: t.reshape(-1),
    "transpose": _axes_reversed,
    "copy": lambda t: t.clone(),
    "astype": _astype,
}


def cast(kind: type, array: TracedArray) -> Any:
    """``np.float32(array)`` and its like."""
    return computed(f"np.{kind.__name__}()", kind, lambda t: _astype(t, kind), (array,), {})


# ---- items


def item(array: TracedArray, key: object) -> Any:
    """``array[key]``.

    Raises:
        OfNumPy: it is a mask, or goes backwards.
    """
    for part in key if type(key) is tuple else (key,):
        if isinstance(part, slice) and not (part.step is None or (type(part.step) is int and part.step > 0)):
            raise refused("an item, backwards,")
        is_index = type(part) is int or is_symbolic(part) or isinstance(part, slice | np.integer | type(None))
        if not (is_index or part is Ellipsis or _is_of_integers(part)):
            raise refused("an item")
    return computed("an item", operator.getitem, operator.getitem, (array, key), {})


def _is_of_integers(part: object) -> bool:
    held = part.shadow if type(part) is TracedArray else part
    return isinstance(held, np.ndarray | np.integer) and held.dtype.kind == "i"


def rows(array: TracedArray) -> Iterator[Any]:
    """What Python gets when it walks an array."""
    if not array.shadow.ndim:
        raise refused("the items")
    count = type_of(array).shape[0]
    if is_symbolic(count) or count > ROWS_LIMIT:
        raise refused("the items")
    return iter([item(array, k) for k in range(count)])


# ---- operators


class ArrayOperand:
    """An array of the step, or a scalar that meets a number of it, between a hook and the operator it precedes."""

    __array_ufunc__ = None  # NumPy leaves the operator to it

    def __init__(self, array: TracedArray | np.generic[Any]) -> None:
        self.array = array

    def __divmod__(self, other: object) -> Any:
        raise refused("divmod()")

    __rdivmod__ = __divmod__
    __hash__ = None  # type: ignore[assignment]


def _operator(ufunc: np.ufunc, name: str, is_reflected: bool = False) -> Callable[[ArrayOperand, Any], Any]:
    by_numpy = getattr(operator, f"__{name}__")

    def applied(self: ArrayOperand, other: object) -> Any:
        other = other.array if type(other) is ArrayOperand else other
        return called(ufunc, (other, self.array) if is_reflected else (self.array, other), {}, by_numpy)

    return applied


def _unary(ufunc: np.ufunc) -> Callable[[ArrayOperand], Any]:
    return lambda operand: called(ufunc, (operand.array,), {})


_UNARY: dict[str, np.ufunc] = {"neg": np.negative, "pos": np.positive, "invert": np.invert}
_UFUNCS = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.true_divide, "floordiv": np.floor_divide,
    "mod": np.remainder, "pow": np.power, "matmul": np.matmul, "and": np.bitwise_and, "or": np.bitwise_or,
    "xor": np.bitwise_xor, "lshift": np.left_shift, "rshift": np.right_shift,
}  # fmt: skip
_COMPARED = {"lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal,
             "ne": np.not_equal}  # fmt: skip
for _name, _ufunc in _UFUNCS.items():
    setattr(ArrayOperand, f"__{_name}__", _operator(_ufunc, _name))
    setattr(ArrayOperand, f"__r{_name}__", _operator(_ufunc, _name, is_reflected=True))
for _name, _function in _UNARY.items():
    setattr(ArrayOperand, f"__{_name}__", _unary(_function))
for _name, _ufunc in _COMPARED.items():
    setattr(ArrayOperand, f"__{_name}__", _operator(_ufunc, _name))
