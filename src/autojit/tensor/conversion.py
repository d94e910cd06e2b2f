"""From tensors to Python, NumPy and other dtypes, and the rules of ``.grad``, ``requires_grad`` and ``data``."""

from __future__ import annotations

import copy
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from autojit.core.device import Device, device, require_available
from autojit.core.dtypes import (
    DType,
    bfloat16,
    bool_,
    complex64,
    complex128,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
)  # fmt: skip
from autojit.core.errors import IndexingError, TraceError, UsageError
from autojit.core.ports import ports
from autojit.tensor.dispatch import value_of
from autojit.tensor.functions_elementwise import clone
from autojit.tensor.node import Hooks, Node, RemovableHandle
from autojit.tensor.promotion import cast, converted
from autojit.tensor.recording import wants_grad
from autojit.tensor.size import Size
from autojit.tensor.state import state
from autojit.tensor.tensor import Tensor, alias, layout_of, lent_gradient, type_of, wrap

if TYPE_CHECKING:
    from numpy.typing import NDArray


def array_of(t: Tensor) -> NDArray[Any]:
    """The tensor's NumPy array; inside a capture the trace is asked for it, which splits the trace."""
    if state.trace is not None:
        return state.trace.concretize(value_of(t))  # type: ignore[no-any-return]
    if t._array is None:
        raise TraceError("a tensor of a captured step has no value outside the capture", {"tensor": t})
    return t._array  # type: ignore[no-any-return]


def item(self: Tensor) -> Any:
    """The only element as a Python number."""
    if type_of(self).size != 1:
        raise UsageError(
            f"a Tensor with {type_of(self).size} elements cannot be converted to Scalar",
            fix="reduce or index it to one element first",
        )
    if state.trace is not None:
        return state.trace.item(value_of(self))
    return array_of(self).item() if type_of(self).dtype is not bfloat16 else float(array_of(self).reshape(())[()])


def tolist(self: Tensor) -> Any:
    """Nested lists of Python numbers."""
    array = array_of(self)
    return array.astype(np.float32).tolist() if type_of(self).dtype is bfloat16 else array.tolist()


def numpy(self: Tensor, *, force: bool = False) -> NDArray[Any]:
    """The array itself, sharing memory; a tensor that requires gradients must be detached first (or ``force``)."""
    if wants_grad(self) and not force:
        raise UsageError(
            "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.",
            fix="x.detach().numpy()",
        )
    return array_of(self)


