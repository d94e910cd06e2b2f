"""Capturing and compiling whole steps: ``jit``, ``eager``.

The package is itself callable: ``autojit.jit`` is the decorator whether or not the submodule was imported first.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from autojit.jit.eager_mode import eager
from autojit.jit.function import JitFunction, jit
from autojit.jit.scripting import (
    Future,
    annotate,
    export,
    fork,
    freeze,
    ignore,
    is_scripting,
    is_tracing,
    optimize_for_inference,
    script,
    script_if_tracing,
    trace,
    unused,
    wait,
)  # fmt: skip

_fork, _wait = fork, wait  # as TorchScript calls them

__all__ = [
    "Future", "JitFunction", "annotate", "eager", "export", "fork", "freeze", "ignore", "is_scripting", "is_tracing",
    "jit", "optimize_for_inference", "script", "script_if_tracing", "trace", "unused", "wait",
]  # fmt: skip


class _CallableModule(ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return jit(*args, **kwargs)


sys.modules[__name__].__class__ = _CallableModule
