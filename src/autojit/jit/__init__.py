"""Capturing and compiling whole steps: ``jit``, ``eager``.

The package is itself callable: ``autojit.jit`` is the decorator whether or not the submodule was imported first.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from autojit.jit.function import JitFunction, eager, jit

__all__ = ["JitFunction", "eager", "jit"]


class _CallableModule(ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return jit(*args, **kwargs)


sys.modules[__name__].__class__ = _CallableModule
