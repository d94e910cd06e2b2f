"""Factories: tensors from data, and tensors filled by a rule. Inside a capture they become sources of the graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from autojit.core.device import CPU, DeviceLike, default_device
from autojit.core.dtypes import DType, as_dtype, default_dtype, dtype_of_number, dtype_of_numpy, float32, float64, int64
from autojit.core.errors import ArgumentError, ArgumentKindError, UsageError, out_of_memory, too_large
from autojit.core.number_ranges import in_range, require_in_range
from autojit.core.sizes import as_extent, as_size, is_symbolic, size_max
from autojit.core.types import TensorType
from autojit.core.wrapping import named
from autojit.dispatch.declared import Out, declared
from autojit.dispatch.dispatch import literal_of, mark_inference, number
from autojit.dispatch.on_device import in_one_place, moved, placed, where_to
from autojit.dispatch.promotion import Number, Operand, as_operand, cast
from autojit.functions.comparison import eq, where
from autojit.functions.elementwise import clone, floor_divide
from autojit.functions.exchange import (
    NUMBERS,
    array_of_foreign,
    array_of_numbers,
    from_dlpack,
    holds_tensors,
    is_foreign_array,
    is_number,
    is_on_device,
    may_share,
    require_numbers,
    require_same_memory,
)
from autojit.functions.memory import MemoryFormat, in_format, preserve_format
from autojit.functions.shape import Sizes, sizes_of, stack
from autojit.ops.sources import Iota
from autojit.runtime.memory import aligned_copy, zeros_array
from autojit.tensor.of_arrays import constant, on_memory_of
from autojit.tensor.state import BY_PYTHON, made_like, quietly, state
from autojit.tensor.tensor import Tensor, type_of, wrap, wrap_value

if TYPE_CHECKING:
    from numpy.typing import NDArray


def finish(t: Tensor, requires_grad: bool, place: DeviceLike = None) -> Tensor:
    """Set the flag on a fresh tensor after checking dtype and device."""
    if place is not None or default_device() is not CPU:
        t = placed(t, where_to(place))
    if state.inference and t._storage is None and t._view is None:
        mark_inference(t)
    if requires_grad:
        t.requires_grad = True
    return t


def tensor(
    data: object,
    *,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """A new leaf with a copy of the data: numbers, nested sequences, arrays, tensors.

    Python floats take the default dtype, integers int64, bools bool; arrays keep theirs.

    Example:
        >>> import autojit as aj
        >>> aj.tensor([1.0, 2.0])
        tensor([1., 2.])
    """
    return finish(_on(device, _from_data(data, dtype, copy=True)), requires_grad, device)


def _on(place: DeviceLike, found: Tensor) -> Tensor:
    """What is made of a user's tensor may have a history, and be anywhere: it moves as a tensor does, not as memory."""
    if place is None or (type_of(found).device == CPU and not found.requires_grad):
        return found
    return moved(found, place)


def _from_data(data: Any, dtype: DType | None, copy: bool) -> Tensor:
    dtype = as_dtype(dtype)
    if type(data) is not np.ndarray and type(data) not in NUMBERS:
        if is_on_device(data):
            data = array_of_foreign(data)
        if isinstance(data, Tensor):
            found = clone(data.detach()) if copy else data
            return found if dtype is None else cast(found, dtype)
        if is_symbolic(data) or hasattr(type(data), "as_operand"):
            return _number_of_step(data, dtype)
    if isinstance(data, list | tuple) and holds_tensors(data):
        parts = [_from_data(d, dtype, copy=False) for d in data]
        if all(is_number(d) for d in data):
            parts = [part.reshape(()) for part in parts]
        return stack(in_one_place(parts)).detach()
    found = array_from(data, dtype, copy)
    return constant(found) if copy or not may_share(found, data) else on_memory_of(found)


