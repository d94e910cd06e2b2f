"""Names of torch's private module ``torch._C`` that programs about autograd use, for the same things here."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from autojit.autograd.engine import ExecutionEngine
from autojit.autograd.function import Function
from autojit.autograd.grad_mode import is_grad_enabled, is_inference_mode_enabled
from autojit.autograd.graph import (
    Node,
    SavedTensor,
    _current_graph_task_id,
    _will_engine_execute_node,
    increment_version,
    saved_tensors_hooks,
)
from autojit.tensor import Tensor
from autojit.tensor.node import AccumulateGrad
from autojit.tensor.state import state


class _UndefinedGrad(Function):
    """The identity; no gradient goes back through it."""

    @staticmethod
    def forward(ctx: Any, *tensors: Any) -> Any:
        """The tensors as they are."""
        return tensors[0] if len(tensors) == 1 else tensors

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Nothing, which is not the same as zeros."""
        return (None,) * len(grads)


class UndefinedGrad:
    """``UndefinedGrad()(x)`` is ``x``, but its gradient is undefined.

    Example:
        >>> import autojit as aj
        >>> x = aj.ones(1, requires_grad=True)
        >>> UndefinedGrad()(x).backward()
        >>> x.grad is None
        True
    """

    def __call__(self, *tensors: Tensor) -> Any:
        return _UndefinedGrad.apply(*tensors)


class _WeakTensorRef:
    """A weak reference to a tensor.

    Example:
        >>> import autojit as aj
        >>> x = aj.ones(1)
        >>> reference = _WeakTensorRef(x)
        >>> del x
        >>> reference.expired()
        True
    """

    def __init__(self, tensor: Tensor) -> None:
        self._reference = weakref.ref(tensor)

    def expired(self) -> bool:
        """Whether the tensor is gone."""
        return self._reference() is None


def _increment_version(tensors: Any) -> None:
    """Count a change of each tensor."""
    increment_version(tensors)


def _set_grad_enabled(enabled: bool) -> None:
    """Switch recording on or off in this thread."""
    state.grad_enabled = enabled


def _push_hooks(pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]) -> None:
    saved_tensors_hooks(pack_hook, unpack_hook).__enter__()


def _pop_hooks() -> None:
    state.recording_hooks = state.recording_hooks[:-1] or None


_functions = SimpleNamespace(AccumulateGrad=AccumulateGrad, Node=Node, UndefinedGrad=UndefinedGrad)
_autograd = SimpleNamespace(
    SavedTensor=SavedTensor,
    _push_saved_tensors_default_hooks=_push_hooks,
    _pop_saved_tensors_default_hooks=_pop_hooks,
)
_ImperativeEngine = ExecutionEngine

__all__ = [
    "UndefinedGrad", "_ImperativeEngine", "_WeakTensorRef", "_autograd", "_current_graph_task_id", "_functions",
    "_increment_version", "_set_grad_enabled", "_will_engine_execute_node", "is_grad_enabled",
    "is_inference_mode_enabled",
]  # fmt: skip
