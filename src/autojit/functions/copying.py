"""Copying and pickling tensors: leaves only, tensors that shared memory share it again."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np

from autojit.core.device import CPU
from autojit.core.device_array import layout_in_memory, on_layout
from autojit.core.errors import UsageError
from autojit.core.user_warnings import warn
from autojit.dispatch.on_device import placed, where_to
from autojit.functions.conversion import array_of
from autojit.functions.elementwise import clone
from autojit.functions.memory import empty_strided
from autojit.history.recording import wants_grad
from autojit.tensor.lent_gradients import lent_gradient
from autojit.tensor.memory_orders import seen_through
from autojit.tensor.state import grad_mode, state
from autojit.tensor.storage import ElsewhereArray, Storage, View
from autojit.tensor.tensor import Tensor, alias, slots_besides, storage_chain, storage_of, type_of, wrap

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from autojit.core.dtypes import DType


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
    for name, value in _slots_of(self).items():
        setattr(made, name, copy.deepcopy(value, memo))
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


def _slots_of(t: Tensor) -> dict[str, Any]:
    """What is in the slots that a program's subclass has added."""
    kind: Any = type(t)
    names = () if kind.__module__.startswith("autojit.") else slots_besides(kind)
    return {name: getattr(t, name) for name in names if hasattr(t, name)}


def attributes_of(t: Tensor) -> Any:
    """What a program has given a tensor besides elements: as ``__getstate__`` of its class tells, else its dictionary,
    with the slots that its class has added, if any. None: nothing.
    """
    if type(t).__getstate__ is not object.__getstate__:
        return t.__getstate__()
    slots = _slots_of(t)
    return (dict(t.__dict__), slots) if slots else dict(t.__dict__) or None


def give_attributes(made: Tensor, attributes: object) -> Tensor:
    """Give a tensor what ``attributes_of`` told of another."""
    kind: Any = type(made)
    if hasattr(kind, "__setstate__"):
        kind.__setstate__(made, attributes)
        return made
    plain: Any
    plain, slots = attributes if isinstance(attributes, tuple) else (attributes, {})
    made.__dict__.update(plain or {})
    for name, value in slots.items():
        setattr(made, name, value)
    return made


def reduce_ex(self: Tensor, protocol: SupportsIndex) -> tuple[Any, ...]:
    """How a tensor is pickled: its elements, whether it requires gradients, its class and attributes; history and hooks
    are left behind.
    """
    warn_of_hooks(self)
    spec = type_of(self)
    if spec.device.type == "meta":
        plain: tuple[Any, ...] = _rebuilt_meta, (tuple(self.shape), self.stride(), spec.dtype, wants_grad(self))
    else:
        place = () if spec.device == CPU else (str(spec.device),)
        plain = rebuilt, (np.array(array_of(self)), wants_grad(self), *place)
    attributes, is_own = attributes_of(self), not type(self).__module__.startswith("autojit.")
    return (_rebuilt_as, (type(self) if is_own else Tensor, *plain, attributes)) if is_own or attributes else plain


def _rebuilt_as(
    kind: type[Tensor], rebuild: Callable[..., Tensor], plain: tuple[Any, ...], attributes: object
) -> Tensor:
    """A tensor of a class from its pickle, with its attributes."""
    made: Tensor = rebuild(*plain)
    return give_attributes(made if type(made) is kind else made.as_subclass(kind), attributes)


def _rebuilt_meta(shape: tuple[int, ...], steps: tuple[int, ...], dtype: DType, requires_grad: bool) -> Tensor:
    """A tensor without memory from its pickle."""
    return empty_strided(shape, steps, dtype=dtype, device="meta", requires_grad=requires_grad)


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
    attributes = attributes_of(self)
    return made if attributes is None else give_attributes(made, attributes)


METHODS: dict[str, Any] = {"__copy__": copied, "__deepcopy__": deep_copy, "__reduce_ex__": reduce_ex}