def array_from(data: Any, dtype: DType | None, copy: bool) -> Any:
    """A NumPy array of one of our dtypes."""
    if isinstance(data, np.ndarray | np.generic):
        wanted = dtype_of_numpy(data.dtype) if dtype is None else dtype
        if type(data) is np.ndarray and data.dtype is wanted.numpy:  # nothing is rounded, so nothing warns
            try:
                return aligned_copy(data) if copy else data
            except MemoryError as error:
                raise out_of_memory(error) from None
        return quietly(lambda: np.array(data, dtype=wanted.numpy, copy=True if copy else None))
    if type(data) is float and (dtype or default_dtype()) in (float32, float64):
        return quietly(np.array, data, (dtype or default_dtype()).numpy)
    if is_foreign_array(data):
        return array_from(array_of_foreign(data), dtype, copy)
    plain = array_of_numbers(data)
    if plain.dtype.kind in "OSU":
        if plain.dtype.kind == "O" and plain.size and isinstance(plain.reshape(-1)[0], int):
            raise UsageError("Overflow when unpacking long")
        kind = type(np.ravel(plain)[0]).__name__.rstrip("_") if plain.size else "object"
        raise ArgumentKindError(f"new(): invalid data type '{kind}'", fix="give numbers")
    if plain.dtype.kind == "f" and plain.size and plain.max() >= 2**63 and not _came_from_arrays(data):
        plain = _exact(data, plain)
    wanted = dtype if dtype is not None else _literal_dtype(plain, data)
    if not _came_from_arrays(data):
        require_in_range(plain, wanted)
    is_lent = copy and plain.base is not None  # memory of an object with a buffer
    return quietly(lambda: plain.astype(wanted.numpy, copy=is_lent))


def _exact(data: Any, plain: NDArray[Any]) -> NDArray[Any]:
    """Whole numbers as they are written: NumPy reads those from 2**63 on, beside smaller ones, as floats."""
    numbers = np.array(data, object)
    return numbers.astype(np.uint64) if all(isinstance(n, int) and 0 <= n < 2**64 for n in numbers.flat) else plain


def _literal_dtype(plain: NDArray[Any], data: Any) -> DType:
    if plain.size == 0:
        return default_dtype()
    if plain.dtype.kind not in "iufc" or _came_from_arrays(data):
        return dtype_of_numpy(plain.dtype)
    if plain.dtype.kind in "iu":
        if plain.dtype.kind == "u":
            raise UsageError("Overflow when unpacking long", {"data": data}, "give a dtype, such as uint64")
        return int64
    return default_dtype() if plain.dtype.kind == "f" else default_dtype().to_complex()


def _came_from_arrays(data: object) -> bool:
    while isinstance(data, list | tuple) and data:
        data = data[0]
    return isinstance(data, np.ndarray | np.generic)


def as_tensor(data: object, dtype: DType | None = None, device: DeviceLike = None) -> Tensor:
    """The data as a tensor, sharing memory where possible."""
    return finish(_on(device, _from_data(data, dtype, copy=False)), False, device)


def asarray(
    obj: object,
    *,
    dtype: DType | None = None,
    device: DeviceLike = None,
    copy: bool | None = None,
    requires_grad: bool | None = None,
) -> Tensor:
    """The data as a tensor: sharing memory where possible, a copy with ``copy=True``; also of a DLPack capsule.

    A tensor keeps its history, unless ``requires_grad=False`` says that the result has none.

    Raises:
        ValueError: ``copy=False`` but another dtype asks for a copy.

    Example:
        >>> import autojit as aj
        >>> aj.asarray([1.0, 2.0])
        tensor([1., 2.])
    """
    if type(obj).__name__ == "PyCapsule":
        obj = from_dlpack(obj)
    if copy:
        made = clone(obj) if isinstance(obj, Tensor) else tensor(obj, dtype=dtype)
        found = made if dtype is None else cast(made, dtype)
    else:
        found = _from_data(obj, dtype, copy=False)
    if copy is False:
        require_same_memory(obj, found)
    if requires_grad is False and found.requires_grad:
        found = found.detach()
    return finish(_on(device, found), bool(requires_grad), device)


