"""Configuration from the environment, read once and changeable from Python.

| variable | meaning |
|---|---|
| ``AUTOJIT_DISABLE`` | 1: ``@aj.jit`` runs the function eagerly |
| ``AUTOJIT_CHECK`` | 1: verify the graph between passes, bounds-test every access, poison buffers |
| ``AUTOJIT_REFERENCE`` | 1: eager mode computes with NumPy alone, also on large arrays |
| ``AUTOJIT_FULL_TRACEBACK`` | 1: tracebacks keep every frame of autojit's |
| ``AUTOJIT_NOTICE`` | 0: a compile of more than a second says nothing on the terminal |
| ``AUTOJIT_NUM_THREADS`` | threads of a compiled step; default: the cores this process may use |
| ``AUTOJIT_VECTOR_BYTES`` | 16, 32 or 64: kernels use vector registers of at most this size; default: the machine's |
| ``AUTOJIT_CACHE_DIR`` | the object cache's directory |
| ``AUTOJIT_OPT_LEVEL`` | 0 to 3: how hard LLVM works on kernels; 0 compiles in a third of the time; default: 2 |
| ``AUTOJIT_PASSES`` | none: only the passes without which a graph cannot be lowered; default: all |
"""

from __future__ import annotations

import os


def _flag(name: str) -> bool:
    return os.environ.get(name, "").lower() in ("1", "true", "yes", "on")


class Config:
    """Process-wide switches."""

    disable: bool = _flag("AUTOJIT_DISABLE")
    opt_level: int = int(os.environ.get("AUTOJIT_OPT_LEVEL", "2"))
    passes: str = os.environ.get("AUTOJIT_PASSES", "all")
    check: bool = _flag("AUTOJIT_CHECK")
    keep_steps: bool = os.environ.get("AUTOJIT_KEEP_STEPS", "1").lower() not in ("0", "false", "no", "off")
    reference: bool = _flag("AUTOJIT_REFERENCE")  # read when a thread starts to use tensors
    full_traceback: bool = _flag("AUTOJIT_FULL_TRACEBACK")
    notice: bool = os.environ.get("AUTOJIT_NOTICE", "1").lower() not in ("0", "false", "no", "off")


config = Config()
