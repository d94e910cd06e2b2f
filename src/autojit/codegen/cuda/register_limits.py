"""What a kernel's text says of the registers that a thread may have.

Left to itself NVIDIA's assembler prefers more threads at work: near 32, 48 and 64 registers it spills two of them to
memory rather than to take another eight. Told what a thread may have, it does not; but then most kernels that spill
nothing take more and leave room for fewer threads. So a kernel is told where it has been seen to spill.
"""

from __future__ import annotations

import re

from autojit.codegen.cuda.grid_function import MOST_REGISTERS
from autojit.codegen.cuda.lane_limits import REGISTERS

_THREADS = re.compile(r"^\.maxntid (\d+).*$", re.MULTILINE)


def told_registers(ptx: str) -> str:
    """The text of a kernel that says how many registers a thread may have, if it did not."""
    found = _THREADS.search(ptx)
    if found is None or ".maxnreg" in ptx:
        return ptx
    most = min(MOST_REGISTERS, REGISTERS // int(found[1]) // 8 * 8)
    return f"{ptx[: found.end()]}\n.maxnreg {most}{ptx[found.end() :]}"
