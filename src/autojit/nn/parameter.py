"""Parameter and Buffer: tensors that a Module keeps; and both without a shape yet, which lazy modules make.

The memory of an uninitialised tensor is out of reach: reading ``_array``, as every op does, is the error.
``materialize`` turns the same object into an ordinary tensor, so an optimiser that already holds it goes on with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from inspect import signature
from typing import Any, ClassVar, NoReturn

import autojit as aj
from autojit.core.device import Device
from autojit.core.dtypes import DType, dtype_of_numpy
from autojit.core.errors import ArgumentError, UsageError
from autojit.tensor import Tensor
from autojit.tensor.tensor import array_type, wrap


def named_pairs(given: Any) -> list[tuple[str, Any]]:
    """The names and values of a sequence of pairs; TypeError or ValueError for what is none, as in torch."""
    if not isinstance(given, Iterable):
        raise TypeError(f"ParametersDict.update should be called with an iterable, but got {type(given).__name__}")
    pairs = list(given)
    for k, pair in enumerate(pairs):
        if not isinstance(pair, Iterable):
            raise TypeError(f"ParameterDict update sequence element #{k} should be Iterable; is {type(pair).__name__}")
        if len(parts := list(pair)) != 2:
            raise ValueError(f"ParameterDict update sequence element #{k} has length {len(parts)}; 2 is required")
    return pairs


class Parameter(Tensor):
    """A tensor that becomes a parameter of the Module it is assigned to.

    Shares storage with ``data``; is always a leaf. ``requires_grad`` defaults to True.

    Example:
        >>> import autojit as aj
        >>> aj.nn.Parameter(aj.zeros(2)).requires_grad
        True
    """

    __slots__ = ()

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> Parameter:
        data = aj.empty(0) if data is None else data
        if requires_grad and not (data.is_floating_point() or data.is_complex()):
            raise UsageError(
                "Only Tensors of floating point and complex dtype can require gradients",
                {"data": data},
                "pass requires_grad=False",
            )
        return Tensor._make_subclass(cls, data.detach(), requires_grad)

    def __repr__(self) -> str:
        return "Parameter containing:\n" + super().__repr__()

    __str__ = __repr__

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        """A parameter of the same class on memory of its own, without the gradient."""
        found: Parameter | None = memo.get(id(self))
        if found is None:
            found = memo[id(self)] = Tensor._make_subclass(type(self), self.detach().clone(), self.requires_grad)
        return found

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return _rebuild_parameter, (self.detach(), self.requires_grad, dict(self.__dict__))


class Buffer(Tensor):
    """A tensor that becomes a buffer of the Module it is assigned to: state without a gradient.

    ``persistent`` buffers are part of the Module's ``state_dict``.
    """

    __slots__ = ()  # none of its own: an uninitialised one becomes an ordinary tensor
    persistent: bool

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True) -> Buffer:
        data = aj.empty(0) if data is None else data
        made: Buffer = Tensor._make_subclass(cls, data.detach(), data.requires_grad)
        made.persistent = persistent
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> Buffer:
        found: Buffer | None = memo.get(id(self))
        if found is None:
            found = memo[id(self)] = Buffer(self.detach().clone(), persistent=self.persistent)
        return found

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return _rebuild_buffer, (self.detach(), self.persistent)


def _rebuild_parameter(data: Tensor, requires_grad: bool, attributes: dict[str, Any] | None = None) -> Parameter:
    made = Parameter(data, requires_grad)
    made.__dict__.update(attributes or {})
    return made


def _rebuild_buffer(data: Tensor, persistent: bool) -> Buffer:
    return Buffer(data, persistent=persistent)


_memory: Any = vars(Tensor)["_array"]
_FIX = "call the module with a batch first: its shapes follow from the input"


class UninitializedTensorMixin(Tensor):
    """What uninitialised parameters and buffers share."""

    __slots__ = ()
    cls_to_become: ClassVar[type[Tensor]] = Tensor

    @property
    def _array(self) -> NoReturn:
        name = type(self).__name__
        raise ArgumentError(f"Attempted to use an uninitialized parameter: {name} has no elements yet", fix=_FIX)

    @_array.setter
    def _array(self, array: Any) -> None:
        _memory.__set__(self, array)

    @property
    def data(self) -> Tensor:
        """An empty tensor of the dtype and on the device that the parameter will have."""
        return wrap(_memory.__get__(self))

    @data.setter
    def data(self, new: Tensor) -> None:
        _memory.__set__(self, new._array)
        self._type, self._storage, self._view = None, None, None

    @property
    def shape(self) -> NoReturn:
        raise UsageError("Can't access the shape of an uninitialized parameter or buffer.", fix=_FIX)

    @property
    def dtype(self) -> DType:
        return dtype_of_numpy(_memory.__get__(self).dtype)

    @property
    def device(self) -> Device:
        return array_type(_memory.__get__(self)).device

    def describe(self) -> str:
        """How errors name the tensor."""
        return f"{type(self).__name__} of {self.dtype}"

    def share_memory_(self) -> NoReturn:
        raise UsageError("Can't share memory on an uninitialized parameter or buffer.", fix=_FIX)

    def is_floating_point(self) -> bool:
        """Whether the dtype is a floating one."""
        return self.dtype.is_floating_point

    def is_complex(self) -> bool:
        """Whether the dtype is complex."""
        return self.dtype.is_complex

    def materialize(self, shape: int | Sequence[int], device: Any = None, dtype: DType | None = None) -> None:
        """Become an ordinary parameter or tensor of this shape with undefined elements.

        Args:
            device, dtype: in place of those given when the tensor was made.
        """
        made = aj.empty(shape, device=self.device if device is None else device, dtype=dtype or self.dtype)
        self.data = made
        self.__class__ = self.cls_to_become  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        found = memo.get(id(self))
        if found is None:
            found = memo[id(self)] = type(self)(self.requires_grad, self.device, self.dtype)
        return found

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return type(self), (self.requires_grad, self.device, self.dtype)


class UninitializedParameter(UninitializedTensorMixin, Parameter):
    """A parameter whose shape is not known yet; every op on it is an error until ``materialize``.

    Example:
        >>> from autojit import nn
        >>> p = nn.UninitializedParameter()
        >>> p.materialize((2, 3))
        >>> p.shape
        autojit.Size([2, 3])
    """

    __slots__ = ()
    cls_to_become = Parameter

    def __new__(
        cls, requires_grad: bool = True, device: Any = None, dtype: DType | None = None
    ) -> UninitializedParameter:
        made: UninitializedParameter = Tensor._make_subclass(
            cls, aj.empty(0, device=device, dtype=dtype), requires_grad
        )
        return made

    def __init__(self, requires_grad: bool = True, device: Any = None, dtype: DType | None = None) -> None:
        """Everything was done by ``__new__``."""


class UninitializedBuffer(UninitializedTensorMixin, Buffer):
    """A buffer whose shape is not known yet; every op on it is an error until ``materialize``.

    Example:
        >>> from autojit import nn
        >>> nn.UninitializedBuffer()
        <UninitializedBuffer>
    """

    __slots__ = ()

    def __new__(
        cls,
        requires_grad: bool = False,
        device: Any = None,
        dtype: DType | None = None,
        persistent: bool = True,
    ) -> UninitializedBuffer:
        made: UninitializedBuffer = Tensor._make_subclass(cls, aj.empty(0, device=device, dtype=dtype), requires_grad)
        made.persistent = persistent
        return made

    def __init__(
        self,
        requires_grad: bool = False,
        device: Any = None,
        dtype: DType | None = None,
        persistent: bool = True,
    ) -> None:
        """Everything was done by ``__new__``."""


def is_lazy(param: Any) -> bool:
    """Whether ``param`` is an uninitialised parameter or buffer.

    Example:
        >>> from autojit import nn
        >>> from autojit.nn.parameter import is_lazy
        >>> is_lazy(nn.UninitializedParameter())
        True
    """
    return isinstance(param, UninitializedTensorMixin)


def register_as_told(module: Any, name: str, buffer: Buffer) -> None:
    """Call ``register_buffer``, which a subclass may have without ``persistent``: from when there was none.

    Raises:
        RuntimeError: it has not, and the buffer is not persistent.
    """
    if "persistent" in signature(module.register_buffer).parameters:
        module.register_buffer(name, buffer, buffer.persistent)
    elif buffer.persistent:
        module.register_buffer(name, buffer)
    else:
        raise RuntimeError(
            "Registering a non-persistent buffer on a Module subclass that implements register_buffer() without the "
            "persistent argument is not allowed."
        )
