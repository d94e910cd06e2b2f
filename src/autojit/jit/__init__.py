"""Capturing and compiling whole steps: ``jit``, ``eager``.

The package is itself callable: ``autojit.jit`` is the decorator whether or not the submodule was imported first.
"""

from __future__ import annotations

import inspect
import sys
from types import ModuleType
from typing import Any
from typing import Final as Final

from autojit.core.futures import Future
from autojit.jit.eager_mode import eager
from autojit.jit.function import JitFunction, jit
from autojit.jit.scripting import ScriptFunction as ScriptFunction
from autojit.jit.scripting import ScriptModule as ScriptModule
from autojit.jit.scripting import TracerWarning as TracerWarning
from autojit.jit.scripting import (
    annotate,
    export,
    fork,
    freeze,
    ignore,
    interface,
    is_scripting,
    is_tracing,
    optimize_for_inference,
    script,
    script_if_tracing,
    trace,
    unused,
    wait,
)  # fmt: skip

_fork, _wait, _script_if_tracing = fork, wait, script_if_tracing  # as TorchScript calls them
_overload = _overload_method = unused  # what is written of such a function is its types

__all__ = [
    "Future", "JitFunction", "annotate", "eager", "export", "fork", "freeze", "ignore", "interface",
    "is_scripting", "is_tracing", "jit", "optimize_for_inference", "script", "script_if_tracing", "trace", "unused",
    "wait",
]  # fmt: skip


class _CallableModule(ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return jit(*args, **kwargs)


def _speak_of_jit(module: Any) -> None:
    """``help(autojit.jit)`` is about the function that a call of this module is."""
    signature = inspect.signature(jit)
    module.__class__ = _CallableModule
    module.__signature__ = signature
    plain = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    shown = signature.replace(parameters=plain, return_annotation=inspect.Signature.empty)
    module.__doc__ = f"jit{shown}\n\n{inspect.getdoc(jit)}\n\nBesides, in this package: TorchScript's entry points."


_speak_of_jit(sys.modules[__name__])
