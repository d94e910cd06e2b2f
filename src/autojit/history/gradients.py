"""``.grad`` and what happens when it is computed: its rules of assignment, ``retain_grad``, hooks.

Hooks of a leaf belong to the tensor, those of a result to its node: after an in-place change the tensor has a new node,
and hooks registered before go on seeing the gradient of the old value. A retained gradient moves on with the tensor.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

from autojit.core.dtypes import DType
from autojit.core.errors import OldNameWarning, UsageError
from autojit.core.once import first_use
from autojit.core.user_warnings import warn
from autojit.history.recording import shows_grad, wants_grad
from autojit.tensor.lent_gradients import lent_gradient
from autojit.tensor.node import Hooks, LeafHooks, RemovableHandle
from autojit.tensor.state import bump_guard_epoch, state
from autojit.tensor.tensor import LIKE_LEAF, Tensor, type_of

T = TypeVar("T")


class _Accumulating(threading.local):
    """Whether this thread adds a gradient to a leaf's, which nobody has looked at then."""

    now = False


accumulating = _Accumulating()


def get_grad(self: Tensor) -> Tensor | None:
    """The accumulated gradient; None before the first backward."""
    if self._grad is None and self._grad_fn is not None and not self._retains_grad:
        warn(
            "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its .grad attribute won't be "
            "populated during autograd.backward(). If you indeed want the .grad field to be populated for a non-leaf "
            "Tensor, use .retain_grad() on the non-leaf Tensor.",
            UserWarning,
        )
    if state.trace is not None:
        if self._array is not None:
            read: Tensor | None = state.trace.read_grad(self)
            return read
        state.trace.note_touch(self, self._grad)
    return lent_gradient(self)


def get_grad_dtype(self: Tensor) -> DType | None:
    """The dtype that ``.grad`` of this leaf has: the leaf's own unless it was set; None allows any.

    Raises:
        RuntimeError: the tensor is not a leaf.

    Example:
        >>> import autojit as aj
        >>> x = aj.ones(2, requires_grad=True)
        >>> x.grad_dtype = aj.float64
        >>> (x * 2).sum().backward()
        >>> x.grad.dtype
        autojit.float64
    """
    if wants_grad(self) and self._grad_fn is not None:
        raise UsageError("grad_dtype can only be accessed on leaf tensors.", {"tensor": self})
    return type_of(self).dtype if self._grad_dtype is LIKE_LEAF else self._grad_dtype


def set_grad_dtype(self: Tensor, dtype: DType | None) -> None:
    """``t.grad_dtype = dtype``: gradients are converted to it before they are added up; None leaves them as they are.

    Raises:
        RuntimeError: the tensor is not a leaf, or has a gradient of another dtype.
    """
    if wants_grad(self) and self._grad_fn is not None:
        raise UsageError("grad_dtype can only be set on leaf tensors.", {"tensor": self})
    grad = get_grad(self)
    if dtype is not None and grad is not None and type_of(grad).dtype is not dtype:
        raise UsageError(
            f"Cannot set grad_dtype to '{dtype.scalar_type}' because there is already a gradient "
            f"assigned with dtype '{grad.dtype.scalar_type}'.",
            {"tensor": self},
            "set .grad to None first",
        )
    self._grad_dtype = dtype
    bump_guard_epoch()


def assign_grad(self: Tensor, grad: Tensor | None) -> None:
    """``t.grad = g``: None, or a tensor of the same shape, dtype and device."""
    if grad is not None:
        if not isinstance(grad, Tensor):
            raise TypeError(f"assigned grad expected to be a Tensor or None but got grad of type {type(grad).__name__}")
        if grad is self:
            raise UsageError("can't assign Variable as its own grad")
        have, want = type_of(grad), type_of(self)
        wanted = want.dtype if self._grad_dtype is LIKE_LEAF else self._grad_dtype
        if wanted is not None and have.dtype is not wanted:
            raise UsageError(
                "assigned grad has data of a different type: attempting to assign a gradient with dtype "
                f"'{have.dtype.scalar_type.lower()}' to a tensor with grad_dtype "
                f"'{wanted.scalar_type}'",
                {"tensor": self, "gradient": grad},
                "convert the gradient, or set .grad_dtype of the tensor to its dtype or to None",
            )
        if have.device != want.device:
            raise UsageError(
                f"assigned grad has data located on a different device: got {have.device}, expected {want.device}"
            )
        if have.shape != want.shape:
            raise UsageError(
                f"assigned grad has data of a different size: got {list(have.shape)}, expected {list(want.shape)}"
            )
    set_grad(self, grad)


