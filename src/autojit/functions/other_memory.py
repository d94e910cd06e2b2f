"""Letting a tensor look at other memory: ``x.data = y``, ``set_``, ``resize_``.

They leave its version counter with the tensor, so that what was saved for backward before notices the change that
follows. A captured step cannot follow them, but for ``x.data = y``: what the step has made looks at the other memory as
in eager mode, and so does a tensor from outside while it is captured (``jit.given_memory`` says what the step does).
Where it stands for an argument, what else looks at its memory is not known: such a call runs line by line (except for
``x.data -= y``, which gives the tensor the memory that it has).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from autojit.core.device_array import layout_in_memory, on_layout, write_array
from autojit.core.errors import ArgumentKindError, UsageError, too_large
from autojit.core.layout import strided
from autojit.core.source import here
from autojit.core.user_warnings import warn
from autojit.dispatch.declared import declared
from autojit.dispatch.on_device import placed
from autojit.functions.memory import (
    MemoryFormat,
    axes_in,
    preserve_format,
    row_major_steps,
    storage_offset,
    suggested_format,
)  # fmt: skip
from autojit.functions.shape import Sizes, sizes_of
from autojit.functions.storages import AnyStorage, TypedStorage
from autojit.history.recording import shows_grad
from autojit.history.view_rules import leaf_written
from autojit.tensor.state import carry, quietly, state
from autojit.tensor.storage import SameMemory, Storage
from autojit.tensor.tensor import Tensor, alias, storage_chain, storage_of, type_of, wrap


def look_at(self: Tensor, other: Tensor) -> None:
    """Let a tensor look at other memory, under its own version counter."""
    if other._array is None:
        self._array, self._value, self._type = None, other._value, None
        self._storage, self._view = other._storage, other._view
        return
    before = self._storage
    self._array, self._value, self._type = other._array, None, other._type
    self._view = None
    made = alias(other)
    self._view = made._view
    memory = Storage(storage_of(other).array, None)  # ``other`` keeps its own counter
    self._storage = memory if before is None else SameMemory(memory, before)
    self._storage.inference = before is not None and before.inference


def get_data(self: Tensor) -> Tensor:
    """An alias without history whose changes are not counted."""
    made = alias(self, own_version=True)
    if state.layers:
        carry(self, made, with_history=False)
    if state.trace is not None and made._array is not None:
        state.trace.begin(made, self)
    return made


def set_data(self: Tensor, other: Tensor) -> None:
    """Let the tensor look at other memory; shape and dtype may change, ``.grad`` and history stay."""
    if not isinstance(other, Tensor):
        raise TypeError(f"Variable data has to be a tensor, but got {type(other).__name__}")
    if (self.layout is strided) is not (other.layout is strided):
        raise UsageError(
            "Attempted to call `variable.set_data(tensor)`, but `variable` and `tensor` have incompatible tensor type.",
            {"variable": self.layout, "tensor": other.layout},
            "convert one of them: .to_dense() or .to_sparse()",
        )
    if self._requires_grad and not type_of(other).dtype.is_differentiable:
        raise UsageError(
            "data set to a tensor that requires gradients must be floating point or complex dtype",
            {"tensor": self, "data": other},
        )
    if state.trace is None or (self._array is None and other._array is not None and not state.trace.is_given(self)):
        look_at(self, other)
    elif state.trace.is_given(self) or (self._array is not None and not state.trace.has_begun(self)):
        if not _is_its_own(self, other):
            state.trace.give_memory(self, other)
    elif self._array is not None and other._array is not None:
        state.trace.cannot("the step lets a handle that it has made look at the memory of a tensor from outside")
    else:
        counter, made = storage_of(self), alias(other)
        assert made._storage is not None
        self._array, self._value, self._type, self._view = None, made._value, None, made._view
        self._storage = SameMemory(made._storage, counter)


def _is_its_own(self: Tensor, other: Tensor) -> bool:
    """Whether a tensor is given all of the memory that it has, and looks at it as it does."""
    if self._view is not None or type_of(self) != type_of(other) or storage_chain(other):
        return False
    return storage_of(other).memory is storage_of(self).memory or (
        self._array is not None and other._array is self._array
    )


def set_(
    self: Tensor,
    source: Any = None,
    storage_offset: int = 0,
    size: Sizes | None = None,
    stride: Sequence[int] | None = None,
) -> Tensor:
    """Look at the memory of ``source`` from now on (an empty one without ``source``); counts as an in-place change."""
    if state.trace is not None:
        state.trace.cannot("the step lets a tensor look at other memory by set_()")
    if state.grad_enabled and self._requires_grad and self._grad_fn is None:
        raise leaf_written(self, "set_")
    if state.grad_enabled and shows_grad(self):
        raise UsageError("set_ cannot be recorded: the tensor requires gradients", {"tensor": self}, "use no_grad()")
    found = self.new_empty(0) if source is None else source
    if isinstance(found, AnyStorage):
        found = _elements_for(self, found)
    if not isinstance(found, Tensor):
        raise ArgumentKindError(f"set_(): argument 'source' must be Tensor or Storage, not {type(source).__name__}")
    if type_of(found).dtype is not type_of(self).dtype:
        raise UsageError(
            f"set_: Could not set tensor of type {type_of(found).dtype} to a tensor of type {type_of(self).dtype}",
            fix="x.data = y takes over the dtype, too",
        )
    if size is not None:
        shape = sizes_of((size,))
        steps = row_major_steps(shape) if stride is None else stride
        found = alias(found).as_strided(shape, steps, storage_offset)
    set_data(self, alias(found))
    self._accumulator = None  # what was recorded of the leaf before is not about the tensor it is now
    storage_of(self).bump("set_", here())
    return self


def _elements_for(self: Tensor, memory: AnyStorage) -> Tensor:
    """A storage's elements, for a tensor of their dtype, or of any if they have none."""
    dtype = type_of(self).dtype
    if isinstance(memory, TypedStorage) and memory.dtype is not dtype:
        raise UsageError(
            f"set_: Expected a Storage of type {dtype} or an UntypedStorage, but got type {memory.dtype}",
            fix="storage.untyped() has the same memory without a dtype",
        )
    return memory.elements(dtype)


