"""The Tensor object: its fields, and what can be read off them without computing.

Everything that computes (operators, methods, indexing, history) is attached by ``functions/methods.py`` from
the modules that define it once as a function.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, overload

import numpy as np

from autojit.core.device import CPU, Device
from autojit.core.device_array import Array, DeviceArray, layout_in_memory
from autojit.core.dtypes import DType, dtype_of_numpy
from autojit.core.errors import UsageError, register_operand_type, tensor_expected
from autojit.core.once import first_use
from autojit.core.types import TensorType
from autojit.ir.graph import Value
from autojit.tensor.memory_orders import row_major, seen_through
from autojit.tensor.node import TYPES, Hooks, Node, new_type
from autojit.tensor.refused_dispatch import checked_subclass, refuse_dispatch
from autojit.tensor.size import Size
from autojit.tensor.state import source_of, state
from autojit.tensor.storage import INFERENCE_VIEW, SameMemory, Storage, View

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from autojit.tensor.tensor_methods import TensorMethods
else:
    TensorMethods = object

_object_new = object.__new__
LIKE_LEAF = object()
"""The ``grad_dtype`` of a leaf for which none was set."""


class Tensor(TensorMethods):
    """A multi-dimensional array of one dtype that can record how it was computed.

    Concrete tensors hold a NumPy array in ``_array``. While a step is captured, results hold an IR value in ``_value``
    and no array. History: ``_grad_fn`` and ``_output_nr`` for results, ``_accumulator`` for leaves. Aliasing:
    ``_storage`` (made on demand) and ``_view``.
    """

    __slots__ = (
        "__dict__", "__weakref__", "_accumulator", "_array", "_grad", "_grad_fn", "_leaf_hooks", "_output_nr",
        "_requires_grad", "_retains_grad", "_storage", "_type", "_value", "_view",
    )  # fmt: skip
    _array: Any  # NDArray, or None while traced
    _value: Value | None
    _type: TensorType | None
    _requires_grad: bool
    _grad_fn: Node | None
    _output_nr: int
    _grad: Tensor | None
    _accumulator: weakref.ref[Node] | None
    _leaf_hooks: tuple[Hooks, Hooks] | None  # (tensor hooks, post-accumulate hooks) of a leaf
    _retains_grad: bool
    _storage: Storage | None
    _view: View | None

    # of sparse tensors, whose elements are in no ``_array``
    _index_part: Tensor
    _values_part: Tensor
    _blocksize: tuple[int, int] | None
    _become: Callable[[Tensor], None]

    _grad_dtype: Any = LIKE_LEAF  # or a DType, or None for any

    __array_priority__ = 1000  # NumPy scalars and arrays leave binary operators to us

    def __new__(cls, *data: object, **options: object) -> Tensor:
        """``Tensor(sequence)`` in the default dtype, or ``Tensor(2, 3)``; ``autojit.tensor`` is preferred."""
        return cls._construct(cls, data, options)

    def __init__(self, *data: object, **options: object) -> None:
        """Everything was done by ``__new__``."""

    @staticmethod
    def _make_subclass(cls: type[T], data: Tensor, requires_grad: bool = False) -> T:
        """A leaf of class ``cls`` that shares storage with ``data``."""
        return data._leaf_of(cls, bool(requires_grad))

    @staticmethod
    def _make_wrapper_subclass(cls: type, size: object, *shape: object, **options: object) -> NoReturn:
        """Refused: a tensor without elements of its own would need ``__torch_dispatch__``."""
        refuse_dispatch(cls, "Tensor._make_wrapper_subclass")

    def _leaf_of(self, cls: type[T], requires_grad: bool) -> T:
        made = alias(self, checked_subclass(cls))
        made._requires_grad = requires_grad
        if state.trace is not None and made._array is not None:
            state.trace.begin(made, self)
        return made

    def _stand_in(self, made: Tensor) -> Tensor:
        """What stands for this tensor in a capture: ``made``, of this tensor's class."""
        kind: Any = type(self)
        if kind is Tensor or kind is StepGradient:
            return made
        found: Tensor = _object_new(kind)
        for name in SLOTS:
            setattr(found, name, getattr(made, name))
        for name in slots_besides(kind):
            if hasattr(self, name):
                setattr(found, name, getattr(self, name))
        return found

    @property
    def shape(self) -> Size:
        array = self._array
        return Size(array.shape if array is not None else type_of(self).shape)

    @property
    def dtype(self) -> DType:
        array = self._array
        return dtype_of_numpy(array.dtype) if array is not None else type_of(self).dtype

    @property
    def device(self) -> Device:
        return CPU if type(self._array) is np.ndarray else type_of(self).device

    @property
    def ndim(self) -> int:
        array = self._array
        return array.ndim if array is not None else len(type_of(self).shape)

    @property
    def output_nr(self) -> int:
        return self._output_nr

    @property
    def retains_grad(self) -> bool:
        """Whether a non-leaf keeps its ``.grad`` (``retain_grad``)."""
        return self._retains_grad

    @property
    def _version(self) -> int:
        if made_in_inference(self):
            raise UsageError("Inference tensors do not track version counter.", {"tensor": self})
        if state.trace is not None:
            state.trace.asked_version(self)
        return 0 if self._storage is None else self._storage.version

    @property
    def _base(self) -> Tensor | None:
        if state.trace is not None:
            state.trace.asked_memory(self, "the base")
        return None if self._view is None else self._view.base

    @property
    def spec(self) -> TensorType:
        """Shape, dtype and device: what every operand of an op tells."""
        found = self._type
        return type_of(self) if found is None else found

    def _differentiated(self) -> Tensor:
        """The tensor that has this one's history: itself, or the values of a sparse one."""
        return self

    def _part_of(self, other: Any) -> Any:
        """A cotangent in the form of ``_differentiated()``."""
        return other

    def _with_part(self, part: Tensor) -> Tensor:
        """This tensor with ``part`` in the place of ``_differentiated()``."""
        return part

    def _from_part(self, part: Any) -> Any:
        """What a gradient of ``_differentiated()`` is shown as."""
        return part

    def __hash__(self) -> int:
        return id(self)

    def describe(self) -> str:
        """How errors name the tensor: type, and the line that made it where that is known."""
        text = str(type_of(self))
        if self._value is not None:
            made = source_of(self._value)
            return f"{text}  made at {made}" if made is not None else text
        return f"{text}  {self._grad_fn.source}" if self._grad_fn is not None else text


