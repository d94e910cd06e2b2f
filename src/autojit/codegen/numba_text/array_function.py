"""A function over whole arrays as a kernel of its own: one call with the addresses and shapes of its arrays.

Numba passes an array as (owner, parent, number of elements, bytes of one, address, extents, strides in bytes); nobody
owns the arrays of a step, so the first two are null. An operand without axes is passed as a number.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from autojit.codegen.kernel_function import KernelFunction
from autojit.codegen.numba_text.definitions import function_texts
from autojit.codegen.numba_text.module_text import Linked
from autojit.codegen.scalar import Scalar, memory_type, register_type
from autojit.core.dtypes import bool_, int32
from autojit.core.sizes import typical
from autojit.core.types import TensorType
from autojit.ir.op import Op

ELEMENT_NS = 2.0  # a guess at the time per element: what the function does is not known


def write_array_call(
    kernel: KernelFunction, op: Op, code: Linked, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> float:
    """The kernel of a node, whose buffers are the operands', then the results'; its time in nanoseconds."""
    kernel.pointers([t.size for t in (*operands, *results)])
    parts = ["ptr %results", "ptr %failure"]
    for k, type in enumerate((*operands, *results)):
        is_number = k < len(operands) and type.ndim == 0
        parts += [_number(kernel, k, type)] if is_number else _array(kernel, k, type)
    kernel.entry += [
        "  %results = alloca i64, align 16",
        "  %failure = alloca i64, align 8",
        "  store i64 0, ptr %failure",
    ]
    status = kernel.value(f"call i32 @{code.functions[0].name}({', '.join(parts)})")
    number = kernel.convert("trunc", kernel.load("i64", "%failure"), "i64", "i32")
    least = kernel.value(f"call i32 @llvm.umax.i32(i32 {number}, i32 1)")
    is_well = kernel.test("eq", status, 0, "i32")
    kernel.emit.failures.append(Scalar(kernel.choose(is_well, 0, least, "i32"), int32))
    kernel.collect_failures(op)
    kernel.emit.definitions.update(function_texts(code, kernel.emitter, "nounwind"))
    return 100.0 + ELEMENT_NS * sum(typical(t.size) for t in (*operands, *results))


def _number(kernel: KernelFunction, argument: int, type: TensorType) -> str:
    value = kernel.read(argument, type.dtype, "0")
    if type.dtype is bool_:
        return f"i8 {kernel.convert('zext', value.text, 'i1', 'i8')}"
    return f"{register_type(type.dtype)} {value.text}"


def _array(kernel: KernelFunction, argument: int, type: TensorType) -> list[str]:
    size = type.dtype.size_bytes
    strides = [prod(type.shape[axis + 1 :]) * size for axis in range(type.ndim)]
    words = [*type.shape, *strides]
    head = ["ptr null", "ptr null", f"i64 {kernel.number(type.size)}", f"i64 {size}", f"ptr {kernel.buffers[argument]}"]
    assert memory_type(type.dtype) not in ("half", "i16") or type.dtype.kind != "float", "Numba has no halves"
    return [*head, *(f"i64 {kernel.number(word)}" for word in words)]
