"""A kernel that applies one linked function to arrays of any length: eager mode's evaluation.

Arguments: the operands' arrays (contiguous, of one length; those that hold one number for all elements are told by
``is_single``), the result, the address of the length, then those of reports (see `codegen.kernel_function`).
"""

from __future__ import annotations

from collections.abc import Sequence

from autojit.codegen.kernel_function import KernelFunction
from autojit.codegen.numba_text.calls import call
from autojit.codegen.numba_text.scalar_function import ScalarFunction
from autojit.core.dtypes import DType
from autojit.ir.op import Op


def write_loop(
    kernel: KernelFunction,
    op: Op,
    function: ScalarFunction,
    output: int,
    operands: Sequence[tuple[DType, bool]],
    result: DType,
) -> None:
    """The kernel, except for its end; ``operands`` are (dtype, is_single)."""
    count = len(operands)
    kernel.pointers([0] * (count + 2))
    length = kernel.load("i64", kernel.buffers[count + 1])
    single = {k: kernel.read(k, dtype, "0") for k, (dtype, is_single) in enumerate(operands) if is_single}
    with kernel.parallel_loop(0, length, "inner") as position:
        values = [
            single[k] if is_single else kernel.read(k, dtype, position) for k, (dtype, is_single) in enumerate(operands)
        ]
        value = call(kernel.emit, function, values, output, result)
        if kernel.emit.failures:
            kernel.collect_failures(op)
        kernel.write(count, value, position)
