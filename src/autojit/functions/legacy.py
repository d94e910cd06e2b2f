"""``FloatTensor`` and its like: names for tensors of one dtype, as constructors, in ``isinstance`` and ``type()``.

Attributes that old versions of PyTorch had say what replaced them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

from autojit.core import dtypes
from autojit.core.device import DeviceLike
from autojit.core.device import device as parsed
from autojit.core.dtypes import DType, default_dtype, set_default_dtype
from autojit.core.errors import ArgumentError, UsageError
from autojit.core.package_name import full_name
from autojit.core.user_warnings import warn
from autojit.dispatch.on_device import moved
from autojit.dispatch.promotion import cast
from autojit.functions.factories import tensor, zeros
from autojit.tensor.size import Size
from autojit.tensor.tensor import Tensor, type_of


def require_place(device: DeviceLike, kind: str, data: Sequence[object]) -> None:
    """UsageError for a device of another kind than a constructor makes tensors on, or beside a tensor."""
    if device is None:
        return
    if parsed(device).type != kind:
        raise UsageError(
            f"legacy constructor expects device type: {kind} but device type: {parsed(device).type} was passed",
            fix="use tensor(data, device=...)",
        )
    if data and isinstance(data[0], Tensor):
        raise UsageError("legacy constructor takes no device beside a tensor", fix="use x.to(device)")


def construct(cls: type[Tensor], data: tuple[Any, ...], options: dict[str, Any]) -> Tensor:
    """``Tensor(sequence)`` and ``Tensor(2, 3)``."""
    require_place(options.get("device"), "cpu", data)
    if data and (all(isinstance(d, int) for d in data) or (len(data) == 1 and isinstance(data[0], Size))):
        found = zeros(*data)
    elif not data:
        found = zeros(0)
    else:
        found = tensor(data[0], dtype=default_dtype() if not isinstance(data[0], Tensor) else None)
    return found if cls is Tensor else Tensor._make_subclass(cls, found)


class TensorKind(type):
    """The class of ``FloatTensor`` and its like: calling one makes a tensor, any tensor of the dtype is an instance."""

    dtype: DType

    def __call__(cls, *data: Any, device: DeviceLike = None, **options: object) -> Tensor:
        require_place(device, "cpu", data)
        if not data:
            return zeros(0, dtype=cls.dtype)
        (first, *_) = data
        if all(type(d) is int for d in data) or (len(data) == 1 and isinstance(first, Size)):
            return zeros(*data, dtype=cls.dtype)
        if isinstance(first, Tensor):
            if type_of(first).dtype is not cls.dtype:
                raise TypeError(f"expected {cls!r} (got {first.type()})")
            return first.detach()
        return tensor(first, dtype=cls.dtype)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, Tensor) and type_of(instance).dtype is cls.dtype

    def __repr__(cls) -> str:
        return f"<class 'autojit.{cls.__name__}'>"


_DTYPES = {
    "FloatTensor": dtypes.float32, "DoubleTensor": dtypes.float64, "HalfTensor": dtypes.float16,
    "BFloat16Tensor": dtypes.bfloat16, "ByteTensor": dtypes.uint8, "CharTensor": dtypes.int8,
    "ShortTensor": dtypes.int16, "IntTensor": dtypes.int32, "LongTensor": dtypes.int64, "BoolTensor": dtypes.bool_,
    "ComplexFloatTensor": dtypes.complex64, "ComplexDoubleTensor": dtypes.complex128,
}  # fmt: skip
KINDS: dict[str, TensorKind] = {
    name: TensorKind(name, (), {"dtype": dtype, "__doc__": f"A tensor of {dtype.name} from data or extents."})
    for name, dtype in _DTYPES.items()
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


def kind_name(t: Tensor) -> str:
    """``autojit.FloatTensor`` and its like; on another device than the CPU its name comes between."""
    spec = type_of(t)
    place = "" if spec.device.type == "cpu" else f"{spec.device.type}."
    return full_name(f"{place}{_NAMES.get(spec.dtype, spec.dtype.name)}")


def set_default_tensor_type(t: object) -> None:
    """``set_default_dtype`` of a class such as ``DoubleTensor``, or of its name.

    Raises:
        TypeError: there is no such class, or its dtype is not floating.

    Example:
        >>> import autojit as aj
        >>> aj.set_default_tensor_type("autojit.DoubleTensor")
        >>> aj.ones(1).dtype
        autojit.float64
        >>> aj.set_default_tensor_type(aj.FloatTensor)
    """
    kind = KINDS.get(t.rpartition(".")[2]) if isinstance(t, str) else t
    if not isinstance(kind, TensorKind):
        raise TypeError(f"invalid type object: {t!r}; known are {', '.join(KINDS)}")
    set_default_dtype(kind.dtype)


@overload
def type_(self: Tensor, dtype: None = None, non_blocking: bool = False) -> str: ...
@overload
def type_(self: Tensor, dtype: str | DType | TensorKind, non_blocking: bool = False) -> Tensor: ...
def type_(self: Tensor, dtype: object = None, non_blocking: bool = False) -> Any:
    """The name of the tensor's type; with a dtype, a class or a name, the tensor converted to it.

    Raises:
        ValueError: there is no such type.

    Example:
        >>> import autojit as aj
        >>> x = aj.zeros(2)
        >>> x.type()
        'autojit.FloatTensor'
        >>> x.type("autojit.LongTensor")
        tensor([0, 0])
    """
    if dtype is None:
        return kind_name(self)
    if isinstance(dtype, str):
        place = dtype.rpartition(".")[0].partition(".")[2].partition(".")[0]  # torch.cuda.FloatTensor
        if place not in ("", "sparse"):
            self = moved(self, place)
        kind = KINDS.get(dtype.rpartition(".")[2])
        if kind is None:
            raise ArgumentError(f"invalid type: {dtype!r}", {"known": ", ".join(KINDS)})
        dtype = kind
    if isinstance(dtype, TensorKind):
        dtype = dtype.dtype
    if not isinstance(dtype, DType):
        raise TypeError(f"dtype must be a type, str, or dtype object, not {type(dtype).__name__}")
    return cast(self, dtype)


def new(self: Tensor, *data: Any, device: DeviceLike = None, **options: object) -> Tensor:
    """A tensor of this tensor's dtype from data or extents, as its class would make it."""
    require_place(device, type_of(self).device.type, data)
    return moved(KINDS[_NAMES[type_of(self).dtype]](*data), type_of(self).device)


