"""NumPy arrays that enter a step: inside it they are NumPy's, not tensors.

The function sees an ``ndarray`` in eager mode, so it must see one in a capture. A ``TracedArray`` is a tensor to
autojit's own code and an array to the user's: instrumented code asks ``observed_arrays`` what an attribute, an operator
or a call of it gives. It carries its *shadow*, what NumPy has made of the values of the call at hand. Whatever is
computed of arrays is computed three times in a capture: by NumPy of the shadows, by autojit of the same numbers, and
into the graph. Only where the first two agree in type, dtype, shape, memory and values the third one counts; else the
call runs line by line, with the arrays themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from autojit.core.dtypes import DType, dtype_of_numpy, float64, int64
from autojit.core.ports import ports
from autojit.core.sizes import hint_of, is_symbolic
from autojit.core.source import here
from autojit.dispatch.dispatch import number, value_of
from autojit.functions.comparison import where
from autojit.jit.draws import outside_of_capture
from autojit.jit.guards import Guard, broken_guard
from autojit.jit.line_by_line import LineByLine
from autojit.jit.pytree import TreeSpec, flatten
from autojit.jit.traced_number import TracedNumber
from autojit.tensor.state import state
from autojit.tensor.tensor import SLOTS, Tensor, alias, type_of, wrap

if TYPE_CHECKING:
    from numpy.typing import NDArray


DTYPES = frozenset(map(np.dtype, ("?", "b", "h", "i", "q", "B", "f", "d")))
_PLAIN = (bool, int, float, str, type(None), type(Ellipsis), type, np.dtype, np.generic, type(np._NoValue))
_TOLERANCES = {"f": (1e-4, 1e-6), "d": (1e-9, 1e-12)}


class OfNumPy(LineByLine):
    """A step meets something of an array that only NumPy can do.

    ``guards``: what the capture has read before, which says when it would meet that again.
    """

    limit = 4
    guards: Sequence[Guard] = ()

    def check(self, leaves: Sequence[Any]) -> None:
        """See ``Asking``."""
        if not broken_guard(self.guards):
            raise OfNumPy(str(self))


def refused(what: str) -> OfNumPy:
    """The error for what a capture cannot do with an array; it counts also where the function catches it."""
    error = OfNumPy(
        f"{what} of a NumPy array that enters the step, at {here()}: ran line by line (make it a tensor first: "
        "aj.as_tensor(array), or do it outside the step)"
    )
    trace: Any = state.trace
    if trace is not None:
        trace.looks_at_arrays = True
        trace.given_up = trace.given_up or error
    return error


class TracedArray(Tensor):
    """An array of a captured step, or a NumPy scalar: ``shadow`` is what it is in the call at hand."""

    __slots__ = ("is_scalar", "shadow")

    shadow: Any  # until the capture is over
    is_scalar: bool

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: object, **options: object) -> Any:
        if method != "__call__":
            raise refused(f"np.{ufunc.__name__}.{method}")
        return called(ufunc, inputs, options)

    def __array_function__(
        self, function: Callable[..., Any], types: object, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        return called(function, args, kwargs)

    def __array__(self, dtype: object = None, copy: bool | None = None) -> Any:
        raise refused("the memory")

    def __hash__(self) -> int:
        if not self.is_scalar:
            raise refused("the hash")
        return hash(digits(self))

    def __bool__(self) -> bool:
        if self.shadow.size != 1:
            raise refused("the truth")
        return Tensor.__bool__(self)


def arriving(array: NDArray[Any], shape: Sequence[Any] | None) -> TracedArray:
    """An argument that is an array, for which a stand-in is to be made; ``shape``: with open sizes.

    Raises:
        OfNumPy: no tensor can hold what is in it.
    """
    try:
        plain = wrap(array)
        type_of(plain)
    except Exception:
        raise refused(f"the dtype {array.dtype}") from None
    hinted = None if shape is None else tuple([hint_of(n) for n in shape])
    return _paired(plain, array if hinted in (None, array.shape) else _resized(array, hinted))


def _resized(array: NDArray[Any], shape: tuple[int, ...]) -> Any:
    """An array of another shape, reversed where this one is."""
    return np.flip(np.resize(array, shape), tuple([k for k, step in enumerate(array.strides) if step < 0]))


def _paired(t: Tensor, shadow: object) -> TracedArray:
    made: TracedArray = object.__new__(TracedArray)
    for name in SLOTS:
        setattr(made, name, getattr(t, name))
    made.shadow, made.is_scalar = shadow, isinstance(shadow, np.generic)
    return made


def followed(trace: Any, t: Tensor, shadow: object) -> TracedArray:
    """The array, or the scalar, that a tensor of the step stands for."""
    made = _paired(t, shadow)
    trace.arrays.append(made)
    return made


def scalar_in(array: Any) -> Any:
    """The only element of an array without axes: a NumPy scalar."""
    return followed(state.trace, plain(array), array.shadow[()]) if type(array) is TracedArray else array[()]


def digits(scalar: TracedArray) -> Any:
    """The scalar itself; the capture from here on holds for this value only."""
    trace: Any = state.trace
    trace.looks_at_arrays = True
    return trace.concretize(value_of(plain(scalar)))[()]


def plain(array: Tensor) -> Tensor:
    """The tensor that autojit's own code sees, on the same memory."""
    return alias(array)


