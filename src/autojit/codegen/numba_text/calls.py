"""A call of a linked function from a loop body: autojit's scalars in, a scalar out, its failures noted."""

from __future__ import annotations

from collections.abc import Sequence

from autojit.codegen.emitter import ScalarEmitter
from autojit.codegen.numba_text.definitions import definitions
from autojit.codegen.numba_text.scalar_function import ScalarFunction
from autojit.codegen.scalar import Scalar, is_half, register_type
from autojit.core.dtypes import DType, bool_, float32, float64, int8, int16, int32, int64

_RESULTS: dict[str, DType] = {
    "double": float64, "float": float32, "i8": int8, "i16": int16, "i32": int32, "i64": int64, "i1": bool_,
}  # fmt: skip


def call(
    emit: ScalarEmitter, function: ScalarFunction, operands: Sequence[Scalar], output: int, dtype: DType
) -> Scalar:
    """Result ``output`` of the function as a value of ``dtype``, which may be narrower than what it returns.

    A result of type ``bool`` is a byte in LLVM's text; integers of the same width have one LLVM type, signed or not.
    """
    symbol, texts = definitions(function, type(emit))
    emit.definitions.update(texts)
    arguments = ", ".join(_argument(emit, x, kind) for x, kind in zip(operands, function.operands, strict=True))
    kinds = [kind for _, kind in function.results]
    whole = emit.instruction(f"call {{ {', '.join([*kinds, 'i32'])} }} {symbol}({arguments})", int64).text
    aggregate = f"{{ {', '.join([*kinds, 'i32'])} }} {whole}"
    if function.may_fail:
        emit.failures.append(emit.instruction(f"extractvalue {aggregate}, {len(kinds)}", int32))
    kind = kinds[output]
    value = emit.instruction(f"extractvalue {aggregate}, {output}", _RESULTS[kind])
    if dtype.kind == "float" and not is_half(dtype):
        return emit.cast(value, dtype)
    if is_half(dtype):
        narrow = emit.cast(value, float32) if kind == "double" else value
        return emit.rounded(Scalar(narrow.text, float32), dtype)
    if dtype is bool_:
        return emit.ne(value, 0)
    return Scalar(value.text, dtype) if register_type(dtype) == kind else emit.cast(value, dtype)


def _argument(emit: ScalarEmitter, x: Scalar, kind: str) -> str:
    """A scalar as an operand of the function's type; a bool is a byte there."""
    held = register_type(x.dtype)
    if held == kind:
        return f"{kind} {x.text}"
    if held == "i1":
        return f"{kind} {emit.instruction(f'zext i1 {x.text} to {kind}', int8).text}"
    wide = {"double": float64, "float": float32}[kind]
    return f"{kind} {emit.cast(Scalar(x.text, float32 if is_half(x.dtype) else x.dtype), wide).text}"
