"""A kernel that applies one linked function to arrays of any length: eager mode's evaluation.

Arguments: the operands' arrays (contiguous, of one length; those that hold one number for all elements are told by
``is_single``), the result, the address of the length, then those of reports (see ``cpu.kernel_text``).
"""

from __future__ import annotations

from collections.abc import Sequence

from autojit.codegen.cpu.kernel_text import KernelFunction, KernelModule
from autojit.codegen.linked.calls import call
from autojit.codegen.linked.scalar_function import ScalarFunction
from autojit.core.dtypes import DType
from autojit.ir.op import Op


def print_loop(
    op: Op, function: ScalarFunction, output: int, operands: Sequence[tuple[DType, bool]], result: DType
) -> str:
    """The kernel's text; ``operands`` are (dtype, is_single)."""
    module = KernelModule()
    kernel = KernelFunction(module, "kernel")
    count = len(operands)
    kernel.pointers([0] * (count + 2))
    length = kernel.line(f"load i64, ptr %p{count + 1}, align 8")
    single = {k: kernel.load(k, dtype, "0") for k, (dtype, is_single) in enumerate(operands) if is_single}

    def body(position: str) -> None:
        with kernel.parallel():
            values = [
                single[k] if is_single else kernel.load(k, dtype, position)
                for k, (dtype, is_single) in enumerate(operands)
            ]
            value = call(kernel.emit, function, values, output, result)
            if kernel.emit.failures:
                kernel.collect_failures(op)
            kernel.store(count, value, position)

    kernel.loop("inner", "0", length, body, is_parallel=True)
    kernel.finish()
    return module.text()