def __array__(self: Tensor, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
    array = numpy(self)
    if dtype is None or array.dtype == dtype:
        return array.copy() if copy else array
    return array.astype(dtype)


def __bool__(self: Tensor) -> bool:
    size = type_of(self).size
    if size != 1:
        kind = "no values" if size == 0 else "more than one value"
        raise UsageError(f"Boolean value of Tensor with {kind} is ambiguous", fix="say which: x.any() or x.all()")
    return bool(item(self))


def __float__(self: Tensor) -> float:
    return float(item(self))


def __int__(self: Tensor) -> int:
    return int(item(self))


def __complex__(self: Tensor) -> complex:
    return complex(item(self))


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


def __contains__(self: Tensor, element: Any) -> bool:
    return bool((self == element).any())


def __format__(self: Tensor, spec: str) -> str:
    if type_of(self).ndim == 0 and spec:
        return format(item(self), spec)
    return object.__format__(self, spec)


def __deepcopy__(self: Tensor, memo: dict[int, Any]) -> Tensor:
    if self._grad_fn is not None:
        raise UsageError(
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment."
        )
    made = clone(self.detach())
    made._requires_grad = self._requires_grad
    if self._grad is not None:
        made._grad = copy.deepcopy(self._grad, memo)
    memo[id(self)] = made
    return made


def __reduce_ex__(self: Tensor, protocol: Any) -> tuple[Any, ...]:
    if self._grad_fn is not None:
        raise UsageError("a tensor with history cannot be pickled; detach() it first")
    return _rebuild, (np.array(array_of(self)), self._requires_grad)


def _rebuild(array: NDArray[Any], requires_grad: bool) -> Tensor:
    made = wrap(array)
    made._requires_grad = requires_grad
    return made


def to(self: Tensor, *args: Any, **options: Any) -> Tensor:
    """In another dtype or on another device: ``to(dtype)``, ``to(device)``, ``to(device, dtype)``, ``to(other)``."""
    dtype: DType | None = options.get("dtype")
    target: Any = options.get("device")
    for argument in args:
        if isinstance(argument, DType):
            dtype = argument
        elif isinstance(argument, Tensor):
            dtype = type_of(argument).dtype
        elif isinstance(argument, str | Device):
            target = argument
    if target is not None:
        require_available(device(target))
    if dtype is None or dtype is type_of(self).dtype:
        return clone(self) if options.get("copy") else self
    return converted(self, dtype)


def type_as(self: Tensor, other: Tensor) -> Tensor:
    """In the dtype of another tensor."""
    return cast(self, type_of(other).dtype)


def _to_dtype(name: str, dtype: DType) -> Callable[[Tensor], Tensor]:
    def convert(self: Tensor) -> Tensor:
        return cast(self, dtype)

    convert.__name__ = convert.__qualname__ = name
    convert.__doc__ = f"In {dtype.name}; the tensor itself if it already is."
    return convert


def cpu(self: Tensor) -> Tensor:
    """On the CPU."""
    return self


def cuda(self: Tensor, device: Any = None) -> Tensor:
    """On a GPU; this build has none."""
    return to(self, Device("cuda", device if isinstance(device, int) else None))


def contiguous(self: Tensor) -> Tensor:
    """In row-major memory; the tensor itself if it already is."""
    if is_contiguous(self):
        return self
    made: Tensor = clone(self)
    array = made._array
    if array is not None and not array.flags.c_contiguous:  # a copy keeps the order of the axes in memory
        assert made._storage is None
        made._array = array.copy(order="C")
    return made


def is_contiguous(self: Tensor) -> bool:
    """Whether the elements lie row by row in memory without gaps."""
    return bool(layout_of(self).flags.c_contiguous)


def stride(self: Tensor, dim: int | None = None) -> Any:
    """Steps between neighbours per axis, in elements."""
    layout = layout_of(self)
    steps = tuple(s // layout.itemsize for s in layout.strides)
    return steps if dim is None else steps[dim]


def storage_offset(self: Tensor) -> int:
    """Where the first element lies in the storage, in elements."""
    array = self._array
    if array is None or self._storage is None or self._storage.array is None:
        return 0
    start = array.__array_interface__["data"][0] - self._storage.array.__array_interface__["data"][0]
    return int(start // array.itemsize)


def data_ptr(self: Tensor) -> int:
    """The address of the first element."""
    return int(array_of(self).__array_interface__["data"][0])


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


def numel(self: Tensor) -> int:
    """The number of elements."""
    return type_of(self).size


def dim(self: Tensor) -> int:
    """The number of axes."""
    return type_of(self).ndim


def element_size(self: Tensor) -> int:
    """Bytes per element."""
    return type_of(self).dtype.size_bytes


def is_floating_point(self: Tensor) -> bool:
    """Whether the dtype is a floating one."""
    return type_of(self).dtype.is_floating_point


def is_complex(self: Tensor) -> bool:
    """Whether the dtype is complex."""
    return type_of(self).dtype.is_complex


def is_signed(self: Tensor) -> bool:
    """Whether the dtype has negative numbers."""
    return type_of(self).dtype.is_signed


def get_device(self: Tensor) -> int:
    """The GPU's number, -1 on the CPU."""
    return -1


def detach(self: Tensor) -> Tensor:
    """An alias without history; in-place changes are seen by both and counted together."""
    made = alias(self)
    if state.trace is not None and made._array is not None:
        state.trace.begin(made)
    return made


def detach_(self: Tensor) -> Tensor:
    """Cut this tensor off its history; it becomes a leaf that requires no gradient."""
    if self._view is not None and self._view.base is not None:
        raise UsageError("Can't detach views in-place. Use detach() instead.")
    self._requires_grad, self._grad_fn, self._output_nr, self._accumulator = False, None, 0, None
    return self


def get_data(self: Tensor) -> Tensor:
    """An alias without history whose changes are not counted."""
    return alias(self, own_version=True)


def set_data(self: Tensor, other: Tensor) -> None:
    """Let the tensor look at other memory."""
    if not isinstance(other, Tensor):
        raise TypeError(f"Variable data has to be a tensor, but got {type(other).__name__}")
    if state.trace is not None and (self._array is not None or other._array is None):
        with_history, state.grad_enabled = state.grad_enabled, False
        try:
            self.copy_(other)
        finally:
            state.grad_enabled = with_history
        return
    self._array, self._value, self._type = other._array, other._value, None
    self._storage, self._view = None, None


def get_requires_grad(self: Tensor) -> bool:
    """Whether gradients are computed for this tensor."""
    return wants_grad(self)


def set_requires_grad(self: Tensor, wanted: bool) -> None:
    """Only leaves may be changed; only floating and complex dtypes can require gradients."""
    if not wanted and self._grad_fn is not None:
        raise UsageError(
            "you can only change requires_grad flags of leaf variables. If you want to use a computed variable in a "
            "subgraph that doesn't require differentiation use var_no_grad = var.detach()."
        )
    if wanted and not type_of(self).dtype.is_differentiable:
        raise UsageError("only Tensors of floating point and complex dtype can require gradients")
    self._requires_grad = bool(wanted)


def requires_grad_(self: Tensor, requires_grad: bool = True) -> Tensor:
    """Set ``requires_grad``; returns the tensor."""
    set_requires_grad(self, requires_grad)
    return self


def get_grad_fn(self: Tensor) -> Node | None:
    """The node that made the tensor; None for leaves."""
    wants_grad(self)
    return self._grad_fn


def is_leaf(self: Tensor) -> bool:
    """Whether the tensor was made by the user or needs no gradient."""
    return not wants_grad(self) or self._grad_fn is None


def get_grad(self: Tensor) -> Tensor | None:
    """The accumulated gradient; None before the first backward."""
    if state.trace is not None and self._array is not None:
        return state.trace.read_grad(self)  # type: ignore[no-any-return]
    if self._grad is None and self._grad_fn is not None and not self._retains_grad:
        warnings.warn(
            "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its .grad attribute won't be "
            "populated during autograd.backward(). If you indeed want the .grad field to be populated for a non-leaf "
            "Tensor, use .retain_grad() on the non-leaf Tensor.",
            UserWarning,
            stacklevel=3,
        )
    return lent_gradient(self)


def assign_grad(self: Tensor, grad: Tensor | None) -> None:
    """``t.grad = g``: None, or a tensor of the same shape, dtype and device."""
    if grad is not None:
        if not isinstance(grad, Tensor):
            raise TypeError(f"assigned grad expected to be a Tensor or None but got grad of type {type(grad).__name__}")
        if grad is self:
            raise UsageError("can't assign Variable as its own grad")
        have, want = type_of(grad), type_of(self)
        if have.dtype is not want.dtype:
            raise UsageError(
                f"assigned grad has data of a different type: got {have.dtype.name}, expected {want.dtype.name}"
            )
        if have.shape != want.shape:
            raise UsageError(
                f"assigned grad has data of a different size: got {list(have.shape)}, expected {list(want.shape)}"
            )
    set_grad(self, grad)


def set_grad(self: Tensor, grad: Tensor | None) -> None:
    """Store the gradient, through the trace for a concrete tensor inside a capture."""
    if state.trace is not None and self._array is not None:
        state.trace.write_grad(self, grad)
    else:
        self._grad = grad


def delete_grad(self: Tensor) -> None:
    """``del t.grad``."""
    set_grad(self, None)


def backward(
    self: Tensor,
    gradient: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Any = None,
) -> None:
    """Add the derivative of this tensor to ``.grad`` of the leaves it depends on; see ``autograd.backward``."""
    assert ports.backward is not None
    ports.backward(self, gradient, retain_graph, create_graph, inputs=inputs)


def retain_grad(self: Tensor) -> None:
    """Let a non-leaf keep its ``.grad`` after backward."""
    if not wants_grad(self):
        raise UsageError("can't retain_grad on Tensor that has requires_grad=False")
    if self._grad_fn is None or self._retains_grad:
        return
    self._retains_grad = True
    if self._grad_fn.retained is None:
        self._grad_fn.retained = {}
    self._grad_fn.retained[self._output_nr] = weakref.ref(self)


def _leaf_hooks(self: Tensor) -> tuple[Hooks, Hooks]:
    if self._leaf_hooks is None:
        self._leaf_hooks = (Hooks(), Hooks())
    return self._leaf_hooks


def register_hook(self: Tensor, hook: Callable[[Tensor], Tensor | None]) -> RemovableHandle:
    """Call ``hook(grad)`` when the gradient of this tensor is computed; a returned tensor replaces it."""
    if not wants_grad(self):
        raise UsageError("cannot register a hook on a tensor that doesn't require gradient")
    if self._grad_fn is None:
        return _leaf_hooks(self)[0].add(hook)
    return self._grad_fn.hooks_of_output(self._output_nr).add(hook)


def register_post_accumulate_grad_hook(self: Tensor, hook: Callable[[Tensor], None]) -> RemovableHandle:
    """Call ``hook(leaf)`` after a gradient was added to ``.grad`` of this leaf."""
    if not wants_grad(self):
        raise UsageError("cannot register a hook on a tensor that doesn't require gradient")
    if self._grad_fn is not None:
        raise UsageError("post accumulate grad hooks cannot be registered on non-leaf tensors")
    return _leaf_hooks(self)[1].add(hook)


def set_(self: Tensor, source: Tensor) -> Tensor:
    """Look at the memory of ``source`` from now on."""
    set_data(self, source)
    return self


METHODS: dict[str, Any] = {
    name: value
    for name, value in globals().copy().items()
    if callable(value) and getattr(value, "__module__", "") == __name__ and name not in ("array_of",)
}
for _name, _dtype in {
    "float": float32, "double": float64, "half": float16, "bfloat16": bfloat16, "int": int32, "long": int64,
    "short": int16, "char": int8, "byte": uint8, "bool": bool_, "cfloat": complex64, "cdouble": complex128,
}.items():  # fmt: skip
    METHODS[_name] = _to_dtype(_name, _dtype)
for _name in (
    "_rebuild", "_to_dtype", "_leaf_hooks", "get_data", "set_data", "get_requires_grad", "set_requires_grad",
    "get_grad",
    "assign_grad", "set_grad", "delete_grad", "get_grad_fn", "is_leaf",
):  # fmt: skip
    METHODS.pop(_name)
METHODS |= {
    "_set_grad": set_grad,
    "data": property(get_data, set_data),
    "requires_grad": property(get_requires_grad, set_requires_grad),
    "grad": property(get_grad, assign_grad, delete_grad),
    "grad_fn": property(get_grad_fn),
    "is_leaf": property(is_leaf),
    "nelement": numel,
    "ndimension": dim,
}
