"""The kernel that tells the host what kernels before it in a run have reported, while the run goes on.

It follows the last kernel that may report an error. The host waits for its number alone, not for the end of the run:
the rest of a step runs while the host prepares the next one.

The words of the device: who found what, where, how often the host was told. The words of the host, in pinned memory:
copies of all three. The count is written last, and by it the host knows that the others are there.
"""

from __future__ import annotations

from autojit.codegen.cuda.grid_function import GLOBAL, body_parameters
from autojit.codegen.function_text import FunctionText
from autojit.codegen.grid_text import GridText
from autojit.codegen.module_text import ModuleText, Signature
from autojit.core.once import once

ERROR_BYTES = 16
"""Two words: who found what, and where (`codegen.kernel_function`)."""

TOLD_BYTES = 24
"""With the count behind them."""

_WARP = 32


@once
def report_kernel() -> GridText:
    """One thread copies the words and counts."""
    takes = ", ".join([*body_parameters(_WARP, (1, 1, 1)), f"ptr {GLOBAL} errors", f"ptr {GLOBAL} told"])
    f = FunctionText(module := ModuleText(), Signature("body", takes), linkage="internal", attributes="alwaysinline")
    errors, told = f"{GLOBAL} %errors", f"{GLOBAL} %told"
    with f.when(f.test("eq", "%thread.32", 0, "i32")):
        for k in range(2):
            word = f.value(f'load atomic i64, ptr {f.element(errors, "i64", k)} syncscope("device") monotonic, align 8')
            f.store("i64", word, f.element(told, "i64", k), attributes=", align 8")
        place = f.element(errors, "i64", 2)
        count = f.add(f.load("i64", place, attributes=", align 8"), 1)
        f.store("i64", count, place, attributes=", align 8")
        f.line("fence release")
        f.line(f"store atomic i64 {count}, ptr {f.element(told, 'i64', 2)} monotonic, align 8")
    f.finish()
    return GridText(module.text(), (), _WARP, (1, 1, 1), tells=True)
