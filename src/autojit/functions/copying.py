"""Copying and pickling tensors: leaves only, tensors that shared memory share it again."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np

from autojit.core.device import CPU
from autojit.core.device_array import layout_in_memory, on_layout
from autojit.core.errors import UsageError
from autojit.core.user_warnings import warn
from autojit.dispatch.on_device import placed, where_to
from autojit.functions.conversion import array_of
from autojit.functions.elementwise import clone
from autojit.history.recording import wants_grad
from autojit.tensor.lent_gradients import lent_gradient
from autojit.tensor.memory_orders import seen_through
from autojit.tensor.state import grad_mode, state
from autojit.tensor.storage import ElsewhereArray, Storage, View
from autojit.tensor.tensor import Tensor, alias, storage_chain, storage_of, type_of, wrap

if TYPE_CHECKING:
    from numpy.typing import NDArray


def deep_copy(self: Tensor, memo: dict[int, Any]) -> Tensor:
    """A leaf of the same class on memory of its own, with a copy of ``.grad``.

    Raises:
        RuntimeError: the tensor was computed and has a history.
    """
    found: Tensor | None = memo.get(id(self))
    if found is not None:
        return found
    if wants_grad(self) and self._grad_fn is not None:
        raise UsageError(
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment.",
            {"tensor": self},
            "detach() it first",
        )
    with grad_mode(False):
        is_elsewhere = state.trace is not None or type(self._array) is ElsewhereArray
        made = clone(self.detach()) if is_elsewhere else _same_memory_again(self, memo)
    if type(made) is not type(self):
        made = alias(made, type(self))
    made._requires_grad = self._requires_grad
    memo[id(self)] = made
    if self.__dict__:
        made.__dict__.update(copy.deepcopy(self.__dict__, memo))
    if self._grad is not None:
        made._grad = copy.deepcopy(lent_gradient(self), memo)
    return made


def _same_memory_again(t: Tensor, memo: dict[int, Any]) -> Tensor:
    """The tensor's view of a copy of its storage, which is copied once for all tensors that share it."""
    storage = storage_of(t)
    root = storage.array
    assert root is not None
    kept: Storage | None = memo.get(id(root))
    if kept is None:
        kept = memo[id(root)] = Storage(root.copy(order="K"), None)
    chain, memory = storage_chain(t), kept.array
    assert memory is not None
    made = wrap(on_layout(memory, seen_through(layout_in_memory(memory), chain)) if chain else memory)
    made._storage, made._type = kept, t._type
    if chain:
        made._view = View(None, chain, None, kept)
    return made


def reduce_ex(self: Tensor, protocol: SupportsIndex) -> tuple[Any, ...]:
    """How a tensor is pickled: its elements and whether it requires gradients; history and hooks are left behind."""
    warn_of_hooks(self)
    place = type_of(self).device
    return rebuilt, (np.array(array_of(self)), wants_grad(self), *(() if place == CPU else (str(place),)))


def warn_of_hooks(t: Tensor) -> None:
    """Say that the hooks of a tensor stay behind when it is pickled or saved."""
    hooks = getattr(t, "_backward_hooks", None) or {}
    for hook in hooks.values():
        if not getattr(hook, "__torch_unserializable__", False):
            warn(
                f"backward hook {hook!r} on tensor will not be serialized; take it off before saving if that is meant",
                UserWarning,
            )


def rebuilt(array: NDArray[Any], requires_grad: bool, place: str = "cpu") -> Tensor:
    """A tensor from its pickle."""
    made = placed(wrap(array), where_to(place))
    made._requires_grad = requires_grad
    return made


def copied(self: Tensor) -> Tensor:
    """A leaf of the same class on the same memory, as ``copy.copy`` gives it."""
    made = alias(self, type(self))
    made._requires_grad = wants_grad(self)
    if self.__dict__:
        made.__dict__.update(self.__dict__)
    return made


METHODS: dict[str, Any] = {"__copy__": copied, "__deepcopy__": deep_copy, "__reduce_ex__": reduce_ex}
