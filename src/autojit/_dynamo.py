"""What libraries ask ``torch._dynamo`` for: whether a step is being captured, and to be left out of it."""

from __future__ import annotations

from contextlib import nullcontext

from autojit.core.absent_class import WithoutInstances
from autojit.core.lazy_modules import provide as _provide
from autojit.top_level.compiler_names import allow_in_graph as allow_in_graph
from autojit.top_level.compiler_names import assume_constant_result as assume_constant_result
from autojit.top_level.compiler_names import disable as disable
from autojit.top_level.compiler_names import is_compiling as is_compiling
from autojit.top_level.compiler_names import reset as reset


class OptimizedModule(WithoutInstances):
    """What torch.compile makes of a module; here a module stays what it is, and its call is compiled."""

    what = "optimised modules"
    instead = "aj.compile(module)"


class TransformGetItemToIndex(nullcontext[None]):
    """Inside, torch lets ``vmap`` index by batched tensors, which it always does here."""


def is_compile_supported(device_type: str) -> bool:
    """Whether functions are compiled for devices of a kind."""
    return device_type in ("cpu", "cuda")


_provide(
    "autojit", {f"_dynamo.{name}": "_dynamo" for name in ("eval_frame", "utils", "_trace_wrapped_higher_order_op")}
)
__all__ = [
    "OptimizedModule",
    "TransformGetItemToIndex",
    "allow_in_graph",
    "assume_constant_result",
    "disable",
    "is_compile_supported",
    "is_compiling",
    "reset",
]