def set_grad(self: Tensor, grad: Tensor | None) -> None:
    """Store the gradient, through the trace for a concrete tensor inside a capture."""
    if state.trace is not None:
        if self._array is not None:
            state.trace.write_grad(self, grad)
            return
        state.trace.note_touch(self, grad)
    self._grad = grad


def delete_grad(self: Tensor) -> None:
    """``del t.grad``."""
    set_grad(self, None)


def renamed(old: str, given: T | None, new: str, present: T | None) -> T | None:
    """The value of an argument of ``backward`` that may be given under its old name, with a warning.

    Raises:
        RuntimeError: it is given under both names, with different values.
    """
    if given is None:
        return present
    warn(f"`{old}` is deprecated. Use `{new}` instead.", OldNameWarning)
    if present is not None and present is not given:
        raise UsageError(f"`{new}` and `{old}` (deprecated) arguments both passed to `backward()`", {}, f"use `{new}`")
    return given


def retain_grad(self: Tensor) -> None:
    """Let a non-leaf keep its ``.grad`` after backward. Nothing happens for a leaf.

    Raises:
        RuntimeError: the tensor requires no gradient.

    Example:
        >>> import autojit as aj
        >>> x = aj.tensor(3.0, requires_grad=True)
        >>> y = x * 2
        >>> y.retain_grad()
        >>> (y * y).backward()
        >>> y.grad
        tensor(12.)
    """
    if not shows_grad(self):
        raise UsageError("can't retain_grad on Tensor that has requires_grad=False")
    if self._grad_fn is None or self._retains_grad:
        return
    if state.trace is not None:
        state.trace.note_retained(self)
    self._retains_grad = True
    if self._grad_fn.retained is None:
        self._grad_fn.retained = {}
    self._grad_fn.retained[self._output_nr] = weakref.ref(self)


def _leaf_hooks(self: Tensor) -> tuple[Any, Any]:
    with first_use:
        if self._leaf_hooks is None:
            self._leaf_hooks = (LeafHooks(), LeafHooks())
        return self._leaf_hooks


def register_hook(self: Tensor, hook: Callable[[Any], Tensor | None]) -> RemovableHandle:
    """Call ``hook(grad)`` when the gradient of this tensor is computed; a returned tensor replaces it.

    The hook must not change its argument. It is called with None when the gradient is undefined.

    Raises:
        RuntimeError: the tensor requires no gradient.

    Example:
        >>> import autojit as aj
        >>> w = aj.ones(2, requires_grad=True)
        >>> handle = w.register_hook(lambda grad: grad.clamp(-1, 1))
        >>> (w * aj.tensor([0.5, 4.0])).sum().backward()
        >>> w.grad
        tensor([0.5000, 1.0000])
        >>> handle.remove()
    """
    if not (wants_grad(self) or self.requires_grad):  # a view made under no_grad has no history, and shows its base's
        raise UsageError("cannot register a hook on a tensor that doesn't require gradient")
    hooks = _leaf_hooks(self)[0] if self._grad_fn is None else self._grad_fn.hooks_of_output(self._output_nr)
    return _added(hooks, hook)


def _added(hooks: dict[int, Any], hook: Callable[..., object]) -> RemovableHandle:
    if isinstance(hooks, Hooks):
        return hooks.add(hook)
    handle = RemovableHandle(hooks)  # a dictionary of the user's
    hooks[handle.id] = hook
    return handle


