"""From tensors to Python, NumPy and other dtypes, and the rules of ``.grad``, ``requires_grad`` and ``data``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np

from autojit.core import dtypes
from autojit.core.device import CPU, Device, DeviceLike, device, space_at
from autojit.core.device_array import host_copy
from autojit.core.dtypes import DType, as_dtype, bfloat16, dtype_of
from autojit.core.errors import ArgumentError, ArgumentKindError, IndexingError, TraceError, UsageError
from autojit.core.sizes import seems_equal
from autojit.core.wrapping import named
from autojit.dispatch.declared import declared
from autojit.dispatch.dispatch import value_of
from autojit.dispatch.on_device import moved
from autojit.dispatch.promotion import Operand, cast, converted
from autojit.functions.elementwise import clone
from autojit.functions.memory import MemoryFormat, contiguous, is_contiguous, preserve_format
from autojit.history.recording import require_unchanged, shows_grad, wants_grad
from autojit.tensor.node import Node
from autojit.tensor.size import Size
from autojit.tensor.state import carry, holders, state
from autojit.tensor.tensor import Tensor, alias, is_scalar_number, made_in_inference, type_of

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray


_parsed = device  # under a name that no parameter has


def array_of(t: Tensor) -> NDArray[Any]:
    """The tensor's NumPy array; inside a capture the trace is asked for it, which splits the trace."""
    if t._array is None and t._value is None:
        raise _batched(t)
    if state.trace is not None:
        return state.trace.concretize(value_of(t))
    if t._array is None:
        raise TraceError("a tensor of a captured step has no value outside the capture", {"tensor": t})
    return host_copy(t._array)


def memory_of(t: Tensor) -> NDArray[Any]:
    """``array_of``, for those who may keep the array or change it."""
    if state.trace is None or (t._array is None and t._value is None):
        return array_of(t)
    return state.trace.take(t)


def _batched(t: Tensor) -> UsageError:
    return UsageError(
        "vmap: a tensor that differs along a batch has no single value: item() on a Tensor and data-dependent control "
        "flow (if, while, bool()) are not possible",
        {"element": t},
        "choose with where(condition, a, b), or compute one element of the batch at a time",
    )


def item(self: Tensor) -> Any:
    """The only element as a Python number."""
    if not seems_equal(type_of(self).size, 1):
        raise UsageError(
            f"a Tensor with {type_of(self).size} elements cannot be converted to Scalar",
            fix="reduce or index it to one element first",
        )
    if self._array is None and self._value is None:
        raise _batched(self)
    if state.trace is not None:
        return state.trace.item(value_of(self))
    return array_of(self).item() if type_of(self).dtype is not bfloat16 else float(array_of(self).reshape(())[()])


def tolist(self: Tensor) -> Any:
    """Nested lists of Python numbers."""
    if state.trace is not None and self._value is not None and state.trace.stays_in_a_list(type_of(self)):
        parts = self.detach().unbind(0) if type_of(self).ndim else []
        return [tolist(part) for part in parts] if type_of(self).ndim else item(self)
    array = array_of(self)
    return array.astype(np.float32).tolist() if type_of(self).dtype is bfloat16 else array.tolist()


def numpy(self: Tensor, *, force: bool = False) -> NDArray[Any]:
    """The array itself, sharing memory; a tensor that requires gradients must be detached first.

    ``force``: detached, and from another device than the CPU as a copy.
    """
    if state.grad_enabled and not force and wants_grad(self):
        raise UsageError(
            "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.",
            fix="x.detach().numpy()",
        )
    place = type_of(self).device
    if place != CPU and not (force or space_at(place).copies_for_numpy):
        raise TypeError(
            f"can't convert {place} device type tensor to numpy. Use Tensor.cpu() to copy the tensor to "
            "host memory first."
        )
    return memory_of(self)


