"""Types and constants of tensors as MLIR writes them."""

from __future__ import annotations

from typing import Any

import numpy as np

from autojit.core.sizes import is_symbolic
from autojit.core.types import TensorType

NAMES = {
    "bool": "i1", "uint8": "ui8", "uint16": "ui16", "uint32": "ui32", "uint64": "ui64", "int8": "i8", "int16": "i16",
    "int32": "i32", "int64": "i64", "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64",
}  # fmt: skip


def tensor_text(kind: TensorType) -> str:
    """A type: ``tensor<3x4xf32>``; open extents are ``?``."""
    return f"tensor<{''.join('?x' if is_symbolic(n) else f'{n}x' for n in kind.shape)}{NAMES[kind.dtype.name]}>"


def constant_text(array: Any, kind: TensorType) -> str:
    """The elements of a constant: bytes as they are in memory, but for bools."""
    values = np.asarray(array, order="C")
    if not values.size:
        return "dense<>"
    if kind.dtype.name == "bool":
        listed = np.array2string(values, separator=", ", threshold=values.size + 1, max_line_width=1 << 30)
        return f"dense<{' '.join(listed.split()).replace('True', 'true').replace('False', 'false')}>"
    return f'dense<"0x{values.tobytes().hex().upper()}">'
