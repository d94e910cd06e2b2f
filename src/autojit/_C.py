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
    _current_autograd_node,
    _current_graph_task_execution_order,
    _current_graph_task_id,
    _saved_tensors_hooks_is_enabled,
    _will_engine_execute_node,
    increment_version,
    saved_tensors_hooks,
)
from autojit.autograd.running import current_walk
from autojit.core.top_level import TOP_LEVEL, top_level
from autojit.functions.counted import unique
from autojit.functions.overridable import DisableTorchFunction as DisableTorchFunction
from autojit.functions.overridable import DisableTorchFunctionSubclass as DisableTorchFunctionSubclass
from autojit.functions.overridable import disabled as _disabled_torch_function_impl  # noqa: F401
from autojit.library.dispatch_keys import DispatchKey as DispatchKey
from autojit.library.dispatch_keys import DispatchKeySet as DispatchKeySet
from autojit.library.dispatch_keys import ExcludeDispatchKeyGuard as _ExcludeDispatchKeyGuard  # noqa: F401
from autojit.nn.conversion import parse_to
from autojit.tensor import Tensor
from autojit.tensor.node import AccumulateGrad
from autojit.tensor.refused_dispatch import disabled_dispatch as _disabled_torch_dispatch_impl  # noqa: F401
from autojit.tensor.state import set_grad, state
from autojit.tensor.tensor import storage_of


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


class DelayedError:
    """``DelayedError(message, n)(*tensors)`` gives the tensors back; a gradient that reaches them is an error.

    ``n`` is the number of tensors.

    Example:
        >>> import autojit as aj
        >>> x = aj.ones(1, requires_grad=True)
        >>> DelayedError("not differentiable", 1)(x).backward()
        Traceback (most recent call last):
            ...
        RuntimeError: not differentiable
    """

    def __init__(self, message: str, num_inputs: int) -> None:
        self.message = message
        self.num_inputs = num_inputs

    def __call__(self, *tensors: Tensor) -> Any:
        if len(tensors) != self.num_inputs:
            raise TypeError(f"DelayedError: expected {self.num_inputs} tensors, got {len(tensors)}")
        return Error.apply(self.message, *tensors)


class Error(Function):
    """The identity, whose backward raises RuntimeError with the message it was given."""

    @staticmethod
    def forward(ctx: Any, message: str, *tensors: Any) -> Any:
        """The tensors as they are."""
        ctx.message = message
        made = tuple(t.detach() for t in tensors)
        return made[0] if len(made) == 1 else made

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Never a gradient."""
        raise RuntimeError(ctx.message)


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
    set_grad(enabled)


def _set_fwd_grad_enabled(enabled: bool) -> None:
    """Let tangents be carried along, or not, in this thread."""
    state.forward_enabled = enabled


def _push_hooks(pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]) -> None:
    saved_tensors_hooks(pack_hook, unpack_hook).__enter__()


def _pop_hooks() -> None:
    state.recording_hooks = state.recording_hooks[:-1] or None


def _make_saved_tensor(tensor: Tensor, is_output: bool, is_inplace_on_view: bool = False) -> SavedTensor:
    """``tensor`` as an op would save it, through the saved-tensor hooks that are active."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"_make_saved_tensor(): incompatible function arguments: {type(tensor).__name__} is no tensor")
    return SavedTensor.alone(tensor, is_output)


def _get_tracing_state() -> Any:
    """What a step is captured with, or None."""
    return state.trace


def _log_api_usage_once(event: str) -> None:
    """Nothing is told to anybody."""


def _keeps_graph() -> bool:
    """Whether the running backward pass keeps the history; True outside of all passes."""
    walk = current_walk()
    return True if walk is None else walk.keep_graph


def _set_version_counter(tensors: tuple[Tensor, ...], versions: tuple[int, ...]) -> None:
    """Let each tensor have been changed this many times, as far as backward passes can tell."""
    for t, version in zip(tensors, versions, strict=True):
        if version < 0:
            raise RuntimeError(f"Cannot set a version counter to {version}, a number below 0")
        storage_of(t).version = version


@top_level
def _unique2(
    input: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """``unique`` that always returns three tensors; those that were not asked for are empty."""
    values, inverse, counts = unique(input, sorted, True, True)
    nothing = counts[:0]
    return values, inverse if return_inverse else nothing, counts if return_counts else nothing


@top_level
def _unique(input: Tensor, sorted: bool = True, return_inverse: bool = False) -> tuple[Tensor, Tensor]:
    """``unique`` that always returns two tensors: the values and the inverse, empty unless it was asked for."""
    return _unique2(input, sorted, return_inverse)[:2]


def _unique_dim(
    input: Tensor, dim: int, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> Any:
    """``unique`` along ``dim`` with inverse and counts, whether they were asked for or not."""
    return unique(input, sorted, True, True, dim)


Node.register(DelayedError)
Node.register(UndefinedGrad)

_functions = SimpleNamespace(
    AccumulateGrad=AccumulateGrad, DelayedError=DelayedError, Error=Error, Node=Node, UndefinedGrad=UndefinedGrad
)
_autograd = SimpleNamespace(
    SavedTensor=SavedTensor,
    _make_saved_tensor=_make_saved_tensor,
    _saved_tensors_hooks_is_enabled=_saved_tensors_hooks_is_enabled,
    _get_current_graph_task_keep_graph=_keeps_graph,
    _push_saved_tensors_default_hooks=_push_hooks,
    _pop_saved_tensors_default_hooks=_pop_hooks,
    _unsafe_set_version_counter=_set_version_counter,
)


def _parse_to(*args: Any, **kwargs: Any) -> tuple[Any, Any, bool, Any]:
    """Device, dtype, ``non_blocking`` and memory format of the arguments of ``Module.to``."""
    device, dtype = parse_to(args, kwargs)
    is_begun = any(given is True for given in args) or bool(kwargs.get("non_blocking"))
    return device, dtype, is_begun, kwargs.get("memory_format")


_nn = SimpleNamespace(_parse_to=_parse_to)
TOP_LEVEL["_VF"] = __name__
_VF = SimpleNamespace(unique_dim=_unique_dim)
_ImperativeEngine = ExecutionEngine
has_lapack = True
_TensorMeta = type(Tensor)

__all__ = [
    "DelayedError", "Error", "UndefinedGrad", "_ImperativeEngine", "_WeakTensorRef", "_autograd",
    "_current_autograd_node", "_current_graph_task_execution_order", "_current_graph_task_id", "_functions",
    "_increment_version", "_set_grad_enabled", "_will_engine_execute_node", "has_lapack", "is_grad_enabled",
    "is_inference_mode_enabled",
]  # fmt: skip