def register_post_accumulate_grad_hook(self: Tensor, hook: Callable[[Tensor], None]) -> RemovableHandle:
    """Call ``hook(leaf)`` after a gradient was added to ``.grad`` of this leaf.

    Raises:
        RuntimeError: the tensor requires no gradient, or is not a leaf.
    """
    if not (wants_grad(self) or self.requires_grad):  # a view made under no_grad has no history, and shows its base's
        raise UsageError("cannot register a hook on a tensor that doesn't require gradient")
    if self._grad_fn is not None:
        raise UsageError("post accumulate grad hooks cannot be registered on non-leaf tensors")
    return _added(_leaf_hooks(self)[1], hook)


def reinforce(self: Tensor, reward: object) -> None:
    """Removed: the gradient of an expectation is written with ``log_prob``.

    Raises:
        RuntimeError: always; the message says what to write.
    """
    raise UsageError(
        "reinforce() was removed: sampling leaves no node that takes a reward.",
        {"sample": self},
        "write (-distributions.Categorical(probs).log_prob(sample) * reward).sum().backward(), "
        "or use autojit.compat.v0_3",
    )


def get_backward_hooks(self: Tensor) -> Any:
    """The dictionary of the tensor's hooks, or None."""
    wants_grad(self)
    if self._grad_fn is None:
        return None if self._leaf_hooks is None else self._leaf_hooks[0]
    return (self._grad_fn.tensor_hooks or {}).get(self._output_nr)


def set_backward_hooks(self: Tensor, hooks: Any) -> None:
    """Let the hooks in a dictionary be the tensor's; None takes all away."""
    hooks = LeafHooks() if hooks is None else hooks
    wants_grad(self)
    if self._grad_fn is None:
        self._leaf_hooks = (hooks, _leaf_hooks(self)[1])
        bump_guard_epoch()
        return
    self._grad_fn._hooks_by_output()[self._output_nr] = hooks


def get_post_accumulate_hooks(self: Tensor) -> Any:
    """The dictionary of the leaf's post-accumulate hooks, or None."""
    return self._leaf_hooks[1] if self._leaf_hooks is not None and self._leaf_hooks[1] else None


def hook_tables(leaf: Tensor) -> tuple[dict[Any, Any] | None, ...]:
    """Where a leaf's hooks are: of its gradient, after it is added, and of its node, before and after it adds."""
    own = leaf._leaf_hooks or (None, None)
    node = None if leaf._accumulator is None else leaf._accumulator()
    return (*own, None, None) if node is None else (*own, node.pre_hooks, node.post_hooks)


def hook_keys(leaf: Tensor) -> tuple[tuple[Any, ...], ...]:
    """Which hooks a leaf has, as keys that are never used again, and its grad_dtype: what a compiled step bakes in."""
    tables = hook_tables(leaf)
    keys: tuple[tuple[Any, ...], ...] = tuple(tuple(table or ()) for table in tables) if any(tables) else ()
    return keys if leaf._grad_dtype is LIKE_LEAF else (*keys, ("grad_dtype", leaf._grad_dtype))


PERMANENT = ("data", "requires_grad", "grad_fn", "_backward_hooks")


def permanent(name: str, descriptor: property) -> property:
    """The property ``name`` of Tensor as one that cannot be deleted.

    A deleter per attribute and not ``__delattr__``: where a class has that, every assignment takes five times as long.
    """

    def refuse(self: Tensor) -> None:
        raise UsageError(f"{name} of a tensor cannot be deleted", fix="set .grad to None, or use detach()")

    return descriptor.deleter(refuse)


METHODS: dict[str, Any] = {
    "_set_grad": set_grad,
    "retain_grad": retain_grad,
    "register_hook": register_hook,
    "reinforce": reinforce,
    "register_post_accumulate_grad_hook": register_post_accumulate_grad_hook,
    "grad": property(get_grad, assign_grad, delete_grad),
    "grad_dtype": property(get_grad_dtype, set_grad_dtype),
    "_backward_hooks": property(get_backward_hooks, set_backward_hooks),
    "_post_accumulate_grad_hooks": property(get_post_accumulate_hooks),
}
