"""What libraries ask ``torch._dynamo`` for: whether a step is being captured, and to be left out of it."""

from __future__ import annotations

from autojit.top_level.compiler_names import allow_in_graph as allow_in_graph
from autojit.top_level.compiler_names import disable as disable
from autojit.top_level.compiler_names import is_compiling as is_compiling

__all__ = ["allow_in_graph", "disable", "is_compiling"]