def resize_(self: Tensor, *size: Sizes, memory_format: MemoryFormat | None = None) -> Tensor:
    """Another shape in the same memory, read in row-major order; new elements are unspecified. Another shape counts as
    an in-place change.

    Raises:
        RuntimeError: the tensor requires gradients.

    Example:
        >>> import autojit as aj
        >>> aj.arange(4.0).resize_(2, 1)
        tensor([[0.],
                [1.]])
    """
    if shows_grad(self) and not state.inference:
        raise UsageError("cannot resize variables that require grad", {"tensor": self}, "resize a detached copy")
    if state.trace is not None:
        state.trace.cannot("the step lets the memory of a tensor grow or shrink by resize_()")
    shape = sizes_of(size)
    if shape == type_of(self).shape:
        return self
    count = prod(shape)
    if prod(n or 1 for n in shape) * type_of(self).dtype.size_bytes > np.iinfo(np.intp).max:
        raise too_large(shape)
    root = storage_of(self).array
    assert root is not None
    start = storage_offset(self)
    if root.flags.c_contiguous and start + count <= root.size:
        line = layout_in_memory(root).reshape(-1)[start : start + count]
        found = wrap(on_layout(root, _in_order(line, shape, memory_format)))
    else:
        kept = self.detach().reshape(-1)[:count]._array
        fresh = placed(wrap(quietly(np.zeros, count, root.dtype)), type_of(self).device)
        line = layout_in_memory(fresh._array)
        write_array(on_layout(fresh._array, line[: kept.size]), kept)
        found = wrap(on_layout(fresh._array, _in_order(line, shape, memory_format)))
    look_at(self, found)
    storage_of(self).bump("resize_", here())
    return self


def _in_order(line: Any, shape: tuple[int, ...], memory_format: MemoryFormat | None) -> Any:
    """Elements one after another in a shape whose axes are in memory as a format has them."""
    order = range(len(shape)) if memory_format is None else axes_in(len(shape), memory_format)
    return line.reshape([shape[axis] for axis in order]).transpose(np.argsort(order))


@declared()
def resize_as_(input: Tensor, the_template: Tensor, *, memory_format: MemoryFormat | None = None) -> Tensor:
    """``resize_`` to the shape of another tensor, and with ``preserve_format`` to the order of its axes in memory."""
    if memory_format is preserve_format:
        memory_format = suggested_format(the_template)
    return resize_(input, type_of(the_template).shape, memory_format=memory_format)


def resize(self: Tensor, *sizes: Sizes) -> Tensor:
    """``view`` under its old name."""
    warn("non-inplace resize is deprecated", UserWarning)
    return self.view(*sizes)


def resize_as(self: Tensor, tensor: Tensor) -> Tensor:
    """``view_as`` under its old name."""
    warn("non-inplace resize_as is deprecated", UserWarning)
    return self.view_as(tensor)


METHODS: dict[str, Any] = {
    "set_": set_,
    "resize_": resize_,
    "resize": resize,
    "resize_as": resize_as,
    "data": property(get_data, set_data),
}