def number_of(scalar: TracedArray) -> Any:
    """A NumPy scalar as autojit's functions take it: as a number of its kind."""
    kind = scalar.shadow.dtype.kind
    if kind not in "if" or scalar.shadow.dtype not in DTYPES:
        return plain(scalar)
    is_float = kind == "f"
    trace: Any = state.trace
    return TracedNumber(trace, plain(scalar).to(float64 if is_float else int64), float if is_float else int)


def as_operand(value: object) -> Any:
    """What autojit's own functions are given for an array: a tensor, for a scalar a number."""
    if type(value) is not TracedArray:
        return value
    return number_of(value) if value.is_scalar else plain(value)


def holds_arrays(value: Any, depth: int = 4) -> bool:
    """Whether an object is an array of the step, or one is in these nests."""
    kind = type(value)
    if kind is TracedArray:
        return True
    if not depth or not (kind is list or kind is dict or isinstance(value, tuple)):
        return False
    return any(holds_arrays(part, depth - 1) for part in (value.values() if kind is dict else value))


def holds_key(key: object) -> bool:
    """Whether an array is a part of what a container is indexed by."""
    if isinstance(key, slice):
        return any(map(holds_arrays, (key.start, key.stop, key.step)))
    return any(map(holds_key, key)) if type(key) is tuple else holds_arrays(key)


# ---- what is computed of arrays


def called(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: dict[str, Any],
    by_numpy: Callable[..., Any] | None = None,
) -> Any:
    """A function of NumPy's, called with arrays of the step; ``by_numpy``: the operator that it is called for.

    Raises:
        OfNumPy: it is NumPy's alone.
    """
    name = f"np.{getattr(function, '__name__', function)}"
    leaves, tree = flatten((tuple(args), kwargs))
    if any(isinstance(leaf, Tensor) and type(leaf) is not TracedArray for leaf in leaves):
        given, options = tree.unflatten([as_operand(leaf) for leaf in leaves])
        return function(*given, **options)  # as tensors have it
    form = ports.numpy.form(function)
    if form is None or "out" in kwargs or "where" in kwargs or function in _NUMPYS_OWN:
        raise refused(name)
    require_sure(function, leaves, name)
    if isinstance(function, np.ufunc):
        if kwargs or function.nout != 1:
            raise refused(name)
        form = _typed(function, form, args, name)
    return computed(name, by_numpy or function, form, args, kwargs)


_NUMPYS_OWN = frozenset((np.argsort, np.argpartition, np.partition, np.may_share_memory, np.shares_memory, np.copyto,
                         np.put, np.place, np.putmask, np.fill_diagonal, np.array_repr, np.array_str,
                         np.heaviside, np.cbrt))  # fmt: skip
_OF_FLOATS = frozenset((np.percentile, np.quantile, np.nanpercentile, np.nanquantile))  # of integers NumPy's wrap


def require_sure(function: object, leaves: Sequence[Any], name: str) -> None:
    """OfNumPy for a function whose results agree for some values only, given these."""
    if all(_kind_of(leaf) in "f" for leaf in leaves):
        return
    is_clip = function is np.clip and not all(_kind_of(x) in "iu" and _fits_all(x) for x in leaves)
    if function in _OF_FLOATS or is_clip:
        raise refused(name)


def _fits_all(leaf: object) -> bool:
    """Whether a leaf is not a number that some dtype of integers does not hold."""
    return leaf is None or type(leaf) is TracedArray or (type(leaf) is int and 0 <= leaf < 128)


