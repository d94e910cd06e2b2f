"""The kernel that decides whether a graph runs a body: it sets a condition as a byte of the device says.

One stands in front of every body, and one ends a body that repeats. Once an error was reported nothing is decided for:
a loop ends with the turn that found it, as the host's do.
"""

from __future__ import annotations

from autojit.codegen.cuda.grid_function import GLOBAL, body_parameters
from autojit.codegen.function_text import FunctionText
from autojit.codegen.grid_text import Buffer, GridText
from autojit.codegen.module_text import ModuleText, Signature
from autojit.core.once import once

SET_CONDITION = Signature("cudaGraphSetConditional", "i64 handle, i32 value", "void")
"""A function that the driver's compiler knows, from 12.4 on."""

_WARP = 32


@once
def decision_kernel(is_negated: bool, heeds: bool) -> GridText:
    """One thread reads the byte.

    Args:
        is_negated: the body runs where the byte is 0.
        heeds: kernels of the run may have reported errors.
    """
    takes = [*body_parameters(_WARP, (1, 1, 1)), f"ptr {GLOBAL} condition"]
    takes += [f"ptr {GLOBAL} errors"] * heeds + ["i64 handle"]
    body = Signature("body", ", ".join(takes))
    f = FunctionText(module := ModuleText(), body, linkage="internal", attributes="alwaysinline")
    with f.when(f.test("eq", "%thread.32", 0, "i32")):
        is_sound = "true"
        if heeds:
            word = f.value(f'load atomic i64, ptr {GLOBAL} %errors syncscope("device") monotonic, align 8')
            is_sound = f.test("eq", word, 0, "i64")
        with f.when(is_sound):  # else nobody may have written the byte
            byte = f.load("i8", f"{GLOBAL} %condition")
            found = f.convert("zext", f.test("eq" if is_negated else "ne", byte, 0, "i8"), "i1", "i32")
        with f.otherwise():
            pass
        f.call(SET_CONDITION, "%handle", f.merge("i32", found, 0))
    f.finish()
    return GridText(module.text(), (Buffer("reads", 1),), _WARP, (1, 1, 1), heeds=heeds, decides=True)