def from_numpy(ndarray: object) -> Tensor:
    """A tensor that shares memory with a NumPy array."""
    if isinstance(ndarray, Tensor) and (state.trace is not None or state.detour in BY_PYTHON):
        return ndarray  # a step is given its arrays as tensors
    if not isinstance(ndarray, np.ndarray):
        raise TypeError(f"expected np.ndarray (got {type(ndarray).__name__})")
    dtype_of_numpy(ndarray.dtype)
    if not ndarray.dtype.isnative:
        raise ArgumentError(
            "given numpy array has byte order different from the native byte order. Conversion between byte orders is "
            "currently not supported.",
            {"dtype": str(ndarray.dtype)},
            'convert it: array.astype(array.dtype.newbyteorder("=")), or copy it with aj.tensor(array)',
        )
    if any(s < 0 for s in ndarray.strides):
        raise ArgumentError("At least one stride in the given numpy array is negative; copy the array first")
    return on_memory_of(ndarray)


@declared(method=False, factory=True)
def scalar_tensor(
    s: Operand, *, dtype: DType | None = None, device: DeviceLike = None, requires_grad: bool = False
) -> Tensor:
    """A 0-d tensor of the default dtype."""
    return tensor(s, dtype=dtype or default_dtype(), device=device, requires_grad=requires_grad)


def _filled(value: Number, shape: Sequence[int], dtype: DType, device: DeviceLike) -> Tensor:
    shape = tuple(shape)
    if any(n < 0 for n in shape):
        raise UsageError(f"Trying to create tensor with negative dimension: {list(shape)}")
    if state.trace is not None:
        return literal_of(value, TensorType(shape, dtype))
    if not state.layers and (place := where_to(device)) != CPU:
        require_numbers(value)
        return literal_of(value, TensorType(shape, dtype, place))  # filled there, not copied
    if dtype.category == 1 and type(value) is float and not isfinite(value):
        raise UsageError(f"value cannot be converted to type {dtype.name} without overflow", {"value": value})
    require_numbers(value)
    value = in_range(value, dtype) if type(value) in (int, complex) else value
    try:
        if type(value) is int and value == 0:
            return wrap(zeros_array(shape, dtype.numpy))
        return wrap(quietly(np.full, shape, value, dtype.numpy))
    except ValueError as error:
        raise too_large(shape, error) from None