def _kind_of(leaf: object) -> str:
    held = leaf.shadow if type(leaf) is TracedArray else leaf
    return held.dtype.kind if isinstance(held, np.ndarray | np.generic) else ""


def computed(
    name: str, by_numpy: Callable[..., Any], form: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
) -> Any:
    """``by_numpy(*args, **kwargs)`` as ``form`` records it.

    Raises:
        OfNumPy: the two differ, so only NumPy knows the result.
    """
    leaves, tree = flatten((tuple(args), kwargs))
    if not all(map(_is_plain, leaves)):
        raise refused(name)
    trace: Any = state.trace
    trace.looks_at_arrays = True
    shadows = [_mapped(leaf, _shadow) for leaf in leaves]
    operands = [_mapped(leaf, lambda x: plain(x) if type(x) is TracedArray else x) for leaf in leaves]
    try:
        with np.errstate(all="ignore"):
            found = outside_of_capture(by_numpy, *tree.unflatten(shadows))
            alike = [wrap(np.asarray(s)) if type(x) is TracedArray else s for x, s in zip(leaves, shadows, strict=True)]
            expected = outside_of_capture(form, *_wrapped(tree, leaves, alike))
    except Exception:
        raise refused(name) from None
    if not _agree(expected, found):
        raise refused(name)
    given, options = tree.unflatten(operands)
    rows = [row for row in zip(leaves, shadows, operands, strict=True) if type(row[0]) is TracedArray]
    return _delivered(form(*given, **options), found, rows, name)


def _wrapped(tree: TreeSpec, leaves: Sequence[Any], alike: Sequence[Any]) -> Any:
    arrays = [_mapped(x, _concrete) if isinstance(x, slice) else y for x, y in zip(leaves, alike, strict=True)]
    return tree.unflatten(arrays)


def _is_plain(leaf: object) -> bool:
    if isinstance(leaf, slice):
        return all(map(_is_plain, (leaf.start, leaf.stop, leaf.step)))
    if type(leaf) is TracedArray:
        return type(leaf.shadow) in (np.ndarray, leaf.shadow.dtype.type) and leaf.shadow.dtype in DTYPES
    if type(leaf) is np.ndarray:
        return leaf.dtype in DTYPES
    return isinstance(leaf, (TracedNumber, *_PLAIN)) or is_symbolic(leaf)


def _mapped(leaf: object, change: Callable[[Any], Any]) -> Any:
    if isinstance(leaf, slice):
        return slice(change(leaf.start), change(leaf.stop), change(leaf.step))
    return change(leaf)


def _shadow(leaf: object) -> Any:
    if type(leaf) is TracedArray:
        return leaf.shadow
    if isinstance(leaf, TracedNumber):
        return 1.5 if leaf.kind is float else 2
    return hint_of(leaf) if is_symbolic(leaf) else leaf


def _concrete(leaf: object) -> Any:
    shadow = _shadow(leaf)
    return wrap(np.asarray(shadow)) if type(leaf) is TracedArray else shadow


def _agree(expected: Any, found: Any) -> bool:
    """Whether autojit has made what NumPy has: of one type, dtype and shape, and the same numbers."""
    if isinstance(found, np.ndarray | np.generic):
        if type(found) not in (np.ndarray, found.dtype.type) or not isinstance(expected, Tensor):
            return False
        array = expected._array
        if array.dtype != found.dtype or array.shape != found.shape:
            return False
        relative, absolute = _TOLERANCES.get(found.dtype.char, (0.0, 0.0))
        return bool(np.allclose(array, found, relative, absolute, equal_nan=True))
    if type(found) in (tuple, list):
        return type(expected) in (tuple, list) and len(expected) == len(found) and all(map(_agree, expected, found))
    return type(expected) is type(found) and bool(expected == found)