def get_volatile(self: Tensor) -> bool:
    """Always False; warns."""
    warn("volatile was removed (Variable.volatile is always False)", UserWarning)
    return False


def set_volatile(self: Tensor, value: bool) -> None:
    """Nothing; warns."""
    warn_volatile()


def warn_volatile() -> None:
    """Say what replaces ``volatile``."""
    warn("volatile was removed and now has no effect. Use `with no_grad():` instead.", UserWarning)


def reinforce(self: Tensor, reward: object = None) -> None:
    """Say what replaces it.

    Raises:
        RuntimeError: always.
    """
    raise UsageError(
        "reinforce() was removed",
        {"tensor": self},
        "differentiate the loss -distribution.log_prob(sample) * reward, with autojit.distributions or a log_prob of "
        "your own; autojit.compat.v0_3 still has stochastic nodes",
    )


def names_of(self: Tensor) -> list[str]:
    """What the tensor has: not what only warns, nor what a device's memory has."""
    hidden = {"volatile"} if type_of(self).device.type == "cuda" else {"volatile", "__cuda_array_interface__"}
    return sorted(set(object.__dir__(self)) - hidden)


METHODS: dict[str, Any] = {
    "_construct": staticmethod(construct),
    "__dir__": names_of,
    "type": type_,
    "new": new,
    "volatile": property(get_volatile, set_volatile),
    "reinforce": reinforce,
}
