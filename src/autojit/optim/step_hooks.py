"""What runs around every call of an optimiser's ``step``: hooks, the call's own numbers, and the line it comes from."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from autojit.core.epoch import hooks_of_all
from autojit.core.program_parts import UPDATE, Part
from autojit.core.source import enter, leave
from autojit.nn.hooks import RemovableHandle, add_hook
from autojit.optim.arithmetic import StepCall, stepping
from autojit.tensor.state import is_tracing
from autojit.tensor.state import state as now_of_thread

if TYPE_CHECKING:
    from autojit.optim.optimizer import Optimizer

ALL_STEP_PRE_HOOKS: dict[int, Callable[..., Any]] = hooks_of_all("before the steps of all optimisers")
ALL_STEP_POST_HOOKS: dict[int, Callable[..., Any]] = hooks_of_all("after the steps of all optimisers")


def register_optimizer_step_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call ``hook(optimizer, args, kwargs)`` before every step of every optimiser."""
    return add_hook(ALL_STEP_PRE_HOOKS, hook)


def register_optimizer_step_post_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call ``hook(optimizer, args, kwargs)`` after every step of every optimiser."""
    return add_hook(ALL_STEP_POST_HOOKS, hook)


def with_hooks(func: Callable[..., Any]) -> Callable[..., Any]:
    """Run the step hooks around a subclass's ``step``."""

    @functools.wraps(func)
    def step(self: Optimizer, *args: Any, **kwargs: Any) -> Any:
        for hook in (*ALL_STEP_PRE_HOOKS.values(), *self._step_pre_hooks.values()):
            found = hook(self, args, kwargs)
            if found is not None:
                if not (isinstance(found, tuple) and len(found) == 2):
                    raise RuntimeError(
                        f"{hook} must return None or a tuple of (new_args, new_kwargs), but got {found}."
                    )
                args, kwargs = found
        part = None
        if now_of_thread.trace is not None:
            now_of_thread.trace.follow(self)
            part = Part(UPDATE, kind=type(self).__name__)
        entered = enter(sys._getframe(), part)
        before = stepping.optimizer, stepping.call
        stepping.optimizer, stepping.call = self, StepCall()
        try:
            result = func(self, *args, **kwargs)
        finally:
            stepping.optimizer, stepping.call = before
            leave(entered)
        self._step_calls += 1
        self._is_captured = self._is_captured or is_tracing()
        for hook in (*self._step_post_hooks.values(), *ALL_STEP_POST_HOOKS.values()):
            hook(self, args, kwargs)
        return result

    vars(step)["_has_step_hooks"] = True
    return step
