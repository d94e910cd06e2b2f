"""Keys of elements: unsigned integers in the order of the elements, NaN greatest, both zeros equal."""

from __future__ import annotations

from autojit.codegen.function_text import FunctionText
from autojit.codegen.scalar import Scalar, is_half
from autojit.core.dtypes import DType, bool_


def key_bytes(dtype: DType) -> int:
    """The size of an element's key: halves are in registers as float32, and so are their keys."""
    return 4 if is_half(dtype) else dtype.size_bytes


def sort_key(f: FunctionText, x: Scalar, *, descending: bool) -> str:
    """The key of an element, complemented where the order descends."""
    size, dtype = key_bytes(x.dtype), x.dtype
    kind, sign = f"i{8 * size}", -(1 << (8 * size - 1))
    if dtype is bool_:
        key = f.convert("zext", x.text, "i1", kind)
    elif dtype.kind in ("int", "uint"):
        key = x.text if dtype.kind == "uint" else f.binary("xor", x.text, sign, kind)
    else:
        real = "double" if size == 8 else "float"
        positive = f.binary("fadd", x.text, "0.0", real)  # of both zeros
        bits = f.convert("bitcast", positive, real, kind)
        flip = f.binary("ashr", bits, 8 * size - 1, kind)
        ordered = f.binary("xor", bits, f.binary("or", flip, sign, kind), kind)
        is_nan = f.binary("fcmp uno", x.text, x.text, real)
        key = f.choose(is_nan, -1, ordered, kind)
    return f.binary("xor", key, -1, kind) if descending else key