T = TypeVar("T", bound=Tensor)
register_operand_type(Tensor)


def type_of(t: Tensor) -> TensorType:
    """The tensor's type, kept once it was asked for."""
    try:
        found = t._type
    except Exception:  # what an object's own ``__getattr__`` raises is not its user's error
        raise tensor_expected(t) from None
    if found is None:
        array = t._array
        if array is not None:
            if type(array) is DeviceArray:
                t._type = found = array_type(array)
                return found
            key = (array.shape, array.dtype)
            found = TYPES.get(key)
            t._type = found = new_type(key) if found is None else found
        else:
            assert t._value is not None
            found = t._type = t._value.type
    return found


def array_type(array: Array) -> TensorType:
    """The type of a tensor that would have an array."""
    place = array.space.device if type(array) is DeviceArray else CPU
    return TensorType(array.shape, dtype_of_numpy(array.dtype), place)


def wrap(array: NDArray[Any] | None) -> Tensor:
    """A plain Tensor around a NumPy array, without copying; its dtype must be one of ours. None: it is traced."""
    t = _object_new(Tensor)
    t._array = array
    t._value = None
    t._type = None
    t._requires_grad = False
    t._grad_fn = None
    t._output_nr = 0
    t._grad = None
    t._accumulator = None
    t._leaf_hooks = None
    t._retains_grad = False
    t._storage = None
    t._view = None
    return t


def wrap_value(value: Value) -> Tensor:
    """A traced Tensor for an IR value."""
    t = wrap(None)
    t._value = value
    t._type = value.type
    return t


SLOTS = tuple([name for name in Tensor.__slots__ if not name.startswith("__")])
"""What every tensor holds, besides its dictionary."""


@functools.cache
def slots_besides(kind: type) -> tuple[str, ...]:
    """The slots that a subclass adds."""
    found: list[str] = []
    for cls in kind.__mro__[: kind.__mro__.index(Tensor)]:
        slots = cls.__dict__.get("__slots__", ())
        found += [slots] if isinstance(slots, str) else slots
    return tuple([name for name in found if name not in ("__dict__", "__weakref__")])


class StepGradient(Tensor):
    """A ``.grad`` whose memory a compiled step writes again at every call; readers get a lent one.

    ``reader`` is the array that readers get, None as long as nobody has read. It shows the same memory by a buffer of
    its own: whoever keeps a tensor, a view or an array of it counts as a holder of ``reader``, and no step does.
    """

    __slots__ = ("reader",)

    reader: Any


def storage_of(t: Tensor) -> Storage:
    """The tensor's storage, made now if it had none."""
    found = t._storage
    if found is None:
        with first_use:
            found = t._storage
            if found is None:
                found = Storage(t._array, t._value)
                found.inference = t._view is INFERENCE_VIEW
                t._storage = found
    return found


def made_in_inference(t: Tensor) -> bool:
    """Whether a tensor, or what it is a view of, was made in inference mode."""
    storage = t._storage
    return t._view is INFERENCE_VIEW if storage is None else storage.inference


def has_own_memory(t: Tensor) -> bool:
    """Whether nobody else can have a fresh tensor's memory; inference mode gives it a storage at once in a capture."""
    view = t._view
    return t._storage is None or (view is not None and view.base is None and not view.chain and t._storage.inference)


