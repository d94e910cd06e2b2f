"""Capturing and compiling whole steps: ``jit``, ``eager``.

The package is itself callable: ``autojit.jit`` is the decorator whether or not the submodule was imported first.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from autojit.jit.function import JitFunction, eager, jit
from autojit.jit.scripting import Future, fork, script, trace, wait

_fork, _wait = fork, wait  # as TorchScript calls them

__all__ = ["Future", "JitFunction", "eager", "fork", "jit", "script", "trace", "wait"]


class _CallableModule(ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return jit(*args, **kwargs)


sys.modules[__name__].__class__ = _CallableModule