def __array__(self: Tensor, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
    if state.grad_enabled and wants_grad(self):
        raise UsageError(
            "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.",
            fix="x.detach().numpy(); an array that is to be filled with tensors: np.zeros_like(x), np.zeros(n, like=x) "
            "or autojit.numpy.zeros(n)",
        )
    array = numpy(self)
    if dtype is None or array.dtype == dtype:
        return array.copy() if copy else array
    return array.astype(dtype)


def __bool__(self: Tensor) -> bool:
    size = type_of(self).size
    if not seems_equal(size, 1):
        kind = "no values" if seems_equal(size, 0) else "more than one value"
        raise UsageError(f"Boolean value of Tensor with {kind} is ambiguous", fix="say which: x.any() or x.all()")
    return bool(item(self))


def only_item(self: Tensor) -> Any:
    """``item`` for Python's conversions, which refuse other tensors by an error of another type."""
    if not seems_equal(type_of(self).size, 1):
        raise ArgumentError(
            "only one element tensors can be converted to Python scalars",
            {"self": self},
            "reduce or index it to one element first",
        )
    return item(self)


def __float__(self: Tensor) -> float:
    return float(only_item(self))


def __int__(self: Tensor) -> int:
    return int(only_item(self))


def __complex__(self: Tensor) -> complex:
    return complex(only_item(self))


def __index__(self: Tensor) -> int:
    if type_of(self).dtype.category > 1 or type_of(self).size != 1:
        raise TypeError("only integer tensors of a single element can be converted to an index")
    return int(item(self))


def __len__(self: Tensor) -> int:
    shape = type_of(self).shape
    if not shape:
        raise TypeError("len() of a 0-d tensor")
    return shape[0]


def __iter__(self: Tensor) -> Iterator[Tensor]:
    if type_of(self).ndim == 0:
        raise TypeError("iteration over a 0-d tensor")
    return iter(self.unbind(0))


def __contains__(self: Tensor, element: Operand) -> bool:
    is_operand = isinstance(element, Tensor) or hasattr(type(element), "as_operand")  # a number of a step
    if not is_operand and not is_scalar_number(element):
        raise UsageError(
            f"Tensor.__contains__ only supports Tensor or scalar, but you passed in a {type(element)}.",
            {"tensor": self},
        )
    return bool((self == element).any())


def __format__(self: Tensor, format_spec: str) -> str:
    if (
        type_of(self).ndim == 0 and not self.is_meta and (format_spec or type(self) is Tensor)
    ):  # as torch: what a number shows
        return format(item(self), format_spec)
    return object.__format__(self, format_spec)


class _Wanted(NamedTuple):
    """What ``to`` is asked for; None: as it is."""

    place: Device | None
    dtype: DType | None
    copies: bool


def _wanted(args: Sequence[object], options: dict[str, Any]) -> _Wanted:
    place = options.get("device")
    dtype: Any = as_dtype(options.get("dtype"))
    flags = []
    for argument in (*map(dtype_of, args), options.get("other")):
        if isinstance(argument, bool):
            flags.append(argument)  # non_blocking, copy
        elif isinstance(argument, DType):
            dtype = argument
        elif isinstance(argument, Tensor):
            dtype, place = type_of(argument).dtype, type_of(argument).device
        elif isinstance(argument, str | Device | int):
            place = argument
        elif argument is not None:
            raise ArgumentKindError(
                f"to() received an invalid argument: {type(argument).__name__}",
                {"argument": argument},
                "give a dtype, a device or a tensor",
            )
    copies = bool(options.get("copy", flags[1] if len(flags) > 1 else False))
    return _Wanted(None if place is None else device(place), dtype, copies)


def to(self: Tensor, *args: object, **options: Any) -> Tensor:
    """In another dtype or on another device: ``to(dtype)``, ``to(device)``, ``to(device, dtype)``, ``to(other)``.

    ``non_blocking`` and ``copy`` follow, by name or place. A copy to the host always waits for its elements.
    """
    place, dtype, copies = _wanted(args, options)
    there = self if place is None else moved(self, place)
    wanted = options.get("memory_format")
    if wanted not in (None, preserve_format) and not is_contiguous(there, memory_format=wanted):
        there = contiguous(there, memory_format=wanted)
    if dtype is None or dtype is type_of(self).dtype:
        return clone(there) if copies and there is self else there
    return converted(there, dtype)


def type_as(self: Tensor, other: Tensor) -> Tensor:
    """In the dtype of another tensor, and where that is."""
    return to(self, other)


def _to_dtype(name: str, dtype: DType) -> Callable[..., Tensor]:
    def convert(self: Tensor, memory_format: MemoryFormat = preserve_format) -> Tensor:
        return cast(self, dtype) if memory_format is preserve_format else to(self, dtype, memory_format=memory_format)

    return named(convert, name, f"In {dtype.name}; the tensor itself if it already is.")


def cpu(self: Tensor, memory_format: MemoryFormat = preserve_format) -> Tensor:
    """On the CPU."""
    there = moved(self, CPU)
    return there if memory_format is preserve_format else to(there, memory_format=memory_format)


def cuda(
    self: Tensor,
    device: DeviceLike = None,
    non_blocking: bool = False,
    memory_format: MemoryFormat = preserve_format,
) -> Tensor:
    """On a GPU, which must be there.

    Raises:
        RuntimeError: another device is named, or there is none.
    """
    place = Device("cuda") if device is None else _parsed(device)
    if place.type != "cuda":
        raise UsageError("Invalid device, must be cuda device", {"device": place}, "x.to(device) goes anywhere")
    there = moved(self, place)
    return there if memory_format is preserve_format else to(there, memory_format=memory_format)


@overload
def size(self: Tensor, dim: None = None) -> Size: ...
@overload
def size(self: Tensor, dim: int) -> int: ...
def size(self: Tensor, dim: int | None = None) -> Any:
    """The shape, or one extent."""
    shape = type_of(self).shape
    if dim is None:
        return Size(shape)
    if not -max(len(shape), 1) <= dim < len(shape):
        raise IndexingError(
            f"Dimension out of range (expected to be in range of [{-max(len(shape), 1)}, {len(shape) - 1}], but got "
            f"{dim})"
        )
    return shape[dim]


@declared()
def numel(input: Tensor) -> int:
    """The number of elements."""
    return type_of(input).size


def dim(self: Tensor) -> int:
    """The number of axes."""
    return type_of(self).ndim


def element_size(self: Tensor) -> int:
    """Bytes per element."""
    return type_of(self).dtype.size_bytes


@declared()
def is_floating_point(input: Tensor) -> bool:
    """Whether the dtype is a floating one."""
    return type_of(input).dtype.is_floating_point


@declared()
def is_complex(input: Tensor) -> bool:
    """Whether the dtype is complex."""
    return type_of(input).dtype.is_complex


@declared()
def is_signed(input: Tensor) -> bool:
    """Whether the dtype has negative numbers."""
    return type_of(input).dtype.is_signed


@declared()
def get_device(input: Tensor) -> int:
    """The device's ordinal, -1 on the CPU."""
    place = type_of(input).device
    return -1 if place == CPU else place.index or 0


@declared()
def detach(input: Tensor) -> Tensor:
    """An alias without history; in-place changes are seen by both and counted together."""
    made = alias(input)
    if state.layers:
        carry(input, made, with_history=False)
    if state.trace is not None and made._array is not None:
        state.trace.begin(made, input)
    return made


@declared()
def detach_(input: Tensor) -> Tensor:
    """Cut this tensor off its history; it becomes a leaf that requires no gradient."""
    if input._view is not None and input._view.base is not None:
        raise UsageError("Can't detach views in-place. Use detach() instead.", {"view": input}, "use detach()")
    if state.trace is not None:
        state.trace.note_detached(input)
    input._requires_grad, input._grad_fn, input._output_nr, input._accumulator = False, None, 0, None
    for layer in state.layers:
        layer.detached(input)
    return input


def get_requires_grad(self: Tensor) -> bool:
    """Whether gradients are computed for this tensor."""
    return shows_grad(self)


def set_requires_grad(self: Tensor, wanted: bool) -> None:
    """Only leaves may be changed; only floating and complex dtypes can require gradients."""
    if not isinstance(wanted, bool | np.bool_):
        raise UsageError("requires_grad must be a bool", {"got": type(wanted).__name__})
    if wanted and not self._requires_grad and made_in_inference(self) and not state.inference:
        raise UsageError(
            "Setting requires_grad=True on inference tensor outside InferenceMode is not allowed.",
            {"tensor": self},
            "clone() it first: the copy is a normal tensor",
        )
    wants_grad(self)
    if not wanted and self._grad_fn is not None:
        raise UsageError(
            "you can only change requires_grad flags of leaf variables. If you want to use a computed variable in a "
            "subgraph that doesn't require differentiation use var_no_grad = var.detach()."
        )
    if wanted and not type_of(self).dtype.is_differentiable:
        raise UsageError("only Tensors of floating point and complex dtype can require gradients", {"tensor": self})
    if state.trace is not None and self._array is not None:
        state.trace.note_flag(self, self._requires_grad, bool(wanted))
    self._requires_grad = bool(wanted)
    for holder in holders(self) if state.layers else ():
        holder._requires_grad = self._requires_grad


@declared()
def is_inference(input: Tensor) -> bool:
    """Whether the tensor was made in inference mode, so that no history can ever need it."""
    return made_in_inference(input)


def _is_view(self: Tensor) -> bool:
    """Whether the tensor is a view whose base's history follows writes through it."""
    if state.trace is not None:
        state.trace.asked_memory(self, "the base")
    return self._view is not None and self._view.base is not None


@overload
def requires_grad_(self: Tensor, mode: bool = True, /) -> Tensor: ...
@overload
def requires_grad_(self: Tensor, *, requires_grad: bool) -> Tensor: ...
def requires_grad_(self: Tensor, mode: bool = True, **old_name: bool) -> Tensor:
    """Set ``requires_grad``, also under that name; returns the tensor."""
    set_requires_grad(self, old_name.pop("requires_grad", mode))
    if old_name:
        raise TypeError(f"requires_grad_() got an unexpected keyword argument {next(iter(old_name))!r}")
    return self


def get_grad_fn(self: Tensor) -> Node | None:
    """The node that made the tensor; None for leaves."""
    wants_grad(self)
    if self._view is not None:
        require_unchanged(self)
    return self._grad_fn


def is_leaf(self: Tensor) -> bool:
    """Whether the tensor was made by the user or needs no gradient."""
    return not wants_grad(self) or self._grad_fn is None


METHODS: dict[str, Any] = {
    name: value
    for name, value in globals().copy().items()
    if callable(value) and getattr(value, "__module__", "") == __name__ and name not in ("array_of",)
}
for _name, _dtype in {
    "float": dtypes.float32, "double": dtypes.float64, "half": dtypes.float16, "bfloat16": bfloat16,
    "int": dtypes.int32, "long": dtypes.int64, "short": dtypes.int16, "char": dtypes.int8, "byte": dtypes.uint8,
    "bool": dtypes.bool_, "cfloat": dtypes.complex64, "cdouble": dtypes.complex128,
}.items():  # fmt: skip
    METHODS[_name] = _to_dtype(_name, _dtype)
for _name in (
    "_Wanted", "_to_dtype", "_wanted", "get_requires_grad", "set_requires_grad", "get_grad_fn", "is_leaf",
):  # fmt: skip
    METHODS.pop(_name)
METHODS |= {
    "requires_grad": property(get_requires_grad, set_requires_grad),
    "grad_fn": property(get_grad_fn),
    "is_leaf": property(is_leaf),
    "nelement": numel,
    "ndimension": dim,
}