def counted_with(made: Tensor, source: Tensor) -> Tensor:
    """``made``, which is fresh and stands for ``source``: a change of that spoils a history that has kept it."""
    if made._array is not None and made._storage is None:
        made._storage = SameMemory(storage_of(made), storage_of(source))
    if made._array is None and made._storage is None and made._value is not None:
        storage = made._storage = storage_of(source)
        made._view = View(None, (), None, storage)  # its own: it remembers when its value held
    return made


@overload
def alias(t: Tensor, *, own_version: bool = False) -> Tensor: ...
@overload
def alias(t: Tensor, cls: type[T], own_version: bool = False) -> T: ...
def alias(t: Tensor, cls: type[Tensor] = Tensor, own_version: bool = False) -> Tensor:
    """A tensor without history on the same memory (``detach``); ``own_version`` gives it its own counter (``data``)."""
    storage = storage_of(t)
    made: Tensor = _object_new(cls)
    made._array = t._array
    made._value = t._value
    made._type = t._type
    made._requires_grad = False
    made._grad_fn = None
    made._output_nr = 0
    made._grad = None
    made._accumulator = None
    made._leaf_hooks = None
    made._retains_grad = False
    made._view = None
    if own_version:
        inference, origin = storage.inference, storage if storage.origin is None else storage.origin
        storage = SameMemory(storage) if storage.array is None else Storage(storage.array, None)
        storage.inference = inference
        if storage.array is not None:
            storage.origin = origin
    made._storage = storage
    chain = storage_chain(t)
    if t._array is None and t._view is None:
        made._value = storage.value  # a traced root whose views were written since its own value was last asked for
    if chain or t._array is None:
        made._view = View(None, chain, None, storage)
        if own_version and storage.array is not None:
            made._view.value_changes = -1  # of memory from outside: what it holds is asked by way of the new storage
        elif t._view is not None:
            made._view.value_changes = t._view.value_changes
    elif storage.inference:
        made._view = INFERENCE_VIEW
    return made


def storage_chain(t: Tensor) -> tuple[Any, ...]:
    """The view ops that lead from the storage's root to the tensor."""
    view = t._view
    if view is None:
        return ()
    if view.base is None:
        return view.chain
    return (*view.base_chain, *view.chain) if view.base_chain else view.chain


def relative_chain(t: Tensor) -> tuple[Any, ...]:
    """The view ops that lead from a view's base, as it is now, to the view."""
    view = t._view
    assert view is not None
    assert view.base is not None
    base = view.base
    now = base._view.chain if base._view is not None else ()
    if now is view.base_chain or now == view.base_chain or base._storage is not t._storage:
        return view.chain
    return (*_undo(t, view.base_chain, now[len(view.base_chain) :]), *view.chain)


def _undo(t: Tensor, before: tuple[Any, ...], done: tuple[Any, ...]) -> tuple[Any, ...]:
    """The view ops that take back ``done``, what a base did to itself (``transpose_``, ``unsqueeze_``)."""
    storage = t._storage
    assert storage is not None
    if storage.array is not None:
        shown = array_type(storage.array).with_dtype(type_of(t).dtype)
    else:
        assert storage.value is not None
        shown = storage.value.type
    for op in before:
        shown = op.result_type(shown)
    return taken_back(t, shown, done)


def taken_back(t: Tensor, shown: TensorType, done: tuple[Any, ...]) -> tuple[Any, ...]:
    """The view ops that lead back to a tensor of type ``shown`` from what ``done`` made of it."""
    undone: list[Any] = []
    for op in done:
        if op.name not in ("permute", "reshape"):
            raise UsageError(
                "a view's base was changed in place to show other memory, so its history cannot reach the view",
                {"view": t, "changed by": op},
                "use the out-of-place form on the base",
            )
        undone.append(op.inverse if op.name == "permute" else type(op)(shown.shape))
        shown = op.result_type(shown)
    return tuple(reversed(undone))


def layout_of(t: Tensor) -> NDArray[Any]:
    """An array whose shape and strides are those the tensor has; of a traced tensor, those it would have eagerly."""
    if t._array is not None:
        return layout_in_memory(t._array)
    found: NDArray[Any] = memory_of(t)[0]
    return found


def memory_of(t: Tensor) -> tuple[Any, Any]:
    """The tensor's array and that of its storage; of a traced tensor, arrays that are laid out as both would be."""
    storage = t._storage
    if t._array is not None:
        return t._array, t._array if storage is None else storage.array
    root = storage.array if storage is not None else None
    root = None if root is None else layout_in_memory(root)
    of_root = None
    if root is None:
        value = storage.value if storage is not None and storage.value is not None else t._value
        root = None if state.trace is None or value is None else state.trace.order_of(value)
        of_root = type_of(t) if value is None else value.type
        root = row_major(of_root) if root is None else root
    return seen_through(root, storage_chain(t), of_root), root


def is_scalar_number(value: object) -> bool:
    """Whether a value is a Python or NumPy number (which takes part in promotion as a wrapped number)."""
    return isinstance(value, int | float | complex | np.generic)