def _delivered(made: Any, found: Any, known: Sequence[tuple[Any, Any, Any]], name: str) -> Any:
    """What the graph has computed, as the arrays that NumPy would give; ``known``: operands, as shadows, as tensors."""
    if type(found) in (tuple, list):
        return type(found)([_delivered(m, f, known, name) for m, f in zip(made, found, strict=True)])
    if not isinstance(found, np.ndarray | np.generic):
        return made
    for array, shadow, _ in known:
        if found is shadow and isinstance(found, np.ndarray):
            return array
    kind = type_of(made)
    if kind.dtype.numpy != found.dtype or tuple(map(hint_of, kind.shape)) != found.shape:
        raise refused(name)
    shown = [t for _, _, t in known if made is t or (made._storage is not None and made._storage is t._storage)]
    sources = [s for _, s, _ in known if isinstance(found, np.ndarray) and np.may_share_memory(found, s)]
    is_locked = isinstance(found, np.ndarray) and not found.flags.writeable
    if (sources and not shown) or (is_locked and all(source.flags.writeable for source in sources)):
        raise refused(name)
    return followed(state.trace, made.clone() if shown and not sources else made, found)


# ---- ufuncs: the dtypes are those that NumPy computes in

_OF_INTEGERS = frozenset((
    "add", "subtract", "multiply", "negative", "positive", "absolute", "square", "maximum", "minimum", "invert",
    "bitwise_and", "bitwise_or", "bitwise_xor", "logical_and", "logical_or", "logical_xor", "logical_not", "greater",
    "greater_equal", "less", "less_equal", "equal", "not_equal", "sign", "matmul", "isfinite", "isnan", "isinf",
))  # fmt: skip
_BY_NUMBER = {"floor_divide": 1, "remainder": 1, "power": 0, "left_shift": 0, "right_shift": 0}
"""Of integers only with a number that is at least this: others are errors, or depend on the values."""


def _typed(ufunc: np.ufunc, form: Callable[..., Any], args: Sequence[Any], name: str) -> Callable[..., Any]:
    """The form of a ufunc that computes in the dtypes that NumPy computes in for these operands."""
    try:
        loop = ufunc.resolve_dtypes((*map(_kind, args), None))
    except Exception:
        raise refused(name) from None
    if any(dtype not in DTYPES for dtype in loop) or not _is_sure(ufunc.__name__, loop, args):
        raise refused(name)
    dtypes = list(map(dtype_of_numpy, loop))
    is_exact = ufunc not in _OF_ZERO_AND_NAN or loop[0].kind != "f"

    def typed(*operands: Any) -> Any:
        given = [_operand(x, dtype) for x, dtype in zip(operands, dtypes[:-1], strict=True)]
        if ufunc is np.power and _is_weak(operands[1]):
            given[1] = operands[1]
        found = form(*given)
        return (found if is_exact else _OF_ZERO_AND_NAN[ufunc](found, given[-1])).to(dtypes[-1])

    return typed


_OF_ZERO_AND_NAN: dict[Any, Callable[[Any, Any], Any]] = {
    np.remainder: lambda found, divisor: found.copysign(divisor),
    np.sign: lambda found, x: where(x == x, found, x),
}
"""What NumPy makes of a zero or a NaN differently from autojit: the result, of autojit's and the last operand."""


def _operand(x: object, dtype: DType) -> Tensor:
    if isinstance(x, np.ndarray):
        x = wrap(x)
    return x.to(dtype) if isinstance(x, Tensor) else number(x, dtype)


def _kind(x: object) -> Any:
    if isinstance(x, TracedNumber):
        return x.kind
    if type(x) in (int, float):
        return type(x)
    if is_symbolic(x):
        return int
    return x.shadow.dtype if type(x) is TracedArray else np.asarray(x).dtype


def _is_weak(x: object) -> bool:
    return type(x) in (int, float) or isinstance(x, TracedNumber)


def _is_sure(name: str, loop: Sequence[Any], args: Sequence[Any]) -> bool:
    """Whether a ufunc gives the same for all values, or only for those of this call."""
    if all(dtype.kind == "f" for dtype in loop[:-1]):
        return True
    if any(type(x) is int and not _holds(dtype, x) for x, dtype in zip(args, loop[:-1], strict=True)):
        return False
    has_numbers = any(isinstance(x, TracedNumber) or is_symbolic(x) for x in args)
    if has_numbers and loop[0] != np.dtype(np.int64):
        return False  # NumPy refuses numbers that the dtype does not hold
    if name in _OF_INTEGERS:
        return True
    least = _BY_NUMBER.get(name)
    return least is not None and type(args[1]) is int and least <= args[1] < 63


def _holds(dtype: np.dtype[Any], number: int) -> bool:
    return dtype.kind not in "iu" or np.iinfo(dtype).min <= number <= np.iinfo(dtype).max
