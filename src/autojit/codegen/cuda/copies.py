"""Kernels that copy bytes within a device, or clear them.

They are launches like any other, where the driver's own copies are not: an address may come out of the device table,
and what writes lasting state does nothing once an error was reported.
"""

from __future__ import annotations

from autojit.codegen.cuda.grid_function import GLOBAL, body_parameters
from autojit.codegen.function_text import FunctionText
from autojit.codegen.grid_text import Buffer, GridText
from autojit.codegen.module_text import ModuleText, Signature
from autojit.core.once import once

_KINDS = {1: "i8", 2: "i16", 4: "i32", 8: "i64", 16: "<4 x i32>"}
_THREADS = 256


def access_bytes(size_bytes: int, *alignments: int) -> int:
    """The widest access that divides a size and suits addresses."""
    return min(16, *(value & -value for value in (size_bytes or 16, *alignments)))


@once
def copy_kernel(size_bytes: int, width: int) -> GridText:
    """Copy bytes, ``width`` of them per thread, from the second buffer to the first."""
    return _kernel(size_bytes, width, "copy")


@once
def fill_kernel(size_bytes: int, width: int) -> GridText:
    """Set the bytes of a buffer to zero, ``width`` of them per thread."""
    return _kernel(size_bytes, width, "fill")


def _kernel(size_bytes: int, width: int, what: str) -> GridText:
    count, kind = size_bytes // width, _KINDS[width]
    blocks = -(-count // _THREADS)
    takes = [*body_parameters(_THREADS, (blocks, 1, 1)), f"ptr {GLOBAL} to"]
    takes += [f"ptr {GLOBAL} source"] * (what == "copy")
    body = Signature("body", ", ".join(takes))
    f = FunctionText(module := ModuleText(), body, linkage="internal", attributes="alwaysinline")
    block, thread = (f.convert("zext nneg", number, "i32") for number in ("%block.x.32", "%thread.32"))
    place = f.add(f.mul(block, _THREADS), thread)
    access = f", align {width}"
    with f.when(f.test("ult", place, count)):
        value = "zeroinitializer"
        if what == "copy":
            value = f.load(kind, f.element(f"{GLOBAL} %source", kind, place), attributes=access)
        f.store(kind, value, f.element(f"{GLOBAL} %to", kind, place), attributes=access)
    f.finish()
    buffers = (Buffer("writes", width), Buffer("reads", width))[: 2 if what == "copy" else 1]
    return GridText(module.text(), buffers, _THREADS, (blocks, 1, 1))
