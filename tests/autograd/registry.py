"""The ops of the registry with their samples, for tests that go through all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any
from zlib import crc32

import numpy as np

import autojit as aj
from autojit.core.device import default_device, with_index
from autojit.dispatch.dispatch import apply
from autojit.ir import Op
from autojit.ir.placed import op_on

Sample = tuple[str, Op, tuple[Any, ...]]


def samples(dtype: Any, largest: int = 64, smallest: int = 1) -> Iterator[Sample]:
    """(name, op, arrays) of the differentiable ops' samples in a dtype, by the sizes of their operands."""
    for name, cls in sorted(Op.registry.load().items()):
        if not cls.__module__.startswith("autojit.ops.") or not hasattr(cls, "samples"):
            continue
        for number, (op, arrays) in enumerate(cls.samples(dtype)):  # type: ignore[attr-defined]
            has_dtype = any(a.dtype == dtype.numpy for a in arrays)
            if op.is_differentiable and has_dtype and all(smallest <= a.size <= largest for a in arrays):
                yield f"{name}-{number}", op, arrays


def first_samples(dtype: Any, largest: int = 64, one_of: int = 1) -> list[Sample]:
    """One sample per op, or per one of so many ops."""
    found: dict[str, Sample] = {}
    for name, op, arrays in samples(dtype, largest):
        found.setdefault(name.rsplit("-", 1)[0], (name, op, arrays))
    return [sample for name, sample in found.items() if crc32(name.encode()) % one_of == 0]


def tensors(arrays: Sequence[Any]) -> list[Any]:
    """Tensors that own their memory; those of floating and complex dtype require gradients."""
    made = [aj.tensor(np.array(a)) for a in arrays]
    return [t.requires_grad_() if t.is_floating_point() or t.is_complex() else t for t in made]


def function_of(op: Op) -> Callable[..., Any]:
    """The op as a function of tensors; only outputs with a derivative are returned."""

    op = op_on(op, with_index(default_device()))

    def function(*given: Any) -> Any:
        result = apply(op, *given)
        outputs = result if isinstance(result, tuple) else (result,)
        return tuple(y for y in outputs if y.is_floating_point() or y.is_complex())

    return function