@declared(method=False, factory=True, out=True)
def full(
    size: Sizes,
    fill_value: Tensor | Number,
    *,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """A value repeated in a shape."""
    if is_symbolic(fill_value) or hasattr(type(fill_value), "as_operand"):
        fill_value = _number_of_step(fill_value, dtype)
    if isinstance(fill_value, Tensor):
        value = cast(fill_value, dtype or type_of(fill_value).dtype)
        return finish(value.expand(sizes_of((size,))).clone(), requires_grad, device)
    wanted = dtype_of_number(fill_value) if dtype is None else dtype
    return finish(_filled(fill_value, sizes_of((size,)), wanted, device), requires_grad, device)


def _number_of_step(value: Any, dtype: DType | None) -> Tensor:
    """A number that changes from call to call of a captured step; None: in the dtype of a Python number of its kind."""
    made: Tensor = number(value, int64) if is_symbolic(value) else value.as_operand()
    return cast(made, dtype or (int64 if type_of(made).dtype is int64 else default_dtype()))


@declared(method=False, factory=True, out=True)
def zeros(*size: Sizes, dtype: DType | None = None, device: DeviceLike = None, requires_grad: bool = False) -> Tensor:
    """Zeros of a shape."""
    return finish(_filled(0, sizes_of(size), dtype or default_dtype(), device), requires_grad, device)


@declared(method=False, factory=True, out=True)
def ones(*size: Sizes, dtype: DType | None = None, device: DeviceLike = None, requires_grad: bool = False) -> Tensor:
    """Ones of a shape."""
    return finish(_filled(1, sizes_of(size), dtype or default_dtype(), device), requires_grad, device)


@declared(method=False, factory=True, out=True)
def empty(
    *size: Sizes,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
    memory_format: MemoryFormat | None = None,
) -> Tensor:
    """A tensor of a shape with unspecified elements (zeros, so that results repeat)."""
    if memory_format is preserve_format:
        raise UsageError("empty: unsupported memory format Preserve", fix="empty_like(x) lays out as x")
    made = zeros(*size, dtype=dtype, device=device, requires_grad=requires_grad)
    return made if memory_format is None else in_format(made, memory_format, made)


@declared(method=False, factory=True)
def full_like(
    input: Tensor,
    fill_value: Tensor | Number,
    *,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
    memory_format: MemoryFormat | None = None,
) -> Tensor:
    """A value repeated in the shape and dtype of a tensor."""
    t = type_of(input)
    place = t.device if device is None else device
    made = full(t.shape, fill_value, dtype=dtype or t.dtype, device=place, requires_grad=requires_grad)
    made = in_format(made, memory_format, input)
    return made_like(input, made) if state.layers else made


def _like(name: str, value: int, doc: str) -> Callable[..., Tensor]:
    def like(
        input: Tensor,
        *,
        dtype: DType | None = None,
        device: DeviceLike = None,
        requires_grad: bool = False,
        memory_format: MemoryFormat | None = None,
    ) -> Tensor:
        return full_like(
            input, value, dtype=dtype, device=device, requires_grad=requires_grad, memory_format=memory_format
        )

    return declared(method=False, factory=True)(named(like, name, doc))


zeros_like = _like("zeros_like", 0, "Zeros in the shape and dtype of a tensor.")
ones_like = _like("ones_like", 1, "Ones in the shape and dtype of a tensor.")
empty_like = _like("empty_like", 0, "A tensor in the shape and dtype of another with unspecified elements.")


def _plain(value: Any) -> Any:
    value = value.item() if isinstance(value, Tensor | np.generic) else value
    return value.concrete() if hasattr(type(value), "concrete") else value  # a shape needs a traced number's digits


def _counts(value: Any) -> bool:
    """Whether a value is a whole number that a step computes."""
    return hasattr(type(value), "as_size") and value.kind is int


def _counted_arange(start: Any, end: Any, step: int, dtype: DType) -> Tensor:
    """``arange`` between whole numbers that a step computes."""
    low, high = as_operand(start), as_operand(end)
    span = (high - low) * step
    count = where(span < 0, -1, -floor_divide(low - high, step)).item()
    return _ramp(start, step, count.as_size(None, "upper bound and lower bound inconsistent with step sign"), dtype)


class ZeroStepError(ArgumentError, RuntimeError):
    """A range that does not advance: torch raises RuntimeError, or ValueError for a fraction cut off."""


@declared(method=False, factory=True, out=Out(is_line=True))
def arange(
    start: Any = 0,
    end: Any = None,
    step: Any = 1,
    *,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """``start, start + step, ...`` below ``end``; integers give int64."""
    start, end = (v.item() if isinstance(v, Tensor) else v for v in (start, end))
    if end is None:
        start, end = 0, start
    if start is None or end is None or isinstance(start, str) or isinstance(end, str):
        raise ArgumentKindError(f"arange(): the ends of a range must be numbers, not {start!r} and {end!r}")
    is_whole = all(isinstance(v, int) or _counts(v) for v in (start, end))
    if type(step) is int and step and is_whole and (_counts(start) or _counts(end)):
        return finish(_counted_arange(start, end, step, dtype or int64), requires_grad, device)
    start, end, step = _plain(start), _plain(end), _plain(step)
    if not all(isinstance(v, int) or isfinite(v) for v in (start, end)):
        raise UsageError(f"unsupported range: {start} -> {end}")
    if step == 0:
        raise ZeroStepError("step must be nonzero")
    if (end - start) * step < 0:
        raise UsageError("upper bound and lower bound inconsistent with step sign")
    whole = all(isinstance(v, int | np.integer) for v in (start, end, step))
    wanted = dtype or (int64 if whole else default_dtype())
    count = size_max(0, -((start - end) // step)) if whole else max(0, ceil((end - start) / step))
    if wanted.category == 1:
        start, step = _whole(start), _whole(step)
    return finish(_ramp(start, step, count, wanted), requires_grad, device)


@declared(method=False, factory=True, out=Out(is_line=True))
def range(
    start: Any,
    end: Any,
    step: Any = 1,
    *,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """``arange`` with both ends included."""
    wanted = dtype or default_dtype()
    return arange(start, end + step * 0.5, step, dtype=wanted, device=device, requires_grad=requires_grad)


def _ramp(start: Any, step: Any, count: int, dtype: DType) -> Tensor:
    wide = int64 if isinstance(start, int) and isinstance(step, int) and dtype.category < 2 else float64
    if state.trace is not None:
        return cast(_iota(wide, count) * step + start, dtype)
    if count * wide.size_bytes > np.iinfo(np.intp).max:
        raise UsageError("invalid size, possible overflow?", {"elements": count})
    if wide is int64 and step and isinstance(count, int):
        ramp: Any = np.arange
        return wrap(ramp(start, start + count * step, step, wide.numpy).astype(dtype.numpy, copy=False))
    values = np.arange(count, dtype=wide.numpy)
    values *= step
    values += start
    return wrap(values.astype(dtype.numpy, copy=False))


def _iota(dtype: DType, *shape: int, axis: int = 0) -> Tensor:
    assert state.trace is not None
    return wrap_value(state.trace.apply(Iota(shape, axis, dtype), ())[0])


@declared(method=False, factory=True, out=Out(is_line=True))
def linspace(
    start: Tensor | Number,
    end: Tensor | Number,
    steps: int,
    *,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """``steps`` equally spaced numbers from ``start`` to ``end``, both included."""
    if steps < 0:
        raise UsageError("number of steps must be non-negative")
    start, end = _ends(start, end, dtype)
    complex_ends = isinstance(start, complex) or isinstance(end, complex)
    wanted = dtype or (default_dtype().to_complex() if complex_ends else default_dtype())
    if is_symbolic(steps) and not complex_ends:
        place = _iota(float64, steps)
        line = place * ((end - start) / (steps - 1)) + start
        return finish(cast(where(eq(place, steps - 1), end, line), wanted), requires_grad, device)
    values = np.linspace(start, end, steps)
    return finish(constant(values.astype(wanted.numpy)), requires_grad, device)


@declared(method=False, factory=True, out=Out(is_line=True))
def logspace(
    start: Tensor | Number,
    end: Tensor | Number,
    steps: int,
    base: float = 10.0,
    *,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """``base`` to equally spaced powers."""
    if steps < 0:
        raise UsageError("number of steps must be non-negative")
    values = np.power(float(base), np.linspace(*_ends(start, end, dtype), steps))
    return finish(constant(values.astype((dtype or default_dtype()).numpy)), requires_grad, device)


def _ends(start: Tensor | Number, end: Tensor | Number, dtype: DType | None) -> tuple[Any, Any]:
    """The ends of a range as Python numbers, whole ones for integers."""
    ends = _plain(start), _plain(end)
    return (_whole(ends[0]), _whole(ends[1])) if dtype is not None and dtype.category == 1 else ends


def _whole(n: Any) -> int:
    """A number without its fraction; a size keeps its expression."""
    return int(n) if isinstance(n, float | np.floating) else as_extent(n)


@declared(method=False, factory=True, out=True)
def eye(
    n: int, m: int | None = None, *, dtype: DType | None = None, device: DeviceLike = None, requires_grad: bool = False
) -> Tensor:
    """Ones on the diagonal, zeros elsewhere."""
    wanted = dtype or default_dtype()
    n, columns = as_size(n), as_size(n if m is None else m)
    for name, extent in (("n", n), ("m", columns)):
        if extent < 0:
            raise UsageError(f"{name} must be greater or equal to 0, got {extent}")
    if state.trace is None:
        return finish(wrap(np.eye(n, columns, dtype=wanted.numpy)), requires_grad, device)
    rows, places = _iota(int64, n, columns), _iota(int64, n, columns, axis=1)
    return finish(cast(eq(rows, places), wanted), requires_grad, device)
