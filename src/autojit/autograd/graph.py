"""The recorded history as an object: nodes, gradient edges, hooks on several gradients, hooks on saved tensors."""

from __future__ import annotations

import abc
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

from autojit.autograd.derivatives import GradientEdge, get_gradient_edge
from autojit.autograd.grad_mode import is_multithreading_enabled
from autojit.autograd.running import current_node, current_walk
from autojit.autograd.saved_mutation import allow_mutation_on_saved_tensors
from autojit.core.device import Device, is_available
from autojit.core.errors import UsageError
from autojit.core.locks import new_lock
from autojit.core.wrapping import wraps
from autojit.functions.memory import pinned
from autojit.history.recording import edge_of
from autojit.history.saved import SavedTensor
from autojit.tensor import Tensor
from autojit.tensor.node import AccumulateGrad, RemovableHandle
from autojit.tensor.node import Node as RecordedNode
from autojit.tensor.state import state
from autojit.tensor.storage import Storage
from autojit.tensor.tensor import storage_of


class Node(abc.ABC):  # noqa: B024 (nobody derives from it)
    """What ``grad_fn`` is: ``isinstance`` knows every recorded node (and the ctx of a custom function) as one.

    It has ``name()``, ``next_functions``, ``metadata``, ``register_hook(hook)`` and ``register_prehook(hook)``. The
    classes of nodes do not derive from it; it cannot be made or called.

    Example:
        >>> import autojit as aj
        >>> y = aj.ones(2, requires_grad=True).exp()
        >>> isinstance(y.grad_fn, Node)
        True
    """

    def __new__(cls) -> Self:
        raise TypeError("Node cannot be made: nodes are what ops record")


Node.register(RecordedNode)


class saved_tensors_hooks:
    """Context manager: what ops save for backward goes through ``pack_hook`` and comes back through ``unpack_hook``.

    ``pack_hook`` gets a detached tensor and returns anything; ``unpack_hook`` gets that and returns a tensor with the
    same contents. Of nested managers the innermost counts. Numbers in the user's program are not packed.

    Raises:
        RuntimeError: the hooks are disabled, or ``pack_hook`` changed its argument in place.

    Example:
        >>> import autojit as aj
        >>> x = aj.tensor([1.0, 2.0], requires_grad=True)
        >>> with saved_tensors_hooks(lambda t: t.numpy().copy(), aj.from_numpy):
        ...     y = (x * x).sum()
        >>> y.backward()
        >>> x.grad
        tensor([2., 4.])
    """

    def __init__(self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]) -> None:
        self.pack_hook = pack_hook
        self.unpack_hook = unpack_hook

    def __enter__(self) -> None:
        _refuse_when_disabled()
        state.recording_hooks = (*(state.recording_hooks or ()), (self.pack_hook, self.unpack_hook))

    def __exit__(self, *exception: object) -> None:
        state.recording_hooks = state.recording_hooks[:-1] or None


class save_on_cpu(saved_tensors_hooks):
    """Context manager: tensors saved for backward wait on the CPU and go back to their device when they are needed.

    ``pin_memory`` asks for memory that a GPU reaches directly, which there is none of without one.

    Example:
        >>> import autojit as aj
        >>> x = aj.tensor(3.0, requires_grad=True)
        >>> with save_on_cpu(pin_memory=True):
        ...     y = x * x
        >>> y.backward()
        >>> x.grad
        tensor(6.)
    """

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        is_pinned = pin_memory and is_available("cuda")

        def pack(t: Tensor) -> tuple[Device, Tensor]:
            kept = t.detach().cpu()
            return t.device, pinned(kept) if is_pinned and state.trace is None else kept

        super().__init__(pack, lambda packed: packed[1].to(packed[0]))


@contextmanager
def disable_saved_tensors_hooks(error_message: str) -> Iterator[None]:
    """Context manager: entering saved-tensor hooks inside raises a RuntimeError with this message.

    Raises:
        RuntimeError: hooks are active already.

    Example:
        >>> with disable_saved_tensors_hooks("no hooks here"):
        ...     with save_on_cpu():
        ...         pass
        Traceback (most recent call last):
            ...
        RuntimeError: no hooks here
    """
    before = getattr(_disabled, "message", None)
    _disabled.message = error_message
    try:
        if state.recording_hooks:
            _refuse_when_disabled()
        yield
    finally:
        _disabled.message = before


_disabled = threading.local()


def _saved_tensors_hooks_is_enabled() -> bool:
    """Whether saved-tensor hooks may be entered in this thread."""
    return getattr(_disabled, "message", None) is None


def _refuse_when_disabled() -> None:
    message = getattr(_disabled, "message", None)
    if message is not None:
        raise RuntimeError(message)


def increment_version(tensor: Tensor | Sequence[Tensor]) -> None:
    """Say that the memory of a tensor (or of several) was changed by something autojit does not know of.

    Example:
        >>> import autojit as aj
        >>> x = aj.zeros(2)
        >>> increment_version(x)
        >>> x._version
        1
    """
    for t in (tensor,) if isinstance(tensor, Tensor) else tuple(tensor):
        if not isinstance(t, Tensor):
            raise UsageError(f"increment_version expects each element of the sequence to be a tensor, not {type(t)}")
        storage: Storage = storage_of(t)
        storage.version += 1


def set_warn_on_accumulate_grad_stream_mismatch(enabled: bool) -> None:
    """Nothing: leaves accumulate in the order of one stream, so that there is no mismatch to warn of."""


