"""Kernels for tests of the emulated device: written as PTX, launched on arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache

import numpy as np

from autojit.ir.op import Ndarray
from autojit.runtime.gpu.emulator.driver import EmulatedDriver

MIB = 1 << 20
ORDERS = (None, 1, 2)


@cache
def device(order: int | None = None) -> EmulatedDriver:
    """A device that the tests of a process share."""
    return EmulatedDriver(order=order, memory_bytes=64 * MIB, pinned_bytes=MIB)


class Words:
    """The addresses of arguments, as a launch takes them."""

    def __init__(self, *values: int | bytes) -> None:
        given = [value if isinstance(value, bytes) else (value % 2**64).to_bytes(8, "little") for value in values]
        self._kept = [ctypes.create_string_buffer(value, max(len(value), 1)) for value in given]
        self._words = (ctypes.c_uint64 * max(len(given), 1))(*[ctypes.addressof(each) for each in self._kept])

    @property
    def address(self) -> int:
        """Of the first word."""
        return ctypes.addressof(self._words)


def entry(body: str, parameters: str = ".param .u64 p0", shared: str = "") -> str:
    """A whole text: ``body`` in a kernel with registers enough of every type."""
    return f"""
.version 8.0
.target sm_90
.address_size 64
{shared}
.visible .entry kernel({parameters})
{{
    .reg .pred %p<9>;
    .reg .b16 %rs<16>;
    .reg .b32 %r<32>;
    .reg .b64 %rd<32>;
{body}
    ret;
}}
"""


def put(driver: EmulatedDriver, values: Ndarray) -> int:
    """The address of a copy on the device."""
    address = driver.allocate(values.nbytes)
    driver.write(address, values)
    return address


def start(driver: EmulatedDriver, function: int, *arguments: int | bytes, threads: int = 32) -> None:
    """Launch one block of a kernel."""
    words = Words(*arguments)
    driver.launch(function, (1, 1, 1), threads, words.address, 0)


def launch(
    driver: EmulatedDriver, ptx: str, *arguments: int | bytes, blocks: int = 1, threads: int = 32, name: str = "kernel"
) -> None:
    """Run a kernel of a text once."""
    module = driver.load(driver.assemble(ptx, driver.architecture))
    try:
        words = Words(*arguments)
        driver.launch(driver.function(module, name), (blocks, 1, 1), threads, words.address, 0)
    finally:
        driver.unload(module)


_ADDRESS = """
    mov.u32 %r30, %tid.x;
    mov.u32 %r31, %ctaid.x;
    mov.u32 %r29, %ntid.x;
    mad.lo.s32 %r30, %r31, %r29, %r30;
    cvt.u64.u32 %rd31, %r30;
"""


def elementwise(
    instructions: str, operands: Sequence[Ndarray], result: str, order: int | None = None, shared: str = ""
) -> Ndarray:
    """What instructions make of each element: operands in ``%x0``, ``%x1``, ..., the result in ``%y``.

    The names stand for registers of the width of the arrays' types.
    """
    driver = device(order)
    count = len(operands[0])
    registers = {1: "rs", 2: "rs", 4: "r", 8: "rd"}
    text, lines = instructions, [_ADDRESS]
    for k, operand in enumerate(operands):
        width = operand.dtype.itemsize
        register = f"%{registers[width]}{k}"
        lines.append(f"ld.param.u64 %rd20, [p{k}]; mad.lo.s64 %rd20, %rd31, {width}, %rd20;")
        lines.append(f"ld.global.b{8 * width} {register}, [%rd20];")
        text = text.replace(f"%x{k}", register)
    width = np.dtype(result).itemsize
    register = f"%{registers[width]}15"
    lines.append(text.replace("%y", register))
    last = len(operands)
    lines.append(f"ld.param.u64 %rd20, [p{last}]; mad.lo.s64 %rd20, %rd31, {width}, %rd20;")
    lines.append(f"st.global.b{8 * width} [%rd20], {register};")
    parameters = ", ".join(f".param .u64 p{k}" for k in range(last + 1))
    places = [put(driver, operand) for operand in operands]
    target = driver.allocate(count * width)
    launch(driver, entry("\n".join(lines), parameters, shared), *places, target, threads=count)
    found = driver.read(target, result, (count,))
    for place in [*places, target]:
        driver.release(place)
    return found
