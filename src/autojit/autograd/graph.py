"""The recorded history as an object: nodes, gradient edges, saved-tensor hooks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from autojit.autograd.derivatives import GradientEdge, get_gradient_edge
from autojit.tensor import Tensor
from autojit.tensor.node import AccumulateGrad, Node, RemovableHandle
from autojit.tensor.state import state


class saved_tensors_hooks:
    """Context manager: what ops save for backward goes through ``pack_hook`` and comes back through ``unpack_hook``."""

    def __init__(self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]) -> None:
        self.hooks = (pack_hook, unpack_hook)

    def __enter__(self) -> None:
        state.recording_hooks = (*(state.recording_hooks or ()), self.hooks)

    def __exit__(self, *exception: object) -> None:
        state.recording_hooks = state.recording_hooks[:-1] or None


class save_on_cpu(saved_tensors_hooks):
    """Keep saved tensors on the CPU: copies, as there is nowhere else they could be."""

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        super().__init__(lambda t: t.clone(), lambda t: t)


class _MultiHook:
    """Collects the gradients of several tensors during one backward pass."""

    def __init__(self, handles: Sequence[RemovableHandle]) -> None:
        self.handles = tuple(handles)

    def remove(self) -> None:
        """Remove all hooks."""
        for handle in self.handles:
            handle.remove()

    def __enter__(self) -> _MultiHook:
        return self

    def __exit__(self, *exception: object) -> None:
        self.remove()


def register_multi_grad_hook(tensors: Sequence[Tensor], fn: Callable[[Any], None], *, mode: str = "all") -> _MultiHook:
    """Call ``fn`` once the gradients of all tensors (or of any, with ``mode="any"``) are computed."""
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    grads: dict[int, Tensor] = {}
    done = [False]

    def hook_of(place: int) -> Callable[[Tensor], None]:
        def hook(grad: Tensor) -> None:
            if mode == "any":
                if not done[0]:
                    done[0] = True
                    fn(grad)
                return
            grads[place] = grad
            if len(grads) == len(tensors):
                ordered = [grads.get(k) for k in range(len(tensors))]
                grads.clear()
                fn(ordered)

        return hook

    return _MultiHook([t.register_hook(hook_of(k)) for k, t in enumerate(tensors)])


__all__ = [
    "AccumulateGrad", "GradientEdge", "Node", "get_gradient_edge", "register_multi_grad_hook", "save_on_cpu",
    "saved_tensors_hooks",
]  # fmt: skip
