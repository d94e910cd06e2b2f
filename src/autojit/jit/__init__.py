"""Capturing and compiling whole steps: ``jit``, ``eager``."""

from autojit.jit.function import JitFunction, eager, jit

__all__ = ["JitFunction", "eager", "jit"]
