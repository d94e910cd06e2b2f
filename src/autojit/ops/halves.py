"""Composites of halves (float16, bfloat16): computed in float32 and rounded once, as one kernel of torch's does.

The one rule: what is one kernel in torch is rounded once, whatever ops it is made of, and a Python number that it is
multiplied with keeps its digits (``elementwise_arithmetic``). Where torch composes a function or a derivative of
several kernels each of them rounds, here as there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from autojit.core.dtypes import DType, bfloat16, float16, float32
from autojit.ops.elementwise_arithmetic import cast as converted

__all__ = ["rounded_once"]

F = TypeVar("F", bound=Callable[..., Any])


def rounded_once(composite: F) -> F:
    """The composite, which takes operands that are all float16, or all bfloat16, to float32 and its results back.

    Its derivatives are those of what is computed: they are rounded once, too. The first argument is an operand.
    """

    @wraps(composite)
    def call(x: Any, *others: Any, **options: Any) -> Any:
        dtype: DType = x.spec.dtype
        if dtype is not bfloat16 and dtype is not float16:
            return composite(x, *others, **options)
        given = [getattr(other, "spec", None) for other in others]
        if any(spec is not None and spec.dtype is not dtype for spec in given):
            return composite(x, *others, **options)  # what they are promoted to decides
        wide = [o if spec is None else converted(o, float32) for o, spec in zip(others, given, strict=True)]
        found = composite(converted(x, float32), *wide, **options)
        return tuple([converted(one, dtype) for one in found]) if isinstance(found, tuple) else converted(found, dtype)

    return cast(F, call)