def _get_grad_fn_or_grad_acc(t: Tensor | GradientEdge) -> RecordedNode:
    """The node that the gradient of a tensor (or edge) arrives at."""
    if isinstance(t, GradientEdge):
        return t.node
    edge = edge_of(t)
    if edge is None:
        raise AssertionError("Expected gradient function to be set")
    return edge[0]


def _current_graph_task_id() -> int:
    """A number that names the backward pass this thread is in; -1 outside."""
    walk = current_walk()
    return -1 if walk is None else walk.number


def _will_engine_execute_node(node: RecordedNode) -> bool:
    """Whether the present backward pass runs ``node``, or takes a gradient from it.

    Raises:
        RuntimeError: no backward pass is running, or ``node`` is not one.
    """
    if not isinstance(node, RecordedNode):
        raise UsageError(f"_will_engine_execute_node expects an grad_fn, but got {type(node).__name__}")
    walk = current_walk()
    if walk is None:
        raise UsageError("_get_should_execute_nodes should only be called during the backward pass")
    if type(node) is AccumulateGrad and walk.captures(node):
        raise UsageError(
            "A leaf node was passed to _will_engine_execute_node but we are currently running autograd.grad(). This is "
            "currently not supported.",
            {"node": node},
            "ask about the node of a result, or call backward()",
        )
    return walk.will_run(node)


def _current_autograd_node() -> RecordedNode | None:
    """The node whose rule the present backward pass is running; None outside a rule."""
    return current_node()


def _current_graph_task_execution_order() -> list[RecordedNode]:
    """The nodes of the present backward pass in the order in which it runs them.

    Raises:
        RuntimeError: no backward pass is running, or threads are not ruled out by ``set_multithreading_enabled``.
    """
    walk = current_walk()
    if walk is None:
        raise UsageError("_current_graph_task_execution_order should only be called during the backward pass")
    if is_multithreading_enabled():
        raise UsageError(
            "_current_graph_task_execution_order expects the current backward to be executed with multithreading "
            "disabled",
            fix="call backward inside autograd.set_multithreading_enabled(False)",
        )
    return walk.expected_order()


class _MultiHandle:
    """Removes the hooks of ``register_multi_grad_hook``."""

    def __init__(self, handles: Sequence[RemovableHandle]) -> None:
        self.handles = tuple(handles)

    def remove(self) -> None:
        """Remove all hooks."""
        for handle in self.handles:
            handle.remove()

    def __enter__(self) -> _MultiHandle:
        return self

    def __exit__(self, *exception: object) -> None:
        self.remove()


def register_multi_grad_hook(
    tensors: Sequence[Tensor], fn: Callable[[Any], None], *, mode: str = "all"
) -> _MultiHandle:
    """Call ``fn`` once per backward pass that reaches some of ``tensors``; returns a handle with ``remove()``.

    With ``mode="all"``, ``fn`` gets the list of their gradients when the last one is computed, None for tensors that
    the pass does not reach or does not need. With ``mode="any"`` it gets the first gradient that is computed.

    Raises:
        ValueError: another mode.
        RuntimeError: a tensor requires no gradient ("all").

    Example:
        >>> import autojit as aj
        >>> a, b = aj.ones(1, requires_grad=True), aj.ones(1, requires_grad=True)
        >>> handle = register_multi_grad_hook((a, b), lambda grads: print([g is not None for g in grads]))
        >>> (a * 2).sum().backward()
        [True, False]
        >>> (a * b).sum().backward()
        [True, True]
    """
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    if mode == "any":
        return _on_any([t for t in tensors if t.requires_grad], fn)
    return _on_all(tensors, fn)


def _on_any(tensors: Sequence[Tensor], fn: Callable[[Any], None]) -> _MultiHandle:
    seen: set[int] = set()
    lock = new_lock()

    @wraps(fn)
    def first(grad: Tensor) -> None:
        number = _current_graph_task_id()
        with lock:
            is_first = number not in seen
            seen.add(number)
        if is_first:
            fn(grad)

    return _MultiHandle([t.register_hook(first) for t in tensors])


def _on_all(tensors: Sequence[Tensor], fn: Callable[[Any], None]) -> _MultiHandle:
    arrived: dict[int, list[Any]] = {}
    waiting: dict[int, int] = {}
    lock = new_lock()

    def hook_of(place: int) -> Callable[[Tensor], None]:
        def hook(grad: Tensor) -> None:
            number = _current_graph_task_id()
            with lock:
                if number not in waiting:
                    waiting[number] = sum(map(_will_engine_execute_node, nodes))
                    arrived[number] = [None] * len(nodes)
                arrived[number][place] = grad
                waiting[number] -= 1
                is_last = waiting[number] == 0
            if is_last:
                del waiting[number]
                fn(arrived.pop(number))

        return hook

    nodes = [_get_grad_fn_or_grad_acc(t) for t in tensors]
    return _MultiHandle([t.register_hook(hook_of(place)) for place, t in enumerate(tensors)])


__all__ = [
    "AccumulateGrad", "GradientEdge", "Node", "SavedTensor", "allow_mutation_on_saved_tensors",
    "disable_saved_tensors_hooks", "get_gradient_edge", "increment_version", "register_multi_grad_hook", "save_on_cpu",
    "saved_tensors_hooks", "set_warn_on_accumulate_grad_stream_mismatch",
]  # fmt: skip
